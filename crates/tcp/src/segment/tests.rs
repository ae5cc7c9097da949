//! Bytes to segments and back.

use super::*;
use fullbore_base::Rng;

fn block(start: u32, end: u32) -> SackBlock {
    SackBlock {
        start: Seq::new(start),
        end: Seq::new(end),
    }
}

fn emit(header: &Header, payload: &[u8], pseudo: Pseudo) -> Vec<u8> {
    let mut out = vec![0; header.len() + payload.len()];
    out[header.len()..].copy_from_slice(payload);
    assert_eq!(header.emit(&mut out, payload.len(), pseudo), out.len());
    out
}

fn syn() -> Header {
    Header {
        source_port: 40_000,
        destination_port: 22,
        seq: Seq::new(0x0102_0304),
        flags: Flags::SYN,
        window: 65_535,
        options: Options {
            mss: Some(1460),
            window_scale: Some(8),
            is_sack_permitted: true,
            timestamps: Some(Timestamps { value: 7, echo: 0 }),
            ..Options::default()
        },
        ..Header::default()
    }
}

/// The bytes of a header whose options are `options`.
fn with_options(options: &[u8]) -> Vec<u8> {
    assert_eq!(options.len() % 4, 0);
    let mut bytes = emit(&Header::default(), b"", Pseudo::Unchecked);
    bytes[12] = u8::try_from(5 + options.len() / 4).expect("they fit") << 4;
    bytes.extend(options);
    bytes
}

fn parse_options(options: &[u8]) -> Result<Options, InvalidMessage> {
    let bytes = with_options(options);
    Segment::parse(&bytes, Pseudo::Unchecked).map(|s| s.header.options)
}

#[test]
fn options_of_a_syn_stand_as_linux_writes_them() {
    let bytes = emit(&syn(), b"", Pseudo::Unchecked);
    let with_timestamps = [
        2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 7, 0, 0, 0, 0, 1, 3, 3, 8,
    ];
    assert_eq!(bytes[20..], with_timestamps);
    let mut header = syn();
    header.options.timestamps = None;
    let bytes = emit(&header, b"", Pseudo::Unchecked);
    assert_eq!(bytes[20..], [2, 4, 5, 180, 1, 1, 4, 2, 1, 3, 3, 8]);
}

#[test]
fn options_of_an_ack_are_padded_in_front() {
    let mut header = syn();
    header.flags = Flags::ACK;
    assert!(header.options.sack.push(block(5, 9)));
    let bytes = emit(&header, b"x", Pseudo::Unchecked);
    assert_eq!(bytes[20..24], [1, 1, 8, 10]);
    let sack = [1, 1, 5, 10, 0, 0, 0, 5, 0, 0, 0, 9, b'x'];
    assert_eq!(bytes[32..], sack, "MSS and scale stay out of an ACK");
}

#[test]
fn what_is_emitted_parses_to_the_same() {
    let addresses = Pseudo::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let mut rng = Rng::seeded(1);
    for _ in 0..2000 {
        let mut header = syn();
        header.seq = Seq::new(u32::try_from(rng.below(1 << 32)).expect("32 bits"));
        header.ack = Seq::new(u32::try_from(rng.below(1 << 32)).expect("32 bits"));
        header.flags = Flags::from_bits(u8::try_from(rng.below(256)).expect("8 bits"));
        let options = &mut header.options;
        if !header.flags.has(Flags::SYN) {
            (options.mss, options.window_scale) = (None, None);
            options.is_sack_permitted = false;
        }
        if rng.one_in(2) {
            options.timestamps = None;
        }
        options.user_timeout = rng.one_in(8).then_some(0x8005);
        for _ in 0..rng.below(3) {
            let start = u32::try_from(rng.below(1 << 32)).expect("32 bits");
            assert!(options.sack.push(block(start, start.wrapping_add(1448))));
        }
        if header.len() > HEADER_BYTES_MAX {
            continue;
        }
        let mut payload = vec![0; rng.index(40)];
        rng.fill(&mut payload);
        let bytes = emit(&header, &payload, addresses);
        let segment = Segment::parse(&bytes, addresses).expect("it is ours");
        assert_eq!((segment.header, segment.payload), (header, &payload[..]));
    }
}

#[test]
fn a_flipped_bit_is_found_by_the_checksum() {
    let addresses = Pseudo::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let mut bytes = emit(&syn(), b"data", addresses);
    for at in 0..bytes.len() {
        bytes[at] ^= 4;
        assert!(Segment::parse(&bytes, addresses).is_err(), "byte {at}");
        bytes[at] ^= 4;
    }
    assert!(Segment::parse(&bytes, addresses).is_ok());
}

#[test]
fn a_header_must_fit_its_segment() {
    let bytes = with_options(&[]);
    let parse = |bytes: &[u8]| Segment::parse(bytes, Pseudo::Unchecked).err();
    assert_eq!(parse(&bytes), None);
    assert_eq!(parse(&bytes[..19]), Some(InvalidMessage::Truncated));
    let mut short = bytes.clone();
    short[12] = 4 << 4;
    assert_eq!(parse(&short), Some(InvalidMessage::DataOffset(4)));
    let mut long = bytes;
    long[12] = 6 << 4;
    assert_eq!(parse(&long), Some(InvalidMessage::DataOffset(6)));
}

#[test]
fn unknown_options_are_skipped_and_nothing_is_read_behind_the_end() {
    let options = parse_options(&[254, 6, 9, 9, 9, 9, 4, 2, 0, 2, 4, 5]).expect("well-formed");
    assert!(options.is_sack_permitted);
    assert_eq!(options.mss, None);
}

#[test]
fn lengths_that_cannot_be_are_refused() {
    let length = |kind, len| Err(InvalidMessage::OptionLength { kind, len });
    let size = |kind, len| Err(InvalidMessage::OptionSize { kind, len });
    let cases = [
        (&[2, 0, 0, 0][..], length(2, 0)),
        (&[254, 1, 0, 0], length(254, 1)),
        (&[1, 1, 254, 3], length(254, 3)),
        (&[1, 1, 1, 254], length(254, 0)),
        (&[2, 3, 5, 0], size(2, 3)),
        (&[3, 4, 1, 1], size(3, 4)),
        (&[4, 3, 0, 0], size(4, 3)),
        (&[5, 2, 1, 1], size(5, 2)),
        (&[5, 6, 1, 1, 1, 1, 1, 1], size(5, 6)),
        (&[8, 4, 1, 1], size(8, 4)),
        (&[28, 2, 0, 0], size(28, 2)),
    ];
    for (bytes, expected) in cases {
        assert_eq!(parse_options(bytes), expected, "{bytes:?}");
    }
}

#[test]
fn four_sack_blocks_are_read_and_a_fifth_does_not_fit() {
    let mut sack = SackBlocks::default();
    for i in 0..4 {
        assert!(sack.push(block(i * 10, i * 10 + 5)));
    }
    assert!(!sack.push(block(90, 95)));
    let options = Options {
        sack,
        ..Options::default()
    };
    let header = Header {
        flags: Flags::ACK,
        options,
        ..Header::default()
    };
    let bytes = emit(&header, b"", Pseudo::Unchecked);
    assert_eq!(bytes.len(), 56);
    let parsed = Segment::parse(&bytes, Pseudo::Unchecked).expect("it is ours");
    assert_eq!(parsed.header.options.sack.as_slice(), sack.as_slice());
}
