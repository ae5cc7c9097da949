//! The network device, the clock, and calls that watch descriptors.

use std::ffi::{c_int, c_uint, c_ulong};
use std::time::Duration;

use fullbore_base::Instant;

use super::calls::named;
use super::memory::Array;
use super::{H, I, O, SSize, Shared, Size, done, returned, set_errno};
use crate::sockets::{Fd, Interest, Watch, fail};

/// What `gettimeofday` says when the host's clock stands at zero: some day of 2001.
const EPOCH_SECS: i64 = 1_000_000_000;

/// Microseconds since 1970.
fn micros(at: Instant) -> i64 {
    let micros = i64::try_from(at.as_nanos() / 1000).unwrap_or(i64::MAX);
    micros.saturating_add(EPOCH_SECS * 1_000_000)
}

pub extern "C" fn netdev_send(handle: H, packet: I, len: Size) -> c_int {
    let packet = packet.bytes(len);
    handle
        .shared()
        .change(|world| world.sockets.host_mut().handle_packet(packet));
    0
}

/// Puts the next packet, its length and the time it left into what the caller has for them. When
/// nothing will ever leave, the length is 0, and the result too: for a failure packetdrill would ask
/// again, for ever.
pub extern "C" fn netdev_receive(handle: H, mut out: O, mut len: O, mut at: O) -> c_int {
    let room = len.bytes(size_of::<usize>()).first_chunk();
    let room = room.map_or(0, |bytes| usize::from_ne_bytes(*bytes));
    let (left_at, packet) = handle.shared().receive_packet().unwrap_or_default();
    let packet = &packet[..packet.len().min(room)];
    out.put(packet);
    len.put(&packet.len().to_ne_bytes());
    at.put(&micros(left_at).to_ne_bytes());
    0
}

pub extern "C" fn usleep(handle: H, micros: c_uint) -> c_int {
    handle.shared().sleep(Duration::from_micros(micros.into()));
    0
}

pub extern "C" fn gettimeofday(handle: H, mut time: O, _zone: O) -> c_int {
    let now = micros(handle.shared().clock());
    let parts = [now / 1_000_000, now % 1_000_000];
    // `struct timeval` has two words of the machine's size.
    let parts = parts.map(|part| libc::c_long::try_from(part).unwrap_or(libc::c_long::MAX));
    time.put(&parts.map(libc::c_long::to_ne_bytes).concat());
    0
}

/// When a timeout in milliseconds is over; none when it is negative.
fn deadline(shared: &Shared, timeout_ms: c_int) -> Option<Instant> {
    let timeout = u64::try_from(timeout_ms).ok()?;
    Some(shared.look().sockets.host().now() + Duration::from_millis(timeout))
}

pub extern "C" fn poll(
    handle: H,
    mut list: Array<'static, libc::pollfd>,
    count: c_ulong,
    timeout_ms: c_int,
) -> c_int {
    let list = list.list(usize::try_from(count).unwrap_or(0));
    let interests: Vec<Interest> = list
        .iter()
        .map(|entry| Interest {
            fd: entry.fd,
            events: entry.events,
        })
        .collect();
    let mut ready = vec![0; interests.len()];
    let until = deadline(handle.shared(), timeout_ms);
    let polled = handle
        .shared()
        .call(|world| world.sockets.poll(&interests, &mut ready, until));
    for (entry, ready) in list.iter_mut().zip(ready) {
        entry.revents = ready;
    }
    returned(polled)
}

pub extern "C" fn epoll_create(handle: H, size: c_int) -> c_int {
    returned(handle.shared().call(|world| {
        if size <= 0 {
            return fail(libc::EINVAL);
        }
        named(world, |world, fd| {
            world.sockets.epoll_create(fd);
            Ok(())
        })
    }))
}

pub extern "C" fn epoll_ctl(
    handle: H,
    epoll: c_int,
    operation: c_int,
    fd: Fd,
    mut event: Array<'static, libc::epoll_event>,
) -> c_int {
    // Without one, nothing is watched: what a removal means.
    let watch = event.list(1).first().map_or(
        Watch { events: 0, word: 0 },
        |&libc::epoll_event { events, u64: word }| Watch { events, word },
    );
    done(
        handle
            .shared()
            .call(|world| world.sockets.epoll_control(epoll, operation, fd, watch)),
    )
}

pub extern "C" fn epoll_wait(
    handle: H,
    epoll: c_int,
    mut events: Array<'static, libc::epoll_event>,
    limit: c_int,
    timeout_ms: c_int,
) -> c_int {
    let limit = usize::try_from(limit).unwrap_or(0);
    let until = deadline(handle.shared(), timeout_ms);
    let ready = handle.shared().call(|world| {
        if limit == 0 {
            return fail(libc::EINVAL);
        }
        world.sockets.epoll_wait(epoll, limit, until)
    });
    returned(ready.map(|ready| {
        for (event, watch) in events.list(ready.len()).iter_mut().zip(&ready) {
            *event = libc::epoll_event {
                events: watch.events,
                u64: watch.word,
            };
        }
        ready.len()
    }))
}

/// Pipes are the kernel's; we have none.
pub extern "C" fn pipe(_handle: H, _pair: O) -> c_int {
    set_errno(libc::ENOSYS);
    -1
}

/// See [`pipe`].
pub extern "C" fn splice(
    _handle: H,
    _from: c_int,
    _from_at: O,
    _to: c_int,
    _to_at: O,
    _len: Size,
    _flags: c_uint,
) -> SSize {
    set_errno(libc::ENOSYS);
    -1
}
