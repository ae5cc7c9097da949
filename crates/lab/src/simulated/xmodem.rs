//! Xmodem's way, 1977: a block of 128 bytes, then a wait for its acknowledgement.

use fullbore_base::Instant;
use fullbore_sim::{Endpoint, Pair};

use super::{DEADLINE, Path, Run, Sampler};

/// File bytes in a block.
pub const BLOCK_BYTES: u64 = 128;

/// A block on the wire: SOH, number, its complement, the bytes, a checksum.
const WIRE_BYTES: usize = 132;

const SOH: u8 = 1;
const ACK: u8 = 6;

struct Sender {
    blocks_left: u64,
    is_waiting: bool,
    number: u8,
}

impl Endpoint for Sender {
    fn handle_input(&mut self, _: Instant, bytes: &[u8]) -> usize {
        if bytes.contains(&ACK) {
            self.is_waiting = false;
        }
        bytes.len()
    }

    fn handle_eof(&mut self, _: Instant) {}

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn poll_transmit(&mut self, _: Instant, room: usize, out: &mut Vec<u8>) {
        if self.is_waiting || self.blocks_left == 0 || room < WIRE_BYTES {
            return;
        }
        self.number = self.number.wrapping_add(1);
        out.extend_from_slice(&[SOH, self.number, !self.number]);
        // Zeros add up to zero.
        out.resize(WIRE_BYTES, 0);
        self.blocks_left -= 1;
        self.is_waiting = true;
    }

    fn is_closed(&self) -> bool {
        false
    }
}

struct Receiver {
    wire_bytes: usize,
    acks_due: u64,
    received: u64,
}

impl Endpoint for Receiver {
    fn handle_input(&mut self, _: Instant, bytes: &[u8]) -> usize {
        self.wire_bytes += bytes.len();
        while self.wire_bytes >= WIRE_BYTES {
            self.wire_bytes -= WIRE_BYTES;
            self.received += BLOCK_BYTES;
            self.acks_due += 1;
        }
        bytes.len()
    }

    fn handle_eof(&mut self, _: Instant) {}

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn poll_transmit(&mut self, _: Instant, room: usize, out: &mut Vec<u8>) {
        if room > 0 && self.acks_due > 0 {
            self.acks_due -= 1;
            out.push(ACK);
        }
    }

    fn is_closed(&self) -> bool {
        false
    }
}

/// Sends `bytes` in whole blocks.
#[must_use]
pub fn run(path: &Path, bytes: u64) -> Run {
    let sender = Sender {
        blocks_left: bytes.div_ceil(BLOCK_BYTES),
        is_waiting: false,
        number: 0,
    };
    let receiver = Receiver {
        wire_bytes: 0,
        acks_due: 0,
        received: 0,
    };
    let mut pair = Pair::new(path.pair(0), sender, receiver);
    let mut sampler = Sampler::new(pair.now(), path.rtt / 4);
    pair.run(
        DEADLINE,
        |pair| pair.b.received >= bytes && pair.b.acks_due == 0 && !pair.a.is_waiting,
        |pair| sampler.note(pair.now(), pair.b.received, BLOCK_BYTES),
    );
    Run {
        elapsed: pair.now() - Instant::ZERO,
        bytes: pair.b.received,
        samples: sampler.samples,
        ..Run::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_takes_a_round_trip_and_its_own_time() {
        let path = Path::new(1, 100);
        let run = run(&path, 10 * BLOCK_BYTES);
        // 132 bytes at 1 Mbit/s are 1.056 ms, the ACK 8 us.
        let block = path.rtt + path.rate.time_for(132) + path.rate.time_for(1);
        assert_eq!((run.bytes, run.elapsed), (1280, block * 10));
    }
}
