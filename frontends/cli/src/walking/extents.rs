//! Iterates over a file's extents without holding all of them in memory.
//!
//! Input: an open file. Output: [`Extent`]s in the order of the file, without the holes; the ranges of bytes that hold data.
//! Invariants: the map is read in windows, so memory is bounded however many extents a hostile map claims; extents that are
//! adjacent both in the file and on the volume, and have the same state, are merged. Limits: a window is 2^18 blocks.

use crate::output::report::Reason;
use diorite::{Error, File, Mapping, MappingState, Volume};
use diorite_format::{FsBlock, MapKind};
use std::ops::Range;

/// The number of blocks of one window.
const WINDOW: u64 = 1 << 18;
/// One past the last possible block of a file.
const END: u64 = 1 << 32;

/// A run of blocks that is contiguous in the file and on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// First block in the file.
    pub(crate) start: u64,
    /// First block on the volume.
    pub(crate) at: FsBlock,
    /// Blocks.
    pub(crate) len: u64,
    /// True if it holds data; otherwise it is allocated, unwritten, and reads as zeros.
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

    /// Whether `next` begins where this one ends, in the file and on the volume, and has the same state.
    fn touches(&self, next: &Extent) -> bool {
        self.written == next.written
            && self.start + self.len == next.start
            && self.at.get() + self.len == next.at.get()
    }
}

/// Iterates over a file's extents, to the end of its map, which may be past its size. Ends after an error.
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

    /// The next extent of this window or a later one, as it is in the map, not merged.
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
                    // The held extent is still valid: the next call returns it.
                    return Some(Err(error));
                }
                None => return self.held.take().map(Ok),
            }
        }
    }
}

/// Iterates over the ranges of bytes of a file that hold data, in order and merged where they are adjacent. The last one may
/// reach past the file's size, to the end of its block. Ends after an error.
pub(crate) struct Written<'a> {
    extents: Option<Extents<'a>>,
    block: u64,
    /// How many more blocks the file may map: if it maps more blocks than the volume has, it is corrupt.
    left: u64,
    /// The range that is returned next, unless it grows.
    held: Range<u64>,
}

impl<'a> Written<'a> {
    pub(crate) fn of(volume: &Volume, file: &'a File) -> Written<'a> {
        let size = volume.superblock().block_size();
        let block = u64::from(size);
        let is_inside = file.metadata().map_kind() == MapKind::Inline;
        Written {
            extents: (!is_inside).then(|| Extents::before(file, size, file.size().div_ceil(block))),
            block,
            left: volume.superblock().geometry().blocks_count(),
            // Inline data is shorter than a block; if the size says more, the rest reads as zeros.
            held: 0..if is_inside { file.size().min(block) } else { 0 },
        }
    }

    /// The next extent that holds data.
    fn extent(&mut self) -> Option<Result<Extent, Reason>> {
        let is_data = |found: &Result<Extent, Error>| found.as_ref().map_or(true, |e| e.written);
        let extent = match self.extents.as_mut()?.find(is_data)? {
            Ok(extent) => extent,
            Err(error) => return Some(Err(error.into())),
        };
        match self.left.checked_sub(extent.len) {
            Some(left) => {
                self.left = left;
                Some(Ok(extent))
            }
            None => Some(Err(Reason::new(
                "it maps more blocks than the volume has: it is corrupt, run e2fsck",
            ))),
        }
    }
}

impl Iterator for Written<'_> {
    type Item = Result<Range<u64>, Reason>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let next = match self.extent() {
                Some(Ok(extent)) => {
                    extent.start * self.block..(extent.start + extent.len) * self.block
                }
                Some(Err(reason)) => {
                    self.extents = None;
                    self.held = 0..0;
                    return Some(Err(reason));
                }
                None => {
                    self.extents = None;
                    let last = std::mem::replace(&mut self.held, 0..0);
                    return (!last.is_empty()).then_some(Ok(last));
                }
            };
            // Ranges that are adjacent in the file are merged, wherever their blocks are on the volume.
            if next.start == self.held.end {
                self.held.end = next.end;
                continue;
            }
            let done = std::mem::replace(&mut self.held, next);
            if !done.is_empty() {
                return Some(Ok(done));
            }
        }
    }
}
