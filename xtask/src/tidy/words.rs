//! Words that do not belong in the repository, and where `unsafe` and the outside world may be.

use super::{ENGINES, Source};

/// The only folders with system calls of our own.
const UNSAFE_FOLDERS: [&str; 3] = [
    "crates/fullbore/src/driver/",
    "crates/lab/src/driver/",
    "interop/packetdrill/src/driver/",
];
/// Lines above an `unsafe` in which its `SAFETY:` comment must stand.
const SAFETY_LINES: usize = 6;

/// Paths of the standard library that an engine does not name. (Addresses are values, and fine.)
const OUTSIDE: &[&str] = &[
    "std::net::Tcp",
    "std::net::Udp",
    "ToSocketAddrs",
    "std::fs",
    "std::thread",
    "std::env::",
    "std::process",
    "std::time::Instant",
    "std::time::SystemTime",
    "tokio",
    "RefCell",
    "Mutex",
    "std::rc::",
];

pub fn check(source: &Source, broken: &mut Vec<String>) {
    // This file and its neighbours name what they forbid.
    if source.path.starts_with("xtask/src/tidy") {
        return;
    }
    check_words(source, broken);
    if source.is_rust() {
        check_unsafe(source, broken);
        check_engine(source, broken);
        check_tests(source, broken);
    }
}

/// In halves, so that this file does not hold what it looks for.
const REGISTRY_HOSTS: [&str; 4] = [
    concat!("crates", ".io"),
    concat!("pypi", ".org"),
    concat!("deb.debian", ".org"),
    concat!("registry", ".npmjs"),
];

fn check_words(source: &Source, broken: &mut Vec<String>) {
    for (i, line) in source.text.lines().enumerate() {
        let mut report = |what: &str| broken.push(format!("{}:{}: {what}", source.path, i + 1));
        for word in ["TODO", "FIXME", "XXX", "HACK"] {
            if has_word(line, word) && !line.contains(&format!("{word}(#")) {
                report(&format!("{word} without the number of an issue"));
            }
        }
        for path in [concat!("/wo", "rk/"), concat!("/ro", "ot/."), "/home/user"] {
            if line.contains(path) {
                report("a path of somebody's machine");
            }
        }
        for host in REGISTRY_HOSTS {
            if line.contains(host) {
                report("the host of a registry");
            }
        }
    }
}

/// Whether `word` stands alone in `line` (so `XXXXXX` of a temporary name is none).
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(is_part) && !line[at + word.len()..].starts_with(is_part)
    })
}

fn check_unsafe(source: &Source, broken: &mut Vec<String>) {
    let lines: Vec<&str> = source.text.lines().collect();
    for (i, line) in lines.iter().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        if !has_word(code, "unsafe") {
            continue;
        }
        let above = &lines[i.saturating_sub(SAFETY_LINES)..=i];
        if !UNSAFE_FOLDERS.iter().any(|f| source.path.starts_with(f)) {
            broken.push(format!(
                "{}:{}: unsafe outside {}",
                source.path,
                i + 1,
                UNSAFE_FOLDERS.join(" and ")
            ));
        } else if !above
            .iter()
            .any(|l| l.contains("SAFETY:") || l.contains("# Safety"))
        {
            broken.push(format!(
                "{}:{}: unsafe without a SAFETY comment",
                source.path,
                i + 1
            ));
        }
    }
}

fn check_engine(source: &Source, broken: &mut Vec<String>) {
    let is_engine = ENGINES
        .iter()
        .any(|e| source.path.starts_with(&format!("crates/{e}/src/")));
    if !is_engine {
        return;
    }
    for (number, line) in source.shipped() {
        let code = line.split("//").next().unwrap_or_default();
        for name in OUTSIDE {
            if code.contains(name) {
                broken.push(format!("{}:{number}: an engine names {name}", source.path));
            }
        }
    }
}

fn check_tests(source: &Source, broken: &mut Vec<String>) {
    let shipped = source.shipped().count();
    for (i, line) in source.text.lines().enumerate() {
        if line.trim_start().starts_with("#[ignore") {
            broken.push(format!("{}:{}: an ignored test", source.path, i + 1));
        }
        let is_sleep = line.contains("thread::sleep(") || line.contains("time::sleep(");
        if i >= shipped && is_sleep {
            broken.push(format!("{}:{}: a test that sleeps", source.path, i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(path: &str, text: &str) -> usize {
        let source = Source {
            path: path.into(),
            text: text.into(),
        };
        let mut broken = Vec::new();
        check(&source, &mut broken);
        broken.len()
    }

    #[test]
    fn a_note_needs_an_issue() {
        assert_eq!(broken("a.md", "TODO: later"), 1);
        assert_eq!(broken("a.md", "TODO(#4): later; name.XXXXXX"), 0);
    }

    #[test]
    fn unsafe_needs_its_folder_and_its_reason() {
        let text = "// SAFETY: the pointer is ours.\nunsafe { f() }\n";
        assert_eq!(broken("crates/fullbore/src/driver/a.rs", text), 0);
        assert_eq!(
            broken("crates/fullbore/src/driver/a.rs", "unsafe { f() }"),
            1
        );
        assert_eq!(broken("crates/lab/src/driver/a.rs", text), 0);
        assert_eq!(broken("crates/lab/src/link/a.rs", text), 1);
        assert_eq!(broken("crates/ssh/src/a.rs", text), 1);
        assert_eq!(broken("crates/ssh/src/a.rs", "#![deny(unsafe_code)]"), 0);
    }

    #[test]
    fn an_engine_names_nothing_outside() {
        assert_eq!(broken("crates/ssh/src/a.rs", "use std::net::TcpStream;"), 1);
        assert_eq!(broken("crates/cli/src/a.rs", "use std::net::TcpStream;"), 0);
        assert_eq!(
            broken(
                "crates/ssh/src/a.rs",
                "#[cfg(test)]\nmod tests {\nuse std::fs;\n}"
            ),
            0
        );
    }

    #[test]
    fn tests_are_neither_ignored_nor_asleep() {
        assert_eq!(broken("crates/ssh/tests/a.rs", "    #[ignore]"), 1);
        assert_eq!(broken("crates/ssh/tests/a.rs", "thread::sleep(x)"), 1);
        assert_eq!(broken("crates/cli/src/a.rs", "thread::sleep(x)"), 0);
    }
}
