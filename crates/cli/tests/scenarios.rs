//! The lab's scenarios as a person runs them: tables on standard output, one report with plots.

use std::fs;
use std::process::{Command, Output};

use fullbore_testkit::Folder;

fn lab(folder: &Folder, arguments: &[&str]) -> Output {
    let html = folder.at("report.html");
    Command::new(env!("CARGO_BIN_EXE_fullbore"))
        .arg("lab")
        .args(arguments)
        .args(["--html", &html])
        .output()
        .expect("the program runs")
}

#[test]
fn a_backlog_is_measured_on_this_programs_own_server() {
    let folder = Folder::new("lab-backlog");
    let server = format!("{} sftp-server", env!("CARGO_BIN_EXE_fullbore"));
    let arguments = ["backlog", "--sizes", "2,1", "--rounds", "1", "--server"];
    let output = lab(&folder, &[&arguments[..], &[&server]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let rows: Vec<&str> = text
        .lines()
        .filter(|l| l.starts_with("fullbore "))
        .collect();
    // Two uploads, the smaller first, and the burst.
    assert_eq!(rows.len(), 3, "{text}");
    assert!(rows[0].contains(" 1 ") && rows[1].contains(" 2 "), "{text}");
    let page = fs::read_to_string(folder.file("report.html")).expect("a report");
    assert!(page.contains("<svg") && page.contains("fullbore, no cap"));
}

#[test]
fn a_server_that_cannot_be_run_is_named() {
    let folder = Folder::new("lab-none");
    let output = lab(
        &folder,
        &["backlog", "--sizes", "1", "--server", "/none/such"],
    );
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("such: No such file or directory"), "{text}");
}

#[test]
fn a_report_that_cannot_be_written_is_an_error() {
    let output = Command::new(env!("CARGO_BIN_EXE_fullbore"))
        .args(["lab", "backlog", "--sizes", "1", "--rounds", "1"])
        .args(["--html", "/none/such/report.html", "--server", "/bin/true"])
        .output()
        .expect("the program runs");
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("/none/such/report.html") && text.contains("--html"),
        "{text}"
    );
}

#[test]
fn hostile_acknowledgements_are_measured_and_written_as_json() {
    let folder = Folder::new("lab-sack");
    let json = folder.at("sack.json");
    let arguments = [
        "sack",
        "--quick",
        "--senders",
        "cached,ours",
        "--receivers",
        "dupack,cover-all",
        "--json",
        &json,
    ];
    let output = lab(&folder, &arguments);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    for row in [
        "cached, dupack",
        "cached, cover-all",
        "ours, dupack",
        "ours, cover-all",
    ] {
        assert_eq!(
            text.lines().filter(|line| line.starts_with(row)).count(),
            1,
            "{text}"
        );
    }
    let json = fs::read_to_string(json).expect("the figures");
    assert_eq!(json.matches("\"sender\":\"ours\"").count(), 2, "{json}");
    assert!(
        json.contains("\"timeouts\":0") && json.contains("\"failures\":[]"),
        "{json}"
    );
    let page = fs::read_to_string(folder.file("report.html")).expect("a report");
    assert!(
        page.contains("CPU over time") && page.contains("<svg"),
        "{page}"
    );
}

#[test]
fn what_nobody_is_called_is_an_error_that_names_all() {
    let folder = Folder::new("lab-sack-names");
    for (arguments, names) in [
        (["sack", "--senders", "theirs"], "cached"),
        (["sack", "--receivers", "theirs"], "find-first"),
        (["sack", "--windows", "1k"], "256k"),
    ] {
        let output = lab(&folder, &arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains(names), "{text}");
    }
}
