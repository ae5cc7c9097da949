//! The C interface: the structure that packetdrill asks for, and a function for each of its fields.
//!
//! This is the crate's driver: the only part with raw memory, threads, real descriptors and files of
//! the machine. Two threads call in, one that plays the script and one for calls that block.

mod calls;
mod device;
mod memory;
mod transfer;
mod world;

use std::ffi::{c_int, c_long, c_uint, c_ulong};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::settings::Settings;
use memory::{Array, Handle, In, Message, Out, Text, Vectors, set_errno};
use world::Shared;

/// What a call gives back: the result, or -1 with `errno` set.
fn returned<T: TryInto<R>, R: From<i8>>(result: Result<T, i32>) -> R {
    match result.map(T::try_into) {
        Ok(Ok(value)) => value,
        // A number of bytes that C's type cannot hold: it could not be read or written either.
        Ok(Err(_)) => {
            set_errno(libc::EINVAL);
            R::from(-1)
        }
        Err(errno) => {
            set_errno(errno);
            R::from(-1)
        }
    }
}

/// A call that has no result but that it went well.
fn done(result: Result<(), i32>) -> c_int {
    returned(result.map(|()| 0i32))
}

type H = Handle<'static>;
type I = In<'static>;
type O = Out<'static>;
type Size = usize;
type SSize = isize;

/// The structure, in packetdrill's order: a word of ours, and a function for each call, which gets that
/// word first.
///
/// `fcntl` and `ioctl` have variable arguments in C. We take the one that matters as an ordinary one, which
/// Linux's calling conventions on x86-64 and 64-bit ARM pass in the same register; when it was not
/// given, what we read is not looked at.
#[repr(C)]
pub struct Interface {
    userdata: H,
    free: extern "C" fn(H),
    socket: extern "C" fn(H, c_int, c_int, c_int) -> c_int,
    bind: extern "C" fn(H, c_int, I, u32) -> c_int,
    listen: extern "C" fn(H, c_int, c_int) -> c_int,
    accept: extern "C" fn(H, c_int, O, O) -> c_int,
    connect: extern "C" fn(H, c_int, I, u32) -> c_int,
    read: extern "C" fn(H, c_int, O, Size) -> SSize,
    readv: extern "C" fn(H, c_int, Vectors<'static>, c_int) -> SSize,
    recv: extern "C" fn(H, c_int, O, Size, c_int) -> SSize,
    recvfrom: extern "C" fn(H, c_int, O, Size, c_int, O, O) -> SSize,
    recvmsg: extern "C" fn(H, c_int, Message<'static>, c_int) -> SSize,
    write: extern "C" fn(H, c_int, I, Size) -> SSize,
    writev: extern "C" fn(H, c_int, Vectors<'static>, c_int) -> SSize,
    send: extern "C" fn(H, c_int, I, Size, c_int) -> SSize,
    sendto: extern "C" fn(H, c_int, I, Size, c_int, I, u32) -> SSize,
    sendmsg: extern "C" fn(H, c_int, Message<'static>, c_int) -> SSize,
    fcntl: extern "C" fn(H, c_int, c_int, c_long) -> c_int,
    ioctl: extern "C" fn(H, c_int, c_ulong, O) -> c_int,
    close: extern "C" fn(H, c_int) -> c_int,
    shutdown: extern "C" fn(H, c_int, c_int) -> c_int,
    getsockopt: extern "C" fn(H, c_int, c_int, c_int, O, O) -> c_int,
    setsockopt: extern "C" fn(H, c_int, c_int, c_int, I, u32) -> c_int,
    poll: extern "C" fn(H, Array<'static, libc::pollfd>, c_ulong, c_int) -> c_int,
    netdev_send: extern "C" fn(H, I, Size) -> c_int,
    netdev_receive: extern "C" fn(H, O, O, O) -> c_int,
    usleep: extern "C" fn(H, c_uint) -> c_int,
    gettimeofday: extern "C" fn(H, O, O) -> c_int,
    epoll_create: extern "C" fn(H, c_int) -> c_int,
    epoll_ctl: extern "C" fn(H, c_int, c_int, c_int, Array<'static, libc::epoll_event>) -> c_int,
    epoll_wait: extern "C" fn(H, c_int, Array<'static, libc::epoll_event>, c_int, c_int) -> c_int,
    pipe: extern "C" fn(H, O) -> c_int,
    splice: extern "C" fn(H, c_int, O, c_int, O, Size, c_uint) -> SSize,
}

impl Interface {
    const fn new(userdata: H) -> Self {
        Self {
            userdata,
            free: calls::free,
            socket: calls::socket,
            bind: calls::bind,
            listen: calls::listen,
            accept: calls::accept,
            connect: calls::connect,
            read: transfer::read,
            readv: transfer::readv,
            recv: transfer::recv,
            recvfrom: transfer::recvfrom,
            recvmsg: transfer::recvmsg,
            write: transfer::write,
            writev: transfer::writev,
            send: transfer::send,
            sendto: transfer::sendto,
            sendmsg: transfer::sendmsg,
            fcntl: calls::fcntl,
            ioctl: calls::ioctl,
            close: calls::close,
            shutdown: calls::shutdown,
            getsockopt: calls::getsockopt,
            setsockopt: calls::setsockopt,
            poll: device::poll,
            netdev_send: device::netdev_send,
            netdev_receive: device::netdev_receive,
            usleep: device::usleep,
            gettimeofday: device::gettimeofday,
            epoll_create: device::epoll_create,
            epoll_ctl: device::epoll_ctl,
            epoll_wait: device::epoll_wait,
            pipe: device::pipe,
            splice: device::splice,
        }
    }
}

/// The world that was made last: for `getsockopt` without a handle.
static LAST: Mutex<Weak<Shared>> = Mutex::new(Weak::new());

fn last() -> Option<Arc<Shared>> {
    LAST.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .upgrade()
}

/// Fills `interface`. Flags that are not understood end the program with a message: the script that
/// they were meant for would prove nothing.
// SAFETY: no other library has a symbol of this name.
#[allow(unsafe_code, reason = "the name is what packetdrill looks for")]
#[unsafe(no_mangle)]
extern "C" fn packetdrill_interface_init(flags: Text<'static>, mut interface: Slot) {
    let flags = flags.to_text();
    let mut settings = Settings::default();
    if let Err(bad) = settings.apply_flags(&flags) {
        eprintln!("fullbore: no such flag, or no such value: {}", bad.0);
        std::process::exit(2);
    }
    let shared = Arc::new(Shared::new(settings, flags));
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&shared);
    interface.fill(Interface::new(Handle::new(shared)));
}

/// Where the caller wants the structure.
#[repr(transparent)]
pub struct Slot(*mut Interface);

impl Slot {
    fn fill(&mut self, interface: Interface) {
        // SAFETY: the caller has room for one there, whatever it holds before.
        #[allow(unsafe_code, reason = "what C asked to be filled")]
        unsafe {
            self.0.write(interface);
        }
    }
}

/// How many calls wait: for whoever plays scripts from two threads and has to know that a call which
/// blocks has begun before the clock moves on.
// SAFETY: no other library has a symbol of this name.
#[allow(unsafe_code, reason = "our own harness looks for it")]
#[unsafe(no_mangle)]
extern "C" fn fullbore_packetdrill_waiting() -> c_int {
    let waiting = last().map_or(0, |shared| shared.waiting());
    c_int::try_from(waiting).unwrap_or(c_int::MAX)
}

/// The C library's call of this name, for programs that this library is loaded in front of: packetdrill
/// asks for `TCP_INFO` past its own interface. Descriptors that are not ours go to the kernel.
// SAFETY: it takes the place of the C library's, and does what that does.
#[allow(unsafe_code, reason = "the name is the C library's")]
#[unsafe(no_mangle)]
extern "C" fn getsockopt(fd: c_int, level: c_int, name: c_int, mut value: O, mut len: O) -> c_int {
    match last() {
        Some(shared) if shared.look().sockets.has(fd) => {
            calls::option(&shared, fd, level, name, &mut value, &mut len)
        }
        Some(_) | None => memory::kernel_getsockopt(fd, level, name, &value, &len),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_is_one_word_and_32_functions() {
        assert_eq!(size_of::<Interface>(), 33 * size_of::<usize>());
        assert_eq!(
            std::mem::offset_of!(Interface, splice),
            32 * size_of::<usize>()
        );
    }

    #[test]
    fn what_fails_is_minus_one() {
        assert_eq!(returned::<usize, isize>(Ok(7)), 7);
        assert_eq!(returned::<usize, isize>(Err(libc::EAGAIN)), -1);
        assert_eq!(done(Ok(())), 0);
        assert_eq!(done(Err(libc::EBADF)), -1);
    }
}
