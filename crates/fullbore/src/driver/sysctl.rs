//! This machine's network settings (tcp(7), socket(7)): read from `/proc/sys`, never written.

use std::fs;

/// Settings that decide what TCP can carry, by their sysctl names.
pub const NETWORK: [&str; 15] = [
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
    "net.core.default_qdisc",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_limit_output_bytes",
];

/// The value of a setting, its words parted by one space; `None` where this kernel has no such.
#[must_use]
pub fn read(name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).ok()?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_limits_are_three_numbers_and_what_is_missing_is_none() {
        let value = read("net.ipv4.tcp_wmem").expect("Linux has it");
        let numbers = value.split(' ').map(str::parse::<u64>);
        assert_eq!(numbers.filter(Result::is_ok).count(), 3, "{value}");
        assert_eq!(read("net.ipv4.no_such_setting"), None);
    }
}
