//! The space room: what is claimed, kept ahead or shared, in memory. Numbers only.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `equal` | the entries of a block of attributes -> an equal block that is in use |
//!
//! Input: numbers of blocks. Output: the same. Invariants: those of each file. Limits: nothing here waits for I/O.

mod equal;

pub(crate) use equal::{EqualBlocks, Left, hash_of};
