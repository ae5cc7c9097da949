//! What the lines said so far: for each keyword the first value, or all of them where they add up.

use std::collections::BTreeMap;

use super::keywords::{Keyword, Shape};
use crate::config::text::{escape_for_display, parse_duration, parse_number, split_words};

/// One parsed value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// Of a flag.
    Flag(bool),
    /// Of a number, or of a duration in seconds.
    Number(u64),
    /// `none` where a duration is expected.
    NoDuration,
    /// Of a choice: the word in lower case.
    Choice(&'static str),
    /// Words, or the rest of a line as one.
    Words(Vec<Vec<u8>>),
}

/// The most words that one keyword may gather over all lines. Ours; OpenSSH allows 100 identity
/// files and 256 environment patterns.
const WORDS_MAX: usize = 1024;

/// Reads a keyword's arguments.
///
/// # Errors
/// What is wrong with them.
pub(super) fn parse(shape: Shape, arguments: &[u8]) -> Result<Value, String> {
    let words = split_words(arguments).ok_or("a quote is not closed")?;
    if shape == Shape::Line {
        let start = arguments
            .iter()
            .position(|b| !matches!(b, b' ' | b'\t' | b'='));
        let line = &arguments[start.unwrap_or(arguments.len())..];
        if line.is_empty() {
            return Err("an argument is missing".to_owned());
        }
        return Ok(Value::Words(vec![line.to_vec()]));
    }
    let first = match words.first() {
        Some(word) if !word.is_empty() => word,
        _ => return Err("an argument is missing".to_owned()),
    };
    let takes_many = matches!(shape, Shape::Words | Shape::WordsMore);
    if words.len() > 1 && !takes_many {
        return Err(format!(
            "\"{}\" is one argument too many (quote names that hold blanks)",
            escape_for_display(&words[1])
        ));
    }
    let text = String::from_utf8_lossy(first).to_ascii_lowercase();
    let refused = |wanted: &str| Err(format!("\"{}\" is not {wanted}", escape_for_display(first)));
    match shape {
        Shape::Flag => match text.as_str() {
            "yes" | "true" => Ok(Value::Flag(true)),
            "no" | "false" => Ok(Value::Flag(false)),
            _ => refused("yes or no"),
        },
        Shape::Number(min, max) => match parse_number(first) {
            Some(number) if (min..=max).contains(&number) => Ok(Value::Number(number)),
            _ => refused(&format!("a number from {min} to {max}")),
        },
        Shape::Duration if text == "none" => Ok(Value::NoDuration),
        Shape::Duration => match parse_duration(first) {
            Some(seconds) if seconds <= i32::MAX as u64 => Ok(Value::Number(seconds)),
            _ => refused("a time, such as 30 or 1m30s"),
        },
        Shape::Choice(choices) => match choices.iter().find(|c| **c == text) {
            Some(choice) => Ok(Value::Choice(choice)),
            None => refused(&format!("one of {}", choices.join(", "))),
        },
        Shape::Names => check_names(first).map(|()| Value::Words(words)),
        Shape::Word | Shape::WordsAdded | Shape::Words | Shape::WordsMore => {
            Ok(Value::Words(words))
        }
        Shape::Block | Shape::Line => unreachable!("blocks are read by the parser, lines above"),
    }
}

fn check_names(list: &[u8]) -> Result<(), String> {
    let names = list
        .strip_prefix(b"+")
        .or_else(|| list.strip_prefix(b"-"))
        .or_else(|| list.strip_prefix(b"^"))
        .unwrap_or(list);
    if names.is_empty() || !names.is_ascii() {
        return Err(format!(
            "\"{}\" is no list of names",
            escape_for_display(list)
        ));
    }
    Ok(())
}

/// The values of one host.
#[derive(Debug, Clone, Default)]
pub(super) struct Settings {
    values: BTreeMap<Keyword, Value>,
}

impl Settings {
    /// Takes a value in, unless an earlier one stands.
    ///
    /// # Errors
    /// When more words were gathered than the limit.
    pub(super) fn set(
        &mut self,
        keyword: Keyword,
        shape: Shape,
        value: Value,
    ) -> Result<(), String> {
        // ProxyCommand and ProxyJump: whichever came first excludes the other.
        let rival = match keyword {
            Keyword::ProxyCommand => Some(Keyword::ProxyJump),
            Keyword::ProxyJump => Some(Keyword::ProxyCommand),
            _ => None,
        };
        if rival.is_some_and(|rival| self.values.contains_key(&rival)) {
            return Ok(());
        }
        let adds_up = matches!(shape, Shape::WordsAdded | Shape::WordsMore);
        match (self.values.get_mut(&keyword), value) {
            (None, value) => {
                self.values.insert(keyword, value);
            }
            (Some(Value::Words(words)), Value::Words(more)) if adds_up => {
                for word in more {
                    if words.len() >= WORDS_MAX {
                        return Err(format!("more than {WORDS_MAX} values of one keyword"));
                    }
                    // OpenSSH drops an identity file that is listed twice.
                    if shape == Shape::WordsMore || !words.contains(&word) {
                        words.push(word);
                    }
                }
            }
            (Some(_), _) => {}
        }
        Ok(())
    }

    /// Sets a single word whatever stands there (the canonical host name, before the second pass).
    pub(super) fn replace_word(&mut self, keyword: Keyword, word: &str) {
        let value = Value::Words(vec![word.as_bytes().to_vec()]);
        self.values.insert(keyword, value);
    }

    /// Whether it was set.
    pub(super) fn has(&self, keyword: Keyword) -> bool {
        self.values.contains_key(&keyword)
    }

    /// A flag.
    pub(super) fn flag(&self, keyword: Keyword, default: bool) -> bool {
        match self.values.get(&keyword) {
            Some(Value::Flag(on)) => *on,
            _ => default,
        }
    }

    /// A number; `none` and absence give `None`.
    pub(super) fn number(&self, keyword: Keyword) -> Option<u64> {
        match self.values.get(&keyword) {
            Some(Value::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// A choice.
    pub(super) fn choice(&self, keyword: Keyword) -> Option<&'static str> {
        match self.values.get(&keyword) {
            Some(Value::Choice(choice)) => Some(choice),
            _ => None,
        }
    }

    /// Words; none if it was not set.
    pub(super) fn words(&self, keyword: Keyword) -> Option<&[Vec<u8>]> {
        match self.values.get(&keyword) {
            Some(Value::Words(words)) => Some(words),
            _ => None,
        }
    }

    /// The only word.
    pub(super) fn word(&self, keyword: Keyword) -> Option<&[u8]> {
        self.words(keyword)?.first().map(Vec::as_slice)
    }

    /// The only word as text; bytes that are not UTF-8 become replacement characters.
    pub(super) fn text(&self, keyword: Keyword) -> Option<String> {
        self.word(keyword)
            .map(|word| String::from_utf8_lossy(word).into_owned())
    }
}
