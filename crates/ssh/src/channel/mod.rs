//! One channel: its windows, its queues, its way from open to closed (RFC 4254 section 5).
//!
//! Owns what belongs to a single channel and the rules of its states. Does not own the table of
//! channels, the order in which they send, or packets (all `connection`).

pub mod autotune;
mod id;
mod input;
mod messages;
pub mod output;
mod pending;
pub mod request;
pub mod window;

pub use id::ChannelId;
pub(crate) use input::{Input, Stream};
pub(crate) use messages::MessageQueue;
pub(crate) use output::{Exit, Output};
pub(crate) use pending::{Pending, Signs};
pub use request::{ChannelRequest, ExitSignal, TerminalSize};

use autotune::Policy;
use request::Requests;
use window::RemoteWindow;

/// How a channel was asked for and how far that has come.
///
/// ```text
///   we ask:   Asking ──confirmation──► Open ──CLOSE sent and received──► (removed)
///                └───────failure─────► Refused ──event told──► (removed)
///   peer asks: Asked ──accept_channel──► Open
///                └──reject_channel──► (removed)
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// We asked, and wait for the answer.
    Asking,
    /// The peer asked, and waits for the application's answer.
    Asked,
    /// Both sides agreed.
    Open,
    /// The peer refused; the application has not been told yet.
    Refused,
}

/// The peer's side of a channel.
#[derive(Debug)]
pub(crate) struct Remote {
    /// The peer's number for it.
    pub(crate) id: u32,
    pub(crate) window: RemoteWindow,
}

/// Why the peer refused a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenFailure {
    /// RFC 4254 5.1, whatever the peer sent.
    pub reason: u32,
    /// The peer's words; untrusted, cut at 1 KiB.
    pub description: String,
}

impl OpenFailure {
    /// RFC 4254 5.1: SSH_OPEN_ADMINISTRATIVELY_PROHIBITED.
    pub const ADMINISTRATIVELY_PROHIBITED: u32 = 1;
    /// RFC 4254 5.1: SSH_OPEN_CONNECT_FAILED.
    pub const CONNECT_FAILED: u32 = 2;
    /// RFC 4254 5.1: SSH_OPEN_UNKNOWN_CHANNEL_TYPE.
    pub const UNKNOWN_CHANNEL_TYPE: u32 = 3;
    /// RFC 4254 5.1: SSH_OPEN_RESOURCE_SHORTAGE.
    pub const RESOURCE_SHORTAGE: u32 = 4;
    /// Longest description kept.
    pub const DESCRIPTION_BYTES_MAX: usize = 1024;
}

/// One channel.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) id: ChannelId,
    pub(crate) state: State,
    /// `None` until the peer's number is known. Known early in eager mode: then it is a guess that
    /// the confirmation must bear out.
    pub(crate) remote: Option<Remote>,
    pub(crate) input: Input,
    pub(crate) output: Output,
    /// Requests of the peer that the application has not answered.
    pub(crate) requests: Requests,
    /// What the application has not been told.
    pub(crate) pending: Pending,
    /// Which of the connection's rings it stands in.
    pub(crate) listed: Listed,
    /// Set with the event that tells it.
    pub(crate) failure: Option<OpenFailure>,
    pub(crate) exit_signal: Option<ExitSignal>,
}

/// Membership in the connection's rings: a channel stands in each at most once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Listed {
    pub(crate) events: bool,
    pub(crate) sends: bool,
    pub(crate) adjusts: bool,
}

impl Channel {
    pub(crate) fn new(id: ChannelId, state: State, local_window: u32, policy: Policy) -> Self {
        Self {
            id,
            state,
            remote: None,
            input: Input::new(local_window, policy),
            output: Output::default(),
            requests: Requests::default(),
            pending: Pending::default(),
            listed: Listed::default(),
            failure: None,
            exit_signal: None,
        }
    }

    /// Whether both ends have closed it.
    pub(crate) const fn is_closed(&self) -> bool {
        self.input.is_closed && self.output.close.is_sent()
    }

    /// Whether `ChannelClosed` may be told: nothing readable is left, or nobody will read it.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_closed() && (self.output.close.is_asked_here() || self.input.is_drained())
    }

    /// Whether channel data may be sent at all: requests made before have gone and no EOF has.
    pub(crate) fn may_send_data(&self) -> bool {
        self.remote.is_some()
            && self.output.requests.is_empty()
            && !self.output.eof.is_sent()
            && !self.output.close.is_sent()
    }
}
