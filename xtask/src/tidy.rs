//! The repository's own rules: sizes, layering, words, where `unsafe` may be. Text checks only;
//! what the compiler can see is clippy's.

mod layers;
mod sizes;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

/// A text file of the repository.
struct Source {
    /// From the top of the repository, with `/`.
    path: String,
    text: String,
}

impl Source {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    fn is_test(&self) -> bool {
        self.path.ends_with("tests.rs") || self.path.contains("/tests/")
    }

    /// The lines in front of the file's own test module; all of them when it has none.
    fn shipped(&self) -> impl Iterator<Item = (usize, &str)> {
        let is_test = self.is_test();
        let lines: Vec<&str> = self.text.lines().collect();
        let end = lines
            .windows(2)
            .position(|pair| pair[0] == "#[cfg(test)]" && pair[1] == "mod tests {")
            .unwrap_or(lines.len());
        lines
            .into_iter()
            .take(if is_test { 0 } else { end })
            .enumerate()
            .map(|(i, line)| (i + 1, line))
    }
}

/// Crates that touch nothing outside, and share one `clippy.toml`.
const ENGINES: &[&str] = &["base", "ssh", "sftp", "tcp", "sim"];

const FOLDERS_SKIPPED: &[&str] = &["target", ".git", "corpus", "artifacts", "__pycache__"];
const TEXT_ENDINGS: &[&str] = &["rs", "toml", "md", "py", "sh", "yml", "run"];

/// Checks everything and prints each broken rule.
pub fn run(root: &Path) -> Result<(), String> {
    let broken = check(root)?;
    for line in &broken {
        println!("{line}");
    }
    if broken.is_empty() {
        println!("tidy");
        Ok(())
    } else {
        Err(format!("{} rules broken", broken.len()))
    }
}

fn check(root: &Path) -> Result<Vec<String>, String> {
    let mut sources = Vec::new();
    collect(root, root, &mut sources).map_err(|e| format!("reading {}: {e}", root.display()))?;
    if sources.len() < 20 {
        return Err(format!(
            "only {} files under {}",
            sources.len(),
            root.display()
        ));
    }
    let mut broken = Vec::new();
    for source in &sources {
        sizes::check(source, &mut broken);
        words::check(source, &mut broken);
    }
    layers::check(&sources, &mut broken);
    check_limits(&sources, &mut broken);
    Ok(broken)
}

/// Constants that ARCHITECTURE.md names must exist, under that name.
fn check_limits(sources: &[Source], broken: &mut Vec<String>) {
    let Some(page) = sources.iter().find(|s| s.path == "ARCHITECTURE.md") else {
        return;
    };
    let is_limit = |word: &&str| {
        word.contains('_') && word.chars().all(|c| c.is_ascii_uppercase() || c == '_')
    };
    for name in page.text.split('`').filter(is_limit) {
        let declaration = format!("const {name}:");
        if !sources.iter().any(|s| s.text.contains(&declaration)) {
            broken.push(format!("ARCHITECTURE.md: there is no constant {name}"));
        }
    }
}

fn collect(root: &Path, folder: &Path, sources: &mut Vec<Source>) -> std::io::Result<()> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<_, _>>()?;
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if !FOLDERS_SKIPPED.contains(&name.as_ref()) {
                collect(root, &path, sources)?;
            }
            continue;
        }
        let ending = name.rsplit_once('.').map_or(&*name, |(_, ending)| ending);
        if !TEXT_ENDINGS.contains(&ending) {
            continue;
        }
        let relative = path.strip_prefix(root).unwrap_or(&path);
        sources.push(Source {
            path: relative.to_string_lossy().replace('\\', "/"),
            text: fs::read_to_string(&path)?,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_keeps_its_own_rules() {
        let broken = check(&crate::root()).expect("the repository can be read");
        assert!(broken.is_empty(), "\n{}", broken.join("\n"));
    }

    #[test]
    fn test_modules_are_not_shipped() {
        let source = Source {
            path: "crates/x/src/a.rs".into(),
            text: "fn a() {}\n#[cfg(test)]\nmod tests {\n}\n".into(),
        };
        assert_eq!(source.shipped().count(), 1);
    }
}
