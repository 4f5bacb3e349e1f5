//! What can be asked of a file: the operations and their modes.
//!
//! Input: none. Output: types that requests, completions and errors share. Invariants: none of their own. Limits: plain values.

/// What to do.
// `repr(u8)` gives the enum its own tag, which one comparison tests. Without it the tag shares the niche of `Fallocate`, which costs ten
// instructions per request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// Fill the buffer from the file.
    Read,
    /// Write the buffer into the file.
    Write,
    /// Write the whole buffer, or nothing of it: see [`crate::Request::atomic`].
    WriteAtomic,
    /// Write the buffer at the end of the file, behind all earlier appends; the completion says at which position.
    Append,
    /// Make durable what was acknowledged before: data and inode (fsync).
    Sync,
    /// As `Sync`, but without changes of the inode that are not needed to read the data back (fdatasync).
    DataSync,
    /// Make durable all that was acknowledged before, of all files and names of the volume (syncfs).
    SyncVolume,
    /// Make the file `pos` bytes long (ftruncate).
    Truncate,
    /// Change what `len` bytes at `pos` are mapped to (fallocate).
    Fallocate(Fallocate),
}

impl Op {
    /// Does the operation move bytes of its buffer into the file?
    pub(crate) fn writes(self) -> bool {
        matches!(self, Op::Write | Op::WriteAtomic | Op::Append)
    }

    /// Does the operation change the file's map or size without moving data? Such an operation runs alone.
    pub(crate) fn is_of_range(self) -> bool {
        matches!(self, Op::Truncate | Op::Fallocate(_))
    }
}

/// What [`crate::File::fallocate`] does with a range. With `keep_size` the file does not become longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallocate {
    /// Holes become unwritten blocks (they read as zeros).
    Allocate {
        /// The size stays.
        keep_size: bool,
    },
    /// The range becomes a hole; the size stays.
    PunchHole,
    /// The range reads as zeros afterwards: its blocks stay allocated and become unwritten, its holes are allocated.
    ZeroRange {
        /// The size stays.
        keep_size: bool,
    },
    /// The range is removed and what lies behind it moves down. It consists of whole blocks (with bigalloc: clusters) before the end.
    CollapseRange,
    /// A hole is inserted and what lies behind it moves up. The hole consists of whole blocks (with bigalloc: clusters) before the end.
    InsertRange,
    /// As `ZeroRange`, but with written blocks, so that later writes are plain overwrites. With `keep_size`, blocks behind the end are
    /// unwritten.
    WriteZeroes {
        /// The size stays.
        keep_size: bool,
    },
}

impl Fallocate {
    /// Does it change or move bytes that the file has?
    pub(crate) fn moves_data(self) -> bool {
        !matches!(self, Fallocate::Allocate { .. })
    }
}

/// What [`crate::File::seek_next`] looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The next byte of a written block.
    Data,
    /// The next byte of a hole or an unwritten block, else the end of the file.
    Hole,
}
