//! One file being read: which ranges were asked for, which are missing, where the file ends.
//!
//! Worked example, size hint 100, request size 40: READs (0,40) (40,40) (80,20) and, as the probe
//! past the end, (100,32768). The server answers (0,40) with 15 bytes: (15,25) is asked again, bit
//! for bit. The probe is answered with EOF: done when (15,25) is here, end = 100. Had the probe
//! brought data the file would have grown, and reading would go on until EOF.

use std::collections::{BTreeMap, VecDeque};

use super::config::{
    EMPTY_REPLIES_MAX, EOF_ROUNDS_MAX, PROBE_LEN, REQUEST_LEN_MIN, is_within_span,
};
use super::error::BulkError;

/// Offsets stay below 2^63: OpenSSH refuses larger ones, and `off_t` has no more.
pub(super) const OFFSET_MAX: u64 = i64::MAX as u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Asked for, no reply yet.
    Sent,
    /// To be asked for again; also listed in `again`.
    Queued,
    /// Past the end of file, said the server.
    Void,
}

/// A range not yet received, keyed by its offset.
#[derive(Clone, Copy, Debug)]
struct Piece {
    len: u32,
    state: State,
    /// Lies past the expected end of file.
    probe: bool,
}

/// The ranges of a download. Pieces never overlap; everything below `next` that is not in a piece
/// has been received.
#[derive(Debug)]
pub(super) struct Get {
    /// First offset never asked for.
    next: u64,
    /// Where the file is expected to end.
    hint: u64,
    /// Nothing is read from here on.
    end_max: u64,
    pieces: BTreeMap<u64, Piece>,
    again: VecDeque<u64>,
    /// Lowest offset that the server said is past the end.
    eof: Option<u64>,
    /// End of the data received that lies farthest.
    data_end: u64,
    probes_out: u32,
    /// Probes that may be out at once: 1, doubled by each that brings data.
    probes_max: u32,
    empty_replies: u32,
    eof_rounds: u32,
    /// Length of the last short reply inside the file.
    short_len: u32,
}

impl Get {
    pub(super) fn new(offset: u64, hint: u64, end_max: u64) -> Self {
        let end_max = end_max.min(OFFSET_MAX);
        Self {
            next: offset,
            hint: hint.min(end_max),
            end_max,
            pieces: BTreeMap::new(),
            again: VecDeque::new(),
            eof: None,
            data_end: offset,
            probes_out: 0,
            probes_max: 1,
            empty_replies: 0,
            eof_rounds: 0,
            short_len: 0,
        }
    }

    /// Everything before this offset has been received.
    pub(super) fn frontier(&self) -> u64 {
        self.pieces
            .first_key_value()
            .map_or(self.next, |(&offset, _)| offset)
    }

    /// Whether a reply of `n` bytes at `offset` ends where the file was expected to, or later.
    pub(super) const fn is_past_hint(&self, offset: u64, n: u32) -> bool {
        offset.saturating_add(n as u64) >= self.hint
    }

    /// Whether a READ should be sent now.
    pub(super) fn wants(&self) -> bool {
        !self.again.is_empty()
            || (self.eof.is_none()
                && self.next < self.end_max
                && is_within_span(self.next, self.frontier())
                && (self.next < self.hint || self.probes_out < self.probes_max))
    }

    /// The next READ, noted as sent: `(offset, len)`, `len <= size`.
    pub(super) fn next_read(&mut self, size: u32) -> Option<(u64, u32)> {
        if let Some(offset) = self.again.pop_front() {
            return Some((offset, self.resend(offset, size)));
        }
        if !self.wants() {
            return None;
        }
        let offset = self.next;
        let probe = offset >= self.hint;
        let len = if probe && self.hint > 0 && self.probes_max == 1 {
            u64::from(size.min(PROBE_LEN)).min(self.end_max - offset)
        } else if probe {
            u64::from(size).min(self.end_max - offset)
        } else {
            u64::from(size).min(self.hint - offset)
        };
        let len = len as u32;
        self.probes_out += u32::from(probe);
        self.next += u64::from(len);
        let state = State::Sent;
        self.pieces.insert(offset, Piece { len, state, probe });
        Some((offset, len))
    }

    fn resend(&mut self, offset: u64, size: u32) -> u32 {
        let piece = self
            .pieces
            .get_mut(&offset)
            .expect("an offset in `again` has its piece");
        piece.state = State::Sent;
        let (len, probe) = (piece.len, piece.probe);
        if len <= size {
            return len;
        }
        piece.len = size;
        let rest = Piece {
            len: len - size,
            state: State::Queued,
            probe,
        };
        self.probes_out += u32::from(probe);
        self.pieces.insert(offset + u64::from(size), rest);
        self.again.push_front(offset + u64::from(size));
        size
    }

    /// The READ at `offset` brought `n` bytes. What is missing is queued again. `Some(n)` is
    /// evidence that the server's replies are no longer than `n`: two were cut to that length.
    pub(super) fn on_data(&mut self, offset: u64, n: u32) -> Result<Option<u32>, BulkError> {
        let piece = self
            .pieces
            .remove(&offset)
            .expect("an outstanding READ has its piece");
        let end = offset + u64::from(n);
        if n == 0 {
            self.empty_replies += 1;
            if self.empty_replies > EMPTY_REPLIES_MAX {
                self.pieces.insert(offset, piece);
                return Err(BulkError::NoProgress { offset });
            }
        } else {
            self.empty_replies = 0;
            self.data_end = self.data_end.max(end);
        }
        if piece.probe && n > 0 {
            self.probes_max = (self.probes_max * 2).min(1024);
        }
        if n >= piece.len {
            self.probes_out -= u32::from(piece.probe);
            return Ok(None);
        }
        let rest = Piece {
            len: piece.len - n,
            state: State::Queued,
            probe: piece.probe,
        };
        self.pieces.insert(end, rest);
        self.again.push_back(end);
        if piece.probe || end >= self.hint || n < REQUEST_LEN_MIN {
            return Ok(None);
        }
        let is_evidence = self.short_len == n;
        self.short_len = n;
        Ok(is_evidence.then_some(n))
    }

    /// The READ at `offset` was refused for its length: it is asked again, in shorter ones.
    pub(super) fn on_refused(&mut self, offset: u64) {
        let piece = self
            .pieces
            .get_mut(&offset)
            .expect("an outstanding READ has its piece");
        piece.state = State::Queued;
        self.again.push_back(offset);
    }

    /// The READ at `offset` was answered with end of file.
    pub(super) fn on_eof(&mut self, offset: u64) {
        let piece = self
            .pieces
            .get_mut(&offset)
            .expect("an outstanding READ has its piece");
        piece.state = State::Void;
        self.eof = Some(self.eof.map_or(offset, |eof| eof.min(offset)));
    }

    /// Once nothing is outstanding: the end of the file when all of it is here. A hole said to
    /// lie past the end while data behind it arrived is queued again.
    pub(super) fn settle(&mut self) -> Result<Option<u64>, BulkError> {
        if self.wants() {
            return Ok(None);
        }
        let Some((&hole, _)) = self.pieces.first_key_value() else {
            return if self.end_max < OFFSET_MAX {
                Ok(Some(self.next))
            } else {
                Err(BulkError::TooLong)
            };
        };
        if hole >= self.data_end {
            return Ok(Some(hole));
        }
        self.eof_rounds += 1;
        if self.eof_rounds > EOF_ROUNDS_MAX {
            return Err(BulkError::EndInside { offset: hole });
        }
        self.eof = None;
        for (&offset, piece) in self.pieces.range_mut(..self.data_end) {
            piece.state = State::Queued;
            self.again.push_back(offset);
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::config::{REQUEST_LEN_MAX, SPAN_BYTES_MIN};

    /// Sends all that is wanted, at most `max` READs.
    fn send(get: &mut Get, size: u32, max: usize) -> Vec<(u64, u32)> {
        std::iter::from_fn(|| get.next_read(size))
            .take(max)
            .collect()
    }

    #[test]
    fn asks_for_all_up_to_the_hint_and_one_probe() {
        let mut get = Get::new(0, 100, u64::MAX);
        let sent = send(&mut get, 40, 99);
        assert_eq!(sent, [(0, 40), (40, 40), (80, 20), (100, 40)]);
        assert_eq!(get.frontier(), 0);
    }

    #[test]
    fn a_short_reply_is_asked_again_bit_for_bit() {
        let mut get = Get::new(0, 100, u64::MAX);
        send(&mut get, 40, 99);
        assert_eq!(
            get.on_data(0, 15).expect("fine"),
            None,
            "too short to be believed"
        );
        assert_eq!(get.frontier(), 15);
        assert_eq!(send(&mut get, 40, 99), [(15, 25)]);
        get.on_data(15, 25).expect("fine");
        get.on_data(40, 40).expect("fine");
        get.on_data(80, 20).expect("fine");
        get.on_eof(100);
        assert_eq!(get.settle().expect("fine"), Some(100));
    }

    #[test]
    fn a_file_that_shrank_ends_where_the_server_says() {
        let mut get = Get::new(0, 100, u64::MAX);
        send(&mut get, 40, 99);
        get.on_data(0, 40).expect("fine");
        get.on_data(40, 7).expect("fine");
        get.on_eof(80);
        get.on_eof(100);
        assert_eq!(send(&mut get, 40, 99), [(47, 33)]);
        get.on_eof(47);
        assert_eq!(get.settle().expect("fine"), Some(47));
    }

    #[test]
    fn a_file_that_grew_is_read_on_in_doubling_steps() {
        let mut get = Get::new(0, 0, u64::MAX);
        let mut rounds = Vec::new();
        for _ in 0..4 {
            let sent = send(&mut get, 40, 99);
            rounds.push(sent.len());
            for (offset, len) in sent {
                get.on_data(offset, len).expect("fine");
            }
        }
        assert_eq!(rounds, [1, 2, 8, 99]);
    }

    #[test]
    fn an_end_inside_the_data_is_asked_again_and_then_refused() {
        let mut get = Get::new(0, 80, u64::MAX);
        send(&mut get, 40, 99);
        get.on_data(40, 40).expect("fine");
        get.on_eof(80);
        get.on_eof(0);
        for _ in 0..EOF_ROUNDS_MAX {
            assert_eq!(get.settle().expect("asked again"), None);
            assert_eq!(send(&mut get, 40, 99), [(0, 40)]);
            get.on_eof(0);
        }
        assert!(matches!(
            get.settle(),
            Err(BulkError::EndInside { offset: 0 })
        ));
    }

    #[test]
    fn empty_data_for_ever_is_refused() {
        let mut get = Get::new(0, 40, u64::MAX);
        send(&mut get, 40, 99);
        for _ in 0..EMPTY_REPLIES_MAX {
            get.on_data(0, 0).expect("asked again");
            assert_eq!(send(&mut get, 40, 99), [(0, 40)]);
        }
        assert!(matches!(
            get.on_data(0, 0),
            Err(BulkError::NoProgress { offset: 0 })
        ));
    }

    #[test]
    fn a_range_ends_without_a_probe() {
        let mut get = Get::new(10, 100, 60);
        assert_eq!(send(&mut get, 40, 99), [(10, 40), (50, 10)]);
        get.on_data(50, 10).expect("fine");
        get.on_data(10, 40).expect("fine");
        assert_eq!(get.settle().expect("fine"), Some(60));
    }

    #[test]
    fn never_runs_further_ahead_than_the_span() {
        let mut get = Get::new(0, u64::MAX, u64::MAX);
        let size = REQUEST_LEN_MAX;
        let sent = send(&mut get, size, 1000);
        assert_eq!(sent.len() as u64, SPAN_BYTES_MIN / u64::from(size));
        get.on_data(sent[1].0, size).expect("fine");
        assert!(!get.wants(), "the oldest is still out");
        get.on_data(0, size).expect("fine");
        assert_eq!(send(&mut get, size, 1000).len(), 2);
        // A quarter of what is there, once that is more.
        let mut get = Get::new(1 << 29, u64::MAX, u64::MAX);
        let sent = send(&mut get, size, 1000);
        assert_eq!(sent.len() as u64, (1 << 27) / u64::from(size));
    }

    #[test]
    fn a_smaller_request_size_splits_what_is_asked_again() {
        let mut get = Get::new(0, 100, u64::MAX);
        send(&mut get, 100, 99);
        get.on_data(0, 30).expect("fine");
        assert_eq!(send(&mut get, 30, 99), [(30, 30), (60, 30), (90, 10)]);
    }
}
