//! Two senders of one link: neither starves the other.

mod support;

use fullbore_sim::{Net, NodeId, QueueConfig, Stop};
use fullbore_tcp::congestion::{Algorithm, Settings};
use fullbore_tcp::connection::Config;
use std::time::Duration;
use support::{Host, Job, MS, Packet, config, link};

const MBIT: u64 = 10;
const RTT: Duration = Duration::from_millis(40);

/// A client and a server at either side of the narrow link; returns the server.
fn add_pair(
    net: &mut Net<Packet, Host>,
    congestion: Settings,
    (left, right): (NodeId, NodeId),
) -> NodeId {
    let job = Job {
        send: u64::MAX / 2,
        ..Job::default()
    };
    let config = Config {
        congestion,
        ..config(congestion.algorithm)
    };
    let server = net.add_node(Host::server(config, Job::default(), 16, 1));
    let mut client = Host::client(config, job);
    client.set_peer(server);
    let client = net.add_node(client);
    let fast = link(Duration::ZERO, 1000);
    net.connect(client, left, fast, fast);
    net.connect(server, right, fast, fast);
    server
}

fn plain(algorithm: Algorithm) -> Settings {
    Settings {
        algorithm,
        ..Settings::default()
    }
}

/// Bytes that each of the two carried, over a queue of `queue` bandwidth-delay products, in `time`.
fn compete(
    (one, other): (Settings, Settings),
    mbit: u64,
    queue: f64,
    time: Duration,
) -> (u64, u64) {
    let mut net = Net::new(5);
    let routers = (net.add_router(), net.add_router());
    let mut narrow = link(RTT / 2, mbit);
    let bdp = mbit as f64 * 1e6 / 8.0 * RTT.as_secs_f64();
    narrow.queue = QueueConfig::TailDrop {
        bytes_max: (bdp * queue) as usize,
    };
    net.connect(routers.0, routers.1, narrow, link(RTT / 2, mbit));
    let first = add_pair(&mut net, one, routers);
    let second = add_pair(&mut net, other, routers);
    // The first rounds are slow start's: who came out of it ahead says little.
    let run = |net: &mut Net<Packet, Host>, time: Duration| {
        let deadline = net.now() + time;
        assert_eq!(net.run(deadline, |_| false, |_| {}), Stop::Deadline);
        (net.node(first).read, net.node(second).read)
    };
    let before = run(&mut net, MS * 5000);
    let after = run(&mut net, time);
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn neither_of_two_gets_less_than_a_third_and_both_fill_the_link() {
    let pairs = [
        (Algorithm::Cubic, Algorithm::Cubic),
        (Algorithm::Reno, Algorithm::Cubic),
        (Algorithm::Bbr, Algorithm::Bbr),
        (Algorithm::Bbr, Algorithm::Cubic),
    ];
    for (one, other) in pairs {
        let both = (plain(one), plain(other));
        let (a, b) = compete(both, MBIT, 1.0, MS * 20_000);
        let carried = MBIT * 1_000_000 / 8 * 20;
        println!(
            "{one:?} {}%, {other:?} {}%",
            a * 100 / carried,
            b * 100 / carried
        );
        assert!(
            a + b > carried * 85 / 100,
            "{one:?} and {other:?}: {a} and {b}"
        );
        assert!(a.min(b) * 3 > a + b, "{one:?} and {other:?}: {a} and {b}");
    }
}

/// Bearing losses does not mean to push others out: a queue that overflows is left alone for about as long
/// as CUBIC takes to fill it again.
#[test]
fn bbr_that_bears_losses_leaves_cubic_its_share() {
    let tolerant = Settings {
        loss_percent: 5,
        ..plain(Algorithm::Bbr)
    };
    let cubic = plain(Algorithm::Cubic);
    let (mbit, time) = (40, MS * 40_000);
    for queue in [0.5, 1.0, 2.0] {
        let (a, b) = compete((tolerant, cubic), mbit, queue, time);
        println!("{queue} products: {}% CUBIC's", b * 100 / (a + b));
        assert!(a.min(b) * 3 > a + b, "{queue}: {a} and {b}");
    }
}
