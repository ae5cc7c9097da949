//! Packets that leave: the transport's own messages, messages of the layers above, and the layout
//! for payloads that are written in place.

use super::{Gate, Transport};
use crate::config::PAYLOAD_BYTES_MAX;
use crate::error::{ApiMisuse, Closed, Error};
use crate::msg::{DisconnectReason, SSH_MSG_DISCONNECT, SSH_MSG_NEWKEYS};
use crate::packet::HEADER_LEN;
use crate::wire::Put;
use fullbore_base::{Instant, TxBuf};

/// RFC 4344 3.1: keys should be replaced at the latest after 2^31 packets.
const REKEY_PACKETS_MAX: u64 = 1 << 31;

impl Transport {
    /// Bytes in front of a payload: length word and padding length.
    pub const HEADER_LEN: usize = HEADER_LEN;

    /// Whether messages of the layers above may be sealed now. False until own first NEWKEYS (with
    /// EXT_INFO behind it) is sealed, between own KEXINIT and NEWKEYS later, and on a dead
    /// connection.
    #[must_use]
    pub fn may_send(&self) -> bool {
        self.gate == Gate::Open && self.error.is_none() && !self.sealer.is_exhausted()
    }

    /// Whether packets that leave are compressed: then `seal` is the only way, as lengths are not
    /// known beforehand.
    #[must_use]
    pub const fn compresses(&self) -> bool {
        self.sealer.compresses()
    }

    /// Length on the wire of a packet with that payload, exactly; `None` while packets are
    /// compressed.
    #[must_use]
    pub fn sealed_len(&self, payload_len: usize) -> Option<usize> {
        (!self.sealer.compresses()).then(|| self.sealer.sealed_len(payload_len))
    }

    /// The most that `seal` appends for a message of that length.
    #[must_use]
    pub fn sealed_len_max(&self, message_len: usize) -> usize {
        self.sealer.sealed_len_max(message_len)
    }

    /// Appends one message. `Ok(false)`: `out` has less room than `sealed_len_max` of it.
    ///
    /// # Errors
    /// `SendNotAllowed` while `may_send` is false, `MessageTooLong` past `PAYLOAD_BYTES_MAX` (or
    /// empty), or the error of a dead connection.
    pub fn seal(&mut self, out: &mut TxBuf, message: &[u8]) -> Result<bool, Error> {
        self.check_alive()?;
        if !self.may_send() {
            return Err(ApiMisuse::SendNotAllowed.into());
        }
        if message.is_empty() || message.len() > PAYLOAD_BYTES_MAX {
            return Err(ApiMisuse::MessageTooLong.into());
        }
        Ok(self.append(out, message))
    }

    /// Seals in place, one pass of the cipher and nothing else: the payload lies at
    /// `buf[HEADER_LEN..HEADER_LEN + payload_len]`, header, padding and tag are written around it.
    ///
    /// For several packets in one reservation, seal each in its place in order, each at its exact
    /// `sealed_len`; then commit them all.
    ///
    /// # Panics
    /// When `may_send` is false, packets are compressed, or `buf` is not `sealed_len(payload_len)`
    /// long.
    pub fn seal_at(&mut self, buf: &mut [u8], payload_len: usize) {
        assert!(
            self.may_send() && !self.sealer.compresses(),
            "the caller asked before it laid out"
        );
        assert!(payload_len <= PAYLOAD_BYTES_MAX, "the caller cut it");
        self.sealer.seal_at(buf, payload_len);
    }

    fn append(&mut self, out: &mut TxBuf, message: &[u8]) -> bool {
        let len_max = self.sealer.sealed_len_max(message.len());
        if out.room() < len_max {
            return false;
        }
        let sealed_len = self.sealer.seal_message(out.tail_mut(len_max), message);
        out.commit(sealed_len);
        true
    }

    /// Appends what the transport itself has to send, as far as `out` has room: version line and
    /// KEXINIT at the start, replies, NEWKEYS, and the goodbye of a dead connection. True when
    /// something was appended.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut TxBuf) -> bool {
        self.rekey_if_due(now);
        let mut appended = false;
        if let Some(line) = self.versions.to_send() {
            if out.room() < line.len() {
                return false;
            }
            out.tail_mut(line.len()).copy_from_slice(&line);
            out.commit(line.len());
            self.versions.on_sent();
            appended = true;
        }
        if self.error.is_some() {
            return self.send_goodbye(out) || appended;
        }
        while let Some(message) = self.control.front().map(<[u8]>::to_vec) {
            if self.sealer.is_exhausted() || !self.append(out, &message) {
                break;
            }
            self.control.pop();
            appended = true;
            if message[0] == SSH_MSG_NEWKEYS {
                self.on_newkeys_sealed();
            }
        }
        if self.gate == Gate::Opening && self.control.is_empty() {
            self.gate = Gate::Open;
        }
        appended
    }

    fn send_goodbye(&mut self, out: &mut TxBuf) -> bool {
        let Some(message) = self.goodbye.take() else {
            return false;
        };
        if self.sealer.is_exhausted() {
            return false;
        }
        let sent = self.append(out, &message);
        if !sent {
            self.goodbye = Some(message);
        }
        sent
    }

    /// Asks for new keys now. Does nothing while an exchange is under way.
    ///
    /// # Errors
    /// `WrongState` before authentication, or the error of a dead connection.
    pub fn rekey(&mut self, now: Instant) -> Result<(), Error> {
        self.check_alive()?;
        if !self.is_authenticated {
            return Err(ApiMisuse::WrongState.into());
        }
        if self.exchange.is_idle() {
            self.start_exchange(now)?;
        }
        Ok(())
    }

    /// Starts an exchange when bytes, packets or age of the keys ask for one.
    pub(super) fn rekey_if_due(&mut self, now: Instant) {
        if self.error.is_some() || !self.is_authenticated || !self.exchange.is_idle() {
            return;
        }
        let limits = self.role.transport().rekey;
        let packets_max = limits.packets.min(REKEY_PACKETS_MAX);
        let is_due = self.sealer.direction.bytes() >= limits.bytes
            || self.opener.direction.bytes() >= limits.bytes
            || self.sealer.direction.packets() >= packets_max
            || self.opener.direction.packets() >= packets_max
            || self.rekey_time().is_some_and(|at| at <= now);
        if is_due && let Err(error) = self.start_exchange(now) {
            self.fail(error);
        }
    }
}

/// RFC 4253 11.1. The peer learns the rule that it broke and nothing else.
pub(super) fn disconnect_message(reason: DisconnectReason, error: &Error) -> Vec<u8> {
    let words = match error {
        Error::Closed(Closed::ByUs { description, .. }) => description.clone(),
        Error::Closed(Closed::HostKeyRejected { .. }) => "host key not accepted".to_owned(),
        Error::InvalidMessage(_)
        | Error::PeerMisbehaved(_)
        | Error::PeerIncompatible(_)
        | Error::ApiMisuse(_)
        | Error::Closed(_) => error.to_string(),
    };
    let mut message = vec![SSH_MSG_DISCONNECT];
    message.put_u32(reason.code());
    message.put_string(words.as_bytes());
    message.put_string(b"");
    message
}
