//! The beginning: who offers what, and what both have in common.
//!
//! RFC 9293 section 3.5 and 3.10.7.3 (SYN-SENT), RFC 7323 section 1.3, RFC 2018 section 2, RFC 3168
//! section 6.1.1.

use fullbore_base::Instant;

use super::config::{MSS_DEFAULT, MSS_MIN};
use super::mtu::Mtu;
use super::{Clock, Config, Connection, Error, Event, State};
use crate::segment::options::WINDOW_SCALE_MAX;
use crate::segment::{Flags, Header, Options, Segment, Timestamps};
use crate::seq::Seq;

/// What both sides offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreed {
    /// The largest segment that the peer takes.
    pub mss: u16,
    /// Windows are shifted, be it by 0 bits.
    pub is_scaled: bool,
    /// By how many bits the peer's are.
    pub send_scale: u8,
    /// By how many bits ours are.
    pub receive_scale: u8,
    /// Selective acknowledgements.
    pub is_sack: bool,
    /// Timestamps.
    pub is_timestamps: bool,
    /// Explicit congestion notification.
    pub is_ecn: bool,
}

impl Agreed {
    /// What `config` and a peer's SYN, or its answer to ours, have in common.
    #[must_use]
    pub fn new(config: &Config, syn: &Header) -> Self {
        let options = &syn.options;
        let is_scaled = config.is_window_scaling && options.window_scale.is_some();
        let offers_ecn = if syn.flags.has(Flags::ACK) {
            syn.flags.has(Flags::ECE) && !syn.flags.has(Flags::CWR)
        } else {
            syn.flags.has(Flags::ECE | Flags::CWR)
        };
        Self {
            mss: options.mss.unwrap_or(MSS_DEFAULT).max(MSS_MIN),
            is_scaled,
            send_scale: options
                .window_scale
                .filter(|_| is_scaled)
                .map_or(0, |scale| scale.min(WINDOW_SCALE_MAX)),
            receive_scale: if is_scaled { config.window_scale() } else { 0 },
            is_sack: config.is_sack && options.is_sack_permitted,
            is_timestamps: config.is_timestamps && options.timestamps.is_some(),
            is_ecn: config.is_ecn && offers_ecn,
        }
    }
}

/// The SYN+ACK of a handshake that a listener answers.
pub fn answer(
    now: Instant,
    config: &Config,
    agreed: &Agreed,
    local_initial: Seq,
    remote_initial: Seq,
    timestamp: u32,
) -> Header {
    let window = config.receive_buffer.min(u64::from(u16::MAX));
    Header {
        source_port: config.local_port,
        destination_port: config.remote_port,
        seq: local_initial,
        ack: remote_initial.at(1),
        flags: Flags::SYN | Flags::ACK | Flags::ECE.when(agreed.is_ecn),
        window: u16::try_from(window).expect("it is at most that"),
        options: Options {
            mss: Some(config.mss_max.max(config.mss)),
            window_scale: agreed.is_scaled.then_some(agreed.receive_scale),
            is_sack_permitted: agreed.is_sack,
            timestamps: agreed.is_timestamps.then(|| Timestamps {
                value: Clock::value(config.timestamp_offset, now),
                echo: timestamp,
            }),
            ..Options::default()
        },
    }
}

/// A handshake that a listener saw to its end.
#[derive(Clone, Copy, Debug)]
pub struct Accepted {
    /// The number of our SYN.
    pub local_initial: Seq,
    /// The number of the peer's.
    pub remote_initial: Seq,
    /// What both have in common.
    pub agreed: Agreed,
    /// The peer's last timestamp.
    pub timestamp: u32,
    /// The window that our SYN told.
    pub told_window: u64,
    /// How long our SYN took to be answered, when that is known.
    pub rtt: Option<core::time::Duration>,
}

impl Connection {
    /// Opens a connection: the SYN leaves with the next [`Connection::poll_transmit`]. `initial` is
    /// [`crate::isn::Generator`]'s.
    #[must_use]
    pub fn connect(now: Instant, config: Config, initial: Seq) -> Self {
        let mut connection = Self::new(now, config, State::SynSent, initial);
        connection.pending.is_syn = true;
        connection
    }

    /// The connection of a handshake that a listener saw to its end. The segment that ended it is to
    /// be handled next: it may carry data.
    #[must_use]
    pub fn accept(now: Instant, config: Config, accepted: &Accepted) -> Self {
        let initial = accepted.local_initial;
        let mut connection = Self::new(now, config, State::SynReceived, initial);
        connection.remote_initial = accepted.remote_initial;
        connection.agreed = accepted.agreed;
        connection.receiver.set_edge(1 + accepted.told_window);
        connection.last_ack_sent = 1;
        // The SYN left while the listener had the connection.
        connection.sender.recovery_mut().start_at(1);
        if let Some(rtt) = accepted.rtt {
            let recovery = connection.sender.recovery_mut();
            recovery.rtt_mut().on_sample(now, rtt, 1);
        }
        connection.settle(now, accepted.timestamp);
        connection
    }

    /// A connection whose handshake was made elsewhere: both ends were told each other's numbers, so
    /// that data may leave at once. `accepted.told_window` is what both are deemed to have told.
    #[must_use]
    pub fn arranged(now: Instant, config: Config, accepted: &Accepted) -> Self {
        let mut connection = Self::accept(now, config, accepted);
        connection.window.size = accepted.told_window;
        connection.window.size_max = accepted.told_window;
        connection.establish(now);
        connection
    }

    /// Our SYN was sent again, and nobody knows what its acknowledgement answers: data gets more time
    /// (RFC 6298 5.7).
    pub(crate) fn on_syn_unmeasured(&mut self) {
        let recovery = self.sender.recovery_mut();
        recovery.rtt_mut().on_syn_timed_out();
    }

    /// What our SYN offers, or the answer to the peer's: never more than the peer offered.
    pub(super) fn syn_options(&self, now: Instant) -> Options {
        let config = &self.config;
        let is_answer = self.state == State::SynReceived;
        let offers = |ours: bool, agreed: bool| if is_answer { agreed } else { ours };
        let is_timestamps = offers(config.is_timestamps, self.agreed.is_timestamps);
        let stamp = Timestamps {
            value: Clock::value(config.timestamp_offset, now),
            echo: self.clock.map_or(0, |clock| clock.stamp(now).echo),
        };
        Options {
            mss: Some(config.mss_max.max(config.mss)),
            window_scale: offers(config.is_window_scaling, self.agreed.is_scaled)
                .then(|| config.window_scale()),
            is_sack_permitted: offers(config.is_sack, self.agreed.is_sack),
            timestamps: is_timestamps.then_some(stamp),
            ..Options::default()
        }
    }

    /// RFC 9293 3.10.7.3.
    pub(super) fn handle_syn_sent(&mut self, now: Instant, segment: &Segment<'_>) {
        let header = &segment.header;
        let has_ack = header.flags.has(Flags::ACK);
        let is_ours = header.ack == self.local_initial.at(1) && self.snd_nxt() == 1;
        if has_ack && !is_ours {
            if !header.flags.has(Flags::RST) {
                self.pending.reset = Some(header.ack);
            }
            return;
        }
        if header.flags.has(Flags::RST) {
            if has_ack {
                self.finish(Some(Error::Refused));
            }
            return;
        }
        if !header.flags.has(Flags::SYN) {
            return;
        }
        self.remote_initial = header.seq;
        self.agreed = Agreed::new(&self.config, header);
        self.take_window(header, 0);
        self.settle(now, header.options.timestamps.map_or(0, |t| t.value));
        if has_ack {
            self.take_ack_of_syn(now, header);
            self.establish(now);
        } else {
            // Both opened at once: our SYN goes out again with its ACK.
            self.state = State::SynReceived;
            self.pending.is_syn = true;
        }
        self.acks.demand();
    }

    /// Puts what was agreed into force.
    fn settle(&mut self, now: Instant, timestamp: u32) {
        let (config, agreed) = (&self.config, &self.agreed);
        self.clock = agreed
            .is_timestamps
            .then(|| Clock::new(config.timestamp_offset, timestamp, now));
        let current = config.mss.min(agreed.mss);
        let ceiling = config.mss_max.min(agreed.mss);
        self.mtu = Mtu::new(current, config.mss_base, ceiling);
        let mss = self.send_mss();
        let config = &self.config;
        self.sender
            .set_agreed(&config.congestion, mss, self.agreed.is_sack);
    }

    /// The handshake is over.
    pub(super) fn establish(&mut self, now: Instant) {
        // RFC 6298 5.7: if the SYN timed out, data gets more time.
        if self.sender.recovery().counters().timeouts > 0 {
            self.sender.recovery_mut().rtt_mut().on_syn_timed_out();
        }
        self.state = if self.is_shut {
            State::FinWait1
        } else {
            State::Established
        };
        self.liveness.progress_at = now;
        self.events.push(Event::Connected);
        self.events.push(Event::Writable);
        self.arm_keepalive(now);
    }

    /// RFC 9293 3.10.7.4, fourth: a SYN on a connection that has one. It is a challenge, never
    /// obeyed (RFC 5961 section 4). The handshake's own SYN, come twice, is answered again; with the
    /// acknowledgement of ours it is what ends the opening by both (figure 8 of RFC 9293): were it
    /// answered by a SYN, two ends would answer each other for ever.
    pub(super) fn handle_syn_again(
        &mut self,
        now: Instant,
        segment: &Segment<'_>,
        position: Option<u64>,
    ) {
        let header = &segment.header;
        if self.state != State::SynReceived || position != Some(0) {
            self.challenge(now);
        } else if header.flags.has(Flags::ACK) && header.ack == self.local_initial.at(1) {
            let _ = self.handle_ack(now, segment, 0);
            self.acks.demand();
        } else {
            self.pending.is_syn = true;
        }
    }
}
