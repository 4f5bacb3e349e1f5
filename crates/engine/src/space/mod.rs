//! The space module: blocks that several inodes share, in memory. It knows only numbers.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `equal` | the entries of an attribute block -> a block in use with equal entries |
//!
//! Input: block numbers. Output: block numbers. Invariants: those of each file. Limits: nothing here waits for I/O.

mod equal;

pub(crate) use equal::{EqualBlocks, Left, hash_of};
