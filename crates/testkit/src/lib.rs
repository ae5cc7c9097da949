//! What tests of several crates share: folders that go away, programs of this machine to talk to,
//! seeds.
//!
//! Only ever a dev-dependency. Everything here panics where it cannot do its work: the test fails.
//! Does not own simulated networks and peers (`fullbore-sim`).

pub mod device;
mod folder;
mod openssh;
mod seed;

pub use folder::Folder;
pub use openssh::{Sshd, free_port, pass_over, ssh_keygen, sshd_path, wait_for_line};
pub use seed::{seed, seeds};
