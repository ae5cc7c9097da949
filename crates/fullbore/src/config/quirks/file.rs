//! A user's own profiles: tables of TOML, each for the servers whose version line it matches.
//!
//! ```toml
//! [[server]]
//! match = "AcmeFTP_4.*"       # behind "SSH-2.0-"
//! handles-max = 1
//! ignored-extensions = ["posix-rename@openssh.com"]
//! ```

use super::{FILE_PROFILES_MAX, OwnProfile, Setting};
use crate::config::settings::{self, Value};

/// Reads the file's text.
///
/// # Errors
/// The line, from 1, and what is wrong with it.
pub fn parse(text: &str) -> Result<Vec<OwnProfile>, (usize, String)> {
    let mut profiles = Vec::new();
    // What stands before the first table, and where a table begins.
    let mut block = String::new();
    let mut start = None;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("[[") {
            if line.split('#').next().map(str::trim) != Some("[[server]]") {
                return Err((index + 1, "the tables here are [[server]]".to_owned()));
            }
            profiles.extend(profile(start, &block)?);
            block.clear();
            start = Some(index + 1);
        } else {
            block.push_str(line);
            block.push('\n');
        }
        if profiles.len() > FILE_PROFILES_MAX {
            return Err((index + 1, format!("more than {FILE_PROFILES_MAX} tables")));
        }
    }
    profiles.extend(profile(start, &block)?);
    Ok(profiles)
}

/// The table that begins at line `start`.
fn profile(start: Option<usize>, block: &str) -> Result<Option<OwnProfile>, (usize, String)> {
    let lines_before = start.unwrap_or(0);
    let mut values = settings::parse(block).map_err(|(line, what)| (lines_before + line, what))?;
    let Some(start) = start else {
        return match values.values().next() {
            Some((line, _)) => Err((*line, "this must stand under [[server]]".to_owned())),
            None => Ok(None),
        };
    };
    let pattern = match values.remove("match") {
        Some((_, Value::One(pattern))) if !pattern.is_empty() => pattern,
        Some((line, _)) => return Err((start + line, "match needs a pattern".to_owned())),
        None => return Err((start, "match = \"PATTERN\" is missing".to_owned())),
    };
    let mut settings = Vec::with_capacity(values.len());
    for (key, (line, value)) in values {
        settings.push(setting(&key, value).map_err(|what| (start + line, what))?);
    }
    Ok(Some(OwnProfile { pattern, settings }))
}

fn setting(key: &str, value: Value) -> Result<Setting, String> {
    let switch = |make: fn(bool) -> Setting| match &value {
        Value::Switch(is) => Ok(make(*is)),
        Value::One(_) | Value::Many(_) => Err(format!("{key} is true or false")),
    };
    let number = |make: fn(u32) -> Setting| match &value {
        Value::One(text) => match text.parse() {
            Ok(number) => Ok(make(number)),
            Err(_) => Err(format!("{key} is a number below 2^32; 0 is no limit")),
        },
        Value::Switch(_) | Value::Many(_) => Err(format!("{key} is a number")),
    };
    match key {
        "serves-in-order" => switch(Setting::ServesInOrder),
        "guess-kex" => switch(Setting::GuessKex),
        "sessions-max" => number(Setting::SessionsMax),
        "handles-max" => number(Setting::HandlesMax),
        "readdirs-max" => number(Setting::ReaddirsMax),
        "request-len-max" => number(Setting::RequestLenMax),
        "sets-attributes" => switch(Setting::SetsAttributes),
        "opens-for-both" => switch(Setting::OpensForBoth),
        "writes-anywhere" => switch(Setting::WritesAnywhere),
        "symlink-link-first" => switch(Setting::SymlinkLinkFirst),
        "ignored-extensions" => match value {
            Value::Many(names) => Ok(Setting::IgnoredNames(names)),
            Value::Switch(_) | Value::One(_) => Err(format!("{key} is a [\"list\"]")),
        },
        _ => Err(format!("{key}: there is no such setting")),
    }
}
