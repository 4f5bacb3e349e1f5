//! A file's extents, one after the other, without ever holding all of them.
//!
//! Input: an open file. Output: [`Extent`]s in the order of the file, holes left out. Invariants: the map is read in windows,
//! so memory is bounded however many extents a hostile map claims; neighbours that touch on both sides and are in the same
//! state are one. Limits: a window is 2^18 blocks.

use diorite::{Error, File, Mapping, MappingState};
use diorite_format::FsBlock;

/// Blocks looked at in one go.
const WINDOW: u64 = 1 << 18;
/// One past the last block that a file can have.
const END: u64 = 1 << 32;

/// A run of blocks that lie together in the file and on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// First block in the file.
    pub(crate) start: u64,
    /// First block on the volume.
    pub(crate) at: FsBlock,
    /// Blocks.
    pub(crate) len: u64,
    /// Holds data; otherwise it is allocated and reads as zeros.
    pub(crate) written: bool,
}

impl Extent {
    fn of(mapping: Mapping) -> Option<Extent> {
        let (at, written) = match mapping.state {
            MappingState::Hole => return None,
            MappingState::Unwritten(at) => (at, false),
            MappingState::Written(at) => (at, true),
        };
        Some(Extent {
            start: mapping.start,
            at,
            len: mapping.len,
            written,
        })
    }

    /// Does `next` go on where this one ends, in the file and on the volume?
    fn touches(&self, next: &Extent) -> bool {
        self.written == next.written
            && self.start + self.len == next.start
            && self.at.get() + self.len == next.at.get()
    }
}

/// Iterates over a file's extents, to the end of its map, which may lie past its size. Ends after an error.
pub(crate) struct Extents<'a> {
    file: &'a File,
    block: u64,
    next: u64,
    end: u64,
    window: std::vec::IntoIter<Mapping>,
    held: Option<Extent>,
}

impl<'a> Extents<'a> {
    /// All extents.
    pub(crate) fn all(file: &'a File, block_size: u32) -> Extents<'a> {
        Extents::before(file, block_size, END)
    }

    /// The extents of blocks before `end`.
    pub(crate) fn before(file: &'a File, block_size: u32, end: u64) -> Extents<'a> {
        Extents {
            file,
            block: u64::from(block_size),
            next: 0,
            end: end.min(END),
            window: Vec::new().into_iter(),
            held: None,
        }
    }

    /// The next extent of the window, or of the next windows, as it is in the map.
    fn raw(&mut self) -> Option<Result<Extent, Error>> {
        loop {
            if let Some(extent) = self.window.by_ref().find_map(Extent::of) {
                return Some(Ok(extent));
            }
            if self.next >= self.end {
                return None;
            }
            let len = WINDOW.min(self.end - self.next);
            let mappings = self.file.mappings(self.next * self.block, len * self.block);
            self.next += len;
            match mappings {
                Ok(mappings) => self.window = mappings.into_iter(),
                Err(error) => {
                    self.next = self.end;
                    return Some(Err(error));
                }
            }
        }
    }
}

impl Iterator for Extents<'_> {
    type Item = Result<Extent, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.raw() {
                Some(Ok(next)) => match self.held.as_mut() {
                    Some(held) if held.touches(&next) => held.len += next.len,
                    _ => {
                        if let Some(done) = self.held.replace(next) {
                            return Some(Ok(done));
                        }
                    }
                },
                Some(Err(error)) => {
                    // What was held is still true: it comes with the next call.
                    return Some(Err(error));
                }
                None => return self.held.take().map(Ok),
            }
        }
    }
}
