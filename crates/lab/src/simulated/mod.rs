//! The engines that ship, over a simulated path: minutes of link time in milliseconds, the same run
//! for the same seed. The path delivers everything: what is looked at here are windows, not loss.

mod channel;
mod session;
pub mod xmodem;
mod zeros;

use std::sync::Arc;
use std::time::Duration;

use fullbore_base::{Instant, Rate, Rng};
use fullbore_sim::PairConfig;
use fullbore_ssh::Connection;
use fullbore_ssh::auth::{Attempt, ClientAuth, ServerAuth};
use fullbore_ssh::config::{ClientConfig, HostKey, ServerConfig};
use fullbore_ssh::connection::ConnectionConfig;
use fullbore_ssh::key::{Algorithm, PrivateKey};
use fullbore_ssh::provider::{AwsLc, SecureRandom};

pub use channel::{Consumer, Flow, Policy};
pub use session::Get;

/// A path without loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// There and back.
    pub rtt: Duration,
    /// Of each direction.
    pub rate: Rate,
}

impl Path {
    /// A path of `mbit` Mbit/s and `rtt_ms` ms.
    #[must_use]
    pub const fn new(mbit: u64, rtt_ms: u64) -> Self {
        Self {
            rtt: Duration::from_millis(rtt_ms),
            rate: Rate::from_bits_per_sec(mbit * 1_000_000),
        }
    }

    /// Bytes that fit on the path: bandwidth x delay.
    #[must_use]
    pub fn bdp(&self) -> u64 {
        let bytes = u128::from(self.rate.bytes_per_sec()) * self.rtt.as_nanos() / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// `320 Mbit/s x 200 ms`.
    #[must_use]
    pub fn label(&self) -> String {
        let kbit = self.rate.bytes_per_sec() / 125;
        let rate = if kbit.is_multiple_of(1000) {
            format!("{}", kbit / 1000)
        } else {
            format!("{:.3}", kbit as f64 / 1e3)
        };
        format!("{rate} Mbit/s x {} ms", self.rtt.as_millis())
    }

    /// As Linux sizes its bursts: what a millisecond carries, in whole segments.
    fn segment_bytes(&self) -> usize {
        let per_ms = usize::try_from(self.rate.bytes_per_sec() / 1000).unwrap_or(usize::MAX);
        let whole = per_ms / SEGMENT_BYTES * SEGMENT_BYTES;
        whole.clamp(SEGMENT_BYTES, SEGMENT_BYTES_MAX)
    }

    fn pair(&self, seed: u64) -> PairConfig {
        PairConfig {
            seed,
            delay: self.rtt / 2,
            rate: Some(self.rate),
            // What the sender's kernel holds unsent is kept short (TCP_NOTSENT_LOWAT), beside what
            // is on the path itself.
            buffer_bytes_max: usize::try_from(self.bdp()).unwrap_or(usize::MAX) + SOCKET_BYTES,
            segment_bytes_max: self.segment_bytes(),
            ..PairConfig::default()
        }
    }
}

/// Bytes of a TCP segment on Ethernet, and of the longest that a network card cuts into such.
const SEGMENT_BYTES: usize = 1448;
const SEGMENT_BYTES_MAX: usize = 44 * SEGMENT_BYTES;

/// What sockets hold besides what is on the path.
const SOCKET_BYTES: usize = 512 * 1024;

/// How things stood at one time of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Since the transfer began.
    pub at: Duration,
    /// Bytes that had arrived by then.
    pub bytes: u64,
    /// The receiver's channel window then: what it grants and has not consumed, together.
    pub window: u64,
}

/// What a transfer over a path came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// From its first request, or the start of the command, to its last byte.
    pub elapsed: Duration,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Its course, at equal intervals.
    pub samples: Vec<Sample>,
    /// Most bytes that waited for the consumer at once.
    pub unread_peak: u64,
    /// Why it ended early.
    pub error: Option<String>,
}

impl Run {
    /// Bytes a second over the whole run.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Bytes a second once started: over the second half of the time.
    #[must_use]
    pub fn steady_rate(&self) -> f64 {
        let half = self.elapsed / 2;
        let Some(middle) = self.samples.iter().find(|sample| sample.at >= half) else {
            return self.rate();
        };
        let rest = (self.elapsed - middle.at).as_secs_f64();
        (self.bytes - middle.bytes) as f64 / rest.max(1e-9)
    }

    /// Which part of the path's rate the run had once started, 0 to 1.
    #[must_use]
    pub fn utilisation(&self, path: &Path) -> f64 {
        self.steady_rate() / path.rate.bytes_per_sec() as f64
    }

    /// Bytes a second between each two samples, by seconds since the start.
    #[must_use]
    pub fn rates(&self) -> Vec<(f64, f64)> {
        let pairs = self.samples.windows(2);
        pairs
            .map(|pair| {
                let time = (pair[1].at - pair[0].at).as_secs_f64();
                let bytes = (pair[1].bytes - pair[0].bytes) as f64;
                (pair[1].at.as_secs_f64(), bytes / time.max(1e-9))
            })
            .collect()
    }

    /// The window in bytes, by seconds since the start.
    #[must_use]
    pub fn windows(&self) -> Vec<(f64, f64)> {
        let point = |sample: &Sample| (sample.at.as_secs_f64(), sample.window as f64);
        self.samples.iter().map(point).collect()
    }
}

/// Keeps samples of a run at equal intervals; the interval doubles when there are too many.
#[derive(Debug)]
struct Sampler {
    every: Duration,
    begun: Instant,
    samples: Vec<Sample>,
}

/// Samples kept of one run.
const SAMPLES_MAX: usize = 512;

impl Sampler {
    fn new(begun: Instant, every: Duration) -> Self {
        Self {
            every: every.max(Duration::from_millis(1)),
            begun,
            samples: Vec::new(),
        }
    }

    /// Takes note of how things stand at `now`, when bytes have just arrived: what comes in large
    /// packets has no rate in between. O(1) amortised.
    fn note(&mut self, now: Instant, bytes: u64, window: u64) {
        let at = now - self.begun;
        let is_due = self
            .samples
            .last()
            .is_none_or(|last| bytes > last.bytes && at >= last.at + self.every);
        if !is_due {
            return;
        }
        self.samples.push(Sample { at, bytes, window });
        if self.samples.len() > SAMPLES_MAX {
            let mut number = 0;
            self.samples.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.every *= 2;
        }
    }
}

/// Predictable: there is nothing to keep secret in a simulation.
struct SeededRandom(Rng);

impl SecureRandom for SeededRandom {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill(out);
    }
}

fn provider(seed: u64) -> Box<AwsLc> {
    Box::new(AwsLc::new(Box::new(SeededRandom(Rng::seeded(seed)))))
}

#[derive(Debug)]
struct LabKey(PrivateKey);

impl HostKey for LabKey {
    fn blob(&self, algorithm: &str) -> Option<Vec<u8>> {
        (algorithm == "ssh-ed25519").then(|| self.0.public_key().to_blob())
    }

    fn sign(&self, _algorithm: &str, data: &[u8]) -> Option<Vec<u8>> {
        self.0.sign(Algorithm::Ed25519, data).ok()
    }
}

/// A client that logs in without a question.
fn client(connection: ConnectionConfig, seed: u64) -> Connection {
    let config = ClientConfig {
        auth: ClientAuth {
            user: b"lab".to_vec(),
        },
        connection,
        ..ClientConfig::default()
    };
    let mut conn = Connection::client(config.into(), provider(seed), Instant::ZERO);
    conn.authenticate(Attempt::None)
        .expect("a new connection takes an attempt");
    conn
}

/// A server that lets everybody in.
fn server(connection: ConnectionConfig, seed: u64) -> Connection {
    let key = PrivateKey::from_ed25519_seed(&[7; 32]).expect("32 bytes are a seed");
    let config = ServerConfig {
        auth: ServerAuth {
            is_none_asked: true,
            ..ServerAuth::default()
        },
        connection,
        host_keys: vec![Arc::new(LabKey(key))],
        ..ServerConfig::default()
    };
    Connection::server(config.into(), provider(!seed), Instant::ZERO)
}

/// A day of link time: no run is longer.
const DEADLINE: Instant = Instant::from_nanos(24 * 3600 * 1_000_000_000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_says_what_it_is() {
        assert_eq!(Path::new(320, 200).label(), "320 Mbit/s x 200 ms");
        let t1 = Path {
            rtt: Duration::from_millis(500),
            rate: Rate::from_bits_per_sec(1_544_000),
        };
        assert_eq!(t1.label(), "1.544 Mbit/s x 500 ms");
        assert_eq!(t1.bdp(), 96_500);
    }

    #[test]
    fn samples_stay_few_and_even() {
        let mut sampler = Sampler::new(Instant::ZERO, Duration::from_millis(1));
        for ms in 0..100_000 {
            sampler.note(Instant::ZERO + Duration::from_millis(ms), ms, 0);
        }
        assert!((SAMPLES_MAX / 2..=SAMPLES_MAX).contains(&sampler.samples.len()));
        let gaps = sampler.samples.windows(2).map(|two| two[1].at - two[0].at);
        let gaps: Vec<_> = gaps.collect();
        assert!(gaps.iter().max() <= gaps.iter().min().map(|gap| *gap * 2).as_ref());
    }

    #[test]
    fn the_steady_rate_leaves_the_start_out() {
        let sample = |s: u64, bytes| Sample {
            at: Duration::from_secs(s),
            bytes,
            window: 0,
        };
        let run = Run {
            elapsed: Duration::from_secs(10),
            bytes: 500,
            samples: vec![sample(0, 0), sample(5, 0), sample(9, 400)],
            ..Run::default()
        };
        assert!((run.rate() - 50.0).abs() < 1e-6);
        assert!((run.steady_rate() - 100.0).abs() < 1e-6);
    }
}
