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
//!
//! # Who converts
//!
//! A caller who reaps, has not enough and would sleep first does the conversions that his own pass found owing (`in_caller`), where he
//! need not wait for others: the journal gives a handle at once, nobody has the file's map, and the in-core map has all of it. At most
//! he reads a block of metadata that the cache has lost since the write went down. No worker is woken, and the batch is what the pass
//! found. What would wait, extends a file, needs a commit or has failed goes to a complete worker, and so does everything when the
//! caller does not wait: a poll loop, a drain by another thread. With workers alone every batch woke one, and that one the caller
//! again: that, and splits that rewrote whole leaves, held writes into unwritten space at 0.46 of the rate of overwrites on two cores;
//! now it is 0.73 (docs/benchmarks.md).

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
