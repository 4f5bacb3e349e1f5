//! A claim that ends by itself.
//!
//! Input: a claimed run. Output: the run, when it is kept; else it is free again. Invariants: who unwinds gives it back, too: a device
//! may panic in what it is told of the run, and what it had taken of that has ended by then, as its queue is dropped first. Limits: none.

use super::{Alloc, Run};
use crate::journal::Store;
use diorite_format::FsBlock;

/// A run that is claimed until this is dropped.
pub(crate) struct Loan<'v> {
    alloc: &'v Alloc,
    store: &'v Store,
    run: Run,
}

impl<'v> Loan<'v> {
    pub(crate) fn new(alloc: &'v Alloc, store: &'v Store, run: Run) -> Loan<'v> {
        Loan { alloc, store, run }
    }

    /// It stays claimed.
    pub(crate) fn keep(mut self) -> Run {
        let (start, len) = (FsBlock::NONE, 0);
        std::mem::replace(&mut self.run, Run { start, len })
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        if self.run.len > 0 {
            let given = self.alloc.unclaim_around(self.store, self.run);
            debug_assert!(given.is_ok(), "what is given back is claimed: {given:?}");
        }
    }
}
