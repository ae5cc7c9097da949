//! Patterns in remote source paths: `*`, `?`, `[...]` and `\` as scp has them, over bytes.

use super::side::{Fault, FaultKind, Side};
use super::temp::join;

/// Paths that one pattern may stand for.
pub const MATCHES_MAX: usize = 1 << 20;

/// The paths that `pattern` stands for, sorted. One without magic characters stands for itself,
/// less its backslashes; one that matches nothing stands for a file of that very name, if there
/// is one.
///
/// # Errors
/// When nothing matches, or more than [`MATCHES_MAX`] do.
pub async fn expand<S: Side>(side: &S, pattern: &[u8]) -> Result<Vec<Vec<u8>>, Fault> {
    let pattern = &side.expand(pattern).await?[..];
    if !has_magic(pattern) {
        return Ok(vec![unescape(pattern)]);
    }
    let mut paths = vec![if pattern.starts_with(b"/") {
        b"/".to_vec()
    } else {
        Vec::new()
    }];
    let components: Vec<&[u8]> = pattern
        .split(|&b| b == b'/')
        .filter(|c| !c.is_empty())
        .collect();
    for (index, component) in components.iter().enumerate() {
        let is_last = index + 1 == components.len();
        paths = step(side, paths, component, is_last).await?;
    }
    if !paths.is_empty() {
        paths.sort();
        return Ok(paths);
    }
    match side.lstat(pattern).await {
        Ok(_) => Ok(vec![pattern.to_vec()]),
        Err(fault) if fault.kind == FaultKind::Lost => Err(fault),
        Err(_) => Err(Fault::new(
            FaultKind::NotFound,
            "no file matches the pattern",
        )),
    }
}

/// Appends to each path whatever `component` stands for in it.
async fn step<S: Side>(
    side: &S,
    paths: Vec<Vec<u8>>,
    component: &[u8],
    is_last: bool,
) -> Result<Vec<Vec<u8>>, Fault> {
    let mut found = Vec::new();
    for path in paths {
        if !has_magic(component) {
            let path = join(&path, &unescape(component));
            if !is_last || side.lstat(&path).await.is_ok() {
                found.push(path);
            }
            continue;
        }
        let folder = if path.is_empty() {
            b".".as_slice()
        } else {
            &path
        };
        let found_before = found.len();
        match matches_in(side, folder, &path, component, &mut found).await {
            // A component that is no folder, or may not be read, matches nothing.
            Err(fault) if fault.kind != FaultKind::Lost => found.truncate(found_before),
            other => other?,
        }
        if found.len() > MATCHES_MAX {
            return Err(Fault::failure("the pattern matches too many files"));
        }
    }
    Ok(found)
}

/// Appends what `component` stands for in `folder`, which is called `path`; at most one batch more
/// than [`MATCHES_MAX`].
async fn matches_in<S: Side>(
    side: &S,
    folder: &[u8],
    path: &[u8],
    component: &[u8],
    found: &mut Vec<Vec<u8>>,
) -> Result<(), Fault> {
    let mut listing = side.list(folder).await?;
    loop {
        let batch = side.next_entries(&mut listing).await?;
        for entry in batch.entries {
            let is_hidden = entry.name.starts_with(b".") && !component.starts_with(b".");
            if !is_hidden && is_match(component, &entry.name) {
                found.push(join(path, &entry.name));
            }
        }
        if batch.is_last {
            return Ok(());
        }
        if found.len() > MATCHES_MAX {
            side.stop_listing(listing).await;
            return Ok(());
        }
    }
}

/// Whether a pattern has a character that is not to be taken as it stands.
#[must_use]
pub fn has_magic(pattern: &[u8]) -> bool {
    let mut bytes = pattern.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => {
                bytes.next();
            }
            b'*' | b'?' | b'[' => return true,
            _ => {}
        }
    }
    false
}

/// The pattern with each `\x` as `x`.
pub(super) fn unescape(pattern: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(pattern.len());
    let mut bytes = pattern.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' => plain.push(*bytes.next().unwrap_or(&b'\\')),
            _ => plain.push(byte),
        }
    }
    plain
}

/// Whether `name` matches `pattern`. O(pattern x name), whatever they hold: after a mismatch only
/// the last `*` is tried again.
#[must_use]
pub fn is_match(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() || p < pattern.len() {
        if pattern.get(p) == Some(&b'*') {
            retry = Some((p, n));
            p += 1;
            continue;
        }
        if n < name.len()
            && let Some(next) = match_one(pattern, p, name[n])
        {
            p = next;
            n += 1;
            continue;
        }
        match retry {
            Some((star, from)) if from < name.len() => {
                retry = Some((star, from + 1));
                p = star + 1;
                n = from + 1;
            }
            _ => return false,
        }
    }
    true
}

/// Where the pattern goes on if what stands at `p` matches `byte`.
fn match_one(pattern: &[u8], p: usize, byte: u8) -> Option<usize> {
    match *pattern.get(p)? {
        b'?' => Some(p + 1),
        b'[' => match class(&pattern[p + 1..], byte) {
            Some((is_in, len)) => is_in.then_some(p + 1 + len),
            // Without its end it is a bracket like any other character.
            None => (byte == b'[').then_some(p + 1),
        },
        b'\\' if p + 1 < pattern.len() => (pattern[p + 1] == byte).then_some(p + 2),
        literal => (literal == byte).then_some(p + 1),
    }
}

/// Whether `byte` is in the class whose inside starts `class`, and its length with the `]`; `None`
/// if it has no end.
fn class(class: &[u8], byte: u8) -> Option<(bool, usize)> {
    let is_negated = matches!(class.first(), Some(b'!' | b'^'));
    let start = usize::from(is_negated);
    let mut at = start;
    let mut is_in = false;
    loop {
        let mut low = *class.get(at)?;
        if low == b']' && at > start {
            return Some((is_in != is_negated, at + 1));
        }
        if low == b'\\' && at + 1 < class.len() {
            at += 1;
            low = class[at];
        }
        at += 1;
        let mut high = low;
        if class.get(at) == Some(&b'-') && class.get(at + 1).is_some_and(|&b| b != b']') {
            high = class[at + 1];
            at += 2;
        }
        is_in |= (low..=high).contains(&byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_fnmatch_does() {
        for (pattern, name, is) in [
            ("*", "", true),
            ("*.txt", "a.txt", true),
            ("*.txt", "a.txt2", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]x]", "]", true),
            ("[^]x]", "y", true),
            ("[a", "[a", true),
            ("[a-]", "-", true),
            (r"\*", "*", true),
            (r"\*", "x", false),
            (r"[\]]", "]", true),
            ("*a*b*c", "xxaxxbxxc", true),
            ("*a*b*c", "xxaxxcxxb", false),
        ] {
            assert_eq!(
                is_match(pattern.as_bytes(), name.as_bytes()),
                is,
                "{pattern} {name}"
            );
        }
        assert!(is_match(b"?\xfe*", b"\xff\xfe\n"));
    }

    #[test]
    fn many_stars_cost_no_more_than_pattern_times_name() {
        assert!(!is_match(&b"*a".repeat(100), &[b'a'; 99]));
        assert!(!is_match(
            &[b"*a".repeat(120), b"b".to_vec()].concat(),
            &[b'a'; 255]
        ));
    }

    #[test]
    fn escapes_are_taken_off_where_nothing_is_magic() {
        assert!(!has_magic(br"a\*b\[c"));
        assert_eq!(unescape(br"a\*b\\c\"), br"a*b\c\");
        assert!(has_magic(br"a\\*"));
    }
}
