use super::*;
use crate::config::FileFacts;
use crate::config::fake::Fake;
use crate::config::ssh_config::{self, ConfigFile, Request};
use std::path::PathBuf;

const FILE: &str = "/home/me/.local/state/fullbore/servers";

fn host(environment: &Fake, options: &[&str]) -> HostConfig {
    let options: Vec<String> = options.iter().map(|o| (*o).to_owned()).collect();
    let request = Request {
        host: "Example.org",
        user: Some("Me"),
        options: &options,
        config_file: ConfigFile::None,
    };
    let defaults = super::super::connect::algorithm_defaults();
    ssh_config::resolve(environment, &defaults, &request).expect("valid")
}

fn seen(version: &str) -> Seen {
    Seen {
        host_key: "SHA256:host".to_owned(),
        user_key: Some("SHA256:user".to_owned()),
        bears_haste: true,
        kex: "a,b".to_owned(),
        host_keys: "c".to_owned(),
        version: version.as_bytes().to_vec(),
    }
}

fn content(environment: &Fake) -> String {
    let files = environment.files.borrow();
    String::from_utf8(files[&PathBuf::from(FILE)].clone()).expect("text")
}

#[test]
fn a_server_is_remembered_by_user_address_and_port() {
    let environment = Fake::new(&[]);
    let first = host(&environment, &[]);
    let other = host(&environment, &["Port=2222"]);
    let memory = Memory::of(&first, &environment).expect("wanted");
    assert_eq!(memory.recall(), (None, None));
    let one = seen("SSH-2.0-One with a comment");
    memory.keep(&one).expect("kept");
    let elsewhere = Memory::of(&other, &environment).expect("wanted");
    assert_eq!(elsewhere.recall(), (None, None));
    let mut two = seen("SSH-2.0-Two");
    (two.user_key, two.bears_haste) = (None, false);
    elsewhere.keep(&two).expect("kept");
    assert_eq!(memory.recall(), (Some(one), None));
    assert_eq!(elsewhere.recall(), (Some(two), None));
    assert!(content(&environment).starts_with("me@[example.org]:22 SHA256:host SHA256:user yes"));
    let newer = seen("SSH-2.0-Newer");
    memory.keep(&newer).expect("kept");
    assert_eq!(memory.recall(), (Some(newer), None));
    assert_eq!(content(&environment).lines().count(), 2);
}

#[test]
fn names_are_hashed_where_known_hosts_has_them_hashed() {
    let environment = Fake::new(&[]);
    let hashed = host(&environment, &["HashKnownHosts=yes"]);
    let memory = Memory::of(&hashed, &environment).expect("wanted");
    memory.keep(&seen("SSH-2.0-x")).expect("kept");
    memory.keep(&seen("SSH-2.0-y")).expect("kept");
    assert_eq!(memory.recall().0, Some(seen("SSH-2.0-y")));
    let content = content(&environment);
    assert!(
        content.starts_with("|1|") && !content.contains("example"),
        "{content}"
    );
    assert_eq!(content.lines().count(), 1);
}

#[test]
fn nothing_is_remembered_where_that_is_switched_off() {
    let environment = Fake::new(&[]);
    let off = host(&environment, &["RememberedServersFile=none"]);
    assert!(Memory::of(&off, &environment).is_none());
    let mut environment = Fake::new(&[]);
    let state = ("XDG_STATE_HOME".to_owned(), "/state".to_owned());
    environment.variables.extend([state]);
    let file = host(&environment, &[]).connection.remembered_file;
    assert_eq!(file, Some(PathBuf::from("/state/fullbore/servers")));
}

#[test]
fn what_does_not_parse_is_told_and_replaced() {
    for bad in [
        "me@[example.org]:22",
        "me@[example.org]:22 h u maybe a b c3No",
        "me@[example.org]:22 h u yes a b not-base64",
        "me@[example.org]:22 h u yes a  c3No",
        "me@[example.org]:22 h u yes a\u{7} b c3No",
    ] {
        let environment = Fake::new(&[(FILE, &format!("\u{0}\nrubbish\n{bad}\n"))]);
        let host = host(&environment, &[]);
        let memory = Memory::of(&host, &environment).expect("wanted");
        let (found, remark) = memory.recall();
        assert!(
            found.is_none() && remark.is_some_and(|r| r.contains(FILE)),
            "{bad}"
        );
        memory.keep(&seen("SSH-2.0-x")).expect("kept");
        assert_eq!(memory.recall(), (Some(seen("SSH-2.0-x")), None));
        assert_eq!(content(&environment).lines().count(), 1);
    }
}

#[test]
fn a_file_that_others_may_write_to_is_neither_read_nor_replaced() {
    for (uid, mode) in [(1000, 0o620), (1000, 0o602), (0, 0o600)] {
        let mut environment = Fake::new(&[(FILE, "x\n")]);
        let is_dir = false;
        let facts = FileFacts { uid, mode, is_dir };
        environment.facts.insert(PathBuf::from(FILE), facts);
        let host = host(&environment, &[]);
        let memory = Memory::of(&host, &environment).expect("wanted");
        assert!(
            memory
                .recall()
                .1
                .is_some_and(|remark| remark.contains("others"))
        );
        assert!(memory.keep(&seen("SSH-2.0-x")).is_err());
        assert_eq!(content(&environment), "x\n");
    }
}

#[test]
fn a_file_that_is_too_long_is_told_and_begun_anew() {
    for (len, is_told) in [(FILE_BYTES_MAX, false), (FILE_BYTES_MAX + 1, true)] {
        let line = "me@[h]:22 h u yes a b c3No\n";
        let text = format!("{line}{}", "\n".repeat(len - line.len()));
        let environment = Fake::new(&[(FILE, &text)]);
        let host = host(&environment, &[]);
        let memory = Memory::of(&host, &environment).expect("wanted");
        assert_eq!(memory.recall().1.is_some(), is_told);
        memory.keep(&seen("SSH-2.0-x")).expect("kept");
        assert_eq!(memory.recall(), (Some(seen("SSH-2.0-x")), None));
        let lines = content(&environment).lines().count();
        assert_eq!(lines, if is_told { 1 } else { 2 });
    }
}

#[test]
fn the_oldest_lines_are_forgotten_past_the_limit() {
    let line = |i: usize| format!("me@[h{i}]:22 h u yes a b c3No\n");
    let lines: String = (0..SERVERS_MAX).map(line).collect();
    let environment = Fake::new(&[(FILE, &lines)]);
    let host = host(&environment, &[]);
    let memory = Memory::of(&host, &environment).expect("wanted");
    memory.keep(&seen("SSH-2.0-x")).expect("kept");
    let content = content(&environment);
    assert_eq!(content.lines().count(), SERVERS_MAX);
    assert!(!content.contains("[h0]") && content.contains("[h1]"));
    assert_eq!(memory.recall().0, Some(seen("SSH-2.0-x")));
}

#[test]
fn what_would_not_read_back_is_not_written() {
    let environment = Fake::new(&[]);
    let host = host(&environment, &[]);
    let memory = Memory::of(&host, &environment).expect("wanted");
    let mut long = seen("SSH-2.0-x");
    long.kex = "x".repeat(LINE_BYTES_MAX);
    memory.keep(&long).expect("nothing to do");
    assert_eq!(memory.recall(), (None, None));
    long.kex = "a b".to_owned();
    memory.keep(&long).expect("nothing to do");
    assert_eq!(memory.recall(), (None, None));
}

#[test]
fn any_content_is_borne_and_what_is_kept_is_found_again() {
    let seed = fullbore_testkit::seed(1);
    for seed in seed..seed + 300 {
        let mut rng = fullbore_base::Rng::seeded(seed);
        // Mutations of good lines, so that every field is reached.
        let mut text = "me@[example.org]:22 h u yes a,b c c3No\n"
            .repeat(3)
            .into_bytes();
        for _ in 0..rng.index(6) {
            let at = rng.index(text.len());
            text[at] = u8::try_from(rng.below(256)).expect("a byte");
        }
        text.truncate(rng.index(text.len()) + 1);
        let environment = Fake::new(&[]);
        let file = PathBuf::from(FILE);
        environment.files.borrow_mut().insert(file, text);
        let host = host(&environment, &[]);
        let memory = Memory::of(&host, &environment).expect("wanted");
        let _ = memory.recall();
        memory.keep(&seen("SSH-2.0-x")).expect("kept");
        assert_eq!(memory.recall().0, Some(seen("SSH-2.0-x")), "seed {seed}");
    }
}
