//! Messages to queues: answers for their requests.
//!
//! Input: gates, workers and others that have an answer for a queue's request; they may hold locks. Output: messages, posted. Invariant:
//! a message is posted before its queue's owner is woken, so the owner finds it. Limits: at most one message per slot is on its way.

use crate::error::Error;
use crate::map::MapView;
use diorite_block::Buf;
use std::sync::Arc;

/// A queue, as those see it who have answers for its requests.
pub(crate) trait Mail: std::fmt::Debug + Send + Sync {
    /// Posts a message and wakes the thread that waits for it. Never waits for I/O.
    fn post(&self, message: Message);

    /// As [`Mail::post`], for several messages.
    fn post_all(&self, messages: Vec<Message>);
}

/// An answer for the request in a slot of a queue.
#[derive(Debug)]
pub(crate) enum Message {
    /// The gate has released the request: it is counted in flight, or has the turn. Start it again from the checks.
    Restart(u32),
    /// Dirty pages in the request's way were written back; or why they were not.
    WrittenBack(u32, Option<Error>),
    /// A worker has loaded the part of the map that the request needs.
    Mapped(u32, Arc<MapView>),
    /// A worker could not map the request.
    Unmapped(u32, Error),
    /// A worker has prepared a write into new space; the view has its part of the map.
    Prepared(u32, Arc<MapView>),
    /// A worker could not prepare the write.
    Unprepared(u32, Error),
    /// The write can be prepared only with the exclusive turn.
    NeedsTurn(u32),
    /// A worker has served the request, or failed to; its buffer is returned.
    Served(u32, Buf, Option<Error>),
    /// The request's data is written; the size has to move over earlier requests first.
    Held(u32),
    /// A worker has completed the request, and released what it held.
    Completed(u32, Option<Error>),
}

/// What a request holds of its inode's gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Nothing.
    None,
    /// The request is counted in flight.
    InFlight,
    /// The request has the exclusive turn.
    Exclusive,
}

/// A parked request: its queue and its slot.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) queue: Arc<dyn Mail>,
    pub(crate) slot: u32,
}

impl Parked {
    /// Sends the request back to its queue, to start again from the checks. Never waits for I/O.
    pub(crate) fn release(self) {
        self.queue.post(Message::Restart(self.slot));
    }
}
