//! `cargo xtask test`: what CI runs, in the order in which failures are cheapest to find.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::packages;
use crate::steps::Runner;

const STEPS: &[&str] = &[
    "fmt",
    "clippy",
    "docs",
    "unit",
    "packetdrill",
    "fuzz",
    "interop",
];

struct Options {
    may_install: bool,
    only: Vec<String>,
}

impl Options {
    fn parse(args: &[String]) -> Result<Self, String> {
        let mut options = Self {
            may_install: true,
            only: Vec::new(),
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--no-install" => options.may_install = false,
                "--only" => {
                    let step = args.next().ok_or("--only wants a step")?;
                    if !STEPS.contains(&step.as_str()) {
                        return Err(format!("no step `{step}`; there are {}", STEPS.join(", ")));
                    }
                    options.only.push(step.clone());
                }
                other => return Err(format!("`test` knows no `{other}`")),
            }
        }
        Ok(options)
    }

    fn wants(&self, step: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|s| s == step)
    }
}

/// Runs the steps that `args` ask for; all of them, even after one has failed.
pub fn run(root: &Path, args: &[String]) -> Result<(), String> {
    let options = Options::parse(args)?;
    // Before the long part: what is missing should be known at once.
    let python = if options.wants("interop") {
        packages::ensure_programs(options.may_install)?;
        Some(packages::ensure_python(root, options.may_install)?)
    } else {
        None
    };
    let mut runner = Runner::new(root);
    if options.wants("fmt") {
        runner.step("fmt", "cargo", &["fmt", "--all", "--check"], &[]);
    }
    if options.wants("clippy") {
        let args = "clippy --locked --workspace --all-targets -- -D warnings";
        cargo(&mut runner, "clippy", args, &[]);
    }
    if options.wants("docs") {
        let env = [("RUSTDOCFLAGS", "-D warnings")];
        cargo(
            &mut runner,
            "docs",
            "doc --locked --workspace --no-deps",
            &env,
        );
    }
    if options.wants("unit") {
        unit(&mut runner, python.as_deref());
    }
    if options.wants("packetdrill") {
        packetdrill(&mut runner);
    }
    if options.wants("fuzz") {
        let args = "test --locked -p fullbore-fuzz-targets --test smoke -- --nocapture";
        let iterations = std::env::var("FUZZ_ITERATIONS").unwrap_or_else(|_| "20000".into());
        cargo(
            &mut runner,
            "fuzz",
            args,
            &[("FUZZ_ITERATIONS", &iterations)],
        );
    }
    if let Some(python) = python {
        let build = "build --locked --release -p fullbore-cli";
        if cargo(&mut runner, "build", build, &[]) {
            let python = python.to_string_lossy();
            runner.step("interop", &python, &["interop/run.py"], &[]);
        }
    }
    runner.finish()
}

fn cargo(runner: &mut Runner<'_>, name: &str, args: &str, env: &[(&str, &str)]) -> bool {
    let args: Vec<&str> = args.split_whitespace().collect();
    runner.step(name, "cargo", &args, env)
}

/// The TCP engine behind packetdrill's interface plays its scripts. No script played is a failure, and
/// so is a machine without Python.
fn packetdrill(runner: &mut Runner<'_>) {
    let build = "build --locked -p fullbore-packetdrill";
    if !cargo(runner, "build", build, &[]) {
        return;
    }
    let before = runner.counts.passed;
    let args = [
        "interop/packetdrill/run.py",
        "--library",
        "target/debug/libfullbore_packetdrill.so",
    ];
    runner.step("packetdrill", "python3", &args, &[]);
    if runner.counts.passed == before {
        runner.fail("no script was played".into());
    }
}

/// The workspace's tests: by nextest when it is there, else by cargo's own runner.
/// Those that talk to a library of Python do so in `python`.
fn unit(runner: &mut Runner<'_>, python: Option<&Path>) {
    let python = python.map(|path| path.to_string_lossy().into_owned());
    let env: Vec<(&str, &str)> = python
        .iter()
        .map(|path| ("FULLBORE_PYTHON", path.as_str()))
        .collect();
    let has_nextest = Command::new("cargo")
        .args(["nextest", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if has_nextest {
        cargo(runner, "unit", "nextest run --locked --workspace", &env);
        cargo(runner, "doctests", "test --locked --workspace --doc", &[]);
    } else {
        let args = "test --locked --workspace --no-fail-fast -q";
        cargo(runner, "unit", args, &env);
    }
    if runner.counts.passed == 0 {
        runner.fail("no test ran".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options, String> {
        Options::parse(&args.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn steps_are_chosen_by_name_and_unknown_ones_refused() {
        let options = parse(&["--no-install", "--only", "fmt"]).expect("both are known");
        assert!(!options.may_install && options.wants("fmt") && !options.wants("unit"));
        assert!(parse(&[]).is_ok_and(|o| STEPS.iter().all(|s| o.wants(s))));
        assert!(parse(&["--only", "lint"]).is_err());
        assert!(parse(&["--fast"]).is_err());
    }
}
