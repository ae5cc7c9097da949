//! Calls that move bytes.

use std::ffi::c_int;

use super::memory::{Message, Vectors};
use super::{H, I, O, SSize, Shared, Size, returned, set_errno};
use crate::sockets::{Fd, Outcome, Receive, Send, fail};

fn receive(
    shared: &Shared,
    fd: Fd,
    out: &mut [u8],
    wanted: &Outcome<Receive>,
) -> Result<usize, i32> {
    let mut count = 0;
    shared.call(|world| world.sockets.receive(fd, out, (*wanted)?, &mut count))
}

fn transmit(shared: &Shared, fd: Fd, bytes: &[u8], wanted: &Outcome<Send>) -> Result<usize, i32> {
    let mut count = 0;
    shared.call(|world| world.sockets.send(fd, bytes, (*wanted)?, &mut count))
}

/// Receives into pieces.
fn receive_vectors(
    shared: &Shared,
    fd: Fd,
    (vectors, count): (Vectors<'_>, usize),
    wanted: &Outcome<Receive>,
) -> SSize {
    let Some(room) = vectors.room(count) else {
        set_errno(libc::EINVAL);
        return -1;
    };
    let mut bytes = vec![0; room];
    let received = receive(shared, fd, &mut bytes, wanted);
    if let Ok(received) = received {
        vectors.scatter(count, &bytes[..received]);
    }
    returned(received)
}

/// Sends what is in pieces.
fn transmit_vectors(
    shared: &Shared,
    fd: Fd,
    (vectors, count): (Vectors<'_>, usize),
    wanted: &Outcome<Send>,
) -> SSize {
    match vectors.gather(count) {
        Some(bytes) => returned(transmit(shared, fd, &bytes, wanted)),
        None => {
            set_errno(libc::EINVAL);
            -1
        }
    }
}

fn pieces(count: c_int) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

pub extern "C" fn read(handle: H, fd: c_int, mut out: O, len: Size) -> SSize {
    let wanted = Ok(Receive::default());
    returned(receive(handle.shared(), fd, out.bytes(len), &wanted))
}

pub extern "C" fn readv(handle: H, fd: c_int, vectors: Vectors<'static>, count: c_int) -> SSize {
    let wanted = Ok(Receive::default());
    receive_vectors(handle.shared(), fd, (vectors, pieces(count)), &wanted)
}

pub extern "C" fn recv(handle: H, fd: c_int, mut out: O, len: Size, flags: c_int) -> SSize {
    let wanted = Receive::from_flags(flags);
    returned(receive(handle.shared(), fd, out.bytes(len), &wanted))
}

pub extern "C" fn recvfrom(
    handle: H,
    fd: c_int,
    out: O,
    len: Size,
    flags: c_int,
    _address: O,
    mut address_len: O,
) -> SSize {
    // A stream's peer is known.
    address_len.put(&0u32.to_ne_bytes());
    recv(handle, fd, out, len, flags)
}

pub extern "C" fn recvmsg(
    handle: H,
    fd: c_int,
    mut message: Message<'static>,
    flags: c_int,
) -> SSize {
    let Some(vectors) = message.vectors() else {
        set_errno(libc::EFAULT);
        return -1;
    };
    message.clear();
    receive_vectors(handle.shared(), fd, vectors, &Receive::from_flags(flags))
}

pub extern "C" fn write(handle: H, fd: c_int, bytes: I, len: Size) -> SSize {
    let wanted = Ok(Send::default());
    returned(transmit(handle.shared(), fd, bytes.bytes(len), &wanted))
}

pub extern "C" fn writev(handle: H, fd: c_int, vectors: Vectors<'static>, count: c_int) -> SSize {
    let wanted = Ok(Send::default());
    transmit_vectors(handle.shared(), fd, (vectors, pieces(count)), &wanted)
}

pub extern "C" fn send(handle: H, fd: c_int, bytes: I, len: Size, flags: c_int) -> SSize {
    let wanted = Send::from_flags(flags);
    returned(transmit(handle.shared(), fd, bytes.bytes(len), &wanted))
}

pub extern "C" fn sendto(
    handle: H,
    fd: c_int,
    bytes: I,
    len: Size,
    flags: c_int,
    address: I,
    address_len: u32,
) -> SSize {
    // Data with a SYN is not ours to send.
    let wanted = match address.address(address_len) {
        Some(_) => fail(libc::EISCONN),
        None => Send::from_flags(flags),
    };
    returned(transmit(handle.shared(), fd, bytes.bytes(len), &wanted))
}

pub extern "C" fn sendmsg(
    handle: H,
    fd: c_int,
    mut message: Message<'static>,
    flags: c_int,
) -> SSize {
    let Some(vectors) = message.vectors() else {
        set_errno(libc::EFAULT);
        return -1;
    };
    transmit_vectors(handle.shared(), fd, vectors, &Send::from_flags(flags))
}
