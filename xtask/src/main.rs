//! The project's own commands: `cargo xtask test`, `bench`, `tidy`. No dependencies, so that it
//! builds in seconds on a fresh machine.

mod bench;
mod packages;
mod steps;
mod test;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test [--no-install] [--only STEP]...   everything CI runs; installs what the tests need when it may
                                         (steps: fmt clippy docs unit packetdrill fuzz interop)
  bench [--quick] [ARGS]...              the figures of benches/README.md, peers in the same run
  tidy                                   the repository's own rules (sizes, layering, words)
  help                                   this text
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = args
        .split_first()
        .map_or(("help", &args[..]), |(c, rest)| (c.as_str(), rest));
    let asks_help = |args: &[String]| args.iter().any(|arg| arg == "--help" || arg == "-h");
    let done = match command {
        "help" | "--help" | "-h" => help(),
        // Before anything is built or installed, whatever stands beside it.
        "test" | "bench" | "tidy" if asks_help(rest) => help(),
        "test" => test::run(&root(), rest),
        "bench" => bench::run(&root(), rest),
        "tidy" => tidy::run(&root()),
        other => Err(format!("there is no command `{other}`\n\n{USAGE}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "an outcome like that of the commands"
)]
fn help() -> Result<(), String> {
    print!("{USAGE}");
    Ok(())
}

/// The top of the repository: the folder above this crate's.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
