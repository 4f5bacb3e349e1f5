//! Runs of a file's blocks, as requests and callers meet them.
//!
//! Input: none. Output: [`Mapping`], the words in which maps answer. Invariants: none. Limits: none.

use diorite_format::FsBlock;

/// A run of file blocks, as a request meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first file block.
    pub start: u64,
    /// How many blocks.
    pub len: u64,
    /// Where they are.
    pub state: MappingState,
}

/// Where the blocks of a [`Mapping`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingState {
    /// Nowhere: reads as zeros.
    Hole,
    /// Allocated from this block of the volume on, never written: reads as zeros.
    Unwritten(FsBlock),
    /// Data, from this block of the volume on.
    Written(FsBlock),
}
