//! What a channel has to send and has not: requests, staged bytes, and its end.

use super::MessageQueue;
use fullbore_base::ByteQueue;

/// Channel data that waits for window, room or the end of a key exchange: two of SFTP's longest
/// messages, so that one can be made while another waits.
pub const STAGING_BYTES_MAX: usize = 2 * 256 * 1024;

/// Error stream bytes that wait: what a refused command or a warning says is short.
pub const STDERR_STAGING_BYTES_MAX: usize = 32 * 1024;

/// Requests that wait for the channel to be open: a command line of Linux's 128 KiB and an
/// environment of the same size.
pub const REQUESTS_OUT_BYTES_MAX: usize = 256 * 1024;

/// A message that is sent once, after what comes before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nobody asked for it.
    #[default]
    Open,
    /// The application asked.
    Wanted,
    /// Owed to the peer without the application's asking.
    Owed,
    /// Sent, after the application asked.
    Sent,
    /// Sent, owed to the peer.
    SentOwed,
}

impl Step {
    /// Asks for it; nothing changes if it was sent.
    pub(crate) const fn want(&mut self) {
        *self = match self {
            Self::Open | Self::Owed | Self::Wanted => Self::Wanted,
            Self::Sent | Self::SentOwed => Self::Sent,
        };
    }

    /// Makes it due without the application's asking.
    pub(crate) const fn owe(&mut self) {
        if matches!(self, Self::Open) {
            *self = Self::Owed;
        }
    }

    pub(crate) const fn mark_sent(&mut self) {
        *self = match self {
            Self::Open | Self::Owed | Self::SentOwed => Self::SentOwed,
            Self::Wanted | Self::Sent => Self::Sent,
        };
    }

    pub(crate) const fn is_due(self) -> bool {
        matches!(self, Self::Wanted | Self::Owed)
    }

    pub(crate) const fn is_sent(self) -> bool {
        matches!(self, Self::Sent | Self::SentOwed)
    }

    pub(crate) const fn is_asked_here(self) -> bool {
        matches!(self, Self::Wanted | Self::Sent)
    }
}

/// How our program ended, to be told to the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// RFC 4254 6.10 exit-status.
    Status(u32),
    /// RFC 4254 6.10 exit-signal: the name without `SIG`.
    Signal(String),
}

/// Copies of what was sent ahead: a handful of messages and at most `EAGER_BYTES_MAX` of data.
#[derive(Debug, Default)]
pub(crate) struct Early {
    pub(crate) opening: Vec<u8>,
    pub(crate) requests: Vec<Vec<u8>>,
    pub(crate) data: Vec<u8>,
}

/// The sending side, in the order in which it goes out: requests, data and error stream, EOF, exit,
/// CLOSE.
#[derive(Debug)]
pub(crate) struct Output {
    /// The CHANNEL_OPEN that has not been sent.
    pub(crate) opening: Option<Vec<u8>>,
    /// It may go before authentication has succeeded.
    pub(crate) is_eager: bool,
    /// What was sent ahead of the peer's consent, to be sent again if that was in vain.
    pub(crate) early: Option<Box<Early>>,
    /// Our requests; their channel number is filled in when they go.
    pub(crate) requests: MessageQueue,
    pub(crate) staging: ByteQueue,
    pub(crate) stderr: ByteQueue,
    pub(crate) eof: Step,
    pub(crate) exit: Option<Exit>,
    pub(crate) close: Step,
    /// Requests of ours that the peer has not answered.
    pub(crate) awaited: usize,
    /// The outlet refused bytes, or was looked at while full: tell when it can take some.
    pub(crate) is_wanted: bool,
}

impl Default for Output {
    fn default() -> Self {
        Self {
            opening: None,
            is_eager: false,
            early: None,
            requests: MessageQueue::new(REQUESTS_OUT_BYTES_MAX),
            staging: ByteQueue::new(STAGING_BYTES_MAX),
            stderr: ByteQueue::new(STDERR_STAGING_BYTES_MAX),
            eof: Step::Open,
            exit: None,
            close: Step::Open,
            awaited: 0,
            is_wanted: false,
        }
    }
}

impl Output {
    /// Whether bytes wait for the peer's window.
    pub(crate) fn has_data(&self) -> bool {
        !self.staging.is_empty() || !self.stderr.is_empty()
    }

    /// What was sent ahead was in vain: puts it back in front of what waits.
    pub(crate) fn rewind(&mut self) {
        let Some(early) = self.early.take() else {
            return;
        };
        let Early {
            opening,
            requests,
            data,
        } = *early;
        self.opening = Some(opening);
        let mut queue = MessageQueue::new(2 * REQUESTS_OUT_BYTES_MAX);
        for request in &requests {
            let fits = queue.push(request);
            debug_assert!(fits, "it was queued before");
        }
        while let Some(request) = self.requests.front() {
            let fits = queue.push(request);
            debug_assert!(fits, "the new queue has room for both");
            self.requests.pop();
        }
        self.requests = queue;
        let mut staging = ByteQueue::new(STAGING_BYTES_MAX + data.len());
        let taken = staging.push(&data) + staging.push(self.staging.as_slice());
        debug_assert_eq!(taken, data.len() + self.staging.len());
        self.staging = staging;
    }

    /// The peer closed: nothing but our CLOSE is of use to it.
    pub(crate) fn drop_all(&mut self) {
        self.staging.consume(self.staging.len());
        self.stderr.consume(self.stderr.len());
        while !self.requests.is_empty() {
            self.requests.pop();
        }
        self.exit = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_sent_once_and_remembers_who_asked() {
        let mut close = Step::default();
        close.owe();
        assert!(close.is_due() && !close.is_asked_here());
        close.mark_sent();
        close.owe();
        assert!(close.is_sent() && !close.is_due() && !close.is_asked_here());
        close.want();
        assert!(close.is_sent() && !close.is_due() && close.is_asked_here());
    }

    #[test]
    fn what_was_sent_ahead_goes_again_in_front_of_the_rest() {
        let mut output = Output::default();
        assert!(output.requests.push(b"late"));
        assert_eq!(output.staging.push(b"cd"), 2);
        output.early = Some(Box::new(Early {
            opening: b"open".to_vec(),
            requests: vec![b"early".to_vec()],
            data: b"ab".to_vec(),
        }));
        output.rewind();
        assert_eq!(output.opening.as_deref(), Some(&b"open"[..]));
        assert_eq!(output.requests.front(), Some(&b"early"[..]));
        assert_eq!(output.requests.count(), 2);
        assert_eq!(output.staging.as_slice(), b"abcd");
    }

    #[test]
    fn the_end_waits_for_staged_bytes() {
        let mut output = Output::default();
        assert_eq!(output.staging.push(b"x"), 1);
        output.eof.want();
        output.close.want();
        assert!(output.has_data());
        output.staging.consume(1);
        assert!(!output.has_data());
    }
}
