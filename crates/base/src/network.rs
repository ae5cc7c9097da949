//! Blocks of addresses (RFC 4632), as `from=`, `Match address` and certificates name them.

use std::net::IpAddr;

/// An address, or a block of addresses that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    /// 0 to 32 or 128, by the address' family.
    prefix_bits: u32,
}

impl Network {
    /// Reads `ADDRESS` or `ADDRESS/BITS`. None for anything else, and where bits behind the prefix
    /// are set: `10.0.0.1/8` is a mistake to be told about, as OpenSSH has it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let Some(digits) = prefix else {
            return Some(Self::of(address));
        };
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let prefix_bits: u32 = digits.parse().ok()?;
        let host_bits = width_bits(address).checked_sub(prefix_bits)?;
        let is_network = bits_of(address).trailing_zeros() >= host_bits;
        is_network.then_some(Self {
            address,
            prefix_bits,
        })
    }

    /// The one address. IPv4 in IPv6's clothes (`::ffff:192.0.2.1`) is IPv4.
    fn of(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self {
            address,
            prefix_bits: width_bits(address),
        }
    }

    /// Whether `address` is in it. IPv4 in IPv6's clothes counts as IPv4.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let width = width_bits(self.address);
        let differing = bits_of(self.address) ^ bits_of(address);
        // Bits are at the low end of 128: an IPv4 address has 96 zeros in front.
        width == width_bits(address) && differing.leading_zeros() >= 128 - width + self.prefix_bits
    }
}

const fn width_bits(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_holds_its_own_addresses_only() {
        let holds = |network: &str, address: &str| {
            Network::parse(network)
                .expect("a network")
                .contains(address.parse().expect("an address"))
        };
        assert!(holds("10.1.0.0/16", "10.1.255.255"));
        assert!(!holds("10.1.0.0/16", "10.2.0.0"));
        assert!(holds("10.1.2.3", "10.1.2.3"));
        assert!(!holds("10.1.2.3", "10.1.2.2"));
        assert!(holds("0.0.0.0/0", "255.255.255.255"));
        assert!(!holds("0.0.0.0/0", "::1"));
        assert!(holds("10.1.2.3/32", "::ffff:10.1.2.3"));
        assert!(holds("::ffff:10.1.2.3", "10.1.2.3"));
        assert!(holds("2001:db8::/32", "2001:db8:ffff::1"));
        assert!(!holds("2001:db8::/32", "2001:db9::1"));
        assert!(holds("::/0", "::1"));
        assert!(!holds("::/0", "0.0.0.1"));
    }

    #[test]
    fn a_network_that_is_not_one_is_refused() {
        for text in [
            "",
            "10.0.0.0/33",
            "::/129",
            "10.0.0/8",
            "10.0.0.0/+8",
            "10.0.0.0/",
            "10.0.0.1/8",
            "0.0.0.1/0",
            "fe80::1/10",
            "host",
        ] {
            assert_eq!(Network::parse(text), None, "{text}");
        }
    }
}
