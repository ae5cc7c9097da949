//! Who of a process's connections may grant how much window: a budget, divided.
//!
//! A window is a promise of memory: whatever credit a peer holds, it may send at once, and it may be
//! that nobody can take it away. So all credit and all unread bytes of a process stay within one
//! budget. Owns the division; does not own the windows (`ssh::connection::windows` divides a share among
//! the channels by the same rule), the clock, or a lock (`driver::budget`).
//!
//! Rule: a connection gets what it asks for, up to [`FREE_SHARE`] times what is then left of three
//! quarters of the budget (dynamic thresholds: Choudhury and Hahne, IEEE/ACM Trans. Networking 6(2),
//! 1998). Small askers are satisfied and all others end up with the same, which is max-min fairness over
//! what is not kept free. The last quarter is for newcomers: up to [`CONNECTION_LEAST`] each, whatever
//! others hold. Worked example, 1200 MiB: of 900, two that want all get 300 each, a quarter of the budget;
//! fifty such 17.9 each, and 2 are free; a newcomer has its 3 at once, and soon as much as they.
//!
//! Credit is never taken back. A connection whose share was lowered counts with what it still holds
//! until that has been used, so the sum never exceeds the budget, at any step.

use std::fmt;

pub use fullbore_ssh::connection::FREE_SHARE;
use fullbore_ssh::connection::{LOCAL_WINDOW_MIN, WindowsUse};

/// One connection may have at most this part of the budget, however much is free: it is one peer that can
/// fill it.
pub const CONNECTION_PART: u64 = 4;

/// What a connection gets before others get more: the least windows of ten channels, OpenSSH's limit of
/// sessions.
pub const CONNECTION_LEAST: u64 = 10 * LOCAL_WINDOW_MIN as u64;

/// The part of the budget that is shared beyond [`CONNECTION_LEAST`], in quarters.
const COMMON_QUARTERS: u64 = 3;

/// Names one account of a [`Ledger`]; reused once closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountId(usize);

/// One connection's.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// What it was told it may have.
    share: u64,
    /// What is set aside for it: the share, or what it still holds of a larger one.
    reserved: u64,
}

/// The budget and its division. Every event is O(1).
#[derive(Debug)]
pub struct Ledger {
    budget: u64,
    reserved: u64,
    accounts: Vec<Option<Account>>,
    free_ids: Vec<usize>,
}

impl Ledger {
    /// A ledger over `budget` bytes.
    #[must_use]
    pub const fn new(budget: u64) -> Self {
        Self {
            budget,
            reserved: 0,
            accounts: Vec::new(),
            free_ids: Vec::new(),
        }
    }

    /// The budget in bytes.
    #[must_use]
    pub const fn budget(&self) -> u64 {
        self.budget
    }

    /// Changes the budget. A smaller one is reached as shares are settled and credit is used.
    pub const fn set_budget(&mut self, bytes: u64) {
        self.budget = bytes;
    }

    /// Bytes set aside for all connections: never more than the budget, unless that was lowered.
    #[must_use]
    pub const fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Connections that have an account.
    #[must_use]
    pub fn count(&self) -> usize {
        self.accounts.len() - self.free_ids.len()
    }

    /// An account with a share of nothing: a connection on which nobody has logged in.
    pub fn open(&mut self) -> AccountId {
        let account = Some(Account::default());
        let at = self.free_ids.pop().unwrap_or(self.accounts.len());
        if at == self.accounts.len() {
            self.accounts.push(account);
        } else {
            self.accounts[at] = account;
        }
        AccountId(at)
    }

    /// What a connection may have from now on that uses and wants so much. It holds at most the largest
    /// share it was given since it last held less. A channel that is being opened gets its least, even
    /// if the connection has more than its part.
    ///
    /// # Panics
    /// When the account is not open.
    pub fn settle(&mut self, id: AccountId, windows: WindowsUse) -> u64 {
        let account = self.accounts[id.0].as_mut().expect("the account is open");
        let others = self.reserved - account.reserved;
        let left = self.budget.saturating_sub(others);
        let common = (self.budget / 4 * COMMON_QUARTERS).saturating_sub(others);
        let fair = common / (FREE_SHARE + 1) * FREE_SHARE;
        let most = fair.min(self.budget / CONNECTION_PART);
        let opening = match windows.opening {
            0 => 0,
            bytes => windows.held + bytes,
        };
        let least = CONNECTION_LEAST.max(opening).min(left);
        account.share = windows.wanted.min(most.max(least));
        account.reserved = account.share.max(windows.held);
        self.reserved = others + account.reserved;
        account.share
    }

    /// The connection is over, and with it all credit that it granted.
    ///
    /// # Panics
    /// When the account is not open.
    pub fn close(&mut self, id: AccountId) {
        let account = self.accounts[id.0].take().expect("the account is open");
        self.reserved -= account.reserved;
        self.free_ids.push(id.0);
    }
}

/// Where a session's share comes from.
pub trait Credit: fmt::Debug {
    /// As [`Ledger::settle`].
    fn share(&mut self, windows: WindowsUse) -> u64;
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    const fn using(held: u64, wanted: u64) -> WindowsUse {
        WindowsUse {
            held,
            opening: 0,
            wanted,
        }
    }

    /// Lets everybody settle until nothing changes.
    fn converge(ledger: &mut Ledger, wants: &[(AccountId, u64)]) -> Vec<u64> {
        let mut shares = Vec::new();
        for _ in 0..100 {
            shares = wants
                .iter()
                .map(|&(id, want)| {
                    let share = ledger.settle(id, using(0, want));
                    assert!(ledger.reserved() <= ledger.budget());
                    share
                })
                .collect();
        }
        shares
    }

    #[test]
    fn small_askers_are_satisfied_and_the_others_get_the_same() {
        let mut ledger = Ledger::new(1200 * MIB);
        let wants: Vec<_> = [1, 5, 40, 1000, 2000, 200, 300, 400, 500, 600]
            .map(|mib| (ledger.open(), mib * MIB))
            .to_vec();
        let shares = converge(&mut ledger, &wants);
        assert_eq!(shares[..3], [MIB, 5 * MIB, 40 * MIB]);
        let least = shares[3..].iter().min().expect("several");
        let most = shares[3..].iter().max().expect("several");
        assert!(most * 100 <= least * 103, "{shares:?}");
        assert!(*least >= 117 * MIB, "{shares:?}");
    }

    #[test]
    fn one_alone_gets_its_part_and_no_more() {
        let mut ledger = Ledger::new(900 * MIB);
        let id = ledger.open();
        assert_eq!(ledger.settle(id, using(0, u64::MAX)), 225 * MIB);
    }

    #[test]
    fn a_newcomer_gets_its_least_while_others_hold_all_they_may() {
        let mut ledger = Ledger::new(120 * MIB);
        let wants: Vec<_> = (0..8).map(|_| (ledger.open(), u64::MAX)).collect();
        converge(&mut ledger, &wants);
        for _ in 0..10 {
            let newcomer = ledger.open();
            assert_eq!(
                ledger.settle(newcomer, using(0, u64::MAX)),
                CONNECTION_LEAST
            );
            assert!(ledger.reserved() <= ledger.budget());
        }
    }

    #[test]
    fn what_was_granted_counts_until_it_is_used() {
        let mut ledger = Ledger::new(900 * MIB);
        let first = ledger.open();
        let share = ledger.settle(first, using(0, u64::MAX));
        assert_eq!(ledger.settle(first, using(share, 0)), 0);
        assert_eq!(ledger.reserved(), share);
        assert_eq!(ledger.settle(first, using(100, 0)), 0);
        assert_eq!(ledger.reserved(), 100);
        ledger.close(first);
        assert_eq!((ledger.reserved(), ledger.count()), (0, 0));
        let again = ledger.open();
        assert_eq!((again, ledger.count()), (first, 1));
    }

    #[test]
    fn a_lowered_budget_is_reached_by_giving_less() {
        let mut ledger = Ledger::new(90 * MIB);
        let id = ledger.open();
        let share = ledger.settle(id, using(0, u64::MAX));
        ledger.set_budget(9 * MIB);
        assert_eq!(ledger.settle(id, using(share, u64::MAX)), CONNECTION_LEAST);
        assert_eq!(ledger.settle(id, using(0, u64::MAX)), CONNECTION_LEAST);
        assert!(ledger.reserved() <= ledger.budget());
    }
}
