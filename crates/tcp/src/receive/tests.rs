//! Segments in any order to a stream in order; windows that never shrink.

use super::*;
use fullbore_base::Rng;
use fullbore_testkit::seeds;

const MSS: u64 = 1000;

fn receiver(buffer: u64) -> Receiver {
    let mut receiver = Receiver::new(buffer, buffer);
    let _ = receiver.advertise(MSS, 0);
    receiver
}

fn take(receiver: &mut Receiver) -> Vec<u8> {
    let (first, second) = receiver.peek();
    let bytes = [first, second].concat();
    receiver.consume(Instant::ZERO, bytes.len() as u64, MSS);
    bytes
}

/// A stream cut into segments that come in any order, some twice, some overlapping, is read as it
/// was written.
#[test]
fn a_shuffled_stream_is_put_together() {
    for seed in seeds(0..30) {
        let mut rng = Rng::seeded(seed);
        let mut stream = vec![0; 40_000];
        rng.fill(&mut stream);
        let mut receiver = receiver(20_000);
        let mut read = Vec::new();
        for _ in 0..20_000 {
            let window = receiver.edge() - receiver.rcv_nxt();
            let start = (receiver.rcv_nxt() + rng.below(window + 501)).saturating_sub(500);
            let start = start.clamp(1, stream.len() as u64);
            let len = (1 + rng.below(1400)).min(stream.len() as u64 + 1 - start);
            let at = usize::try_from(start - 1).expect("small");
            let bytes = &stream[at..at + usize::try_from(len).expect("small")];
            let _ = receiver.on_data(Instant::ZERO, start, bytes);
            if rng.one_in(3) {
                read.extend(take(&mut receiver));
            }
            let edge = receiver.edge();
            let _ = receiver.advertise(MSS, 0);
            assert!(receiver.edge() >= edge, "the window shrank");
            if read.len() == stream.len() {
                break;
            }
        }
        assert_eq!(read.len(), stream.len());
        assert!(read == stream);
        assert!(receiver.capacity() <= 32_768);
    }
}

#[test]
fn nothing_beyond_the_window_is_kept() {
    let mut receiver = receiver(5000);
    let arrival = receiver.on_data(Instant::ZERO, 4501, &[7; 1000]);
    assert_eq!(arrival.new_bytes, 500);
    assert_eq!(receiver.refused_bytes(), 500);
    let beyond = receiver.on_data(Instant::ZERO, 5001, &[7; 1000]);
    assert_eq!((beyond.new_bytes, receiver.refused_bytes()), (0, 1500));
}

#[test]
fn the_window_opens_by_a_segment_or_half_the_buffer() {
    let mut receiver = receiver(5000);
    let _ = receiver.on_data(Instant::ZERO, 1, &[7; 5000]);
    assert_eq!(receiver.advertise(MSS, 0), 0);
    receiver.consume(Instant::ZERO, 999, MSS);
    assert_eq!(receiver.advertise(MSS, 0), 0, "not worth telling");
    receiver.consume(Instant::ZERO, 1, MSS);
    assert_eq!(receiver.advertise(MSS, 0), 1000);
    let mut tiny = Receiver::new(600, 600);
    let _ = tiny.advertise(MSS, 0);
    let _ = tiny.on_data(Instant::ZERO, 1, &[7; 600]);
    tiny.consume(Instant::ZERO, 299, MSS);
    assert_eq!(tiny.advertise(MSS, 0), 0);
    tiny.consume(Instant::ZERO, 1, MSS);
    assert_eq!(tiny.advertise(MSS, 0), 300);
}

/// A window that is no multiple of the scale's unit must not look as if it shrank.
#[test]
fn a_scaled_window_never_takes_an_edge_back() {
    for seed in seeds(0..20) {
        let mut rng = Rng::seeded(seed);
        let mut receiver = Receiver::new(100_000, 1 << 20);
        let mut told = 0;
        for _ in 0..300 {
            let window = u64::from(receiver.advertise(MSS, 8)) << 8;
            let edge = receiver.rcv_nxt() + window;
            assert!(edge >= told);
            told = edge;
            let len = rng.below(window.min(1400) + 1);
            let bytes = vec![1; usize::try_from(len).expect("small")];
            let _ = receiver.on_data(Instant::ZERO, receiver.rcv_nxt(), &bytes);
            let readable = receiver.readable_bytes();
            receiver.consume(Instant::ZERO, rng.below(readable + 1), MSS);
        }
    }
}

#[test]
fn a_fin_counts_once_everything_before_it_has_arrived() {
    let mut receiver = receiver(5000);
    assert!(receiver.on_fin(101));
    assert!(receiver.on_fin(101) && !receiver.on_fin(102));
    assert_eq!(receiver.rcv_nxt(), 1);
    let _ = receiver.on_data(Instant::ZERO, 1, &[7; 200]);
    assert_eq!(receiver.readable_bytes(), 100, "nothing behind the FIN");
    assert!(receiver.is_finished());
    assert_eq!(receiver.rcv_nxt(), 102);
}

#[test]
fn a_fin_in_front_of_what_has_arrived_is_refused() {
    let mut receiver = receiver(5000);
    let _ = receiver.on_data(Instant::ZERO, 500, &[7; 100]);
    assert!(!receiver.on_fin(599));
    assert!(receiver.on_fin(600));
}
