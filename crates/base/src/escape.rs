//! Bytes of a peer or a file system made harmless for display.

/// A name for a person's eyes: printable text stays, everything that could steer a terminal or
/// is not UTF-8 becomes `\n`, `\t`, `\xHH` or `\u{..}`.
#[must_use]
pub fn escape_for_display(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                '\\' => text.push_str("\\\\"),
                c if steers_terminal(c) => text.extend(c.escape_unicode()),
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Control characters, and the invisible ones that reorder or hide text (bidirectional marks,
/// zero-width, line separators).
fn steers_terminal(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_harmless_for_display() {
        assert_eq!(escape_for_display("Füße 1".as_bytes()), "Füße 1");
        assert_eq!(escape_for_display(b"a\xff\xfeb\n"), "a\\xff\\xfeb\\n");
        assert_eq!(escape_for_display(b"\x1b[2J"), "\\u{1b}[2J");
        assert_eq!(escape_for_display("a\u{202e}b".as_bytes()), "a\\u{202e}b");
        assert_eq!(escape_for_display(b"back\\slash"), "back\\\\slash");
    }
}
