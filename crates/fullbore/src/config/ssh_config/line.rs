//! One line of ssh_config: a keyword, then `=` or blanks, then arguments.

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// A line's keyword in lower case, and its arguments as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) keyword: String,
    /// Without blanks at either end.
    pub(super) arguments: &'a [u8],
}

/// Splits a line. `Ok(None)` for a blank line or a comment.
///
/// # Errors
/// An open quote around the keyword.
pub(super) fn split(line: &[u8]) -> Result<Option<Line<'_>>, &'static str> {
    // OpenSSH allows a form feed at the end of a line too.
    let end = line
        .iter()
        .rposition(|b| !is_space(*b) && *b != 0x0c)
        .map_or(0, |at| at + 1);
    let line = line[..end].trim_ascii_start();
    if line.is_empty() || line[0] == b'#' {
        return Ok(None);
    }
    let (keyword, rest) = next_word(line, true).ok_or("a quote is not closed")?;
    Ok(Some(Line {
        keyword: String::from_utf8_lossy(&keyword).to_ascii_lowercase(),
        arguments: rest,
    }))
}

/// Takes a word as OpenSSH's `strdelim` does: it ends at a blank, or (if asked) at one `=` with
/// blanks around it; one `"..."` may hold blanks. Returns the word and what follows. None when the
/// quote is not closed.
pub(super) fn next_word(text: &[u8], split_equals: bool) -> Option<(Vec<u8>, &[u8])> {
    let stops = |b: &u8| is_space(*b) || *b == b'"' || (split_equals && *b == b'=');
    let end = text.iter().position(stops).unwrap_or(text.len());
    let mut word = text[..end].to_vec();
    let rest = &text[end..];
    let Some((&stop, after)) = rest.split_first() else {
        return Some((word, rest));
    };
    if stop == b'"' {
        let close = after.iter().position(|b| *b == b'"')?;
        word.extend_from_slice(&after[..close]);
        return Some((word, skip_separator(&after[close + 1..], split_equals)));
    }
    Some((word, skip_separator(rest, split_equals)))
}

fn skip_separator(text: &[u8], split_equals: bool) -> &[u8] {
    let text = skip_spaces(text);
    match text.strip_prefix(b"=") {
        Some(rest) if split_equals => skip_spaces(rest),
        _ => text,
    }
}

fn skip_spaces(text: &[u8]) -> &[u8] {
    let start = text.iter().position(|b| !is_space(*b));
    &text[start.unwrap_or(text.len())..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_are_split_from_arguments() {
        let cases: &[(&str, Option<(&str, &str)>)] = &[
            ("", None),
            ("  # Port 22", None),
            ("Port 22", Some(("port", "22"))),
            ("  PORT\t22 \t\x0c", Some(("port", "22"))),
            ("Port=22", Some(("port", "22"))),
            ("Port = 22", Some(("port", "22"))),
            ("Port == 22", Some(("port", "= 22"))),
            ("\"Port\" 22", Some(("port", "22"))),
            ("Port", Some(("port", ""))),
            ("Host a b # c", Some(("host", "a b # c"))),
        ];
        for (text, expected) in cases {
            let expected = expected.map(|(keyword, arguments)| Line {
                keyword: keyword.to_owned(),
                arguments: arguments.as_bytes(),
            });
            assert_eq!(split(text.as_bytes()), Ok(expected), "{text:?}");
        }
        assert!(split(b"\"Port 22").is_err());
    }
}
