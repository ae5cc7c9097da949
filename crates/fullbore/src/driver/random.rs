//! The machine's secret randomness.

use std::sync::Once;

use aws_lc_rs::rand::SecureRandom as _;
use fullbore_ssh::provider::SecureRandom;

/// Has the generator seed itself on a thread of its own: the first use in a process collects entropy for
/// tens of milliseconds, which a connection that is being made need not wait for.
pub fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::thread::spawn(|| SystemRandom::new().fill(&mut [0]));
    });
}

/// Secret randomness from the operating system, through the library's generator.
#[derive(Debug)]
pub struct SystemRandom(aws_lc_rs::rand::SystemRandom);

impl SystemRandom {
    /// The machine's generator.
    #[must_use]
    pub fn new() -> Self {
        Self(aws_lc_rs::rand::SystemRandom::new())
    }
}

impl Default for SystemRandom {
    fn default() -> Self {
        Self::new()
    }
}

impl SecureRandom for SystemRandom {
    fn fill(&mut self, out: &mut [u8]) {
        // The generator aborts the process itself rather than give out what can be guessed.
        self.0
            .fill(out)
            .expect("the operating system gives randomness");
    }
}
