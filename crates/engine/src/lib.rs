//! ext4 in user space, around a direct-I/O path that never waits for anything it does not have to wait for.
//!
//! The floor plan, in the order in which a request walks through it:
//!
//! | room | takes -> gives |
//! |---|---|
//! | [`queue`] | a request -> a slot of a fixed pool; the only place that replies |
//! | `inode` | a slot -> the in-flight count, the inode lock, the exclusive turn |
//! | [`map`] | file blocks -> mappings |
//! | `dio` | check, admit, plan, issue: bios on their way to the device |
//! | `ioend` | ended bios -> one ended request, and the one decision |
//! | `complete` | inline where it was reaped, or deferred to a worker |
//!
//! Side rooms: `range` (truncate and its kin), `orphan` (what must not be left half deleted), `mount` (from a locator to a volume), `journal` (changes of metadata, and what a crash left of them), `fast_commit` (what was done since, done again), `alloc` (free blocks and inodes), `cache` (metadata blocks), [`dir`], [`xattr`], `workers`, [`loopdev`] (a
//! file as a device for another volume), [`policy`], [`stats`], `failure` (what becomes of a volume that has failed), [`locks`] (the
//! lock order).
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod alloc;
mod cache;
pub mod check;
mod complete;
mod dio;
pub mod dir;
mod error;
mod failure;
mod fast_commit;
mod file;
mod inode;
mod ioend;
mod journal;
pub mod locks;
pub mod loopdev;
pub mod map;
mod mount;
mod orphan;
pub mod policy;
pub mod queue;
mod range;
pub mod stats;
#[cfg(test)]
mod testing;
mod volume;
mod workers;
pub mod xattr;

pub use error::{BadMap, DeviceFull, Error, Misaligned, NotYet, Refused, Wait};
pub use file::{File, OpenFlags, Quiesced};
pub use inode::SetAttr;
pub use ioend::Reason;
pub use loopdev::LoopDevice;
pub use map::{Mapping, MappingState};
pub use mount::{AccessTimes, Caller, Clock, OpenOptions};
pub use policy::Policy;
pub use queue::{Completion, FileId, Op, Queue, Request, RequestFlags};
pub use range::{Fallocate, Seek};
pub use stats::{Counters, JournalStats};
pub use volume::{Group, Volume};
pub use xattr::{Xattr, XattrWhen};
