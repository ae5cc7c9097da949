//! Folder listings: entries with attributes, and long names as `ls -l` prints them.

use std::ffi::CString;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use fullbore_sftp::proto::{Attrs, Name};
use fullbore_sftp::server::DirSink;
use rustix::fs::{self, AtFlags, Dir, FileType, Stat};
use rustix::io;

use super::names::Names;
use super::root::{Root, retry};
use crate::driver::local_time::{LocalTime, MONTHS, local_time};

/// Half a year: older entries show the year instead of the time of day, as `ls` does.
const RECENT_SECONDS: i64 = 365 * 24 * 60 * 60 / 2;

/// An open folder.
#[derive(Debug)]
pub(super) struct Listing {
    dir: Dir,
    /// The entry that the last reply had no room for.
    held: Option<CString>,
    /// Memory for long names.
    longname: Vec<u8>,
}

impl Listing {
    pub(super) fn new(dir: Dir) -> Self {
        Self {
            dir,
            held: None,
            longname: Vec::new(),
        }
    }

    /// Fills `sink` from where the last call stopped.
    pub(super) fn fill(
        &mut self,
        root: &Root,
        names: Option<&mut Names>,
        sink: &mut DirSink<'_, '_>,
    ) -> io::Result<()> {
        let now = now();
        let mut owners = Owners { names };
        loop {
            let name = match self.held.take() {
                Some(name) => name,
                None => match self.dir.read() {
                    None => return Ok(()),
                    Some(entry) => entry?.file_name().to_owned(),
                },
            };
            let Ok(stat) = self.stat(root, &name) else {
                // Gone since it was listed.
                continue;
            };
            self.longname.clear();
            write_longname(&mut self.longname, name.to_bytes(), &stat, now, &mut owners);
            let entry = Name {
                filename: name.to_bytes(),
                longname: &self.longname,
                attrs: attrs(&stat),
            };
            if !sink.push(&entry) {
                self.held = Some(name);
                return Ok(());
            }
        }
    }

    fn stat(&self, root: &Root, name: &CString) -> io::Result<Stat> {
        let dir = self.dir.fd()?;
        if name.as_bytes() == b".." && root.is_confined() {
            // What lies above the root is not the peer's business: as in "/", ".." is ".".
            let own = fs::fstat(dir)?;
            if root.is_self(&own) {
                return Ok(own);
            }
        }
        retry(|| fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW))
    }
}

/// The attributes that replies carry: always all four groups.
pub(super) fn attrs(stat: &Stat) -> Attrs {
    // Version 3 has 32 bits for a time; like OpenSSH, later and earlier ones wrap.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let seconds = |time: i64| time as u32;
    Attrs {
        size: Some(u64::try_from(stat.st_size).unwrap_or(0)),
        uid_gid: Some((stat.st_uid, stat.st_gid)),
        permissions: Some(stat.st_mode),
        times: Some((seconds(stat.st_atime), seconds(stat.st_mtime))),
    }
}

fn now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .ok()
        .and_then(|since| i64::try_from(since.as_secs()).ok())
        .unwrap_or(0)
}

/// Names of owners, or their numbers.
struct Owners<'n> {
    names: Option<&'n mut Names>,
}

impl Owners<'_> {
    fn write_user(&mut self, line: &mut Vec<u8>, uid: u32) {
        match self.names.as_mut().and_then(|names| names.user(uid)) {
            Some(user) => line.extend_from_slice(&user.name),
            None => write_number(line, uid),
        }
    }

    fn write_group(&mut self, line: &mut Vec<u8>, gid: u32) {
        match self.names.as_mut().and_then(|names| names.group(gid)) {
            Some(name) => line.extend_from_slice(name),
            None => write_number(line, gid),
        }
    }
}

fn write_number(line: &mut Vec<u8>, number: u32) {
    write!(line, "{number}").expect("writing to memory does not fail");
}

/// `drwxr-xr-x    2 root     root         4096 Jan  1 00:00 name`, column for column as OpenSSH
/// has it.
fn write_longname(line: &mut Vec<u8>, name: &[u8], stat: &Stat, now: i64, owners: &mut Owners<'_>) {
    line.extend_from_slice(&mode_text(stat.st_mode));
    write!(line, " {:>4} ", stat.st_nlink).expect("writing to memory does not fail");
    let at = line.len();
    owners.write_user(line, stat.st_uid);
    pad(line, at, 8);
    line.push(b' ');
    let at = line.len();
    owners.write_group(line, stat.st_gid);
    pad(line, at, 8);
    write!(line, " {:>8} ", stat.st_size).expect("writing to memory does not fail");
    write_time(line, stat.st_mtime, now);
    line.push(b' ');
    line.extend_from_slice(name);
}

/// Pads what was written since `at` to `width` columns.
fn pad(line: &mut Vec<u8>, at: usize, width: usize) {
    let len = line.len() - at;
    line.extend(std::iter::repeat_n(b' ', width.saturating_sub(len)));
}

/// `%b %e %H:%M` within half a year, else `%b %e  %Y`.
fn write_time(line: &mut Vec<u8>, seconds: i64, now: i64) {
    let Some(time) = local_time(seconds) else {
        return;
    };
    let LocalTime {
        year,
        month,
        day,
        hour,
        minute,
        ..
    } = time;
    let month = MONTHS[usize::from(month) % 12];
    let is_recent = now - RECENT_SECONDS < seconds && now >= seconds;
    if is_recent {
        write!(line, "{month} {day:>2} {hour:02}:{minute:02}")
    } else {
        write!(line, "{month} {day:>2}  {year}")
    }
    .expect("writing to memory does not fail");
}

/// The ten letters of a mode.
fn mode_text(mode: u32) -> [u8; 10] {
    let mut text = *b"?---------";
    text[0] = match FileType::from_raw_mode(mode) {
        FileType::RegularFile => b'-',
        FileType::Directory => b'd',
        FileType::Symlink => b'l',
        FileType::BlockDevice => b'b',
        FileType::CharacterDevice => b'c',
        FileType::Fifo => b'p',
        FileType::Socket => b's',
        FileType::Unknown => b'?',
    };
    for (i, letter) in b"rwxrwxrwx".iter().enumerate() {
        if mode & (0o400 >> i) != 0 {
            text[1 + i] = *letter;
        }
    }
    for (bit, at, with_x, without) in [
        (0o4000, 3, b's', b'S'),
        (0o2000, 6, b's', b'S'),
        (0o1000, 9, b't', b'T'),
    ] {
        if mode & bit != 0 {
            text[at] = if text[at] == b'x' { with_x } else { without };
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_read_as_ls_prints_them() {
        assert_eq!(&mode_text(0o100_644), b"-rw-r--r--");
        assert_eq!(&mode_text(0o041_777), b"drwxrwxrwt");
        assert_eq!(&mode_text(0o104_655), b"-rwSr-xr-x");
        assert_eq!(&mode_text(0o120_777), b"lrwxrwxrwx");
    }
}
