//! What goes out, and in which order: control messages, window adjusts, then the channels in turn.

use super::dispatch::{DATA_HEADER_LEN, EXTENDED_HEADER_LEN};
use super::outlet::write_data_header;
use super::{Connection, EAGER_BYTES_MAX, EAGER_MAXPACKET, MAXPACKET_MAX};
use crate::channel::output::Early;
use crate::channel::window::RemoteWindow;
use crate::channel::{Exit, Remote, Signs, State, Stream, request};
use crate::error::Error;
use crate::msg::{
    SSH_MSG_CHANNEL_CLOSE, SSH_MSG_CHANNEL_EOF, SSH_MSG_CHANNEL_EXTENDED_DATA,
    SSH_MSG_CHANNEL_WINDOW_ADJUST,
};
use crate::transport::Transport;
use crate::wire::Put;
use fullbore_base::{Instant, TxBuf};

/// Staged bytes that a channel sends before the next has its turn.
const QUANTUM_BYTES: usize = 64 * 1024;

/// How a channel's turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It has nothing more that may go now.
    Over,
    /// It has more, and others are next.
    More,
    /// `out` has no room.
    NoRoom,
}

impl Connection {
    pub(super) fn transmit(&mut self, now: Instant, out: &mut TxBuf) {
        let is_flushed = self.control.is_empty();
        self.liveness
            .on_output(now, out.pending().len(), is_flushed);
        self.fill(now, out);
        self.liveness.on_appended(out.pending().len());
    }

    fn fill(&mut self, now: Instant, out: &mut TxBuf) {
        if !self.transmit_control(now, out) {
            return;
        }
        while let Some(slot) = self.table.pop_send() {
            let turn = self.take_turn(now, slot, out);
            match self.keep_error(turn) {
                Ok(Turn::Over) => {}
                Ok(Turn::More) => self.table.list_send(slot),
                Ok(Turn::NoRoom) => return self.table.unpop_send(slot),
                Err(_) => {
                    self.transport.poll_transmit(now, out);
                    return;
                }
            }
        }
    }

    /// Sends what goes before channel data. True when all of it went and channel data may follow.
    fn transmit_control(&mut self, now: Instant, out: &mut TxBuf) -> bool {
        self.transport.poll_transmit(now, out);
        if self.error().is_some() || !self.transport.may_send() {
            return false;
        }
        let result = self.send_control(now, out);
        self.keep_error(result) == Ok(true)
    }

    fn send_control(&mut self, now: Instant, out: &mut TxBuf) -> Result<bool, Error> {
        if !self.is_authenticated() && !self.send_login(now, out)? {
            return Ok(false);
        }
        while let Some(message) = self.control.front() {
            if !seal(&mut self.transport, out, message)? {
                return Ok(false);
            }
            self.control.pop();
        }
        while let Some(slot) = self.table.adjusts.front().copied() {
            if !self.send_adjust(now, slot, out)? {
                return Ok(false);
            }
            self.table.pop_adjust();
        }
        Ok(true)
    }

    /// One adjust for all that was consumed since the last.
    fn send_adjust(&mut self, now: Instant, slot: usize, out: &mut TxBuf) -> Result<bool, Error> {
        let channel = self.table.listed(slot);
        let Some(remote) = channel
            .remote
            .as_ref()
            .filter(|_| !channel.output.close.is_sent() && !channel.input.is_eof)
        else {
            return Ok(true);
        };
        const LEN: usize = 9;
        if !self.transport.may_send() || out.room() < self.transport.sealed_len_max(LEN) {
            return Ok(false);
        }
        let remote_id = remote.id;
        let credit = self.take_credit(now, slot);
        if credit == 0 {
            return Ok(true);
        }
        self.scratch.clear();
        self.scratch.put_u8(SSH_MSG_CHANNEL_WINDOW_ADJUST);
        self.scratch.put_u32(remote_id);
        self.scratch.put_u32(credit);
        self.stats.adjusts_sent += 1;
        seal(&mut self.transport, out, &self.scratch)
    }

    fn take_turn(&mut self, now: Instant, slot: usize, out: &mut TxBuf) -> Result<Turn, Error> {
        if !self.transport.may_send() {
            return Ok(Turn::NoRoom);
        }
        let Some(channel) = self.table.at(slot) else {
            return Ok(Turn::Over);
        };
        let is_eager = channel.output.is_eager;
        let may_go = self.is_authenticated() || is_eager && self.may_precede_success();
        if !may_go {
            return Ok(Turn::Over);
        }
        if channel.output.opening.is_some() && !self.send_opening(slot, out)? {
            return Ok(Turn::NoRoom);
        }
        let Some(channel) = self.table.at(slot) else {
            return Ok(Turn::Over);
        };
        if channel.remote.is_none() || channel.state == State::Asked {
            return Ok(Turn::Over);
        }
        if !self.send_requests(slot, out)? {
            return Ok(Turn::NoRoom);
        }
        for stream in [Stream::Data, Stream::Stderr] {
            let turn = self.send_staged(now, slot, stream, out)?;
            if turn != Turn::Over {
                return Ok(turn);
            }
        }
        let channel = self.table.listed(slot);
        if channel.output.has_data() || channel.state != State::Open {
            return Ok(Turn::Over);
        }
        self.send_end(slot, out)
    }

    fn send_opening(&mut self, slot: usize, out: &mut TxBuf) -> Result<bool, Error> {
        let maxpacket = self.local_maxpacket();
        let precedes_confirmation = self.may_precede_confirmation();
        let channel = self.table.listed(slot);
        let is_ahead = channel.output.is_eager && precedes_confirmation;
        let Some(mut message) = channel.output.opening.take() else {
            return Ok(true);
        };
        Self::finish_opening(&mut message, maxpacket);
        if !seal(&mut self.transport, out, &message)? {
            channel.output.opening = Some(message);
            return Ok(false);
        }
        if is_ahead {
            self.was_ahead_of_success |= !self.login.is_done();
            // The first channel of a connection has the lowest number on both sides.
            channel.remote = Some(Remote {
                id: 0,
                window: RemoteWindow::new(EAGER_BYTES_MAX, EAGER_MAXPACKET)?,
            });
            channel.output.early = Some(Box::new(Early {
                opening: message,
                ..Early::default()
            }));
        }
        Ok(true)
    }

    fn send_requests(&mut self, slot: usize, out: &mut TxBuf) -> Result<bool, Error> {
        let channel = self.table.listed(slot);
        let Some(remote) = &channel.remote else {
            return Ok(true);
        };
        let output = &mut channel.output;
        while let Some(message) = output.requests.front() {
            self.scratch.clear();
            self.scratch.put_raw(message);
            request::address(&mut self.scratch, remote.id);
            if !seal(&mut self.transport, out, &self.scratch)? {
                return Ok(false);
            }
            if let Some(early) = &mut output.early {
                early.requests.push(message.to_vec());
            }
            output.requests.pop();
        }
        Ok(true)
    }

    /// Sends staged bytes of one stream, up to the quantum.
    fn send_staged(
        &mut self,
        now: Instant,
        slot: usize,
        stream: Stream,
        out: &mut TxBuf,
    ) -> Result<Turn, Error> {
        let mut sent = 0;
        loop {
            let channel = self.table.listed(slot);
            let (queue, header_len) = match stream {
                Stream::Data => (&mut channel.output.staging, DATA_HEADER_LEN),
                Stream::Stderr => (&mut channel.output.stderr, EXTENDED_HEADER_LEN),
            };
            let Some(remote) = channel.remote.as_mut().filter(|_| !queue.is_empty()) else {
                if sent > 0 && std::mem::take(&mut channel.output.is_wanted) {
                    self.table.tell(slot, Signs::WRITABLE);
                }
                return Ok(Turn::Over);
            };
            let window = &mut remote.window;
            if window.window() == 0 {
                window.on_limited(now);
                return Ok(Turn::Over);
            }
            if sent >= QUANTUM_BYTES {
                return Ok(Turn::More);
            }
            let limit = window.window().min(window.maxpacket()).min(MAXPACKET_MAX);
            let mut len = queue.len().min(limit as usize);
            while let over @ 1.. = self
                .transport
                .sealed_len_max(header_len + len)
                .saturating_sub(out.room())
            {
                // A shorter packet only where waiting for the socket would not help.
                len = len.saturating_sub(over);
                if !out.is_empty() || len == 0 {
                    return Ok(Turn::NoRoom);
                }
            }
            let bytes = &queue.as_slice()[..len];
            if !seal_data(
                &mut self.transport,
                &mut self.scratch,
                out,
                remote.id,
                stream,
                bytes,
            )? {
                return Ok(Turn::NoRoom);
            }
            if let Some(early) = &mut channel.output.early {
                early.data.extend_from_slice(bytes);
            }
            queue.consume(len);
            window.take(len);
            sent += len;
            self.stats.channel_bytes_sent += len as u64;
        }
    }

    /// EOF, exit and CLOSE, each when it is due.
    fn send_end(&mut self, slot: usize, out: &mut TxBuf) -> Result<Turn, Error> {
        let channel = self.table.listed(slot);
        let Some(remote_id) = channel.remote.as_ref().map(|r| r.id) else {
            return Ok(Turn::Over);
        };
        let output = &mut channel.output;
        if output.close.is_sent() {
            return Ok(Turn::Over);
        }
        let mut send = |message: &mut dyn FnMut(&mut Vec<u8>)| {
            self.scratch.clear();
            message(&mut self.scratch);
            seal(&mut self.transport, out, &self.scratch)
        };
        if output.eof.is_due() && !channel.input.is_closed {
            if !send(&mut |m| {
                m.put_u8(SSH_MSG_CHANNEL_EOF);
                m.put_u32(remote_id);
            })? {
                return Ok(Turn::NoRoom);
            }
            output.eof.mark_sent();
        }
        if let Some(exit) = &output.exit {
            if !send(&mut |m| write_exit(m, remote_id, exit))? {
                return Ok(Turn::NoRoom);
            }
            output.exit = None;
        }
        if output.close.is_due() {
            if !send(&mut |m| {
                m.put_u8(SSH_MSG_CHANNEL_CLOSE);
                m.put_u32(remote_id);
            })? {
                return Ok(Turn::NoRoom);
            }
            output.close.mark_sent();
            self.finish_if_closed(slot);
        }
        Ok(Turn::Over)
    }
}

/// Appends a message; false when `out` has no room or a key exchange is under way.
pub(super) fn seal(
    transport: &mut Transport,
    out: &mut TxBuf,
    message: &[u8],
) -> Result<bool, Error> {
    if transport.may_send() {
        transport.seal(out, message)
    } else {
        Ok(false)
    }
}

/// Appends a packet of channel data; false when `out` has no room.
fn seal_data(
    transport: &mut Transport,
    scratch: &mut Vec<u8>,
    out: &mut TxBuf,
    remote_id: u32,
    stream: Stream,
    bytes: &[u8],
) -> Result<bool, Error> {
    if stream == Stream::Data
        && let Some(sealed_len) = transport.sealed_len(DATA_HEADER_LEN + bytes.len())
    {
        if sealed_len > out.room() || !transport.may_send() {
            return Ok(false);
        }
        let packet = out.tail_mut(sealed_len);
        let payload = &mut packet[Transport::HEADER_LEN..];
        write_data_header(payload, remote_id, bytes.len());
        payload[DATA_HEADER_LEN..DATA_HEADER_LEN + bytes.len()].copy_from_slice(bytes);
        transport.seal_at(packet, DATA_HEADER_LEN + bytes.len());
        out.commit(sealed_len);
        return Ok(true);
    }
    scratch.clear();
    match stream {
        Stream::Data => {
            scratch.resize(DATA_HEADER_LEN, 0);
            write_data_header(scratch, remote_id, bytes.len());
            scratch.put_raw(bytes);
        }
        Stream::Stderr => {
            scratch.put_u8(SSH_MSG_CHANNEL_EXTENDED_DATA);
            scratch.put_u32(remote_id);
            scratch.put_u32(1);
            scratch.put_string(bytes);
        }
    }
    seal(transport, out, scratch)
}

fn write_exit(message: &mut Vec<u8>, remote_id: u32, exit: &Exit) {
    match exit {
        Exit::Status(status) => {
            request::start(message, "exit-status", false);
            message.put_u32(*status);
        }
        Exit::Signal(name) => {
            request::start(message, "exit-signal", false);
            message.put_string(name.as_bytes());
            message.put_bool(false);
            message.put_string(b"");
            message.put_string(b"");
        }
    }
    request::address(message, remote_id);
}
