//! `fullbore serve`: a whole SSH file server in one process.
//!
//! ```text
//! accept thread ── gate ──► worker threads, one for each core ── a task for each connection
//!                                      └──────► file threads, for calls that may block
//! ```

pub mod auth;
mod connection;
pub mod gate;
pub mod host_key;
mod listen;
pub mod log;
pub mod options;
pub mod password;
mod run;

pub use listen::{HostKeyLine, ServeError, Server};
pub use options::ServeOptions;
pub use run::run;

#[cfg(test)]
pub(crate) mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A folder for one test, removed at its end.
    pub(crate) struct Folder(pub(crate) PathBuf);

    static COUNT: AtomicU32 = AtomicU32::new(0);

    impl Folder {
        pub(crate) fn new(name: &str) -> Self {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("fullbore-{name}-{}-{count}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir(&path).expect("a new folder");
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
