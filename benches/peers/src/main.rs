//! Copies one file over loopback in two ways that `fullbore cp` is measured beside.
//!
//! ```text
//! bench-peers floor-serve | russh-serve             prints its port, serves until killed
//! bench-peers floor-get | floor-put | russh-get | russh-put  PORT FROM TO
//! ```
//! `floor` is the same copy in plain text: 256 KiB reads and writes, no protocol but a length. `russh` is
//! a stream on a session channel, without SFTP on top: less than a file transfer needs.

mod floor;
mod russh_copy;

use std::io;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["floor-serve"] => floor::serve(),
        ["russh-serve"] => russh_copy::serve(),
        ["floor-get", port, from, to] => floor::get(parse(port)?, from, to),
        ["floor-put", port, from, to] => floor::put(parse(port)?, from, to),
        ["russh-get", port, from, to] => russh_copy::get(parse(port)?, from, to),
        ["russh-put", port, from, to] => russh_copy::put(parse(port)?, from, to),
        _ => Err(io::Error::other("see the top of main.rs for what can be asked")),
    }
}

fn parse(port: &str) -> io::Result<u16> {
    port.parse()
        .map_err(|_| io::Error::other(format!("{port} is no port")))
}

/// Bytes read and written at once.
const BLOCK_BYTES: usize = 256 * 1024;
