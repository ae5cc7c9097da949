//! Channel requests, asked and answered (RFC 4254 5.4 and section 6).

use super::channels::no_channel;
use super::{Connection, REQUESTS_AWAITED_MAX};
use crate::channel::request::{self, ChannelRequest, TerminalSize};
use crate::channel::{ChannelId, Signs};
use crate::error::{ApiMisuse, Error};
use crate::msg::{SSH_MSG_CHANNEL_FAILURE, SSH_MSG_CHANNEL_SUCCESS, SSH_MSG_CHANNEL_WINDOW_ADJUST};
use crate::wire::Put;

impl Connection {
    /// Asks the server to run a command line; `RequestDone` tells whether it does.
    ///
    /// # Errors
    /// `ApiMisuse`: no such channel, or the queue of requests is full.
    pub fn exec(&mut self, ch: ChannelId, command: &[u8]) -> Result<(), Error> {
        self.request(ch, "exec", true, |m| m.put_string(command))
    }

    /// Asks the server to run a subsystem, such as `sftp`; `RequestDone` tells whether it does.
    ///
    /// # Errors
    /// As [`Connection::exec`].
    pub fn subsystem(&mut self, ch: ChannelId, name: &str) -> Result<(), Error> {
        self.request(ch, "subsystem", true, |m| m.put_string(name.as_bytes()))
    }

    /// Asks the server to run the user's shell; `RequestDone` tells whether it does.
    ///
    /// # Errors
    /// As [`Connection::exec`].
    pub fn shell(&mut self, ch: ChannelId) -> Result<(), Error> {
        self.request(ch, "shell", true, |_| {})
    }

    /// Sets an environment variable for the program to come. No answer is asked for: most servers
    /// refuse most of them.
    ///
    /// # Errors
    /// As [`Connection::exec`].
    pub fn env(&mut self, ch: ChannelId, name: &[u8], value: &[u8]) -> Result<(), Error> {
        self.request(ch, "env", false, |m| {
            m.put_string(name);
            m.put_string(value);
        })
    }

    /// Asks for a terminal; `RequestDone` tells whether there is one. `modes` as in RFC 4254 section
    /// 8.
    ///
    /// # Errors
    /// As [`Connection::exec`].
    pub fn pty(
        &mut self,
        ch: ChannelId,
        term: &str,
        size: TerminalSize,
        modes: &[u8],
    ) -> Result<(), Error> {
        self.request(ch, "pty-req", true, |m| {
            m.put_string(term.as_bytes());
            for n in [size.columns, size.rows, size.width, size.height] {
                m.put_u32(n);
            }
            m.put_string(modes);
        })
    }

    /// Sends a signal to the program; the name is without `SIG`.
    ///
    /// # Errors
    /// As [`Connection::exec`].
    pub fn signal(&mut self, ch: ChannelId, name: &str) -> Result<(), Error> {
        self.request(ch, "signal", false, |m| m.put_string(name.as_bytes()))
    }

    fn request(
        &mut self,
        ch: ChannelId,
        name: &str,
        want_reply: bool,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Error> {
        self.alive()?;
        let channel = self.table.by_id_mut(ch).ok_or_else(no_channel)?;
        let output = &mut channel.output;
        if channel.input.is_closed || output.close.is_asked_here() {
            return Err(Self::misuse(ApiMisuse::WrongState));
        }
        if want_reply && output.awaited >= REQUESTS_AWAITED_MAX {
            return Err(Self::misuse(ApiMisuse::LimitReached));
        }
        request::start(&mut self.scratch, name, want_reply);
        body(&mut self.scratch);
        if !output.requests.push(&self.scratch) {
            return Err(Self::misuse(ApiMisuse::LimitReached));
        }
        output.awaited += usize::from(want_reply);
        self.table.list_send(ch.slot as usize);
        Ok(())
    }

    /// Server: the oldest unanswered request on the channel.
    #[must_use]
    pub fn channel_request(&self, ch: ChannelId) -> Option<ChannelRequest<'_>> {
        Some(self.table.by_id(ch)?.requests.front()?.0)
    }

    /// Server: grants or refuses the oldest unanswered request; every request needs this, whether
    /// its sender wants to know or not.
    ///
    /// # Errors
    /// `ApiMisuse`: no such channel, or no request.
    pub fn answer_request(&mut self, ch: ChannelId, ok: bool) -> Result<(), Error> {
        self.alive()?;
        let channel = self.table.by_id_mut(ch).ok_or_else(no_channel)?;
        if channel.requests.is_empty() {
            return Err(Self::misuse(ApiMisuse::WrongState));
        }
        if ok && self.config.withholds_window {
            self.grant_withheld(ch.slot as usize);
        }
        self.pop_request(ch.slot as usize, ok);
        self.next_request(ch.slot as usize);
        Ok(())
    }

    /// Gives the window that the confirmation withheld; bytes that are here already count against it.
    fn grant_withheld(&mut self, slot: usize) {
        let channel = self.table.listed(slot);
        let Some(remote_id) = channel.remote.as_ref().map(|remote| remote.id) else {
            return;
        };
        let credit = channel.input.window.take_adjust(u32::MAX);
        if credit > 0 {
            self.scratch.clear();
            self.scratch.put_u8(SSH_MSG_CHANNEL_WINDOW_ADJUST);
            self.scratch.put_u32(remote_id);
            self.scratch.put_u32(credit);
            self.queue_scratch();
        }
    }

    fn pop_request(&mut self, slot: usize, ok: bool) {
        let requests = &mut self.table.listed(slot).requests;
        let was_full = requests.is_full();
        let want_reply = requests.pop(ok);
        self.full_requests -= usize::from(was_full && !requests.is_full());
        if want_reply {
            self.reply_to_request(slot, ok);
        }
    }

    /// Answers what needs no application, and tells it of the next request that does.
    pub(super) fn next_request(&mut self, slot: usize) {
        while self.table.listed(slot).requests.is_front_refused() {
            self.pop_request(slot, false);
        }
        if !self.table.listed(slot).requests.is_empty() {
            self.table.tell(slot, Signs::REQUEST);
        }
    }

    /// Queues CHANNEL_SUCCESS or CHANNEL_FAILURE, unless our CLOSE has gone.
    pub(super) fn reply_to_request(&mut self, slot: usize, ok: bool) {
        let Some(channel) = self.table.at(slot) else {
            return;
        };
        let Some(remote) = channel
            .remote
            .as_ref()
            .filter(|_| !channel.output.close.is_sent() && !channel.input.is_closed)
        else {
            return;
        };
        self.scratch.clear();
        self.scratch.put_u8(if ok {
            SSH_MSG_CHANNEL_SUCCESS
        } else {
            SSH_MSG_CHANNEL_FAILURE
        });
        self.scratch.put_u32(remote.id);
        self.queue_scratch();
    }
}
