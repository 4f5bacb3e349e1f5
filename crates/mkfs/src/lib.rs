//! New file systems: what mke2fs makes, on any device, empty or filled with a tree of files.
//!
//! Input: a device, [`MkfsOptions`], a [`Tree`]. Output: a file system, durable. Invariants: the same options on a device of the same size
//! give the same bytes; the superblock is written last, when everything else is durable, so a file system is whole or not there. Limits:
//! nobody else may use the device. Blocks.
//!
//! The modules, in the order in which a request meets them:
//!
//! | module | takes -> gives |
//! |---|---|
//! | `options`, `tree`, `entries` | what is wanted: numbers and features; files, kept in little memory |
//! | `plan` | options, bytes -> a superblock with every number in it |
//! | `space` | a superblock -> places for tables and files |
//! | `files` | the volume's own files: journal, `resize` inode, bad blocks, orphan file, usage |
//! | `fill`, `attributes` | the tree's inodes, directories, attributes, and places for data |
//! | `map`, `names` | extents, names -> the blocks of a map, of a directory |
//! | `write`, `tables`, `copy` | all of that, and the files' data, on the device |
//! | `make` | the calls: a whole file system, what it would be, or its superblocks alone |
//! | `size` | a tree -> options with the smallest size that holds it |
//! | `journal_device` | a device -> a journal without a file system, and who uses it |
//!
//! The engine has this crate as `diorite::mkfs`, without a feature: it changes the size and the form of a volume with the same code
//! ([`parts`]), so it could not do without. Where no volume is opened, this crate alone is enough.
//!
//! # Examples
//!
//! ```
//! use diorite_block::{Device, MemDevice};
//! use diorite_mkfs::{MkfsOptions, mkfs};
//! use std::sync::Arc;
//!
//! let device: Arc<dyn Device> = Arc::new(MemDevice::new(16 << 20));
//! let options = MkfsOptions::new([1; 16], [2; 16], 1_700_000_000); // UUID, seed of hashes, time
//! let made = mkfs(&device, &options)?;
//! assert_eq!(made.blocks * u64::from(made.block_size), 16 << 20);
//! # Ok::<(), diorite_mkfs::Error>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod attributes;
mod copy;
mod entries;
mod error;
mod files;
mod fill;
mod journal_device;
mod make;
mod map;
mod names;
mod options;
mod plan;
mod size;
mod space;
mod tables;
mod tree;
mod write;

/// Compiles the example in the README as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use copy::Progress;
pub use error::Error;
pub use journal_device::{
    OwnJournal, forget_journal_user, journal_device, journal_device_plan, mkfs_journal_device,
    set_journal_user,
};
pub use make::{Made, mkfs, mkfs_filled, mkfs_free_runs, mkfs_plan, mkfs_super_only};
pub use options::{Headroom, MkfsOptions, NewJournal, QuotaTypes};
pub use size::mkfs_sized;
pub use tree::{Attribute, Contents, NoContents, Node, NodeId, NodeKind, Tree};

/// What the engine makes volumes larger and other with. Hidden: it follows the engine's needs, and no version number promises anything
/// about it.
#[doc(hidden)]
pub mod parts {
    pub use crate::error::read_bytes;
    pub use crate::files::Kept;
    pub use crate::make::count_group;
    pub use crate::map::{Blocks as MapBlocks, make as map_by_features};
    pub use crate::names::{Name, Names, fill as fill_directory};
    pub use crate::options::usual_journal;
    pub use crate::plan::{LEAST_IN_GROUP, own_blocks, usual_orphan_blocks};
    pub use crate::space::Space;
    pub use crate::write::Out;
}
