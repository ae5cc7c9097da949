//! What a sender of the lab is: segments in, segments out, and what it looked at for them.

use fullbore_base::{Instant, Rng};
use fullbore_tcp::Seq;
use fullbore_tcp::congestion::Settings;
use fullbore_tcp::connection::{self, Connection};
use fullbore_tcp::isn::{Randomness, Tuple};
use fullbore_tcp::listener::{Heard, ListenConfig, Listener};
use fullbore_tcp::segment::{Flags, Header, Options, Pseudo, Segment, Timestamps};

/// Counters of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes acknowledged.
    pub bytes_acked: u64,
    /// Acknowledgements read.
    pub acks: u64,
    /// Segments of its queue looked at for them.
    pub segments_examined: u64,
    /// SACK blocks of sense.
    pub sack_blocks: u64,
    /// Segments sent again.
    pub retransmissions: u64,
    /// Expiries of the retransmission timer.
    pub timeouts: u64,
}

impl Counters {
    /// What was added since `before`.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            bytes_acked: self.bytes_acked - before.bytes_acked,
            acks: self.acks - before.acks,
            segments_examined: self.segments_examined - before.segments_examined,
            sack_blocks: self.sack_blocks - before.sack_blocks,
            retransmissions: self.retransmissions - before.retransmissions,
            timeouts: self.timeouts - before.timeouts,
        }
    }
}

/// A sender that waits for a connection, and then sends without end.
pub trait Sender {
    /// A segment of the receiver.
    fn handle_segment(&mut self, now: Instant, bytes: &[u8]);

    /// A deadline may have passed.
    fn handle_timeout(&mut self, now: Instant);

    /// The next deadline.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Writes the next segment into `out`; `None` when none may leave now.
    fn poll_transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<usize>;

    /// Counters so far.
    fn counters(&self) -> Counters;

    /// Segments looked at so far, without the other counters.
    fn examined(&self) -> u64;
}

/// Bytes that are written over and over.
const CHUNK_BYTES: usize = 64 * 1024;

/// What is sent: nothing of interest, but bytes that have to be copied.
#[derive(Debug)]
pub struct Zeros(Vec<u8>);

impl Default for Zeros {
    fn default() -> Self {
        Self(vec![0; CHUNK_BYTES])
    }
}

impl Zeros {
    /// `len` of them.
    pub(super) fn bytes(&self, len: usize) -> &[u8] {
        &self.0[..len]
    }
}

/// The handshake and the header of a sender that has only these.
#[derive(Debug)]
pub struct Wire {
    /// Ours and the receiver's.
    pub ports: (u16, u16),
    /// What the checksum covers.
    pub pseudo: Pseudo,
    /// The number of the first byte.
    pub first: Seq,
    /// The receiver's next number, which never moves.
    pub ack: Seq,
    /// By how many bits the receiver's window is shifted.
    pub scale: u8,
    /// Whether both have timestamps.
    pub is_timestamps: bool,
    /// The receiver's last timestamp.
    pub echo: u32,
    /// The options of a SYN that is to be answered.
    pub reply: Option<Options>,
}

impl Wire {
    /// Before the handshake.
    #[must_use]
    pub fn new(ports: (u16, u16), pseudo: Pseudo) -> Self {
        Self {
            ports,
            pseudo,
            first: Seq::new(0x8000_1234),
            ack: Seq::default(),
            scale: 0,
            is_timestamps: false,
            echo: 0,
            reply: None,
        }
    }

    /// Takes a SYN.
    pub fn accept(&mut self, header: &Header) {
        let offered = &header.options;
        self.ack = header.seq.plus(1);
        self.scale = offered.window_scale.unwrap_or(0);
        self.is_timestamps = offered.timestamps.is_some();
        self.echo = offered.timestamps.map_or(0, |t| t.value);
        self.reply = Some(Options {
            mss: Some(1460),
            window_scale: offered.window_scale.map(|_| 7),
            is_sack_permitted: offered.is_sack_permitted,
            timestamps: offered.timestamps,
            ..Options::default()
        });
    }

    /// A header at the stream's beginning.
    #[must_use]
    pub fn header(&self, now: Instant, flags: Flags) -> Header {
        let back = u32::from(flags.has(Flags::SYN));
        Header {
            source_port: self.ports.0,
            destination_port: self.ports.1,
            seq: Seq::new(self.first.value().wrapping_sub(back)),
            ack: self.ack,
            flags,
            window: u16::MAX,
            options: Options {
                timestamps: self.is_timestamps.then(|| Timestamps {
                    value: millis(now),
                    echo: self.echo,
                }),
                ..Options::default()
            },
        }
    }

    /// The receiver's clock.
    pub fn take_timestamp(&mut self, header: &Header) {
        if let Some(timestamps) = header.options.timestamps {
            self.echo = timestamps.value;
        }
    }

    /// When we sent what `header` echoes, rounded down to a millisecond.
    #[must_use]
    pub fn echoed_at(&self, now: Instant, header: &Header) -> Option<Instant> {
        let timestamps = header.options.timestamps.filter(|_| self.is_timestamps)?;
        let age = millis(now).wrapping_sub(timestamps.echo);
        let at = (now.as_nanos() / 1_000_000).checked_sub(u64::from(age))?;
        Some(Instant::from_nanos(at * 1_000_000))
    }
}

fn millis(now: Instant) -> u32 {
    let millis = now.as_nanos() / 1_000_000;
    u32::try_from(millis & u64::from(u32::MAX)).expect("masked")
}

/// [`fullbore_tcp`]'s, as a server that writes whenever it may.
#[derive(Debug)]
pub struct OurSender {
    listener: Listener,
    connection: Option<Box<Connection>>,
    reply: Option<Header>,
    tuple: Tuple,
    pseudo: Pseudo,
    zeros: Zeros,
    is_writable: bool,
}

/// There is nothing to keep secret.
struct Seeded(Rng);

impl Randomness for Seeded {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill(out);
    }
}

impl OurSender {
    /// Waits for a receiver whose window will be `window` bytes.
    #[must_use]
    pub fn new(settings: &Settings, window: u64, tuple: Tuple, seed: u64) -> Self {
        let pseudo = Pseudo::between(tuple.local.0, tuple.remote.0);
        let config = ListenConfig {
            connection: connection::Config {
                congestion: *settings,
                send_buffer_max: window + WRITE_AHEAD,
                pseudo,
                ..connection::Config::default()
            },
            backlog_max: 1,
        };
        Self {
            listener: Listener::new(config, &mut Seeded(Rng::seeded(seed))),
            connection: None,
            reply: None,
            tuple,
            pseudo,
            zeros: Zeros::default(),
            is_writable: false,
        }
    }

    /// The connection, once there is one.
    #[must_use]
    pub fn connection(&self) -> Option<&Connection> {
        self.connection.as_deref()
    }

    fn write(&mut self) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        while let Some(event) = connection.poll_event() {
            self.is_writable |= matches!(event, connection::Event::Writable);
        }
        let chunk = self.zeros.bytes(CHUNK_BYTES);
        while self.is_writable && connection.writable_bytes() >= CHUNK_BYTES as u64 {
            if connection.write(chunk).is_err() {
                self.is_writable = false;
            }
        }
    }
}

/// Bytes that wait to be sent beside a full window.
const WRITE_AHEAD: u64 = 1 << 20;

impl Sender for OurSender {
    fn handle_segment(&mut self, now: Instant, bytes: &[u8]) {
        let Ok(segment) = Segment::parse(bytes, self.pseudo) else {
            return;
        };
        if let Some(connection) = &mut self.connection {
            connection.handle_segment(now, &segment, false);
        } else {
            match self
                .listener
                .handle_segment(now, &self.tuple, &segment, false)
            {
                Heard::Nothing => {}
                Heard::Reply(header) => self.reply = Some(header),
                Heard::Accepted(connection) => self.connection = Some(connection),
            }
        }
        self.write();
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Some(connection) = &mut self.connection {
            connection.handle_timeout(now);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let connection = self.connection.as_ref();
        connection.and_then(|connection| connection.poll_timeout())
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<usize> {
        if let Some(header) = self.reply.take() {
            return Some(header.emit(out, 0, self.pseudo));
        }
        let transmit = self.connection.as_mut()?.poll_transmit(now, out)?;
        Some(transmit.len)
    }

    fn examined(&self) -> u64 {
        let connection = self.connection.as_ref();
        connection.map_or(0, |connection| {
            connection.recovery_counters().segments_examined
        })
    }

    fn counters(&self) -> Counters {
        let Some(connection) = &self.connection else {
            return Counters::default();
        };
        let info = connection.info();
        Counters {
            bytes_acked: info.stats.bytes_acked,
            acks: info.recovery.acks,
            segments_examined: info.recovery.segments_examined,
            sack_blocks: info.recovery.sack_blocks,
            retransmissions: info.recovery.retransmissions,
            timeouts: info.recovery.timeouts,
        }
    }
}
