//! The jobs module: work that may block, run by workers or by the thread of a blocking call.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `load` | a part of a map that is not in memory -> the view with it |
//! | `prepare` | a write into new space -> what it needs before its data goes down |
//! | `journalled` | a request of a file whose data goes through the journal -> served |
//! | `range` | a range operation that has the exclusive turn -> done |
//! | `complete` | ended requests that owe something -> visible and durable, reported |
//! | `convert`, `parts`, `runs` | ended writes into new space -> mapped, in as few journal handles as hold them |
//! | `in_caller` | conversions -> done in the thread of a caller who would sleep otherwise |
//! | `write_back` | a direct request that meets dirty pages -> these written back |
//! | `sync` | a sync of the volume -> everything durable |
//! | `workers` | work -> a thread of its class |
//!
//! Input: jobs, each with its inode and the [`crate::turn::Mail`] of its queue. Output: messages to queues. Invariants: knows no queue and
//! no slot; a job that panics has failed and is reported. Limits: each kind of waiting has a class of threads of its own, so that work
//! never queues behind another kind of waiting.
//!
//! # Which thread converts
//!
//! A caller who reaps, has not enough completions and would sleep first runs the conversions that its own pass has found (`in_caller`),
//! if they wait for nobody: the journal gives a handle at once, the file's map is not locked, and the in-core map has all of the range.
//! At most a block of metadata is read that the cache has lost since the write went down. So no worker is woken, and the pass is the
//! batch; what does not fit into one handle is converted in the next ones. Those that extend a file are published in the order of the size,
//! with those of other queues that were held behind them. Conversions that would wait, that need a commit, that have failed, or that may
//! leave bytes behind the end go to a complete worker; so do all of them if the caller does not wait, as in a poll loop or a drain by
//! another thread. On two cores writes into unwritten space reach 0.73 of the rate of overwrites in this way; if every batch wakes a
//! worker, which wakes the caller again, and splits rewrite whole leaves, it is 0.46 (docs/benchmarks.md).

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
mod write_back;

pub(crate) use journalled::JournalledJob;
pub(crate) use load::LoadJob;
pub(crate) use prepare::{Need, PrepareJob};
pub(crate) use range::RangeJob;
pub(crate) use sync::VolumeJob;
pub(crate) use workers::{Work, Workers};
pub(crate) use write_back::WriteBackJob;
