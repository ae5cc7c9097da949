//! Random changes to well-formed inputs, for runs without a coverage-guided fuzzer.

use fullbore_base::Rng;

/// Inputs never grow past this.
const LEN_MAX: usize = 64 * 1024;

/// Values that sit at the edges of length and count fields.
const EDGES: &[u32] = &[
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0x8000,
    0xffff,
    0x0004_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fff0,
    0xffff_ffff,
];

/// A new input: one of `seeds`, changed in a few places, or sometimes plain noise.
///
/// # Panics
/// When there are no seeds.
#[must_use]
pub fn next(rng: &mut Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    if rng.one_in(16) {
        let mut noise = vec![0; rng.index(256)];
        rng.fill(&mut noise);
        return noise;
    }
    let mut input = seeds[rng.index(seeds.len())].clone();
    for _ in 0..=rng.index(6) {
        change(rng, &mut input, seeds);
    }
    input.truncate(LEN_MAX);
    input
}

fn change(rng: &mut Rng, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    if input.is_empty() {
        input.extend(&seeds[rng.index(seeds.len())]);
        return;
    }
    let at = rng.index(input.len());
    let len = 1 + rng.index((input.len() - at).min(64));
    match rng.below(9) {
        0 => input[at] ^= 1 << rng.below(8),
        1 => rng.fill(&mut input[at..at + 1]),
        2 => {
            let edge = EDGES[rng.index(EDGES.len())].to_be_bytes();
            let len = edge.len().min(input.len() - at);
            input[at..at + len].copy_from_slice(&edge[..len]);
        }
        3 => drop(input.drain(at..at + len)),
        4 => {
            let copy = input[at..at + len].to_vec();
            input.splice(at..at, copy);
        }
        5 => input.truncate(at),
        6 => {
            let mut noise = vec![0; len];
            rng.fill(&mut noise);
            input.splice(at..at, noise);
        }
        7 => {
            let other = &seeds[rng.index(seeds.len())];
            let from = rng.index(other.len().max(1)).min(other.len());
            input.truncate(at);
            input.extend(&other[from..]);
        }
        _ => {
            let step = u8::try_from(1 + rng.below(16)).expect("it is at most 16");
            input[at] = input[at].wrapping_add(step);
        }
    }
}
