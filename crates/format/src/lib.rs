//! ext2, ext3, ext4 and jbd2 on disk: bytes in, checked values out. No unsafe code, no I/O, no clock, and no
//! trust: whatever the bytes are, a parser returns a value whose every number is in range, or an error that
//! names the check, the place and what was found. Nothing here panics, loops or allocates by an on-disk number.
//!
//! The floor plan, in the order in which an open and a read walk through it:
//!
//! | module | takes | gives |
//! |---|---|---|
//! | [`superblock`] | 1,024 bytes | [`Superblock`]: geometry, places, doors for untrusted numbers |
//! | [`features`] | three words | which access is served, with names and reasons |
//! | [`group`] | a descriptor | [`GroupDesc`]: bitmaps, inode table, counts |
//! | [`bitmap`] | a bitmap block | bits and checksum |
//! | [`inode`] | an inode | [`Inode`]: type, times, flags, kind of map |
//! | [`extent`] | a tree node | sorted extents or index entries |
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::panic,
        clippy::expect_used,
        clippy::unreachable
    )
)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod layout;
mod le;
mod num;

pub mod bitmap;
pub mod csum;
pub mod error;
pub mod features;
pub mod group;
pub mod inode;
pub mod superblock;
pub mod types;

pub use error::{Corrupt, FormatError, Result, Unsupported};
pub use features::{Access, Features};
pub use group::GroupDesc;
pub use inode::{FileType, Inode, InodeFlags, MapKind, Timestamp};
pub use superblock::Superblock;
pub use types::{DevByte, FileBlock, FsBlock, GroupNo, Ino, Place, Tid};
