//! Patterns with `*` and `?` (ssh_config(5) PATTERNS), over bytes.

/// Whether all of `text` matches `pattern`, where `*` is any run of bytes and `?` is one.
///
/// O(pattern x text) at worst: a failed tail goes back to the last `*` only.
#[must_use]
pub fn matches_wildcard(text: &[u8], pattern: &[u8]) -> bool {
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
            Some(_) | None => match &mut retry {
                Some((after_star, start)) => {
                    *start += 1;
                    t = *start;
                    p = *after_star;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
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
                matches_wildcard(text.as_bytes(), pattern.as_bytes()),
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
        assert!(!matches_wildcard(&text, &pattern));
    }
}
