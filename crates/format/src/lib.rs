//! ext2, ext3, ext4 and jbd2 on disk: bytes in, checked values out, and changed values back into the same bytes. No unsafe
//! code, no I/O, no clock, no trusted byte: for any bytes, a parser returns a value with every number in range, or an error
//! with the check, the place and what was found. A writer changes only its field, updates the checksum, and keeps every byte
//! that this crate does not know. It refuses ([`Unfit`]) what the format cannot store, with nothing changed. Nothing here
//! panics, loops or allocates by an on-disk number.
//!
//! The modules, in the order in which an open and a read use them:
//!
//! | module | takes | gives |
//! |---|---|---|
//! | [`superblock`] | 1,024 bytes | [`Superblock`]: geometry, places, checks of untrusted numbers; [`superblock::SuperblockEdit`] |
//! | [`features`] | three words | which access is supported, with names and reasons |
//! | [`group`] | a descriptor | [`GroupDesc`]: bitmaps, inode table, counts; written back |
//! | [`bitmap`] | a bitmap block | bits, runs of them set and cleared, checksum; one that was never written |
//! | [`inode`] | an inode | [`Inode`]: type, times, flags, kind of map; written back, or fresh |
//! | [`extent`] | a tree node | sorted extents or index entries; written back |
//! | [`indirect`] | a block of pointers | the path to a file block, checked pointers; pointers set |
//! | [`dir`] | a directory block | entries; names inserted, removed, pointed to other inodes; new blocks |
//! | [`dx`], [`dirhash`] | a hash-tree node, a name | the block where the name must be |
//! | [`inline`] | an inode and one attribute | data kept in the inode |
//! | [`xattr`], [`acl`] | an inode's extra space, or a block | attributes; access control lists |
//! | [`journal`] | the journal's first block; blocks of its log | what to replay, in which form; tags, revocations, commits,
//! read and made |
//! | [`orphan`], [`mmp`] | a block each | orphans, and slots changed; which host has the volume open |
//! | [`quota`] | blocks of a usage file | recorded usage of users, groups and projects |
//! | [`csum`] | bytes | the checksums that all modules use |
//!
//! Below them: [`types`] (one newtype per number space), [`error`] (one variant per check), and three private modules: `layout`
//! (offsets, asserted at compile time), `le` (reading and writing fields), `num` (the only `as`).
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

pub mod acl;
pub mod bitmap;
pub mod csum;
pub mod dir;
pub mod dirhash;
pub mod dx;
pub mod error;
pub mod extent;
pub mod features;
pub mod group;
pub mod indirect;
pub mod inline;
pub mod inode;
pub mod journal;
pub mod mmp;
pub mod orphan;
pub mod quota;
mod record;
pub mod superblock;
pub mod types;
pub mod xattr;

/// Compiles the examples in the README as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use error::{Corrupt, FormatError, Result, Unfit, Unsupported};
pub use features::{Access, Features};
pub use group::GroupDesc;
pub use inode::{FileType, Inode, InodeFlags, MapKind, Timestamp};
pub use superblock::Superblock;
pub use types::{DevByte, FileBlock, FsBlock, GroupNo, Ino, Place, Tid};
