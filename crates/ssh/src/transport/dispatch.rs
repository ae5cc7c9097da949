//! Packets that arrive: opened in place, the transport's own messages handled.

use super::{Transport, ext_info};
use crate::config::EXT_INFO_COUNT_MAX;
use crate::error::{Closed, Error, PeerMisbehaved};
use crate::msg::{
    SSH_MSG_DEBUG, SSH_MSG_DISCONNECT, SSH_MSG_EXT_INFO, SSH_MSG_IGNORE, SSH_MSG_KEXINIT,
    SSH_MSG_NEWKEYS, SSH_MSG_REQUEST_FAILURE, SSH_MSG_REQUEST_SUCCESS, SSH_MSG_SERVICE_ACCEPT,
    SSH_MSG_SERVICE_REQUEST, SSH_MSG_UNIMPLEMENTED, TRANSPORT_MESSAGE_MAX,
};
use crate::wire::{Put, Reader};
use fullbore_base::Instant;
use zeroize::Zeroize;

/// Of the peer's words in DISCONNECT.
const DESCRIPTION_BYTES_MAX: usize = 1024;

impl Transport {
    /// Drops the current packet and opens the next in place.
    ///
    /// True: `payload` is a message of the layers above (5, 6, and from 50). False: more input is
    /// needed, or `host_key` waits for its verdict, or `poll_transmit` must run first. Messages 1
    /// to 49 other than 5 and 6 are handled inside.
    ///
    /// # Errors
    /// What the connection dies of, also on every later call.
    pub fn next_packet(&mut self, now: Instant) -> Result<bool, Error> {
        self.check_alive()?;
        match self.advance(now) {
            Ok(found) => Ok(found),
            Err(error) => {
                self.fail(error.clone());
                Err(error)
            }
        }
    }

    fn advance(&mut self, now: Instant) -> Result<bool, Error> {
        self.drop_current();
        loop {
            while !self.versions.is_known() {
                match self.versions.handle_line(self.rx.bytes())? {
                    Some(line_len) => self.rx.consume(line_len),
                    None => return Ok(false),
                }
            }
            if self.control.is_full() || self.host_key().is_some() || self.is_holding(now)? {
                return Ok(false);
            }
            self.current = self.opener.open(self.rx.bytes_mut())?;
            if self.current.is_none() {
                return Ok(false);
            }
            if self.dispatch(now)? {
                return Ok(true);
            }
            self.drop_current();
        }
    }

    fn drop_current(&mut self) {
        if let Some(packet) = self.current.take() {
            self.rx.consume(packet.wire_len);
        }
    }

    /// The current message, number first; empty when there is none.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        match &self.current {
            None => &[],
            Some(packet) => match &packet.payload {
                Some(range) => &self.rx.bytes()[range.clone()],
                None => self.opener.inflated(),
            },
        }
    }

    /// Overwrites the current message where it lies: it held a secret.
    pub(crate) fn wipe_payload(&mut self) {
        let packet = self.current.as_ref();
        if let Some(range) = packet.and_then(|packet| packet.payload.clone()) {
            self.rx.bytes_mut()[range].zeroize();
        }
    }

    /// Answers the current message with UNIMPLEMENTED. What waits to be sent is bounded by
    /// `CONTROL_BYTES_MAX`: past it no further packet is opened until it is gone.
    pub fn reject_unknown(&mut self) {
        let mut message = vec![SSH_MSG_UNIMPLEMENTED];
        message.put_u32(self.opener.last_sequence());
        self.control.push(message);
    }

    /// True: the current message is for the layers above.
    fn dispatch(&mut self, now: Instant) -> Result<bool, Error> {
        let message = self.payload()[0];
        self.check_phase(message)?;
        match message {
            SSH_MSG_DISCONNECT => Err(self.on_disconnect()?),
            SSH_MSG_IGNORE | SSH_MSG_DEBUG | SSH_MSG_UNIMPLEMENTED => Ok(false),
            SSH_MSG_SERVICE_REQUEST | SSH_MSG_SERVICE_ACCEPT => Ok(true),
            SSH_MSG_EXT_INFO => self.on_ext_info().map(|()| false),
            SSH_MSG_KEXINIT => self.on_kexinit(now).map(|()| false),
            SSH_MSG_NEWKEYS => self.on_newkeys(now).map(|()| false),
            30..=TRANSPORT_MESSAGE_MAX => self.on_method_message(message).map(|()| false),
            0..=TRANSPORT_MESSAGE_MAX => {
                self.reject_unknown();
                Ok(false)
            }
            _ => Ok(true),
        }
    }

    /// Whether the state of the exchange allows the message. Which message the exchange itself
    /// needs is for its steps to say.
    fn check_phase(&mut self, message: u8) -> Result<(), Error> {
        let is_kex = matches!(message, SSH_MSG_KEXINIT | SSH_MSG_NEWKEYS | 30..=49);
        if message == SSH_MSG_DISCONNECT {
            return Ok(());
        }
        if message != SSH_MSG_KEXINIT {
            self.exchange.note_early(message);
        }
        if is_kex {
            return Ok(());
        }
        if self.exchange.is_strict_phase() {
            return Err(PeerMisbehaved::StrictKexViolation { message }.into());
        }
        let is_above = message > TRANSPORT_MESSAGE_MAX;
        let is_service = matches!(
            message,
            SSH_MSG_SERVICE_REQUEST | SSH_MSG_SERVICE_ACCEPT | SSH_MSG_EXT_INFO
        );
        if !(is_above || is_service) {
            return Ok(());
        }
        if !self.opener.direction.has_key() {
            return Err(PeerMisbehaved::UnexpectedMessage { message }.into());
        }
        if self.exchange.is_remote_in_kex() && !self.is_late_reply(message) {
            return Err(PeerMisbehaved::DataDuringKex { message }.into());
        }
        Ok(())
    }

    /// Departure from RFC 4253 7.1: paramiko answers global requests, keepalives and measurements among them,
    /// also between its KEXINIT and its NEWKEYS. In a later exchange the answers are let through.
    const fn is_late_reply(&self, message: u8) -> bool {
        let is_reply = matches!(message, SSH_MSG_REQUEST_SUCCESS | SSH_MSG_REQUEST_FAILURE);
        is_reply && self.is_authenticated
    }

    /// The error that the peer's DISCONNECT is.
    fn on_disconnect(&self) -> Result<Error, Error> {
        let mut fields = Reader::new(&self.payload()[1..]);
        let reason = fields.u32()?;
        let words = fields.string()?;
        // The language tag is left out by some peers; nobody reads it.
        let words = &words[..words.len().min(DESCRIPTION_BYTES_MAX)];
        Ok(Closed::ByPeer {
            reason,
            description: String::from_utf8_lossy(words).into_owned(),
        }
        .into())
    }

    fn on_ext_info(&mut self) -> Result<(), Error> {
        self.ext_info_count += 1;
        if self.ext_info_count > EXT_INFO_COUNT_MAX {
            return Err(PeerMisbehaved::TooManyExtensions.into());
        }
        let mut extensions = std::mem::take(&mut self.extensions);
        ext_info::parse(self.payload(), &mut extensions)?;
        self.extensions = extensions;
        Ok(())
    }
}
