//! The jobs room: what may block, done by workers, or by the thread of a blocking call.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `load` | a part of a map that is not in memory -> the view with it |
//! | `prepare` | a write into new space -> what it needs before its data goes down |
//! | `journalled` | a request of a file whose data goes through the journal -> served |
//! | `range` | an operation on a range that has its turn -> done |
//! | `complete` | ended requests that owe something -> durable, reported |
//! | `convert`, `parts`, `runs` | ended writes into new space -> mapped, in as few handles as hold them |
//! | `in_caller` | the same in the thread of a caller who would sleep |
//! | `sync` | a sync of the volume -> all of it durable |
//! | `workers` | work -> a thread of its class |
//!
//! Input: jobs, each with its inode and the [`crate::turn::Mail`] of its queue. Output: messages. Invariants: knows no queue and no slot; what
//! panics has failed and is reported. Limits: one class for each kind of waiting, so that none waits behind another kind.

mod complete;
mod convert;
pub(crate) mod in_caller;
mod journalled;
mod load;
mod parts;
mod prepare;
mod range;
mod runs;
mod sync;
mod workers;

pub(crate) use journalled::JournalledJob;
pub(crate) use load::LoadJob;
pub(crate) use prepare::{Need, PrepareJob};
pub(crate) use range::RangeJob;
pub(crate) use sync::VolumeJob;
pub(crate) use workers::{Work, Workers};
