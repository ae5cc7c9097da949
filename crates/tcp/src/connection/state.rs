//! The states of RFC 9293 section 3.3.2.

/// Where a connection is.
///
/// ```text
///                 SynSent ──SYN──► SynReceived        (LISTEN is the listener's)
///      SYN+ACK ───┤                    ├─── ACK of SYN
///                 └───► Established ◄──┘
///            close ┌────────┴────────┐ FIN
///              FinWait1          CloseWait
///    ACK of FIN ┌──┴──┐ FIN          │ close
///          FinWait2  Closing      LastAck
///          FIN  └──┬──┘ ACK of FIN   │ ACK of FIN
///               TimeWait ──2 MSL──► Closed
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Our SYN is out.
    SynSent,
    /// Both SYNs are out, ours is not acknowledged.
    SynReceived,
    /// Data flows.
    Established,
    /// We closed, and our FIN is not acknowledged.
    FinWait1,
    /// We closed, and the peer has not.
    FinWait2,
    /// The peer closed, and we have not.
    CloseWait,
    /// Both closed at once; our FIN is not acknowledged.
    Closing,
    /// The peer closed first; our FIN is not acknowledged.
    LastAck,
    /// Both closed; late segments are answered.
    TimeWait,
    /// Over.
    Closed,
}

impl State {
    /// Whether both sides have numbered their streams, so that sequence numbers can be checked.
    #[must_use]
    pub const fn is_synchronized(self) -> bool {
        !matches!(self, Self::SynSent | Self::Closed)
    }

    /// Whether the peer may still send data.
    #[must_use]
    pub const fn takes_data(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }

    /// The state after a FIN of the peer, everything before it having arrived.
    #[must_use]
    pub const fn after_fin(self) -> Self {
        match self {
            Self::SynReceived | Self::Established => Self::CloseWait,
            Self::FinWait1 => Self::Closing,
            Self::FinWait2 => Self::TimeWait,
            Self::SynSent
            | Self::CloseWait
            | Self::Closing
            | Self::LastAck
            | Self::TimeWait
            | Self::Closed => self,
        }
    }

    /// The state after the acknowledgement of our FIN.
    #[must_use]
    pub const fn after_fin_acked(self) -> Self {
        match self {
            Self::FinWait1 => Self::FinWait2,
            Self::Closing => Self::TimeWait,
            Self::LastAck => Self::Closed,
            Self::SynSent
            | Self::SynReceived
            | Self::Established
            | Self::FinWait2
            | Self::CloseWait
            | Self::TimeWait
            | Self::Closed => self,
        }
    }

    /// The state after we closed.
    #[must_use]
    pub const fn after_close(self) -> Self {
        match self {
            Self::Established => Self::FinWait1,
            Self::CloseWait => Self::LastAck,
            // Once the handshake is over.
            Self::SynReceived
            | Self::SynSent
            | Self::FinWait1
            | Self::FinWait2
            | Self::Closing
            | Self::LastAck
            | Self::TimeWait
            | Self::Closed => self,
        }
    }
}
