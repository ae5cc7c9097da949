//! TCP segments in UDP datagrams: a transport of our own that needs no privileges, and whose
//! windows and congestion control are not the kernel's.
//!
//! Both ends agree on a secret elsewhere, over an SSH connection that is logged in; then one of them
//! sends. There is no handshake: numbers and options of the TCP connection follow from the secret
//! ([`keys`]), so the first datagram carries data. A datagram ([`datagram`]) names its connection, has a
//! number, and ends with a token that only who has the secret can make ([`guard`]); one that comes
//! again, or is too old, is known by its number ([`replay`]). [`door::Door`] keeps the table of
//! connections, and where each peer is now; [`endpoint::Endpoint`] joins it with the TCP engine.
//!
//! ```text
//! bytes ◄──► tcp::Connection ◄── segment ──► Door ◄── datagram ──► socket
//! ```
//!
//! The token proves who sent a segment and hides nothing: what is secret is for the SSH connection above,
//! which is the same as over any other transport. None of this does I/O.

pub mod datagram;
pub mod door;
pub mod endpoint;
pub mod guard;
pub mod keys;
pub mod offer;
pub mod replay;
pub mod settings;
