//! What `-v` says about a connection.

use std::time::Duration;

use fullbore_ssh::cipher::Suite;

use super::connection::Connection;
use crate::config::ssh_config::HostConfig;
use crate::config::text::escape_for_display;

impl Connection {
    /// Peer, what is known of it, algorithms, login, and how long that took from the connected stream on.
    pub(super) fn describe(&self, host: &HostConfig, method: &str, took: Duration) -> String {
        let mut text = format!(
            "{}: {}",
            host.host_name,
            escape_for_display(&self.remote_version())
        );
        if let Some(agreed) = self.algorithms() {
            let (up, down) = (
                suite(agreed.client_to_server),
                suite(agreed.server_to_client),
            );
            let ciphers = match up == down {
                true => up,
                false => format!("{up} up, {down} down"),
            };
            text.push_str(&format!(
                "\n{}: {}, {}, {ciphers}, compression {}{}",
                host.host_name,
                agreed.kex.name(),
                agreed.host_key.name(),
                agreed.compression_client_to_server.name(),
                if agreed.strict { ", strict" } else { "" },
            ));
        }
        text.push_str(&format!(
            "\n{}: taken for {}",
            host.host_name,
            self.quirks(crate::config::quirks::Quirks::describe)
        ));
        let millis = took.as_secs_f64() * 1e3;
        text.push_str(&format!(
            "\n{}: {} logged in with {method}, {millis:.1} ms after connecting",
            host.host_name, host.user
        ));
        text
    }
}

fn suite(suite: Suite) -> String {
    match suite.mac {
        Some(mac) => format!("{} {}", suite.cipher.name(), mac.name()),
        None => suite.cipher.name().to_owned(),
    }
}
