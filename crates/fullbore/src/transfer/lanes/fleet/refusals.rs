//! What the server refused, and what failed in use: there are fewer lanes from then on, in this run.

use std::rc::Rc;
use std::time::Duration;

use super::{Fleet, Session};
use crate::client::Error;
use crate::transfer::lanes::policy::Caps;

impl Fleet {
    pub(super) async fn refuse_connections(&self, now: usize, why: &str) {
        let caps = self.caps.get();
        let connections = now;
        self.caps.set(Caps {
            connections,
            ..caps
        });
        self.policy.borrow_mut().on_refused();
        self.say(format!("no further connections in this run: {why}"))
            .await;
    }

    /// A session could not be used from its beginning on: the server takes no more of them.
    pub(crate) async fn on_refused(&self, session: &Rc<Session>, error: &Error) {
        self.remove(session);
        let connection = session.sftp.connection();
        let left = self.sessions_on(connection);
        let caps = self.caps.get();
        let channels = caps.channels.min(left.max(1));
        let is_news = channels < caps.channels;
        self.caps.set(Caps { channels, ..caps });
        self.policy.borrow_mut().on_refused();
        if is_news {
            self.say(format!(
                "at most {channels} sessions of one connection in this run: {error}"
            ))
            .await;
        }
    }

    /// A file cannot be opened a second time, or cannot be told to be the same: no lanes for it, nor
    /// for others.
    pub(crate) async fn close_all(&self, why: &str) {
        if !self.is_closed.replace(true) {
            self.close_from(0);
            self.policy.borrow_mut().on_refused();
            self.say(format!("one lane only in this run: {why}")).await;
        }
    }

    /// A session failed in use, or stood still while others moved, and gets nothing more. One lane fewer
    /// from now on: the same number again would fail again.
    pub(crate) async fn on_failed(&self, session: &Rc<Session>, why: &str) {
        if session.is_leaving.get() || self.main.sftp.is_over() {
            self.remove(session);
            return;
        }
        self.remove(session);
        let caps = self.caps.get();
        let left = self.sessions_on(session.sftp.connection());
        let caps = match left {
            0 => Caps {
                connections: caps.connections.min(self.connections().len()),
                ..caps
            },
            _ => Caps {
                channels: caps.channels.min(left),
                ..caps
            },
        };
        self.caps.set(caps);
        self.policy.borrow_mut().on_refused();
        let Caps {
            channels,
            connections,
        } = caps;
        self.say(format!(
            "{why}; others move its part; at most {channels} sessions of one connection and \
             {connections} connections in this run"
        ))
        .await;
    }

    /// The run's own session stands still while others move: nothing can take its place, so this is
    /// only said.
    pub(crate) async fn on_main_stalled(&self, stood: Duration) {
        self.say(format!(
            "the first session {}; others move its part",
            stood_text(stood)
        ))
        .await;
    }
}

/// `stood still for 3.0 s while others moved`.
pub(crate) fn stood_text(stood: Duration) -> String {
    format!(
        "stood still for {:.1} s while others moved",
        stood.as_secs_f64()
    )
}
