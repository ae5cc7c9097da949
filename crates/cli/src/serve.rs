//! `fullbore serve`: from flags and settings file to a server that runs until it is told to stop.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read as _;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use fullbore::config::Environment as _;
use fullbore::config::prompt::{Prompter as _, Secret};
use fullbore::config::settings::{self, Value};
use fullbore::config::text::{parse_size, reason};
use fullbore::driver::environment::Machine;
use fullbore::driver::random::SystemRandom;
use fullbore::driver::terminal::Person;
use fullbore::server::serve;
use fullbore::server::serve::log::{LogSink, NoLog, StderrLog};
use fullbore::server::serve::options::ServeOptions;
use fullbore::server::serve::password::PasswordHash;

use crate::args::{Kind, SERVE_FLAGS, ServeValues, window_budget};
use crate::exit::{self, Exit};
use crate::output;

/// Serves until a signal says to stop.
pub(crate) fn run(values: &ServeValues) -> Exit {
    let (options, is_quiet) = match options(values) {
        Ok(options) => options,
        Err(why) => return exit::usage(&why),
    };
    let sink: Arc<dyn LogSink> = if is_quiet {
        Arc::new(NoLog)
    } else {
        Arc::new(StderrLog)
    };
    match serve::run(&options, sink, &mut std::io::stdout()) {
        Ok(()) => Exit::Done,
        Err(error) => {
            output::error(&format!("fullbore: serve: {error}"));
            Exit::Failed
        }
    }
}

/// Asks for a password twice and prints its hash.
pub(crate) fn hash_password() -> Exit {
    let mut person = Person::new(&Machine);
    let first = person.secret("Password: ");
    let second = first
        .as_ref()
        .and_then(|_| person.secret("The same again: "));
    let (Some(first), Some(second)) = (first, second) else {
        return exit::usage("hash-password: there is no terminal to ask on");
    };
    if first != second || first.is_empty() {
        return exit::usage("hash-password: the two differ, or are empty");
    }
    let password = Secret::new(first.as_bytes().to_vec());
    let hash = PasswordHash::make(&password, &mut SystemRandom::new());
    output::print(&format!("{hash}\n"));
    Exit::Done
}

/// Keys replaced more often than this would cost more than the bytes themselves.
const REKEY_BYTES_MIN: u64 = 64 << 10;

/// Values by flag, from both sources.
type Values = BTreeMap<&'static str, Vec<OsString>>;

/// Reads the settings file and lays the command line's flags over it.
fn merged(values: &ServeValues) -> Result<Values, String> {
    let mut merged = match &values.config_file {
        Some(file) => from_file(file)?,
        None => Values::new(),
    };
    merged.extend(values.values.clone());
    Ok(merged)
}

fn from_file(file: &Path) -> Result<Values, String> {
    let named = |what: String| format!("serve: {}: {what}", file.display());
    let mut text = String::new();
    let opened = std::fs::File::open(file).map_err(|error| named(reason(&error)))?;
    opened
        .take(settings::BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|error| named(reason(&error)))?;
    let parsed = settings::parse(&text)
        .map_err(|(line, what)| format!("serve: {} line {line}: {what}", file.display()))?;
    let mut values = Values::new();
    for (key, (line, value)) in parsed {
        let flag = SERVE_FLAGS.iter().find(|(name, ..)| *name == key);
        let (name, kind, ..) =
            flag.ok_or_else(|| named(format!("line {line}: \"{key}\" is no setting")))?;
        let words = match (kind, value) {
            (Kind::Switch, Value::Switch(true)) => vec!["true".to_owned()],
            (Kind::Switch, Value::Switch(false)) => Vec::new(),
            (Kind::One | Kind::Many, Value::One(word)) => vec![word],
            (Kind::Many, Value::Many(words)) => words,
            (Kind::Switch, _) => return Err(named(format!("line {line}: {key} is true or false"))),
            (Kind::One | Kind::Many, _) => {
                return Err(named(format!(
                    "line {line}: {key} takes another kind of value"
                )));
            }
        };
        if !words.is_empty() {
            values.insert(*name, words.into_iter().map(OsString::from).collect());
        }
    }
    Ok(values)
}

/// What the server is told.
fn options(values: &ServeValues) -> Result<(ServeOptions, bool), String> {
    let values = merged(values)?;
    let home = Machine.home();
    let data_home = ServeOptions::data_home(Machine.variable("XDG_DATA_HOME"), &home);
    let mut options = ServeOptions::new(&data_home, &home);
    let paths = |name: &str| {
        values
            .get(name)
            .map(|v| v.iter().map(PathBuf::from).collect::<Vec<_>>())
    };
    if let Some(addresses) = values.get("listen") {
        options.listen = addresses
            .iter()
            .map(address)
            .collect::<Result<Vec<_>, _>>()?
            .concat();
    }
    options.udp = number(&values, "udp")?;
    if let Some(root) = paths("root").and_then(|mut paths| paths.pop()) {
        options.root = root;
    }
    if let Some(files) = paths("authorized-keys") {
        options.authorized_keys = files;
    }
    if let Some(files) = paths("host-key") {
        options.host_keys = files;
    }
    if let Some(user) = word(&values, "user")? {
        options.user = Some(user);
    }
    if let Some(file) = paths("password-hash").and_then(|mut paths| paths.pop()) {
        options.password = Some(password_hash(&file)?);
    }
    options.read_only = values.contains_key("read-only");
    if let Some(seconds) = positive(&values, "login-grace")? {
        options.login_grace = Duration::from_secs(u64::from(seconds));
    }
    if let Some(size) = word(&values, "rekey-limit")? {
        options.rekey.bytes = parse_size(size.as_bytes())
            .filter(|bytes| *bytes >= REKEY_BYTES_MIN)
            .ok_or_else(|| format!("serve: --rekey-limit {size}: a size of 64K or more"))?;
    }
    if let Some(count) = positive(&values, "connections-max")? {
        options.gate.connections_max = count as usize;
    }
    if let Some(count) = positive(&values, "sessions-max")? {
        options.sessions_max = count as usize;
    }
    if let Some(size) = word(&values, "window-budget")? {
        let bytes =
            window_budget(&size).map_err(|error| format!("serve: --window-budget {error}"))?;
        options.window_budget = Some(bytes);
    }
    if let Some(count) = number(&values, "workers")? {
        options.workers = count;
    }
    Ok((options, values.contains_key("quiet")))
}

fn word(values: &Values, name: &str) -> Result<Option<String>, String> {
    let Some(word) = values.get(name).and_then(|words| words.last()) else {
        return Ok(None);
    };
    let word = word
        .to_str()
        .ok_or_else(|| format!("serve: --{name}: not UTF-8"))?;
    Ok(Some(word.to_owned()))
}

fn number<N: FromStr>(values: &Values, name: &str) -> Result<Option<N>, String> {
    let word = word(values, name)?;
    word.map(|word| {
        word.parse()
            .map_err(|_| format!("serve: --{name} {word}: not a usable number"))
    })
    .transpose()
}

/// A limit: none at all would serve nobody.
fn positive(values: &Values, name: &str) -> Result<Option<u32>, String> {
    match number(values, name)? {
        Some(0) => Err(format!("serve: --{name} 0: must be 1 or more")),
        limit => Ok(limit),
    }
}

/// `ADDR:PORT`, `[v6]:PORT` or `NAME:PORT`, which may be several addresses.
fn address(word: &OsString) -> Result<Vec<SocketAddr>, String> {
    let text = word.to_string_lossy();
    let wrong = |why: &str| format!("serve: --listen {text}: {why} (127.0.0.1:2222, [::]:2222)");
    if !text.contains(':') {
        return Err(wrong("a port is missing"));
    }
    let found: Vec<SocketAddr> = text
        .to_socket_addrs()
        .map_err(|error| wrong(&error.to_string()))?
        .collect();
    if found.is_empty() {
        return Err(wrong("no such address"));
    }
    Ok(found)
}

fn password_hash(file: &Path) -> Result<PasswordHash, String> {
    let named = |why: String| format!("serve: --password-hash {}: {why}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| named(reason(&error)))?;
    PasswordHash::parse(text.trim()).map_err(|error| named(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{self, Task};
    use fullbore_testkit::Folder;

    fn parsed(arguments: &[&str]) -> Result<ServeOptions, String> {
        let words = ["fullbore", "serve"].iter().chain(arguments);
        let words: Vec<_> = words.map(OsString::from).collect();
        match args::parse(&words)? {
            Task::Serve(values) => options(&values).map(|(options, _)| options),
            _ => panic!("serve was asked for"),
        }
    }

    /// A settings file, which goes with its folder.
    fn settings(text: &str) -> (Folder, String) {
        let folder = Folder::new("settings");
        folder.write("file", text.as_bytes());
        let path = folder.at("file");
        (folder, path)
    }

    #[test]
    fn nothing_given_is_this_machine_only() {
        let options = parsed(&[]).expect("valid");
        assert!(
            options
                .listen
                .iter()
                .all(|address| address.ip().is_loopback())
        );
        assert_eq!(options.root, Path::new("."));
        assert!(!options.read_only && options.user.is_none() && options.password.is_none());
    }

    #[test]
    fn flags_reach_the_server() {
        let options = parsed(&[
            "--listen",
            "0.0.0.0:1",
            "--listen",
            "[::1]:2",
            "--udp",
            "77",
            "--root",
            "/r",
            "--read-only",
            "--user",
            "u",
            "--authorized-keys",
            "/k",
            "--host-key",
            "/h",
            "--login-grace",
            "5",
            "--sessions-max",
            "3",
            "--connections-max",
            "4",
            "--workers",
            "2",
        ])
        .expect("valid");
        let listen: Vec<_> = options.listen.iter().map(ToString::to_string).collect();
        assert_eq!(listen, ["0.0.0.0:1", "[::1]:2"]);
        assert_eq!(options.udp, Some(77));
        assert_eq!(
            (options.root.to_str(), options.user.as_deref()),
            (Some("/r"), Some("u"))
        );
        assert_eq!(options.authorized_keys, [PathBuf::from("/k")]);
        assert_eq!(options.host_keys, [PathBuf::from("/h")]);
        assert_eq!(options.login_grace, Duration::from_secs(5));
        assert_eq!(
            (
                options.sessions_max,
                options.gate.connections_max,
                options.workers
            ),
            (3, 4, 2)
        );
        assert!(options.read_only);
    }

    #[test]
    fn a_flag_stands_in_place_of_the_files() {
        let text = "listen = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\nroot = \"/file\"\nread-only = true\nlogin-grace = 9\nuser = 'f'\n";
        let (_folder, file) = settings(text);
        let options = parsed(&[
            "--config",
            &file,
            "--root",
            "/flag",
            "--listen",
            "127.0.0.1:3",
        ])
        .expect("valid");
        assert_eq!(options.root, Path::new("/flag"));
        assert_eq!(options.listen.len(), 1);
        assert_eq!(options.login_grace, Duration::from_secs(9));
        assert!(options.read_only);
        let (_folder, file) = settings("read-only = false\n");
        assert!(!parsed(&["--config", &file]).expect("valid").read_only);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for arguments in [
            &["--listen", "127.0.0.1"][..],
            &["--listen", ":"],
            &["--listen", "127.0.0.1:65536"],
            &["--login-grace", "x"],
            &["--login-grace", "0"],
            &["--connections-max", "0"],
            &["--sessions-max", "0"],
            &["--workers", "-1"],
            &["--udp", "65536"],
            &["--config", "/does/not/exist"],
            &["--password-hash", "/does/not/exist"],
            &["stray"],
        ] {
            assert!(parsed(arguments).is_err(), "{arguments:?}");
        }
        for text in [
            "frob = 1",
            "read-only = \"yes\"",
            "root = true",
            "root = [\"a\"]",
            "root",
        ] {
            let (_folder, file) = settings(text);
            let error = parsed(&["--config", &file]).expect_err(text);
            assert!(error.contains("line 1"), "{error}");
        }
        let (_folder, file) = settings("plain text password\n");
        assert!(parsed(&["--password-hash", &file]).is_err());
    }
}
