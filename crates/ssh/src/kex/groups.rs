//! RFC 3526: the groups of the fixed methods, and the set that a server picks from for a group
//! exchange. All are safe primes with generator 2.

use super::GexBounds;
use crate::config::{GEX_BITS_MAX, GEX_BITS_MIN};
use crate::provider::Group;
use std::sync::LazyLock;

/// RFC 3526 3: 2048 bits.
pub static GROUP14: LazyLock<Group> = LazyLock::new(|| group(P2048));
/// RFC 3526 4: 3072 bits.
static GROUP15: LazyLock<Group> = LazyLock::new(|| group(P3072));
/// RFC 3526 5: 4096 bits.
pub static GROUP16: LazyLock<Group> = LazyLock::new(|| group(P4096));
/// RFC 3526 6: 6144 bits.
static GROUP17: LazyLock<Group> = LazyLock::new(|| group(P6144));
/// RFC 3526 7: 8192 bits.
pub static GROUP18: LazyLock<Group> = LazyLock::new(|| group(P8192));

/// Sizes of the built-in set, ascending.
const SIZES: [u32; 5] = [2048, 3072, 4096, 6144, 8192];

/// RFC 4419 3: the smallest group that is at least as large as preferred, else the largest within
/// the bounds; `None` when no group lies within them.
pub(crate) fn server_group(bounds: GexBounds) -> Option<&'static Group> {
    let range = bounds.min.max(GEX_BITS_MIN)..=bounds.max.min(GEX_BITS_MAX);
    let fits = || SIZES.into_iter().filter(|bits| range.contains(bits));
    let bits = fits()
        .find(|bits| *bits >= bounds.preferred)
        .or_else(|| fits().next_back())?;
    Some(match bits {
        2048 => &GROUP14,
        3072 => &GROUP15,
        4096 => &GROUP16,
        6144 => &GROUP17,
        _ => &GROUP18,
    })
}

fn group(hex: &str) -> Group {
    let digits: Vec<u8> = hex
        .bytes()
        .filter_map(|c| char::from(c).to_digit(16))
        .map(|digit| u8::try_from(digit).expect("a hexadecimal digit"))
        .collect();
    Group {
        p: digits
            .chunks_exact(2)
            .map(|pair| pair[0] << 4 | pair[1])
            .collect(),
        g: vec![2],
    }
}

const P2048: &str = "
    ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22514a08798e3404dd
    ef9519b3cd3a431b302b0a6df25f14374fe1356d6d51c245e485b576625e7ec6f44c42e9a637ed6b0bff5cb6f406b7ed
    ee386bfb5a899fa5ae9f24117c4b1fe649286651ece45b3dc2007cb8a163bf0598da48361c55d39a69163fa8fd24cf5f
    83655d23dca3ad961c62f356208552bb9ed529077096966d670c354e4abc9804f1746c08ca18217c32905e462e36ce3b
    e39e772c180e86039b2783a2ec07a28fb5c55df06f4c52c9de2bcbf6955817183995497cea956ae515d2261898fa0510
    15728e5a8aacaa68ffffffffffffffff
";

const P3072: &str = "
    ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22514a08798e3404dd
    ef9519b3cd3a431b302b0a6df25f14374fe1356d6d51c245e485b576625e7ec6f44c42e9a637ed6b0bff5cb6f406b7ed
    ee386bfb5a899fa5ae9f24117c4b1fe649286651ece45b3dc2007cb8a163bf0598da48361c55d39a69163fa8fd24cf5f
    83655d23dca3ad961c62f356208552bb9ed529077096966d670c354e4abc9804f1746c08ca18217c32905e462e36ce3b
    e39e772c180e86039b2783a2ec07a28fb5c55df06f4c52c9de2bcbf6955817183995497cea956ae515d2261898fa0510
    15728e5a8aaac42dad33170d04507a33a85521abdf1cba64ecfb850458dbef0a8aea71575d060c7db3970f85a6e1e4c7
    abf5ae8cdb0933d71e8c94e04a25619dcee3d2261ad2ee6bf12ffa06d98a0864d87602733ec86a64521f2b18177b200c
    bbe117577a615d6c770988c0bad946e208e24fa074e5ab3143db5bfce0fd108e4b82d120a93ad2caffffffffffffffff
";

const P4096: &str = "
    ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22514a08798e3404dd
    ef9519b3cd3a431b302b0a6df25f14374fe1356d6d51c245e485b576625e7ec6f44c42e9a637ed6b0bff5cb6f406b7ed
    ee386bfb5a899fa5ae9f24117c4b1fe649286651ece45b3dc2007cb8a163bf0598da48361c55d39a69163fa8fd24cf5f
    83655d23dca3ad961c62f356208552bb9ed529077096966d670c354e4abc9804f1746c08ca18217c32905e462e36ce3b
    e39e772c180e86039b2783a2ec07a28fb5c55df06f4c52c9de2bcbf6955817183995497cea956ae515d2261898fa0510
    15728e5a8aaac42dad33170d04507a33a85521abdf1cba64ecfb850458dbef0a8aea71575d060c7db3970f85a6e1e4c7
    abf5ae8cdb0933d71e8c94e04a25619dcee3d2261ad2ee6bf12ffa06d98a0864d87602733ec86a64521f2b18177b200c
    bbe117577a615d6c770988c0bad946e208e24fa074e5ab3143db5bfce0fd108e4b82d120a92108011a723c12a787e6d7
    88719a10bdba5b2699c327186af4e23c1a946834b6150bda2583e9ca2ad44ce8dbbbc2db04de8ef92e8efc141fbecaa6
    287c59474e6bc05d99b2964fa090c3a2233ba186515be7ed1f612970cee2d7afb81bdd762170481cd0069127d5b05aa9
    93b4ea988d8fddc186ffb7dc90a6c08f4df435c934063199ffffffffffffffff
";

const P6144: &str = "
    ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22514a08798e3404dd
    ef9519b3cd3a431b302b0a6df25f14374fe1356d6d51c245e485b576625e7ec6f44c42e9a637ed6b0bff5cb6f406b7ed
    ee386bfb5a899fa5ae9f24117c4b1fe649286651ece45b3dc2007cb8a163bf0598da48361c55d39a69163fa8fd24cf5f
    83655d23dca3ad961c62f356208552bb9ed529077096966d670c354e4abc9804f1746c08ca18217c32905e462e36ce3b
    e39e772c180e86039b2783a2ec07a28fb5c55df06f4c52c9de2bcbf6955817183995497cea956ae515d2261898fa0510
    15728e5a8aaac42dad33170d04507a33a85521abdf1cba64ecfb850458dbef0a8aea71575d060c7db3970f85a6e1e4c7
    abf5ae8cdb0933d71e8c94e04a25619dcee3d2261ad2ee6bf12ffa06d98a0864d87602733ec86a64521f2b18177b200c
    bbe117577a615d6c770988c0bad946e208e24fa074e5ab3143db5bfce0fd108e4b82d120a92108011a723c12a787e6d7
    88719a10bdba5b2699c327186af4e23c1a946834b6150bda2583e9ca2ad44ce8dbbbc2db04de8ef92e8efc141fbecaa6
    287c59474e6bc05d99b2964fa090c3a2233ba186515be7ed1f612970cee2d7afb81bdd762170481cd0069127d5b05aa9
    93b4ea988d8fddc186ffb7dc90a6c08f4df435c93402849236c3fab4d27c7026c1d4dcb2602646dec9751e763dba37bd
    f8ff9406ad9e530ee5db382f413001aeb06a53ed9027d831179727b0865a8918da3edbebcf9b14ed44ce6cbaced4bb1b
    db7f1447e6cc254b332051512bd7af426fb8f401378cd2bf5983ca01c64b92ecf032ea15d1721d03f482d7ce6e74fef6
    d55e702f46980c82b5a84031900b1c9e59e7c97fbec7e8f323a97a7e36cc88be0f1d45b7ff585ac54bd407b22b4154aa
    cc8f6d7ebf48e1d814cc5ed20f8037e0a79715eef29be32806a1d58bb7c5da76f550aa3d8a1fbff0eb19ccb1a313d55c
    da56c9ec2ef29632387fe8d76e3c0468043e8f663f4860ee12bf2d5b0b7474d6e694f91e6dcc4024ffffffffffffffff
";

const P8192: &str = "
    ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22514a08798e3404dd
    ef9519b3cd3a431b302b0a6df25f14374fe1356d6d51c245e485b576625e7ec6f44c42e9a637ed6b0bff5cb6f406b7ed
    ee386bfb5a899fa5ae9f24117c4b1fe649286651ece45b3dc2007cb8a163bf0598da48361c55d39a69163fa8fd24cf5f
    83655d23dca3ad961c62f356208552bb9ed529077096966d670c354e4abc9804f1746c08ca18217c32905e462e36ce3b
    e39e772c180e86039b2783a2ec07a28fb5c55df06f4c52c9de2bcbf6955817183995497cea956ae515d2261898fa0510
    15728e5a8aaac42dad33170d04507a33a85521abdf1cba64ecfb850458dbef0a8aea71575d060c7db3970f85a6e1e4c7
    abf5ae8cdb0933d71e8c94e04a25619dcee3d2261ad2ee6bf12ffa06d98a0864d87602733ec86a64521f2b18177b200c
    bbe117577a615d6c770988c0bad946e208e24fa074e5ab3143db5bfce0fd108e4b82d120a92108011a723c12a787e6d7
    88719a10bdba5b2699c327186af4e23c1a946834b6150bda2583e9ca2ad44ce8dbbbc2db04de8ef92e8efc141fbecaa6
    287c59474e6bc05d99b2964fa090c3a2233ba186515be7ed1f612970cee2d7afb81bdd762170481cd0069127d5b05aa9
    93b4ea988d8fddc186ffb7dc90a6c08f4df435c93402849236c3fab4d27c7026c1d4dcb2602646dec9751e763dba37bd
    f8ff9406ad9e530ee5db382f413001aeb06a53ed9027d831179727b0865a8918da3edbebcf9b14ed44ce6cbaced4bb1b
    db7f1447e6cc254b332051512bd7af426fb8f401378cd2bf5983ca01c64b92ecf032ea15d1721d03f482d7ce6e74fef6
    d55e702f46980c82b5a84031900b1c9e59e7c97fbec7e8f323a97a7e36cc88be0f1d45b7ff585ac54bd407b22b4154aa
    cc8f6d7ebf48e1d814cc5ed20f8037e0a79715eef29be32806a1d58bb7c5da76f550aa3d8a1fbff0eb19ccb1a313d55c
    da56c9ec2ef29632387fe8d76e3c0468043e8f663f4860ee12bf2d5b0b7474d6e694f91e6dbe115974a3926f12fee5e4
    38777cb6a932df8cd8bec4d073b931ba3bc832b68d9dd300741fa7bf8afc47ed2576f6936ba424663aab639c5ae4f568
    3423b4742bf1c978238f16cbe39d652de3fdb8befc848ad922222e04a4037c0713eb57a81a23f0c73473fc646cea306b
    4bcbc8862f8385ddfa9d4b7fa2c087e879683303ed5bdd3a062b3cf5b3a278a66d2a13f83f44f82ddf310ee074ab6a36
    4597e899a0255dc164f31cc50846851df9ab48195ded7ea1b1d510bd7ee74d73faf36bc31ecfa268359046f4eb879f92
    4009438b481c6cd7889a002ed5ee382bc9190da6fc026e479558e4475677e9aa9e3050e2765694dfc81f56e880b96e71
    60c980dd98edd3dfffffffffffffffff
";

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(min: u32, preferred: u32, max: u32) -> Option<usize> {
        server_group(GexBounds {
            min,
            preferred,
            max,
        })
        .map(|group| group.p.len() * 8)
    }

    #[test]
    fn groups_have_their_size_and_the_shape_of_rfc_3526() {
        for (group, bytes) in [
            (&GROUP14, 256),
            (&GROUP15, 384),
            (&GROUP16, 512),
            (&GROUP17, 768),
            (&GROUP18, 1024),
        ] {
            assert_eq!(group.p.len(), bytes);
            assert_eq!(group.p[..8], [0xff; 8]);
            assert_eq!(group.p[8..12], [0xc9, 0x0f, 0xda, 0xa2]);
            assert_eq!(group.p[bytes - 8..], [0xff; 8]);
        }
    }

    #[test]
    fn the_server_takes_the_smallest_group_that_is_preferred_and_allowed() {
        assert_eq!(bits(2048, 3072, 8192), Some(3072));
        assert_eq!(bits(2048, 3073, 8192), Some(4096));
        assert_eq!(bits(1024, 1024, 8192), Some(2048));
        assert_eq!(bits(2048, 8192, 4096), Some(4096));
        assert_eq!(bits(2048, 20000, u32::MAX), Some(8192));
    }

    #[test]
    fn bounds_without_a_group_in_them_get_none() {
        assert_eq!(bits(1024, 1024, 2047), None);
        assert_eq!(bits(8193, 9000, 16384), None);
        assert_eq!(bits(4096, 4096, 2048), None);
        assert_eq!(bits(2049, 2500, 3000), None);
    }
}
