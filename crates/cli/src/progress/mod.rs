//! What a copy shows while it runs: a line that changes on a terminal, JSON lines, or nothing.

mod bar;
mod json;
mod units;
mod watched;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::time::Instant;

use fullbore::config::text::escape_for_display;
use fullbore::transfer::{Event, Observer, SftpSide, Summary};

use crate::output;
use crate::plan::{CopyPlan, Report};
use bar::Bar;
pub(crate) use json::Object;
use watched::{Silence, Watched};

/// Incomplete files that are named, of those that were written to under their final names.
const IN_PLACE_TOLD_MAX: usize = 10;

/// Watches a copy for a person or a program.
pub(crate) struct Progress {
    report: Report,
    verbosity: u8,
    started: Instant,
    /// Whether a copy that ends early leaves something that the next run goes on with.
    can_resume: bool,
    has_begun: Cell<bool>,
    /// Final names that are being written to directly, by number; none where files have temporary ones.
    in_place: Option<RefCell<BTreeMap<u64, Vec<u8>>>>,
    /// None without a terminal.
    bar: Option<RefCell<Bar>>,
    connections: RefCell<Watched>,
}

impl Progress {
    /// Watches from now on.
    pub(crate) fn new(plan: &CopyPlan) -> Progress {
        let has_bar = plan.report == Report::Person && std::io::stderr().is_terminal();
        let started = Instant::now();
        // Of a tree nobody knows the whole size while it is walked.
        let is_whole_known = !plan.options.recursive;
        Progress {
            report: plan.report,
            verbosity: plan.verbosity,
            started,
            can_resume: plan.options.resume && !plan.options.in_place,
            has_begun: Cell::new(false),
            in_place: plan.options.in_place.then(RefCell::default),
            bar: has_bar.then(|| RefCell::new(Bar::new(started, is_whole_known))),
            connections: RefCell::default(),
        }
    }

    /// Tells from now on what limits on the connections to this place, too.
    pub(crate) fn watch(&self, side: SftpSide) {
        self.connections.borrow_mut().add(side);
    }

    /// Looks at the connections, also while nothing moves; to be called some times a second.
    pub(crate) fn tick(&self) {
        for (place, interval) in self.connections.borrow_mut().news() {
            if self.report == Report::Json {
                output::print(&json::path(&place, &interval));
            }
        }
        let silences = self.connections.borrow_mut().silences();
        for (place, silence) in silences {
            self.tell_silence(&place, silence);
        }
        if let Some(bar) = &self.bar {
            let mut bar = bar.borrow_mut();
            bar.limit(self.connections.borrow().limit());
            draw(&mut bar);
        }
    }

    /// Says that a place does not answer, and when it does again.
    fn tell_silence(&self, place: &str, silence: Silence) {
        match self.report {
            Report::Quiet => {}
            Report::Json => output::print(&json::silence(place, silence)),
            Report::Person => {
                let place = place.trim_end_matches([':', '/']);
                let place = escape_for_display(place.as_bytes());
                self.say(&match silence {
                    Silence::Began(lasted, patience) => format!(
                        "fullbore: {place}: no answer for {} s; given up after {} s",
                        lasted.as_secs(),
                        patience.as_secs()
                    ),
                    Silence::Ended(lasted) => format!(
                        "fullbore: {place}: no longer silent, after {} s",
                        lasted.as_secs()
                    ),
                });
            }
        }
    }

    /// Says what came of it.
    pub(crate) fn finish(&self, summary: &Summary) {
        let seconds = self.started.elapsed().as_secs_f64();
        self.tick();
        let totals = self.connections.borrow().totals();
        match self.report {
            Report::Quiet => {}
            Report::Json => output::print(&json::summary(summary, seconds, &totals)),
            Report::Person => self.say(&units::summary(summary, seconds, &totals)),
        }
    }

    /// Says why there is no connection to `place`, without which nothing is begun.
    pub(crate) fn no_connection(&self, place: &str, why: &str) {
        if self.report != Report::Json {
            return self.say(&format!("fullbore: {why}"));
        }
        self.notice(&Event::Failed {
            file: None,
            path: place.as_bytes(),
            text: why,
        });
        self.finish(&Summary {
            failed: 1,
            ..Summary::default()
        });
    }

    /// Says that a copy ended early, and what to do about it.
    pub(crate) fn ended_early(&self, why: &str) {
        let advice = match self.can_resume && self.has_begun.get() {
            true => "; the same command goes on with what was under way",
            false => "",
        };
        self.say(&format!("fullbore: {why}{advice}"));
        let in_place = self.in_place.as_ref().map(RefCell::take);
        let rest = in_place.unwrap_or_default();
        for target in rest.values().take(IN_PLACE_TOLD_MAX) {
            self.say(&format!(
                "fullbore: {}: incomplete, perhaps with holes (then its sticky bit is set): copy it again",
                escape_for_display(target)
            ));
        }
        if rest.len() > IN_PLACE_TOLD_MAX {
            let more = rest.len() - IN_PLACE_TOLD_MAX;
            self.say(&format!("fullbore: {more} more files likewise"));
        }
    }

    /// Keeps which files are being written to under their final names.
    fn note_in_place(&self, event: &Event<'_>) {
        let Some(in_place) = &self.in_place else {
            return;
        };
        match event {
            Event::Started { file, target, .. } => {
                in_place.borrow_mut().insert(*file, target.to_vec());
            }
            Event::Done { file, .. }
            | Event::Failed {
                file: Some(file), ..
            } => {
                in_place.borrow_mut().remove(file);
            }
            Event::Failed { file: None, .. }
            | Event::Resumed { .. }
            | Event::Moved { .. }
            | Event::Verified { .. }
            | Event::Warning { .. } => {}
        }
    }

    /// Writes a line above the bar.
    pub(crate) fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => {
                let clear = bar.borrow_mut().clear();
                output::print_error(&format!("{clear}{line}\n"));
            }
            None => output::error(line),
        }
    }

    fn tell_person(&self, event: &Event<'_>) {
        match event {
            Event::Warning { path, text } if self.report == Report::Person => {
                self.say(&format!(
                    "fullbore: warning: {}: {text}",
                    escape_for_display(path)
                ));
            }
            Event::Failed { path, text, .. } => {
                self.say(&format!("fullbore: {}: {text}", escape_for_display(path)));
            }
            Event::Resumed { offset, proof, .. } if self.verbosity > 0 => {
                self.say(&format!(
                    "resumed behind {} ({proof})",
                    units::bytes(*offset)
                ));
            }
            Event::Verified { method, .. } if self.verbosity > 0 => {
                self.say(&format!("verified: {method}"));
            }
            Event::Started { source, target, .. } if self.verbosity > 0 => {
                let (source, target) = (escape_for_display(source), escape_for_display(target));
                self.say(&format!("{source} -> {target}"));
            }
            Event::Warning { .. }
            | Event::Resumed { .. }
            | Event::Verified { .. }
            | Event::Started { .. }
            | Event::Moved { .. }
            | Event::Done { .. } => {}
        }
    }
}

impl Observer for Progress {
    fn notice(&self, event: &Event<'_>) {
        if matches!(event, Event::Started { .. }) {
            self.has_begun.set(true);
        }
        self.note_in_place(event);
        if self.report == Report::Json {
            if let Some(line) = json::event(event) {
                output::print(&line);
            }
            return;
        }
        self.tell_person(event);
        if let Some(bar) = &self.bar {
            let mut bar = bar.borrow_mut();
            bar.notice(event);
            draw(&mut bar);
        }
    }
}

fn draw(bar: &mut Bar) {
    if let Some(text) = bar.draw(Instant::now(), terminal_width()) {
        output::print_error(&text);
    }
}

/// A line needs the last column free, and one more.
const WIDTH_MIN: usize = 2;

/// Columns of the terminal behind the standard error; some say 0 when they do not know.
fn terminal_width() -> usize {
    match rustix::termios::tcgetwinsize(std::io::stderr()) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col).max(WIDTH_MIN),
        _ => 80,
    }
}
