//! What the application has not been told about a channel: one flag for each kind of event, so that
//! no peer can make a queue of them.

/// A set of event kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signs(u16);

impl Signs {
    pub(crate) const OPEN: Self = Self(1);
    pub(crate) const OPENED: Self = Self(1 << 1);
    pub(crate) const OPEN_FAILED: Self = Self(1 << 2);
    pub(crate) const REQUEST: Self = Self(1 << 3);
    pub(crate) const REQUEST_DONE: Self = Self(1 << 4);
    pub(crate) const READABLE: Self = Self(1 << 5);
    pub(crate) const READABLE_STDERR: Self = Self(1 << 6);
    pub(crate) const WRITABLE: Self = Self(1 << 7);
    pub(crate) const EXIT_STATUS: Self = Self(1 << 8);
    pub(crate) const EXIT_SIGNAL: Self = Self(1 << 9);
    pub(crate) const EOF: Self = Self(1 << 10);
    pub(crate) const CLOSED: Self = Self(1 << 11);

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Takes the first kind in the order in which they are told; `CLOSED` is last.
    pub(crate) const fn take_first(&mut self) -> Option<Self> {
        if self.is_empty() {
            return None;
        }
        let first = 1 << self.0.trailing_zeros();
        self.0 &= !first;
        Some(Self(first))
    }

    pub(crate) const fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// The signs with the values that two of them carry.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) signs: Signs,
    /// With `REQUEST_DONE`. One is enough: events are told before another packet is opened.
    pub(crate) request_ok: bool,
    /// With `EXIT_STATUS`.
    pub(crate) exit_status: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_once_each_and_closed_last() {
        let mut signs = Signs::default();
        signs.insert(Signs::CLOSED);
        signs.insert(Signs::READABLE);
        signs.insert(Signs::READABLE);
        assert_eq!(signs.take_first(), Some(Signs::READABLE));
        assert_eq!(signs.take_first(), Some(Signs::CLOSED));
        assert_eq!(signs.take_first(), None);
    }
}
