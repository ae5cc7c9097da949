//! Lets other commands use a connection (ControlMaster, ControlPersist): a process that has one listens
//! on a socket and carries their channels. See `shared` for the other side.
//!
//! An SFTP session is kept open in advance, so that a command that comes needs no round trip for a
//! channel: its first requests leave at once.

mod relay;

use std::cell::{Cell, RefCell};
use std::future::{Future, pending};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use fullbore_base::Instant;
use fullbore_ssh::config::HostKey;
use tokio::sync::Notify;

use self::relay::{Relay, SocketKey};
use super::connection::{Connection, PlainChannel};
use crate::config::ssh_config::{Persist, Sharing};
use crate::driver::local_socket::LocalListener;
use crate::driver::pump::Pump;
use crate::driver::random::SystemRandom;
use crate::driver::stream::Stream;
use crate::server::serve::host_key;

/// Clients at once; each has a task and some buffers. Ours.
pub const CLIENTS_MAX: usize = 32;

/// A connection that others may use.
#[derive(Debug)]
pub struct Master {
    shared: Rc<Shared>,
    listener: LocalListener,
    persist: Persist,
}

/// What the clients' tasks have in common.
#[derive(Debug)]
struct Shared {
    connection: Connection,
    key: Arc<dyn HostKey>,
    /// An SFTP session that nobody uses yet.
    spare: RefCell<Option<PlainChannel>>,
    clients_count: Cell<usize>,
    /// When a command last used the connection.
    used_at: Cell<Instant>,
    on_left: Notify,
}

impl Master {
    /// Listens for others; whoever listened under the same name before is not found any more.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn new(connection: Connection, sharing: &Sharing, persist: Persist) -> io::Result<Self> {
        let listener = LocalListener::bind(&sharing.socket)?;
        let key = host_key::make(&mut SystemRandom::new()).map_err(io::Error::other)?;
        let shared = Shared {
            used_at: Cell::new(connection.now()),
            connection,
            key: Arc::new(SocketKey(key)),
            spare: RefCell::default(),
            clients_count: Cell::new(0),
            on_left: Notify::new(),
        };
        shared.refill();
        Ok(Self {
            shared: Rc::new(shared),
            listener,
            persist,
        })
    }

    /// Serves clients until the connection is over, or nobody has used it for as long as it persists.
    pub async fn run(self) {
        let shared = &self.shared;
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted.and_then(Stream::socket) {
                    Ok(stream) if shared.clients_count.get() < CLIENTS_MAX => {
                        shared.clients_count.set(shared.clients_count.get() + 1);
                        tokio::task::spawn_local(Rc::clone(shared).carry(stream));
                    }
                    // Too many: it connects by itself.
                    Ok(_) => {}
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
                () = shared.on_left.notified() => {}
                () = shared.connection.core.finished() => return,
                () = self.patience() => break,
            }
        }
        let last_words = shared.connection.close();
        let _ = tokio::time::timeout(GOODBYE_MAX, last_words).await;
    }

    /// Ready when no command has used the connection for so long, counted from its end: whoever only looks
    /// whether there is one, or could not be served, does not prolong it.
    fn patience(&self) -> impl Future<Output = ()> + use<> {
        let shared = &self.shared;
        let (is_idle, used_at) = (shared.clients_count.get() == 0, shared.used_at.get());
        let now = shared.connection.now();
        let persist = self.persist;
        async move {
            match persist {
                Persist::Seconds(seconds) if is_idle => {
                    let until = used_at + Duration::from_secs(seconds);
                    tokio::time::sleep(until.saturating_duration_since(now)).await;
                }
                Persist::Seconds(_) | Persist::Forever => pending().await,
            }
        }
    }
}

/// Rest after a failure to accept. Without it, one that lasts (no descriptor is free) would keep a
/// processor busy. Ours.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a server is given to take the goodbye.
const GOODBYE_MAX: Duration = Duration::from_secs(2);

impl Shared {
    /// Carries one client until it leaves.
    async fn carry(self: Rc<Self>, stream: Stream) {
        let clock = self.connection.core.clock;
        let mut relay = Relay::new(Rc::clone(&self));
        let mut pump = Pump::new(stream, clock);
        std::future::poll_fn(|cx| {
            relay.set_waker(cx.waker());
            pump.poll(cx, &mut relay)
        })
        .await;
        if relay.is_used() {
            self.used_at.set(self.connection.now());
        }
        drop(relay);
        self.clients_count.set(self.clients_count.get() - 1);
        self.refill();
        self.on_left.notify_one();
    }

    /// Opens an SFTP session in advance. Where the server opens no more, the next client sees to itself.
    fn refill(&self) {
        let mut spare = self.spare.borrow_mut();
        if spare.as_ref().is_none_or(PlainChannel::is_over) {
            *spare = PlainChannel::subsystem(&self.connection, "sftp").ok();
        }
    }

    /// An SFTP session for a client.
    fn sftp(&self) -> Option<PlainChannel> {
        let spare = self.spare.take().filter(|channel| !channel.is_over());
        spare.or_else(|| PlainChannel::subsystem(&self.connection, "sftp").ok())
    }
}
