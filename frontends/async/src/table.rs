//! The table of a queue's requests: what tasks asked for, what is under way, what has ended.
//!
//! Input: requests with the wakers of their tasks; completions. Output: batches for the queue; completions for the tasks. Invariants: a
//! request has one entry from the first poll of its future until its completion was taken, or until it has ended if the future was dropped;
//! at most `depth` requests are in the queue; no waker is cloned or dropped here, as it may own futures. Limits: requests beyond that wait
//! here, in the order of their first polls.

use diorite::{Buf, Completion, Request};
use std::collections::VecDeque;
use std::task::Waker;

/// What an entry is.
#[derive(Debug)]
enum Entry<F> {
    /// Unused, with the number of the next unused one.
    Free(u32),
    /// Its future waits.
    Waiting(Waker),
    /// It has ended.
    Done(Completion),
    /// Its future was dropped; the file stays attached until it has ended.
    Abandoned(F),
}

/// Ends the list of unused entries.
const NONE: u32 = u32::MAX;

/// How a request is that its future asks for.
pub(crate) enum Asked {
    Ended(Completion),
    /// It wakes the task when it has ended.
    Waits,
    /// It would wake another task.
    WaitsForAnother,
}

/// See the module. `F` keeps a file attached.
#[derive(Debug)]
pub(crate) struct Table<F> {
    entries: Vec<Entry<F>>,
    free: u32,
    pending: VecDeque<Request>,
    /// Requests that were given to the queue and have not come back.
    submitted: usize,
    depth: usize,
}

/// What is left of requests whose futures were dropped. Its drop may detach files, so no lock may be held.
pub(crate) type Left<F> = Vec<(Completion, F)>;

impl<F: Clone> Table<F> {
    pub(crate) fn new(depth: usize) -> Table<F> {
        Table {
            entries: Vec::new(),
            free: NONE,
            pending: VecDeque::new(),
            submitted: 0,
            depth,
        }
    }

    /// Takes a request; returns its number.
    pub(crate) fn insert(&mut self, mut request: Request, waker: Waker) -> u32 {
        let number = match self.free {
            NONE => {
                self.entries.push(Entry::Free(NONE));
                u32::try_from(self.entries.len() - 1).expect("requests fit in memory")
            }
            free => free,
        };
        let entry = &mut self.entries[number as usize];
        if let Entry::Free(next) = *entry {
            self.free = next;
        }
        *entry = Entry::Waiting(waker);
        request.token = u64::from(number);
        self.pending.push_back(request);
        number
    }

    fn release(&mut self, number: u32) -> Entry<F> {
        let free = Entry::Free(self.free);
        self.free = number;
        std::mem::replace(&mut self.entries[number as usize], free)
    }

    /// The completion of a request, if it has ended.
    pub(crate) fn take(&mut self, number: u32, waker: &Waker) -> Asked {
        match &self.entries[number as usize] {
            Entry::Waiting(known) if known.will_wake(waker) => return Asked::Waits,
            Entry::Waiting(_) => return Asked::WaitsForAnother,
            Entry::Done(_) => {}
            Entry::Free(_) | Entry::Abandoned(_) => unreachable!("a future has an entry"),
        }
        match self.release(number) {
            Entry::Done(done) => Asked::Ended(done),
            _ => unreachable!("it was looked at in the lines above"),
        }
    }

    /// `waker` is woken when the request has ended, if it has not yet. Returns the one that is not needed.
    pub(crate) fn exchange(&mut self, number: u32, waker: Waker) -> Waker {
        match &mut self.entries[number as usize] {
            Entry::Waiting(known) => std::mem::replace(known, waker),
            _ => waker,
        }
    }

    /// A future goes away. Returns its buffer, if the device does not have it, and its waker.
    pub(crate) fn abandon(&mut self, number: u32, file: &F) -> (Option<Buf>, Option<Waker>) {
        let withdrawn = match self.entries[number as usize] {
            Entry::Done(_) => None,
            _ => {
                let token = u64::from(number);
                let place = self.pending.iter().position(|r| r.token == token);
                place.and_then(|place| self.pending.remove(place))
            }
        };
        let under_way = Entry::Abandoned(file.clone());
        let entry = match (&withdrawn, &mut self.entries[number as usize]) {
            (None, entry @ Entry::Waiting(_)) => std::mem::replace(entry, under_way),
            _ => self.release(number),
        };
        match entry {
            Entry::Waiting(waker) => (withdrawn.map(|request| request.buf), Some(waker)),
            Entry::Done(done) => (Some(done.buf), None),
            Entry::Free(_) | Entry::Abandoned(_) => unreachable!("a future has an entry"),
        }
    }

    /// Moves to `batch` what the queue has room for. Returns whether there is any.
    pub(crate) fn next_batch(&mut self, batch: &mut VecDeque<Request>) -> bool {
        let room = self.depth - self.submitted;
        let count = room.min(self.pending.len());
        if batch.is_empty() && count == self.pending.len() {
            std::mem::swap(batch, &mut self.pending);
        } else {
            batch.extend(self.pending.drain(..count));
        }
        self.submitted += count;
        count > 0
    }

    /// Requests that the queue did not take come back to the front.
    pub(crate) fn put_back(&mut self, batch: &mut VecDeque<Request>) {
        self.submitted -= batch.len();
        while let Some(request) = batch.pop_back() {
            self.pending.push_front(request);
        }
    }

    /// Takes in what has ended. The tasks in `wake` are to be woken when no lock is held.
    pub(crate) fn end(
        &mut self,
        done: &mut Vec<Completion>,
        wake: &mut Vec<Waker>,
        left: &mut Left<F>,
    ) {
        self.submitted -= done.len();
        for completion in done.drain(..) {
            let number = u32::try_from(completion.token).expect("the number of an entry");
            let entry = &mut self.entries[number as usize];
            match std::mem::replace(entry, Entry::Free(NONE)) {
                Entry::Waiting(waker) => {
                    *entry = Entry::Done(completion);
                    wake.push(waker);
                }
                Entry::Abandoned(file) => {
                    self.release(number);
                    left.push((completion, file));
                }
                Entry::Free(_) | Entry::Done(_) => unreachable!("a request ends once"),
            }
        }
    }

    /// Are requests in the queue?
    pub(crate) fn is_busy(&self) -> bool {
        self.submitted > 0
    }

    /// Could the queue take a request that waits?
    pub(crate) fn has_batch(&self) -> bool {
        !self.pending.is_empty() && self.submitted < self.depth
    }
}
