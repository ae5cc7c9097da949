//! A thousand channels on a hundred connections draw on one window budget: fast, slow, idle, hostile and
//! unauthenticated peers. The engines that ship, on virtual paths, with the bound checked at every step.

#![allow(clippy::unwrap_used)]

mod simulated;

use std::time::Duration;

use fullbore::driver::budget::WindowBudget;
use fullbore_base::{Instant, Outlet, Rate, TxBuf, scatter};
use fullbore_sim::{Endpoint, Pair, PairConfig, Stop};
use fullbore_ssh::auth::{Attempt, ClientAuth};
use fullbore_ssh::config::{ClientConfig, ServerConfig};
use fullbore_ssh::connection::LOCAL_WINDOW_MIN;
use fullbore_ssh::transport::HostKeyVerified;
use fullbore_ssh::{ChannelId, Connection, Event};
use fullbore_testkit::seed;
use simulated::ServerEnd;
use simulated::requester::{frame, text};
use simulated::zeros::Zeros;

const CONNECTIONS: usize = 100;
const CHANNELS: usize = 10;
const BUDGET: u64 = 448 << 20;
const BLOCK_BYTES: usize = 32 << 10;
const LINK_BYTES_PER_SEC: u64 = 1_000_000;
const STEP: Duration = Duration::from_millis(10);
const NEVER: Instant = Instant::from_nanos(u64::MAX / 2);

/// What a client does on all of its channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    /// Writes as fast as its windows let it, and reads the replies.
    Fast,
    /// A block now and then.
    Trickle,
    /// Writes to the last byte of its windows and never reads a reply, so that nobody takes its bytes.
    Hostile,
    /// Opens its channels and says nothing.
    Idle,
    /// Never logs in.
    Stranger,
}

const HABITS: [Habit; 10] = [
    Habit::Fast,
    Habit::Hostile,
    Habit::Idle,
    Habit::Fast,
    Habit::Trickle,
    Habit::Fast,
    Habit::Hostile,
    Habit::Fast,
    Habit::Stranger,
    Habit::Trickle,
];

struct Lane {
    ch: ChannelId,
    handle: Vec<u8>,
    offset: u64,
    /// A trickle's next block.
    next: Instant,
}

struct Peer {
    conn: Connection,
    tx: TxBuf,
    habit: Habit,
    lanes: Vec<Lane>,
}

impl Peer {
    fn new(habit: Habit, seed: u64) -> Self {
        let mut config = ClientConfig {
            auth: ClientAuth {
                user: b"tester".to_vec(),
            },
            ..ClientConfig::default()
        };
        // What the server answers is short; a hostile one's replies must get stuck soon.
        config.connection.local_window = Some(32 << 10);
        let mut conn = Connection::client(config.into(), simulated::provider(seed), Instant::ZERO);
        conn.authenticate(Attempt::None).unwrap();
        Self {
            conn,
            tx: TxBuf::new(512 << 10),
            habit,
            lanes: Vec::new(),
        }
    }

    fn open(&mut self, now: Instant) {
        for _ in 0..CHANNELS {
            let ch = self.conn.open_session(now).unwrap();
            self.conn.subsystem(ch, "sftp").unwrap();
            self.lanes.push(Lane {
                ch,
                handle: Vec::new(),
                offset: 0,
                next: now,
            });
            if self.habit != Habit::Idle {
                let hello = [
                    frame(1, &[&3u32.to_be_bytes()]),
                    frame(3, &[&[0; 4], &text(b"/f"), &2u32.to_be_bytes(), &[0; 4]]),
                ]
                .concat();
                emit(&mut self.conn, &mut self.tx, now, ch, &hello);
            }
        }
    }

    fn react(&mut self, now: Instant) {
        while let Some(event) = self.conn.poll_event(now) {
            match event {
                Event::HostKey => {
                    let proof = HostKeyVerified::by_application(self.conn.host_key().unwrap());
                    self.conn.accept_host_key(now, proof).unwrap();
                }
                Event::Authenticated => self.open(now),
                Event::Readable(ch) => self.read(now, ch),
                Event::OpenFailed(ch) => panic!("{:?}", self.conn.open_failure(ch)),
                _ => {}
            }
        }
        for i in 0..self.lanes.len() {
            self.write(now, i);
        }
    }

    fn read(&mut self, now: Instant, ch: ChannelId) {
        let lane = self.lanes.iter_mut().find(|lane| lane.ch == ch).unwrap();
        let view = self.conn.readable(ch);
        let n = view.len();
        if lane.handle.is_empty() {
            // VERSION, then HANDLE: length, 102, id, string.
            let version = 4 + u32::from_be_bytes(view[..4].try_into().unwrap()) as usize;
            let Some(reply) = view.get(version..).filter(|reply| reply.len() > 13) else {
                return;
            };
            assert_eq!(reply[4], 102, "the file opens");
            lane.handle = reply[13..].to_vec();
        } else if self.habit == Habit::Hostile {
            return;
        }
        self.conn.consume(now, ch, n);
    }

    fn write(&mut self, now: Instant, i: usize) {
        let lane = &mut self.lanes[i];
        let is_due = match self.habit {
            Habit::Fast | Habit::Hostile => true,
            Habit::Trickle => now >= lane.next,
            Habit::Idle | Habit::Stranger => false,
        };
        if lane.handle.is_empty() || !is_due {
            return;
        }
        let offset = lane.offset.to_be_bytes();
        let block = frame(
            6,
            &[
                &[0; 4],
                &text(&lane.handle),
                &offset,
                &text(&[0; BLOCK_BYTES]),
            ],
        );
        lane.next = now + Duration::from_millis(200);
        if self.conn.outlet(now, lane.ch, &mut self.tx).room() < BLOCK_BYTES + 100 {
            return;
        }
        while emit(&mut self.conn, &mut self.tx, now, lane.ch, &block) {
            lane.offset += BLOCK_BYTES as u64;
            if self.habit == Habit::Trickle {
                return;
            }
        }
    }
}

/// Sends `bytes` as one piece; false when there is no room for that.
fn emit(conn: &mut Connection, tx: &mut TxBuf, now: Instant, ch: ChannelId, bytes: &[u8]) -> bool {
    let mut outlet = conn.outlet(now, ch, tx);
    outlet.emit(bytes.len(), &mut |slices| {
        scatter(slices, 0, bytes);
        bytes.len()
    })
}

impl Endpoint for Peer {
    fn handle_input(&mut self, now: Instant, bytes: &[u8]) -> usize {
        let space = self.conn.input_space();
        let taken = bytes.len().min(space.len());
        space[..taken].copy_from_slice(&bytes[..taken]);
        let _kept = self.conn.handle_input(now, taken);
        self.react(now);
        taken
    }

    fn handle_eof(&mut self, now: Instant) {
        let _kept = self.conn.handle_eof(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.conn.handle_timeout(now);
        self.react(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let writing = self
            .lanes
            .iter()
            .filter(|lane| self.habit == Habit::Trickle && !lane.handle.is_empty());
        let trickle = writing.map(|lane| lane.next).min();
        self.conn.poll_timeout().into_iter().chain(trickle).min()
    }

    fn poll_transmit(&mut self, now: Instant, room: usize, out: &mut Vec<u8>) {
        self.react(now);
        let _appended = self.conn.poll_transmit(now, &mut self.tx);
        let n = self.tx.pending().len().min(room);
        out.extend_from_slice(&self.tx.pending()[..n]);
        self.tx.consume(n);
    }

    fn is_closed(&self) -> bool {
        self.conn.error().is_some()
    }
}

type Session = Pair<Peer, ServerEnd<Zeros>>;

fn session(budget: &WindowBudget, index: usize, seed: u64) -> Session {
    let habit = HABITS[index % HABITS.len()];
    let seed = seed + 2 * index as u64;
    let config = PairConfig {
        seed,
        delay: Duration::from_millis(100),
        rate: Some(Rate::from_bytes_per_sec(LINK_BYTES_PER_SEC)),
        buffer_bytes_max: 512 << 10,
        segment_bytes_max: 16 << 10,
        ..PairConfig::default()
    };
    let mut server = ServerEnd::new(ServerConfig::default(), seed + 1, Zeros::default());
    let account = budget.account();
    server.session.set_credit(Instant::ZERO, Box::new(account));
    if habit == Habit::Stranger {
        server.opens_at = NEVER;
    }
    Pair::new(config, Peer::new(habit, seed), server)
}

/// What the peer of one connection holds: credit and unread bytes.
fn held(conn: &Connection, now: Instant) -> u64 {
    conn.channels()
        .filter_map(|ch| conn.channel_windows(now, ch))
        .map(|w| u64::from(w.local_outstanding) + u64::from(w.local_unread))
        .sum()
}

#[test]
fn a_thousand_channels_stay_within_the_budget_and_share_it_fairly() {
    let seed = seed(70);
    let budget = WindowBudget::new(BUDGET);
    let mut sessions: Vec<Session> = (0..CONNECTIONS)
        .map(|index| session(&budget, index, seed))
        .collect();
    let mut holds = vec![0; CONNECTIONS];
    let mut sum = 0;
    let mut peak = 0;
    let mut until = Instant::ZERO;
    while until < Instant::ZERO + Duration::from_secs(5) {
        until += STEP;
        for (pair, hold) in sessions.iter_mut().zip(&mut holds) {
            let check = |pair: &Session| {
                let conn = pair.b.session.conn();
                let now_held = held(conn, pair.now());
                sum = sum - *hold + now_held;
                *hold = now_held;
                peak = peak.max(sum);
                assert!(sum <= BUDGET && budget.reserved() <= BUDGET, "seed {seed}");
            };
            let stop = pair.run(until, |_| false, check);
            assert!(matches!(stop, Stop::Deadline | Stop::Quiet), "seed {seed}");
            assert_eq!(pair.a.conn.error(), None, "seed {seed}");
        }
    }
    let of = |habit: Habit| {
        let kind = sessions.iter().filter(move |pair| pair.a.habit == habit);
        kind.map(|pair| pair.b.session.conn())
    };
    let channels: usize = sessions
        .iter()
        .map(|pair| pair.b.session.conn().channel_count())
        .sum();
    assert_eq!(channels, (CONNECTIONS - 10) * CHANNELS);
    for conn in of(Habit::Stranger) {
        assert_eq!((held(conn, until), conn.windows_max()), (0, 0));
    }
    for conn in of(Habit::Idle) {
        assert_eq!(held(conn, until), CHANNELS as u64 * (32 << 10));
    }
    // All that want more than there is have the same, whoever came first and whatever they do with it.
    let shares: Vec<u64> = of(Habit::Fast)
        .chain(of(Habit::Hostile))
        .map(Connection::windows_max)
        .collect();
    let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
    assert!(*most * 10 <= *least * 11, "{least} to {most}");
    for conn in of(Habit::Hostile) {
        let held = held(conn, until);
        assert!(held * 10 <= *most * 11, "{held} of {most}");
    }
    let floor = CHANNELS as u64 * u64::from(LOCAL_WINDOW_MIN);
    assert!(*least >= floor, "{least} of {floor}");
    assert!(peak >= BUDGET / 3 * 2, "there was no pressure: {peak}");
    // A share that is small beside what was wanted still is more than these paths need.
    for pair in sessions.iter().filter(|pair| pair.a.habit == Habit::Fast) {
        let written = pair.b.app.written;
        assert!(written >= 3 * LINK_BYTES_PER_SEC, "{written}");
    }
    println!("{peak} of {BUDGET} bytes at most, shares from {least} to {most}");
}
