//! REALPATH: the absolute path without links, as the peer sees it.
//!
//! Walks component by component through [`Root`], so that it says what a confined session may
//! know and needs no `/proc`. Worked example, confined, `l -> /a/..`, `a` a folder:
//! `l/b` -> lstat `/l` (link) -> rest `/a/../b` -> lstat `/a` -> `..` pops -> lstat `/b`
//! (may be missing, being last) -> `/b`.

use rustix::fs::FileType;
use rustix::io::{self, Errno};

use super::root::Root;

/// Links that one path may lead through, as Linux counts them.
const LINK_COUNT_MAX: u32 = 40;

/// Bytes of path that the kernel is asked to walk for one request: enough for the longest path of the
/// shortest names. Each component costs a walk from the root, so a path through forty links to deep
/// folders would hold up everybody else for seconds.
const WALK_BYTES_MAX: usize = PATH_BYTES_MAX * PATH_BYTES_MAX / 4;

/// Longest path, as Linux has it.
const PATH_BYTES_MAX: usize = 4096;

/// Appends the real path of `path` to `real`. Only the last component may be missing.
pub(super) fn realpath(root: &Root, path: &[u8], real: &mut Vec<u8>) -> io::Result<()> {
    let mut resolved: Vec<u8> = Vec::new();
    if path.first() != Some(&b'/') {
        push_components(root, &mut resolved);
    }
    let mut rest = path.to_vec();
    let mut link_count = 0;
    let mut walked = 0;
    while let Some((component, left)) = next_component(&rest) {
        if resolved.len() + rest.len() > PATH_BYTES_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        if component == b"." {
            rest = left;
            continue;
        }
        if component == b".." {
            pop(&mut resolved);
            rest = left;
            continue;
        }
        let parent_len = resolved.len();
        resolved.push(b'/');
        resolved.extend_from_slice(&component);
        walked += resolved.len();
        if walked > WALK_BYTES_MAX {
            return Err(Errno::LOOP);
        }
        let is_last = left.iter().all(|&b| b == b'/');
        match root.stat(&resolved, false) {
            Err(Errno::NOENT) if is_last => break,
            Err(errno) => return Err(errno),
            Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
                FileType::Symlink => {
                    link_count += 1;
                    if link_count > LINK_COUNT_MAX {
                        return Err(Errno::LOOP);
                    }
                    let target = root.readlink(&resolved)?.into_bytes();
                    if target.first() == Some(&b'/') {
                        resolved.clear();
                    } else {
                        resolved.truncate(parent_len);
                    }
                    rest = target;
                    rest.push(b'/');
                    rest.extend_from_slice(&left);
                }
                FileType::Directory => rest = left,
                _ if is_last => break,
                _ => return Err(Errno::NOTDIR),
            },
        }
    }
    if resolved.is_empty() {
        resolved.push(b'/');
    }
    real.extend_from_slice(&resolved);
    Ok(())
}

fn push_components(root: &Root, resolved: &mut Vec<u8>) {
    if root.start() != b"/" {
        resolved.extend_from_slice(root.start());
    }
}

fn pop(resolved: &mut Vec<u8>) {
    let len = resolved.iter().rposition(|&b| b == b'/').unwrap_or(0);
    resolved.truncate(len);
}

/// The first component of a path and what follows it; `None` when only slashes are left.
fn next_component(path: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let start = path.iter().position(|&b| b != b'/')?;
    let path = &path[start..];
    let len = path.iter().position(|&b| b == b'/').unwrap_or(path.len());
    Some((path[..len].to_vec(), path[len..].to_vec()))
}
