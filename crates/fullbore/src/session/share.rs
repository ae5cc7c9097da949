//! A session's dealings with the ledger: when it asks for another share.

use std::time::Duration;

use fullbore_base::Instant;
use fullbore_ssh::Connection;

use super::ledger::Credit;

/// A share is settled anew this often while the connection is busy, even if its own needs stay the
/// same: others may have come. About a round trip of a long path.
const SETTLE_INTERVAL: Duration = Duration::from_millis(100);

/// The share of one connection, if a ledger divides them.
#[derive(Debug, Default)]
pub(super) struct Share {
    credit: Option<Box<dyn Credit>>,
    next: Instant,
}

impl Share {
    /// From now on this gives the share.
    pub(super) fn set(&mut self, credit: Box<dyn Credit>) {
        self.credit = Some(credit);
    }

    /// Settles the share if the windows have changed or it is time. A server's connection has none before
    /// somebody has logged in.
    pub(super) fn balance(&mut self, now: Instant, conn: &mut Connection) {
        let Some(credit) = &mut self.credit else {
            return;
        };
        if conn.is_server() && !conn.is_authenticated() {
            conn.set_windows_max(0);
            return;
        }
        if !conn.take_windows_changed() && now < self.next {
            return;
        }
        self.next = now + SETTLE_INTERVAL;
        let share = credit.share(conn.windows_use());
        if share != conn.windows_max() {
            conn.set_windows_max(share);
        }
    }
}
