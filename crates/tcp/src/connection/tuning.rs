//! What the owner may change of a connection that is under way.

use core::time::Duration;
use fullbore_base::Instant;

use super::timers::Timer;
use super::{Connection, Keepalive};

impl Connection {
    /// Whether small segments wait for the acknowledgement of earlier data, from now on. What
    /// waits leaves with the next [`Connection::poll_transmit`] once it need not.
    pub const fn set_nagle(&mut self, is_nagle: bool) {
        self.config.is_nagle = is_nagle;
    }

    /// How long data may go without acknowledgement, from now on; `None` for the count of time-outs.
    /// Unlike that of the configuration, the peer is not told (RFC 5482 leaves that to the owner).
    pub const fn set_user_timeout(&mut self, timeout: Option<Duration>) {
        self.config.user_timeout = timeout;
        self.liveness.user_timeout = timeout;
        self.untold_timeout = None;
    }

    /// Whether and how the peer is asked if it lives, counted from now.
    pub fn set_keepalive(&mut self, now: Instant, keepalive: Option<Keepalive>) {
        self.config.keepalive = keepalive;
        self.liveness.questions = 0;
        self.timers.disarm(Timer::Keepalive as usize);
        self.arm_keepalive(now);
    }

    /// Bytes that may wait to be sent or acknowledged. What is written already stays.
    pub const fn set_send_buffer_max(&mut self, bytes: u64) {
        self.config.send_buffer_max = bytes;
    }
}
