//! How many bytes a READ asks for and a WRITE brings.
//!
//! `limits@openssh.com` says it at once. Otherwise it starts at what every server takes and is doubled
//! on evidence: after some requests that were answered in full *one* longer request goes out, and only
//! when that is answered in full, too, all are as long. A longer one that is cut, or refused, is the last
//! of its kind; what it did not move is asked for again.
//!
//! ```text
//! 32 KiB x 16, all in full ► one of 64 KiB ──┬─ in full ──► 64 KiB x 16 ► one of 128 KiB ...
//!                                            ├─ 48 KiB ───► 48 KiB from now on
//!                                            └─ refused ──► 32 KiB for good
//! ```
//! A READ that is too long costs a round trip. A WRITE may cost the session, so that it is as long as a
//! READ has shown to fit a packet, or a profile of the server says, and no longer.

/// Requests answered in full before a longer one is tried. Chosen: half a mebibyte at 32 KiB.
const FULL_MIN: u32 = 16;

/// The length of the requests of one direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestLen {
    len: u32,
    /// Nothing longer is tried.
    max: u32,
    /// Answered in full since `len` was last changed.
    full: u32,
    /// A longer one is out.
    is_trial_out: bool,
}

impl RequestLen {
    /// Starts at `len`, and is never more than `max`.
    pub(super) const fn new(len: u32, max: u32) -> Self {
        Self {
            len,
            max,
            full: 0,
            is_trial_out: false,
        }
    }

    /// What requests are long now.
    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    /// Lets it grow to `max`.
    pub(super) fn allow(&mut self, max: u32) {
        self.max = self.max.max(max);
    }

    /// Never longer than `max`.
    pub(super) fn limit(&mut self, max: u32) {
        self.max = self.max.min(max);
        self.len = self.len.min(max);
    }

    /// The length of the next request.
    pub(super) fn next(&self) -> u32 {
        let is_trial = self.full >= FULL_MIN && !self.is_trial_out;
        match is_trial {
            true => self.len.saturating_mul(2).min(self.max).max(self.len),
            false => self.len,
        }
    }

    /// A request of `len` bytes went out.
    pub(super) const fn on_sent(&mut self, len: u32) {
        self.is_trial_out |= len > self.len;
    }

    /// A request of `len` bytes was answered in full.
    pub(super) const fn on_full(&mut self, len: u32) {
        if len > self.len {
            self.len = len;
            self.full = 0;
            self.is_trial_out = false;
        } else if len == self.len {
            self.full = self.full.saturating_add(1);
        }
    }

    /// A request of `len` bytes was cut to `n`, which says something about the server.
    pub(super) fn on_cut(&mut self, len: u32, n: u32) {
        if len > self.len {
            self.len = self.len.max(n);
            self.max = self.len;
            self.is_trial_out = false;
        }
    }

    /// Several files were cut to `n` bytes a request. If that was the files' doing, it grows again.
    pub(super) fn on_shown(&mut self, n: u32) {
        self.len = self.len.min(n);
        self.full = 0;
    }

    /// A request of `len` bytes was refused. Whether its length may be why.
    pub(super) const fn on_refused(&mut self, len: u32) -> bool {
        let is_trial = len > self.len;
        if is_trial {
            self.max = self.len;
            self.is_trial_out = false;
        }
        is_trial
    }

    /// A request of `len` bytes was answered in a way that says nothing of its length.
    pub(super) const fn on_answered(&mut self, len: u32) {
        if len > self.len {
            self.is_trial_out = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K: u32 = 1024;

    /// Answers requests in full up to `cap` bytes until `count` were sent; the lengths in use.
    fn lengths(mut len: RequestLen, cap: u32, count: u32) -> Vec<u32> {
        let mut found = vec![len.len()];
        for _ in 0..count {
            let asked = len.next();
            len.on_sent(asked);
            match asked > cap {
                true => len.on_cut(asked, cap),
                false => len.on_full(asked),
            }
            if found.last() != Some(&len.len()) {
                found.push(len.len());
            }
        }
        found
    }

    #[test]
    fn doubles_on_evidence_up_to_its_limit() {
        let start = RequestLen::new(32 * K, 252 * K);
        let all = [32 * K, 64 * K, 128 * K, 252 * K];
        assert_eq!(lengths(start, u32::MAX, 3 * (FULL_MIN + 1)), all);
        assert_eq!(lengths(start, u32::MAX, FULL_MIN), [32 * K]);
    }

    #[test]
    fn settles_at_what_the_server_answers() {
        let start = RequestLen::new(32 * K, 252 * K);
        assert_eq!(lengths(start, 32 * K, 1000), [32 * K]);
        assert_eq!(lengths(start, 48 * K, 1000), [32 * K, 48 * K]);
        assert_eq!(lengths(start, 64 * K, 1000), [32 * K, 64 * K]);
    }

    #[test]
    fn only_one_is_longer_at_a_time_and_a_refused_one_is_the_last() {
        let mut len = RequestLen::new(32 * K, 252 * K);
        (0..FULL_MIN).for_each(|_| len.on_full(32 * K));
        assert_eq!(len.next(), 64 * K);
        len.on_sent(64 * K);
        assert_eq!(len.next(), 32 * K);
        assert!(!len.on_refused(32 * K), "not for its length");
        assert!(len.on_refused(64 * K));
        assert_eq!(lengths(len, u32::MAX, 1000), [32 * K]);
    }

    #[test]
    fn an_answer_that_says_nothing_lets_another_try() {
        let mut len = RequestLen::new(32 * K, 252 * K);
        (0..FULL_MIN).for_each(|_| len.on_full(32 * K));
        len.on_sent(64 * K);
        len.on_answered(64 * K);
        assert_eq!(len.next(), 64 * K);
    }

    #[test]
    fn what_files_did_is_forgotten_in_time() {
        let mut len = RequestLen::new(252 * K, 252 * K);
        len.on_shown(4 * K);
        assert_eq!(len.len(), 4 * K);
        assert_eq!(lengths(len, u32::MAX, 1000).last(), Some(&(252 * K)));
    }
}
