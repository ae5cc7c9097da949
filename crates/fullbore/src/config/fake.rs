//! A machine made of memory, for tests.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::{Environment, FileFacts};

/// Files, variables and answers, all given by the test.
#[derive(Debug, Default)]
pub(crate) struct Fake {
    pub files: RefCell<BTreeMap<PathBuf, Vec<u8>>>,
    pub facts: BTreeMap<PathBuf, FileFacts>,
    pub variables: BTreeMap<String, String>,
    pub names: BTreeMap<String, String>,
    /// Commands that succeed.
    pub successes: Vec<String>,
    /// Commands that were run.
    pub ran: RefCell<Vec<String>>,
    pub home: PathBuf,
}

impl Fake {
    pub(crate) fn new(files: &[(&str, &str)]) -> Fake {
        let files = files
            .iter()
            .map(|(path, content)| (PathBuf::from(path), content.as_bytes().to_vec()))
            .collect();
        Fake {
            files: RefCell::new(files),
            home: PathBuf::from("/home/me"),
            ..Fake::default()
        }
    }
}

impl Environment for Fake {
    fn read_file(&self, path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
        let files = self.files.borrow();
        let content = files.get(path).ok_or(io::ErrorKind::NotFound)?;
        if content.len() > bytes_max {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(content.clone())
    }

    fn file_facts(&self, path: &Path) -> io::Result<FileFacts> {
        if let Some(facts) = self.facts.get(path) {
            return Ok(*facts);
        }
        if self.files.borrow().contains_key(path) {
            return Ok(FileFacts {
                uid: 1000,
                mode: 0o600,
                is_dir: false,
            });
        }
        Err(io::ErrorKind::NotFound.into())
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let mut names: Vec<OsString> = Vec::new();
        for file in self.files.borrow().keys() {
            let Ok(below) = file.strip_prefix(path) else {
                continue;
            };
            if let Some(first) = below.iter().next()
                && !names.iter().any(|n| n == first)
            {
                names.insert(0, first.to_owned());
            }
        }
        if names.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(names)
    }

    fn append_line(&self, path: &Path, line: &[u8]) -> io::Result<()> {
        let mut files = self.files.borrow_mut();
        let content = files.entry(path.to_owned()).or_default();
        if content.last().is_some_and(|b| *b != b'\n') {
            content.push(b'\n');
        }
        content.extend_from_slice(line);
        content.push(b'\n');
        Ok(())
    }

    fn replace_file(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let mut files = self.files.borrow_mut();
        files.insert(path.to_owned(), content.to_vec());
        Ok(())
    }

    fn variable(&self, name: &str) -> Option<OsString> {
        self.variables.get(name).map(OsString::from)
    }

    fn variable_names(&self) -> Vec<String> {
        self.variables.keys().cloned().collect()
    }

    fn home(&self) -> PathBuf {
        self.home.clone()
    }

    fn home_of(&self, user: &str) -> Option<PathBuf> {
        (user == "other").then(|| PathBuf::from("/home/other"))
    }

    fn user(&self) -> String {
        "me".to_owned()
    }

    fn uid(&self) -> u32 {
        1000
    }

    fn host_name(&self) -> String {
        "Here.example.org".to_owned()
    }

    fn run(&self, command: &str) -> io::Result<bool> {
        self.ran.borrow_mut().push(command.to_owned());
        Ok(self.successes.iter().any(|c| c == command))
    }

    fn resolve(&self, name: &str) -> Option<String> {
        self.names.get(name).cloned()
    }

    fn fill_random(&self, out: &mut [u8]) {
        out.fill(7);
    }
}
