//! The hostile receiver behind a TUN device: what the kernel sends to its address comes here, and what it
//! answers goes back a round trip later.
//!
//! A packet that is written to a TUN device is handled by the kernel's TCP before the call returns, on the thread
//! that makes it. So the processor time of these calls is what acknowledgements cost the kernel: receiving each,
//! the search for what it names, and sending what it lets out.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::time::Duration;

use fullbore::driver::clock::Clock;
use fullbore::driver::net::Received;
use fullbore::driver::thread_clock;
use fullbore::driver::tun::{self, GSO_NONE, IPV4_BYTES, VNET_LEN};
use fullbore_base::Instant;
use fullbore_tcp::segment::{Flags, Header, Pseudo, Segment};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::is_for_later;
use crate::sack::path::Stretch;
use crate::sack::receiver::{REQUEST_BYTES_MAX, Receiver, State};

/// Bytes of an IPv4 header without options.
const IP_LEN: usize = IPV4_BYTES as usize;

/// TCP's number in the IP header.
const PROTOCOL_TCP: u8 = 6;

/// Packets read, and acknowledgements written, before the other has its turn.
const BATCH_COUNT_MAX: usize = 64;

/// The longest packet, and what stands before it.
const READ_BYTES: usize = VNET_LEN + 0x1_0000;

/// How finely the processor time is kept over time.
const STRETCH: Duration = Duration::from_millis(50);

/// What the loop is told.
#[derive(Debug)]
pub(super) struct Ends {
    /// The kernel's, or the target's.
    pub(super) sender: Ipv4Addr,
    /// Ours.
    pub(super) receiver: Ipv4Addr,
    /// The round trip that is emulated, all of it in our direction.
    pub(super) rtt: Duration,
    /// Bytes under attack after which it is over.
    pub(super) bytes: u64,
    /// How long the attack lasts at most.
    pub(super) time_max: Duration,
    /// How long it may take to begin.
    pub(super) growth_max: Duration,
}

/// What the attack came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Measured {
    /// How long it lasted.
    pub(super) wall: Duration,
    /// The calls that handed acknowledgements over.
    pub(super) cpu: Duration,
    /// How many there were.
    pub(super) acks: u64,
    /// The whole run, the time before the attack included.
    pub(super) stretches: Vec<Stretch>,
    /// It ended before the bytes had come, or the attack never began.
    pub(super) is_given_up: bool,
}

struct Delayed {
    due: Instant,
    bytes: Vec<u8>,
}

/// See the module.
pub(super) struct Loop<'a> {
    device: &'a File,
    ends: &'a Ends,
    receiver: &'a mut Receiver,
    clock: Clock,
    delayed: VecDeque<Delayed>,
    spare: Vec<Vec<u8>>,
    measured: Measured,
    packet_id: u16,
}

impl<'a> Loop<'a> {
    pub(super) fn new(
        device: &'a File,
        ends: &'a Ends,
        receiver: &'a mut Receiver,
        clock: Clock,
    ) -> Self {
        Self {
            device,
            ends,
            receiver,
            clock,
            delayed: VecDeque::new(),
            spare: Vec::new(),
            measured: Measured::default(),
            packet_id: 0,
        }
    }

    /// Runs until enough was acknowledged under attack. `on_attack` is called when that begins.
    pub(super) fn go(mut self, on_attack: &mut dyn FnMut()) -> io::Result<Measured> {
        let mut scratch = vec![0; READ_BYTES];
        let mut is_begun = false;
        loop {
            let now = self.clock.now();
            self.give(now)?;
            self.take(&mut scratch)?;
            let now = self.clock.now();
            self.receiver.handle_timeout(now);
            self.answer(now);
            let received = *self.receiver.received();
            if let Some(since) = received.attacked_at {
                if !std::mem::replace(&mut is_begun, true) {
                    on_attack();
                }
                self.measured.wall = now - since;
                let is_enough = received.acked - received.acked_before >= self.ends.bytes;
                let is_long = self.measured.wall >= self.ends.time_max;
                if is_enough || is_long {
                    return self.end(now);
                }
            }
            let is_late = !is_begun && now - Instant::ZERO >= self.ends.growth_max;
            if is_late || self.receiver.state() == State::Over {
                self.measured.is_given_up = true;
                return self.end(now);
            }
            self.wait()?;
        }
    }

    fn end(mut self, now: Instant) -> io::Result<Measured> {
        self.delayed.clear();
        self.receiver.abort(now);
        self.answer(now);
        for delayed in self.delayed.drain(..) {
            self.device.write_all(&delayed.bytes)?;
        }
        Ok(self.measured)
    }

    /// Hands over what is due.
    fn give(&mut self, now: Instant) -> io::Result<()> {
        if self.delayed.front().is_none_or(|first| first.due > now) {
            return Ok(());
        }
        let began = thread_clock::exact();
        let mut count = 0;
        while count < BATCH_COUNT_MAX
            && self.delayed.front().is_some_and(|first| first.due <= now)
            && let Some(delayed) = self.delayed.pop_front()
        {
            self.device.write_all(&delayed.bytes)?;
            self.spare.push(delayed.bytes);
            count += 1;
        }
        let cpu = thread_clock::exact() - began;
        if self.receiver.state() == State::Attacking {
            self.measured.cpu += cpu;
            self.measured.acks += count as u64;
        }
        self.note(now, cpu);
        Ok(())
    }

    fn note(&mut self, now: Instant, cpu: Duration) {
        let at = now - Instant::ZERO;
        match self.measured.stretches.last_mut() {
            Some(last) if at < last.at + STRETCH => last.cpu += cpu,
            Some(_) | None => self.measured.stretches.push(Stretch {
                at,
                time: STRETCH,
                cpu,
            }),
        }
    }

    /// Reads what the kernel has sent.
    fn take(&mut self, scratch: &mut [u8]) -> io::Result<()> {
        for _ in 0..BATCH_COUNT_MAX {
            match self.device.read(scratch) {
                Ok(len) => {
                    let now = self.clock.now();
                    for (header, payload_len) in segments(&scratch[..len], self.ends) {
                        self.receiver.handle_segment(now, &header, payload_len);
                        self.answer(now);
                    }
                }
                Err(error) if is_for_later(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Puts what the receiver says on its way.
    fn answer(&mut self, now: Instant) {
        loop {
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.resize(VNET_LEN + IP_LEN + ANSWER_BYTES_MAX, 0);
            let Some(len) = self.receiver.poll_transmit(&mut bytes[VNET_LEN + IP_LEN..]) else {
                self.spare.push(bytes);
                return;
            };
            bytes.truncate(VNET_LEN + IP_LEN + len);
            bytes[..VNET_LEN].fill(0);
            self.packet_id = self.packet_id.wrapping_add(1);
            let (from, to) = (self.ends.receiver, self.ends.sender);
            ip_header(&mut bytes[VNET_LEN..], self.packet_id, from, to);
            let due = now + self.ends.rtt;
            self.delayed.push_back(Delayed { due, bytes });
        }
    }

    fn wait(&self) -> io::Result<()> {
        let due = self.delayed.front().map(|first| first.due);
        let next = due.into_iter().chain(self.receiver.poll_timeout()).min();
        let left = next
            .map_or(STRETCH, |at| at - self.clock.now())
            .min(STRETCH);
        let time = Timespec {
            tv_sec: 0,
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut polled = [PollFd::from_borrowed_fd(self.device.as_fd(), PollFlags::IN)];
        match poll(&mut polled, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Room for a header and a request.
const ANSWER_BYTES_MAX: usize = 60 + REQUEST_BYTES_MAX;

/// The segments of a packet between the ends, as the sender's hardware would have cut it.
fn segments(packet: &[u8], ends: &Ends) -> Vec<(Header, usize)> {
    let parsed = parse(packet, ends);
    let Some((header, len, mss)) = parsed else {
        return Vec::new();
    };
    let count = len.div_ceil(mss).max(1);
    let one = |i: usize| {
        let at = i * mss;
        let mut header = header;
        header.seq = header.seq.at(at as u64);
        if i + 1 < count {
            header.flags =
                Flags::from_bits(header.flags.bits() & !(Flags::FIN | Flags::PSH).bits());
        }
        (header, (len - at).min(mss))
    };
    (0..count).map(one).collect()
}

/// The header of a packet between the ends, the bytes behind it, and how many of them a segment has.
fn parse(packet: &[u8], ends: &Ends) -> Option<(Header, usize, usize)> {
    let Received::Segment(arrival) = tun::open(packet)? else {
        return None;
    };
    let is_ours =
        arrival.remote == IpAddr::V4(ends.sender) && arrival.local == IpAddr::V4(ends.receiver);
    // The checksum is left to the device.
    let segment = Segment::parse(arrival.bytes, Pseudo::Unchecked).ok()?;
    let len = segment.payload.len();
    let mss = usize::from(u16::from_ne_bytes([packet[4], packet[5]]));
    let mss = if packet[1] == GSO_NONE || mss == 0 {
        len
    } else {
        mss
    };
    is_ours.then_some((segment.header, len, mss.max(1)))
}

/// Writes an IPv4 header in front of the segment that stands in `packet`.
fn ip_header(packet: &mut [u8], id: u16, from: Ipv4Addr, to: Ipv4Addr) {
    let len = u16::try_from(packet.len()).expect("an answer is short");
    let header = &mut packet[..IP_LEN];
    header.fill(0);
    header[0] = 0x45;
    header[2..4].copy_from_slice(&len.to_be_bytes());
    header[4..6].copy_from_slice(&id.to_be_bytes());
    header[8] = 64;
    header[9] = PROTOCOL_TCP;
    header[12..16].copy_from_slice(&from.octets());
    header[16..20].copy_from_slice(&to.octets());
    let words = header.chunks_exact(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    let checksum = !u16::try_from(sum).expect("folded twice");
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}
