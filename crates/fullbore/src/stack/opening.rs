//! How connections begin: opened from here, or waited for.

use std::net::{IpAddr, SocketAddr};

use fullbore_base::Instant;
use fullbore_tcp::connection::{Config, Connection};
use fullbore_tcp::isn::Tuple;
use fullbore_tcp::listener::{ListenConfig, Listener};
use fullbore_tcp::segment::Pseudo;

use super::{ConnectionId, Error, ListenerId, Stack};

/// RFC 6335 section 6: the dynamic ports.
const EPHEMERAL_FIRST: u16 = 49_152;
const EPHEMERAL_COUNT: u16 = u16::MAX - EPHEMERAL_FIRST + 1;

impl Stack {
    pub(super) fn mss_max(&self) -> u16 {
        let connection = &self.config.connection;
        connection.mss_max.max(connection.mss)
    }

    pub(super) fn pseudo(&self, local: IpAddr, remote: IpAddr) -> Pseudo {
        if self.config.is_checksummed {
            Pseudo::between(local, remote)
        } else {
            Pseudo::Unchecked
        }
    }

    /// `config` with what every connection of this stack has.
    fn bounded(&self, config: &Config, local: IpAddr, remote: IpAddr) -> Config {
        let most = self.mss_max();
        Config {
            pseudo: self.pseudo(local, remote),
            mss: config.mss.min(most),
            mss_max: config.mss_max.min(most),
            ..*config
        }
    }

    /// Opens a connection from `local`, whose port may be 0 for any, to `remote`. Its SYN leaves with
    /// the next [`Stack::poll_transmit`].
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::InUse`], [`Error::Address`].
    pub fn connect(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        config: &Config,
    ) -> Result<ConnectionId, Error> {
        if self.slots.len() >= self.config.connections_max {
            return Err(Error::Full);
        }
        let tuple = self.free_tuple(local, remote)?;
        let timestamp_offset = self.generator.timestamp_offset(&tuple);
        let mut config = Config {
            local_port: tuple.local.1,
            remote_port: tuple.remote.1,
            timestamp_offset,
            ..self.bounded(config, tuple.local.0, tuple.remote.0)
        };
        config.congestion.seed = timestamp_offset.into();
        let initial = self.generator.initial(now, &tuple);
        let connection = Box::new(Connection::connect(now, config, initial));
        Ok(self.insert(tuple, connection))
    }

    fn free_tuple(&mut self, local: SocketAddr, remote: SocketAddr) -> Result<Tuple, Error> {
        if local.is_ipv4() != remote.is_ipv4() || remote.port() == 0 {
            return Err(Error::Address);
        }
        let tuple = |port| Tuple {
            local: (local.ip(), port),
            remote: (remote.ip(), remote.port()),
        };
        let is_free =
            |tuple: &Tuple| !self.by_tuple.contains_key(tuple) && !self.time_waits.contains(tuple);
        if local.port() != 0 {
            let wanted = tuple(local.port());
            return if is_free(&wanted) {
                Ok(wanted)
            } else {
                Err(Error::InUse)
            };
        }
        // RFC 6056 3.3.1: a random port of the dynamic range, then the next that is free.
        let mut random = [0; 2];
        self.randomness.fill(&mut random);
        let start = u16::from_ne_bytes(random) % EPHEMERAL_COUNT;
        let mut ports =
            (0..EPHEMERAL_COUNT).map(|i| EPHEMERAL_FIRST + (start + i) % EPHEMERAL_COUNT);
        ports
            .find_map(|port| Some(tuple(port)).filter(is_free))
            .ok_or(Error::InUse)
    }

    pub(super) fn insert(&mut self, tuple: Tuple, connection: Box<Connection>) -> ConnectionId {
        let id = self.slots.insert(connection, tuple);
        self.by_tuple.insert(tuple, id);
        self.touch(id);
        id
    }

    /// Waits for connections at `local`, whose address may be unspecified for all of its family.
    ///
    /// # Errors
    /// [`Error::InUse`], [`Error::Address`] where the port is 0.
    pub fn listen(&mut self, local: SocketAddr, config: &Config) -> Result<ListenerId, Error> {
        if local.port() == 0 {
            return Err(Error::Address);
        }
        let listen = ListenConfig {
            connection: self.bounded(config, local.ip(), local.ip()),
            backlog_max: self.config.backlog_max,
        };
        let listener = Listener::new(listen, &mut *self.randomness);
        self.listeners.insert(local, listener).ok_or(Error::InUse)
    }

    /// Waits no longer. Connections that nobody accepted are ended.
    pub fn unlisten(&mut self, now: Instant, id: ListenerId) {
        let listening = self.listeners.remove(id);
        for waiting in listening.into_iter().flat_map(|l| l.accepted) {
            self.abort(waiting);
            self.release(now, waiting);
        }
    }

    /// The next connection that was made at a port, the oldest first.
    #[must_use]
    pub fn accept(&mut self, id: ListenerId) -> Option<ConnectionId> {
        self.listeners.get_mut(id)?.accepted.pop_front()
    }
}
