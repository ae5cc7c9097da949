//! The two windows of a channel: what the peer may send us, and what we may send it.
//!
//! RFC 4254 section 5.2. How large the local window should be is decided elsewhere: a policy sets
//! the target, and nothing here changes with the policy.

use crate::error::PeerMisbehaved;
use fullbore_base::{Instant, Stopwatch};
use std::time::Duration;

/// Most bytes that are consumed before they are given back to the peer: a window far larger than
/// this is topped up in such steps. Ours: one adjust of 14 bytes per MiB costs nothing.
pub const ADJUST_BYTES_MAX: u32 = 1024 * 1024;

/// The step of windows from one to two MiB, a quarter to an eighth of them: where adaptive windows start.
/// Each adjust may wake the peer.
const ADJUST_BYTES_COMMON: u32 = 256 * 1024;

/// Least credit that is given alone while the budget has no more, an eighth of the smallest window: many
/// tiny adjusts would cost more than they bring.
pub const ADJUST_BYTES_MIN: u32 = 32 * 1024;

/// What the peer may send: credit it holds, bytes it sent that nobody consumed, and the target that
/// the two add up to.
///
/// With a target of 64 KiB the first adjust goes when 8 KiB have been consumed, while the peer still
/// holds up to 56 KiB: it never waits for a consumer that keeps up.
#[derive(Debug)]
pub struct LocalWindow {
    /// Credit plus unread bytes that the policy wants.
    target: u32,
    /// Credit the peer holds.
    outstanding: u32,
    /// Bytes received and not consumed.
    unread: u32,
}

impl LocalWindow {
    /// A window whose whole target the peer holds as credit, as the channel's open message says.
    #[must_use]
    pub const fn new(target: u32) -> Self {
        Self {
            target,
            outstanding: target,
            unread: 0,
        }
    }

    /// A window of which the peer holds nothing yet: the next adjust gives it all.
    #[must_use]
    pub const fn withheld(target: u32) -> Self {
        Self {
            target,
            outstanding: 0,
            unread: 0,
        }
    }

    /// Bytes received and not consumed.
    #[must_use]
    pub const fn unread(&self) -> u32 {
        self.unread
    }

    /// What the peer has taken up of our memory, or may: credit and unread bytes.
    #[must_use]
    pub const fn held(&self) -> u32 {
        // No overflow: together they never exceed a target.
        self.outstanding + self.unread
    }

    /// The policy's whole interface: how many bytes may be on their way and unread together. Credit
    /// already given is never taken back; a smaller target is reached by giving less.
    pub const fn set_target(&mut self, target: u32) {
        self.target = target;
    }

    /// The target in force.
    #[must_use]
    pub const fn target(&self) -> u32 {
        self.target
    }

    /// Credit that the peer holds.
    #[must_use]
    pub const fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// Takes note of `len` bytes from the peer.
    ///
    /// # Errors
    /// `WindowOverrun` when it did not hold so much credit.
    pub fn on_received(&mut self, len: usize) -> Result<(), PeerMisbehaved> {
        let len = u32::try_from(len).map_err(|_| PeerMisbehaved::WindowOverrun)?;
        self.outstanding = self
            .outstanding
            .checked_sub(len)
            .ok_or(PeerMisbehaved::WindowOverrun)?;
        self.unread += len;
        Ok(())
    }

    /// Takes note of `len` bytes consumed.
    ///
    /// # Panics
    /// When fewer are unread.
    pub fn on_consumed(&mut self, len: usize) {
        let len = u32::try_from(len).expect("consumed bytes fit their window");
        self.unread = self
            .unread
            .checked_sub(len)
            .expect("only unread bytes are consumed");
    }

    /// Whether enough was consumed for an adjust.
    #[must_use]
    pub const fn is_due(&self) -> bool {
        let eighth = self.target / 8;
        let step = if eighth > ADJUST_BYTES_MAX {
            ADJUST_BYTES_MAX
        } else if eighth < ADJUST_BYTES_COMMON && eighth >= ADJUST_BYTES_COMMON / 2 {
            ADJUST_BYTES_COMMON
        } else {
            eighth
        };
        let grantable = self.grantable();
        grantable > 0 && grantable >= step
    }

    const fn grantable(&self) -> u32 {
        self.target.saturating_sub(self.held())
    }

    /// Credit to give now: the whole difference to the target, in one adjust, but at most `room`. 0
    /// when `room` is too little to be worth one.
    #[must_use]
    pub const fn take_adjust(&mut self, room: u32) -> u32 {
        let grantable = self.grantable();
        let grant = if grantable <= room {
            grantable
        } else if room >= ADJUST_BYTES_MIN {
            room
        } else {
            0
        };
        self.outstanding += grant;
        grant
    }
}

/// What we may send: the credit we hold, the longest message it may come in, and how long the lack
/// of it has held us up.
#[derive(Debug)]
pub struct RemoteWindow {
    window: u32,
    /// Most credit ever held.
    window_peak: u32,
    /// Bytes sent ahead of the credit for them, which the next adjusts pay. Zero unless `window` is.
    owed: u32,
    maxpacket: u32,
    limited: Stopwatch,
}

impl RemoteWindow {
    /// The window of the peer's open or confirmation message.
    ///
    /// # Errors
    /// `MaxPacketZero`: nothing could ever be sent.
    pub const fn new(window: u32, maxpacket: u32) -> Result<Self, PeerMisbehaved> {
        if maxpacket == 0 {
            return Err(PeerMisbehaved::MaxPacketZero);
        }
        Ok(Self {
            window,
            window_peak: window,
            owed: 0,
            maxpacket,
            limited: Stopwatch::new(),
        })
    }

    /// Credit held.
    #[must_use]
    pub const fn window(&self) -> u32 {
        self.window
    }

    /// Most credit ever held: as far as the peer's window is known to reach.
    #[must_use]
    pub const fn window_peak(&self) -> u32 {
        self.window_peak
    }

    /// Longest data field of one message.
    #[must_use]
    pub const fn maxpacket(&self) -> u32 {
        self.maxpacket
    }

    /// Takes the peer's adjust.
    ///
    /// # Errors
    /// `WindowOverflow`: RFC 4254 5.2: "The window MUST NOT be increased above 2^32 - 1 bytes."
    pub fn on_adjust(&mut self, now: Instant, credit: u32) -> Result<(), PeerMisbehaved> {
        let paid = credit.min(self.owed);
        self.owed -= paid;
        self.window = self
            .window
            .checked_add(credit - paid)
            .ok_or(PeerMisbehaved::WindowOverflow)?;
        self.window_peak = self.window_peak.max(self.window);
        if self.window > 0 {
            self.limited.stop(now);
        }
        Ok(())
    }

    /// Takes `len` bytes of credit.
    ///
    /// # Panics
    /// When less is held: the caller looked first.
    pub fn take(&mut self, len: usize) {
        self.window = u32::try_from(len)
            .ok()
            .and_then(|len| self.window.checked_sub(len))
            .expect("the sender looked at the window first");
    }

    /// Spends credit for bytes that went before the window was known; what it does not cover, the
    /// next adjusts do.
    pub const fn take_ahead(&mut self, len: u32) {
        let covered = if len < self.window { len } else { self.window };
        self.window -= covered;
        self.owed = len - covered;
    }

    /// Takes note that bytes wait for credit alone since `now`.
    pub const fn on_limited(&mut self, now: Instant) {
        self.limited.start(now);
    }

    /// Whether bytes wait for credit alone.
    #[must_use]
    pub const fn is_limited(&self) -> bool {
        self.limited.is_running()
    }

    /// Time of finished waits for credit alone.
    #[must_use]
    pub const fn limited_before(&self) -> Duration {
        self.limited.before()
    }

    /// Time that bytes waited for credit alone, up to `now`.
    #[must_use]
    pub fn limited(&self, now: Instant) -> Duration {
        self.limited.total(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_returns_as_bytes_are_consumed_not_as_they_arrive() {
        let mut window = LocalWindow::new(64 * 1024);
        window.on_received(40 * 1024).expect("within the window");
        assert!(!window.is_due());
        window.on_consumed(8 * 1024 - 1);
        assert!(!window.is_due());
        window.on_consumed(1);
        assert!(window.is_due());
        assert_eq!(window.take_adjust(u32::MAX), 8 * 1024);
        assert_eq!(window.outstanding(), 32 * 1024);
        assert!(!window.is_due());
    }

    #[test]
    fn the_window_is_taken_to_its_last_byte_and_refused_past_it() {
        let mut window = LocalWindow::new(10);
        assert_eq!(window.on_received(10), Ok(()));
        assert_eq!(window.on_received(1), Err(PeerMisbehaved::WindowOverrun));
        let mut window = LocalWindow::new(10);
        assert_eq!(window.on_received(11), Err(PeerMisbehaved::WindowOverrun));
    }

    #[test]
    fn a_smaller_target_takes_nothing_back_and_a_larger_one_is_granted_at_once() {
        let mut window = LocalWindow::new(1000);
        window.set_target(100);
        assert!(!window.is_due());
        window.on_received(950).expect("within the window");
        window.on_consumed(950);
        assert_eq!(window.take_adjust(u32::MAX), 50);
        window.set_target(4000);
        assert!(window.is_due());
        assert_eq!(window.take_adjust(u32::MAX), 3900);
    }

    #[test]
    fn large_windows_are_topped_up_in_steps_of_a_mebibyte() {
        let mut window = LocalWindow::new(64 * ADJUST_BYTES_MAX);
        window.on_received(2 << 20).expect("within the window");
        window.on_consumed(ADJUST_BYTES_MAX as usize - 1);
        assert!(!window.is_due());
        window.on_consumed(1);
        assert!(window.is_due());
    }

    #[test]
    fn the_most_credit_ever_held_is_kept() {
        let mut window = RemoteWindow::new(0, 100).expect("packets");
        let now = Instant::ZERO;
        window.on_adjust(now, 2000).expect("within range");
        window.take(1500);
        window.on_adjust(now, 1400).expect("within range");
        assert_eq!((window.window(), window.window_peak()), (1900, 2000));
    }

    #[test]
    fn less_room_gives_less_credit_and_too_little_gives_none() {
        let mut window = LocalWindow::new(8 * ADJUST_BYTES_MIN);
        window
            .on_received(4 * ADJUST_BYTES_MIN as usize)
            .expect("within the window");
        window.on_consumed(4 * ADJUST_BYTES_MIN as usize);
        assert_eq!(window.take_adjust(ADJUST_BYTES_MIN - 1), 0);
        assert_eq!(window.take_adjust(ADJUST_BYTES_MIN), ADJUST_BYTES_MIN);
        assert_eq!(window.held(), 5 * ADJUST_BYTES_MIN);
        assert_eq!(window.take_adjust(u32::MAX), 3 * ADJUST_BYTES_MIN);
    }

    #[test]
    fn the_peer_window_reaches_its_maximum_and_no_more() {
        let now = Instant::ZERO;
        let mut window = RemoteWindow::new(1, 1).expect("one byte is allowed");
        assert_eq!(window.on_adjust(now, u32::MAX - 1), Ok(()));
        assert_eq!(window.window(), u32::MAX);
        assert_eq!(
            window.on_adjust(now, 1),
            Err(PeerMisbehaved::WindowOverflow)
        );
        assert_eq!(window.on_adjust(now, 0), Ok(()));
    }

    #[test]
    fn bytes_sent_ahead_of_the_window_are_paid_by_the_adjusts_that_follow() {
        let now = Instant::ZERO;
        let mut window = RemoteWindow::new(0, 1).expect("allowed");
        window.take_ahead(100);
        window.on_adjust(now, 60).expect("no overflow");
        assert_eq!(window.window(), 0);
        window.on_adjust(now, 60).expect("no overflow");
        assert_eq!(window.window(), 20);
        let mut window = RemoteWindow::new(100, 1).expect("allowed");
        window.take_ahead(30);
        assert_eq!(window.window(), 70);
    }

    #[test]
    fn a_maximum_packet_of_one_is_taken_and_of_zero_refused() {
        assert!(RemoteWindow::new(0, 1).is_ok());
        assert_eq!(
            RemoteWindow::new(0, 0).err(),
            Some(PeerMisbehaved::MaxPacketZero)
        );
    }

    #[test]
    fn time_without_credit_is_counted_until_credit_comes() {
        let at = |secs| Instant::ZERO + Duration::from_secs(secs);
        let mut window = RemoteWindow::new(0, 1).expect("allowed");
        window.on_limited(at(1));
        window.on_limited(at(2));
        assert_eq!(window.limited(at(3)), Duration::from_secs(2));
        window.on_adjust(at(4), 0).expect("no overflow");
        window.on_adjust(at(5), 1).expect("no overflow");
        assert_eq!(window.limited(at(9)), Duration::from_secs(4));
    }
}
