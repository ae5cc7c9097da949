//! The TCP engine behind packetdrill's shared-object interface, in virtual time.
//!
//! `host` joins connections, listeners and IP packets under one clock that moves only when told to;
//! `sockets` is what a program sees of it: descriptors, calls, `errno`; `driver` is the C interface, and
//! the only part that knows threads, raw memory and the machine.

mod driver;
mod host;
mod ip;
mod settings;
mod sockets;
