//! The files that an Include pattern names.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use fullbore_base::matches_wildcard;

use crate::config::Environment;

/// The most files that one pattern may name. Ours.
const MATCHES_MAX: usize = 1024;

/// Files that match a glob (`*`, `?`, in any part of the path), sorted by name as glob(3) does. Hidden
/// names match only a pattern that begins with a dot.
pub(super) fn matching_files(environment: &dyn Environment, glob: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for component in glob.components() {
        let Component::Normal(name) = component else {
            for path in &mut found {
                path.push(component);
            }
            continue;
        };
        if !name.as_bytes().iter().any(|b| matches!(b, b'*' | b'?')) {
            for path in &mut found {
                path.push(name);
            }
            continue;
        }
        found = found
            .into_iter()
            .flat_map(|folder| matching_names(environment, &folder, name.as_bytes()))
            .take(MATCHES_MAX)
            .collect();
    }
    found.retain(|path| environment.file_facts(path).is_ok());
    found
}

fn matching_names(environment: &dyn Environment, folder: &Path, glob: &[u8]) -> Vec<PathBuf> {
    let is_match = |name: &OsString| {
        let name = name.as_bytes();
        (name.first() != Some(&b'.') || glob.first() == Some(&b'.')) && matches_wildcard(name, glob)
    };
    let mut names: Vec<_> = environment.list_dir(folder).unwrap_or_default();
    names.retain(is_match);
    names.sort();
    names.into_iter().map(|name| folder.join(name)).collect()
}
