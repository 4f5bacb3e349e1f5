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
        let (all, got) = (list.len(), list.len().min(out.len()));
        // SAFETY: no length is shorter than zero; what is behind it is moved out below, and leaked if that panics.
        unsafe { list.set_len(0) };
        let (done, more) = list.spare_capacity_mut()[..all].split_at_mut(got);
        for (place, done) in out.iter_mut().zip(done) {
            // SAFETY: the engine has put it there, and the list does not have it any more.
            place.write(unsafe { self.take(done) });
        }
        if !more.is_empty() {
            // SAFETY: as above.
            unsafe { self.keep(more) };
        }
        got
    }

    /// Moves a completion out.
    ///
    /// # Safety
    /// It is there, and is not used afterwards.
    #[inline]
    unsafe fn take(&self, done: &mut MaybeUninit<diorite::Completion>) -> Completion {
        // SAFETY: the caller's promise.
        let seen = unsafe { done.assume_init_mut() };
        let mut completion = Completion {
            token: seen.token,
            result: 0,
            offset: seen.pos,
            error: 0,
        };
        if let Ok(count) = seen.result {
            completion.result = count as i64;
            // SAFETY: as above; nothing else of a success needs a drop.
            unsafe { std::ptr::drop_in_place(&raw mut seen.buf) };
        } else {
            // SAFETY: as above.
            self.failed(unsafe { done.assume_init_read() }, &mut completion);
        }
        completion
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

    /// Keeps completions for which the caller has no room.
    ///
    /// # Safety
    /// As of [`Completed::take`], for each.
    #[cold]
    unsafe fn keep(&self, done: &mut [MaybeUninit<diorite::Completion>]) {
        let mut left = lock(&self.left);
        for done in done {
            // SAFETY: the caller's promise.
            left.push_back(unsafe { self.take(done) });
        }
        self.count_left.store(left.len(), Ordering::Release);
    }

    /// Tells an error: its negative number, and that of its message, which is kept.
    #[cold]
    fn failed(&self, done: diorite::Completion, completion: &mut Completion) {
        let Err(error) = done.result else { return };
        let fault = Fault::from(error);
        let mut failures = lock(&self.failures);
        if failures.messages.len() == MESSAGES {
            failures.messages.pop_front();
            failures.first += 1;
        }
        failures.messages.push_back(fault.message.into_owned());
        completion.result = -i64::from(fault.errno);
        completion.error = failures.first + failures.messages.len() as u64;
    }

    /// The message of this number; numbers begin with 1.
    pub(super) fn message(&self, number: u64) -> Option<String> {
        let failures = lock(&self.failures);
        let index = number.checked_sub(failures.first + 1)?;
        failures.messages.get(usize::try_from(index).ok()?).cloned()
    }
}
