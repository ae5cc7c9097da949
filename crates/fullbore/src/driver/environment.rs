//! The machine that configuration is read on: its files, users, names and variables.

#![expect(
    unsafe_code,
    reason = "the user database and the resolver are the C library's"
)]

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use aws_lc_rs::rand::SecureRandom as _;

use crate::config::{Environment, FileFacts};

/// The real environment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Machine;

/// The longest record of the user database that is taken, in bytes. Chosen: glibc suggests 1 KiB.
const PASSWD_BYTES_MAX: usize = 64 << 10;

/// What the user database says.
struct Account {
    name: OsString,
    home: PathBuf,
    shell: OsString,
}

impl Account {
    fn by_id(uid: libc::uid_t) -> Option<Account> {
        // SAFETY: the closure hands the pointers on as `lookup` made them.
        Account::lookup(|record, buffer, len, found| unsafe {
            libc::getpwuid_r(uid, record, buffer, len, found)
        })
    }

    fn by_name(name: &str) -> Option<Account> {
        let name = CString::new(name).ok()?;
        // SAFETY: as above; `name` outlives the call.
        Account::lookup(|record, buffer, len, found| unsafe {
            libc::getpwnam_r(name.as_ptr(), record, buffer, len, found)
        })
    }

    fn lookup(
        call: impl Fn(
            *mut libc::passwd,
            *mut libc::c_char,
            libc::size_t,
            *mut *mut libc::passwd,
        ) -> libc::c_int,
    ) -> Option<Account> {
        let mut buffer = vec![0; PASSWD_BYTES_MAX];
        let mut record = std::mem::MaybeUninit::<libc::passwd>::uninit();
        let mut found = std::ptr::null_mut();
        let code = call(
            record.as_mut_ptr(),
            buffer.as_mut_ptr(),
            buffer.len(),
            &raw mut found,
        );
        if code != 0 || found.is_null() {
            return None;
        }
        // SAFETY: the call succeeded, so `found` points to `record`, whose strings lie in `buffer`.
        let record = unsafe { &*found };
        let text = |pointer: *const libc::c_char| {
            if pointer.is_null() {
                return OsString::new();
            }
            // SAFETY: the call made it a string that ends with NUL.
            let text = unsafe { CStr::from_ptr(pointer) };
            OsString::from_vec(text.to_bytes().to_vec())
        };
        Some(Account {
            name: text(record.pw_name),
            home: PathBuf::from(text(record.pw_dir)),
            shell: text(record.pw_shell),
        })
    }
}

fn own_account() -> Option<Account> {
    Account::by_id(rustix::process::getuid().as_raw())
}

impl Environment for Machine {
    fn read_file(&self, path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
        read_all(fs::File::open(path)?, bytes_max)
    }

    fn read_regular_file(&self, path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
        read_all(open_regular(path)?, bytes_max)
    }

    fn file_facts(&self, path: &Path) -> io::Result<FileFacts> {
        let data = fs::metadata(path)?;
        Ok(FileFacts {
            uid: data.uid(),
            mode: data.mode() & 0o7777,
            is_dir: data.is_dir(),
        })
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(path)?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect()
    }

    fn append_line(&self, path: &Path, line: &[u8]) -> io::Result<()> {
        make_private_folder(path)?;
        let mut file = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        let mut text = Vec::with_capacity(line.len() + 2);
        if !ends_its_line(path) {
            text.push(b'\n');
        }
        text.extend_from_slice(line);
        text.push(b'\n');
        file.write_all(&text)
    }

    fn replace_file(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        make_private_folder(path)?;
        // Two writers at once have a file each; the later rename wins.
        let mut new = path.as_os_str().to_owned();
        new.push(format!(".{}", std::process::id()));
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        // A symbolic link that somebody put there is not followed.
        options.custom_flags(libc::O_NOFOLLOW);
        let written = options
            .open(&new)
            .and_then(|mut file| file.write_all(content))
            .and_then(|()| fs::rename(&new, path));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written
    }

    fn variable(&self, name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }

    fn variable_names(&self) -> Vec<String> {
        std::env::vars_os()
            .filter_map(|(name, _)| name.into_string().ok())
            .collect()
    }

    fn home(&self) -> PathBuf {
        // As OpenSSH: the user database, not HOME, so that one cannot be pointed elsewhere.
        own_account()
            .map(|account| account.home)
            .or_else(|| self.variable("HOME").map(PathBuf::from))
            .unwrap_or_else(|| PathBuf::from("/"))
    }

    fn home_of(&self, user: &str) -> Option<PathBuf> {
        Account::by_name(user).map(|account| account.home)
    }

    fn user(&self) -> String {
        let name = own_account().map(|account| account.name);
        let name = name.or_else(|| self.variable("USER"));
        let name = name.and_then(|name| name.into_string().ok());
        name.unwrap_or_else(|| rustix::process::getuid().as_raw().to_string())
    }

    fn uid(&self) -> u32 {
        rustix::process::getuid().as_raw()
    }

    fn host_name(&self) -> String {
        let names = rustix::system::uname();
        names.nodename().to_string_lossy().into_owned()
    }

    fn run(&self, command: &str) -> io::Result<bool> {
        let shell = own_account().map(|account| account.shell);
        let shell = self.variable("SHELL").or(shell);
        let shell = shell.filter(|shell| !shell.is_empty());
        let status = Command::new(shell.as_deref().unwrap_or(OsStr::new("/bin/sh")))
            .arg("-c")
            .arg(command)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()?;
        Ok(status.success())
    }

    fn resolve(&self, name: &str) -> Option<String> {
        canonical_name(name)
    }

    fn fill_random(&self, out: &mut [u8]) {
        aws_lc_rs::rand::SystemRandom::new()
            .fill(out)
            .expect("the operating system gives randomness");
    }
}

/// Opens a file to read it, if it is a regular one or a device such as /dev/null: at once, whatever it is.
pub(crate) fn open_regular(path: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    // A pipe would have us wait for whoever writes to it.
    let options = options.read(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() || kind.is_char_device() {
        return Ok(file);
    }
    let why = "is no regular file";
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

fn read_all(file: fs::File, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(bytes_max as u64 + 1).read_to_end(&mut content)?;
    if content.len() > bytes_max {
        let why = format!("longer than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(content)
}

/// Makes the folder of a file, with those above it, where there is none.
fn make_private_folder(path: &Path) -> io::Result<()> {
    match path.parent().filter(|f| !f.as_os_str().is_empty()) {
        Some(folder) => fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder),
        None => Ok(()),
    }
}

/// Whether a line can be appended to the file as it is. One that cannot be read is taken to.
fn ends_its_line(path: &Path) -> bool {
    let last = || {
        let mut file = fs::File::open(path)?;
        let mut last = [b'\n'];
        if file.seek(io::SeekFrom::End(0))? > 0 {
            file.seek(io::SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        Ok::<_, io::Error>(last == [b'\n'])
    };
    last().unwrap_or(true)
}

/// The canonical name of a host that has addresses. Blocks while the resolver works.
fn canonical_name(name: &str) -> Option<String> {
    let asked = CString::new(name).ok()?;
    // SAFETY: all-zero is a valid addrinfo: no flags, any family, no pointers.
    let mut hints: libc::addrinfo = unsafe { std::mem::zeroed() };
    hints.ai_flags = libc::AI_CANONNAME;
    hints.ai_socktype = libc::SOCK_STREAM;
    let mut list = std::ptr::null_mut();
    // SAFETY: the pointers are valid for the call; the list is freed below, once.
    let code =
        unsafe { libc::getaddrinfo(asked.as_ptr(), std::ptr::null(), &hints, &raw mut list) };
    if code != 0 || list.is_null() {
        return None;
    }
    // SAFETY: the first element carries the canonical name, or NULL.
    let canonical = unsafe { (*list).ai_canonname };
    let answer = if canonical.is_null() {
        name.to_owned()
    } else {
        // SAFETY: not NULL, so it is a string that ends with NUL and lives as long as the list.
        let text = unsafe { CStr::from_ptr(canonical) };
        String::from_utf8_lossy(text.to_bytes()).into_owned()
    };
    // SAFETY: made by getaddrinfo above, and not used after this.
    unsafe { libc::freeaddrinfo(list) };
    Some(answer.trim_end_matches('.').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullbore_testkit::Folder;

    #[test]
    fn lines_are_appended_to_a_private_file() {
        let folder = Folder::new("machine");
        let file = folder.0.join("new/known_hosts");
        Machine.append_line(&file, b"one").expect("made");
        Machine.append_line(&file, b"two").expect("appended");
        assert_eq!(Machine.read_file(&file, 8).expect("read"), b"one\ntwo\n");
        assert!(Machine.read_file(&file, 7).is_err());
        fs::write(&file, "open end").expect("written");
        Machine.append_line(&file, b"x").expect("appended");
        assert_eq!(
            Machine.read_file(&file, 99).expect("read"),
            b"open end\nx\n"
        );
        assert_eq!(Machine.file_facts(&file).expect("there").mode, 0o600);
        let parent = file.parent().expect("has one");
        assert_eq!(Machine.file_facts(parent).expect("there").mode, 0o700);
        assert_eq!(Machine.list_dir(parent).expect("listed"), ["known_hosts"]);
    }

    #[test]
    fn programs_that_append_at_once_lose_nothing() {
        let folder = Folder::new("machine");
        let file = folder.0.join("known_hosts");
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let file = &file;
                scope.spawn(move || {
                    for line in 0..50 {
                        let line = format!("writer {writer} line {line}");
                        Machine
                            .append_line(file, line.as_bytes())
                            .expect("appended");
                    }
                });
            }
        });
        let content = fs::read_to_string(&file).expect("read");
        assert_eq!(content.lines().filter(|l| !l.is_empty()).count(), 400);
        assert!(
            content
                .lines()
                .all(|l| l.is_empty() || l.split(' ').count() == 4)
        );
    }

    #[test]
    fn a_link_to_the_file_stays() {
        let folder = Folder::new("machine");
        let (real, link) = (folder.0.join("real"), folder.0.join("link"));
        fs::write(&real, "old\n").expect("made");
        std::os::unix::fs::symlink(&real, &link).expect("linked");
        Machine.append_line(&link, b"new").expect("appended");
        assert_eq!(fs::read(&real).expect("read"), b"old\nnew\n");
        assert!(fs::symlink_metadata(&link).expect("there").is_symlink());
    }

    #[test]
    fn a_device_stays_a_device() {
        let folder = Folder::new("machine");
        let link = folder.0.join("known_hosts");
        std::os::unix::fs::symlink("/dev/null", &link).expect("linked");
        Machine.append_line(&link, b"line").expect("swallowed");
        let device = fs::metadata("/dev/null").expect("there").file_type();
        assert!(device.is_char_device());
        let inner = folder.0.join("folder");
        fs::create_dir(&inner).expect("made");
        assert!(Machine.append_line(&inner, b"line").is_err());
    }

    #[test]
    fn a_pipe_in_the_place_of_a_file_is_not_waited_for() {
        let folder = Folder::new("machine");
        let pipe = folder.0.join("pipe");
        let made = Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("mkfifo runs").success());
        for other in [&pipe, &folder.0] {
            let error = Machine.read_regular_file(other, 100).expect_err("no file");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{other:?}");
        }
        let null = Machine.read_regular_file(Path::new("/dev/null"), 0);
        assert_eq!(null.expect("empty"), b"");
        let file = folder.0.join("file");
        fs::write(&file, "content").expect("written");
        let read = Machine.read_regular_file(&file, 7);
        assert_eq!(read.expect("read"), b"content");
        let long = Machine.read_regular_file(&file, 6).expect_err("longer");
        assert_eq!(long.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn users_names_and_commands() {
        assert!(!Machine.user().is_empty());
        assert!(Machine.home().is_absolute());
        assert_eq!(Machine.home_of(&Machine.user()), Some(Machine.home()));
        assert_eq!(Machine.home_of("no such user"), None);
        assert!(!Machine.host_name().is_empty());
        assert!(Machine.run("exit 0").expect("runs"));
        assert!(!Machine.run("exit 3").expect("runs"));
        assert_eq!(Machine.resolve("127.0.0.1").as_deref(), Some("127.0.0.1"));
        assert_eq!(Machine.resolve("nul\0"), None);
    }
}
