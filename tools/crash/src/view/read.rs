//! Reads a file's contents through a queue, with large requests, many in flight, into buffers filled with poison.
//!
//! Input: open files. Output: the digest and the ranges that hold data. Invariants: each completion's length agrees with the file's
//! size; a byte that no request filled is poison and changes the digest. Limits: of files larger than [`WHOLE`] only the ranges
//! that hold data are read; of others everything, with the holes.

use diorite::{Error, File, FileId, MappingState, Queue, Request, Volume};
use diorite_block::Buf;
use diorite_format::MapKind;
use std::collections::VecDeque;
use std::ops::Range;
use xtask::digest::Digest;

/// The largest file that is read with its holes, in bytes.
const WHOLE: u64 = 64 << 20;
/// The largest request in bytes.
const PIECE: u64 = 1 << 20;
/// Requests in flight.
const DEPTH: usize = 8;
const POISON: u8 = 0xA5;

/// Reads all files of a volume through one queue.
pub(crate) struct Reader<'a> {
    volume: &'a Volume,
    queue: Result<Queue, Error>,
}

impl Reader<'_> {
    pub(crate) fn new(volume: &Volume) -> Reader<'_> {
        let queue = volume.queue(DEPTH as u32);
        Reader { volume, queue }
    }

    /// The digest, and the ranges (offset, length) that hold data, in bytes.
    pub(crate) fn contents(&mut self, file: &File) -> Result<(u32, Vec<(u64, u64)>), String> {
        let data = data_ranges(file, u64::from(self.volume.superblock().block_size()))?;
        let whole = Range {
            start: 0,
            end: file.size(),
        };
        let read = if file.size() <= WHOLE {
            vec![whole]
        } else {
            data.clone()
        };
        let queue = self.queue.as_ref().map_err(ToString::to_string)?;
        let id = queue.attach(file).map_err(|e| e.to_string())?;
        let digest = self.digest(queue, file, id, &pieces(&read));
        queue.detach(id);
        Ok((
            digest?,
            data.iter().map(|r| (r.start, r.end - r.start)).collect(),
        ))
    }

    fn digest(
        &self,
        queue: &Queue,
        file: &File,
        id: FileId,
        pieces: &[Range<u64>],
    ) -> Result<u32, String> {
        let logical = u64::from(self.volume.device().geometry().logical);
        let mut digest = Digest::new();
        for window in pieces.chunks(DEPTH) {
            let mut batch: VecDeque<Request> = window
                .iter()
                .map(|piece| {
                    let len = (piece.end - piece.start).next_multiple_of(logical);
                    let mut buf = Buf::zeroed(len as usize);
                    buf.as_mut_slice().fill(POISON);
                    Request::read(id, piece.start, buf, piece.start)
                })
                .collect();
            let mut done = Vec::new();
            while done.len() < window.len() {
                queue.submit(&mut batch);
                queue.reap(&mut done, 1, None);
            }
            done.sort_by_key(|completion| completion.token);
            for completion in done {
                let asked = completion.buf.len() as u64;
                let expected = asked.min(file.size() - completion.pos);
                match completion.result {
                    Ok(got) if got as u64 == expected => {
                        digest.write(completion.pos, &completion.buf.as_slice()[..got]);
                    }
                    other => {
                        return Err(format!(
                            "read of {asked} bytes at {}: {other:?} instead of {expected}",
                            completion.pos
                        ));
                    }
                }
            }
        }
        Ok(digest.finish())
    }
}

/// The ranges that SEEK_DATA would report: written blocks, neighbours joined, cut at the size.
///
/// # Errors
/// The map cannot be read, or does not cover the file.
pub fn data_ranges(file: &File, block: u64) -> Result<Vec<Range<u64>>, String> {
    let size = file.size();
    if file.metadata().map_kind() == MapKind::Inline {
        return Ok((size > 0)
            .then_some(Range {
                start: 0,
                end: size,
            })
            .into_iter()
            .collect());
    }
    let mappings = file.mappings(0, size).map_err(|e| e.to_string())?;
    let (mut ranges, mut next): (Vec<Range<u64>>, u64) = (Vec::new(), 0);
    for mapping in mappings {
        if mapping.start != next || mapping.len == 0 {
            return Err(format!("after block {next} comes {mapping:?}"));
        }
        next = mapping.start + mapping.len;
        if !matches!(mapping.state, MappingState::Written(_)) {
            continue;
        }
        let (start, end) = (mapping.start * block, (next * block).min(size));
        match ranges.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => ranges.push(start..end),
        }
    }
    if next != size.div_ceil(block) {
        return Err(format!(
            "the mappings end at block {next}, the size is {size}"
        ));
    }
    Ok(ranges)
}

/// Cuts ranges into requests of at most [`PIECE`] bytes.
fn pieces(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let cut = |range: &Range<u64>| {
        let end = range.end;
        (range.start..end)
            .step_by(PIECE as usize)
            .map(move |start| start..(start + PIECE).min(end))
    };
    ranges.iter().flat_map(cut).collect()
}
