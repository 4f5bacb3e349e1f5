//! The lists that callers keep: of requests to be started, and of completions handed back.
//!
//! Input: a caller's list. Output: the same as the one kind of list that the queue works on. Invariants: the form of a whole list changes
//! without moving its members or allocating; nothing of the caller's runs under the queue's lock. Limits: sealed, for that reason.

use crate::request::{Completion, Request};
use std::collections::VecDeque;

/// What [`super::Queue::submit_from`] takes requests from, from the front: a `VecDeque`, a `Vec`, an `Option` for one.
pub trait Batch: Lend {}

impl<T: Lend> Batch for T {}

/// What [`super::Queue::reap`] puts completions into, at the end: a `Vec`, a `VecDeque`.
pub trait Completions: Fill {}

impl<T: Fill> Completions for T {}

/// See [`Batch`].
pub trait Lend {
    /// How many there are.
    #[doc(hidden)]
    fn count(&self) -> usize;

    /// The first `count`, in a list of their own; in `spare` if they are not all.
    #[doc(hidden)]
    fn lend(&mut self, count: usize, spare: &mut Vec<Request>) -> Vec<Request>;

    /// Gives back the room of that list, emptied.
    #[doc(hidden)]
    fn take_back(&mut self, list: Vec<Request>, spare: &mut Vec<Request>);
}

impl Lend for VecDeque<Request> {
    #[inline(always)]
    fn count(&self) -> usize {
        self.len()
    }

    // A list without a ring is walked and written with fewer instructions. A part of it moves, so that what stays is not touched.
    #[inline(always)]
    fn lend(&mut self, count: usize, spare: &mut Vec<Request>) -> Vec<Request> {
        if count == self.len() {
            return Vec::from(std::mem::take(self));
        }
        let mut list = std::mem::take(spare);
        list.extend(self.drain(..count));
        list
    }

    #[inline(always)]
    fn take_back(&mut self, list: Vec<Request>, spare: &mut Vec<Request>) {
        if self.is_empty() {
            *self = VecDeque::from(list);
        } else {
            *spare = list;
        }
    }
}

impl Lend for Vec<Request> {
    #[inline(always)]
    fn count(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn lend(&mut self, count: usize, spare: &mut Vec<Request>) -> Vec<Request> {
        if count == self.len() {
            return std::mem::take(self);
        }
        let mut list = std::mem::take(spare);
        list.extend(self.drain(..count));
        list
    }

    #[inline(always)]
    fn take_back(&mut self, list: Vec<Request>, spare: &mut Vec<Request>) {
        if self.is_empty() {
            *self = list;
        } else {
            *spare = list;
        }
    }
}

impl Lend for Option<Request> {
    fn count(&self) -> usize {
        usize::from(self.is_some())
    }

    fn lend(&mut self, count: usize, spare: &mut Vec<Request>) -> Vec<Request> {
        let mut list = std::mem::take(spare);
        if count > 0 {
            list.extend(self.take());
        }
        list
    }

    fn take_back(&mut self, list: Vec<Request>, spare: &mut Vec<Request>) {
        *spare = list;
    }
}

/// See [`Completions`].
pub trait Fill {
    /// Lets `fill` add to the list.
    #[doc(hidden)]
    fn fill<R>(&mut self, fill: impl FnOnce(&mut Vec<Completion>) -> R) -> R;
}

impl Fill for Vec<Completion> {
    #[inline(always)]
    fn fill<R>(&mut self, fill: impl FnOnce(&mut Vec<Completion>) -> R) -> R {
        fill(self)
    }
}

impl Fill for VecDeque<Completion> {
    #[inline(always)]
    fn fill<R>(&mut self, fill: impl FnOnce(&mut Vec<Completion>) -> R) -> R {
        let mut list = Vec::from(std::mem::take(self));
        let result = fill(&mut list);
        *self = VecDeque::from(list);
        result
    }
}
