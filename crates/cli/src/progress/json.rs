//! Events as JSON, one object a line. Names that are not UTF-8 have replacement characters in their
//! string, and all their bytes in a second field, `..._base64`.

use fullbore::config::text::base64_encode;
use fullbore::path::{Evidence, Interval, Limit, Totals};
use fullbore::transfer::{Event, Summary};

use super::watched::Silence;

/// An object that is written field by field.
pub(crate) struct Object(String);

impl Object {
    /// An object that says what it tells of in its first field.
    pub(crate) fn new(event: &str) -> Object {
        let mut object = Object::plain();
        object.text("event", event);
        object
    }

    /// An empty object.
    pub(crate) fn plain() -> Object {
        Object("{".to_owned())
    }

    /// The limit and its evidence, as fields of their own.
    pub(crate) fn limit(&mut self, limit: &Limit) -> &mut Object {
        let mut evidence = Object::plain();
        for (key, value) in limit.evidence() {
            match value {
                Evidence::Count(count) => evidence.raw(key, count),
                Evidence::Number(number) => evidence.raw(key, format!("{number:.6}")),
                Evidence::Word(word) => evidence.text(key, word),
                Evidence::Flag(flag) => evidence.raw(key, flag),
            };
        }
        self.text("limit", limit.kind().name());
        self.text("text", &limit.to_string());
        self.raw("evidence", evidence.end())
    }

    /// The whole object.
    pub(crate) fn end(&self) -> String {
        format!("{}}}", self.0)
    }

    fn key(&mut self, key: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(&format!("\"{key}\":"));
    }

    /// A field whose value is JSON as it is.
    pub(crate) fn raw(&mut self, key: &str, value: impl std::fmt::Display) -> &mut Object {
        self.key(key);
        self.0.push_str(&value.to_string());
        self
    }

    /// A field that is a string.
    pub(crate) fn text(&mut self, key: &str, value: &str) -> &mut Object {
        self.key(key);
        push_string(&mut self.0, value);
        self
    }

    fn name(&mut self, key: &str, bytes: &[u8]) -> &mut Object {
        self.text(key, &String::from_utf8_lossy(bytes));
        if std::str::from_utf8(bytes).is_err() {
            self.text(&format!("{key}_base64"), &base64_encode(bytes));
        }
        self
    }

    /// A field that is a number, or null.
    pub(crate) fn optional(&mut self, key: &str, value: Option<u64>) -> &mut Object {
        match value {
            Some(value) => self.raw(key, value),
            None => self.raw(key, "null"),
        }
    }

    fn line(&self) -> String {
        self.end() + "\n"
    }
}

/// RFC 8259 7.
fn push_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if u32::from(c) < 0x20 || c == '\x7f' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

/// The line of an event. Movement is not told: its rate is nobody's business but the bar's.
pub(super) fn event(event: &Event<'_>) -> Option<String> {
    let object = match event {
        Event::Moved { .. } => return None,
        Event::Started {
            file,
            source,
            target,
            size,
        } => {
            let mut object = Object::new("started");
            object.raw("file", file).name("source", source);
            object.name("target", target).optional("size", *size);
            object
        }
        Event::Resumed {
            file,
            offset,
            proof,
        } => {
            let mut object = Object::new("resumed");
            object.raw("file", file).raw("offset", offset);
            object.text("proof", proof);
            object
        }
        Event::Verified { file, method } => {
            let mut object = Object::new("verified");
            object.raw("file", file).text("method", method);
            object
        }
        Event::Done { file, bytes } => {
            let mut object = Object::new("done");
            object.raw("file", file).raw("bytes", bytes);
            object
        }
        Event::Warning { path, text } => {
            let mut object = Object::new("warning");
            object.name("path", path).text("text", text);
            object
        }
        Event::Failed { file, path, text } => {
            let mut object = Object::new("failed");
            object.optional("file", *file).name("path", path);
            object.text("text", text);
            object
        }
    };
    Some(object.line())
}

/// What limited during an interval of the connection with `place`.
pub(super) fn path(place: &str, interval: &Interval) -> String {
    let share = |thousandths: u16| format!("{:.3}", f64::from(thousandths) / 1e3);
    let length = (interval.to - interval.from).as_secs_f64();
    let mut object = Object::new("path");
    object.text("place", place);
    object.raw("interval_seconds", format!("{length:.6}"));
    object.raw("bytes_per_second", interval.flow.rate);
    let rtt = interval
        .flow
        .rtt
        .map(|rtt| format!("{:.3}", rtt.as_secs_f64() * 1e3));
    object.raw("rtt_ms", rtt.as_deref().unwrap_or("null"));
    object.limit(&interval.first);
    let mut shares = Object::plain();
    for (kind, thousandths) in &interval.shares {
        shares.raw(kind.name(), share(*thousandths));
    }
    object.raw("shares", shares.end()).line()
}

/// That a place does not answer, or does again.
pub(super) fn silence(place: &str, silence: Silence) -> String {
    let (event, lasted) = match silence {
        Silence::Began(lasted, _) => ("silent", lasted),
        Silence::Ended(lasted) => ("answering", lasted),
    };
    let mut object = Object::new(event);
    object.text("place", place);
    object.raw("seconds", lasted.as_secs());
    if let Silence::Began(_, patience) = silence {
        object.raw("given_up_after_seconds", patience.as_secs());
    }
    object.line()
}

/// What limited in all: fields of the summary.
fn limits(object: &mut Object, totals: &Totals) {
    let Some((limit, share)) = totals.first() else {
        return;
    };
    object.limit(&limit);
    object.raw("share", format!("{:.3}", f64::from(share) / 1e3));
    let mut seconds = Object::plain();
    for (limit, time) in totals.ranking() {
        seconds.raw(limit.kind().name(), format!("{:.3}", time.as_secs_f64()));
    }
    object.raw("limit_seconds", seconds.end());
}

/// The last line.
pub(super) fn summary(summary: &Summary, seconds: f64, totals: &Totals) -> String {
    let rate = summary.bytes as f64 / 1e6 / seconds.max(1e-3);
    let mut object = Object::new("summary");
    object
        .raw("files", summary.files)
        .raw("folders", summary.folders);
    object
        .raw("bytes", summary.bytes)
        .raw("failed", summary.failed);
    object.raw("warnings", summary.warnings);
    object.raw("seconds", format!("{seconds:.6}"));
    object.raw("megabytes_per_second", format!("{rate:.3}"));
    limits(&mut object, totals);
    object.line()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_objects_on_lines() {
        let started = Event::Started {
            file: 3,
            source: b"h:a\"\\\n\x01",
            target: b"\xff",
            size: None,
        };
        assert_eq!(
            event(&started).expect("told"),
            "{\"event\":\"started\",\"file\":3,\"source\":\"h:a\\\"\\\\\\n\\u0001\",\"target\":\"\u{fffd}\",\"target_base64\":\"/w==\",\"size\":null}\n"
        );
        assert_eq!(event(&Event::Moved { file: 3, bytes: 1 }), None);
        let failed = Event::Failed {
            file: Some(1),
            path: b"p",
            text: "why",
        };
        assert_eq!(
            event(&failed).expect("told"),
            "{\"event\":\"failed\",\"file\":1,\"path\":\"p\",\"text\":\"why\"}\n"
        );
        let total = summary(
            &Summary {
                files: 2,
                bytes: 10,
                ..Summary::default()
            },
            0.5,
            &Totals::default(),
        );
        assert!(total.starts_with("{\"event\":\"summary\",\"files\":2,") && total.ends_with("}\n"));
    }
}
