//! Small text formats that the files share: words with quotes, times, base64.

use std::io;

use base64ct::{Base64, Encoding};

use super::LINE_BYTES_MAX;

pub use fullbore_base::escape_for_display;

/// What an error of the operating system says, without the "(os error 28)" that the standard library
/// puts behind it.
#[must_use]
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text[..end].to_owned()
}

/// A blank between words.
#[must_use]
pub fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// A numbered line of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// Counted from 1.
    pub number: usize,
    /// Without its newline and a carriage return before it.
    pub text: &'a [u8],
}

/// The lines of a file. `Err` holds the number of a line longer than [`LINE_BYTES_MAX`].
pub fn lines(content: &[u8]) -> impl Iterator<Item = Result<Line<'_>, usize>> {
    content.split(|b| *b == b'\n').enumerate().map(|(i, text)| {
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        let number = i + 1;
        if text.len() > LINE_BYTES_MAX {
            return Err(number);
        }
        Ok(Line { number, text })
    })
}

/// Splits a line into words as OpenSSH's `argv_split` does: blanks separate, `'` and `"` quote
/// anywhere in a word, a backslash escapes quotes, itself and (outside quotes) a space, and `#` at
/// the start of a word ends the line. None when a quote is left open.
///
/// `a "b c" d\ e # x` gives `a`, `b c`, `d e`.
#[must_use]
pub fn split_words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut at = 0;
    loop {
        while at < line.len() && is_blank(line[at]) {
            at += 1;
        }
        if at == line.len() || line[at] == b'#' {
            return Some(words);
        }
        let (word, end) = one_word(line, at)?;
        words.push(word);
        at = end;
    }
}

fn one_word(line: &[u8], mut at: usize) -> Option<(Vec<u8>, usize)> {
    let mut word = Vec::new();
    let mut quote = None;
    while let Some(&byte) = line.get(at) {
        match (byte, quote) {
            (b'\\', _) => {
                let next = line.get(at + 1).copied();
                let escapes = matches!(next, Some(b'\'' | b'"' | b'\\'))
                    || (quote.is_none() && next == Some(b' '));
                at += usize::from(escapes);
                word.push(line[at]);
            }
            (b' ' | b'\t', None) => return Some((word, at)),
            (b'"' | b'\'', None) => quote = Some(byte),
            (_, Some(open)) if open == byte => quote = None,
            _ => word.push(byte),
        }
        at += 1;
    }
    quote.is_none().then_some((word, at))
}

/// OpenSSH's time format: `90`, `10m`, `1h30m`, `2w`; seconds. None when it is none or overflows.
#[must_use]
pub fn parse_duration(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut total = 0u64;
    let mut at = 0;
    while at < text.len() {
        let digits = text[at..].iter().take_while(|b| b.is_ascii_digit()).count();
        let number = parse_number(&text[at..at + digits])?;
        at += digits;
        let unit = match text.get(at).map(u8::to_ascii_lowercase) {
            None | Some(b's') => 1,
            Some(b'm') => 60,
            Some(b'h') => 3600,
            Some(b'd') => 86_400,
            Some(b'w') => 604_800,
            Some(_) => return None,
        };
        at += 1;
        total = total.checked_add(number.checked_mul(unit)?)?;
    }
    Some(total)
}

/// A decimal number without sign. None when empty, not digits only, or past `u64`.
#[must_use]
pub fn parse_number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A number with `K`, `M` or `G` behind it (powers of 1024), as RekeyLimit takes it.
#[must_use]
pub fn parse_size(text: &[u8]) -> Option<u64> {
    let (digits, shift) = match text.last()?.to_ascii_lowercase() {
        b'k' => (&text[..text.len() - 1], 10),
        b'm' => (&text[..text.len() - 1], 20),
        b'g' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    parse_number(digits)?.checked_mul(1 << shift)
}

/// RFC 4648 4, padded.
#[must_use]
pub fn base64_encode(bytes: &[u8]) -> String {
    Base64::encode_string(bytes)
}

/// RFC 4648 4: padded, no white space, no stray bits. None for anything else.
#[must_use]
pub fn base64_decode(text: &[u8]) -> Option<Vec<u8>> {
    Base64::decode_vec(std::str::from_utf8(text).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<Vec<String>> {
        let text = |w: Vec<u8>| String::from_utf8(w).expect("ASCII in, ASCII out");
        Some(
            split_words(line.as_bytes())?
                .into_iter()
                .map(text)
                .collect(),
        )
    }

    #[test]
    fn words_are_split_and_unquoted_as_openssh_does() {
        let cases: &[(&str, Option<&[&str]>)] = &[
            ("", Some(&[])),
            ("  \t ", Some(&[])),
            ("a b\tc", Some(&["a", "b", "c"])),
            ("a \"b c\" d", Some(&["a", "b c", "d"])),
            ("a'b c'd", Some(&["ab cd"])),
            ("a\\ b", Some(&["a b"])),
            ("\"a\\ b\"", Some(&["a\\ b"])),
            ("\\\"a\\\"", Some(&["\"a\""])),
            ("a\\n", Some(&["a\\n"])),
            ("a #b", Some(&["a"])),
            ("a#b", Some(&["a#b"])),
            ("\"\"", Some(&[""])),
            ("a\\", Some(&["a\\"])),
            ("\"a", None),
            ("a 'b", None),
        ];
        for (line, expected) in cases {
            let expected = expected.map(|w| w.iter().map(|s| (*s).to_owned()).collect());
            assert_eq!(words(line), expected, "{line:?}");
        }
    }

    #[test]
    fn lines_past_the_limit_are_named() {
        let mut content = b"short\r\n".to_vec();
        content.extend(vec![b'x'; LINE_BYTES_MAX]);
        content.push(b'\n');
        content.extend(vec![b'x'; LINE_BYTES_MAX + 1]);
        let seen: Vec<_> = lines(&content).collect();
        assert_eq!(
            seen[0],
            Ok(Line {
                number: 1,
                text: b"short"
            })
        );
        assert!(seen[1].is_ok());
        assert_eq!(seen[2], Err(3));
    }

    #[test]
    fn durations() {
        let cases: &[(&str, Option<u64>)] = &[
            ("0", Some(0)),
            ("90", Some(90)),
            ("1h30m", Some(5400)),
            ("2W", Some(1_209_600)),
            ("1m1", Some(61)),
            ("", None),
            ("m", None),
            ("1x", None),
            ("-1", None),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551615m", None),
            ("18446744073709551616", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_duration(text.as_bytes()), *expected, "{text:?}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size(b"1G"), Some(1 << 30));
        assert_eq!(parse_size(b"512k"), Some(512 << 10));
        assert_eq!(parse_size(b"7"), Some(7));
        assert_eq!(parse_size(b"G"), None);
        assert_eq!(parse_size(b""), None);
        assert_eq!(parse_size(b"18446744073709551615K"), None);
    }

    #[test]
    fn base64_both_ways() {
        // RFC 4648 10.
        let cases: &[(&str, &str)] = &[
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, coded) in cases {
            assert_eq!(base64_encode(plain.as_bytes()), *coded);
            assert_eq!(
                base64_decode(coded.as_bytes()).as_deref(),
                Some(plain.as_bytes())
            );
        }
        for bad in [
            "Z", "Zg", "Zg=", "Zh==", "Zm9=", "Z===", "====", "Zg==Zg==", "Zm 9", "Zm9v\n",
        ] {
            assert_eq!(base64_decode(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
