//! A channel of one connection as the stream under another (ProxyJump).

use std::io;
use std::task::{Context, Poll};

use fullbore_base::{Outlet, scatter};

use super::connection::PlainChannel;
use super::waiting::wait;
use crate::driver::stream::Tunnel;

/// A `direct-tcpip` channel. Bytes are copied once each way, between the two connections' buffers.
#[derive(Debug)]
pub(super) struct ChannelTunnel {
    channel: PlainChannel,
}

impl ChannelTunnel {
    pub(super) const fn new(channel: PlainChannel) -> Self {
        Self { channel }
    }

    pub(super) const fn channel(&self) -> &PlainChannel {
        &self.channel
    }
}

impl Tunnel for ChannelTunnel {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let ch = self.channel.ch;
        let core = &self.channel.connection.core;
        let has_bytes = core.look(|state| !state.session.conn().readable(ch).is_empty());
        if has_bytes {
            // Window credit goes back, so the carrying connection's task has something to do.
            return core.change(|state, now| {
                let conn = state.session.conn_mut();
                let view = conn.readable(ch);
                let n = view.len().min(buf.len());
                buf[..n].copy_from_slice(&view[..n]);
                conn.consume(now, ch, n);
                Poll::Ready(Ok(n))
            });
        }
        core.note(|state| {
            let plain = state.plain.entry(ch).or_default();
            if plain.is_eof || plain.is_closed {
                return match state.closed() {
                    Some(error) => Poll::Ready(Err(io::Error::other(error.clone()))),
                    None => Poll::Ready(Ok(0)),
                };
            }
            wait(&mut plain.reader, cx);
            Poll::Pending
        })
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let ch = self.channel.ch;
        self.channel.connection.core.change(|state, now| {
            let plain = state.plain.entry(ch).or_default();
            if plain.is_closed {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            wait(&mut plain.writer, cx);
            let (conn, tx) = state.session.conn_and_tx();
            let mut outlet = conn.outlet(now, ch, tx);
            let n = bytes.len().min(outlet.room());
            if n == 0 {
                return Poll::Pending;
            }
            let is_taken = outlet.emit(n, &mut |slices| {
                scatter(slices, 0, &bytes[..n]);
                n
            });
            if is_taken {
                Poll::Ready(Ok(n))
            } else {
                Poll::Pending
            }
        })
    }
}
