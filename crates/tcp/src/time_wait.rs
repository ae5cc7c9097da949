//! What is left of a connection that closed first: enough to answer what comes late.
//!
//! RFC 9293 section 3.10.7.4 (TIME-WAIT), RFC 6191 (a new connection of the same ports), RFC 1337. A
//! server keeps thousands of these, so it keeps numbers and not a connection.

use core::time::Duration;
use fullbore_base::Instant;

use crate::connection::Clock;
use crate::segment::{Flags, Header, Segment};
use crate::seq::Seq;

/// Numbers of a connection in TIME-WAIT: at most 80 bytes.
#[derive(Clone, Copy, Debug)]
pub struct TimeWait {
    /// Our port and the peer's.
    pub ports: (u16, u16),
    /// What we would send next.
    pub snd_nxt: Seq,
    /// What we expect.
    pub rcv_nxt: Seq,
    /// The last window told, as the field has it.
    pub window: u16,
    /// Timestamps, when both agreed to them.
    pub clock: Option<Clock>,
    /// When it may be forgotten.
    pub until: Instant,
    /// How long that was from the start.
    pub time_wait: Duration,
}

/// What to do with a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// Drop it.
    Drop,
    /// Answer it.
    Answer(Header),
    /// A new connection of the same ports: forget this, and give the SYN to the listener.
    Reopen,
}

impl TimeWait {
    /// Judges a late segment. O(1).
    pub fn handle_segment(&mut self, now: Instant, segment: &Segment<'_>) -> Late {
        let header = &segment.header;
        // RFC 1337: a RST does not shorten the wait.
        if header.flags.has(Flags::RST) {
            return Late::Drop;
        }
        if header.flags.has(Flags::SYN) && !header.flags.has(Flags::ACK) {
            return if self.is_newer(now, header) {
                Late::Reopen
            } else {
                Late::Answer(self.answer(now))
            };
        }
        if header.flags.has(Flags::FIN) {
            self.until = now + self.time_wait;
        }
        if segment.sequence_len() == 0 && header.seq == self.rcv_nxt {
            return Late::Drop;
        }
        Late::Answer(self.answer(now))
    }

    /// RFC 6191 section 2: a later timestamp, or a later number, cannot be of the old connection.
    fn is_newer(&self, now: Instant, header: &Header) -> bool {
        match (self.clock, header.options.timestamps) {
            (Some(clock), Some(timestamps)) => {
                let recent = clock.stamp(now).echo;
                timestamps.value.wrapping_sub(recent).cast_signed() > 0
            }
            (Some(_) | None, Some(_) | None) => header.seq.since(self.rcv_nxt) > 0,
        }
    }

    fn answer(&self, now: Instant) -> Header {
        let mut header = Header {
            source_port: self.ports.0,
            destination_port: self.ports.1,
            seq: self.snd_nxt,
            ack: self.rcv_nxt,
            flags: Flags::ACK,
            window: self.window,
            ..Header::default()
        };
        header.options.timestamps = self.clock.map(|clock| clock.stamp(now));
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{Options, Timestamps};

    fn waiting(clock: Option<Clock>) -> TimeWait {
        TimeWait {
            ports: (22, 4000),
            snd_nxt: Seq::new(500),
            rcv_nxt: Seq::new(900),
            window: 100,
            clock,
            until: Instant::ZERO + Duration::from_secs(60),
            time_wait: Duration::from_secs(60),
        }
    }

    fn late(waiting: &mut TimeWait, flags: Flags, seq: u32, stamp: Option<u32>) -> Late {
        let header = Header {
            flags,
            seq: Seq::new(seq),
            options: Options {
                timestamps: stamp.map(|value| Timestamps { value, echo: 0 }),
                ..Options::default()
            },
            ..Header::default()
        };
        let segment = Segment {
            header,
            payload: b"",
        };
        let now = Instant::ZERO + Duration::from_secs(10);
        waiting.handle_segment(now, &segment)
    }

    #[test]
    fn a_fin_again_is_answered_and_starts_the_wait_anew() {
        let mut waiting = waiting(None);
        let answer = late(&mut waiting, Flags::FIN | Flags::ACK, 899, None);
        let Late::Answer(header) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!((header.seq, header.ack), (Seq::new(500), Seq::new(900)));
        assert_eq!(waiting.until, Instant::ZERO + Duration::from_secs(70));
    }

    #[test]
    fn a_reset_changes_nothing() {
        let mut waiting = waiting(None);
        assert_eq!(late(&mut waiting, Flags::RST, 900, None), Late::Drop);
        assert_eq!(waiting.until, Instant::ZERO + Duration::from_secs(60));
    }

    #[test]
    fn late_data_is_answered_and_a_late_acknowledgement_is_not() {
        let mut waiting = waiting(None);
        assert_eq!(late(&mut waiting, Flags::ACK, 900, None), Late::Drop);
        let elsewhere = late(&mut waiting, Flags::ACK, 899, None);
        assert!(matches!(elsewhere, Late::Answer(_)), "{elsewhere:?}");
        let header = Header {
            flags: Flags::ACK,
            seq: Seq::new(880),
            ..Header::default()
        };
        let payload = b"late";
        let data = waiting.handle_segment(Instant::ZERO, &Segment { header, payload });
        assert!(matches!(data, Late::Answer(_)), "{data:?}");
    }

    #[test]
    fn only_a_newer_syn_opens_a_new_connection() {
        let mut plain = waiting(None);
        assert_eq!(late(&mut plain, Flags::SYN, 901, None), Late::Reopen);
        assert_ne!(late(&mut plain, Flags::SYN, 900, None), Late::Reopen);
        let mut stamped = waiting(Some(Clock::new(0, 77, Instant::ZERO)));
        assert_eq!(late(&mut stamped, Flags::SYN, 5, Some(78)), Late::Reopen);
        assert_ne!(late(&mut stamped, Flags::SYN, 5, Some(77)), Late::Reopen);
    }

    #[test]
    fn it_takes_at_most_80_bytes() {
        assert!(size_of::<TimeWait>() <= 80);
    }
}
