//! Windows that follow the path, between two of our own ends on simulated links.

#![allow(clippy::unwrap_used)]

mod common;

use common::apps::{Ask, Flow};
use common::*;
use fullbore_base::{Instant, Rate};
use fullbore_sim::{PairConfig, Stop};
use fullbore_ssh::auth::Attempt;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

fn path(mbit: u64, rtt: Duration) -> PairConfig {
    let rate = Rate::from_bits_per_sec(mbit * 1_000_000);
    let bdp = rate.bytes_per_sec() as f64 * rtt.as_secs_f64();
    PairConfig {
        delay: rtt / 2,
        rate: Some(rate),
        cuts: false,
        // What TCP has under way at most: the path, and a queue of half of it.
        buffer_bytes_max: (bdp * 1.5) as usize + (64 << 10),
        segment_bytes_max: 64 << 10,
        seed: 1,
        ..PairConfig::default()
    }
}

/// A connection on which the server sends (`down`) or the client does, and nobody ever stops.
fn flow(config: PairConfig, down: bool) -> TestPair {
    let (ask, flow) = if down {
        (format!("flow {} 1", 1u64 << 40), Flow::new(0))
    } else {
        ("flow 0 1".to_owned(), Flow::new(1 << 40))
    };
    let mut flow = flow;
    flow.chunk = 100_000;
    let client = Client::new(vec![Attempt::None], vec![(Ask::Exec(ask), flow)]);
    pair(
        config,
        (client_config(), client),
        (server_config(), Server::new(welcome)),
        512 << 10,
    )
}

fn run_until(pair: &mut TestPair, at: Instant) {
    let stop = pair.run(at, |_| false, |_| {});
    assert_eq!(stop, Stop::Deadline);
}

#[test]
fn the_window_is_no_limit_for_either_direction() {
    for down in [true, false] {
        let config = path(320, MS * 200);
        let mut pair = flow(config, down);
        // Five round trips of login at most, five for the window to pass the path's 8 MB.
        run_until(&mut pair, Instant::ZERO + MS * 2000);
        let before = pair.bytes_delivered();
        run_until(&mut pair, Instant::ZERO + MS * 4000);
        let after = pair.bytes_delivered();
        let moved = (after.0 - before.0).max(after.1 - before.1);
        assert!(moved >= 80_000_000 * 97 / 100, "down {down}: {moved}");
    }
}
