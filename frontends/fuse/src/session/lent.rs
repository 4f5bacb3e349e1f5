//! Threads for requests that may block, which the thread of a ring with several places lends to them.
//!
//! Input: places, each with a request that has no reply. Output: threads that have one place each until it can go back. Invariants: a place
//! is lent only to a thread that waits for one, so no request waits for another one's thread. Limits: the threads of a mount.

use crate::transport::Slot;
use diorite_block::sync::{Condvar, LockClass, Mutex};
use std::collections::VecDeque;

/// Places that are lent, and who waits for them.
static FUSE_LENT: LockClass = LockClass::new("fuse-lent", 69);

/// See the module.
#[derive(Debug)]
pub(super) struct Lent {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    slots: VecDeque<Slot>,
    /// Threads that wait for a place.
    waiting: usize,
    /// Threads that were started.
    threads: usize,
    /// The mount is gone.
    is_over: bool,
}

impl Default for Lent {
    fn default() -> Self {
        Lent {
            state: Mutex::new(&FUSE_LENT, State::default()),
            changed: Condvar::new(),
        }
    }
}

impl Lent {
    /// Lends a place, if a thread waits for one: `take` takes it from its ring.
    pub(super) fn lend(&self, take: impl FnOnce() -> Option<Slot>) -> bool {
        let mut state = self.state.lock();
        if state.is_over || state.waiting <= state.slots.len() {
            return false;
        }
        let Some(slot) = take() else {
            return false;
        };
        state.slots.push_back(slot);
        self.changed.notify_one();
        true
    }

    /// One more thread may be started: it counts from now on. False: there are `most`.
    pub(super) fn may_start(&self, most: usize) -> bool {
        let mut state = self.state.lock();
        let may = state.threads < most;
        state.threads += usize::from(may);
        may
    }

    /// The thread could not be started, or has ended.
    pub(super) fn has_ended(&self) {
        self.state.lock().threads -= 1;
    }

    /// A thread that was started waits for its first place from now on, before it runs.
    pub(super) fn is_waiting(&self) {
        self.state.lock().waiting += 1;
    }

    /// Waits for a place, by a thread that is counted as waiting. None: the mount is gone.
    pub(super) fn next(&self) -> Option<Slot> {
        let mut state = self.state.lock();
        loop {
            if let Some(slot) = state.slots.pop_front() {
                state.waiting -= 1;
                return Some(slot);
            }
            if state.is_over {
                return None;
            }
            state = self.changed.wait(state);
        }
    }

    /// The mount is gone.
    pub(super) fn end(&self) {
        self.state.lock().is_over = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lent_where_nobody_waits() {
        let lent = Lent::default();
        let taken = std::cell::Cell::new(0);
        let take = || {
            taken.set(taken.get() + 1);
            None
        };
        assert!(!lent.lend(take) && taken.get() == 0);
        assert!(lent.may_start(1) && !lent.may_start(1));
        lent.is_waiting();
        assert!(!lent.lend(take) && taken.get() == 1, "it has no place");
        lent.end();
        assert!(!lent.lend(take) && taken.get() == 1);
        assert!(lent.next().is_none());
        lent.has_ended();
        assert!(lent.may_start(1));
    }
}
