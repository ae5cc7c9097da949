//! What a copy is certain to ask a server first: asked ahead, it costs no round trips of its own.
//!
//! A FIFO among the sources is opened before anybody knows that it is one. A server may wait in that
//! for somebody to write to it, but it has answered the question for its attributes before, and those
//! are what the copy refuses it by.

use super::glob::{has_magic, unescape};
use super::temp::{join, split};
use crate::client::{AHEAD_MAX, Ahead};

/// Sources that are asked about together. Ours: so many answers are in flight at once.
pub(super) const ASKED_TOGETHER: usize = 24;

/// Sources that are opened ahead: servers have few handles at times.
const OPENED_AHEAD_MAX: usize = 8;

/// What is asked about the sources of a copy, as [`super::glob::expand`] takes them. Patterns that may
/// stand for several paths, and paths that begin with `~`, are left out.
#[must_use]
pub fn about_sources(patterns: &[Vec<u8>], is_recursive: bool) -> Vec<Ahead> {
    let patterns = patterns
        .iter()
        .filter(|pattern| !has_magic(pattern) && !pattern.starts_with(b"~"));
    let paths: Vec<Vec<u8>> = patterns.map(|pattern| unescape(pattern)).collect();
    about_paths(&paths, is_recursive)
}

/// What [`Run::copy_from`](super::Run::copy_from) asks about its sources.
pub(super) fn about_paths(paths: &[Vec<u8>], is_recursive: bool) -> Vec<Ahead> {
    let paths = paths.iter().take(ASKED_TOGETHER).enumerate();
    let questions = paths.flat_map(|(index, path)| {
        let path = or_here(path.clone());
        let mut asked = vec![Ahead::Stat(path.clone()), Ahead::Realpath(path.clone())];
        if index < OPENED_AHEAD_MAX {
            asked.push(match is_recursive {
                true => Ahead::Opendir(path),
                false => Ahead::Open(path),
            });
        }
        asked
    });
    questions.collect()
}

/// What is asked about a target that `sources` go to, whether it is a folder or not.
#[must_use]
pub fn about_target(path: &[u8], sources: &[Vec<u8>]) -> Vec<Ahead> {
    if path.starts_with(b"~") {
        return Vec::new();
    }
    let path = or_here(path.to_vec());
    let inside = sources.iter().filter_map(|source| match split(source).1 {
        b"" | b"." | b".." => None,
        name if path == b"." => Some(Ahead::Lstat(name.to_vec())),
        name => Some(Ahead::Lstat(join(&path, name))),
    });
    let mut questions = vec![Ahead::Stat(path.clone())];
    questions.extend(inside);
    questions.push(Ahead::Lstat(path));
    questions.truncate(AHEAD_MAX);
    questions
}

/// The empty path is the folder where a session starts.
fn or_here(path: Vec<u8>) -> Vec<u8> {
    if path.is_empty() { b".".to_vec() } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(list: &[&str]) -> Vec<Vec<u8>> {
        list.iter().map(|path| path.as_bytes().to_vec()).collect()
    }

    #[test]
    fn a_source_is_asked_about_unless_it_may_be_several() {
        let path = || b"a*b".to_vec();
        let expected = [
            Ahead::Stat(path()),
            Ahead::Realpath(path()),
            Ahead::Open(path()),
        ];
        assert_eq!(
            about_sources(&paths(&["x*", "~/y", "a\\*b"]), false),
            expected
        );
        let tree = about_sources(&paths(&["a\\*b"]), true);
        assert_eq!(tree[..2], expected[..2]);
        assert_eq!(tree[2], Ahead::Opendir(path()));
        assert_eq!(
            about_sources(&paths(&[""]), true)[0],
            Ahead::Stat(b".".to_vec())
        );
    }

    #[test]
    fn a_target_is_asked_about_as_a_file_and_as_a_folder() {
        let expected = [
            Ahead::Stat(b"d".to_vec()),
            Ahead::Lstat(b"d/y".to_vec()),
            Ahead::Lstat(b"d".to_vec()),
        ];
        assert_eq!(about_target(b"d", &paths(&["/x/y", ".."])), expected);
        let here = about_target(b"", &paths(&["y"]));
        assert_eq!(
            here[..2],
            [Ahead::Stat(b".".to_vec()), Ahead::Lstat(b"y".to_vec())]
        );
        assert!(about_target(b"~x", &paths(&["y"])).is_empty());
    }

    #[test]
    fn no_more_is_asked_ahead_than_there_is_room_for() {
        let many = vec![b"x".to_vec(); 1000];
        let asked = about_sources(&many, false);
        let opened = asked.iter().filter(|a| matches!(a, Ahead::Open(_)));
        assert_eq!(opened.count(), OPENED_AHEAD_MAX);
        assert_eq!(asked.len(), 2 * ASKED_TOGETHER + OPENED_AHEAD_MAX);
        assert!(asked.len() <= AHEAD_MAX);
        assert_eq!(about_target(b"d", &many).len(), AHEAD_MAX);
    }
}
