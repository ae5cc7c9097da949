//! What was found, for programs: one object.

use fullbore::path::doctor::{Findings, Probe, Way};

use crate::progress::Object;

/// Why nothing was found.
pub(super) fn failed(why: &str) -> String {
    let mut object = Object::new("failed");
    object.text("text", why);
    object.end() + "\n"
}

/// All that was found.
pub(super) fn findings(name: &str, found: &Findings) -> String {
    let mut object = Object::new("doctor");
    object.text("host", name).text("version", &found.version);
    object.text("profile", &found.profile);
    object.text("algorithms", &found.algorithms);
    if let Some((cipher, rate)) = found.cipher {
        object.text("cipher", cipher);
        object.raw("cipher_bytes_per_second", rate);
    }
    let rtt = found.round_trips.min.as_secs_f64();
    object.raw("phases", phases(found, rtt));
    let trips = &found.round_trips;
    let ms = |time: std::time::Duration| format!("{:.3}", time.as_secs_f64() * 1e3);
    let mut path = Object::plain();
    path.raw("min_ms", ms(trips.min))
        .raw("mean_ms", ms(trips.mean));
    path.raw("jitter_ms", ms(trips.jitter))
        .raw("pings", trips.count);
    object.raw("round_trip", path.end());
    for (key, one) in [
        ("down", &found.down),
        ("up", &found.up),
        ("up_wide", &found.up_wide),
    ] {
        if let Some(one) = one {
            object.raw(key, probe(one));
        }
    }
    let gaps = found
        .gaps
        .iter()
        .map(|gap| Object::plain().text("text", gap).end());
    object.raw("gaps", list(gaps));
    object.raw("caps", caps(found));
    let mut settings = Object::plain();
    for (name, value) in &found.settings {
        settings.text(name, value);
    }
    object.raw("settings", settings.end());
    object.raw("advice", advice(found));
    object.end() + "\n"
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

fn phases(found: &Findings, rtt: f64) -> String {
    list(found.phases.iter().map(|phase| {
        let seconds = phase.time.as_secs_f64();
        let mut object = Object::plain();
        object.text("name", phase.name);
        object.raw("ms", format!("{:.3}", seconds * 1e3));
        if rtt > 0.0 {
            object.raw("round_trips", format!("{:.2}", seconds / rtt));
        }
        object.end()
    }))
}

fn probe(probe: &Probe) -> String {
    let mut object = Object::plain();
    object.text("file", &probe.file).raw("lanes", probe.lanes);
    object.raw("bytes", probe.bytes);
    object.raw("seconds", format!("{:.3}", probe.time.as_secs_f64()));
    object.raw("bytes_per_second", probe.rate);
    object.limit(&probe.limit());
    let mut seconds = Object::plain();
    for (limit, time) in probe.totals.ranking() {
        seconds.raw(limit.kind().name(), format!("{:.3}", time.as_secs_f64()));
    }
    object.raw("limit_seconds", seconds.end());
    object.end()
}

fn caps(found: &Findings) -> String {
    list(found.caps().into_iter().map(|cap| {
        let mut object = Object::plain();
        object.text("layer", cap.layer);
        object.text(
            "way",
            match cap.way {
                Way::Up => "up",
                Way::Down => "down",
                Way::Both => "both",
            },
        );
        object.optional("bytes", cap.bytes);
        object.raw("bytes_per_second", cap.rate);
        object.end()
    }))
}

fn advice(found: &Findings) -> String {
    list(found.advice().into_iter().map(|advice| {
        let mut object = Object::plain();
        object.text("finding", &advice.finding);
        object.text("remedy", &advice.remedy);
        object.raw("gain", format!("{:.2}", advice.gain));
        object.end()
    }))
}
