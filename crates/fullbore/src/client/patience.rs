//! How long a server may be silent while a connection is made.

use std::time::Duration;

use crate::config::ssh_config::HostConfig;

/// Where ConnectTimeout says nothing: to find and reach the host, and then for each key exchange. Five SYNs
/// are sent by then, and no exchange takes a tenth of it; the kernel alone would try for two minutes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// For each answer to the login, at least: a server may ask an authority far away, or a person with a
/// telephone in the hand. Longer than OpenSSH's servers let a login take.
const LOGIN_ANSWER_TIMEOUT: Duration = Duration::from_secs(180);

/// See [`CONNECT_TIMEOUT`].
pub(super) fn connect_timeout(host: &HostConfig) -> Duration {
    let told = host.connection.connect_timeout;
    told.map_or(CONNECT_TIMEOUT, Duration::from_secs)
}

/// See [`LOGIN_ANSWER_TIMEOUT`].
pub(super) fn login_answer_timeout(host: &HostConfig) -> Duration {
    connect_timeout(host).max(LOGIN_ANSWER_TIMEOUT)
}
