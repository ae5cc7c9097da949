//! The line that changes: name, percent, bytes, rate, time left.
//!
//! Drawn at most ten times a second, each time in one write that goes over the old line and erases
//! only what is left of it, so that nothing flickers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fullbore::config::text::escape_for_display;
use fullbore::path::Limit;
use fullbore::transfer::Event;

use super::units;

/// Between two drawings. Chosen: a person reads no faster.
const INTERVAL: Duration = Duration::from_millis(100);

/// What one more second counts in the shown rate: the rest is the past. Chosen: steady, but a stall
/// shows within some seconds.
const RATE_WEIGHT: f64 = 0.3;

/// Columns that are left to the name before numbers are left out.
const NAME_COLUMNS_MIN: usize = 8;

struct File {
    name: String,
    size: Option<u64>,
    at: u64,
}

/// The state behind the line.
pub(super) struct Bar {
    is_whole_known: bool,
    /// Files that are being copied, by number; the planner bounds how many.
    files: BTreeMap<u64, File>,
    done_files: u64,
    /// Sizes of the files begun, as far as known, and the bytes of them that are in place.
    total: u64,
    in_place: u64,
    /// Bytes moved in this run.
    moved: u64,
    rate: Rate,
    drawn: Option<Instant>,
    is_visible: bool,
    /// What limits now.
    limit: Option<Limit>,
}

/// Bytes per second, smoothed.
struct Rate {
    since: Instant,
    moved_then: u64,
    smooth: Option<f64>,
}

impl Rate {
    /// With a second of 100 MB and then one of 50: 100, then 0.3 x 50 + 0.7 x 100 = 85 MB/s.
    fn update(&mut self, now: Instant, moved: u64) {
        let seconds = now.duration_since(self.since).as_secs_f64();
        if seconds < 0.5 {
            return;
        }
        let current = moved.saturating_sub(self.moved_then) as f64 / seconds;
        let keep = (1.0 - RATE_WEIGHT).powf(seconds);
        self.smooth = Some(match self.smooth {
            Some(past) => past * keep + current * (1.0 - keep),
            None => current,
        });
        self.since = now;
        self.moved_then = moved;
    }
}

impl Bar {
    pub(super) fn new(now: Instant, is_whole_known: bool) -> Bar {
        Bar {
            is_whole_known,
            files: BTreeMap::new(),
            done_files: 0,
            total: 0,
            in_place: 0,
            moved: 0,
            rate: Rate {
                since: now,
                moved_then: 0,
                smooth: None,
            },
            drawn: None,
            is_visible: false,
            limit: None,
        }
    }

    /// Takes in what limits now; nothing is said of a connection that rests.
    pub(super) fn limit(&mut self, limit: Option<Limit>) {
        self.limit = limit;
    }

    /// Takes an event in.
    pub(super) fn notice(&mut self, event: &Event<'_>) {
        match event {
            Event::Started {
                file, source, size, ..
            } => {
                self.total += size.unwrap_or(0);
                let start = source
                    .iter()
                    .rposition(|b| *b == b'/')
                    .map_or(0, |at| at + 1);
                let name = escape_for_display(&source[start..]);
                let size = *size;
                self.files.insert(*file, File { name, size, at: 0 });
            }
            Event::Resumed { file, offset, .. } => {
                if let Some(file) = self.files.get_mut(file) {
                    file.at = *offset;
                    self.in_place += offset;
                }
            }
            Event::Moved { file, bytes } => {
                if let Some(file) = self.files.get_mut(file) {
                    let more = bytes.saturating_sub(file.at);
                    file.at = file.at.max(*bytes);
                    self.in_place += more;
                    self.moved += more;
                }
            }
            Event::Done { file, .. } => {
                self.done_files += 1;
                self.files.remove(file);
            }
            Event::Failed {
                file: Some(file), ..
            } => {
                if let Some(file) = self.files.remove(file) {
                    self.total -= file.size.unwrap_or(0).min(self.total);
                    self.in_place -= file.at.min(self.in_place);
                }
            }
            Event::Failed { file: None, .. } | Event::Verified { .. } | Event::Warning { .. } => {}
        }
    }

    /// What to write to have the line gone.
    pub(super) fn clear(&mut self) -> &'static str {
        self.drawn = None;
        if std::mem::take(&mut self.is_visible) {
            "\r\x1b[K"
        } else {
            ""
        }
    }

    /// What to write now; none while the last drawing is fresh.
    pub(super) fn draw(&mut self, now: Instant, width: usize) -> Option<String> {
        if self
            .drawn
            .is_some_and(|at| now.duration_since(at) < INTERVAL)
        {
            return None;
        }
        self.rate.update(now, self.moved);
        self.drawn = Some(now);
        if self.files.is_empty() {
            return Some(self.clear().to_owned()).filter(|text| !text.is_empty());
        }
        self.is_visible = true;
        // The last column stays free: some terminals wrap when it is written.
        Some(format!("\r{}\x1b[K", self.line(width - 1)))
    }

    fn line(&self, width: usize) -> String {
        let mut numbers = self.numbers();
        let room = |numbers: &[(u8, String)]| {
            let taken: usize = numbers.iter().map(|(_, text)| 2 + columns(text)).sum();
            width.saturating_sub(taken)
        };
        // Half a number would be a wrong one: it is there or it is not.
        while room(&numbers) < NAME_COLUMNS_MIN && numbers.len() > 1 {
            let least = numbers.iter().map(|(worth, _)| *worth).min();
            numbers.retain(|(worth, _)| Some(*worth) != least);
        }
        let limit = self.limit_text(room(&numbers));
        numbers.extend(limit.map(|text| (0, text)));
        let room = room(&numbers);
        let mut line = shorten(&self.names(), room);
        line.push_str(&" ".repeat(room.saturating_sub(columns(&line))));
        for (_, text) in &numbers {
            line.push_str("  ");
            line.push_str(text);
        }
        shorten(&line, width)
    }

    /// What limits, in as many words as there is room for beside the name.
    fn limit_text(&self, room: usize) -> Option<String> {
        let text = self.limit.as_ref()?.to_string();
        let short = text.split_once(": ").map_or(&*text, |(what, _)| what);
        let forms = [format!("limited by {text}"), format!("limit: {short}")];
        let fits = |form: &String| columns(form) + 2 + NAME_COLUMNS_MIN <= room;
        forms.into_iter().find(fits)
    }

    /// What stands on the right, each with what it is worth where there is little room.
    fn numbers(&self) -> Vec<(u8, String)> {
        let mut numbers = Vec::new();
        let is_whole_known = self.is_whole_known && self.total > 0;
        if is_whole_known {
            let percent = self.in_place.min(self.total) as f64 / self.total as f64 * 100.0;
            numbers.push((4, format!("{:3}%", percent as u64)));
        }
        numbers.push((1, format!("{:>8}", units::bytes(self.in_place))));
        if let Some(rate) = self.rate.smooth {
            numbers.push((2, format!("{:>10}", units::rate(rate))));
            let left = self.total.saturating_sub(self.in_place) as f64;
            if is_whole_known && rate >= 1.0 {
                numbers.push((3, format!("{:>5} left", units::duration(left / rate))));
            }
        }
        numbers
    }

    /// The file that was begun last, and how many others there are.
    fn names(&self) -> String {
        let name = self
            .files
            .values()
            .next_back()
            .map_or("", |file| &file.name);
        match (self.done_files, self.files.len()) {
            (0, 1) => name.to_owned(),
            (done, now) => format!("[{done} done, {now} now] {name}"),
        }
    }
}

/// Columns that a text takes: East Asian wide characters take two, combining ones none.
fn columns(text: &str) -> usize {
    text.chars().map(width_of).sum()
}

fn width_of(c: char) -> usize {
    match u32::from(c) {
        0x300..=0x36f => 0,
        0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff => 2,
        0xfe30..=0xfe6f | 0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1faff => 2,
        0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

/// Takes the middle out of a text that is too long: both ends of a name tell more.
fn shorten(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let keep = width.saturating_sub(1);
    let head = take_columns(text.chars(), keep / 2);
    let tail: Vec<char> = take_columns(text.chars().rev(), keep - columns(&head))
        .chars()
        .collect();
    let middle = if width == 0 { "" } else { "…" };
    let tail: String = tail.into_iter().rev().collect();
    format!("{head}{middle}{tail}")
}

fn take_columns(chars: impl Iterator<Item = char>, width: usize) -> String {
    let mut used = 0;
    chars
        .take_while(|c| {
            used += width_of(*c);
            used <= width
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullbore::path::Flow;

    fn started(bar: &mut Bar, file: u64, source: &[u8], size: u64) {
        bar.notice(&Event::Started {
            file,
            source,
            target: b"t",
            size: Some(size),
        });
    }

    #[test]
    fn one_file_shows_percent_rate_and_time_left() {
        let start = Instant::now();
        let mut bar = Bar::new(start, true);
        started(&mut bar, 0, b"h:dir/big.iso", 200_000_000);
        bar.notice(&Event::Moved {
            file: 0,
            bytes: 50_000_000,
        });
        let text = bar.draw(start + Duration::from_secs(1), 80).expect("due");
        assert!(text.starts_with("\rbig.iso "), "{text:?}");
        assert!(
            text.ends_with(" 25%   50.0 MB   50.0 MB/s   0:03 left\x1b[K"),
            "{text:?}"
        );
        assert_eq!(bar.draw(start + Duration::from_millis(1050), 80), None);
        assert_eq!(columns(&text) - 1 - 3, 79, "all but the last column");
        bar.notice(&Event::Done {
            file: 0,
            bytes: 200_000_000,
        });
        assert_eq!(
            bar.draw(start + Duration::from_secs(2), 80).as_deref(),
            Some("\r\x1b[K")
        );
        assert_eq!(bar.draw(start + Duration::from_secs(3), 80), None);
    }

    #[test]
    fn what_was_there_before_is_no_speed() {
        let start = Instant::now();
        let mut bar = Bar::new(start, true);
        started(&mut bar, 0, b"f", 100);
        bar.notice(&Event::Resumed {
            file: 0,
            offset: 90,
            proof: "x",
        });
        bar.notice(&Event::Moved { file: 0, bytes: 95 });
        assert_eq!((bar.in_place, bar.moved), (95, 5));
        bar.notice(&Event::Failed {
            file: Some(0),
            path: b"f",
            text: "x",
        });
        assert_eq!((bar.in_place, bar.total), (0, 0));
    }

    #[test]
    fn names_never_steer_the_terminal_nor_overflow_it() {
        let start = Instant::now();
        for width in [2, 3, 10, 20, 21, 40, 200] {
            let mut bar = Bar::new(start, true);
            started(
                &mut bar,
                0,
                "dir/\x1b[2J名前名前名前名前名前名前名前名前名前名前.txt".as_bytes(),
                5_000_000_000,
            );
            bar.notice(&Event::Moved {
                file: 0,
                bytes: 4_999_999_999,
            });
            let text = bar
                .draw(start + Duration::from_secs(1), width)
                .expect("due");
            let line = text
                .strip_prefix('\r')
                .and_then(|t| t.strip_suffix("\x1b[K"))
                .expect("framed");
            assert!(!line.contains('\x1b'), "{line:?}");
            assert!(columns(line) < width, "{line:?} in {width}");
        }
    }

    #[test]
    fn in_a_narrow_terminal_numbers_are_whole_or_not_there() {
        let start = Instant::now();
        for (width, expected) in [
            (80, " 40%   80.0 MB   80.0 MB/s   0:01 left"),
            (40, "big.iso     40%   80.0 MB/s   0:01 left"),
            (30, "big.iso       40%   0:01 left"),
            (20, "big.iso         40%"),
        ] {
            let mut bar = Bar::new(start, true);
            started(&mut bar, 0, b"big.iso", 200_000_000);
            bar.notice(&Event::Moved {
                file: 0,
                bytes: 80_000_000,
            });
            bar.draw(start + Duration::from_secs(1), width);
            let line = bar.line(width - 1);
            assert!(line.ends_with(expected), "{line:?} in {width}");
            assert_eq!(columns(&line), width - 1);
        }
    }

    #[test]
    fn what_limits_stands_behind_the_numbers_where_there_is_room() {
        let start = Instant::now();
        let limit = Limit::PeerWindow {
            window: 2 << 20,
            lanes: 1,
            flow: Flow {
                rate: 10_485_760,
                rtt: Some(Duration::from_millis(199)),
                is_sending: true,
            },
        };
        for (width, expected) in [
            (
                120,
                "left  limited by the server's 2 MiB window: 10.5 MB/s at 199 ms",
            ),
            (84, "left  limit: the server's 2 MiB window"),
            (80, "0:01 left"),
        ] {
            let mut bar = Bar::new(start, true);
            started(&mut bar, 0, b"big.iso", 200_000_000);
            bar.notice(&Event::Moved {
                file: 0,
                bytes: 80_000_000,
            });
            bar.limit(Some(limit));
            bar.draw(start + Duration::from_secs(1), width);
            let line = bar.line(width - 1);
            assert!(line.ends_with(expected), "{line:?} in {width}");
            assert_eq!(columns(&line), width - 1);
        }
    }

    #[test]
    fn several_files_are_counted() {
        let mut bar = Bar::new(Instant::now(), false);
        started(&mut bar, 0, b"a", 1);
        started(&mut bar, 1, b"b", 1);
        bar.notice(&Event::Done { file: 0, bytes: 1 });
        started(&mut bar, 2, b"c", 1);
        assert_eq!(bar.names(), "[1 done, 2 now] c");
        assert!(!bar.line(79).contains('%'));
    }

    #[test]
    fn shortening_keeps_both_ends() {
        assert_eq!(shorten("abcdefgh", 8), "abcdefgh");
        assert_eq!(shorten("abcdefgh", 5), "ab…gh");
        assert_eq!(shorten("abcdefgh", 1), "…");
        assert_eq!(shorten("abc", 0), "");
    }
}
