//! What other threads leave for a queue: requests that a gate released, and requests that a worker finished.
//!
//! Input: gates and workers, holding whatever locks they hold. Output: messages, taken by whoever drains the queue.
//! Invariant: a message is posted before the waker is kicked, so a waiter that wakes finds it. Limits: at most one message
//! per slot is on its way.

use super::QueueShared;
use crate::error::Error;
use crate::locks::INBOX;
use crate::map::MapView;
use diorite_block::Buf;
use diorite_block::sync::Mutex;
use diorite_block::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// One message for a queue.
#[derive(Debug)]
pub(crate) enum Message {
    /// The gate released the request: it is counted in flight, or has the turn; start it again from the checks.
    Restart(u32),
    /// A worker loaded the part of the map that the request needs.
    Mapped(u32, Arc<MapView>),
    /// A worker could not map the request.
    Unmapped(u32, Error),
    /// A worker made ready what a write into new space needs; the view has its part of the map.
    Prepared(u32, Arc<MapView>),
    /// A worker could not make that ready.
    Unprepared(u32, Error),
    /// A worker has served the request, or could not; its buffer comes back.
    Served(u32, Buf, Option<Error>),
    /// The request's data is there; the size has to move over others first.
    Held(u32),
    /// A worker did what the request owed, and released what it held.
    Completed(u32, Option<Error>),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// There may be messages.
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

    /// Posts messages. The caller kicks the queue's waker after it.
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

    /// Nothing waits here.
    pub(crate) fn is_empty(&self) -> bool {
        !self.some.load(Ordering::Acquire)
    }
}

/// A request on a gate's list: which queue, which slot.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) queue: Arc<QueueShared>,
    pub(crate) slot: u32,
}

impl Parked {
    /// Sends the request back to its queue, to start again from the checks. Never waits for I/O.
    pub(crate) fn release(self) {
        self.queue.inbox.post([Message::Restart(self.slot)]);
        self.queue.waker.kick();
    }
}
