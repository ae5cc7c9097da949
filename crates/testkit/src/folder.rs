//! A folder for one test.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A folder of its own for one test, removed at its end. Nobody else may look into it.
#[derive(Debug)]
pub struct Folder(pub PathBuf);

impl Folder {
    /// Makes one in the folder for temporary files; `name` is a part of its name, in ASCII.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("fullbore-{name}-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // A process of the same number may have been killed before it could clean up.
        let _ = fs::remove_dir_all(&path);
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.expect("a folder for the test");
        Self(path)
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of what is or will be `name` in it.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The same as text, for command lines.
    ///
    /// # Panics
    /// When the folder for temporary files has a name that is not UTF-8.
    #[must_use]
    pub fn at(&self, name: &str) -> String {
        let path = self.file(name).into_os_string();
        path.into_string().expect("the name is text")
    }

    /// Writes a file that only its owner may read, as keys must be.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.file(name);
        fs::write(&path, content).expect("a file for the test");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("its mode");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed lies in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}
