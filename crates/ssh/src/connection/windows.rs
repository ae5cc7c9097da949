//! The local windows of a connection: who gets how much credit, and what the round trip is.
//!
//! Owns the division of the connection's share among its channels and the measurement that the
//! adaptive windows need. Does not own a single window's rules (`channel::window`), its target
//! (`channel::autotune`), or the share itself, which [`Connection::set_windows_max`] brings.
//!
//! Invariant: credit that peers hold, unread bytes, and what is kept free for channels that use less
//! than their least add up to at most `windows_max` whenever credit is given. Credit is never taken
//! back, so after `windows_max` was lowered the sum falls as bytes arrive and are consumed.

use super::channels::no_channel;
use super::table::reserve;
use super::{Connection, EAGER_BYTES_MAX, FREE_SHARE, LOCAL_WINDOW_MIN, LOCAL_WINDOW_START};
use crate::channel::autotune::Policy;
use crate::channel::window::ADJUST_BYTES_MIN;
use crate::channel::{Channel, ChannelId, State};
use crate::error::Error;
use fullbore_base::Instant;
use std::time::Duration;

/// What a client's connection would like to have for its next channels: four at their start.
const CLIENT_SPARE: u64 = 4 * LOCAL_WINDOW_START as u64;

/// One channel's windows at an instant. Bytes and times are exact, rates what was seen of late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelWindows {
    /// Bytes that the peer should have on their way and unread: where the local window is heading.
    pub local_target: u32,
    /// Credit that the peer holds, in bytes.
    pub local_outstanding: u32,
    /// Bytes received and not consumed.
    pub local_unread: u32,
    /// Bytes consumed per round trip of late, 0 for a fixed window.
    pub delivered_per_rtt: u64,
    /// Time that the channel was due credit which the connection's share did not have.
    pub budget_limited: Duration,
    /// Credit held from the peer, in bytes; 0 until the channel is open.
    pub remote_window: u32,
    /// Time that bytes waited for nothing but the peer's window, with the stretch that runs.
    pub window_limited: Duration,
}

/// How the connection's share is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowsUse {
    /// Bytes that the peer holds as credit or has sent unread, and what is kept free for channels that
    /// use less than their least. Never more than the share, unless that was lowered.
    pub held: u64,
    /// Bytes of the least of a channel that waits to be accepted.
    pub opening: u64,
    /// Bytes of share that would let every channel reach its target, and one more open.
    pub wanted: u64,
}

impl Connection {
    /// Takes a round-trip time that somebody knows better than a ping could tell: TCP, or the requests of
    /// a protocol above. While such come, none are measured here. O(1).
    pub fn on_rtt(&mut self, now: Instant, rtt: Duration) {
        self.liveness.on_told(now, rtt);
        self.stats.rtt_count += 1;
    }

    /// Sets how many bytes the peer may have on their way and unread on all channels together: this
    /// connection's share of what the process can afford. A smaller one is reached by giving less.
    pub fn set_windows_max(&mut self, bytes: u64) {
        self.config.windows_max = bytes;
        self.is_over_share = self.table.reserved() > bytes;
        self.feed_starved();
    }

    /// The share in force.
    #[must_use]
    pub const fn windows_max(&self) -> u64 {
        self.config.windows_max
    }

    /// How the share is used. O(channels), which is bounded.
    #[must_use]
    pub fn windows_use(&self) -> WindowsUse {
        let wants = self
            .table
            .iter()
            .map(|c| reserve(c).max(u64::from(c.input.window.target())));
        let (sum, most) = wants.fold((0, 0), |(sum, most), want| (sum + want, want.max(most)));
        let next = match self.is_server() {
            true => u64::from(LOCAL_WINDOW_MIN),
            false => CLIENT_SPARE,
        };
        let opening = self.asked.and_then(|slot| self.table.at(slot));
        let opening = opening.map_or(0, reserve);
        WindowsUse {
            held: self.table.reserved() - opening,
            opening,
            // No channel gets all: something is kept free in proportion.
            wanted: sum + most / FREE_SHARE + next,
        }
    }

    /// Whether [`Connection::windows_use`] may have changed since this was last asked.
    pub const fn take_windows_changed(&mut self) -> bool {
        std::mem::replace(&mut self.has_windows_changed, false)
    }

    /// The windows of one channel.
    #[must_use]
    pub fn channel_windows(&self, now: Instant, ch: ChannelId) -> Option<ChannelWindows> {
        let channel = self.table.by_id(ch)?;
        let (local, remote) = (&channel.input.window, channel.remote.as_ref());
        Some(ChannelWindows {
            local_target: local.target(),
            local_outstanding: local.outstanding(),
            local_unread: local.unread(),
            delivered_per_rtt: channel.input.policy.delivered_per_rtt(),
            budget_limited: channel.input.starved.total(now),
            remote_window: remote.map_or(0, |r| r.window.window()),
            window_limited: remote.map_or(Duration::ZERO, |r| r.window.limited(now)),
        })
    }

    /// Channels that exist, in the order of their numbers.
    pub fn channels(&self) -> impl Iterator<Item = ChannelId> {
        self.table.iter().map(|channel| channel.id)
    }

    /// Whether bytes of the channel wait for nothing but the peer's window now.
    #[must_use]
    pub fn is_window_shut(&self, ch: ChannelId) -> bool {
        let remote = self.table.by_id(ch).and_then(|c| c.remote.as_ref());
        remote.is_some_and(|remote| remote.window.is_limited())
    }

    /// Time that all channels, closed ones too, waited for nothing but the peer's windows.
    #[must_use]
    pub fn window_limited_total(&self, now: Instant) -> Duration {
        let open = self.table.iter().filter_map(|c| c.remote.as_ref());
        open.map(|remote| remote.window.limited(now))
            .fold(self.stats.window_limited, |sum, limited| sum + limited)
    }

    /// Time that all channels, closed ones too, were due credit which the share did not have.
    #[must_use]
    pub fn budget_limited_total(&self, now: Instant) -> Duration {
        self.table
            .iter()
            .map(|channel| channel.input.starved.total(now))
            .fold(self.stats.budget_limited, |sum, limited| sum + limited)
    }

    /// Fixes how many bytes the peer may have on their way and unread on the channel: it follows the
    /// path no more. More is granted at once; less is reached by granting less.
    ///
    /// # Errors
    /// `ApiMisuse::NoSuchChannel`.
    pub fn set_local_window(&mut self, ch: ChannelId, target: u32) -> Result<(), Error> {
        self.alive()?;
        let channel = self.table.by_id_mut(ch).ok_or_else(no_channel)?;
        channel.input.policy = Policy::Fixed;
        let target = target.max(EAGER_BYTES_MAX);
        channel.input.window.set_target(target);
        self.has_windows_changed = true;
        self.list_adjust_if_due(ch.slot as usize);
        Ok(())
    }

    /// Whether the share has room for all channels, `more` further ones with them. A single one with a
    /// fixed window has what the configuration says, whatever the share.
    pub(super) fn has_window_room(&self, more: u64) -> bool {
        let is_alone = self.table.len() as u64 + more == 1;
        let wanted = self.table.reserved() + more * u64::from(LOCAL_WINDOW_MIN);
        wanted <= self.config.windows_max || (is_alone && self.config.local_window.is_some())
    }

    /// The first window of the next channel and who decides about it from then on.
    ///
    /// A fixed window is the full one while that is a small part of the share, then half of what is
    /// left. Worked example, 8 of 16 MiB: 8, 4, 2, 1 MiB, ...
    pub(super) fn next_window(&self) -> (u32, Policy) {
        let Some(window) = self.config.local_window else {
            let start = if self.is_server() {
                EAGER_BYTES_MAX
            } else {
                let most = self.most_for(0);
                LOCAL_WINDOW_START.min(u32::try_from(most).unwrap_or(u32::MAX))
            };
            return (start, Policy::adaptive(LOCAL_WINDOW_START));
        };
        let left = self
            .config
            .windows_max
            .saturating_sub(self.table.reserved());
        let half = u32::try_from(left / 2).unwrap_or(u32::MAX);
        let share = half.max(LOCAL_WINDOW_MIN);
        let is_first = self.table.len() == 0;
        (
            if is_first { window } else { window.min(share) },
            Policy::Fixed,
        )
    }

    /// Most that a channel may hold for which `reserved` is reserved now.
    ///
    /// With that much it holds `LOCAL_WINDOW_MIN + FREE_SHARE x what is then free`.
    fn most_for(&self, reserved: u64) -> u64 {
        let free = self
            .config
            .windows_max
            .saturating_sub(self.table.reserved());
        let least = u64::from(LOCAL_WINDOW_MIN);
        ((least + FREE_SHARE * (free + reserved)) / (FREE_SHARE + 1)).max(least)
    }

    /// Credit that the share has for the channel.
    pub(super) fn credit_room(&self, slot: usize) -> u32 {
        let Some(channel) = self.table.at(slot) else {
            return 0;
        };
        let held = u64::from(channel.input.window.held());
        let most = match channel.input.policy {
            // What it was given when it opened.
            Policy::Fixed => return u32::MAX,
            Policy::Adaptive(_) => self.most_for(reserve(channel)),
        };
        u32::try_from(most.saturating_sub(held)).unwrap_or(u32::MAX)
    }

    /// `n` bytes of a channel were consumed.
    pub(super) fn on_consumed(&mut self, now: Instant, slot: usize, n: usize) {
        let rtt = &mut self.liveness.rtt;
        let Some(channel) = self.table.at_mut(slot).filter(|_| n > 0) else {
            return;
        };
        if matches!(channel.input.policy, Policy::Adaptive(_)) {
            let input = &mut channel.input;
            let before = input.window.target();
            input.policy.on_consumed(now, n, &mut input.window, rtt);
            self.has_windows_changed |= input.window.target() != before;
            if !input.window.is_due() {
                input.starved.stop(now);
            }
            if let Some(at) = input.policy.idle_at() {
                self.liveness.arm_idle(at);
            }
            self.measure(now);
        }
        if self.is_over_share {
            self.is_over_share = self.table.reserved() > self.config.windows_max;
            self.has_windows_changed = true;
        }
        self.list_adjust_if_due(slot);
        self.freed += n as u64;
        if self.has_starved && self.freed >= u64::from(ADJUST_BYTES_MIN) {
            self.feed_starved();
        }
    }

    /// The first byte came: from now on the peer is no idle one.
    pub(super) fn on_first_data(&mut self, slot: usize) {
        let input = &mut self.table.listed(slot).input;
        if matches!(input.policy, Policy::Fixed) {
            return;
        }
        input.window.set_target(LOCAL_WINDOW_START);
        self.has_windows_changed = true;
        self.list_adjust_if_due(slot);
    }

    /// Keeps the round-trip time known while data flows: a ping per round trip at most.
    fn measure(&mut self, now: Instant) {
        if self.liveness.is_rtt_due(now) {
            self.ping(now);
            self.liveness.on_rtt_asked(now);
        }
    }

    /// Shrinks the targets of windows that nothing was consumed from for long.
    pub(super) fn shrink_idle(&mut self, now: Instant) {
        let mut next: Option<Instant> = None;
        for Channel { input, .. } in self.table.iter_mut() {
            input.policy.on_idle(now, &mut input.window);
            if !input.window.is_due() {
                input.starved.stop(now);
            }
            next = next.into_iter().chain(input.policy.idle_at()).min();
        }
        self.has_windows_changed = true;
        if let Some(at) = next {
            self.liveness.arm_idle(at);
        }
    }

    /// Lets channels that were due more credit than there was ask again.
    pub(super) fn feed_starved(&mut self) {
        self.freed = 0;
        if !std::mem::replace(&mut self.has_starved, false) {
            return;
        }
        for slot in self.table.slots() {
            let is_starved = self
                .table
                .at(slot)
                .is_some_and(|channel| channel.input.starved.is_running());
            if is_starved {
                self.list_adjust_if_due(slot);
                // Until it gets some.
                self.has_starved = true;
            }
        }
    }

    /// Takes the credit that is due to an open channel out of the share; 0 when there is too little.
    pub(super) fn take_credit(&mut self, now: Instant, slot: usize) -> u32 {
        let room = self.credit_room(slot);
        let channel = self.table.listed(slot);
        debug_assert!(
            channel.state == State::Open,
            "only open channels owe window"
        );
        let input = &mut channel.input;
        let credit = input.window.take_adjust(room);
        if input.window.is_due() {
            input.starved.start(now);
            self.has_starved = true;
            self.has_windows_changed = true;
        } else {
            input.starved.stop(now);
        }
        credit
    }
}
