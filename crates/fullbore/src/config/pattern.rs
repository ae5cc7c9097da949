//! Patterns of host names, users and addresses (ssh_config(5) PATTERNS; RFC 4632 for CIDR).

use std::net::IpAddr;

/// Whether `text` matches `pattern`, where `*` is any run of bytes and `?` is one.
///
/// O(pattern x text) at worst: a failed tail goes back to the last `*` only.
#[must_use]
pub fn matches(text: &[u8], pattern: &[u8]) -> bool {
    let (mut t, mut p) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                p += 1;
                retry = Some((p, t));
            }
            Some(&byte) if byte == b'?' || byte == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match &mut retry {
                Some((after_star, start)) => {
                    *start += 1;
                    t = *start;
                    p = *after_star;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|b| *b == b'*')
}

/// The verdict of a list of patterns, some of them negated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListMatch {
    /// A pattern matches and no negated one does.
    Yes,
    /// Nothing matches.
    No,
    /// A negated pattern matches: it wins over every other.
    Negated,
}

/// Matches a list whose items are separated by commas; `!` in front negates.
#[must_use]
pub fn matches_list(text: &[u8], list: &[u8]) -> ListMatch {
    verdict(list, |pattern| matches(text, pattern))
}

/// Matches a host name: case is ignored on both sides, as DNS does.
#[must_use]
pub fn matches_host(host: &[u8], list: &[u8]) -> ListMatch {
    matches_list(&host.to_ascii_lowercase(), &list.to_ascii_lowercase())
}

/// Matches an address against a list of CIDR blocks, addresses and name patterns, as `from=` holds
/// them. `name` is the peer's host name if it was looked up. None when the list holds a CIDR block
/// that is none (bits out of range, or host bits set).
#[must_use]
pub fn matches_address(address: IpAddr, name: Option<&[u8]>, list: &[u8]) -> Option<ListMatch> {
    let address = unmap(address);
    let text = address.to_string();
    let mut broken = false;
    let found = verdict(list, |pattern| {
        if let Some(slash) = pattern.iter().position(|b| *b == b'/') {
            return match Cidr::parse(&pattern[..slash], &pattern[slash + 1..]) {
                Some(block) => block.contains(address),
                None => {
                    broken = true;
                    false
                }
            };
        }
        let pattern = pattern.to_ascii_lowercase();
        if let Some(exact) = parse_address(&pattern) {
            return unmap(exact) == address;
        }
        matches(text.as_bytes(), &pattern)
            || name.is_some_and(|n| matches(&n.to_ascii_lowercase(), &pattern))
    });
    (!broken).then_some(found)
}

fn verdict(list: &[u8], mut matches: impl FnMut(&[u8]) -> bool) -> ListMatch {
    let mut found = ListMatch::No;
    for item in list.split(|b| *b == b',') {
        let (negated, pattern) = match item.strip_prefix(b"!") {
            Some(rest) => (true, rest),
            None => (false, item),
        };
        if pattern.is_empty() || !matches(pattern) {
            continue;
        }
        if negated {
            return ListMatch::Negated;
        }
        found = ListMatch::Yes;
    }
    found
}

fn parse_address(text: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// An IPv4 address inside IPv6 (`::ffff:1.2.3.4`) is the IPv4 address.
fn unmap(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// A block of addresses.
struct Cidr {
    network: IpAddr,
    bits: u32,
}

impl Cidr {
    /// Host bits must be zero, as OpenSSH demands: `10.0.0.1/8` is a mistake to be told about.
    fn parse(address: &[u8], bits: &[u8]) -> Option<Cidr> {
        let network = parse_address(address)?;
        let bits = u32::try_from(super::text::parse_number(bits)?).ok()?;
        let width = width_bits(network);
        if bits > width {
            return None;
        }
        let block = Cidr { network, bits };
        (block.host_part(network) == 0).then_some(block)
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.network.is_ipv4() == address.is_ipv4()
            && self.network_part(self.network) == self.network_part(address)
    }

    fn network_part(&self, address: IpAddr) -> u128 {
        let shift = width_bits(address) - self.bits;
        bits_of(address).checked_shr(shift).unwrap_or(0)
    }

    fn host_part(&self, address: IpAddr) -> u128 {
        bits_of(address)
            - self
                .network_part(address)
                .checked_shl(width_bits(address) - self.bits)
                .unwrap_or(0)
    }
}

fn width_bits(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

fn bits_of(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards() {
        let cases: &[(&str, &str, bool)] = &[
            ("", "", true),
            ("", "*", true),
            ("", "?", false),
            ("a", "", false),
            ("host", "host", true),
            ("host", "h?st", true),
            ("host", "h?t", false),
            ("a.example.com", "*.example.com", true),
            ("example.com", "*.example.com", false),
            ("aXbXc", "a*b*c", true),
            ("aXbX", "a*b*c", false),
            ("abcabc", "*abc", true),
            ("abc", "**", true),
            ("abc", "abc***", true),
        ];
        for (text, pattern, expected) in cases {
            assert_eq!(
                matches(text.as_bytes(), pattern.as_bytes()),
                *expected,
                "{text} ~ {pattern}"
            );
        }
    }

    #[test]
    fn many_stars_cost_no_more_than_the_product() {
        let text = vec![b'a'; 2000];
        let mut pattern = b"a*".repeat(500);
        pattern.push(b'b');
        assert!(!matches(&text, &pattern));
    }

    #[test]
    fn negation_wins_in_lists() {
        assert_eq!(matches_list(b"a", b"*,!a"), ListMatch::Negated);
        assert_eq!(matches_list(b"b", b"*,!a"), ListMatch::Yes);
        assert_eq!(matches_list(b"b", b"!a"), ListMatch::No);
        assert_eq!(matches_list(b"b", b""), ListMatch::No);
        assert_eq!(matches_list(b"", b"!,,"), ListMatch::No);
        assert_eq!(matches_host(b"HOST", b"h*T"), ListMatch::Yes);
    }

    #[test]
    fn addresses_match_blocks_patterns_and_names() {
        let check = |address: &str, list: &str| {
            let address = address.parse().expect("an address");
            matches_address(address, Some(b"peer.Example.com"), list.as_bytes())
        };
        use ListMatch::{Negated, No, Yes};
        assert_eq!(check("10.1.2.3", "10.0.0.0/8"), Some(Yes));
        assert_eq!(check("11.1.2.3", "10.0.0.0/8"), Some(No));
        assert_eq!(check("10.1.2.3", "10.1.2.3/32"), Some(Yes));
        assert_eq!(check("10.1.2.3", "0.0.0.0/0"), Some(Yes));
        assert_eq!(check("::1", "0.0.0.0/0"), Some(No));
        assert_eq!(check("::1", "::/0"), Some(Yes));
        assert_eq!(check("fe80::1", "fe80::/10,!fe80::1/128"), Some(Negated));
        assert_eq!(check("10.1.2.3", "10.1.2.3/8"), None);
        assert_eq!(check("10.1.2.3", "10.0.0.0/33"), None);
        assert_eq!(check("10.1.2.3", "10.0.0/8"), None);
        assert_eq!(check("10.1.2.3", "10.1.2.*"), Some(Yes));
        assert_eq!(check("::ffff:10.1.2.3", "10.1.2.3"), Some(Yes));
        assert_eq!(check("2001:db8::1", "2001:DB8:0::1"), Some(Yes));
        assert_eq!(check("10.1.2.3", "*.example.com"), Some(Yes));
        assert_eq!(check("10.1.2.3", "*.example.com,!peer.*"), Some(Negated));
    }
}
