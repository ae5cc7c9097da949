//! What a TUN device brings.

use fullbore::driver::net::Received;
use fullbore::driver::tun::{IPV4_BYTES, VNET_LEN, open};

/// A frame of the device: a segment lies within it, and a router's word names what a link may carry.
pub fn packet(data: &[u8]) {
    match open(data) {
        Some(Received::Segment(arrival)) => {
            let headers = VNET_LEN + usize::from(IPV4_BYTES);
            assert!(arrival.bytes.len() + headers <= data.len());
        }
        Some(Received::TooBig { mss, .. }) => assert!(mss <= u16::MAX - IPV4_BYTES - 20),
        None => {}
    }
}

/// A segment in either family, and a router that says that one was too long.
#[must_use]
pub fn packet_seeds() -> Vec<Vec<u8>> {
    let v4 = |protocol: u8, payload: &[u8]| {
        let total = u8::try_from(20 + payload.len()).expect("short");
        let head = [0x45, 2, 0, total, 0, 1, 0x40, 0, 64, protocol, 0, 0];
        let addresses = [10, 0, 0, 1, 10, 0, 0, 2];
        [&head[..], &addresses, payload].concat()
    };
    let v6 = |protocol: u8, payload: &[u8]| {
        let len = u8::try_from(payload.len()).expect("short");
        let head = [0x60, 0x30, 0, 0, 0, len, protocol, 64];
        [&head[..], &[0xfd; 32], payload].concat()
    };
    let tcp = [0, 22, 15, 160, 1, 2, 3, 4];
    let too_big = [&[3, 4, 0, 0, 0, 0, 5, 120][..], &v4(6, &tcp)].concat();
    let too_big_6 = [&[2, 0, 0, 0, 0, 0, 5, 0][..], &v6(6, &tcp)].concat();
    [
        v4(6, &tcp),
        v6(6, &tcp),
        v4(1, &too_big),
        v6(58, &too_big_6),
    ]
    .into_iter()
    .map(|ip| [&[0; VNET_LEN][..], &ip].concat())
    .collect()
}
