use super::super::packet::tests::tso;
use super::*;

const MS: Duration = Duration::from_millis(1);

/// 12 Mbit/s: a segment of 1,500 bytes takes a millisecond.
fn config() -> ShaperConfig {
    ShaperConfig {
        rate: Rate::from_bits_per_sec(12_000_000),
        delay: MS * 50,
        jitter: Duration::ZERO,
        queue_bytes_max: 1 << 20,
        loss: 0.0,
        reorder: 0.0,
        seed: 1,
    }
}

/// `count` segments of 1,500 bytes.
fn segments(count: usize) -> Packet {
    tso(4, 1448 * count, 1448)
}

fn at(ms: u32) -> Instant {
    Instant::ZERO + MS * ms
}

/// Arrivals in order, in whole milliseconds, with the segments of each.
fn arrivals(shaper: &mut Shaper) -> Vec<(u64, usize)> {
    let end = Instant::from_nanos(u64::MAX);
    std::iter::from_fn(|| shaper.receive(end))
        .map(|(at, packet)| (at.as_nanos() / 1_000_000, packet.layout().segment_count))
        .collect()
}

#[test]
fn a_packet_longer_than_a_burst_arrives_segment_by_segment_at_the_rate() {
    let mut shaper = Shaper::new(config());
    shaper.send(Instant::ZERO, segments(3));
    assert_eq!(shaper.next_arrival(), Some(at(51)));
    assert!(
        shaper
            .receive(Instant::from_nanos(at(51).as_nanos() - 1))
            .is_none()
    );
    assert_eq!(arrivals(&mut shaper), [(51, 1), (52, 1), (53, 1)]);
}

#[test]
fn segments_within_a_burst_stay_one_packet_which_arrives_with_the_last() {
    let mut shaper = Shaper::new(ShaperConfig {
        rate: Rate::from_bits_per_sec(120_000_000),
        ..config()
    });
    let whole = segments(25);
    shaper.send(Instant::ZERO, whole.clone());
    assert_eq!(arrivals(&mut shaper), [(51, 10), (52, 10), (52, 5)]);
    shaper.send(at(100), segments(10));
    let (when, packet) = shaper.receive(at(151)).expect("it has arrived");
    assert_eq!((when, packet), (at(151), segments(10)));
}

#[test]
fn the_queue_drops_the_tail_and_holds_what_it_is_said_to_hold() {
    let mut shaper = Shaper::new(ShaperConfig {
        queue_bytes_max: 4 * 1500,
        ..config()
    });
    shaper.send(Instant::ZERO, segments(6));
    assert_eq!(shaper.counters().dropped_queue, 2);
    assert_eq!(shaper.counters().queue_bytes_peak, 6_000);
    // One has left the queue after a millisecond: one more fits, and not two.
    shaper.send(at(1), segments(2));
    let counters = *shaper.counters();
    assert_eq!((counters.segments_in, counters.dropped_queue), (8, 3));
    assert_eq!(arrivals(&mut shaper).len(), 5);
}

#[test]
fn losses_take_their_share_and_cut_packets_without_harm() {
    let seed = fullbore_testkit::seed(7);
    let mut shaper = Shaper::new(ShaperConfig {
        rate: Rate::from_bits_per_sec(1_000_000_000),
        queue_bytes_max: u64::MAX >> 32,
        loss: 0.01,
        seed,
        ..config()
    });
    for _ in 0..1_000 {
        shaper.send(Instant::ZERO, segments(40));
    }
    let arrived: usize = arrivals(&mut shaper).iter().map(|&(_, count)| count).sum();
    let counters = *shaper.counters();
    assert_eq!(counters.segments_in, 40_000);
    assert_eq!(arrived as u64 + counters.dropped_loss, 40_000);
    assert_eq!(counters.segments_out, arrived as u64);
    assert_eq!(counters.bytes_out, counters.segments_out * 1500);
    // Six standard deviations: 400 +- 6 x 19.9.
    assert!((281..519).contains(&counters.dropped_loss), "{counters:?}");
}

#[test]
fn a_seed_replays_and_another_differs() {
    let run = |seed| {
        let mut shaper = Shaper::new(ShaperConfig {
            loss: 0.1,
            reorder: 0.1,
            jitter: MS * 10,
            seed,
            ..config()
        });
        for round in 0..50 {
            shaper.send(at(round * 10), segments(8));
        }
        arrivals(&mut shaper)
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn jitter_delays_and_never_overtakes() {
    let mut shaper = Shaper::new(ShaperConfig {
        jitter: MS * 20,
        ..config()
    });
    for round in 0..100 {
        shaper.send(at(round * 2), segments(1));
    }
    let mut before = Instant::ZERO;
    for round in 0..100 {
        let (when, _) = shaper.receive(at(10_000)).expect("nothing is lost");
        let earliest = at(round * 2 + 51);
        assert!(when >= earliest && when <= earliest + MS * 20, "{when:?}");
        assert!(when >= before);
        before = when;
    }
}

#[test]
fn no_packet_of_any_content_stops_the_link() {
    let mut rng = Rng::seeded(fullbore_testkit::seed(11));
    let mut shaper = Shaper::new(ShaperConfig {
        rate: Rate::from_bits_per_sec(1_000_000_000_000),
        queue_bytes_max: u64::MAX >> 32,
        loss: 0.3,
        reorder: 0.2,
        ..config()
    });
    let mut packets_in = 0;
    for round in 0..20_000 {
        let version = if rng.one_in(2) { 4 } else { 6 };
        let whole = tso(version, 1 + rng.index(3_000), 1448);
        let mut bytes = whole.as_bytes().to_vec();
        // The headers lie in the first hundred bytes.
        for _ in 0..rng.index(4) {
            let at = rng.index(bytes.len().min(100));
            bytes[at] = rng.next_u64().to_le_bytes()[0];
        }
        bytes.truncate(bytes.len() - rng.index(bytes.len() - 11));
        packets_in += 1;
        let packet = Packet::new(bytes).expect("longer than its first header");
        shaper.send(at(round), packet);
    }
    assert!(shaper.counters().segments_in >= packets_in);
    assert!(shaper.counters().dropped_loss > 0 && shaper.next_arrival().is_some());
}

#[test]
fn a_reordered_segment_is_overtaken_by_those_behind() {
    let mut shaper = Shaper::new(ShaperConfig {
        reorder: 1.0,
        ..config()
    });
    shaper.send(Instant::ZERO, segments(1));
    shaper.config.reorder = 0.0;
    shaper.send(Instant::ZERO, segments(2));
    let sequences: Vec<u64> = arrivals(&mut shaper).iter().map(|&(at, _)| at).collect();
    assert_eq!(sequences, [52, 53, 54]);
    assert_eq!(shaper.counters().packets_out, 3);
}
