//! Failed write-backs of one file, and who is told of them.
//!
//! Input: failed batches; calls that write through the cache to the device, and look at what becomes of their bytes. Output: the error of a
//! failure, once for each open file, or for the call whose bytes were lost. Invariants: a failure that concerns only bytes of calls that
//! have not returned is told by these calls, and to nobody else; one that concerns acknowledged bytes is told to syncs, whatever calls are
//! told; a batch that was collected before a call has changed its pages has no bytes of it. Limits: of several failures the last one is
//! told; a batch is the unit: all calls with bytes in it are told.

use super::{Marked, Pages, State, meet};
use crate::error::Error;
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

    /// Notes the failure of a batch.
    pub(super) fn note_failure(&mut self, batch: &Marked, error: Error) {
        let watches = self.watches.iter_mut();
        for watch in watches.filter(|watch| batch.watches.contains(&watch.id)) {
            watch.error.get_or_insert_with(|| error.clone());
        }
        if batch.is_acknowledged {
            let failures = &mut self.failures;
            (failures.is_told, failures.last) = (false, Some(error));
            failures.count += 1;
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

    /// Fails with the last failure of write-back, if nobody was told of it. Whoever asks is told; files that are open are told, too.
    pub(crate) fn tell_failure(&self) -> Result<(), Error> {
        let failures = &mut self.state.write().failures;
        match std::mem::replace(&mut failures.is_told, true) {
            true => Ok(()),
            false => failures.last.clone().map_or(Ok(()), Err),
        }
    }

    pub(crate) fn count_failures(&self) -> u64 {
        self.state.read().failures.count
    }

    /// For an open file: the failures of which it need not be told.
    pub(crate) fn failures_known(&self) -> u64 {
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
