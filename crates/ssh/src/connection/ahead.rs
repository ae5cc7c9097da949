//! What a client sends ahead of the server's consent on its first channel, to save round trips; and
//! what becomes of it when the server decides otherwise.
//!
//! ```text
//!   Nothing          OfConfirmation                  OfSuccess
//!   auth ──► ok      auth ──► ok                     auth, open, request, data ──► ok, confirmation, ...
//!   open ──► ok      open, request, data ──► ...
//!   request ──► ok
//!   data ──► ...
//! ```
//! RFC 4254 5.1 lets the server choose its channel number and window, and RFC 4252 6 wants messages of
//! the connection layer refused before authentication. So this is for servers whose ways are known:
//!
//! - One of us, by its version line: numbers channels from 0, gives every channel at least
//!   [`EAGER_BYTES_MAX`] of window, and drops what comes ahead of an authentication that fails.
//! - OpenSSH, by its version line: numbers channels from 0, handles one message after the other, and
//!   has its window in force when it has handled the first request (before that, data is passed over).
//!   What comes behind an authentication request waits in its buffer until the request is decided; if
//!   that fails, each message is answered with UNIMPLEMENTED and nothing else happens. It is relied on
//!   only behind a key's signature, for a password could be wrong any time; and only where an earlier
//!   connection was logged in to a server with the same version line, or the application has but one
//!   key, so that it is the likely one.
//!
//! Everything sent ahead is kept until it is confirmed and sent again where it was in vain. So what a
//! wrong guess costs is the round trips that none would have cost.

use super::{Connection, EAGER_BYTES_MAX};
use crate::channel::window::RemoteWindow;
use crate::error::{Error, PeerMisbehaved};
use crate::packet::Compression;
use crate::transport::is_fullbore;

/// How OpenSSH's version line begins.
const OPENSSH: &[u8] = b"SSH-2.0-OpenSSH_";

/// How far ahead of the server's consent the first channel may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ahead {
    Nothing,
    OfConfirmation,
    OfSuccess,
}

impl Connection {
    pub(super) fn is_peer_fullbore(&self) -> bool {
        is_fullbore(self.remote_version())
    }

    fn ahead(&self) -> Ahead {
        let version = self.remote_version();
        if self.is_peer_fullbore() {
            return Ahead::OfSuccess;
        }
        match version.starts_with(OPENSSH) {
            true if self.is_patience_presumed => Ahead::OfSuccess,
            true if self.patient_version.as_deref() == Some(version) => Ahead::OfSuccess,
            true => Ahead::OfConfirmation,
            false => Ahead::Nothing,
        }
    }

    /// Whether requests and data may follow the first channel's open message at once.
    pub(super) fn may_precede_confirmation(&self) -> bool {
        self.ahead() >= Ahead::OfConfirmation
    }

    /// Whether the first channel may follow the authentication attempt that is under way.
    pub(super) fn may_precede_success(&self) -> bool {
        let is_proof_sent = match self.is_peer_fullbore() {
            true => self.login.is_attempt_decisive(),
            false => self.login.is_signature_sent(),
        };
        // Compression starts with success, so one of the two ends would begin too early.
        let algorithms = self.transport.algorithms();
        is_proof_sent
            && self.ahead() == Ahead::OfSuccess
            && algorithms.is_some_and(|a| a.compression_client_to_server == Compression::None)
    }

    /// Client: the next key is the one that the server is likely to take, so that the first channel may
    /// follow it. Changes nothing for servers that are not known to bear that.
    pub fn presume_patience(&mut self) {
        self.is_patience_presumed = true;
    }

    /// Whether the last attempt to log in was followed by something that was sent ahead of its success.
    #[must_use]
    pub const fn was_ahead_of_success(&self) -> bool {
        self.was_ahead_of_success
    }

    /// Whether something was sent ahead that the server has neither confirmed nor refused.
    #[must_use]
    pub fn is_ahead_of_consent(&self) -> bool {
        let mut slots = self.table.slots();
        slots.any(|slot| {
            let channel = self.table.at(slot);
            channel.is_some_and(|c| c.output.early.is_some())
        })
    }

    /// An attempt is on its way: eager channels may follow it.
    pub(super) fn list_eager(&mut self) {
        for slot in self.table.slots() {
            if self.table.at(slot).is_some_and(|c| c.output.is_eager) {
                self.table.list_send(slot);
            }
        }
    }

    /// The attempt that channel messages were sent behind was not the last: they come again.
    pub(super) fn rewind_early(&mut self) {
        for slot in self.table.slots() {
            if let Some(channel) = self.table.at_mut(slot)
                && channel.output.early.is_some()
            {
                channel.output.rewind();
                channel.remote = None;
                self.table.list_send(slot);
            }
        }
    }

    /// The server has confirmed a channel, as `remote_id` and with `window`: settles what was sent
    /// ahead of that.
    pub(super) fn settle_ahead(
        &mut self,
        slot: usize,
        remote_id: u32,
        window: &mut RemoteWindow,
    ) -> Result<(), Error> {
        let is_ours = self.is_peer_fullbore();
        let channel = self.table.listed(slot);
        let Some(guess) = &channel.remote else {
            return Ok(());
        };
        let used = EAGER_BYTES_MAX - guess.window.window();
        let is_id_right = guess.id == remote_id;
        if is_ours {
            if !is_id_right
                || window.window() < used
                || window.maxpacket() < guess.window.maxpacket()
            {
                // It names itself one of us, and is not: the guess that follows from it was wrong.
                return Err(PeerMisbehaved::ChannelState.into());
            }
            window.take(used as usize);
        } else if is_id_right {
            window.take_ahead(used);
        } else {
            // It calls itself OpenSSH and is not: nobody has what was sent to that number.
            channel.output.rewind();
            channel.output.opening = None;
        }
        Ok(())
    }
}
