use super::*;

fn of(software: &str) -> Quirks {
    Quirks::of(format!("SSH-2.0-{software}").as_bytes(), &[])
}

#[test]
fn every_profile_is_reached_says_something_and_none_twice() {
    let mut names: Vec<&str> = PROFILES.iter().map(|profile| profile.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), PROFILES.len());
    for profile in PROFILES {
        assert!(!profile.settings.is_empty(), "{}", profile.name);
        for pattern in profile.patterns {
            // A line that the pattern was made for.
            let line = pattern.replace('*', "1.0");
            assert_eq!(of(&line).name, profile.name, "{pattern}");
        }
    }
}

#[test]
fn servers_are_known_by_their_version_lines() {
    for (software, name) in [
        ("OpenSSH_9.2p1 Debian-2+deb12u3", "OpenSSH"),
        ("OpenSSH_10.0p2", "OpenSSH"),
        ("OpenSSH_8.4p1", "OpenSSH before 8.5"),
        ("OpenSSH_8.5", "OpenSSH"),
        ("OpenSSH_for_Windows_9.5", "OpenSSH for Windows"),
        ("dropbear_2022.83", "Dropbear"),
        ("Go", "a server in Go"),
        ("Gopher", "a server without a profile"),
        ("mod_sftp", "ProFTPD"),
        ("mod_sftp/1.0.1", "ProFTPD"),
        ("AWS_SFTP_1.1", "AWS Transfer Family"),
        ("AzureSSH_1.0.0", "Azure Blob Storage"),
        ("9.99 FlowSsh: Bitvise SSH Server (WinSSHD) 9.99", "Bitvise"),
        ("APACHE-SSHD-2.13.2", "Apache MINA SSHD"),
        ("paramiko_3.4.0", "paramiko"),
        ("xOpenSSH_9.0", "a server without a profile"),
        ("", "a server without a profile"),
    ] {
        assert_eq!(of(software).name, name, "{software}");
    }
    assert_eq!(
        Quirks::of(b"SSH-1.99-OpenSSH_3.9", &[]).name,
        "OpenSSH before 8.5"
    );
    assert_eq!(Quirks::of(b"", &[]), Quirks::default());
}

#[test]
fn a_special_profile_keeps_what_the_general_one_says() {
    let old = of("OpenSSH_7.4");
    assert!(old.serves_in_order);
    assert_eq!(
        (old.sessions_max, old.request_len_max),
        (Some(10), Some(65_536))
    );
}

#[test]
fn a_user_s_file_has_the_last_word() {
    let text = "# mine\n[[server]] # all\nmatch = \"Open*\"\nsessions-max = 2\nhandles-max = 0\n\
                serves-in-order = false\n\n[[server]]\nmatch = \"Acme_?\"\nguess-kex = false\n\
                readdirs-max = 1\nrequest-len-max = 4096\nsets-attributes = false\n\
                opens-for-both = false\nwrites-anywhere = false\nsymlink-link-first = true\n\
                ignored-extensions = [\"a@b\", \"c\"]\n";
    let own = parse(text).expect("well formed");
    let known = Quirks::of(b"SSH-2.0-OpenSSH_9.9", &own);
    assert_eq!(
        (known.sessions_max, known.serves_in_order),
        (Some(2), false)
    );
    assert!(known.is_guess_understood, "as the table says");
    assert!(
        known.describe().contains("quirks.toml: Open*"),
        "{}",
        known.describe()
    );
    let acme = Quirks::of(b"SSH-2.0-Acme_4", &own);
    let expected = Quirks {
        name: acme.name.clone(),
        is_guess_understood: false,
        readdirs_max: 1,
        request_len_max: Some(4096),
        sets_attributes: false,
        opens_for_both: false,
        writes_anywhere: false,
        symlink_link_first: true,
        ignored_extensions: vec!["a@b".to_owned(), "c".to_owned()],
        ..Quirks::default()
    };
    assert_eq!(acme, expected);
    for part in [
        "may serve out of order",
        "at most 4096 bytes a request",
        "sets no mode or times",
        "not both",
        "not used: a@b, c",
    ] {
        assert!(acme.describe().contains(part), "{}", acme.describe());
    }
}

#[test]
fn zero_is_no_limit() {
    let text = "[[server]]\nmatch = \"*\"\nsessions-max = 0\nhandles-max = 0\nreaddirs-max = 0\n\
                request-len-max = 0\n";
    let own = parse(text).expect("well formed");
    let known = Quirks::of(b"SSH-2.0-Acme_4", &own);
    assert_eq!(known.readdirs_max, usize::MAX);
    assert_eq!(
        (known.sessions_max, known.handles_max, known.request_len_max),
        (None, None, None)
    );
}

#[test]
fn what_is_wrong_in_the_file_is_told_with_its_line() {
    for (text, line, part) in [
        ("sessions-max = 1", 1, "under [[server]]"),
        ("\n[[client]]", 2, "[[server]]"),
        ("[[server]]\nsessions-max = 1", 1, "match"),
        ("[[server]]\n\nmatch = \"\"", 3, "pattern"),
        (
            "[[server]]\nmatch = \"a\"\nsessions-max = true",
            3,
            "a number",
        ),
        (
            "[[server]]\nmatch = \"a\"\nsessions-max = 4294967296",
            3,
            "2^32",
        ),
        (
            "[[server]]\nmatch = \"a\"\nguess-kex = 1",
            3,
            "true or false",
        ),
        ("[[server]]\nmatch = \"a\"\nspeed = 1", 3, "no such setting"),
        (
            "[[server]]\nmatch = \"a\"\nignored-extensions = 1",
            3,
            "list",
        ),
        ("[[server]]\nmatch = \"a\"\nx", 3, "key = value"),
    ] {
        let (found, what) = parse(text).expect_err(text);
        assert_eq!(found, line, "{text}: {what}");
        assert!(what.contains(part), "{text}: {what}");
    }
}
