//! When the next received packet may be opened, and the events that come of it.

use super::event::Event;
use super::{CONTROL_BYTES_MAX, Connection};
use crate::channel::Signs;
use crate::error::{Closed, Error};
use fullbore_base::Instant;

impl Connection {
    /// Opens received packets until there is something to tell. `None`: more input is needed, or
    /// replies wait for `poll_transmit`, or the application owes an answer.
    #[must_use]
    pub fn poll_event(&mut self, now: Instant) -> Option<Event> {
        self.retire();
        loop {
            if let Some(event) = self.next_event() {
                return Some(event);
            }
            if self.error().is_some() {
                return (!std::mem::replace(&mut self.is_closed_told, true))
                    .then_some(Event::Closed);
            }
            if self.is_gated() {
                if self.is_reset {
                    self.fail(Error::Closed(Closed::Eof));
                    continue;
                }
                return None;
            }
            self.settle_lent();
            let opened = self.transport.next_packet(now);
            match self.keep_error(opened) {
                Ok(true) => {
                    let handled = self.dispatch(now);
                    // The error is kept; the loop tells it.
                    let _kept = self.keep_error(handled);
                }
                Ok(false) => {
                    self.after_transport();
                    if self.signs.is_empty() && !self.end_of_input(now) {
                        return None;
                    }
                }
                Err(_) => {}
            }
        }
    }

    /// Whether no packet may be opened: what earlier ones asked for is not out of the way.
    pub(super) fn is_gated(&self) -> bool {
        self.control.len() >= CONTROL_BYTES_MAX
            || self.full_requests > 0
            || self.asked.is_some()
            || self.login.is_answer_owed()
    }

    /// Everything that came before the end of the stream is opened: ends the connection. False when
    /// the stream has not ended, or its rest waits.
    fn end_of_input(&mut self, now: Instant) -> bool {
        if !self.is_eof {
            return false;
        }
        if self.transport.host_key().is_some() {
            return false;
        }
        if self.transport.handle_eof(now).is_ok() && self.error().is_none() {
            self.fail(Error::Closed(Closed::Eof));
        }
        true
    }

    /// Takes the next thing to tell, of the connection first.
    fn next_event(&mut self) -> Option<Event> {
        if let Some(event) = self.signs.take_first() {
            return Some(event);
        }
        let (slot, sign) = loop {
            let (slot, sign) = self.table.take_sign()?;
            // Its last bytes may have been lent out when the end was noted: consuming them notes it
            // again.
            if sign != Signs::CLOSED || self.is_finished(slot) {
                break (slot, sign);
            }
        };
        let channel = self.table.listed(slot);
        let id = channel.id;
        let event = match sign {
            Signs::OPEN => Event::ChannelOpen(id),
            Signs::OPENED => Event::Opened(id),
            Signs::OPEN_FAILED => {
                self.retired = Some(slot);
                Event::OpenFailed(id)
            }
            Signs::REQUEST => Event::Request(id),
            Signs::REQUEST_DONE => Event::RequestDone {
                ch: id,
                ok: channel.pending.request_ok,
            },
            Signs::READABLE => Event::Readable(id),
            Signs::READABLE_STDERR => Event::ReadableStderr(id),
            Signs::WRITABLE => Event::Writable(id),
            Signs::EXIT_STATUS => Event::ExitStatus(id, channel.pending.exit_status),
            Signs::EXIT_SIGNAL => Event::ExitSignal(id),
            Signs::EOF => Event::Eof(id),
            _ => {
                self.retired = Some(slot);
                Event::ChannelClosed(id)
            }
        };
        Some(event)
    }

    /// Removes the channel whose last event was told.
    fn retire(&mut self) {
        if let Some(slot) = self.retired.take() {
            self.forget(slot);
        }
    }
}
