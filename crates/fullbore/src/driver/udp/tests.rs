//! Over the loopback address, with the kernel's own cutting and putting together.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::*;
use crate::udp::datagram::LEN_MAX;
use crate::udp::door::Route;
use crate::udp::endpoint::Transmit;
use crate::udp::keys::{Role, Secret};
use tokio::task::LocalSet;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PATIENCE: Duration = Duration::from_secs(30);

fn opening(id: u64, role: Role, remote: Option<SocketAddr>) -> Opening {
    Opening {
        id: PathId::new(id),
        secret: Secret::from_bytes([5; 32]),
        role,
        remote,
        limits: PathLimits::new(LOOPBACK, 1500),
        rtt: None,
    }
}

fn run<F: Future>(body: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let body = async { tokio::time::timeout(PATIENCE, body).await };
    LocalSet::new().block_on(&runtime, body).expect("it ends")
}

fn bind() -> Udp {
    let bound = Bound::to((LOOPBACK, 0).into()).expect("an address");
    let (udp, driver) = Udp::new(bound, 4, Clock::start()).expect("a socket");
    tokio::task::spawn_local(driver);
    udp
}

fn byte_at(position: usize) -> u8 {
    (position.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u8
}

async fn write(link: &mut Link, len: usize) {
    let bytes: Vec<u8> = (0..len).map(byte_at).collect();
    let mut at = 0;
    while at < len {
        at += poll_fn(|cx| link.poll_write(cx, &bytes[at..]))
            .await
            .expect("it is open");
    }
}

async fn read(link: &mut Link, len: usize) {
    let (mut buf, mut at) = (vec![0; 100_000], 0);
    while at < len {
        let n = poll_fn(|cx| link.poll_read(cx, &mut buf))
            .await
            .expect("it is open");
        assert!(n > 0, "{at} of {len}");
        for &byte in &buf[..n] {
            assert_eq!(byte, byte_at(at));
            at += 1;
        }
    }
    assert_eq!(at, len);
}

async fn pair() -> (Udp, Link, Udp, Link) {
    let (client, server) = (bind(), bind());
    server
        .expect(&opening(7, Role::Server, None))
        .expect("room");
    let opening = opening(7, Role::Client, Some(server.local()));
    let mut near = client.open(&opening).expect("room");
    write(&mut near, 100).await;
    let news = server.news().await.expect("the socket is there");
    assert_eq!(news, News::Arrived(PathId::new(7)));
    let mut far = server.take(PathId::new(7));
    read(&mut far, 100).await;
    (client, near, server, far)
}

#[test]
fn bytes_arrive_both_ways() {
    const LEN: usize = 20_000_000;
    run(async {
        let (client, mut near, server, mut far) = pair().await;
        tokio::join!(write(&mut near, LEN), read(&mut far, LEN));
        tokio::join!(write(&mut far, LEN), read(&mut near, LEN));
        for udp in [&client, &server] {
            let stats = udp.stats();
            assert!(stats.received_bytes > LEN as u64);
            assert_eq!((stats.forged, stats.unknown, stats.moved), (0, 0, 0));
        }
        assert_eq!(near.remote(), Some(server.local()));
        assert_eq!(far.remote(), Some(client.local()));
        // The larger packets were tried and found to pass.
        assert!(near.info().expect("it is there").snd_mss > 1400);
    });
}

#[test]
fn what_was_written_arrives_though_the_writer_is_gone() {
    run(async {
        let (client, mut near, server, mut far) = pair().await;
        write(&mut near, 100_000).await;
        drop(near);
        read(&mut far, 100_000).await;
        let end = poll_fn(|cx| far.poll_read(cx, &mut [0])).await;
        assert_eq!(end.expect("an orderly end"), 0);
        drop(far);
        client.drained().await;
        server.drained().await;
    });
}

#[test]
fn who_is_stopped_and_its_peer_are_told() {
    run(async {
        let (_client, mut near, _server, mut far) = pair().await;
        near.stopper().stop();
        let kind = async |link: &mut Link| {
            let read = poll_fn(|cx| link.poll_read(cx, &mut [0])).await;
            read.expect_err("it is over").kind()
        };
        assert_eq!(kind(&mut near).await, io::ErrorKind::ConnectionAborted);
        assert_eq!(kind(&mut far).await, io::ErrorKind::ConnectionReset);
    });
}

fn socket(address: SocketAddr) -> Socket {
    let bound = Bound::to(address).expect("an address");
    Socket::new(bound).expect("a socket")
}

/// A batch of four datagrams, the last of them shorter.
fn batch(to: Route) -> (Transmit, Vec<u8>) {
    let bytes: Vec<u8> = (0..3500).map(byte_at).collect();
    let transmit = Transmit {
        to,
        len: bytes.len(),
        segment_len: 1000,
    };
    (transmit, bytes)
}

async fn receive(socket: &Socket, len: usize) -> (Vec<u8>, Route) {
    let (mut all, mut buf) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        let received = poll_fn(|cx| socket.poll_recv(cx, &mut buf)).await;
        let received = received.expect("the socket is there");
        assert!(received.segment_len <= 1000);
        all.extend_from_slice(&buf[..received.len]);
        if all.len() >= len {
            return (all, received.from);
        }
    }
}

#[test]
fn a_batch_arrives_cut_by_the_kernel_or_one_by_one() {
    run(async {
        for has_segmentation in [true, false] {
            let mut from = socket((LOOPBACK, 0).into());
            let to = socket((LOOPBACK, 0).into());
            if !has_segmentation {
                from.without_segmentation();
            }
            let (transmit, bytes) = batch(to.local().into());
            let sent = poll_fn(|cx| from.poll_send(cx, &transmit, &bytes)).await;
            sent.expect("the socket is there");
            let (received, route) = receive(&to, bytes.len()).await;
            assert_eq!(received, bytes);
            assert_eq!(route, from.local().into());
        }
    });
}

/// The answer comes from the address that was asked, on a socket that has all of them.
#[test]
fn a_socket_for_all_addresses_answers_from_the_one_that_was_asked() {
    run(async {
        let mut server = socket(([0; 8], 0).into());
        let mut client = socket((LOOPBACK, 0).into());
        let asked = SocketAddr::from(([127, 0, 0, 77], server.local().port()));
        let (transmit, bytes) = batch(asked.into());
        let sent = poll_fn(|cx| client.poll_send(cx, &transmit, &bytes)).await;
        sent.expect("the socket is there");
        let (_, route) = receive(&server, bytes.len()).await;
        let (answer, bytes) = batch(route);
        let sent = poll_fn(|cx| server.poll_send(cx, &answer, &bytes)).await;
        sent.expect("the socket is there");
        let (_, from) = receive(&client, bytes.len()).await;
        assert_eq!(from, asked.into());
    });
}

#[test]
fn what_cannot_leave_is_lost_and_no_error() {
    run(async {
        let mut socket = socket((LOOPBACK, 0).into());
        // Longer than any packet, to where nobody listens, and to where no route leads.
        for to in ["127.0.0.1:9", "255.255.255.255:9", "[2001:db8::1]:9"] {
            let to: SocketAddr = to.parse().expect("an address");
            for len in [70_000, LEN_MAX, 100] {
                let transmit = Transmit {
                    to: to.into(),
                    len,
                    segment_len: len,
                };
                let bytes = vec![0; len];
                let sent = poll_fn(|cx| socket.poll_send(cx, &transmit, &bytes)).await;
                sent.expect("lost, and that is all");
            }
        }
        let mut buf = [0; 10];
        let nothing = poll_fn(|cx| Poll::Ready(socket.poll_recv(cx, &mut buf).is_pending())).await;
        assert!(nothing, "an unreachable port is no error either");
    });
}
