//! The resize module: a file system becomes larger, while it is in use, or smaller.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `size` | a superblock and a number of blocks -> the superblock of that size |
//! | `grow` | more blocks -> new groups, and the last one filled up, in one transaction |
//! | `enlarge` | more blocks than descriptors have room for -> what lies behind the descriptors has moved; new groups |
//! | `convert` | descriptors of another size -> the same volume with them |
//! | `room` | longer heads of groups -> new places of the structures that are in the way, and these blocks emptied |
//! | `change` | a layout -> the volume with it, in one transaction |
//! | `shrink` | fewer blocks -> what lies behind the end has moved, and the end too |
//! | `least` | free space that is wanted -> the smallest size, about |
//! | `kept` | both sizes -> the inode that keeps blocks for descriptors |
//! | `copies` | a superblock and its descriptors -> their backups in other groups |
//!
//! Input: an open volume, and a size. Output: the volume of that size, durable. Invariants: what lies behind the end is written before the
//! transaction that moves the end; that transaction changes everything or nothing, on disk and in memory. Limits: while
//! the volume is in use the descriptors grow into the blocks that mke2fs keeps for them (resize_inode), or with meta_bg.

mod change;
mod convert;
mod copies;
mod enlarge;
mod grow;
mod kept;
mod least;
mod room;
mod shrink;
mod size;

pub(crate) use convert::convert;
pub(crate) use enlarge::{enlarge, enlarged};
pub(crate) use grow::{before_commit, grow, grown};
pub(crate) use least::{Spare, least};
pub(crate) use shrink::shrink;
