//! The plan of a request: which of its bytes go to or come from which place on the device, and which are zeros.
//!
//! Input: mappings that cover the request's blocks, and its byte range. Output: [`Piece`]s that cover the range in order.
//! Invariants: pure; pieces are not empty, cover the range exactly, and a data piece never leaves its mapping's blocks.
//! Limits: physical neighbours are merged up to the largest bio.

use crate::map::NotLoaded;
use crate::mapping::{Mapping, MappingState};

/// One piece of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Bytes of the request, to or from this place on the device.
    Data {
        /// The first byte on the device.
        at: u64,
        /// How many bytes.
        len: u32,
    },
    /// Zeros written to the device around the request's bytes: the rest of a new block.
    Pad {
        /// The first byte on the device.
        at: u64,
        /// How many bytes.
        len: u32,
    },
    /// Bytes of a read that are zeros, without I/O.
    Zero {
        /// How many bytes.
        len: u32,
    },
}

/// Why a plan cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// A part of the map has to be loaded first.
    NotLoaded(NotLoaded),
    /// A write meets a hole or unwritten blocks.
    NotWritten(Mapping),
}

/// How a plan treats blocks that are not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Holes and unwritten blocks read as zeros.
    Read,
    /// Every block must be written already.
    Overwrite,
    /// For a write into new space: unwritten blocks get zeros around the request's bytes. Holes are an obstacle.
    Fill,
}

/// Plans `len` bytes at `pos` over `mappings`, which start at the block of `pos`. Returns how many written mappings there are.
#[inline]
pub(crate) fn plan(
    purpose: Purpose,
    mappings: impl Iterator<Item = Result<Mapping, NotLoaded>>,
    (pos, len): (u64, u32),
    block_bits: u32,
    max_transfer: u32,
    pieces: &mut Vec<Piece>,
) -> Result<u32, Obstacle> {
    pieces.clear();
    let end = pos + u64::from(len);
    let (mut at, mut written) = (pos, 0);
    for mapping in mappings {
        let mapping = mapping.map_err(Obstacle::NotLoaded)?;
        let start = mapping.start << block_bits;
        let stop = ((mapping.start + mapping.len) << block_bits).min(end);
        debug_assert!(
            start <= at && at < stop,
            "mappings cover the range in order"
        );
        match mapping.state {
            MappingState::Written(block) => {
                written += 1;
                data(
                    pieces,
                    (block.get() << block_bits) + (at - start),
                    stop - at,
                    max_transfer,
                );
            }
            MappingState::Hole | MappingState::Unwritten(_) if purpose == Purpose::Read => {
                zeros(pieces, stop - at)
            }
            MappingState::Unwritten(block) if purpose == Purpose::Fill => {
                let mask = (1 << block_bits) - 1;
                let place = (block.get() << block_bits) + (at - start);
                // Only the request's own first and last byte can be inside a block.
                pad(pieces, place - (at & mask), at & mask);
                data(pieces, place, stop - at, max_transfer);
                pad(pieces, place + (stop - at), stop.wrapping_neg() & mask);
            }
            MappingState::Hole | MappingState::Unwritten(_) => {
                return Err(Obstacle::NotWritten(mapping));
            }
        }
        at = stop;
    }
    assert_eq!(at, end, "the mappings cover the whole range");
    Ok(written)
}

/// A length within one request, as 32 bits.
fn short(len: u64) -> u32 {
    u32::try_from(len).expect("a piece is no longer than its request, which is at most 1 GiB")
}

fn data(pieces: &mut Vec<Piece>, mut at: u64, mut len: u64, max_transfer: u32) {
    if let Some(Piece::Data {
        at: last,
        len: last_len,
    }) = pieces.last_mut()
        && *last + u64::from(*last_len) == at
    {
        let more = len.min(u64::from(max_transfer - *last_len));
        *last_len += short(more);
        at += more;
        len -= more;
    }
    while len > 0 {
        let now = len.min(u64::from(max_transfer));
        pieces.push(Piece::Data {
            at,
            len: short(now),
        });
        at += now;
        len -= now;
    }
}

fn pad(pieces: &mut Vec<Piece>, at: u64, len: u64) {
    if len > 0 {
        let len = short(len);
        pieces.push(Piece::Pad { at, len });
    }
}

fn zeros(pieces: &mut Vec<Piece>, len: u64) {
    if let Some(Piece::Zero { len: last }) = pieces.last_mut() {
        *last += short(len);
    } else {
        pieces.push(Piece::Zero { len: short(len) });
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
