//! The zero-copy way out: channel data is laid out in the packets it leaves in.

use super::dispatch::DATA_HEADER_LEN;
use super::{Connection, MAXPACKET_MAX};
use crate::channel::{ChannelId, State};
use crate::msg::SSH_MSG_CHANNEL_DATA;
use crate::transport::Transport;
use fullbore_base::{Instant, Outlet, TxBuf};
use smallvec::SmallVec;
use std::io::IoSliceMut;

/// Packets that one message is laid out over at most; a message that needs more (a peer with a tiny
/// maximum packet) is staged.
const PACKETS_MAX: usize = 64;

/// Bytes between the start of a packet and its channel data.
const FRONT_LEN: usize = Transport::HEADER_LEN + DATA_HEADER_LEN;

/// How much more padding one packet may need than another: less than a block.
const PADDING_SLACK: usize = 16;

/// Writes one channel's data: see [`Connection::outlet`].
#[derive(Debug)]
pub struct ChannelOutlet<'a> {
    connection: &'a mut Connection,
    tx: &'a mut TxBuf,
    slot: usize,
    way: Way,
}

/// Where bytes can go now.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Nowhere: no such channel, or its end was announced.
    Closed,
    /// Nowhere before `tx` has room: what goes first fills it.
    Full,
    /// Only to the staging queue.
    Staged,
    /// To the staging queue, and from there nowhere: the client has closed the channel, and what
    /// it sent before is still carried out.
    Discarded,
    /// Into packets with data fields of `maxpacket` bytes.
    Direct {
        remote_id: u32,
        window: usize,
        maxpacket: usize,
    },
}

impl Connection {
    /// Where the bytes of a channel go out, through [`Outlet`]: straight into the packets they leave
    /// in where the peer's window, the room in `tx`, and the key exchange permit, else into the
    /// channel's staging queue, which `poll_transmit` drains.
    ///
    /// What waits already (control messages, bytes that any channel has staged) is put into `tx`
    /// first. Room is zero while the staging queue is full (`Writable` tells when it has emptied),
    /// while `tx` is full (the driver's own to know) and when the channel takes no more data at all.
    /// Between channels that all write without staging the caller takes turns: who wrote last asks
    /// last.
    pub fn outlet<'a>(
        &'a mut self,
        now: Instant,
        ch: ChannelId,
        tx: &'a mut TxBuf,
    ) -> ChannelOutlet<'a> {
        let before = tx.pending().len();
        self.transmit(now, tx);
        self.stats.wire_bytes_sent += (tx.pending().len() - before) as u64;
        let slot = ch.slot as usize;
        let way = self.way_out(now, ch);
        ChannelOutlet {
            connection: self,
            tx,
            slot,
            way,
        }
    }

    fn way_out(&mut self, now: Instant, ch: ChannelId) -> Way {
        let is_open = self.transport.may_send();
        let is_first = self.control.is_empty() && self.table.is_silent();
        let is_plain = self.transport.sealed_len(DATA_HEADER_LEN).is_some();
        let is_alive = self.error().is_none();
        let is_discarded = self.login.is_server()
            && self
                .table
                .by_id(ch)
                .is_some_and(|c| c.input.is_closed && !c.output.close.is_asked_here());
        if is_alive && is_discarded {
            return Way::Discarded;
        }
        let Some(channel) = self.table.by_id_mut(ch).filter(|c| {
            is_alive && c.state != State::Refused && !c.input.is_closed && !is_ended(&c.output)
        }) else {
            return Way::Closed;
        };
        let may_send = channel.may_send_data() && channel.state == State::Open;
        let is_behind = channel.output.has_data();
        if let Some(remote) = channel.remote.as_mut().filter(|_| may_send && !is_behind) {
            if remote.window.window() == 0 {
                remote.window.on_limited(now);
            } else if is_open && !is_first {
                return Way::Full;
            } else if is_open && is_plain {
                return Way::Direct {
                    remote_id: remote.id,
                    window: remote.window.window() as usize,
                    maxpacket: remote.window.maxpacket().min(MAXPACKET_MAX) as usize,
                };
            }
        }
        channel.output.is_wanted = true;
        Way::Staged
    }
}

/// Whether the application has said that no more bytes come.
fn is_ended(output: &crate::channel::Output) -> bool {
    output.eof.is_asked_here() || output.close.is_asked_here() || output.close.is_sent()
}

impl ChannelOutlet<'_> {
    /// Longest message that can be laid out in `tx`.
    fn direct_room(&self) -> usize {
        let Way::Direct {
            window, maxpacket, ..
        } = self.way
        else {
            return 0;
        };
        let transport = &self.connection.transport;
        let Some(full) = transport.sealed_len(DATA_HEADER_LEN + maxpacket) else {
            return 0;
        };
        let room = self.tx.room();
        let whole = (room / full).min(PACKETS_MAX);
        // What is left after whole packets holds a shorter one, if more than its frame.
        let frame = transport.sealed_len_max(DATA_HEADER_LEN) + PADDING_SLACK;
        let rest = if whole < PACKETS_MAX {
            (room - whole * full).saturating_sub(frame)
        } else {
            0
        };
        (whole * maxpacket + rest.min(maxpacket - 1)).min(window)
    }

    fn staging_room(&self) -> usize {
        self.connection
            .table
            .at(self.slot)
            .map_or(0, |c| c.output.staging.room())
    }

    fn stage(
        &mut self,
        len_max: usize,
        fill: &mut dyn FnMut(&mut [IoSliceMut<'_>]) -> usize,
    ) -> bool {
        let channel = self.connection.table.listed(self.slot);
        let is_taken = channel.output.staging.emit(len_max, fill);
        if matches!(self.way, Way::Discarded) {
            channel.output.staging.consume(channel.output.staging.len());
        } else if is_taken {
            // Behind staged bytes all further ones are staged too.
            self.way = Way::Staged;
            self.connection.table.list_send(self.slot);
        }
        is_taken
    }

    fn lay_out(
        &mut self,
        len_max: usize,
        fill: &mut dyn FnMut(&mut [IoSliceMut<'_>]) -> usize,
    ) -> bool {
        let Way::Direct {
            remote_id,
            window,
            maxpacket,
        } = &mut self.way
        else {
            return false;
        };
        let (remote_id, maxpacket) = (*remote_id, *maxpacket);
        let transport = &mut self.connection.transport;
        let sealed_len = |transport: &Transport, data_len: usize| {
            transport
                .sealed_len(DATA_HEADER_LEN + data_len)
                .expect("the way is direct only without compression")
        };
        let full = sealed_len(transport, maxpacket);
        let last = (len_max - 1) % maxpacket + 1;
        let whole = (len_max - last) / maxpacket;
        let total = whole * full + sealed_len(transport, last);
        let tail = self.tx.tail_mut(total);
        let len = {
            let mut areas: SmallVec<[IoSliceMut<'_>; PACKETS_MAX]> = SmallVec::new();
            for (at, packet) in tail.chunks_mut(full).enumerate() {
                let data_len = if at < whole { maxpacket } else { last };
                areas.push(IoSliceMut::new(
                    &mut packet[FRONT_LEN..FRONT_LEN + data_len],
                ));
            }
            fill(&mut areas)
        };
        assert!(len <= len_max, "filled past the slices that were lent");
        let mut left = len;
        let mut sealed = 0;
        while left > 0 {
            let data_len = left.min(maxpacket);
            let packet_len = sealed_len(transport, data_len);
            let packet = &mut tail[sealed..sealed + packet_len];
            write_data_header(&mut packet[Transport::HEADER_LEN..], remote_id, data_len);
            transport.seal_at(packet, DATA_HEADER_LEN + data_len);
            sealed += packet_len;
            left -= data_len;
        }
        self.tx.commit(sealed);
        *window -= len;
        self.note_sent(len, sealed);
        true
    }

    fn note_sent(&mut self, len: usize, sealed: usize) {
        self.connection
            .liveness
            .on_appended(self.tx.pending().len());
        let stats = &mut self.connection.stats;
        stats.wire_bytes_sent += sealed as u64;
        stats.channel_bytes_sent += len as u64;
        stats.channel_bytes_direct += len as u64;
        let channel = self.connection.table.listed(self.slot);
        let remote = channel.remote.as_mut().expect("the way is direct");
        remote.window.take(len);
        if remote.window.window() == 0 {
            channel.output.is_wanted = true;
            self.way = Way::Staged;
        }
    }
}

/// Writes number, channel and length of a CHANNEL_DATA message.
pub(super) fn write_data_header(payload: &mut [u8], remote_id: u32, data_len: usize) {
    let len = u32::try_from(data_len).expect("a packet is far below 4 GiB");
    payload[0] = SSH_MSG_CHANNEL_DATA;
    payload[1..5].copy_from_slice(&remote_id.to_be_bytes());
    payload[5..9].copy_from_slice(&len.to_be_bytes());
}

impl Outlet for ChannelOutlet<'_> {
    /// While bytes can be laid out but `tx` is not empty, only what fits there: it is better to wait
    /// for the socket than to copy.
    fn room(&self) -> usize {
        match self.way {
            Way::Closed | Way::Full => 0,
            Way::Staged | Way::Discarded => self.staging_room(),
            Way::Direct { .. } if !self.tx.is_empty() && !self.is_window_short() => {
                self.direct_room()
            }
            Way::Direct { .. } => self.direct_room().max(self.staging_room()),
        }
    }

    fn emit(
        &mut self,
        len_max: usize,
        fill: &mut dyn FnMut(&mut [IoSliceMut<'_>]) -> usize,
    ) -> bool {
        if len_max == 0 || len_max > self.room() {
            if let Some(channel) = self.connection.table.at_mut(self.slot)
                && len_max > 0
            {
                channel.output.is_wanted = true;
            }
            return false;
        }
        if len_max <= self.direct_room() {
            self.lay_out(len_max, fill)
        } else {
            self.stage(len_max, fill)
        }
    }
}

impl ChannelOutlet<'_> {
    /// Whether the window, not `tx`, is what keeps a longest message from being laid out.
    fn is_window_short(&self) -> bool {
        matches!(self.way, Way::Direct { window, .. } if window < MAXPACKET_MAX as usize)
    }
}
