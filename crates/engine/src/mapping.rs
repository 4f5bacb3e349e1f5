//! Runs of a file's blocks and where they are, as maps return them.
//!
//! Input: none. Output: [`Mapping`]. Invariants: none. Limits: none.

use diorite_format::FsBlock;

/// A run of consecutive file blocks that are all in the same state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first file block.
    pub start: u64,
    /// The number of blocks.
    pub len: u64,
    /// Where they are.
    pub state: MappingState,
}

/// Where the blocks of a [`Mapping`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingState {
    /// Not allocated: reads as zeros.
    Hole,
    /// Allocated from this block of the volume on, but never written: reads as zeros.
    Unwritten(FsBlock),
    /// Written, from this block of the volume on.
    Written(FsBlock),
}
