//! What is said of a connection: one line of JSON.

use std::fmt::Write;
use std::time::Duration;

use fullbore::driver::net::Connection;
use fullbore_tcp::connection::{Agreed, Info};

use super::job::Done;

/// The line, without its end.
pub fn line(connection: &Connection, done: &Done, took: Duration) -> String {
    let mut fields = Fields::default();
    if let Some(remote) = connection.remote() {
        fields.text("remote", &remote.to_string());
    }
    fields.number("seconds", took.as_secs_f64());
    fields.number("sent", done.sent);
    fields.number("received", done.received);
    let texts = [
        ("sent_sha256", &done.sent_sha256),
        ("received_sha256", &done.received_sha256),
        ("error", &done.error),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            fields.text(name, text);
        }
    }
    if let Some(info) = connection.info() {
        counters(&mut fields, &info);
    }
    if let Some(agreed) = connection.agreed() {
        options(&mut fields, &agreed);
    }
    format!("{{{}}}", fields.0)
}

fn options(fields: &mut Fields, agreed: &Agreed) {
    fields.number("is_sack", agreed.is_sack);
    fields.number("is_timestamps", agreed.is_timestamps);
    fields.number("is_scaled", agreed.is_scaled);
    fields.number("is_ecn", agreed.is_ecn);
}

fn counters(fields: &mut Fields, info: &Info) {
    let (stats, recovery) = (&info.stats, &info.recovery);
    fields.number("rtt_ms", info.rtt.as_secs_f64() * 1000.0);
    fields.number("snd_cwnd", info.snd_cwnd);
    fields.number("snd_mss", info.snd_mss);
    fields.number("snd_wnd", info.snd_wnd);
    fields.number("rcv_wnd", info.rcv_wnd);
    let counts = [
        ("segments_sent", stats.segments_sent),
        ("segments_received", stats.segments_received),
        ("marks", stats.marks),
        ("mtu_probes", stats.mtu_probes),
        ("challenges", stats.challenges),
        ("acks", recovery.acks),
        ("segments_examined", recovery.segments_examined),
        ("segments_examined_max", recovery.segments_examined_max),
        ("sack_blocks", recovery.sack_blocks),
        ("dsack_blocks", recovery.dsack_blocks),
        ("retransmissions", recovery.retransmissions),
        ("spurious", recovery.spurious_retransmissions),
        ("fast_recoveries", recovery.fast_recoveries),
        ("timeouts", recovery.timeouts),
        ("probes", recovery.probes),
    ];
    for (name, count) in counts {
        fields.number(name, count);
    }
}

#[derive(Default)]
struct Fields(String);

impl Fields {
    fn name(&mut self, name: &str) {
        let comma = if self.0.is_empty() { "" } else { ", " };
        let _ = write!(self.0, "{comma}\"{name}\": ");
    }

    fn number(&mut self, name: &str, value: impl std::fmt::Display) {
        self.name(name);
        let _ = write!(self.0, "{value}");
    }

    fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        self.0.push('"');
        for c in value.chars() {
            match c {
                '"' | '\\' => self.0.extend(['\\', c]),
                c if c.is_control() => {
                    let _ = write!(self.0, "\\u{:04x}", u32::from(c));
                }
                c => self.0.push(c),
            }
        }
        self.0.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_json_whatever_stands_in_them() {
        let mut fields = Fields::default();
        fields.text("error", "say \"no\"\n\\");
        fields.number("sent", 7);
        assert_eq!(fields.0, r#""error": "say \"no\"\u000a\\", "sent": 7"#);
    }
}
