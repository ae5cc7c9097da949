//! The channels of a connection, by wire number, and the rings in which they take their turns.

use super::LOCAL_WINDOW_MIN;
use crate::channel::autotune::Policy;
use crate::channel::{Channel, ChannelId, Signs, State};
use std::collections::VecDeque;

/// All channels. Numbers are the lowest free ones, so that they stay small and, for the first
/// channel of a connection, known in advance.
#[derive(Debug, Default)]
pub(super) struct Table {
    slots: Vec<Option<Channel>>,
    next_generation: u32,
    count: usize,
    /// Channels with something to tell; each at most once, as in the other two.
    events: VecDeque<usize>,
    /// Channels that may have something to send, in turn.
    pub(super) sends: VecDeque<usize>,
    /// Channels that owe the peer window.
    pub(super) adjusts: VecDeque<usize>,
}

impl Table {
    pub(super) const fn len(&self) -> usize {
        self.count
    }

    /// Adds a channel under the lowest free number. O(channels), which is bounded.
    pub(super) fn insert(&mut self, state: State, local_window: u32, policy: Policy) -> ChannelId {
        let slot = self
            .slots
            .iter()
            .position(Option::is_none)
            .unwrap_or_else(|| {
                self.slots.push(None);
                self.slots.len() - 1
            });
        let id = ChannelId {
            slot: u32::try_from(slot).expect("the number of channels is bounded"),
            generation: self.next_generation,
        };
        self.next_generation = self.next_generation.wrapping_add(1);
        self.slots[slot] = Some(Channel::new(id, state, local_window, policy));
        self.count += 1;
        id
    }

    /// Every channel. O(channels), which is bounded.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Channel> {
        self.slots.iter().flatten()
    }

    /// As [`Table::iter`].
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Channel> {
        self.slots.iter_mut().flatten()
    }

    /// What the peer holds on all channels, and what is kept free for them. O(channels).
    pub(super) fn reserved(&self) -> u64 {
        self.iter().map(reserve).sum()
    }

    pub(super) fn remove(&mut self, slot: usize) -> Option<Channel> {
        let channel = self.slots.get_mut(slot)?.take()?;
        self.count -= 1;
        self.events.retain(|s| *s != slot);
        self.sends.retain(|s| *s != slot);
        self.adjusts.retain(|s| *s != slot);
        Some(channel)
    }

    pub(super) fn at(&self, slot: usize) -> Option<&Channel> {
        self.slots.get(slot)?.as_ref()
    }

    pub(super) fn at_mut(&mut self, slot: usize) -> Option<&mut Channel> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// The channel an application means, if it still is.
    pub(super) fn by_id(&self, id: ChannelId) -> Option<&Channel> {
        self.at(id.slot as usize).filter(|c| c.id == id)
    }

    pub(super) fn by_id_mut(&mut self, id: ChannelId) -> Option<&mut Channel> {
        self.at_mut(id.slot as usize).filter(|c| c.id == id)
    }

    /// The channel at a number that the table itself holds.
    ///
    /// # Panics
    /// When there is none.
    pub(super) fn listed(&mut self, slot: usize) -> &mut Channel {
        self.at_mut(slot)
            .expect("rings hold channels of the table only")
    }

    pub(super) fn slots(&self) -> std::ops::Range<usize> {
        0..self.slots.len()
    }

    /// Notes an event of a channel.
    pub(super) fn tell(&mut self, slot: usize, sign: Signs) {
        let Some(channel) = self.at_mut(slot) else {
            return;
        };
        channel.pending.signs.insert(sign);
        if !std::mem::replace(&mut channel.listed.events, true) {
            self.events.push_back(slot);
        }
    }

    /// Gives a channel a turn to send.
    pub(super) fn list_send(&mut self, slot: usize) {
        let Some(channel) = self.at_mut(slot) else {
            return;
        };
        if !std::mem::replace(&mut channel.listed.sends, true) {
            self.sends.push_back(slot);
        }
    }

    /// Whether no channel has anything to send that may go.
    pub(super) fn is_silent(&self) -> bool {
        self.sends.is_empty() && self.adjusts.is_empty()
    }

    /// Takes the channel whose turn it is.
    pub(super) fn pop_send(&mut self) -> Option<usize> {
        let slot = self.sends.pop_front()?;
        self.listed(slot).listed.sends = false;
        Some(slot)
    }

    /// Puts back a channel that could not go: it stays first.
    pub(super) fn unpop_send(&mut self, slot: usize) {
        self.listed(slot).listed.sends = true;
        self.sends.push_front(slot);
    }

    /// Notes that a channel owes window.
    pub(super) fn list_adjust(&mut self, slot: usize) {
        let Some(channel) = self.at_mut(slot) else {
            return;
        };
        if !std::mem::replace(&mut channel.listed.adjusts, true) {
            self.adjusts.push_back(slot);
        }
    }

    pub(super) fn pop_adjust(&mut self) {
        if let Some(slot) = self.adjusts.pop_front() {
            self.listed(slot).listed.adjusts = false;
        }
    }

    /// Takes the next thing to tell of any channel.
    pub(super) fn take_sign(&mut self) -> Option<(usize, Signs)> {
        loop {
            let slot = *self.events.front()?;
            let channel = self.listed(slot);
            if let Some(sign) = channel.pending.signs.take_first() {
                if channel.pending.signs.is_empty() {
                    channel.listed.events = false;
                    self.events.pop_front();
                }
                return Some((slot, sign));
            }
            channel.listed.events = false;
            self.events.pop_front();
        }
    }
}

/// What one channel holds or may count on: its least, or a fixed window that it was given.
pub(super) fn reserve(channel: &Channel) -> u64 {
    let window = &channel.input.window;
    let promised = match channel.input.policy {
        Policy::Fixed => window.target(),
        Policy::Adaptive(_) => LOCAL_WINDOW_MIN,
    };
    u64::from(window.held().max(promised))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_reused_and_ids_are_not() {
        let mut table = Table::default();
        let first = table.insert(State::Open, 1, Policy::Fixed);
        let second = table.insert(State::Open, 1, Policy::Fixed);
        assert_eq!((first.slot, second.slot), (0, 1));
        assert!(table.remove(0).is_some());
        let third = table.insert(State::Open, 1, Policy::Fixed);
        assert_eq!(third.slot, 0);
        assert_ne!(third, first);
        assert!(table.by_id(first).is_none() && table.by_id(third).is_some());
        assert_eq!(table.len(), 2);
    }

    #[test]
    fn a_channel_stands_in_each_ring_once_and_leaves_all_when_removed() {
        let mut table = Table::default();
        table.insert(State::Open, 1, Policy::Fixed);
        for _ in 0..3 {
            table.list_send(0);
            table.list_adjust(0);
            table.tell(0, Signs::READABLE);
        }
        assert_eq!((table.sends.len(), table.adjusts.len()), (1, 1));
        table.remove(0);
        assert_eq!(table.pop_send(), None);
        assert_eq!(table.take_sign(), None);
        assert!(table.adjusts.is_empty());
    }

    #[test]
    fn signs_of_one_channel_are_told_before_those_of_the_next() {
        let mut table = Table::default();
        table.insert(State::Open, 1, Policy::Fixed);
        table.insert(State::Open, 1, Policy::Fixed);
        table.tell(1, Signs::EOF);
        table.tell(0, Signs::READABLE);
        table.tell(1, Signs::READABLE);
        assert_eq!(table.take_sign(), Some((1, Signs::READABLE)));
        assert_eq!(table.take_sign(), Some((1, Signs::EOF)));
        assert_eq!(table.take_sign(), Some((0, Signs::READABLE)));
        assert_eq!(table.take_sign(), None);
    }
}
