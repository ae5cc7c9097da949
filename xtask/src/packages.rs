//! What the interop tests need from the machine: found, installed where that is allowed, or named.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program and the Debian package that brings it.
const PROGRAMS: &[(&str, &str)] = &[
    ("sshd", "openssh-server"),
    ("sftp", "openssh-client"),
    ("scp", "openssh-client"),
    ("ssh-agent", "openssh-client"),
    ("pscp", "putty-tools"),
    ("psftp", "putty-tools"),
    ("dropbear", "dropbear-bin"),
    ("dbclient", "dropbear-bin"),
    ("lftp", "lftp"),
    ("rclone", "rclone"),
    ("curl", "curl"),
    ("sshfs", "sshfs"),
    ("expect", "expect"),
    ("nc", "netcat-openbsd"),
    ("iperf3", "iperf3"),
    ("ip", "iproute2"),
    ("python3", "python3"),
];

/// Folders that hold daemons and are often missing from a user's PATH.
const DAEMON_FOLDERS: &[&str] = &["/usr/local/sbin", "/usr/sbin", "/sbin"];

fn is_present(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(DAEMON_FOLDERS.iter().map(PathBuf::from))
        .any(|folder| folder.join(program).is_file())
}

fn missing() -> Vec<&'static str> {
    let mut packages: Vec<&str> = PROGRAMS
        .iter()
        .filter(|(program, _)| !is_present(program))
        .map(|&(_, package)| package)
        .collect();
    packages.dedup();
    packages
}

fn run(program: &str, args: &[&str]) -> bool {
    Command::new(program)
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn quietly(program: &Path, args: &[&str]) -> bool {
    Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn apt(args: &[&str]) -> bool {
    let is_root = quietly(Path::new("sh"), &["-c", "[ \"$(id -u)\" = 0 ]"]);
    if is_root {
        run("apt-get", args)
    } else {
        let mut sudo = vec!["-n", "apt-get"];
        sudo.extend(args);
        run("sudo", &sudo)
    }
}

/// Makes the programs of the interop tests available, or says what to type.
pub fn ensure_programs(may_install: bool) -> Result<(), String> {
    let packages = missing();
    if packages.is_empty() {
        return Ok(());
    }
    if may_install && is_present("apt-get") {
        println!("installing {}", packages.join(" "));
        let mut args = vec!["install", "-y", "-q", "--no-install-recommends"];
        args.extend(&packages);
        if apt(&["update", "-q"]) && apt(&args) && missing().is_empty() {
            return Ok(());
        }
    }
    Err(format!(
        "the interop tests need programs that are not here. Type:\n  \
         sudo apt-get install {}\nor run the rest with --only unit",
        missing().join(" ")
    ))
}

/// A Python that has the client libraries: the system's if it has them, else one in `target/`.
pub fn ensure_python(root: &Path, may_install: bool) -> Result<PathBuf, String> {
    let probe = ["-c", "import asyncssh, paramiko"];
    let system = PathBuf::from("python3");
    if quietly(&system, &probe) {
        return Ok(system);
    }
    let venv = root.join("target/interop-venv");
    let python = venv.join("bin/python3");
    if quietly(&python, &probe) {
        return Ok(python);
    }
    let requirements = root.join("interop/requirements.txt");
    let (venv, requirements) = (venv.to_string_lossy(), requirements.to_string_lossy());
    if may_install {
        let made = run("python3", &["-m", "venv", &venv])
            || (apt(&["update", "-q"])
                && apt(&["install", "-y", "-q", "python3-venv"])
                && run("python3", &["-m", "venv", &venv]));
        let pip = ["-m", "pip", "install", "-q", "-r", &requirements];
        if made && run(&python.to_string_lossy(), &pip) && quietly(&python, &probe) {
            return Ok(python);
        }
    }
    Err(format!(
        "the interop tests need paramiko and asyncssh. Type:\n  python3 -m venv {venv} && \
         {venv}/bin/pip install -r {requirements}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_looked_for_on_the_path_and_among_daemons() {
        assert!(is_present("sh"));
        assert!(!is_present("no-such-program-anywhere"));
    }
}
