//! The process's one ledger of window credit, behind a lock: connections of all threads share it.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use fullbore_ssh::connection::WindowsUse;

use crate::session::ledger::{AccountId, Credit, Ledger};

/// The default budget is this part of the machine's memory, ...
const MEMORY_PART: u64 = 8;

/// ... but at least this: sixteen connections with a session each that move something, ...
pub const BUDGET_MIN: u64 = 64 * 1024 * 1024;

/// ... and at most this: twice what 100 Gbit/s x 100 ms hold, and as much for others.
const BUDGET_MAX: u64 = 4 * 1024 * 1024 * 1024;

/// What all windows of some connections may add up to. Clones are the same budget.
#[derive(Clone, Debug)]
pub struct WindowBudget(Arc<Mutex<Ledger>>);

impl WindowBudget {
    /// A budget of `bytes`.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self(Arc::new(Mutex::new(Ledger::new(bytes))))
    }

    /// The process's own, which every connection draws on: an eighth of the machine's memory, from
    /// 64 MiB to 4 GiB, until it is set.
    #[must_use]
    pub fn of_process() -> &'static Self {
        static BUDGET: OnceLock<WindowBudget> = OnceLock::new();
        BUDGET.get_or_init(|| Self::new(default_bytes()))
    }

    /// Changes the budget.
    pub fn set_bytes(&self, bytes: u64) {
        self.lock().set_budget(bytes);
    }

    /// The budget in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.lock().budget()
    }

    /// Bytes set aside for connections now.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.lock().reserved()
    }

    /// An account for one connection; it is closed when dropped.
    #[must_use]
    pub fn account(&self) -> Account {
        let id = self.lock().open();
        Account {
            budget: self.clone(),
            id,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        // No call leaves the ledger half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection's account.
#[derive(Debug)]
pub struct Account {
    budget: WindowBudget,
    id: AccountId,
}

impl Credit for Account {
    fn share(&mut self, windows: WindowsUse) -> u64 {
        self.budget.lock().settle(self.id, windows)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.budget.lock().close(self.id);
    }
}

fn default_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    let total = u128::from(info.totalram) * u128::from(info.mem_unit);
    let part = u64::try_from(total / u128::from(MEMORY_PART)).unwrap_or(BUDGET_MAX);
    part.clamp(BUDGET_MIN, BUDGET_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_that_is_dropped_gives_everything_back() {
        let budget = WindowBudget::new(1 << 30);
        let mut account = budget.account();
        let share = account.share(WindowsUse {
            held: 0,
            opening: 0,
            wanted: 1 << 20,
        });
        assert_eq!((share, budget.reserved()), (1 << 20, 1 << 20));
        drop(account);
        assert_eq!(budget.reserved(), 0);
    }

    #[test]
    fn the_default_is_within_its_bounds() {
        assert!((BUDGET_MIN..=BUDGET_MAX).contains(&default_bytes()));
    }
}
