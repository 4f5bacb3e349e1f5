//! A claim that is given back on drop.
//!
//! Input: a claimed run. Output: the run, if it is kept; else it is free again. Invariants: the run is given back on a panic, too. A
//! device may panic while it writes or discards the run; the bios that it had taken have ended by the time of the drop, since their
//! queue is dropped first. Limits: none.

use super::{Alloc, Run};
use crate::journal::Store;
use diorite_format::FsBlock;

/// A claimed run that is given back when this is dropped.
pub(crate) struct Loan<'v> {
    alloc: &'v Alloc,
    store: &'v Store,
    run: Run,
}

impl<'v> Loan<'v> {
    pub(crate) fn new(alloc: &'v Alloc, store: &'v Store, run: Run) -> Loan<'v> {
        Loan { alloc, store, run }
    }

    /// Ends the loan: the run stays claimed.
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
