//! What a session's lanes say about themselves.

use fullbore_base::Instant;
use fullbore_ssh::ChannelId;

use super::sample::LaneFacts;
use super::waits::Wait;
use crate::session::ClientSession;

/// What the lanes wait for, once all that could be sent was. O(lanes).
#[must_use]
pub fn lanes_wait(session: &ClientSession) -> Wait {
    let conn = session.conn();
    let mut wait = Wait::Idle;
    for (ch, client) in session.lanes() {
        let of_lane = if client.error().is_some() {
            Wait::Idle
        } else if client.has_more_to_send() || conn.staged_len(ch) > 0 {
            match conn.remote_window(ch) {
                Some((0, _)) => Wait::PeerWindow,
                _ if client.outstanding_bytes() >= client.outstanding_bytes_max() => Wait::Requests,
                // The channel or the session is about to open, or keys are exchanged.
                _ => Wait::Replies,
            }
        } else if client.outstanding_count() > 0 {
            Wait::Replies
        } else {
            Wait::Idle
        };
        if (of_lane as usize) < wait as usize {
            wait = of_lane;
        }
    }
    wait
}

/// Whether file content is on its way here. O(lanes and their transfers).
#[must_use]
pub fn is_receiving(session: &ClientSession) -> bool {
    session.lanes().any(|(_, client)| client.is_reading())
}

/// Requests without a reply. O(lanes).
#[must_use]
pub fn outstanding_count(session: &ClientSession) -> usize {
    let lanes = session.lanes();
    lanes.map(|(_, client)| client.outstanding_count()).sum()
}

/// Takes [`LaneFacts`], and keeps count of replies beyond the lanes' lives.
#[derive(Debug, Default)]
pub struct LaneCounts {
    /// Replies on lanes that are closed now.
    closed: u64,
    /// The lanes' replies that were counted last.
    open: Vec<(ChannelId, u64)>,
}

impl LaneCounts {
    /// The facts now. O(lanes).
    pub fn facts(&mut self, now: Instant, session: &ClientSession) -> LaneFacts {
        self.count_closed(session);
        let conn = session.conn();
        let mut facts = LaneFacts {
            replies: self.closed,
            ..LaneFacts::default()
        };
        for (ch, client) in session.lanes() {
            facts.replies += client.stats().replies;
            let count = client.outstanding_count();
            if count == 0 && !client.has_more_to_send() {
                continue;
            }
            facts.busy += 1;
            facts.is_reading |= client.is_reading();
            facts.remote_window += u64::from(conn.remote_window_peak(ch));
            let windows = conn.channel_windows(now, ch).unwrap_or_default();
            facts.local_window +=
                u64::from(windows.local_outstanding) + u64::from(windows.local_unread);
            facts.outstanding_bytes += client.outstanding_bytes();
            facts.outstanding_bytes_max += client.outstanding_bytes_max();
            facts.outstanding_count += count;
        }
        facts
    }

    fn count_closed(&mut self, session: &ClientSession) {
        for &(ch, replies) in &self.open {
            if session.lane(ch).is_none() {
                self.closed += replies;
            }
        }
        let counts = session.lanes().map(|(ch, lane)| (ch, lane.stats().replies));
        self.open.clear();
        self.open.extend(counts);
    }
}
