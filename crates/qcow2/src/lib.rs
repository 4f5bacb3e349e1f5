//! Images in the qcow2 format as block devices.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `header` | the first bytes of a file -> what it needs, or why it is refused |
//! | `chain` | a file -> the files behind it, open and judged |
//! | `tables`, `widths` | a file -> how its clusters are used; blocks of counts |
//! | `judge`, `taken` | what is used, what is counted -> the clusters of tables, or why the file is only read |
//! | `storage` | reads and writes of the library -> the same, in an order that power cuts leave whole |
//! | `device` | a file -> a device |
//! | `reader`, `entries`, `packed`, `kept` | the files behind an image, or one with zstd, extended entries or a bit set -> bytes |
//! | `counts` | a file that was not closed -> the same, fit for a writer |
//! | `disk` | bios -> calls that block |
//! | `mark` | the first write, the end -> the dirty bit |
//! | `fresh` | the bytes of a disk, in order -> a new file, the same for the same bytes |
//!
//! The format of files that are open is the crate `imago`, without its async form, so without tokio. It trusts sizes in headers and writes
//! while it opens, so `header` looks first. What it does not know, and all that lies behind an image, is read by `reader`. A frontend makes
//! the format known to all locators, once:
//!
//! ```
//! diorite_block::locator::register_qcow2(diorite_qcow2::open);
//! let locator = diorite_block::Locator::parse("disk.qcow2?part=1").expect("a locator");
//! # drop(locator);
//! ```
//!
//! Input: files of the host. Output: devices. Invariants: no other file is opened unless that is allowed, each once, and nobody is let in
//! who writes it meanwhile; a header allocates nothing by a number that the file is too short for; nothing is written to a file whose
//! counts contradict its tables. The dirty bit is for the writer of a file, who repairs it first; readers need no counts. A file that is
//! marked as corrupt is read, with a note, and not written. Limits: no encryption; images with zstd, extended L2 entries or internal
//! snapshots are only read.

mod chain;
mod counts;
mod device;
mod disk;
mod entries;
mod fresh;
mod header;
mod judge;
mod kept;
mod mark;
mod packed;
mod reader;
mod storage;
mod tables;
mod taken;
mod widths;

/// Compiles the examples in the README as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use chain::files_behind;
pub use device::{create, open};
pub use fresh::FreshWriter;
