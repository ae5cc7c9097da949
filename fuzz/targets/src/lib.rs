//! Fuzz targets as plain functions: the libFuzzer wrappers of `fuzz/` and the smoke test of every CI
//! run call the same ones. A target fails by panicking; it checks invariants beyond "no crash" where
//! there are any (what parses also prints back, what is taken is at most what was given).

pub mod config;
pub mod keys;
pub mod mutate;
pub mod sftp;
pub mod ssh;
pub mod store;
pub mod tcp;
pub mod udp;
pub mod wire;

/// A target with its name and inputs to start from.
pub struct Target {
    /// As in `cargo fuzz run NAME`.
    pub name: &'static str,
    /// Runs one input.
    pub run: fn(&[u8]),
    /// Well-formed inputs that mutations start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target {
        name: "ssh_wire",
        run: wire::run,
        seeds: wire::seeds,
    },
    Target {
        name: "ssh_public_key",
        run: keys::public_key,
        seeds: keys::public_key_seeds,
    },
    Target {
        name: "ssh_private_key",
        run: keys::private_key,
        seeds: keys::private_key_seeds,
    },
    Target {
        name: "ssh_certificate",
        run: keys::certificate,
        seeds: keys::certificate_seeds,
    },
    Target {
        name: "ssh_agent",
        run: keys::agent,
        seeds: keys::agent_seeds,
    },
    Target {
        name: "ssh_server",
        run: ssh::server,
        seeds: ssh::server_seeds,
    },
    Target {
        name: "ssh_client",
        run: ssh::client,
        seeds: ssh::client_seeds,
    },
    Target {
        name: "sftp_request",
        run: sftp::request,
        seeds: sftp::request_seeds,
    },
    Target {
        name: "sftp_reply",
        run: sftp::reply,
        seeds: sftp::reply_seeds,
    },
    Target {
        name: "sftp_client",
        run: sftp::client,
        seeds: sftp::reply_seeds,
    },
    Target {
        name: "sftp_server",
        run: sftp::server,
        seeds: sftp::session_seeds,
    },
    Target {
        name: "known_hosts",
        run: config::known_hosts,
        seeds: config::known_hosts_seeds,
    },
    Target {
        name: "authorized_keys",
        run: config::authorized_keys,
        seeds: config::authorized_keys_seeds,
    },
    Target {
        name: "ssh_config",
        run: config::ssh_config,
        seeds: config::ssh_config_seeds,
    },
    Target {
        name: "quirks",
        run: config::quirks,
        seeds: config::quirks_seeds,
    },
    Target {
        name: "settings",
        run: config::settings,
        seeds: config::settings_seeds,
    },
    Target {
        name: "patterns",
        run: config::patterns,
        seeds: config::patterns_seeds,
    },
    Target {
        name: "destination",
        run: config::destination,
        seeds: config::destination_seeds,
    },
    Target {
        name: "tcp_segment",
        run: tcp::segment,
        seeds: tcp::segment_seeds,
    },
    Target {
        name: "tun_packet",
        run: tcp::packet,
        seeds: tcp::packet_seeds,
    },
    Target {
        name: "tcp_connection",
        run: tcp::connection,
        seeds: tcp::connection_seeds,
    },
    Target {
        name: "tcp_listener",
        run: tcp::listener,
        seeds: tcp::listener_seeds,
    },
    Target {
        name: "udp_door",
        run: udp::door,
        seeds: udp::door_seeds,
    },
    Target {
        name: "udp_offer",
        run: udp::offer,
        seeds: udp::offer_seeds,
    },
];

/// Runs one input of the target called `name`.
///
/// # Panics
/// When there is no such target, and when the target finds a fault.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|t| t.name == name);
    (target.expect("wrappers name targets that exist").run)(data);
}
