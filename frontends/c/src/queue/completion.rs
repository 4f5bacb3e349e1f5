//! Completions for C, and the messages of those that failed.
//!
//! Input: the engine's completions. Output: the caller's. Invariants: none is lost if the caller has no room for it; nothing is allocated
//! but for failures, and where several threads reap at once. Limits: the latest messages only are kept.

use crate::args::lock;
use crate::error::Fault;
use diorite::Queue;
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Messages that are kept.
const MESSAGES: usize = 256;

/// A finished request: 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Completion {
    /// The request's.
    pub token: u64,
    /// Bytes that were transferred, 0 for operations without data; or a negative error number. Fewer bytes than asked for only if a read
    /// has met the end of the file.
    pub result: i64,
    /// The request's position; of DIORITE_OP_APPEND where the data was written.
    pub offset: u64,
    /// After an error a number for diorite_completion_message; otherwise 0.
    pub error: u64,
}

const _: () = assert!(size_of::<Completion>() == 32);

/// What a queue has completed.
#[derive(Default)]
pub(super) struct Completed {
    /// Empty between calls; its memory is used again.
    list: Mutex<Vec<diorite::Completion>>,
    /// Completions for which a caller had no room, and their number, which is looked at without the lock.
    left: Mutex<VecDeque<Completion>>,
    count_left: AtomicUsize,
    failures: Mutex<Failures>,
}

#[derive(Default)]
struct Failures {
    /// The number of the first message that is kept.
    first: u64,
    messages: VecDeque<String>,
}

impl Completed {
    /// Completions that the engine has handed out, and no caller has.
    pub(super) fn left(&self) -> usize {
        self.count_left.load(Ordering::Acquire)
    }

    /// Fills `out` from its start; at least `min` unless the time is over or no request is in flight.
    #[inline]
    pub(super) fn reap(
        &self,
        queue: &Queue,
        out: &mut [MaybeUninit<Completion>],
        min: usize,
        timeout: Option<Duration>,
    ) -> usize {
        let got = match self.left() {
            0 => 0,
            _ => self.take_left(out),
        };
        if got == out.len() {
            return got;
        }
        let out = &mut out[got..];
        let min = min.saturating_sub(got);
        match self.list.try_lock() {
            Ok(mut list) => got + self.reap_with(&mut list, queue, out, min, timeout),
            // Another thread reaps, and may sleep in it.
            Err(_) => got + self.reap_with(&mut Vec::new(), queue, out, min, timeout),
        }
    }

    #[inline]
    fn reap_with(
        &self,
        list: &mut Vec<diorite::Completion>,
        queue: &Queue,
        out: &mut [MaybeUninit<Completion>],
        min: usize,
        timeout: Option<Duration>,
    ) -> usize {
        // Of a call that has panicked.
        list.clear();
        queue.reap(list, min, timeout);
        let got = list.len().min(out.len());
        for (place, done) in out.iter_mut().zip(list.iter()) {
            place.write(self.completion(done));
        }
        if list.len() > got {
            self.keep(&list[got..]);
        }
        list.clear();
        got
    }

    #[cold]
    fn take_left(&self, out: &mut [MaybeUninit<Completion>]) -> usize {
        let mut left = lock(&self.left);
        let got = left.len().min(out.len());
        for (place, completion) in out.iter_mut().zip(left.drain(..got)) {
            place.write(completion);
        }
        self.count_left.store(left.len(), Ordering::Release);
        got
    }

    #[cold]
    fn keep(&self, done: &[diorite::Completion]) {
        let mut left = lock(&self.left);
        left.extend(done.iter().map(|done| self.completion(done)));
        self.count_left.store(left.len(), Ordering::Release);
    }

    #[inline]
    fn completion(&self, done: &diorite::Completion) -> Completion {
        let (result, error) = match &done.result {
            Ok(count) => (*count as i64, 0),
            Err(error) => self.failed(error.clone()),
        };
        Completion {
            token: done.token,
            result,
            offset: done.pos,
            error,
        }
    }

    /// Keeps the message of an error. Gives its negative number, and that of the message.
    #[cold]
    fn failed(&self, error: diorite::Error) -> (i64, u64) {
        let fault = Fault::from(error);
        let mut failures = lock(&self.failures);
        if failures.messages.len() == MESSAGES {
            failures.messages.pop_front();
            failures.first += 1;
        }
        failures.messages.push_back(fault.message.into_owned());
        let number = failures.first + failures.messages.len() as u64;
        (-i64::from(fault.errno), number)
    }

    /// The message of this number; numbers begin with 1.
    pub(super) fn message(&self, number: u64) -> Option<String> {
        let failures = lock(&self.failures);
        let index = number.checked_sub(failures.first + 1)?;
        failures.messages.get(usize::try_from(index).ok()?).cloned()
    }
}
