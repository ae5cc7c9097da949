//! Servers that say nothing while a connection is made: how long they are waited for, and what is said then.
//! In virtual time.

#![allow(clippy::unwrap_used)]

mod simulated;
mod support;

use std::time::Duration;

use fullbore::client::{Error, connect, connect_over};
use fullbore::driver::stream::Stream;
use fullbore_base::{Instant, Outlet as _, Rate, TxBuf, scatter};
use fullbore_sim::Endpoint;
use fullbore_ssh::auth::{AuthAnswer, Method, MethodSet, ServerAuth};
use fullbore_ssh::config::ServerConfig;
use fullbore_ssh::{Connection, Event};

use simulated::stream::SimulatedStream;
use simulated::{Files, ServerEnd, in_virtual_time, server_conn};
use support::{Folder, Script, context, host, make_key};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Connects to a port where nobody ever speaks: what is said, and after how long.
fn silence(options: &[&str]) -> (String, Duration) {
    let folder = Folder::new("silence");
    make_key(&folder, "user");
    in_virtual_time(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let host = host(&folder, port, options);
        let started = tokio::time::Instant::now();
        let error = connect(&host, &context(&Script::default())).await;
        (error.unwrap_err().to_string(), started.elapsed())
    })
}

#[test]
fn a_port_where_nobody_speaks_is_given_up_after_a_minute() {
    let (text, took) = silence(&[]);
    assert!(text.contains("within 60 s"), "{text}");
    assert!(text.contains("is the port right?"), "{text}");
    assert!((seconds(60)..seconds(61)).contains(&took), "{took:?}");
}

#[test]
fn connect_timeout_says_how_long() {
    let (text, took) = silence(&["ConnectTimeout=7"]);
    assert!(text.contains("within 7 s"), "{text}");
    assert!((seconds(7)..seconds(8)).contains(&took), "{took:?}");
    let (text, _) = silence(&["ConnectTimeout=300"]);
    assert!(text.contains("within 300 s"), "{text}");
}

/// Logs in at a server that answers the login so long after the start.
fn login_answered_after(time: Duration, options: &[&str]) -> Result<(), Error> {
    let folder = Folder::new("late");
    make_key(&folder, "user");
    in_virtual_time(async {
        let context = context(&Script::default());
        let files = Files::new(&folder.0);
        let mut config = ServerConfig::default();
        config.connection.login_timeout = None;
        let mut server = ServerEnd::new(config, 1, files);
        server.opens_at = Instant::ZERO + time;
        let rate = Rate::from_bits_per_sec(1_000_000_000);
        let stream = SimulatedStream::new(context.clock, Duration::from_millis(10), rate, server);
        let host = host(&folder, 22, options);
        let stream = Stream::Tunnel(Box::new(stream));
        connect_over(&host, &context, stream).await.map(drop)
    })
}

#[test]
fn a_login_that_is_not_answered_is_given_up_and_a_late_answer_is_taken() {
    login_answered_after(seconds(170), &[]).unwrap();
    let text = login_answered_after(seconds(200), &[])
        .unwrap_err()
        .to_string();
    assert!(
        text.contains("no answer to the login within 180 s"),
        "{text}"
    );
    login_answered_after(seconds(200), &["ConnectTimeout=300"]).unwrap();
}

#[test]
fn keyboard_interactive_that_asks_nothing_is_tried_once() {
    let folder = Folder::new("mute");
    make_key(&folder, "user");
    let script = Script::new(&["a", "b", "c"]);
    let error = in_virtual_time(async {
        let context = context(&script);
        let methods = MethodSet::of(&[Method::KeyboardInteractive]);
        let files = Files::new(&folder.0);
        let server = ServerEnd::refusing(ServerConfig::default(), methods, 1, files);
        let rate = Rate::from_bits_per_sec(1_000_000_000);
        let stream = SimulatedStream::new(context.clock, Duration::from_millis(10), rate, server);
        let host = host(&folder, 22, &["NumberOfPasswordPrompts=3"]);
        let stream = Stream::Tunnel(Box::new(stream));
        connect_over(&host, &context, stream).await.map(drop)
    });
    let text = error.unwrap_err().to_string();
    assert!(text.contains("Permission denied"), "{text}");
    assert!(text.contains("keyboard-interactive."), "{text}");
    assert!(!text.contains("times"), "{text}");
    assert!(!script.seen().contains("try again"), "{}", script.seen());
}

/// A server that runs anything, says little, and ends it with status 3.
struct ShortServer {
    conn: Connection,
    tx: TxBuf,
    says: &'static [u8],
    /// Whether it closes the channel.
    closes: bool,
}

impl ShortServer {
    fn turn(&mut self, now: Instant) {
        while let Some(event) = self.conn.poll_event(now) {
            match event {
                Event::AuthRequest => self.conn.answer_auth(AuthAnswer::Accept).unwrap(),
                Event::ChannelOpen(ch) => assert!(self.conn.accept_channel(ch).unwrap()),
                Event::Request(ch) => {
                    self.conn.answer_request(ch, true).unwrap();
                    let says = self.says;
                    let mut outlet = self.conn.outlet(now, ch, &mut self.tx);
                    assert!(
                        says.is_empty()
                            || outlet.emit(says.len(), &mut |slices| {
                                scatter(slices, 0, says);
                                says.len()
                            })
                    );
                    self.conn.exit_status(ch, 3).unwrap();
                    self.conn.send_eof(ch).unwrap();
                    if self.closes {
                        self.conn.close_channel(ch).unwrap();
                    }
                }
                _ => {}
            }
        }
    }
}

impl Endpoint for ShortServer {
    fn handle_input(&mut self, now: Instant, bytes: &[u8]) -> usize {
        let space = self.conn.input_space();
        let taken = bytes.len().min(space.len());
        space[..taken].copy_from_slice(&bytes[..taken]);
        self.conn.handle_input(now, taken).unwrap();
        self.turn(now);
        taken
    }

    fn handle_eof(&mut self, now: Instant) {
        let _ = self.conn.handle_eof(now);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.conn.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.conn.poll_timeout()
    }

    fn poll_transmit(&mut self, now: Instant, room: usize, out: &mut Vec<u8>) {
        self.turn(now);
        while self.conn.poll_transmit(now, &mut self.tx).is_some() {}
        let n = self.tx.pending().len().min(room);
        out.extend_from_slice(&self.tx.pending()[..n]);
        self.tx.consume(n);
    }

    fn is_closed(&self) -> bool {
        self.conn.error().is_some()
    }
}

/// A connection to such a server.
async fn connected(
    folder: &Folder,
    says: &'static [u8],
    closes: bool,
) -> fullbore::client::Connection {
    make_key(folder, "user");
    let context = context(&Script::default());
    let auth = ServerAuth {
        is_none_asked: true,
        ..ServerAuth::default()
    };
    let server = ShortServer {
        conn: server_conn(ServerConfig::default(), auth, 1),
        tx: TxBuf::new(1 << 20),
        says,
        closes,
    };
    let rate = Rate::from_bits_per_sec(1_000_000_000);
    let stream = SimulatedStream::new(context.clock, Duration::from_millis(10), rate, server);
    let host = host(folder, 22, &[]);
    let stream = Stream::Tunnel(Box::new(stream));
    connect_over(&host, &context, stream).await.unwrap()
}

#[test]
fn a_command_is_over_when_all_is_said_whether_or_not_its_channel_is_closed() {
    for closes in [true, false] {
        let folder = Folder::new("open");
        in_virtual_time(async {
            let connection = connected(&folder, b"a word", closes).await;
            let output = connection.exec(b"any").await.unwrap();
            assert_eq!(output.status, Some(3));
            assert_eq!(output.stdout, b"a word");
        });
    }
}

/// VERSION in full and in part: what stands in front of the end of a server must not hide it.
#[test]
fn a_server_that_ends_within_a_message_ends_the_session_at_once() {
    let version = b"\0\0\0\x05\x02\0\0\0\x03\0\0\0\x40\x67";
    for len in [0, 3, 8, 9, 12, 14] {
        let folder = Folder::new("cut");
        in_virtual_time(async {
            let connection = connected(&folder, &version[..len], true).await;
            let started = tokio::time::Instant::now();
            let sftp = connection.start_sftp().unwrap();
            let error = sftp.stat(b"any").await.unwrap_err().to_string();
            assert!(error.contains("ended with status 3"), "{len}: {error}");
            let took = started.elapsed();
            assert!(took < seconds(1), "{len}: {took:?}");
        });
    }
}
