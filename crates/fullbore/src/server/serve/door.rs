//! Where connections come in: accepted, let in or turned away, handed to a thread.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use fullbore_base::Instant;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use super::gate::{Gate, Place};
use super::log::Log;
use super::turned_away::TurnedAway;
use crate::driver::clock::Clock;
use crate::driver::dial::tune;

/// How long no connection is accepted when the machine is out of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection on its way to a thread.
pub(super) type HandedOver = (OwnedFd, SocketAddr, Place);

/// Where connections come in.
pub(super) struct Door {
    gate: Gate,
    workers: Vec<mpsc::Sender<HandedOver>>,
    log: Log,
    clock: Clock,
    turned_away: TurnedAway,
}

impl Door {
    /// A door that hands those whom `gate` lets in to the threads in turn.
    pub(super) fn new(gate: Gate, workers: Vec<mpsc::Sender<HandedOver>>, log: Log) -> Self {
        Self {
            gate,
            workers,
            log,
            clock: Clock::start(),
            turned_away: TurnedAway::default(),
        }
    }

    /// Accepts until the server stops.
    pub(super) async fn open(
        mut self,
        listeners: Vec<TcpListener>,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut next = 0;
        loop {
            let count_is_due = self.turned_away.poll_timeout();
            tokio::select! {
                accepted = accept_any(&listeners) => match accepted {
                    Ok((stream, peer)) => {
                        self.admit(stream, peer, next);
                        next = (next + 1) % self.workers.len();
                    }
                    Err(error) => {
                        self.log.line(format_args!("cannot accept: {error}"));
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                () = until(&self.clock, count_is_due) => {
                    let unsaid = self.turned_away.handle_timeout(self.clock.now());
                    self.tell_unsaid(unsaid);
                }
                _ = stop.wait_for(|stop| *stop) => break,
            }
        }
        let unsaid = self.turned_away.end();
        self.tell_unsaid(unsaid);
    }

    /// Tells the log of those turned away that had no line of their own.
    fn tell_unsaid(&self, unsaid: Option<u64>) {
        if let Some(count) = unsaid {
            self.log
                .line(format_args!("{count} more connections turned away"));
        }
    }

    fn turn_away(&mut self, peer: SocketAddr, why: &dyn Display) {
        if self.turned_away.on_refusal(self.clock.now()) {
            self.log.line(format_args!("{peer}: turned away: {why}"));
        }
    }

    fn admit(&mut self, stream: TcpStream, peer: SocketAddr, worker: usize) {
        let place = match self.gate.enter(peer.ip()) {
            Ok(place) => place,
            Err(refusal) => {
                self.turn_away(peer, &refusal);
                // RFC 4253 4.2 allows lines before the version. Nobody waits for this one.
                let _ = stream.try_write(format!("Not now: {refusal}.\r\n").as_bytes());
                return;
            }
        };
        let socket = match stream.into_std() {
            Ok(stream) => OwnedFd::from(stream),
            Err(error) => {
                self.log.line(format_args!("{peer}: {error}"));
                return;
            }
        };
        tune(socket.as_fd());
        if self.workers[worker]
            .try_send((socket, peer, place))
            .is_err()
        {
            self.turn_away(peer, &"no thread takes it");
        }
    }
}

/// Waits until `at`; for ever without one.
async fn until(clock: &Clock, at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(clock.timer(at)).await,
        None => std::future::pending().await,
    }
}

/// The next connection of any listener.
async fn accept_any(listeners: &[TcpListener]) -> io::Result<(TcpStream, SocketAddr)> {
    std::future::poll_fn(|cx| {
        for listener in listeners {
            if let std::task::Poll::Ready(result) = listener.poll_accept(cx) {
                return std::task::Poll::Ready(result);
            }
        }
        std::task::Poll::Pending
    })
    .await
}
