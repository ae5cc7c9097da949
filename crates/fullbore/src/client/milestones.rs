//! How long each phase of a connection's beginning took.

use std::time::Duration;

use fullbore_base::Instant;

use crate::driver::dial::DialTimes;
use crate::session::ClientSession;

/// When what happened, counted from the connected stream on; `None` for what has not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Milestones {
    /// What came before: finding the host and connecting to it, where that was done from here.
    pub dialed: Option<DialTimes>,
    begun: Option<Instant>,
    /// The peer's version line.
    pub version: Option<Duration>,
    /// The end of the first key exchange.
    pub keys: Option<Duration>,
    /// The login.
    pub login: Option<Duration>,
    /// The SFTP server's greeting.
    pub sftp: Option<Duration>,
}

impl Milestones {
    /// Takes note of what has been reached by `now`. O(1) once all is.
    pub(super) fn look(&mut self, now: Instant, session: &ClientSession) {
        if self.sftp.is_some() {
            return;
        }
        let begun = *self.begun.get_or_insert(now);
        let since = now.saturating_duration_since(begun);
        let conn = session.conn();
        let note = |milestone: &mut Option<Duration>, is_reached: bool| {
            if milestone.is_none() && is_reached {
                *milestone = Some(since);
            }
        };
        note(&mut self.version, !conn.remote_version().is_empty());
        note(&mut self.keys, conn.algorithms().is_some());
        note(&mut self.login, conn.is_authenticated());
        let mut lanes = session.lanes();
        let is_ready = lanes.any(|(_, client)| client.server_info().is_some());
        note(&mut self.sftp, is_ready);
    }
}
