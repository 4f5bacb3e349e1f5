//! Failed write-backs of one file, and which callers are told of them.
//!
//! Input: failed batches; calls that write through the cache to the device and wait for their own bytes. Output: the error of a failure,
//! once for each open file, or for the call whose bytes were lost. Invariants: a failure that concerns only bytes of calls that have not
//! returned is told by these calls, and to nobody else; one that concerns acknowledged bytes is told to syncs, whatever calls are told: of
//! each open file, and of the volume unless all open files that may have written the bytes were told before; a batch that was collected
//! before a call has changed its pages has no bytes of it. Limits: of several failures the last one is told; a batch is the unit: all calls
//! with bytes in it are told.

use super::{Marked, Pages, State, meet};
use crate::error::Error;
use diorite_block::sync::atomic::Ordering;
use std::ops::Range;

/// Who is told if the bytes of a write to the cache cannot be written back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Told<'a> {
    /// Syncs: the call returns before that is known.
    Syncs,
    /// The call itself.
    Caller(&'a Watched<'a>),
}

/// Failures of which syncs have to be told.
#[derive(Debug, Default)]
pub(super) struct Failures {
    count: u64,
    /// Somebody was told of the last one.
    is_told: bool,
    last: Option<Error>,
    /// Its number in the volume's account.
    number: u64,
    /// How many open files may have written what was lost and were not told, with those that are closed.
    owed: u32,
    /// How many of them are closed.
    gone: u32,
}

/// A failure, with its number in the volume's account.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// 0: it is in no account, as it concerns only bytes of calls that have not returned.
    pub(crate) number: u64,
}

impl Failures {
    /// The number of the last failure if nobody is left who should be told of it.
    fn settled(&self) -> Option<u64> {
        (self.owed == 0).then_some(self.number)
    }
}

/// The range of blocks that a call has written, and the first failure of one of them.
#[derive(Debug)]
pub(super) struct Watch {
    id: u64,
    blocks: Range<u64>,
    error: Option<Error>,
}

/// A call that finds out itself whether its blocks were written.
#[derive(Debug)]
#[must_use = "the failure is told to nobody else"]
pub(crate) struct Watched<'p> {
    pages: &'p Pages,
    id: u64,
}

impl Watched<'_> {
    /// The blocks that the call has written, and the failure that they have met.
    pub(crate) fn result(&self) -> (Range<u64>, Result<(), Error>) {
        let state = self.pages.state.read();
        let mut all = state.watches.iter();
        let mine = all.find(|watch| watch.id == self.id);
        let mine = mine.expect("it is there until the drop");
        let error = mine.error.clone();
        (mine.blocks.clone(), error.map_or(Ok(()), Err))
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        let mut state = self.pages.state.write();
        state.watches.retain(|watch| watch.id != self.id);
    }
}

impl State {
    /// Notes who has to be told of these blocks, which become dirty under the same lock.
    pub(super) fn note_told(&mut self, told: Told<'_>, blocks: &Range<u64>) {
        let Told::Caller(watched) = told else {
            return;
        };
        let mut all = self.watches.iter_mut();
        let mine = all.find(|watch| watch.id == watched.id);
        let known = &mut mine.expect("it is there until the drop").blocks;
        *known = match known.is_empty() {
            true => blocks.clone(),
            false => known.start.min(blocks.start)..known.end.max(blocks.end),
        };
    }

    /// The calls with bytes in these blocks.
    pub(super) fn watches_of(&self, blocks: &Range<u64>) -> Vec<u64> {
        let mine = self.watches.iter().filter(|w| meet(&w.blocks, blocks));
        mine.map(|watch| watch.id).collect()
    }

    /// Notes the failure of a batch. `writers`: how many open files may have written it; `more`: others did, and are closed.
    pub(super) fn note_failure(
        &mut self,
        batch: &Marked,
        Failure { error, number }: Failure,
        (writers, more): (u32, bool),
    ) {
        let watches = self.watches.iter_mut();
        for watch in watches.filter(|watch| batch.watches.contains(&watch.id)) {
            watch.error.get_or_insert_with(|| error.clone());
        }
        if batch.is_acknowledged {
            let failures = &mut self.failures;
            (failures.is_told, failures.last) = (false, Some(error));
            failures.count += 1;
            failures.number = number;
            failures.gone += u32::from(more);
            failures.owed = writers + failures.gone;
        }
    }
}

impl Pages {
    /// For a call that is told of the failures of what it writes. It has written nothing yet.
    pub(crate) fn watch(&self) -> Watched<'_> {
        let mut state = self.state.write();
        let id = state.id();
        state.watches.push(Watch {
            id,
            blocks: 0..0,
            error: None,
        });
        Watched { pages: self, id }
    }

    /// The last failure of write-back, if nobody was told of it.
    pub(crate) fn untold_failure(&self) -> Option<Error> {
        let failures = &self.state.read().failures;
        failures.last.clone().filter(|_| !failures.is_told)
    }

    /// The last failure of write-back, if nobody was told of it. Whoever asks is told, for those who have closed the file; files that are
    /// open are told, too. Returns also the failure's number, if nobody else is to be told.
    pub(crate) fn tell_failure(&self) -> Option<(Error, Option<u64>)> {
        let failures = &mut self.state.write().failures;
        if std::mem::replace(&mut failures.is_told, true) {
            return None;
        }
        let gone = std::mem::take(&mut failures.gone);
        failures.owed = failures.owed.saturating_sub(gone);
        Some((failures.last.clone()?, failures.settled()))
    }

    /// An open file that may have written what was lost by the failure with this count was told. Returns its number, if nobody else is to
    /// be told.
    pub(crate) fn told_writer(&self, count: u64) -> Option<u64> {
        let failures = &mut self.state.write().failures;
        if failures.count != count {
            return None;
        }
        failures.owed = failures.owed.saturating_sub(1);
        failures.settled()
    }

    /// Counts an open file that may write. Ask for [`Pages::count_failures`] afterwards.
    pub(crate) fn begin_writer(&self) {
        self.writers.fetch_add(1, Ordering::SeqCst);
    }

    /// An open file that may have written is closed. `untold`: and it was not told of the last failure.
    pub(crate) fn end_writer(&self, untold: bool) {
        if untold {
            self.state.write().failures.gone += 1;
        }
        if self.has_unwritten() {
            self.left_dirty.store(true, Ordering::SeqCst);
        }
        self.writers.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn count_failures(&self) -> u64 {
        match self.has_failed.load(Ordering::SeqCst) {
            true => self.state.read().failures.count,
            false => 0,
        }
    }

    /// For an open file: the failures of which it need not be told.
    pub(crate) fn failures_known(&self) -> u64 {
        if !self.has_failed.load(Ordering::SeqCst) {
            return 0;
        }
        let failures = &self.state.read().failures;
        failures.count - u64::from(failures.last.is_some() && !failures.is_told)
    }

    /// The last failure of write-back, if there are more than `known`, and their number. Whoever asks is told.
    pub(crate) fn failure_since(&self, known: u64) -> Option<(u64, Error)> {
        let failures = &mut self.state.write().failures;
        let last = failures.last.clone().filter(|_| failures.count > known)?;
        failures.is_told = true;
        Some((failures.count, last))
    }
}
