//! The same copy in plain text: what the kernel's own copying costs.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};

use super::BLOCK_BYTES;

/// Serves one copy after another: a line `get PATH` or `put PATH`, then the bytes to the end of the stream.
pub fn serve() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    loop {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let line = read_line(&mut stream)?;
        let done = match line.split_once(' ') {
            Some(("get", path)) => File::open(path).and_then(|mut file| pour(&mut file, &mut stream)),
            Some(("put", path)) => File::create(path)
                .and_then(|mut file| pour(&mut stream, &mut file))
                .and_then(|()| stream.write_all(b"!")),
            _ => Err(io::Error::other("what is asked is not known")),
        };
        if let Err(error) = done {
            eprintln!("{line}: {error}");
        }
    }
}

fn read_line(stream: &mut TcpStream) -> io::Result<String> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while stream.read(&mut byte)? == 1 && byte != *b"\n" {
        line.push(byte[0]);
    }
    String::from_utf8(line).map_err(io::Error::other)
}

fn pour(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        match from.read(&mut block)? {
            0 => return Ok(()),
            n => to.write_all(&block[..n])?,
        }
    }
}

fn ask(port: u16, line: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.write_all(line.as_bytes())?;
    Ok(stream)
}

/// Copies the server's `from` to `to`.
pub fn get(port: u16, from: &str, to: &str) -> io::Result<()> {
    let mut stream = ask(port, &format!("get {from}\n"))?;
    pour(&mut stream, &mut File::create(to)?)
}

/// Copies `from` to the server's `to`, and waits until all of it is there.
pub fn put(port: u16, from: &str, to: &str) -> io::Result<()> {
    let mut stream = ask(port, &format!("put {to}\n"))?;
    pour(&mut File::open(from)?, &mut stream)?;
    stream.shutdown(std::net::Shutdown::Write)?;
    stream.read_exact(&mut [0])
}
