use std::time::Duration;

use fullbore_base::Rate;

use super::*;
use crate::{Chance, QueueConfig};

const MS: Duration = Duration::from_millis(1);

/// Sends numbered packets, one every `every`, and keeps what arrives.
#[derive(Debug, Default)]
struct Talker {
    to: Option<NodeId>,
    every: Duration,
    left: u32,
    next_at: Instant,
    heard: Vec<(Instant, NodeId, Vec<u8>)>,
}

impl Node<Vec<u8>> for Talker {
    fn handle_packet(&mut self, now: Instant, from: NodeId, item: Vec<u8>) {
        self.heard.push((now, from, item));
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        (self.left > 0).then_some(self.next_at)
    }

    fn poll_transmit(&mut self, now: Instant) -> Option<(NodeId, Vec<u8>)> {
        let to = self.to?;
        if self.left == 0 || self.next_at > now {
            return None;
        }
        self.left -= 1;
        self.next_at = now + self.every;
        Some((
            to,
            vec![u8::try_from(self.left % 256).expect("a byte"); 1000],
        ))
    }
}

fn link(delay_ms: u32, rate: Option<u64>) -> LinkConfig {
    LinkConfig {
        delay: MS * delay_ms,
        rate: rate.map(Rate::from_bytes_per_sec),
        ..LinkConfig::default()
    }
}

/// Two senders, two receivers, one narrow link of 1 MB/s between two routers.
fn dumbbell(seed: u64, narrow: LinkConfig) -> (Net<Vec<u8>, Talker>, [NodeId; 6]) {
    let mut net = Net::new(seed);
    let senders = [(); 2].map(|()| net.add_node(Talker::default()));
    let routers = [(); 2].map(|()| net.add_router());
    let receivers = [(); 2].map(|()| net.add_node(Talker::default()));
    for (at, router) in [(senders, routers[0]), (receivers, routers[1])] {
        for node in at {
            net.connect(node, router, link(1, None), link(1, None));
        }
    }
    net.connect(routers[0], routers[1], narrow, narrow);
    for i in 0..2 {
        let sender = net.node_mut(senders[i]);
        sender.to = Some(receivers[i]);
        sender.every = MS;
        sender.left = 1000;
    }
    let [s, r, e] = [senders, routers, receivers];
    (net, [s[0], s[1], r[0], r[1], e[0], e[1]])
}

fn never<P, N>(_: &Net<P, N>) -> bool {
    false
}

#[test]
fn packets_find_their_way_and_the_delays_add_up() {
    let (mut net, ids) = dumbbell(1, link(10, None));
    let end = Instant::ZERO + MS * 10_000;
    assert_eq!(net.run(end, never, |_| {}), Stop::Quiet);
    for (sender, receiver) in [(ids[0], ids[4]), (ids[1], ids[5])] {
        let heard = &net.node(receiver).heard;
        assert_eq!(heard.len(), 1000);
        assert_eq!(heard[0].0, Instant::ZERO + MS * 12);
        assert!(heard.iter().all(|&(_, from, _)| from == sender));
    }
}

#[test]
fn two_senders_share_a_narrow_link_and_its_queue_drops_the_rest() {
    let mut narrow = link(10, Some(1_000_000));
    narrow.queue = QueueConfig::TailDrop { bytes_max: 20_000 };
    let (mut net, ids) = dumbbell(1, narrow);
    let end = Instant::ZERO + MS * 10_000;
    assert_eq!(net.run(end, never, |_| {}), Stop::Quiet);
    let stats = net.link_stats(ids[2], ids[3]);
    assert_eq!(stats.sent + stats.queue_drops, 2000);
    // 1,000 packets in the second that both send, and what then still waits.
    assert!((1000..=1025).contains(&stats.sent), "{stats:?}");
}

#[test]
fn a_seed_replays_a_run_and_a_link_may_change_between_two() {
    let run = |seed| {
        let mut narrow = link(10, None);
        narrow.faults.loss = Chance::per_million(100_000);
        let (mut net, ids) = dumbbell(seed, narrow);
        let middle = Instant::ZERO + MS * 500;
        assert_eq!(net.run(middle, never, |_| {}), Stop::Deadline);
        narrow.faults.loss = Chance::ALWAYS;
        net.set_link(ids[2], ids[3], narrow);
        let end = Instant::ZERO + MS * 10_000;
        assert_eq!(net.run(end, never, |_| {}), Stop::Quiet);
        net.node(ids[4]).heard.clone()
    };
    let heard = run(3);
    assert!((400..=500).contains(&heard.len()), "{}", heard.len());
    assert_eq!(run(3), heard);
    assert_ne!(run(4), heard);
}
