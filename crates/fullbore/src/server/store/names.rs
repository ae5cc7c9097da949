//! Names of users and groups, from `/etc/passwd` and `/etc/group`.
//!
//! Parsed here, once per session when first needed, rather than asked of the C library: no unsafe
//! code and no plug-ins loaded into the server. Users that only a directory service knows are
//! shown by number.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

/// Bytes of each file that are read, so that a huge one costs bounded memory.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// One line of `/etc/passwd`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Login name.
    pub name: Vec<u8>,
    /// User id.
    pub uid: u32,
    /// Home folder.
    pub home: Vec<u8>,
}

/// The users and groups of the machine.
#[derive(Debug, Default)]
pub struct Names {
    users: Option<Vec<User>>,
    users_by_uid: HashMap<u32, usize>,
    groups_by_gid: Option<HashMap<u32, Vec<u8>>>,
}

impl Names {
    /// The user of an id.
    pub fn user(&mut self, uid: u32) -> Option<&User> {
        self.load_users();
        let index = *self.users_by_uid.get(&uid)?;
        self.users.as_ref()?.get(index)
    }

    /// The user of a name.
    pub fn user_by_name(&mut self, name: &[u8]) -> Option<&User> {
        self.load_users();
        self.users.as_ref()?.iter().find(|user| user.name == name)
    }

    /// The name of a group.
    pub fn group(&mut self, gid: u32) -> Option<&[u8]> {
        let groups = self
            .groups_by_gid
            .get_or_insert_with(|| parse_groups(&read(Path::new("/etc/group"))));
        groups.get(&gid).map(Vec::as_slice)
    }

    fn load_users(&mut self) {
        if self.users.is_some() {
            return;
        }
        let users = parse_users(&read(Path::new("/etc/passwd")));
        for (index, user) in users.iter().enumerate() {
            self.users_by_uid.entry(user.uid).or_insert(index);
        }
        self.users = Some(users);
    }
}

fn read(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(file) = std::fs::File::open(path) {
        // A file that cannot be read to its end names fewer users, which is no error here.
        let _ = file.take(FILE_BYTES_MAX).read_to_end(&mut bytes);
    }
    bytes
}

/// `name:password:uid:gid:gecos:home:shell`, the first line of a uid counts.
fn parse_users(bytes: &[u8]) -> Vec<User> {
    lines(bytes)
        .filter_map(|mut fields| {
            let name = fields.next()?;
            let uid = number(fields.nth(1)?)?;
            let home = fields.nth(2)?;
            Some(User {
                name: name.to_vec(),
                uid,
                home: home.to_vec(),
            })
        })
        .collect()
}

/// `name:password:gid:members`.
fn parse_groups(bytes: &[u8]) -> HashMap<u32, Vec<u8>> {
    let mut groups = HashMap::new();
    for mut fields in lines(bytes) {
        let (Some(name), Some(gid)) = (fields.next(), fields.nth(1).and_then(number)) else {
            continue;
        };
        groups.entry(gid).or_insert_with(|| name.to_vec());
    }
    groups
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = impl Iterator<Item = &[u8]>> {
    bytes
        .split(|&b| b == b'\n')
        .filter(|line| !line.is_empty() && !matches!(line[0], b'#' | b'+' | b'-'))
        .map(|line| line.split(|&b| b == b':'))
}

fn number(field: &[u8]) -> Option<u32> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_parsed_and_odd_lines_skipped() {
        let users = parse_users(b"root:x:0:0:root:/root:/bin/sh\n+nis\nbad:x:y\n#c\nu:x:7:8::/u:");
        assert_eq!(users.len(), 2);
        assert_eq!((users[0].uid, &users[0].home[..]), (0, &b"/root"[..]));
        assert_eq!((users[1].uid, &users[1].name[..]), (7, &b"u"[..]));
        let groups = parse_groups(b"wheel:x:0:root\ndup:x:0:\nusers:x:100:a,b\n");
        assert_eq!(groups[&0], b"wheel");
        assert_eq!(groups[&100], b"users");
    }
}
