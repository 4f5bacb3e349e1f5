//! What can be asked of a file: the operations, and their modes.
//!
//! Input: none. Output: words that requests, completions and errors share. Invariants: none of their own. Limits: plain values.

/// What to do.
// A tag of its own, looked at by one comparison: else it hides in what `Fallocate` carries, for ten instructions per request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// Fill the buffer from the file.
    Read,
    /// Write the buffer into the file.
    Write,
    /// Write the buffer at the end of the file, behind every append before; the completion says where.
    Append,
    /// Make durable what was acknowledged before (fsync).
    Sync,
    /// The same without what no reader of the data needs (fdatasync).
    DataSync,
    /// Make durable all that was acknowledged before, of all files and names of the volume (syncfs).
    SyncVolume,
    /// Make the file `pos` bytes long (ftruncate).
    Truncate,
    /// Change what `len` bytes at `pos` are mapped to (fallocate).
    Fallocate(Fallocate),
}

impl Op {
    /// It changes the file's map or size without moving data: it runs alone.
    pub(crate) fn is_of_range(self) -> bool {
        matches!(self, Op::Truncate | Op::Fallocate(_))
    }
}

/// What [`crate::File::fallocate`] does with a range. With `keep_size` the file does not become longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallocate {
    /// Holes become unwritten blocks, which read as zeros.
    Allocate {
        /// The size stays.
        keep_size: bool,
    },
    /// The range becomes a hole; the size stays.
    PunchHole,
    /// The range reads as zeros; its blocks stay and become unwritten, holes in it are allocated.
    ZeroRange {
        /// The size stays.
        keep_size: bool,
    },
    /// The range, of whole blocks (clusters, with bigalloc) and before the end, is taken out: what lies behind it moves down.
    CollapseRange,
    /// A hole, of whole blocks (or clusters) and before the end, is put in: what lies behind moves up.
    InsertRange,
    /// As `ZeroRange`, with written blocks: later writes into them are plain overwrites. Behind a size that stays they are unwritten.
    WriteZeroes {
        /// The size stays.
        keep_size: bool,
    },
}

impl Fallocate {
    /// Bytes that are there change, or their places.
    pub(crate) fn moves_data(self) -> bool {
        !matches!(self, Fallocate::Allocate { .. })
    }
}

/// What [`crate::File::seek`] looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// A byte of a written block.
    Data,
    /// A byte of a hole or an unwritten block, or the end.
    Hole,
}
