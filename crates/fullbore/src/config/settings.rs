//! Settings files of our own (`serve`'s, quirks): `key = value` lines, a part of TOML.
//!
//! Values are strings ("basic" with the escapes `\" \\ \n \t`, or 'literal'), whole numbers, `true`,
//! `false`, and lists of strings on one line. Written here because the flags need no more of TOML, and
//! a library for all of it is five crates. What is not understood is refused, not passed over.

use std::collections::BTreeMap;

/// The longest file that is read, in bytes. Ours.
pub const BYTES_MAX: u64 = 1 << 20;

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// `true` or `false`.
    Switch(bool),
    /// A string, or a number as written.
    One(String),
    /// A list of strings.
    Many(Vec<String>),
}

/// Reads a file's text.
///
/// # Errors
/// The line, from 1, and what is wrong with it.
pub fn parse(text: &str) -> Result<BTreeMap<String, (usize, Value)>, (usize, String)> {
    let mut values = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let at = |what: &str| (number, what.to_owned());
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line.starts_with('[') {
            return Err(at("sections are not used here"));
        }
        let (key, rest) = line
            .split_once('=')
            .ok_or_else(|| at("\"key = value\" is needed"))?;
        let key = key.trim();
        let is_key = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if !is_key {
            return Err(at("the key must be the name of a flag"));
        }
        let (value, rest) = value(rest.trim_start()).map_err(|what| at(&what))?;
        let rest = rest.trim_start();
        if !rest.is_empty() && !rest.starts_with('#') {
            return Err(at("something follows the value"));
        }
        if values.insert(key.to_owned(), (number, value)).is_some() {
            return Err(at("the key stands there twice"));
        }
    }
    Ok(values)
}

fn value(text: &str) -> Result<(Value, &str), String> {
    if let Some(rest) = text.strip_prefix('[') {
        return list(rest);
    }
    if text.starts_with(['"', '\'']) {
        let (string, rest) = string(text)?;
        return Ok((Value::One(string), rest));
    }
    let end = text
        .find(|c: char| c.is_whitespace() || c == '#')
        .unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    match word {
        "true" => Ok((Value::Switch(true), rest)),
        "false" => Ok((Value::Switch(false), rest)),
        _ if !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit()) => {
            Ok((Value::One(word.to_owned()), rest))
        }
        _ => Err("a value is a \"string\", a number, true, false, or a [\"list\"]".to_owned()),
    }
}

fn list(mut rest: &str) -> Result<(Value, &str), String> {
    let mut items = Vec::new();
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix(']') {
            return Ok((Value::Many(items), after));
        }
        let (item, after) = string(rest)?;
        items.push(item);
        rest = after.trim_start();
        if let Some(after) = rest.strip_prefix(',') {
            rest = after;
        } else if !rest.starts_with(']') {
            return Err("a list needs commas, and \"]\" on the same line".to_owned());
        }
    }
}

fn string(text: &str) -> Result<(String, &str), String> {
    let mut chars = text.char_indices();
    let quote = match chars.next() {
        Some((_, quote @ ('"' | '\''))) => quote,
        _ => return Err("a \"string\" is expected".to_owned()),
    };
    let mut string = String::new();
    while let Some((at, c)) = chars.next() {
        if c == quote {
            return Ok((string, &text[at + 1..]));
        }
        if c != '\\' || quote == '\'' {
            string.push(c);
            continue;
        }
        string.push(match chars.next() {
            Some((_, c @ ('"' | '\\'))) => c,
            Some((_, 'n')) => '\n',
            Some((_, 't')) => '\t',
            _ => return Err("unknown escape behind \"\\\"".to_owned()),
        });
    }
    Err("a quote is not closed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(text: &str) -> Result<Value, usize> {
        let mut values = parse(text).map_err(|(line, _)| line)?;
        Ok(values.remove("k").expect("the key").1)
    }

    #[test]
    fn values_of_each_kind() {
        let one = |s: &str| Ok(Value::One(s.to_owned()));
        let many = |l: &[&str]| Ok(Value::Many(l.iter().map(|s| (*s).to_owned()).collect()));
        assert_eq!(only("# c\n\n  k = \"a # b\" # c"), one("a # b"));
        assert_eq!(only("k='a\\b'"), one("a\\b"));
        assert_eq!(only("k = \"a\\\"\\\\\\n\\t\""), one("a\"\\\n\t"));
        assert_eq!(only("k = 12"), one("12"));
        assert_eq!(only("k = true"), Ok(Value::Switch(true)));
        assert_eq!(only("k = false#"), Ok(Value::Switch(false)));
        assert_eq!(only("k = [\"a\", 'b' ,]"), many(&["a", "b"]));
        assert_eq!(only("k = []"), many(&[]));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for text in [
            "k",
            "k =",
            "k = bare",
            "k = \"open",
            "k = \"a\" b",
            "k = [\"a\"",
            "k = [1]",
            "k = [\"a\" \"b\"]",
            "[section]",
            "a.b = 1",
            " = 1",
            "k = -1",
            "k = 1.5",
            "k = \"\\x\"",
            "k = \"\"\"a\"\"\"",
        ] {
            assert_eq!(only(text), Err(1), "{text}");
        }
        assert_eq!(only("k = 1\nk = 2"), Err(2));
    }
}
