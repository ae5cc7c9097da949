//! `fullbore lab`.

mod scenarios;

use std::path::Path;

use fullbore_lab::endpoint::EndpointOptions;
use fullbore_lab::link::{LinkOptions, Report};

use crate::args::LabValues;
use crate::exit::Exit;
use crate::output;

/// The word behind `lab` by which the program starts itself inside the link's namespaces.
pub(crate) const LINK_INIT: &str = "link-init";

/// What a shell says of a command that could not be started.
const CODE_NOT_STARTED: u8 = 127;

/// Does what was asked.
pub(crate) fn run(values: LabValues) -> Exit {
    match values {
        LabValues::Link {
            options,
            json,
            quiet,
        } => link(options, json.as_deref(), quiet),
        LabValues::Tcp(options) => tcp(&options),
        LabValues::Scenarios(values) => scenarios::run(&values),
    }
}

fn link(mut options: LinkOptions, json: Option<&Path>, quiet: bool) -> Exit {
    options.init = ["/proc/self/exe", "lab", LINK_INIT]
        .map(Into::into)
        .to_vec();
    let report = match fullbore_lab::driver::run(&options) {
        Ok(report) => report,
        Err(error) => {
            output::error(&format!("fullbore: lab link: {error}"));
            return Exit::Code(CODE_NOT_STARTED);
        }
    };
    if !quiet {
        output::print_error(&report.to_string());
    }
    match json.map(|path| write(path, &report)) {
        Some(Err(error)) => {
            output::error(&format!(
                "fullbore: lab link: cannot write the report: {error}"
            ));
            Exit::Failed
        }
        Some(Ok(())) | None => Exit::Code(report.code),
    }
}

/// What it says of connections goes to the standard error: the standard output may carry data.
fn tcp(options: &EndpointOptions) -> Exit {
    let tell = |line: &str| output::print_error(&format!("{line}\n"));
    match fullbore_lab::endpoint::run(options, &tell) {
        Ok(()) => Exit::Done,
        Err(error) => {
            output::error(&format!("fullbore: lab tcp: {error}"));
            Exit::Failed
        }
    }
}

fn write(path: &Path, report: &Report) -> std::io::Result<()> {
    std::fs::write(path, report.to_json() + "\n")
}
