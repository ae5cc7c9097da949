//! The tree of files: names, links, sizes; paths are walked as Linux walks them.

use std::collections::BTreeMap;

use crate::proto::{Attrs, Code, OpenFlags};
use crate::server::StoreError;

pub(super) const NOT_FOUND: StoreError = StoreError::new(Code::NoSuchFile, Code::NoSuchFile.text());
pub(super) const NOT_DIR: StoreError =
    StoreError::new(Code::NoSuchFile, "a part of the path is not a directory");
pub(super) const LOOP: StoreError =
    StoreError::new(Code::NoSuchFile, "too many levels of symbolic links");
pub(super) const EXISTS: StoreError = StoreError::new(Code::Failure, "file exists");
pub(super) const NOT_EMPTY: StoreError = StoreError::new(Code::Failure, "directory not empty");
pub(super) const IS_DIR: StoreError = StoreError::new(Code::Failure, "is a directory");
pub(super) const BUSY: StoreError = StoreError::new(Code::Failure, "device or resource busy");
pub(super) const INVALID: StoreError = StoreError::new(Code::BadMessage, "invalid argument");
pub(super) const BAD_FILE: StoreError = StoreError::new(Code::NoSuchFile, Code::NoSuchFile.text());
pub(super) const NO_SPACE: StoreError = StoreError::new(Code::Failure, "no space left on device");
pub(super) const NOT_PERMITTED: StoreError =
    StoreError::new(Code::PermissionDenied, "operation not permitted");

/// Links that one path may lead through, as Linux counts them.
pub(super) const LINK_COUNT_MAX: u32 = 40;

pub(super) const MODE_DIR: u32 = 0o040_000;
pub(super) const MODE_FILE: u32 = 0o100_000;
pub(super) const MODE_LINK: u32 = 0o120_000;

/// Index of a node.
pub(super) type Ino = usize;
pub(super) const ROOT: Ino = 0;

#[derive(Clone, Debug)]
pub(super) enum Body {
    File(Vec<u8>),
    Dir {
        parent: Ino,
        entries: BTreeMap<Vec<u8>, Ino>,
    },
    Link(Vec<u8>),
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) body: Body,
    /// Permission bits.
    mode: u32,
    times: (u32, u32),
    owner: (u32, u32),
    /// Names that lead here, and handles: with neither, the node is free.
    pub(super) link_count: u32,
    pub(super) open_count: u32,
}

impl Node {
    fn new(body: Body, mode: u32) -> Self {
        Self {
            body,
            mode,
            times: (0, 0),
            owner: (0, 0),
            link_count: 1,
            open_count: 0,
        }
    }
}

/// The nodes, and the space that their bytes take.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) nodes: Vec<Node>,
    /// Nodes to be used again.
    free: Vec<Ino>,
    /// Bytes that all files together may hold.
    pub(super) capacity_bytes: u64,
    pub(super) used_bytes: u64,
    /// Walks and calls, for tests that count work.
    pub(super) call_count: u64,
}

impl Tree {
    pub(super) fn new(capacity_bytes: u64) -> Self {
        let body = Body::Dir {
            parent: ROOT,
            entries: BTreeMap::new(),
        };
        Self {
            nodes: vec![Node::new(body, 0o755)],
            free: Vec::new(),
            capacity_bytes,
            used_bytes: 0,
            call_count: 0,
        }
    }

    pub(super) fn walk(&mut self, path: &[u8], follow_last: bool) -> Result<Ino, StoreError> {
        if path.is_empty() {
            return Err(NOT_FOUND);
        }
        let mut links = 0;
        self.walk_from(ROOT, path, follow_last, &mut links)
    }

    /// The node of a path. A slash behind the last name asks for a folder there.
    pub(super) fn walk_from(
        &mut self,
        start: Ino,
        path: &[u8],
        follow_last: bool,
        links: &mut u32,
    ) -> Result<Ino, StoreError> {
        self.call_count += 1;
        let mut at = if path.first() == Some(&b'/') {
            ROOT
        } else {
            start
        };
        let wants_dir = path.last() == Some(&b'/');
        let mut names = path
            .split(|&b| b == b'/')
            .filter(|n| !n.is_empty())
            .peekable();
        while let Some(name) = names.next() {
            let is_last = names.peek().is_none();
            let next = match &self.nodes[at].body {
                Body::Dir { parent, entries } => match name {
                    b"." => at,
                    b".." => *parent,
                    name => *entries.get(name).ok_or(NOT_FOUND)?,
                },
                Body::File(_) | Body::Link(_) => return Err(NOT_DIR),
            };
            let target = match &self.nodes[next].body {
                Body::Link(target) if !is_last || follow_last || wants_dir => target.clone(),
                Body::Link(_) | Body::File(_) | Body::Dir { .. } => {
                    at = next;
                    continue;
                }
            };
            *links += 1;
            if *links > LINK_COUNT_MAX {
                return Err(LOOP);
            }
            at = self.walk_from(at, &target, true, links)?;
        }
        if wants_dir && !matches!(self.nodes[at].body, Body::Dir { .. }) {
            return Err(NOT_DIR);
        }
        Ok(at)
    }

    /// Folder, last name and whether a slash follows it. `special` is the error for paths that
    /// end in no name.
    pub(super) fn parent<'p>(
        &mut self,
        path: &'p [u8],
        special: StoreError,
    ) -> Result<(Ino, &'p [u8], bool), StoreError> {
        if path.is_empty() {
            return Err(NOT_FOUND);
        }
        let len = path.iter().rposition(|&b| b != b'/').map_or(0, |i| i + 1);
        let at = path[..len]
            .iter()
            .rposition(|&b| b == b'/')
            .map_or(0, |i| i + 1);
        let (parent, name) = path[..len].split_at(at);
        let dir = if parent.is_empty() {
            ROOT
        } else {
            self.walk(parent, true)?
        };
        if matches!(name, b"" | b"." | b"..") {
            return Err(special);
        }
        if !matches!(self.nodes[dir].body, Body::Dir { .. }) {
            return Err(NOT_DIR);
        }
        Ok((dir, name, len < path.len()))
    }

    pub(super) fn entries(&mut self, dir: Ino) -> &mut BTreeMap<Vec<u8>, Ino> {
        match &mut self.nodes[dir].body {
            Body::Dir { entries, .. } => entries,
            Body::File(_) | Body::Link(_) => unreachable!("parents are folders"),
        }
    }

    pub(super) fn entry(&mut self, dir: Ino, name: &[u8]) -> Option<Ino> {
        self.entries(dir).get(name).copied()
    }

    pub(super) fn add(&mut self, dir: Ino, name: &[u8], body: Body, mode: u32) -> Ino {
        let node = Node::new(body, mode);
        let ino = match self.free.pop() {
            Some(ino) => {
                self.nodes[ino] = node;
                ino
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        };
        self.entries(dir).insert(name.to_vec(), ino);
        ino
    }

    /// Gives a node one more name.
    pub(super) fn link(&mut self, dir: Ino, name: &[u8], ino: Ino) {
        self.nodes[ino].link_count += 1;
        self.entries(dir).insert(name.to_vec(), ino);
    }

    /// Takes a name away.
    pub(super) fn unlink(&mut self, dir: Ino, name: &[u8]) {
        if let Some(ino) = self.entries(dir).remove(name) {
            self.nodes[ino].link_count -= 1;
            self.release(ino);
        }
    }

    /// Frees a node that nothing leads to any more.
    pub(super) fn release(&mut self, ino: Ino) {
        let node = &mut self.nodes[ino];
        if node.link_count == 0 && node.open_count == 0 {
            if let Body::File(data) = std::mem::replace(&mut node.body, Body::File(Vec::new())) {
                self.used_bytes -= data.len() as u64;
            }
            self.free.push(ino);
        }
    }

    pub(super) fn is_dir(&self, ino: Ino) -> bool {
        matches!(self.nodes[ino].body, Body::Dir { .. })
    }

    pub(super) fn attrs(&self, ino: Ino) -> Attrs {
        let node = &self.nodes[ino];
        let (kind, size) = match &node.body {
            Body::File(data) => (MODE_FILE, data.len() as u64),
            Body::Dir { .. } => (MODE_DIR, 0),
            Body::Link(target) => (MODE_LINK, target.len() as u64),
        };
        Attrs {
            size: Some(size),
            uid_gid: Some(node.owner),
            permissions: Some(kind | node.mode),
            times: Some(node.times),
        }
    }

    pub(super) fn set(&mut self, ino: Ino, attrs: &Attrs) -> Result<(), StoreError> {
        let mut result = Ok(());
        if let Some(size) = attrs.size {
            result = self.resize(ino, size);
        }
        let node = &mut self.nodes[ino];
        if let Some(mode) = attrs.permissions {
            node.mode = mode & 0o7777;
        }
        if let Some(times) = attrs.times {
            node.times = times;
        }
        if let Some(owner) = attrs.uid_gid {
            node.owner = owner;
        }
        result
    }

    pub(super) fn resize(&mut self, ino: Ino, size: u64) -> Result<(), StoreError> {
        let Body::File(data) = &mut self.nodes[ino].body else {
            return Err(IS_DIR);
        };
        let used = self.used_bytes - data.len() as u64;
        let total = used.checked_add(size).ok_or(NO_SPACE)?;
        if total > self.capacity_bytes {
            return Err(NO_SPACE);
        }
        data.resize(usize::try_from(size).map_err(|_| NO_SPACE)?, 0);
        self.used_bytes = total;
        Ok(())
    }

    /// Renames; `replace` as rename(2), otherwise never replaces.
    pub(super) fn move_entry(
        &mut self,
        from: &[u8],
        to: &[u8],
        replace: bool,
    ) -> Result<(), StoreError> {
        let (from_dir, from_name, from_slash) = self.parent(from, BUSY)?;
        let (to_dir, to_name, to_slash) = self.parent(to, if replace { BUSY } else { EXISTS })?;
        let ino = self.entry(from_dir, from_name).ok_or(NOT_FOUND)?;
        let old = self.entry(to_dir, to_name);
        if old.is_some() && !replace {
            return Err(EXISTS);
        }
        let is_dir = self.is_dir(ino);
        if !is_dir && (from_slash || to_slash) {
            return Err(NOT_DIR);
        }
        if is_dir && self.is_below(to_dir, ino) {
            return Err(INVALID);
        }
        match old {
            Some(old) if old == ino => return Ok(()),
            Some(old) if self.is_below(from_dir, old) => return Err(NOT_EMPTY),
            Some(old) if is_dir && !self.is_dir(old) => return Err(NOT_DIR),
            Some(old) if !is_dir && self.is_dir(old) => return Err(IS_DIR),
            Some(old) if is_dir && !self.entries(old).is_empty() => return Err(NOT_EMPTY),
            Some(_) | None => {}
        }
        self.unlink(to_dir, to_name);
        self.entries(from_dir).remove(from_name);
        self.entries(to_dir).insert(to_name.to_vec(), ino);
        if let Body::Dir { parent, .. } = &mut self.nodes[ino].body {
            *parent = to_dir;
        }
        Ok(())
    }

    /// Whether `dir` is `top` or lies below it.
    pub(super) fn is_below(&self, mut dir: Ino, top: Ino) -> bool {
        loop {
            if dir == top {
                return true;
            }
            match self.nodes[dir].body {
                Body::Dir { parent, .. } if parent != dir => dir = parent,
                Body::Dir { .. } | Body::File(_) | Body::Link(_) => return false,
            }
        }
    }

    pub(super) fn open_path(
        &mut self,
        path: &[u8],
        flags: OpenFlags,
        mode: u32,
    ) -> Result<Ino, StoreError> {
        let mut path = path.to_vec();
        for _ in 0..=LINK_COUNT_MAX {
            if !flags.contains(OpenFlags::CREAT) {
                return self.walk(&path, true);
            }
            if path.is_empty() {
                return Err(NOT_FOUND);
            }
            let Ok((dir, name, slash)) = self.parent(&path, EXISTS) else {
                let special = if flags.contains(OpenFlags::EXCL) {
                    EXISTS
                } else {
                    IS_DIR
                };
                return self.parent(&path, special).map(|_| ROOT);
            };
            if slash {
                return Err(IS_DIR);
            }
            match self.entry(dir, name) {
                None => return Ok(self.add(dir, name, Body::File(Vec::new()), mode)),
                Some(_) if flags.contains(OpenFlags::EXCL) => return Err(EXISTS),
                Some(ino) => match &self.nodes[ino].body {
                    Body::Link(target) => {
                        // What the link names is made, if it is missing.
                        let mut next = if target.first() == Some(&b'/') {
                            Vec::new()
                        } else {
                            let keep = path.len() - name.len();
                            path[..keep].to_vec()
                        };
                        next.extend_from_slice(target);
                        path = next;
                    }
                    Body::File(_) | Body::Dir { .. } => return Ok(ino),
                },
            }
        }
        Err(LOOP)
    }

    /// The absolute path of a folder; of the root, nothing.
    pub(super) fn dir_path(&self, mut dir: Ino) -> Vec<u8> {
        let mut names: Vec<&[u8]> = Vec::new();
        while let Body::Dir { parent, .. } = self.nodes[dir].body
            && parent != dir
        {
            if let Body::Dir { entries, .. } = &self.nodes[parent].body
                && let Some((name, _)) = entries.iter().find(|&(_, &ino)| ino == dir)
            {
                names.push(name);
            }
            dir = parent;
        }
        names
            .iter()
            .rev()
            .flat_map(|name| [b"/", *name].concat())
            .collect()
    }
}
