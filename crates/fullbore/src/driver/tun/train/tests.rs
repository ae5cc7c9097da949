use std::net::SocketAddr;

use fullbore_base::{Instant, Rng};
use fullbore_tcp::connection::Config;
use fullbore_tcp::isn::Randomness;

use super::*;
use crate::stack::{Arrival, ConnectionId, Stack, StackConfig};

struct Secrets(Rng);

impl Randomness for Secrets {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill(out);
    }
}

const NOW: Instant = Instant::from_nanos(1_000_000);

fn stack(mss: u16) -> Stack {
    let config = StackConfig {
        is_checksummed: false,
        connection: Config {
            is_paced: false,
            mss,
            mss_max: mss,
            ..Config::default()
        },
        ..StackConfig::default()
    };
    Stack::new(config, Box::new(Secrets(Rng::seeded(3))))
}

/// A connection that has just been made, at its client.
fn connected(client: SocketAddr, server: SocketAddr, mss: u16) -> (Stack, ConnectionId) {
    let (mut near, mut far) = (stack(mss), stack(mss));
    let config = near.config().connection;
    far.listen(server, &config).expect("free");
    let id = near.connect(NOW, client, server, &config).expect("room");
    let mut batch = Batch::new(65_536, 0);
    for _ in 0..2 {
        for is_near in [true, false] {
            let (from, to) = if is_near {
                (&mut near, &mut far)
            } else {
                (&mut far, &mut near)
            };
            from.poll_transmit(NOW, &mut batch);
            for out in batch.segments() {
                let arrival = Arrival {
                    local: out.remote,
                    remote: out.local,
                    bytes: batch.segment(out),
                    is_verified: true,
                    is_marked: false,
                };
                to.handle_segment(NOW, &arrival);
            }
            batch.take(batch.segments().len());
        }
    }
    (near, id)
}

/// The bytes of a train as the device would get them.
fn packet(batch: &Batch) -> Vec<u8> {
    let train = Train::new(batch, 77);
    let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
    rustix::pipe::fcntl_setpipe_size(&writer, 1 << 20).expect("large enough");
    let len = train.write(&writer, batch).expect("written");
    let mut bytes = vec![0; len];
    let read = rustix::io::read(&reader, &mut bytes[..]).expect("there");
    assert_eq!(read, len);
    bytes
}

fn word(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_ne_bytes([bytes[at], bytes[at + 1]]))
}

/// What a card does: adds the sum over the segment to what the pseudo header left in it.
fn has_right_checksum(vnet_and_ip: &[u8]) -> bool {
    let ip = &vnet_and_ip[VNET_LEN..];
    let start = word(vnet_and_ip, 6);
    assert_eq!(word(vnet_and_ip, 8), CHECKSUM_AT);
    let sum = |bytes: &[u8]| {
        let mut even = bytes.to_vec();
        even.resize(bytes.len().next_multiple_of(2), 0);
        fold(sum_of(&even[..even.len() / 2 * 2]) % 0xffff)
    };
    // The field holds the pseudo header's sum, so the whole is the complement of what is to stand there.
    let with_pseudo = sum(&ip[start..]);
    let addresses = if ip[0] >> 4 == 4 { 12..20 } else { 8..40 };
    let pseudo = sum_of(&ip[addresses]) + u32::from(TCP) + low(ip.len() - start);
    let mut bare = ip[start..].to_vec();
    bare[CHECKSUM_AT..CHECKSUM_AT + 2].fill(0);
    let expected = fold((u32::from(sum(&bare)) + u32::from(fold(pseudo))) % 0xffff);
    with_pseudo % 0xffff == expected % 0xffff
}

const V4: [&str; 2] = ["10.0.0.1:4000", "10.0.0.2:22"];
const V6: [&str; 2] = ["[fd99::1]:4000", "[fd99::2]:22"];

fn sending(addresses: [&str; 2], len: usize) -> Batch {
    sending_with(addresses, len, 1460)
}

fn sending_with([client, server]: [&str; 2], len: usize, mss: u16) -> Batch {
    let address = |text: &str| text.parse().expect("an address");
    let (mut near, id) = connected(address(client), address(server), mss);
    let mut bytes = vec![0; len];
    Rng::seeded(9).fill(&mut bytes);
    assert_eq!(near.write(id, &bytes), Ok(len));
    near.shutdown(id);
    let mut batch = Batch::new(256 * 1024, 0);
    near.poll_transmit(NOW, &mut batch);
    batch
}

#[test]
fn segments_in_a_row_leave_as_one_packet_with_the_flags_of_the_last() {
    for (addresses, ip_len) in [(V4, 20), (V6, 40)] {
        let batch = sending(addresses, 10_000);
        let payloads: Vec<u8> = batch
            .segments()
            .iter()
            .flat_map(|out| batch.segment(out)[32..].to_vec())
            .collect();
        assert_eq!((batch.segments().len(), payloads.len()), (7, 10_000));
        assert_eq!(Train::new(&batch, 0).segment_count(), 7);
        let bytes = packet(&batch);
        let kind = if ip_len == 20 { GSO_TCPV4 } else { GSO_TCPV6 };
        assert_eq!((bytes[0], bytes[1]), (NEEDS_CSUM, kind));
        assert_eq!(word(&bytes, 2), ip_len + 32, "headers");
        assert_eq!(word(&bytes, 4), 1448, "payload of each");
        let ip = &bytes[VNET_LEN..];
        let tcp = &ip[ip_len..];
        assert!(tcp[32..] == payloads);
        let flags = Flags::from_bits(tcp[FLAGS_AT]);
        assert!(flags.has(Flags::FIN | Flags::PSH | Flags::ACK));
        assert!(has_right_checksum(&bytes));
        // And it reads back as it left.
        let opened = super::super::frame::open(&bytes);
        let Some(crate::driver::net::Received::Segment(arrival)) = opened else {
            panic!("not read back");
        };
        assert_eq!(arrival.bytes.len(), tcp.len());
        if ip_len == 20 {
            assert_eq!(fold(sum_of(&ip[..20])), 0xffff, "IP's checksum");
            assert_eq!(ip[4..6], [0, 77]);
        }
    }
}

#[test]
fn what_differs_leaves_alone() {
    let mut batch = sending(V4, 10_000);
    // The third tells of another window.
    let third = batch.segments()[2].frame();
    batch.bytes_mut()[third.start + 14] ^= 1;
    assert_eq!(Train::new(&batch, 0).segment_count(), 2);
    batch.take(2);
    assert_eq!(Train::new(&batch, 0).segment_count(), 1);
    let bytes = packet(&batch);
    assert_eq!((bytes[1], word(&bytes, 4)), (GSO_NONE, 0));
    batch.take(1);
    assert_eq!(Train::new(&batch, 0).segment_count(), 4);
}

#[test]
fn a_segment_that_is_missing_or_pushed_ends_the_train() {
    let mut batch = sending(V4, 10_000);
    let second = batch.segments()[1].frame();
    batch.bytes_mut()[second.start + FLAGS_AT] |= Flags::PSH.bits();
    assert_eq!(Train::new(&batch, 0).segment_count(), 2);
    let fifth = batch.segments()[4].frame();
    batch.bytes_mut()[fifth.start + SEQ_AT + 1] ^= 1;
    batch.take(2);
    assert_eq!(Train::new(&batch, 0).segment_count(), 2);
}

#[test]
fn a_packet_holds_no_more_than_ip_can_say() {
    // Payloads of 12 bytes less: two of 32,720 and 72 bytes of headers fit, two of 32,744 do not.
    for (mss, count) in [(32_732, 2), (32_756, 1)] {
        let batch = sending_with(V4, 80_000, mss);
        assert_eq!(batch.segments().len(), 2, "the first window");
        assert_eq!(Train::new(&batch, 0).segment_count(), count, "{mss}");
        assert!(packet(&batch).len() <= VNET_LEN + PACKET_BYTES_MAX);
    }
}
