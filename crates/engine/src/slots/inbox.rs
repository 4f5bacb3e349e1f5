//! The inbox of a queue: messages of other threads about requests that a gate released or a worker finished.
//!
//! Input: messages from gates and workers, which may hold any lock of a lower rank. Output: the messages, taken by whoever drains the
//! queue. Invariant: a message is posted before the waker is kicked, so a waiter that wakes finds it. Limits: at most one message per
//! slot is on its way.

use crate::locks::INBOX;
use crate::turn::Message;
use diorite_block::sync::Mutex;
use diorite_block::sync::atomic::{AtomicBool, Ordering};

/// The messages for one queue, under a lock of their own.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// There may be messages; tells so without the lock.
    some: AtomicBool,
    messages: Mutex<Vec<Message>>,
}

impl Inbox {
    pub(crate) fn new(level: u8) -> Inbox {
        Inbox {
            some: AtomicBool::new(false),
            messages: Mutex::at_level(&INBOX, level, Vec::new()),
        }
    }

    /// Posts messages. The caller kicks the queue's waker afterwards.
    pub(crate) fn post(&self, new: impl IntoIterator<Item = Message>) {
        let mut messages = self.messages.lock();
        messages.extend(new);
        self.some.store(true, Ordering::Release);
    }

    /// Swaps the messages with an empty list. Costs one load if there are none.
    #[inline]
    pub(crate) fn take(&self, into: &mut Vec<Message>) {
        debug_assert!(into.is_empty());
        if self.some.load(Ordering::Acquire) {
            let mut messages = self.messages.lock();
            self.some.store(false, Ordering::Release);
            std::mem::swap(&mut *messages, into);
        }
    }

    /// There is no message.
    pub(crate) fn is_empty(&self) -> bool {
        !self.some.load(Ordering::Acquire)
    }
}
