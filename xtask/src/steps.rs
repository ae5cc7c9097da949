//! Running commands one after another, with their test counts added up.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// What the runners' closing lines say, added up over all steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tests that passed.
    pub passed: u64,
    /// Tests that failed.
    pub failed: u64,
    /// Tests that did not run.
    pub skipped: u64,
}

impl Counts {
    /// Adds what `line` reports if it is a closing line of a test runner (`test result: ok. 3
    /// passed; 0 failed; ...`, nextest's `Summary ... 3 tests run: 3 passed, 1 skipped`, or a plain
    /// `3 passed, 0 failed`).
    fn add_line(&mut self, line: &str) {
        // nextest shows the output of failed tests, their own closing lines with it, indented.
        let is_closing = line.starts_with("test result:")
            || line.trim_start().starts_with("Summary [")
            || is_plain_closing(line);
        if !is_closing {
            return;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.windows(2) {
            let Ok(n) = pair[0].parse::<u64>() else {
                continue;
            };
            match pair[1].trim_end_matches([',', ';']) {
                "passed" => self.passed += n,
                "failed" => self.failed += n,
                "skipped" | "ignored" => self.skipped += n,
                _ => {}
            }
        }
    }
}

fn is_plain_closing(line: &str) -> bool {
    let mut words = line.split_whitespace();
    words.next().is_some_and(|w| w.parse::<u64>().is_ok())
        && words.next() == Some("passed,")
        && line.contains(" failed")
}

/// Runs steps from one folder and remembers how they went.
pub struct Runner<'a> {
    root: &'a Path,
    /// Sums over all steps.
    pub counts: Counts,
    failures: Vec<String>,
}

impl<'a> Runner<'a> {
    /// A runner whose commands start in `root`.
    pub fn new(root: &'a Path) -> Self {
        Self {
            root,
            counts: Counts::default(),
            failures: Vec::new(),
        }
    }

    /// Runs one command, showing its output as it comes; a failure is kept for the end.
    pub fn step(&mut self, name: &str, program: &str, args: &[&str], env: &[(&str, &str)]) -> bool {
        println!("\n== {name}: {program} {}", args.join(" "));
        let start = Instant::now();
        let result = self.run_command(program, args, env);
        let seconds = start.elapsed().as_secs();
        match result {
            Ok(()) => {
                println!("== {name}: ok, {seconds} s");
                true
            }
            Err(why) => {
                println!("== {name}: FAILED, {seconds} s: {why}");
                self.failures.push(format!("{name} ({why})"));
                false
            }
        }
    }

    fn run_command(
        &mut self,
        program: &str,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Result<(), String> {
        let (output, input) = std::io::pipe().map_err(|e| e.to_string())?;
        let stderr = input.try_clone().map_err(|e| e.to_string())?;
        let mut command = Command::new(program);
        command
            .args(args)
            .envs(env.iter().copied())
            .current_dir(self.root)
            .stdin(Stdio::null())
            .stdout(input)
            .stderr(stderr);
        let mut child = command
            .spawn()
            .map_err(|e| format!("{program} does not start: {e}"))?;
        // Our copies of the pipe's writing end go with it: else the end would never be seen.
        drop(command);
        let mut out = std::io::stdout();
        for line in BufReader::new(output).split(b'\n') {
            let line = line.map_err(|e| e.to_string())?;
            self.counts.add_line(&String::from_utf8_lossy(&line));
            // A closed terminal must not end the tests half way.
            let _ = out.write_all(&line).and_then(|()| out.write_all(b"\n"));
        }
        let status = child.wait().map_err(|e| e.to_string())?;
        if status.success() {
            Ok(())
        } else {
            Err(status.to_string())
        }
    }

    /// Notes a failure that is no command's.
    pub fn fail(&mut self, what: String) {
        println!("== FAILED: {what}");
        self.failures.push(what);
    }

    /// Prints the sums, as the last line, and says whether all went well.
    pub fn finish(self) -> Result<(), String> {
        let Counts {
            passed,
            failed,
            skipped,
        } = self.counts;
        // A step that failed without counting a failed test is one failure more.
        let failed = failed.max(u64::try_from(self.failures.len()).unwrap_or(u64::MAX));
        println!();
        for failure in &self.failures {
            println!("failed step: {failure}");
        }
        println!("total: {passed} passed, {failed} failed, {skipped} skipped");
        if failed == 0 {
            Ok(())
        } else {
            Err(format!("{failed} failed"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(lines: &[&str]) -> (u64, u64, u64) {
        let mut counts = Counts::default();
        for line in lines {
            counts.add_line(line);
        }
        (counts.passed, counts.failed, counts.skipped)
    }

    #[test]
    fn closing_lines_are_added_up_and_others_are_not() {
        assert_eq!(
            counts(&[
                "test result: ok. 17 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out",
                "     Summary [   0.104s] 6 tests run: 6 passed, 3 skipped",
                "40 passed, 2 failed",
                "    test result: FAILED. 0 passed; 1 failed; 0 ignored",
                "I saw 5 passed, 5 failed",
            ]),
            (63, 3, 5)
        );
    }
}
