//! SSH without I/O: the client's and the server's side of one connection (RFC 4250-4254, OpenSSH
//! PROTOCOL), from version line to channel bytes.
//!
//! [`Connection`] is the front door. It never waits: the driver moves bytes and time in and out, and
//! asks what happened.
//!
//! # The verbs, and what they promise
//!
//! | verb | contract |
//! |---|---|
//! | `input_space` + `handle_input(now, n)` | the driver reads the socket into the space lent and says how much; an empty space is back-pressure |
//! | `handle_eof(now)` | the peer will send no more; what it sent before is still opened, then the connection ends |
//! | `handle_timeout(now)` | a deadline passed; an early call does nothing |
//! | `poll_timeout()` | the next deadline of all timers together |
//! | `poll_event(now)` | opens received packets one after another until the application has something to know |
//! | `poll_transmit(now, out)` | appends sealed packets to `out`: control messages first, then channel data in turn |
//!
//! - Any order, any number. After input, poll events until `None`, then transmit until `None`; when
//!   a transmit has moved, poll events again: received packets stay unopened while replies to earlier
//!   ones wait for the socket (that is what bounds memory against a peer that never reads).
//! - Events carry no payload. What they speak of is read through a borrowed view, in place, and an
//!   event stays true until the next `poll_event` that returns another of its kind for the channel.
//! - `Readable(ch)`: [`Connection::readable`] lends the payload where it was opened. Take what makes
//!   sense with [`Connection::consume`]; what is left is kept by the channel, bounded by its window,
//!   and comes back in front of the next bytes. Window credit returns as bytes are consumed.
//! - [`Connection::outlet`] writes channel data straight into the packets it leaves in. To read and
//!   write at once, take the bytes out with [`Connection::lend`] and give them back.
//! - `AuthRequest` and `ChannelOpen` want an answer before anything further is opened, `Request` an
//!   answer before too many of them wait.
//! - A dead connection keeps its error ([`Connection::error`]); every later call that can fail
//!   returns it, `poll_transmit` still yields the goodbye, and `Event::Closed` comes once.
//! - The caller's mistakes are errors of their own kind and never end the connection.

#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

pub mod agent;
pub mod auth;
pub mod cert;
pub mod channel;
pub mod cipher;
pub mod config;
pub mod connection;
pub mod error;
pub mod kex;
pub mod key;
pub mod msg;
pub mod packet;
pub mod provider;
pub mod transport;

pub use channel::ChannelId;
pub use connection::{ChannelOutlet, Connection, ConnectionConfig, Event, Stats, Transmit};
pub use error::Error;
pub use fullbore_base::wire;
