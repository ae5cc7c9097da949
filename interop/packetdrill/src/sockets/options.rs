//! What programs set on sockets, and what that means to a connection.

use core::time::Duration;

use fullbore_base::Instant;
use fullbore_tcp::connection::{Config, Keepalive};

use crate::host::Flow;

/// Linux's defaults of keepalive: two hours, 75 s, 9 questions.
const KEEPALIVE: Keepalive = Keepalive {
    idle: Duration::from_secs(7200),
    interval: Duration::from_secs(75),
    count_max: 9,
};

/// The options of one socket.
#[derive(Clone, Copy, Debug)]
pub struct SocketOptions {
    pub is_nodelay: bool,
    pub is_corked: bool,
    pub is_keepalive: bool,
    pub keepalive: Keepalive,
    pub user_timeout: Option<Duration>,
    /// The largest segment; none for what the MTU allows.
    pub mss: Option<u16>,
    /// Bytes, as asked for: Linux tells twice as much.
    pub receive_buffer: Option<u32>,
    pub send_buffer: Option<u32>,
    /// The type of service, without congestion bits.
    pub tos: u8,
    /// Seconds that a close would wait; none for an ordinary one.
    pub linger: Option<i32>,
    pub is_address_reused: bool,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            is_nodelay: false,
            is_corked: false,
            is_keepalive: false,
            keepalive: KEEPALIVE,
            user_timeout: None,
            mss: None,
            receive_buffer: None,
            send_buffer: None,
            tos: 0,
            linger: None,
            is_address_reused: false,
        }
    }
}

impl SocketOptions {
    /// Whether a close is to end the connection at once.
    pub fn is_linger_zero(&self) -> bool {
        self.linger == Some(0)
    }

    /// The configuration of a connection that begins on this socket.
    pub fn shape(&self, config: Config) -> Config {
        let mss = self.mss.map_or(config.mss, |mss| mss.min(config.mss));
        let receive = self.receive_buffer.map(u64::from);
        Config {
            mss,
            mss_max: mss,
            mss_base: config.mss_base.min(mss),
            receive_buffer: receive.unwrap_or(config.receive_buffer),
            receive_buffer_max: receive.unwrap_or(config.receive_buffer_max),
            ..config
        }
    }

    /// Puts into force what a connection can be told at any time.
    pub fn apply(&self, now: Instant, flow: &mut Flow) {
        flow.tos = self.tos;
        let connection = &mut flow.connection;
        connection.set_nagle(!self.is_nodelay);
        connection.set_keepalive(now, self.is_keepalive.then_some(self.keepalive));
        connection.set_user_timeout(self.user_timeout);
        if let Some(bytes) = self.send_buffer {
            connection.set_send_buffer_max(u64::from(bytes));
        }
    }
}
