//! What was found, for a person.

use fullbore::path::doctor::{Findings, Probe, Way};
use fullbore::path::{Limit, binary_bytes, decimal_bytes, millis};

/// The report.
pub(super) fn text(name: &str, found: &Findings) -> String {
    let mut out = format!("{name}: {}\n", found.version);
    out.push_str(&format!("  {}\n  {}\n", found.algorithms, found.profile));
    phases(&mut out, found);
    let trips = &found.round_trips;
    if trips.count > 0 {
        out.push_str(&format!(
            "\nRound trip  {} at least, {} on average, jitter {} ({} pings)\n",
            millis(trips.min),
            millis(trips.mean),
            millis(trips.jitter),
            trips.count
        ));
    }
    out.push_str("\nRates\n");
    for (way, probe) in [
        ("down", &found.down),
        ("up", &found.up),
        ("up", &found.up_wide),
    ] {
        if let Some(probe) = probe {
            rate(&mut out, way, probe);
        }
    }
    for gap in &found.gaps {
        out.push_str(&format!("  {gap}\n"));
    }
    caps(&mut out, found);
    out.push_str("\nThis machine's settings\n");
    for (name, value) in &found.settings {
        out.push_str(&format!("  {name:<44}{value}\n"));
    }
    advice(&mut out, found);
    out
}

fn phases(out: &mut String, found: &Findings) {
    let rtt = found.round_trips.min.as_secs_f64();
    let head = ["Connecting", "time", "round trips"];
    out.push_str(&format!("\n{:<24}{:>9}{:>14}\n", head[0], head[1], head[2]));
    let total = found.phases.iter().map(|phase| phase.time).sum();
    let phases = found.phases.iter().map(|phase| (phase.name, phase.time));
    for (name, time) in phases.chain([("in all", total)]) {
        let seconds = time.as_secs_f64();
        let trips = match rtt > 0.0 {
            true => format!("{:.1}", seconds / rtt),
            false => String::new(),
        };
        out.push_str(&format!("  {name:<22}{:>9}{trips:>14}\n", millis(time)));
    }
}

fn rate(out: &mut String, way: &str, probe: &Probe) {
    let channels = match probe.lanes {
        1 => String::new(),
        lanes => format!(" over {lanes} channels"),
    };
    let limit = match probe.limit() {
        Limit::Nothing => String::new(),
        limit => format!("; limited by {limit}"),
    };
    out.push_str(&format!(
        "  {way:<6}{:>10}/s  {}{channels}{limit}\n",
        decimal_bytes(probe.rate),
        probe.file
    ));
}

fn caps(out: &mut String, found: &Findings) {
    if found.rtt().is_zero() {
        // Windows mean nothing without it.
        return;
    }
    out.push_str(&format!(
        "\nWhat each layer can carry at {}\n",
        millis(found.rtt())
    ));
    for cap in found.caps() {
        let way = match cap.way {
            Way::Up => "up",
            Way::Down => "down",
            Way::Both => "",
        };
        let size = cap.bytes.map_or_else(String::new, binary_bytes);
        let rate = format!("{}/s", decimal_bytes(cap.rate));
        out.push_str(&format!(
            "  {way:<6}{:<46}{size:>10}{rate:>12}\n",
            cap.layer
        ));
    }
}

fn advice(out: &mut String, found: &Findings) {
    let list = found.advice();
    out.push_str(match list.is_empty() {
        true => "\nNothing to advise.\n",
        false => "\nAdvice, the most rewarding first\n",
    });
    for (number, advice) in list.iter().enumerate() {
        let gain = match advice.gain {
            gain if gain >= 1.1 => format!(" (up to {gain:.1} times as fast)"),
            _ => String::new(),
        };
        out.push_str(&format!(
            "  {}. {}{gain}\n     {}\n",
            number + 1,
            advice.finding,
            advice.remedy
        ));
    }
}
