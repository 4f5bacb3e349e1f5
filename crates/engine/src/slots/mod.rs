//! The slots module: what the queue, its submission and its completion share.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `state` | the parts of a queue, and the lock that guards them |
//! | `slot` | a request -> its slot, which keeps its progress until it is reaped |
//! | `attached` | a file -> the newest view of its map, the run that was found last |
//! | `limits` | a device and a policy -> alignment and sizes that every request is checked against |
//! | `plan` | mappings -> the pieces of a request |
//! | `joined` | writes of neighbouring blocks -> one bio, and back |
//! | `inbox` | messages of other threads -> the queue's next drain |
//! | `service` | a file system -> its workers, its policy, its queues |
//!
//! Input: requests. Output: none of its own. Invariants: a slot is in one state at a time; only the holder of the queue's lock changes it.
//! Limits: the depth is fixed when the queue is opened.

mod attached;
mod inbox;
mod joined;
mod limits;
pub(crate) mod plan;
mod service;
mod slot;
mod state;

pub(crate) use attached::Attached;
pub(crate) use inbox::Inbox;
pub(crate) use joined::Joined;
pub(crate) use limits::{Fast, Limits};
pub(crate) use service::Service;
pub(crate) use slot::{Slot, SlotState, Slots};
pub(crate) use state::{BlockingWork, PAD, QueueShared, QueueState};
