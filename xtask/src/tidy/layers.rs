//! Every arrow between crates points down, and engines depend on nothing that touches the outside.

use super::{ENGINES, Source};

/// A crate's folder, and the crates of ours that it may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("sim", &["fullbore-base"]),
    ("ssh", &["fullbore-base"]),
    ("sftp", &["fullbore-base"]),
    ("tcp", &["fullbore-base"]),
    (
        "fullbore",
        &[
            "fullbore-base",
            "fullbore-ssh",
            "fullbore-sftp",
            "fullbore-tcp",
        ],
    ),
    (
        "lab",
        &[
            "fullbore",
            "fullbore-base",
            "fullbore-sftp",
            "fullbore-sim",
            "fullbore-ssh",
            "fullbore-tcp",
        ],
    ),
    ("cli", &["fullbore", "fullbore-lab"]),
    ("testkit", &[]),
];

/// Crates that an engine never depends on: clocks, sockets, files, threads, OS randomness.
const NOT_IN_ENGINES: &[&str] = &[
    "tokio",
    "socket2",
    "rustix",
    "libc",
    "mio",
    "nix",
    "rand",
    "getrandom",
    "rayon",
    "rpassword",
];

/// Crates that stay out of the dependency tree: a timing leak in RSA (RUSTSEC-2023-0071), a second
/// TLS stack, a second async runtime.
const NOT_IN_THE_TREE: &[&str] = &["rsa", "openssl-sys", "async-std", "ring"];

pub fn check(sources: &[Source], broken: &mut Vec<String>) {
    for source in sources {
        let Some(folder) = source
            .path
            .strip_prefix("crates/")
            .and_then(|p| p.strip_suffix("/Cargo.toml"))
        else {
            continue;
        };
        let path = &source.path;
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == folder) else {
            broken.push(format!("{path}: no layer is known for this crate"));
            continue;
        };
        for name in dependencies(&source.text) {
            if name.starts_with("fullbore") && !allowed.contains(&name) {
                broken.push(format!("{path}: {folder} must not depend on {name}"));
            }
            if ENGINES.contains(&folder) && NOT_IN_ENGINES.contains(&name) {
                broken.push(format!("{path}: an engine must not depend on {name}"));
            }
        }
    }
    check_clippy_files(sources, broken);
    let lock = std::fs::read_to_string(crate::root().join("Cargo.lock")).unwrap_or_default();
    for name in NOT_IN_THE_TREE {
        if lock.contains(&format!("name = \"{name}\"\n")) {
            broken.push(format!("Cargo.lock: {name} must stay out of the tree"));
        }
    }
}

fn check_clippy_files(sources: &[Source], broken: &mut Vec<String>) {
    let text_of = |engine: &str| {
        let path = format!("crates/{engine}/clippy.toml");
        sources.iter().find(|s| s.path == path).map(|s| &s.text)
    };
    for engine in ENGINES {
        if text_of(engine).is_none() || text_of(engine) != text_of(ENGINES[0]) {
            broken.push(format!(
                "crates/{engine}/clippy.toml: differs from the other engines'"
            ));
        }
    }
}

/// Names in `[dependencies]` and the target-specific tables, not in `[dev-dependencies]`.
fn dependencies(manifest: &str) -> Vec<&str> {
    let mut is_inside = false;
    let mut names = Vec::new();
    for line in manifest.lines() {
        if let Some(table) = line.strip_prefix('[') {
            is_inside = table.trim_end_matches(']').ends_with("dependencies")
                && !table.contains("dev-dependencies");
        } else if is_inside {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            if !name.is_empty() && !name.starts_with('#') {
                names.push(name);
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrow_that_points_up_is_reported() {
        let manifest = |folder: &str, body: &str| Source {
            path: format!("crates/{folder}/Cargo.toml"),
            text: body.into(),
        };
        let mut broken = Vec::new();
        check(
            &[
                manifest(
                    "ssh",
                    "[dependencies]\nfullbore-sftp.workspace = true\ntokio = \"1\"\n",
                ),
                manifest("cli", "[dependencies]\nfullbore = { path = \"x\" }\n"),
                manifest(
                    "base",
                    "[dev-dependencies]\nfullbore-sim.workspace = true\n",
                ),
                manifest("extra", ""),
            ],
            &mut broken,
        );
        let ours: Vec<&String> = broken.iter().filter(|b| b.contains("Cargo.toml")).collect();
        assert_eq!(ours.len(), 3, "{ours:?}");
    }
}
