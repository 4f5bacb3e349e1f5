//! Answers for requests, and the queues that they go to.
//!
//! Input: gates, workers, whoever has something for a request of a queue, holding whatever locks they hold. Output: messages, posted. Invariant:
//! a message is posted before the owner is woken, so who wakes finds it. Limits: at most one message per slot is on its way.

use crate::error::Error;
use crate::map::MapView;
use diorite_block::Buf;
use std::sync::Arc;

/// A queue, as those know it who have answers for its requests.
pub(crate) trait Mail: std::fmt::Debug + Send + Sync {
    /// Posts a message and wakes who waits for it. Never waits for I/O.
    fn post(&self, message: Message);

    /// The same with several.
    fn post_all(&self, messages: Vec<Message>);
}

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

/// What a request holds of its inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Nothing.
    None,
    /// It is counted in flight.
    InFlight,
    /// It has the exclusive turn.
    Turn,
}

/// A request on a gate's list: which queue, which slot.
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
