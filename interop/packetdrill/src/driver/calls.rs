//! Calls on sockets, apart from those that move bytes.

use std::ffi::{c_int, c_long, c_ulong};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use super::world::{Shared, World};
use super::{H, I, O, done, returned};
use crate::settings::Settings;
use crate::sockets::{Fd, Opening, Outcome, Stop, fail};

/// A real descriptor, whose number will be one of ours: packetdrill closes what a script leaves open.
pub fn descriptor() -> Outcome<OwnedFd> {
    eventfd(0, EventfdFlags::empty()).map_err(|e| Stop::Errno(e.raw_os_error()))
}

/// Makes something that needs a descriptor.
pub fn named(world: &mut World, make: impl FnOnce(&mut World, Fd) -> Outcome<()>) -> Outcome<Fd> {
    let descriptor = descriptor()?;
    let fd = descriptor.as_raw_fd();
    make(world, fd)?;
    world.descriptors.insert(fd, descriptor);
    Ok(fd)
}

pub extern "C" fn free(handle: H) {
    handle.shared().change(|world| {
        // Their numbers stay taken: whoever still has one closes it itself.
        std::mem::take(&mut world.descriptors)
            .into_values()
            .for_each(std::mem::forget);
    });
    // A call that still waits, whose thread nobody will hear of again, keeps its world.
    if handle.shared().waiting() == 0 {
        handle.release();
    }
}

/// What the machine's sysctls say now, under what the flags say.
fn read_sysctls(shared: &Shared, settings: &mut Settings) {
    for name in Settings::SYSCTLS {
        let path = format!("/proc/sys/net/ipv4/{name}");
        // One that this kernel does not have says nothing.
        if let Ok(value) = std::fs::read_to_string(path) {
            settings.apply_sysctl(name, &value);
        }
    }
    settings
        .apply_flags(&shared.flags)
        .expect("they were good when they came");
}

pub extern "C" fn socket(handle: H, domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let shared = handle.shared();
    returned(shared.call(|world| {
        let settings = world.sockets.host_mut().settings_mut();
        if settings.is_sysctl_read {
            read_sysctls(shared, settings);
        }
        named(world, |world, fd| {
            world.sockets.socket(fd, domain, kind, protocol)
        })
    }))
}

pub extern "C" fn bind(handle: H, fd: c_int, address: I, len: u32) -> c_int {
    let address = address.address(len);
    done(handle.shared().call(|world| match address {
        Some(address) => world.sockets.bind(fd, address),
        None => fail(libc::EAFNOSUPPORT),
    }))
}

pub extern "C" fn listen(handle: H, fd: c_int, backlog: c_int) -> c_int {
    done(handle.shared().call(|w| w.sockets.listen(fd, backlog)))
}

pub extern "C" fn accept(handle: H, fd: c_int, mut address: O, mut len: O) -> c_int {
    let accepted = handle.shared().call(|world| {
        let mut new = None;
        let accepted = world.sockets.accept(fd, 0, || {
            let descriptor = descriptor()?;
            Ok(new.insert(descriptor).as_raw_fd())
        })?;
        world
            .descriptors
            .insert(accepted.0, new.expect("it was asked for"));
        Ok(accepted)
    });
    returned(accepted.map(|(fd, remote)| {
        address.put_address(remote, &mut len);
        fd
    }))
}

pub extern "C" fn connect(handle: H, fd: c_int, address: I, len: u32) -> c_int {
    let address = address.address(len);
    let mut opening = Opening::default();
    done(handle.shared().call(|world| match address {
        Some(address) => world.sockets.connect(fd, address, &mut opening),
        None => fail(libc::EAFNOSUPPORT),
    }))
}

pub extern "C" fn fcntl(handle: H, fd: c_int, command: c_int, argument: c_long) -> c_int {
    #[expect(clippy::cast_possible_truncation, reason = "C passed an int")]
    let argument = argument as c_int;
    returned(
        handle
            .shared()
            .call(|world| world.sockets.control(fd, command, argument)),
    )
}

pub extern "C" fn ioctl(handle: H, fd: c_int, request: c_ulong, mut out: O) -> c_int {
    let queued = handle.shared().call(|w| w.sockets.queued(fd, request));
    done(queued.map(|bytes| out.put(&bytes.to_ne_bytes())))
}

pub extern "C" fn close(handle: H, fd: c_int) -> c_int {
    done(handle.shared().call(|world| {
        world.sockets.close(fd)?;
        drop(world.descriptors.remove(&fd));
        Ok(())
    }))
}

pub extern "C" fn shutdown(handle: H, fd: c_int, how: c_int) -> c_int {
    done(handle.shared().call(|w| w.sockets.shutdown(fd, how)))
}

/// `getsockopt`, whoever asks.
pub fn option(shared: &Shared, fd: Fd, level: i32, name: i32, out: &mut O, len: &mut O) -> c_int {
    let value = shared.call(|world| world.sockets.option(fd, level, name));
    done(value.map(|value| out.put_sized(&value, len, false)))
}

pub extern "C" fn getsockopt(
    handle: H,
    fd: c_int,
    level: c_int,
    name: c_int,
    mut value: O,
    mut len: O,
) -> c_int {
    option(handle.shared(), fd, level, name, &mut value, &mut len)
}

pub extern "C" fn setsockopt(
    handle: H,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: I,
    len: u32,
) -> c_int {
    let value = value.bytes(usize::try_from(len).unwrap_or(0));
    done(
        handle
            .shared()
            .call(|world| world.sockets.set_option(fd, level, name, value)),
    )
}
