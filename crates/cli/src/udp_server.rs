//! `fullbore udp-server`: started by an SSH server for a client that goes on over UDP.

use std::sync::Arc;

use fullbore::config::Environment as _;
use fullbore::driver::environment::Machine;
use fullbore::server::serve::helper::{self, HelperOptions};
use fullbore::server::serve::log::NoLog;

use crate::args::UdpServerValues;
use crate::exit::{self, Exit};
use crate::output;

/// Serves the client that an SSH server has logged in.
pub(crate) fn run(values: &UdpServerValues) -> Exit {
    let told = Machine.variable("SSH_CONNECTION");
    let told = told.as_ref().and_then(|value| value.to_str());
    let Some(options) = told.and_then(HelperOptions::from_ssh_connection) else {
        return exit::usage(
            "udp-server: SSH_CONNECTION is not set: an SSH server starts this for a client",
        );
    };
    let options = HelperOptions {
        ports: values.ports.clone(),
        read_only: values.read_only,
        ..options
    };
    match helper::run(&options, Arc::new(NoLog), &mut std::io::stdout()) {
        Ok(()) => Exit::Done,
        Err(error) => {
            output::error(&format!("fullbore: udp-server: {error}"));
            Exit::Failed
        }
    }
}
