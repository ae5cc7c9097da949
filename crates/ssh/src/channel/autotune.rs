//! How large a channel's local window should be: fixed, or following the path.
//!
//! Owns the target of one channel. Does not own the window itself ([`super::window`]), nor the budget
//! of the connection, which may give less.

use super::window::LocalWindow;
use fullbore_base::{Autotune, Instant, PathRtt};

/// The largest window that is ever granted: some peers keep it as a signed number.
pub const LOCAL_WINDOW_MAX: u32 = i32::MAX as u32;

/// Who decides about the target of a local window.
#[derive(Debug)]
pub(crate) enum Policy {
    /// The configuration or the application did; it stays.
    Fixed,
    /// What the path delivers.
    Adaptive(Box<Autotune>),
}

impl Policy {
    /// A policy that starts at `start` bytes with the first byte consumed.
    pub(crate) fn adaptive(start: u32) -> Self {
        Self::Adaptive(Box::new(Autotune::new(
            u64::from(start),
            u64::from(LOCAL_WINDOW_MAX),
        )))
    }

    /// `len` bytes were consumed: sets the window's target.
    pub(crate) fn on_consumed(
        &mut self,
        now: Instant,
        len: usize,
        window: &mut LocalWindow,
        rtt: &mut PathRtt,
    ) {
        let Self::Adaptive(autotune) = self else {
            return;
        };
        let credit = u64::from(window.outstanding());
        autotune.on_delivered(now, len as u64, credit, rtt);
        window.set_target(target_of(autotune));
    }

    /// When a window that nothing was consumed from shrinks.
    pub(crate) fn idle_at(&self) -> Option<Instant> {
        match self {
            Self::Fixed => None,
            Self::Adaptive(autotune) => autotune.idle_at(),
        }
    }

    /// Shrinks the target of an idle window; what the peer holds, it holds.
    pub(crate) fn on_idle(&mut self, now: Instant, window: &mut LocalWindow) {
        if let Self::Adaptive(autotune) = self
            && autotune.on_idle(now)
        {
            window.set_target(target_of(autotune));
        }
    }

    /// Bytes consumed in a shortest round trip of late; 0 for a fixed window.
    pub(crate) fn delivered_per_rtt(&self) -> u64 {
        match self {
            Self::Fixed => 0,
            Self::Adaptive(autotune) => autotune.delivered_per_rtt(),
        }
    }
}

fn target_of(autotune: &Autotune) -> u32 {
    u32::try_from(autotune.target()).unwrap_or(LOCAL_WINDOW_MAX)
}
