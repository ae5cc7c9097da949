//! Patterns of host names, users and addresses (ssh_config(5) PATTERNS; RFC 4632 for CIDR).

use std::net::IpAddr;

use fullbore_base::{Network, matches_wildcard};

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
    verdict(list, |pattern| matches_wildcard(text, pattern))
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
    let text = address.to_canonical().to_string();
    let mut broken = false;
    let found = verdict(list, |pattern| {
        let network = std::str::from_utf8(pattern).ok().and_then(Network::parse);
        if let Some(network) = network {
            return network.contains(address);
        }
        if pattern.contains(&b'/') {
            broken = true;
            return false;
        }
        let pattern = pattern.to_ascii_lowercase();
        matches_wildcard(text.as_bytes(), &pattern)
            || name.is_some_and(|n| matches_wildcard(&n.to_ascii_lowercase(), &pattern))
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

#[cfg(test)]
mod tests {
    use super::*;

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
