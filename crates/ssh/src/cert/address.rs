//! Networks of the `source-address` option: an address, or an address and a prefix length.

use std::net::IpAddr;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Network {
    address: IpAddr,
    /// 0 to 32 or 128, by the address' family.
    prefix_bits: u32,
}

impl Network {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match prefix {
            None => bits_max,
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => digits.parse().ok()?,
            Some(_) => return None,
        };
        (prefix_bits <= bits_max).then_some(Self {
            address,
            prefix_bits,
        })
    }

    /// An IPv4 address in IPv6's clothes (`::ffff:a.b.c.d`) counts as IPv4.
    pub(super) fn contains(self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.leading_zeros() >= self.prefix_bits
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.leading_zeros() >= self.prefix_bits
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
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
        assert!(holds("2001:db8::/32", "2001:db8:ffff::1"));
        assert!(!holds("2001:db8::/32", "2001:db9::1"));
        assert!(holds("::/0", "::1"));
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
            "host",
        ] {
            assert_eq!(Network::parse(text), None, "{text}");
        }
    }
}
