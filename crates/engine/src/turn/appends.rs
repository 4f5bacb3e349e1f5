//! The turns of threads that append to one file through the page cache: one at a time.
//!
//! Input: a thread. Output: a guard. Invariants: no lock is held during a turn, so a thread that has one may wait for anything that does
//! not wait for the turn. Limits: turns are not given in order.

use crate::locks::APPENDS;
use diorite_block::sync::{Condvar, Mutex};

/// See the module.
#[derive(Debug)]
pub(crate) struct Appends {
    taken: Mutex<bool>,
    free: Condvar,
}

/// The turn; it ends on drop.
#[derive(Debug)]
pub(crate) struct AppendTurn<'a>(&'a Appends);

impl Appends {
    pub(crate) fn new(level: u8) -> Appends {
        Appends {
            taken: Mutex::at_level(&APPENDS, level, false),
            free: Condvar::new(),
        }
    }

    /// Waits for the turn. Blocks.
    pub(crate) fn take(&self) -> AppendTurn<'_> {
        let mut taken = self.taken.lock();
        while *taken {
            taken = self.free.wait(taken);
        }
        *taken = true;
        AppendTurn(self)
    }
}

impl Drop for AppendTurn<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock() = false;
        self.0.free.notify_one();
    }
}
