//! Seeds of random tests: printed, and taken back from the environment.

use std::ops::Range;

/// Holds a seed to be used instead of a test's own.
const VARIABLE: &str = "FULLBORE_SEED";

fn given() -> Option<u64> {
    let text = std::env::var(VARIABLE).ok()?;
    Some(text.parse().expect("FULLBORE_SEED is a number"))
}

/// The seed of a run: `FULLBORE_SEED`, else the test's own. Printed, so that a failure can be
/// replayed.
///
/// # Panics
/// When the variable holds no number.
#[must_use]
pub fn seed(own: u64) -> u64 {
    let seed = given().unwrap_or(own);
    println!("{VARIABLE}={seed}");
    seed
}

/// The seeds of a test that takes many, each printed as its turn comes: the one in
/// `FULLBORE_SEED`, else all of `own`.
///
/// # Panics
/// When the variable holds no number.
pub fn seeds(own: Range<u64>) -> impl Iterator<Item = u64> {
    let seeds = given().map_or(own, |seed| seed..seed.saturating_add(1));
    seeds.inspect(|seed| println!("{VARIABLE}={seed}"))
}
