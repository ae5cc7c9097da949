use std::path::PathBuf;
use std::process::Command;

use super::*;
use crate::config::ConfigError;
use crate::config::FileFacts;
use crate::config::fake::Fake;

fn names(list: &str) -> Vec<String> {
    list.split(',').map(str::to_owned).collect()
}

fn defaults() -> AlgorithmDefaults {
    AlgorithmDefaults {
        ciphers: names("aes128-gcm@openssh.com,aes256-ctr,chacha20-poly1305@openssh.com"),
        macs: names("hmac-sha2-256,hmac-sha2-512"),
        kex: names("curve25519-sha256,ecdh-sha2-nistp256"),
        host_keys: names("ssh-ed25519,rsa-sha2-512"),
        pubkey_accepted: names("ssh-ed25519,rsa-sha2-512"),
        ca_signatures: names("ssh-ed25519"),
    }
}

fn resolve_in(fake: &Fake, host: &str, options: &[&str]) -> Result<HostConfig, ConfigError> {
    let options: Vec<_> = options.iter().map(|o| (*o).to_owned()).collect();
    let request = Request {
        host,
        user: None,
        options: &options,
        config_file: ConfigFile::UserAndSystem,
    };
    resolve(fake, &defaults(), &request)
}

fn with(config: &str, host: &str) -> Result<HostConfig, ConfigError> {
    resolve_in(&Fake::new(&[("/home/me/.ssh/config", config)]), host, &[])
}

fn good(config: &str, host: &str) -> HostConfig {
    with(config, host).unwrap_or_else(|error| panic!("{error}\n{config}"))
}

#[test]
fn nothing_configured_gives_defaults() {
    let config = good("", "Host.Example");
    assert_eq!(config.host_name, "host.example");
    assert_eq!(config.original_host, "Host.Example");
    assert_eq!((config.port, config.user.as_str()), (22, "me"));
    assert_eq!(config.auth.identity_files.len(), 5);
    assert_eq!(
        config.host_keys.user_files[0],
        PathBuf::from("/home/me/.ssh/known_hosts")
    );
    assert_eq!(config.host_keys.strict, StrictHostKeyChecking::Ask);
    assert_eq!(config.connection.proxy, None);
    assert!(config.warnings.is_empty());
}

#[test]
fn the_first_value_wins_and_options_come_first() {
    let text = "Host a\n Port 1\nHost *\n Port 2\n User u\n";
    assert_eq!(good(text, "a").port, 1);
    assert_eq!(good(text, "b").port, 2);
    let fake = Fake::new(&[
        ("/home/me/.ssh/config", text),
        ("/etc/ssh/ssh_config", "Port 3\nHostKeyAlias sys"),
    ]);
    let config = resolve_in(&fake, "a", &["Port=9", "Port=8"]).expect("valid");
    assert_eq!(config.port, 9);
    assert_eq!(config.user, "u");
    assert_eq!(config.host_keys.alias.as_deref(), Some("sys"));
}

#[test]
fn host_patterns() {
    let text = "Host *.a !x.a y.?\n Port 1\n";
    for (host, port) in [
        ("b.a", 1),
        ("x.a", 22),
        ("y.z", 1),
        ("y.zz", 22),
        ("B.A", 22),
    ] {
        assert_eq!(good(text, host).port, port, "{host}");
    }
}

#[test]
fn match_criteria() {
    let text = |line: &str| format!("{line}\n Port 1\n");
    let cases: &[(&str, bool)] = &[
        ("Match all", true),
        ("Match !all", false),
        ("Match host h", true),
        ("Match host H", false),
        ("Match host a,h", true),
        ("Match host *,!h", false),
        ("Match !host h", false),
        ("Match !host i", true),
        ("Match originalhost h user me", true),
        ("Match originalhost h user you", false),
        ("Match localuser me", true),
        ("Match user=me localuser=me", true),
        ("Match exec \"yes %h\"", true),
        ("Match exec \"no %h\"", false),
        ("Match !exec \"no %h\"", true),
        ("Match final", true),
        ("Match canonical", false),
        ("Match final all", true),
        ("Match tagged t", false),
        ("Match sessiontype subsystem", true),
        ("Match localnetwork 10.0.0.0/8", false),
        ("Match host h # comment", true),
    ];
    for (line, applies) in cases {
        let mut fake = Fake::new(&[("/home/me/.ssh/config", &text(line))]);
        fake.successes.push("yes h".to_owned());
        let config = resolve_in(&fake, "h", &[]).unwrap_or_else(|e| panic!("{e}: {line}"));
        assert_eq!(config.port == 1, *applies, "{line}");
    }
}

#[test]
fn match_sees_the_host_name_and_exec_runs_only_if_the_rest_holds() {
    assert_eq!(
        good("HostName real\nMatch host real\n Port 1\n", "h").port,
        1
    );
    assert_eq!(
        good("HostName real\nMatch originalhost real\n Port 1\n", "h").port,
        22
    );
    assert_eq!(
        good(
            "HostName %h.example.org\nMatch host h.example.org\n Port 1\n",
            "h"
        )
        .port,
        1
    );
    let fake = Fake::new(&[("/home/me/.ssh/config", "Match host other exec \"x\"\n")]);
    resolve_in(&fake, "h", &[]).expect("valid");
    assert!(fake.ran.borrow().is_empty());
}

#[test]
fn errors_name_file_and_line() {
    let cases = [
        "Port",
        "Port 0",
        "Port 65536",
        "Port x",
        "Port 22 23",
        "Frobnicate yes",
        "Host",
        "Host \"\"",
        "Host \"a",
        "Match",
        "Match frob x",
        "Match host",
        "Match all host x",
        "Match host x all canonical",
        "BatchMode maybe",
        "ConnectTimeout 1x",
        "Ciphers +",
        "StrictHostKeyChecking perhaps",
        "\"Port 22",
        "User \"a b",
        "LogLevel loud",
        "RequiredRSASize -1",
    ];
    for case in cases {
        let error = with(&format!("# one\n{case}\n"), "h").expect_err(case);
        assert_eq!(error.line, 2, "{case}: {error}");
        assert_eq!(
            error.file,
            Some(PathBuf::from("/home/me/.ssh/config")),
            "{case}"
        );
    }
    // In a block that does not apply, too.
    assert!(with("Host other\n Port x\n", "h").is_err());
    for case in [
        "RekeyLimit 1 2 3",
        "RekeyLimit 15",
        "RekeyLimit x",
        "HostName %x",
        "ProxyCommand %z",
        "IdentityFile ${NOT_SET}",
        "SetEnv =x",
        "Ciphers 3des-cbc",
        "ProxyJump a,,b",
        "ProxyJump a:0",
    ] {
        assert!(with(case, "h").is_err(), "{case}");
    }
    assert!(resolve_in(&Fake::new(&[]), "h", &["Host=x"]).is_err());
}

#[test]
fn unknown_keywords_pass_if_ignored_and_foreign_ones_always() {
    assert!(with("IgnoreUnknown Frob*\nFrobnicate yes\n", "h").is_ok());
    assert!(with("IgnoreUnknown Other\nFrobnicate yes\n", "h").is_err());
    assert!(
        with(
            "ForwardX11 yes\nControlMaster auto\nLocalForward 1 2:3\nGSSAPIAuthentication no\n",
            "h"
        )
        .is_ok()
    );
}

#[test]
fn includes_nest_and_keep_to_their_block() {
    let files = [
        (
            "/home/me/.ssh/config",
            "Host h\n Include conf.d/*.conf\nHost *\n User last\n",
        ),
        ("/home/me/.ssh/conf.d/b.conf", "Port 2\nHost other\n"),
        ("/home/me/.ssh/conf.d/a.conf", "Port 1\nInclude ~/sub\n"),
        ("/home/me/.ssh/conf.d/.hidden.conf", "Port 3\n"),
        ("/home/me/sub", "Match all\nHostKeyAlias from-sub\n"),
    ];
    let config = resolve_in(&Fake::new(&files), "h", &[]).expect("valid");
    assert_eq!(config.port, 1);
    assert_eq!(config.user, "last");
    assert_eq!(config.host_keys.alias.as_deref(), Some("from-sub"));
    // From a block that does not apply, nothing does, not even `Match all`.
    let config = resolve_in(&Fake::new(&files), "g", &[]).expect("valid");
    assert_eq!((config.port, config.host_keys.alias), (22, None));
}

#[test]
fn includes_are_bounded() {
    let error = with("Include config\nInclude config\n", "h").expect_err("includes itself");
    assert!(error.what.contains("deeper than 16"), "{error}");
    // A chain as deep as the limit is read.
    let chain: Vec<(String, String)> = (0..=16)
        .map(|i| {
            let path = if i == 0 {
                "config".to_owned()
            } else {
                format!("c{i}")
            };
            let text = if i == 16 {
                "Port 1".to_owned()
            } else {
                format!("Include c{}", i + 1)
            };
            (format!("/home/me/.ssh/{path}"), text)
        })
        .collect();
    let files: Vec<_> = chain
        .iter()
        .map(|(a, b)| (a.as_str(), b.as_str()))
        .collect();
    assert_eq!(
        resolve_in(&Fake::new(&files), "h", &[])
            .expect("16 deep")
            .port,
        1
    );
    assert!(with(&format!("Include {}", "none ".repeat(100)), "h").is_ok());
}

#[test]
fn a_file_that_others_may_write_is_refused() {
    let path = PathBuf::from("/home/me/.ssh/config");
    for (uid, mode, accepted) in [
        (1000, 0o644, true),
        (0, 0o644, true),
        (1000, 0o664, false),
        (1000, 0o602, false),
        (7, 0o600, false),
    ] {
        let mut fake = Fake::new(&[("/home/me/.ssh/config", "Port 1")]);
        let facts = FileFacts {
            uid,
            mode,
            is_dir: false,
        };
        fake.facts.insert(path.clone(), facts);
        assert_eq!(
            resolve_in(&fake, "h", &[]).is_ok(),
            accepted,
            "{uid} {mode:o}"
        );
    }
}

#[test]
fn paths_expand_tokens_tildes_and_variables() {
    let mut fake = Fake::new(&[(
        "/home/me/.ssh/config",
        "Port 7\nUser r\nIdentityFile ~/keys/%h-%p-%r\nIdentityFile ${DIR}/k\nIdentityFile ~other/k\nCertificateFile %d/c\nUserKnownHostsFile ~/kh-%n none\nIdentityAgent $SOCK\nGlobalKnownHostsFile none\n",
    )]);
    fake.variables.insert("DIR".to_owned(), "/dir".to_owned());
    fake.variables.insert("SOCK".to_owned(), "/sock".to_owned());
    let config = resolve_in(&fake, "H", &[]).expect("valid");
    let files: Vec<_> = config
        .auth
        .identity_files
        .iter()
        .map(|f| f.path.to_str().expect("ASCII"))
        .collect();
    assert_eq!(files, ["/home/me/keys/h-7-r", "/dir/k", "/home/other/k"]);
    assert_eq!(config.auth.certificate_files, [PathBuf::from("/home/me/c")]);
    assert_eq!(
        config.host_keys.user_files,
        [PathBuf::from("/home/me/kh-H")]
    );
    assert!(config.host_keys.global_files.is_empty());
    assert_eq!(
        config.auth.agent,
        IdentityAgent::Socket(PathBuf::from("/sock"))
    );
}

#[test]
fn proxies() {
    let jump = |text: &str| good(text, "h").connection.proxy;
    let hop = |user: Option<&str>, host: &str, port| JumpHost {
        user: user.map(str::to_owned),
        host: host.to_owned(),
        port,
    };
    assert_eq!(
        jump("ProxyJump a"),
        Some(Proxy::Jump(vec![hop(None, "a", None)]))
    );
    assert_eq!(
        jump("ProxyJump u@a:2,ssh://v@[::1]:3/,::1,%h-gate"),
        Some(Proxy::Jump(vec![
            hop(Some("u"), "a", Some(2)),
            hop(Some("v"), "::1", Some(3)),
            hop(None, "::1", None),
            hop(None, "h-gate", None)
        ]))
    );
    assert_eq!(
        jump("ProxyCommand nc -x \"a b\" %h %p # no comment"),
        Some(Proxy::Command(b"nc -x \"a b\" h 22 # no comment".to_vec()))
    );
    assert_eq!(
        jump("ProxyCommand=nc %%"),
        Some(Proxy::Command(b"nc %".to_vec()))
    );
    assert_eq!(jump("ProxyJump none\nProxyCommand x"), None);
    assert_eq!(
        jump("ProxyCommand x\nProxyJump a"),
        Some(Proxy::Command(b"x".to_vec()))
    );
    assert_eq!(jump("ProxyCommand none"), None);
}

#[test]
fn names_are_made_canonical() {
    let text = "CanonicalizeHostname yes\nCanonicalDomains a.org b.org\nHost *.b.org\n Port 5\nMatch canonical\n User c\n";
    let mut fake = Fake::new(&[("/home/me/.ssh/config", text)]);
    fake.names
        .insert("h.b.org".to_owned(), "h.b.org".to_owned());
    let config = resolve_in(&fake, "h", &[]).expect("valid");
    assert_eq!(
        (config.host_name.as_str(), config.port, config.user.as_str()),
        ("h.b.org", 5, "c")
    );
    let config = resolve_in(&fake, "x", &[]).expect("falls back");
    assert_eq!(
        (config.host_name.as_str(), config.user.as_str()),
        ("x", "c")
    );
    assert!(resolve_in(&fake, "x", &["CanonicalizeFallbackLocal=no"]).is_err());
    assert_eq!(
        resolve_in(&fake, "x.y.z", &[])
            .expect("enough dots")
            .host_name,
        "x.y.z"
    );
    assert_eq!(
        resolve_in(&fake, "h", &["ProxyJump=j"])
            .expect("proxied")
            .host_name,
        "h"
    );
    fake.names
        .insert("w.a.org".to_owned(), "real.b.org".to_owned());
    let rule = ["CanonicalizePermittedCNAMEs=*.a.org:*.b.org"];
    assert_eq!(
        resolve_in(&fake, "w", &rule).expect("permitted").host_name,
        "real.b.org"
    );
    assert_eq!(
        resolve_in(&fake, "w", &[])
            .expect("not permitted")
            .host_name,
        "w.a.org"
    );
}

#[test]
fn environment_of_the_session() {
    let mut fake = Fake::new(&[(
        "/home/me/.ssh/config",
        "SetEnv A=1 B=two\nSetEnv C=no\nSendEnv LC_* X\nSendEnv -X\n",
    )]);
    for name in ["LC_ALL", "X", "A", "PATH"] {
        fake.variables.insert(name.to_owned(), "v".to_owned());
    }
    let config = resolve_in(&fake, "h", &[]).expect("valid");
    let pair = |a: &str, b: &str| (a.as_bytes().to_vec(), b.as_bytes().to_vec());
    assert_eq!(
        config.session.environment,
        [pair("A", "1"), pair("B", "two"), pair("LC_ALL", "v")]
    );
}

#[test]
fn limits_of_rekeying() {
    let rekey = |text: &str| {
        let c = good(text, "h").connection;
        (c.rekey_bytes, c.rekey_seconds)
    };
    assert_eq!(rekey("RekeyLimit 1G 1h"), (Some(1 << 30), Some(3600)));
    assert_eq!(rekey("RekeyLimit default none"), (None, None));
    assert_eq!(rekey("RekeyLimit 16"), (Some(16), None));
    assert_eq!(rekey("RekeyLimit default 10"), (None, Some(10)));
}

#[test]
fn lines_past_the_limit_are_refused() {
    let long = format!("# {}", "x".repeat(crate::config::LINE_BYTES_MAX));
    assert_eq!(
        with(&format!("Port 1\n{long}\n"), "h")
            .expect_err("too long")
            .line,
        2
    );
    assert_eq!(
        good(&format!("{}\nPort 1\n", &long[2..]).replace('x', " "), "h").port,
        1
    );
}

#[test]
fn a_named_file_must_exist_and_replaces_the_others() {
    let fake = Fake::new(&[("/f", "Port 1"), ("/home/me/.ssh/config", "Port 2")]);
    let port = |config_file| {
        let request = Request {
            host: "h",
            config_file,
            ..Request::default()
        };
        resolve(&fake, &defaults(), &request).map(|c| c.port)
    };
    assert_eq!(port(ConfigFile::Only(PathBuf::from("/f"))), Ok(1));
    assert_eq!(port(ConfigFile::UserAndSystem), Ok(2));
    assert_eq!(port(ConfigFile::None), Ok(22));
    assert!(port(ConfigFile::Only(PathBuf::from("/g"))).is_err());
}

/// What `ssh -G` says for keywords that we print the same way.
fn ours(config: &HostConfig) -> Vec<(&'static str, String)> {
    let yes_no = |on: bool| if on { "yes" } else { "no" }.to_owned();
    vec![
        ("hostname", config.host_name.clone()),
        ("port", config.port.to_string()),
        ("user", config.user.clone()),
        ("batchmode", yes_no(config.auth.batch)),
        ("compression", yes_no(config.connection.compression)),
        ("identitiesonly", yes_no(config.auth.identities_only)),
        ("hashknownhosts", yes_no(config.host_keys.hash)),
        ("passwordauthentication", yes_no(config.auth.password)),
        (
            "numberofpasswordprompts",
            config.auth.password_prompts.to_string(),
        ),
        (
            "serveraliveinterval",
            config.connection.server_alive_interval.to_string(),
        ),
        (
            "serveralivecountmax",
            config.connection.server_alive_count_max.to_string(),
        ),
        (
            "connecttimeout",
            config
                .connection
                .connect_timeout
                .map_or("none".to_owned(), |s| s.to_string()),
        ),
        (
            "rekeylimit",
            format!(
                "{} {}",
                config.connection.rekey_bytes.unwrap_or(0),
                config.connection.rekey_seconds.unwrap_or(0)
            ),
        ),
        ("ciphers", config.algorithms.ciphers.join(",")),
        ("macs", config.algorithms.macs.join(",")),
        ("kexalgorithms", config.algorithms.kex.join(",")),
        ("hostkeyalgorithms", config.algorithms.host_keys.join(",")),
        (
            "pubkeyacceptedalgorithms",
            config.algorithms.pubkey_accepted.join(","),
        ),
        (
            "hostkeyalias",
            config.host_keys.alias.clone().unwrap_or_default(),
        ),
        ("preferredauthentications", config.auth.preferred.join(",")),
    ]
}

fn ssh_g(file: &std::path::Path, host: &str, options: &[&str]) -> Option<Vec<(String, String)>> {
    let mut command = Command::new("ssh");
    command.arg("-G").arg("-F").arg(file);
    for option in options {
        command.arg("-o").arg(option);
    }
    let output = command
        .arg(host)
        .output()
        .expect("this test compares with OpenSSH: install ssh");
    if !output.status.success() {
        return None;
    }
    let text = String::from_utf8(output.stdout).expect("ssh prints what the test wrote");
    let pair = |line: &str| {
        let (keyword, value) = line.split_once(' ').unwrap_or((line, ""));
        (keyword.to_owned(), value.to_owned())
    };
    Some(text.lines().map(pair).collect())
}

fn value<'a>(list: &'a [(String, String)], keyword: &str) -> &'a str {
    list.iter()
        .find(|(k, _)| k == keyword)
        .map_or("", |(_, v)| v)
}

/// The defaults of the installed OpenSSH, so that `+`, `-` and `^` can be compared.
fn openssh_defaults(empty: &std::path::Path) -> AlgorithmDefaults {
    let list = ssh_g(empty, "h", &[]).expect("an empty file is valid");
    AlgorithmDefaults {
        ciphers: names(value(&list, "ciphers")),
        macs: names(value(&list, "macs")),
        kex: names(value(&list, "kexalgorithms")),
        host_keys: names(value(&list, "hostkeyalgorithms")),
        pubkey_accepted: names(value(&list, "pubkeyacceptedalgorithms")),
        ca_signatures: names(value(&list, "casignaturealgorithms")),
    }
}

const COMPARED: &[&str] = &[
    "",
    "Port 2222\nPort 3333\n",
    "Host a\n HostName %h.example.org\n User one\nHost b\n User two\nHost *\n User rest\n Port 9\n",
    "Host a b !b\n Port 1\n",
    "Host !a\n Port 1\n",
    "Match host a user root\n Port 1\nMatch all\n Port 2\n",
    "HostName Real.Name\nMatch host real.name\n Port 1\nMatch originalhost a\n Compression yes\n",
    "Match final host a\n Port 4\nPort 5\n",
    "Match !final\n Port 4\nMatch final all\n User x\n",
    "Match exec \"test %h = a\"\n Port 6\nMatch exec false\n Port 7\n",
    "Match exec \"test %n-%p-%r = a-22-who\"\n Port 6\n",
    "Match host=a,b !user other localuser *\n Port 6\n",
    "Match canonical\n Port 1\nMatch final\n Port 2\n",
    "Port=1\n  User = x\nHostKeyAlias=\"quoted alias\"\n",
    "Ciphers +aes128-ctr\nMACs -*sha1*,umac*\nKexAlgorithms ^ecdh-sha2-nistp384\nHostKeyAlgorithms ssh-ed25519,rsa-sha2-512\n",
    "Ciphers -aes*\nPubkeyAcceptedAlgorithms -*-cert-*\n",
    "ServerAliveInterval 1m30\nServerAliveCountMax 7\nConnectTimeout 2h\nRekeyLimit 4M 1h30m\n",
    "RekeyLimit default 10\nNumberOfPasswordPrompts 0\nPreferredAuthentications publickey,password\n",
    "IdentitiesOnly true\nHashKnownHosts YES\nBatchMode False\nPasswordAuthentication no\nChallengeResponseAuthentication no\n",
    "IgnoreUnknown Foo*,BAR\nFooBar x y z\nBar 1\nPort 3\n",
    "Port 1 # a comment\nUser me#not\n",
    "Host a # b\n Port 3\n",
    "Host \"a\" \n Port 3\n",
    "Host A\n Port 3\n",
    "Host a\n\tPort 4\t\r\nHost *\r\n User x\r\n",
    "Include {dir}/inc*\nUser after\n",
    "Host zzz\n Include {dir}/inc1\nHost *\n Port 10\n",
    "Include {dir}/missing*\nPort 5\n",
    "Host *\n HostName host-%%-%h\n",
    "CanonicalizeHostname no\nHostName 127.0.0.1\n",
    "Tag x\n",
    // Refused by both.
    "Port\n",
    "Port 0\n",
    "Port 65536\n",
    "Port 1 2\n",
    "Foo x\n",
    "User \"a\n",
    "Match\n",
    "Match foo x\n",
    "Match host\n",
    "Match all host a\n",
    "Host\n",
    "BatchMode x\n",
    "Host zzz\n Port x\n",
    "Include\n",
    "ConnectTimeout 1x\n",
    "HostName %z\n",
    "Include {dir}/loop\n",
    "StrictHostKeyChecking what\n",
    "Compression\n",
    "RekeyLimit 3\n",
];

#[test]
fn openssh_reads_the_same() {
    let folder = fullbore_testkit::Folder::new("ssh-config");
    let dir = folder.path().to_str().expect("the folder's name is ASCII");
    let write = |name: &str, text: &str| folder.write(name, text.replace("{dir}", dir).as_bytes());
    write("inc1", "Host a\n Port 77\n");
    write("inc2", "Match all\n HostKeyAlias inc2\n");
    write("loop", "Include {dir}/loop\n");
    let defaults = openssh_defaults(&write("empty", ""));
    let environment = Machine(Fake::new(&[]));
    let mut failures = Vec::new();
    for (text, host) in COMPARED.iter().flat_map(|t| [(t, "a"), (t, "b")]) {
        // "Tag" came with OpenSSH 9.4.
        if *text == "Tag x\n" && ssh_g(&folder.file("empty"), "h", &["Tag=x"]).is_none() {
            continue;
        }
        let file = write("config", text);
        let options = if text.contains("who") {
            &["User=who"][..]
        } else {
            &[]
        };
        let theirs = ssh_g(&file, host, options);
        let options: Vec<_> = options.iter().map(|o| (*o).to_owned()).collect();
        let request = Request {
            host,
            user: None,
            options: &options,
            config_file: ConfigFile::Only(file),
        };
        let mine = resolve(&environment, &defaults, &request);
        match (&theirs, &mine) {
            (None, Err(_)) => {}
            (Some(theirs), Ok(mine)) => {
                for (keyword, mine) in ours(mine) {
                    let theirs = value(theirs, keyword);
                    if theirs != mine {
                        failures.push(format!(
                            "{text:?} {host}: {keyword}: ssh {theirs:?}, here {mine:?}"
                        ));
                    }
                }
            }
            (theirs, mine) => failures.push(format!(
                "{text:?} {host}: ssh accepts: {}, here {:?}",
                theirs.is_some(),
                mine.as_ref().err()
            )),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The real files and commands, and made-up variables.
struct Machine(Fake);

impl crate::config::Environment for Machine {
    fn read_file(&self, path: &std::path::Path, _bytes_max: usize) -> std::io::Result<Vec<u8>> {
        std::fs::read(path)
    }
    fn file_facts(&self, path: &std::path::Path) -> std::io::Result<FileFacts> {
        use std::os::unix::fs::MetadataExt;
        let data = std::fs::metadata(path)?;
        Ok(FileFacts {
            uid: data.uid(),
            mode: data.mode() & 0o7777,
            is_dir: data.is_dir(),
        })
    }
    fn list_dir(&self, path: &std::path::Path) -> std::io::Result<Vec<std::ffi::OsString>> {
        std::fs::read_dir(path)?
            .map(|e| e.map(|e| e.file_name()))
            .collect()
    }
    fn append_line(&self, path: &std::path::Path, line: &[u8]) -> std::io::Result<()> {
        self.0.append_line(path, line)
    }
    fn replace_file(&self, path: &std::path::Path, content: &[u8]) -> std::io::Result<()> {
        self.0.replace_file(path, content)
    }
    fn variable(&self, name: &str) -> Option<std::ffi::OsString> {
        self.0.variable(name)
    }
    fn variable_names(&self) -> Vec<String> {
        self.0.variable_names()
    }
    fn home(&self) -> PathBuf {
        self.0.home()
    }
    fn home_of(&self, user: &str) -> Option<PathBuf> {
        self.0.home_of(user)
    }
    fn user(&self) -> String {
        let output = Command::new("id")
            .arg("-un")
            .output()
            .expect("id is everywhere");
        String::from_utf8(output.stdout)
            .expect("a user name")
            .trim()
            .to_owned()
    }
    fn uid(&self) -> u32 {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata("/proc/self").map_or(0, |data| data.uid())
    }
    fn host_name(&self) -> String {
        self.0.host_name()
    }
    fn run(&self, command: &str) -> std::io::Result<bool> {
        Ok(Command::new("sh")
            .arg("-c")
            .arg(command)
            .status()?
            .success())
    }
    fn resolve(&self, name: &str) -> Option<String> {
        self.0.resolve(name)
    }
    fn fill_random(&self, out: &mut [u8]) {
        self.0.fill_random(out);
    }
}

#[test]
fn connections_are_shared_where_a_master_is_asked_for_or_a_socket_named() {
    use super::{Persist, Sharing};
    let sharing = |options: &[&str]| {
        let environment = Fake::new(&[]);
        let options: Vec<String> = options.iter().map(|o| (*o).to_owned()).collect();
        let request = Request {
            host: "h",
            user: Some("u"),
            options: &options,
            config_file: ConfigFile::None,
        };
        let config = resolve(&environment, &AlgorithmDefaults::default(), &request);
        config.map(|config| config.connection.sharing)
    };
    let at = |socket: &str, persist| {
        let socket = PathBuf::from(socket);
        Ok(Some(Sharing { socket, persist }))
    };
    assert_eq!(sharing(&[]), Ok(None));
    assert_eq!(
        sharing(&["ControlMaster=no", "ControlPersist=yes"]),
        Ok(None)
    );
    assert_eq!(
        sharing(&["ControlMaster=auto", "ControlPath=none"]),
        Ok(None)
    );
    assert_eq!(
        sharing(&["ControlPath=/s/%r@%h"]),
        at("/s/u@h.fullbore", None)
    );
    // Without ControlMaster there is nothing to persist.
    let named = ["ControlPath=/s", "ControlPersist=9"];
    assert_eq!(sharing(&named), at("/s.fullbore", None));
    for (word, persist) in [
        ("1m", Some(Persist::Seconds(60))),
        ("yes", Some(Persist::Forever)),
        ("0", Some(Persist::Forever)),
        ("no", None),
    ] {
        let persists = format!("ControlPersist={word}");
        let options = ["ControlMaster=auto", "ControlPath=/s", &persists];
        assert_eq!(sharing(&options), at("/s.fullbore", persist), "{word}");
    }
    assert!(sharing(&["ControlMaster=yes", "ControlPersist=soon"]).is_err());
    let default = sharing(&["ControlMaster=yes"])
        .expect("valid")
        .expect("shared");
    let folder = "/home/me/.local/state/fullbore/masters";
    assert!(default.socket.starts_with(folder), "{default:?}");
}
