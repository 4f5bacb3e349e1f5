//! The kinds of list that callers may use: for requests to submit, and for completions.
//!
//! Input: a caller's list. Output: the same as a `Vec`, on which the queue works. Invariants: converting a whole list neither moves its
//! elements nor allocates; no code of the caller runs under the queue's lock. Limits: the traits are sealed, for that reason.

use crate::request::{Completion, Request};
use std::collections::VecDeque;

/// The lists from which [`super::Queue::submit_from`] takes requests, front first: `VecDeque`, `Vec`, and `Option` for a single request.
pub trait Batch: Lend {}

impl<T: Lend> Batch for T {}

/// The lists to whose end [`super::Queue::reap`] adds completions: `Vec`, `VecDeque`.
pub trait Completions: Fill {}

impl<T: Fill> Completions for T {}

/// The methods of a [`Batch`], hidden so that nobody else can implement it.
pub trait Lend {
    /// How many requests there are.
    #[doc(hidden)]
    fn count(&self) -> usize;

    /// Takes the first `count` requests out, as a `Vec`: the list's own memory if these are all, else `spare`'s.
    #[doc(hidden)]
    fn lend(&mut self, count: usize, spare: &mut Vec<Request>) -> Vec<Request>;

    /// Takes back the memory of the emptied `Vec` from `lend`, to where it came from.
    #[doc(hidden)]
    fn take_back(&mut self, list: Vec<Request>, spare: &mut Vec<Request>);
}

impl Lend for VecDeque<Request> {
    #[inline(always)]
    fn count(&self) -> usize {
        self.len()
    }

    // A Vec is iterated and filled with fewer instructions than a ring. If only a part is taken it is copied, so that the rest stays.
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

/// The method of [`Completions`], hidden so that nobody else can implement it.
pub trait Fill {
    /// Runs `fill` on the list as a `Vec`, to which it may only add.
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
