//! The task that moves datagrams between a socket and its connections.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::socket::Socket;
use super::{State, Udp};
use crate::driver::net::alarm::Alarm;
use crate::udp::endpoint::{BUFFER_BYTES, Transmit};

/// What one call receives at most: what the kernel puts together (UDP_GRO) is no longer than a packet.
const RECEIVE_BYTES: usize = 64 * 1024;

/// Rounds of receiving and sending before other tasks of the thread have their turn.
const ROUNDS_MAX: usize = 8;

/// Calls that receive before what they brought is answered. One acknowledgement tells of all.
const RECEIVES_MAX: usize = 2;

/// Calls that send before the socket is looked at again.
const SENDS_MAX: usize = 4;

/// Moves datagrams. Ends only when the socket is broken; dropping it stops everything.
#[derive(Debug)]
pub struct Driver {
    udp: Udp,
    socket: Socket,
    alarm: Option<Alarm>,
    received: Box<[u8]>,
    out: Box<[u8]>,
    /// What stands in `out` and was not sent yet.
    unsent: Option<Transmit>,
}

impl Driver {
    pub(super) fn new(udp: Udp, socket: Socket) -> Self {
        Self {
            udp,
            socket,
            alarm: None,
            received: vec![0; RECEIVE_BYTES].into(),
            out: vec![0; BUFFER_BYTES].into(),
            unsent: None,
        }
    }

    /// Runs until there is nothing to do but wait.
    fn run(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let shared = self.udp.state.clone();
        let mut state = shared.borrow_mut();
        state.driver = Some(cx.waker().clone());
        for _ in 0..ROUNDS_MAX {
            let now = self.udp.clock.now();
            if state.endpoint.poll_timeout().is_some_and(|at| at <= now) {
                state.endpoint.handle_timeout(now);
            }
            let has_received = self.receive(cx, &mut state)?;
            let has_sent = self.send(cx, &mut state)?;
            state.tell();
            if !has_received && !has_sent && self.sleep(cx, &state)? {
                return Ok(());
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    fn receive(&mut self, cx: &mut Context<'_>, state: &mut State) -> io::Result<bool> {
        let mut has_received = false;
        for _ in 0..RECEIVES_MAX {
            let Poll::Ready(received) = self.socket.poll_recv(cx, &mut self.received) else {
                break;
            };
            let received = received?;
            has_received = true;
            let now = self.udp.clock.now();
            let bytes = &self.received[..received.len];
            for datagram in bytes.chunks(received.segment_len) {
                state.endpoint.handle_datagram(now, received.from, datagram);
            }
        }
        Ok(has_received)
    }

    fn send(&mut self, cx: &mut Context<'_>, state: &mut State) -> io::Result<bool> {
        let mut has_sent = false;
        for _ in 0..SENDS_MAX {
            let next = self.unsent.take().or_else(|| {
                let now = self.udp.clock.now();
                state.endpoint.poll_transmit(now, &mut self.out)
            });
            let Some(transmit) = next else {
                break;
            };
            match self.socket.poll_send(cx, &transmit, &self.out) {
                Poll::Ready(sent) => sent?,
                Poll::Pending => {
                    self.unsent = Some(transmit);
                    break;
                }
            }
            has_sent = true;
        }
        Ok(has_sent)
    }

    /// Returns whether the next deadline is still to come, and sees that it will be kept.
    fn sleep(&mut self, cx: &mut Context<'_>, state: &State) -> io::Result<bool> {
        if self.unsent.is_none() && state.endpoint.has_output() {
            return Ok(false);
        }
        let Some(at) = state.endpoint.poll_timeout() else {
            return Ok(true);
        };
        let clock = self.udp.clock;
        let alarm = match &mut self.alarm {
            Some(alarm) => alarm,
            none => none.insert(Alarm::new(&clock)?),
        };
        Ok(alarm.poll(cx, &clock, at).is_pending())
    }
}

impl Future for Driver {
    type Output = io::Error;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Error> {
        match self.run(cx) {
            Ok(()) => Poll::Pending,
            Err(error) => {
                self.udp.state.borrow_mut().fail(error.kind());
                Poll::Ready(error)
            }
        }
    }
}
