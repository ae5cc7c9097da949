//! `cargo xtask bench`: builds the release binary and hands over to the bench script.

use std::path::Path;

use crate::packages;
use crate::steps::Runner;

/// Runs `benches/run.py` with `args`.
pub fn run(root: &Path, args: &[String]) -> Result<(), String> {
    packages::ensure_programs(true)?;
    let mut runner = Runner::new(root);
    let build = ["build", "--locked", "--release", "-p", "fullbore-cli"];
    if runner.step("build", "cargo", &build, &[]) {
        let mut script = vec!["benches/run.py"];
        script.extend(args.iter().map(String::as_str));
        runner.step("bench", "python3", &script, &[]);
    }
    runner.finish()
}
