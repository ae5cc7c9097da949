//! Memory that C hands over, as types that only C can make.
//!
//! Each stands in an argument list of the interface, where POSIX says what the caller promises: that a
//! pointer is null or points to as many bytes as the length beside it says, for as long as the call
//! lasts. No code of ours makes one of these values, so none can break that promise.
#![allow(
    unsafe_code,
    reason = "reading and writing what C's pointers point to, here and nowhere else"
)]

use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::slice;

use super::world::Shared;

/// The handle that each call begins with: what [`super::packetdrill_interface_init`] put into the
/// structure, until `free` is called with it.
#[repr(transparent)]
pub struct Handle<'a>(*const Shared, PhantomData<&'a Shared>);

impl<'a> Handle<'a> {
    /// The handle of a world that lives until [`Handle::release`].
    pub fn new(shared: std::sync::Arc<Shared>) -> Self {
        Self(std::sync::Arc::into_raw(shared), PhantomData)
    }

    /// What it leads to.
    pub const fn shared(&self) -> &'a Shared {
        // SAFETY: it came out of `Arc::into_raw`, and the caller uses it only until `free`.
        unsafe { &*self.0 }
    }

    /// Gives it back.
    pub fn release(self) {
        // SAFETY: it came out of `Arc::into_raw`, and `free` is called once.
        drop(unsafe { std::sync::Arc::from_raw(self.0) });
    }
}

/// A C string, or null.
#[repr(transparent)]
pub struct Text<'a>(*const c_char, PhantomData<&'a c_char>);

impl Text<'_> {
    /// The text; empty for null.
    pub fn to_text(&self) -> String {
        if self.0.is_null() {
            return String::new();
        }
        // SAFETY: it is not null, and the caller ends it with a zero byte.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_string_lossy().into_owned()
    }
}

/// Memory to be read.
#[repr(transparent)]
pub struct In<'a>(*const c_void, PhantomData<&'a c_void>);

impl<'a> In<'a> {
    /// The first `len` bytes; none when it is null.
    pub const fn bytes(&self, len: usize) -> &'a [u8] {
        if self.0.is_null() {
            return &[];
        }
        // SAFETY: it is not null, and the caller promises `len` bytes for the time of the call.
        unsafe { slice::from_raw_parts(self.0.cast(), len) }
    }

    /// The socket address of `len` bytes.
    pub fn address(&self, len: u32) -> Option<SocketAddr> {
        address(self.bytes(usize::try_from(len).ok()?))
    }
}

/// Memory to be written, or to be read and written.
#[repr(transparent)]
pub struct Out<'a>(*mut c_void, PhantomData<&'a mut c_void>);

impl<'a> Out<'a> {
    /// Whether the caller wants nothing there.
    pub const fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// The first `len` bytes, which the caller has given some value; none when it is null.
    pub const fn bytes(&mut self, len: usize) -> &mut [u8] {
        if self.0.is_null() {
            return &mut [];
        }
        // SAFETY: it is not null, the caller promises `len` bytes of which nobody else makes use for
        // the time of the call, and any bytes are good ones.
        unsafe { slice::from_raw_parts_mut(self.0.cast(), len) }
    }

    /// Puts `value` there, as far as it is wanted.
    pub fn put(&mut self, value: &[u8]) {
        if !self.is_null() {
            self.bytes(value.len()).copy_from_slice(value);
        }
    }

    /// A number there; zero when it is null.
    fn number(&mut self) -> u32 {
        let bytes = self.bytes(4).first_chunk();
        bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }

    /// Puts as much of `value` there as `len` says there is room for, and its length into `len`.
    pub fn put_sized(&mut self, value: &[u8], len: &mut Out<'_>, is_told_whole: bool) {
        if len.is_null() {
            return;
        }
        let room = usize::try_from(len.number()).unwrap_or(usize::MAX);
        let cut = value.len().min(room);
        self.put(&value[..cut]);
        let told = if is_told_whole { value.len() } else { cut };
        len.put(&u32::try_from(told).unwrap_or(u32::MAX).to_ne_bytes());
    }

    /// Puts a socket address there; how long it is goes into `len` (POSIX: even if it was cut).
    pub fn put_address(&mut self, address: SocketAddr, len: &mut Out<'_>) {
        if !self.is_null() {
            self.put_sized(&address_bytes(address), len, true);
        }
    }
}

/// `struct iovec` in an array.
#[repr(transparent)]
pub struct Vectors<'a>(*const libc::iovec, PhantomData<&'a libc::iovec>);

/// Pieces of one `readv` or `writev` (POSIX: IOV_MAX).
const VECTORS_MAX: usize = 1024;

impl<'a> Vectors<'a> {
    fn list(&self, count: usize) -> Option<&'a [libc::iovec]> {
        if self.0.is_null() || count > VECTORS_MAX {
            return (count == 0).then_some(&[]);
        }
        // SAFETY: it is not null, and the caller promises `count` of them for the time of the call.
        Some(unsafe { slice::from_raw_parts(self.0, count) })
    }

    /// The bytes of all pieces, one after another. `None` for more than the system allows.
    pub fn gather(&self, count: usize) -> Option<Vec<u8>> {
        let pieces = self.list(count)?.iter();
        let pieces = pieces.map(|v| In(v.iov_base, PhantomData).bytes(v.iov_len));
        Some(pieces.flatten().copied().collect())
    }

    /// How many bytes fit. `None` for more pieces than the system allows.
    pub fn room(&self, count: usize) -> Option<usize> {
        self.list(count)?
            .iter()
            .try_fold(0usize, |sum, v| sum.checked_add(v.iov_len))
    }

    /// Puts `bytes`, no more than [`Vectors::room`], into the pieces.
    pub fn scatter(&self, count: usize, mut bytes: &[u8]) {
        for piece in self.list(count).unwrap_or_default() {
            let (now, later) = bytes.split_at(bytes.len().min(piece.iov_len));
            Out(piece.iov_base, PhantomData).put(now);
            bytes = later;
        }
    }
}

/// `struct msghdr`.
#[repr(transparent)]
pub struct Message<'a>(*mut libc::msghdr, PhantomData<&'a mut libc::msghdr>);

impl<'a> Message<'a> {
    fn header(&mut self) -> Option<&mut libc::msghdr> {
        // SAFETY: it is null, or the caller's for the time of the call.
        unsafe { self.0.as_mut() }
    }

    /// Its pieces and how many there are; `None` when there is no message.
    pub fn vectors(&mut self) -> Option<(Vectors<'a>, usize)> {
        let header = self.header()?;
        // Some C libraries count in `int`.
        #[allow(clippy::useless_conversion, reason = "it is a usize in others")]
        let count = usize::try_from(header.msg_iovlen).ok()?;
        Some((Vectors(header.msg_iov, PhantomData), count))
    }

    /// No name, no control messages, no flags: all that a stream has to say.
    pub fn clear(&mut self) {
        if let Some(header) = self.header() {
            header.msg_namelen = 0;
            header.msg_controllen = 0;
            header.msg_flags = 0;
        }
    }
}

/// An array of `T`, plain numbers of C.
#[repr(transparent)]
pub struct Array<'a, T>(*mut T, PhantomData<&'a mut T>);

impl<T: Plain> Array<'_, T> {
    /// The first `len`; none when it is null.
    pub const fn list(&mut self, len: usize) -> &mut [T] {
        if self.0.is_null() {
            return &mut [];
        }
        // SAFETY: it is not null, the caller promises `len` of them of which nobody else makes use
        // for the time of the call, and any bytes are a good `T`.
        unsafe { slice::from_raw_parts_mut(self.0, len) }
    }
}

/// What consists of numbers only.
pub trait Plain: Copy {}

impl Plain for libc::pollfd {}
impl Plain for libc::epoll_event {}

/// Sets the thread's `errno`.
pub fn set_errno(errno: i32) {
    // SAFETY: the C library's own place for it, one for each thread.
    unsafe { *libc::__errno_location() = errno };
}

/// Asks the kernel, past the C library.
pub fn kernel_getsockopt(fd: i32, level: i32, name: i32, value: &Out<'_>, len: &Out<'_>) -> i32 {
    // SAFETY: the arguments are the caller's own, for the call that it meant to make.
    let result = unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, value.0, len.0) };
    i32::try_from(result).unwrap_or(-1)
}

fn address(bytes: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    let ip: IpAddr = match family {
        libc::AF_INET => Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?).into(),
        libc::AF_INET6 => Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?).into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

fn address_bytes(address: SocketAddr) -> Vec<u8> {
    let family = match address.ip() {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    };
    let family = u16::try_from(family).expect("families are small");
    let mut bytes = family.to_ne_bytes().to_vec();
    bytes.extend(address.port().to_be_bytes());
    match address.ip() {
        // Filled up with zeroes.
        IpAddr::V4(v4) => bytes.extend([&v4.octets()[..], &[0; 8]].concat()),
        // Flow information in front, scope behind.
        IpAddr::V6(v6) => bytes.extend([&[0; 4][..], &v6.octets(), &[0; 4]].concat()),
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_through_c() {
        for text in ["192.0.2.1:8080", "[2001:db8::1]:443"] {
            let before: SocketAddr = text.parse().expect("an address");
            let bytes = address_bytes(before);
            assert_eq!(address(&bytes), Some(before));
            assert_eq!(address(&bytes[..7]), None);
        }
        assert_eq!(address_bytes("1.2.3.4:5".parse().expect("one")).len(), 16);
        assert_eq!(address_bytes("[::1]:5".parse().expect("one")).len(), 28);
        assert_eq!(address(&[1, 0, 0, 0, 0, 0, 0, 0]), None);
    }

    #[test]
    fn a_value_is_cut_to_the_room_and_null_takes_nothing() {
        let (mut room, mut len) = ([0u8; 8], 3u32.to_ne_bytes());
        let out = |bytes: &mut [u8]| Out(bytes.as_mut_ptr().cast(), PhantomData);
        out(&mut room).put_sized(b"abcdef", &mut out(&mut len), false);
        assert_eq!((&room[..4], u32::from_ne_bytes(len)), (&b"abc\0"[..], 3));
        out(&mut room).put_sized(b"xyzw", &mut out(&mut len), true);
        assert_eq!((&room[..4], u32::from_ne_bytes(len)), (&b"xyz\0"[..], 4));
        let mut null = Out(std::ptr::null_mut(), PhantomData);
        null.put(b"abc");
        assert!(null.is_null() && null.bytes(9).is_empty());
    }

    #[test]
    fn pieces_are_gathered_and_filled_in_order() {
        let (mut a, mut b) = (*b"abc", *b"de");
        let piece = |bytes: &mut [u8]| libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        let list = [piece(&mut a), piece(&mut b)];
        let vectors = Vectors(list.as_ptr(), PhantomData);
        assert_eq!(vectors.gather(2), Some(b"abcde".to_vec()));
        assert_eq!(vectors.room(2), Some(5));
        vectors.scatter(2, b"1234");
        assert_eq!(vectors.room(VECTORS_MAX + 1), None);
        assert_eq!((&a, &b), (b"123", b"4e"));
    }
}
