//! ext4 in user space. Its core is a direct-I/O path in which a request waits only for what it needs.
//!
//! The modules, in the order in which a request meets them:
//!
//! | module | takes -> gives |
//! |---|---|
//! | [`queue`] | a request -> a slot of a fixed pool; the only place that replies |
//! | `inode` | a slot -> the in-flight count, the inode lock, the exclusive turn |
//! | [`map`] | file blocks -> mappings |
//! | `dio` | check, admit, plan, issue: the request's bios on their way to the device |
//! | `ioend` | ended bios -> one ended request, and the decision what it still owes |
//! | `complete` | an ended request -> completed inline by the reaping thread, or deferred to a worker |
//!
//! Modules beside that route: `range` (truncate, fallocate), `delete` and `orphan` (deletion of inodes, in steps that survive a crash),
//! `mount` (from a device to an open file system), `journal` (transactions of metadata, and recovery), `fast_commit` (replay of fast
//! commits), `alloc` (free blocks and inodes), `disk` (checked metadata blocks, their cache, what a volume does after an error), [`dir`],
//! [`xattr`], `jobs` (what the worker threads do), `slots` (a queue's state under its lock), [`loopdev`] (a file as a device for another
//! volume), [`mkfs`] (new file systems), [`probe`] (a volume's bytes for tools that judge them), [`policy`], `reason` (why a completion was
//! handed to a worker), [`stats`], [`locks`] (the lock order), `caller` (the process on whose behalf files are made).
//!
//! A program needs no other crate of this project: the types that these functions name are re-exported, devices under [`device`], on-disk
//! structures under [`mod@format`]. Paths and names of attributes are bytes; positions, lengths and sizes are in bytes; times are in UTC.
//! Each function's documentation says whether it blocks.
//!
//! No feature is for programs: `_loom` (all orders of atomic operations) and `_shuttle` (random schedules) are internal, for the tests of
//! this project.
//!
//! # Examples
//!
//! Names and blocking calls:
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/example.rs"));
//! use diorite::{Buf, OpenFlags, OpenOptions, Volume};
//!
//! # fn main() -> Result<(), diorite::Error> {
//! # let device = example_volume();
//! // Or by a locator: Volume::open("disk.img", &options)
//! let volume = Volume::open_device(device, &OpenOptions::writable())?;
//! volume.mkdir("/logs", 0o755)?;
//! let file = volume.create(b"/logs/\xff", 0o644)?; // names need not be text
//! let (buf, at) = file.append_buf(Buf::zeroed(4096));
//! assert_eq!(at?, 0);
//! file.sync()?;
//!
//! let file = volume.open_path(b"/logs/\xff", OpenFlags::default())?;
//! let (_buf, count) = file.read_buf(512, buf);
//! assert_eq!(count?, 4096 - 512); // a read that meets the end is short
//! volume.close()
//! # }
//! ```
//!
//! Many requests in flight, from one thread:
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/example.rs"));
//! use diorite::{Buf, OpenOptions, Request, Volume};
//!
//! # fn main() -> Result<(), diorite::Error> {
//! # let volume = Volume::open_device(example_volume(), &OpenOptions::writable())?;
//! let file = volume.create("/data", 0o644)?;
//! let queue = volume.queue(32)?;
//! let id = queue.attach(&file)?;
//! let mut batch: Vec<Request> = (0..8)
//!     .map(|n| Request::write(id, n * 4096, Buf::zeroed(4096), n))
//!     .collect();
//! assert_eq!(queue.submit_from(&mut batch), 8);
//! let mut done = Vec::new();
//! queue.reap(&mut done, 8, None);
//! assert!(done.iter().all(|d| matches!(d.result, Ok(4096))));
//!
//! // One by one; the volume's sync is a request, too.
//! queue.push(Request::sync_volume(99)).expect("the queue has room");
//! while let Some(done) = queue.reap_one(None) {
//!     assert_eq!(done.token, 99);
//!     done.result?;
//! }
//! # Ok(())
//! # }
//! ```
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod alloc;
mod attr;
mod caller;
mod complete;
mod convert;
mod delete;
pub mod device;
mod dio;
pub mod dir;
mod disk;
mod error;
mod fast_commit;
mod inode;
mod ioend;
mod jobs;
mod journal;
mod latest;
mod locator;
pub mod locks;
pub mod loopdev;
pub mod map;
mod mapping;
mod mount;
mod op;
mod options;
mod orphan;
mod pages;
pub mod policy;
pub mod probe;
pub mod queue;
mod range;
mod reason;
mod relocate;
mod request;
mod resize;
mod slots;
mod space;
pub mod stats;
#[cfg(test)]
mod testing;
mod threads;
mod turn;
mod undo;
mod volume;
pub mod xattr;

/// Compiles the examples in the READMEs and in the book as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/book/src/tutorials/queue.md")]
struct Readme;

/// On-disk structures as checked values: superblocks, inodes, access control lists.
pub use diorite_format as format;

/// New file systems. No feature leaves them out: [`Volume::grow`] and [`convert`](fn@convert) change volumes with the same code.
#[doc(inline)]
pub use diorite_mkfs as mkfs;

pub use caller::Caller;
pub use convert::{Conversion, InnerJournal, Step, UsageFile, convert};
pub use device::{Buf, BufPool, Device, IoEngine, Locator};
pub use diorite_format::inode::Rdev;
pub use diorite_format::superblock::Tuning;
pub use diorite_format::{FileType, Ino, InodeFlags, Timestamp};
pub use dir::{At, DirEntry, ReadDir, RenameFlags};
pub use error::{BadMap, DeviceFull, Error, Misaligned, NotYet, Refused, Wait};

pub use attr::SetAttr;
pub use inode::{AtomicLimits, Quiesced};
pub use journal::AtomicFill;
pub use locator::{guarded, open_device};
pub use loopdev::LoopDevice;
pub use mapping::{Mapping, MappingState};
pub use op::{Fallocate, Op, Seek};
pub use options::{AccessTimes, Clock, JournalDevice, OpenFlags, OpenOptions, Repair};
pub use pages::{PageCache, PageStats};
pub use policy::{LoopMode, Policy, UnknownPolicy};
pub use queue::{Batch, Completions, File, Queue};
pub use reason::Reason;
pub use relocate::Moved;
pub use request::{Completion, FileId, Request, RequestFlags};
pub use stats::{Counters, JournalStats, Usage};
pub use undo::{Piece, Restored, Undo, UndoFile, exact_size};
pub use volume::{Atomic, FreeBlocks, Space, Volume, Which};
pub use xattr::{Xattr, XattrWhen};
