//! A connection with its application, as the simulator's endpoint.

use fullbore_base::{Instant, TxBuf};
use fullbore_sim::Endpoint;
use fullbore_ssh::{Connection, Event};

/// What a test plays on top of a connection.
pub trait App {
    /// Something happened.
    fn on_event(&mut self, now: Instant, conn: &mut Connection, tx: &mut TxBuf, event: Event);

    /// Writes what there is to write; true when something was written.
    fn pump(&mut self, now: Instant, conn: &mut Connection, tx: &mut TxBuf) -> bool;
}

/// One end.
pub struct Node<A> {
    pub conn: Connection,
    pub app: A,
    pub tx: TxBuf,
    /// Events so far, for tests of their order.
    pub events: Vec<Event>,
    /// Nothing is taken from the socket's buffer: the peer's replies are never read.
    pub is_deaf: bool,
}

impl<A: App> Node<A> {
    pub fn new(conn: Connection, app: A, tx_bytes: usize) -> Self {
        Self {
            conn,
            app,
            tx: TxBuf::new(tx_bytes),
            events: Vec::new(),
            is_deaf: false,
        }
    }

    /// Lets the application react until nothing changes.
    pub fn react(&mut self, now: Instant) {
        loop {
            while let Some(event) = self.conn.poll_event(now) {
                if self.events.len() < 4096 {
                    self.events.push(event);
                }
                self.app.on_event(now, &mut self.conn, &mut self.tx, event);
            }
            if !self.app.pump(now, &mut self.conn, &mut self.tx) {
                return;
            }
        }
    }
}

impl<A: App> Endpoint for Node<A> {
    fn handle_input(&mut self, now: Instant, bytes: &[u8]) -> usize {
        if self.is_deaf {
            return 0;
        }
        let mut taken = 0;
        while taken < bytes.len() {
            let space = self.conn.input_space();
            let n = space.len().min(bytes.len() - taken);
            if n == 0 {
                break;
            }
            space[..n].copy_from_slice(&bytes[taken..taken + n]);
            taken += n;
            if self.conn.handle_input(now, n).is_err() {
                // The dead take everything and answer nothing.
                taken = bytes.len();
            }
            self.react(now);
        }
        taken
    }

    fn handle_eof(&mut self, now: Instant) {
        // The outcome is the event's to tell.
        let _told = self.conn.handle_eof(now);
        self.react(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.conn.handle_timeout(now);
        self.react(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.conn.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Instant, room: usize, out: &mut Vec<u8>) {
        self.react(now);
        while out.len() < room {
            let _appended = self.conn.poll_transmit(now, &mut self.tx);
            let n = self.tx.pending().len().min(room - out.len());
            if n == 0 {
                break;
            }
            out.extend_from_slice(&self.tx.pending()[..n]);
            self.tx.consume(n);
            self.react(now);
        }
    }

    fn is_closed(&self) -> bool {
        self.conn.error().is_some() && self.tx.is_empty()
    }
}
