//! Data through the journal (data=journal, or the file's flag `j`): data blocks are blocks of transactions.
//!
//! Input: bytes at a place of a file. Output: the same bytes in the running transaction, with the map and the size that make them visible;
//! reads from the metadata cache, which has the blocks that are not checkpointed. Invariants: one handle changes one run of blocks, so
//! after a crash a file has the beginning of a write, up to some block, and a write that fails for lack of space has changed nothing; other
//! operations on such blocks (truncation, zeros, deletion) come after a checkpoint, when the log has none of them and the cache has dropped
//! them. Limits: a write has the turn; a handle changes a run of at most [`MOST_AT_ONCE`] blocks.

use super::beforehand::Space;
use super::{From, Inode};
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::inode::Fs;
use crate::journal::JournalHandle;
use crate::map::edit::NewRun;
use crate::mapping::MappingState;
use diorite_block::Buf;
use diorite_format::superblock::JournalPlace;
use diorite_format::{FsBlock, Inode as DiskInode, InodeFlags};
use std::ops::Range;
use std::sync::Arc;

/// How many data blocks one handle changes at most.
const MOST_AT_ONCE: u32 = 64;

/// A run lies in at most so many leaves of the map.
const LEAVES_AROUND: u32 = 2;

/// The part of a write that one handle makes.
struct Part {
    bytes: Range<u64>,
    first: u64,
    place: FsBlock,
    len: u32,
    /// How the blocks get into the map, unless they are mapped and written already.
    new: Option<NewRun>,
    claimed: bool,
}

/// Does the data of this file go through the journal?
pub(super) fn is_journalled(volume: &Fs, disk: &DiskInode) -> bool {
    let wanted = volume.data_journalled || disk.flags.has(InodeFlags::JOURNAL_DATA);
    wanted
        && disk.is_file()
        && volume.alloc.is_some()
        && !matches!(volume.sb.journal(), JournalPlace::None)
}

impl Inode {
    /// Reads `len` bytes at `pos`, all of them inside the file. Blocks.
    pub(crate) fn read_journalled(&self, pos: u64, len: usize, buf: &mut Buf) -> Result<(), Error> {
        let (volume, size) = (&self.volume, u64::from(self.volume.block_size()));
        let end = pos + len as u64;
        for mapping in self.mappings(pos / size..end.div_ceil(size))? {
            for n in 0..mapping.len {
                let block = (mapping.start + n) * size;
                let (from, to) = (pos.max(block), end.min(block + size));
                let at = short(from - pos);
                match mapping.state {
                    MappingState::Written(first) => {
                        let place = FsBlock::new(first.get() + n);
                        let read = volume
                            .cache
                            .read(&volume.blocking, place, Kind::Data, |_| Ok(()));
                        buf.copy_in(at, &read?[short(from - block)..short(to - block)]);
                    }
                    MappingState::Hole | MappingState::Unwritten(_) => {
                        buf.zero(at..short(to - pos));
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes `len` bytes of a buffer at `pos`; `from` says where the blocks of holes are counted. Blocks; the caller has the turn.
    pub(crate) fn write_journalled(
        self: &Arc<Self>,
        pos: u64,
        len: u32,
        data: &Buf,
        from: From,
    ) -> Result<(), Error> {
        let end = pos + u64::from(len);
        self.volume.journal()?.note_data(self.ino);
        let grows = end > self.size();
        if grows {
            self.zero_tail_journalled()?;
        }
        let size = u64::from(self.volume.block_size());
        let (blocks, bytes) = (pos / size..end.div_ceil(size), pos..end);
        let space = self.take_space(blocks.clone(), from)?;
        let (mut at, mut done) = (blocks.start, Ok(()));
        while at < blocks.end && done.is_ok() {
            let part = self.part_at(&space, at, &bytes);
            done = self.write_part(&part, pos, data);
            if done.is_ok() {
                at += u64::from(part.len);
            }
        }
        self.end_space(&space, at);
        if grows && done.is_ok() {
            self.learn_tail(self.before_zeros());
        }
        self.touch(self.volume.now_nanos());
        done
    }

    /// Commits and checkpoints all data of the file, so that the log and the cache have none of it. Blocks; the caller has the turn, or
    /// the file has no users, so that its data does not change meanwhile.
    pub(crate) fn checkpoint_data(&self) -> Result<(), Error> {
        if !self.is_journalled() {
            return Ok(());
        }
        let volume = &self.volume;
        volume.journal()?.commit_data(&**volume, self.ino)?;
        volume.journal()?.checkpoint(volume)?;
        volume.cache.drop_clean(Kind::Data);
        Ok(())
    }

    /// The part of the write from this block on that one handle can make.
    fn part_at(&self, space: &Space, first: u64, bytes: &Range<u64>) -> Part {
        let size = u64::from(self.volume.block_size());
        let most = (self.volume.most_credits() / 4).clamp(1, MOST_AT_ONCE);
        let mapping = space.mappings.iter();
        let mapping = mapping
            .rev()
            .find(|m| m.start <= first)
            .expect("space was taken for all blocks");
        let skip = first - mapping.start;
        let len = u32::try_from(mapping.len - skip).unwrap_or(most).min(most);
        let (place, is_new) = match mapping.state {
            MappingState::Written(at) => (at, false),
            MappingState::Unwritten(at) => (at, true),
            MappingState::Hole => unreachable!("holes have claimed blocks"),
        };
        let place = FsBlock::new(place.get() + skip);
        let new = is_new.then(|| NewRun {
            file_block: u32::try_from(first).expect("the largest size was checked"),
            len,
            start: place,
            unwritten: false,
        });
        let end = bytes.end.min((first + u64::from(len)) * size);
        Part {
            bytes: bytes.start.max(first * size)..end,
            first,
            place,
            len,
            new,
            claimed: space.is_claimed(first),
        }
    }

    fn write_part(&self, part: &Part, pos: u64, data: &Buf) -> Result<(), Error> {
        let new = part.new.as_slice();
        let credits = part.len + self.credits_to_map(LEAVES_AROUND, new);
        self.volume.in_handle(credits, |handle| {
            let mut remap = self.remap(handle)?;
            if let (Some(new), true) = (&part.new, part.claimed) {
                remap.map_claimed(&[*new])?;
            } else if let Some(new) = &part.new {
                remap.replace(new.file_block..new.file_block + new.len, &[*new])?;
            }
            let filled = self.fill_blocks(handle, part, pos, data);
            // If new blocks are mapped but not filled, they would show their old contents: abort.
            if part.new.is_some() {
                handle.or_abort(filled)?;
            } else {
                filled?;
            }
            remap.disk.size = remap.disk.size.max(part.bytes.end);
            remap.publish()
        })
    }

    fn fill_blocks(
        &self,
        handle: &JournalHandle<'_>,
        part: &Part,
        pos: u64,
        data: &Buf,
    ) -> Result<(), Error> {
        let size = u64::from(self.volume.block_size());
        for n in 0..u64::from(part.len) {
            let at = FsBlock::new(part.place.get() + n);
            let block = (part.first + n) * size;
            let (from, to) = (
                part.bytes.start.max(block),
                part.bytes.end.min(block + size),
            );
            let copy = |raw: &mut [u8]| {
                let inside = short(from - block)..short(to - block);
                copy_out(data, short(from - pos), &mut raw[inside]);
            };
            if part.new.is_some() || to - from == size {
                handle.create(at, Kind::Data, copy);
            } else {
                handle.update(
                    at,
                    Kind::Data,
                    |_| Ok(()),
                    |raw| {
                        copy(raw);
                        Ok(())
                    },
                )?;
            }
        }
        Ok(())
    }

    /// Zeros the bytes behind the size in its block.
    fn zero_tail_journalled(&self) -> Result<(), Error> {
        let Some(block) = self.tail_block() else {
            return Ok(());
        };
        let from = short(self.size() % u64::from(self.volume.block_size()));
        let mapping = self.mappings(block..block + 1)?;
        if let Some(MappingState::Written(at)) = mapping.first().map(|m| m.state) {
            self.volume.journal()?.check_tail(self.ino, block)?;
            self.volume.in_handle(1, |handle| {
                handle.update(
                    at,
                    Kind::Data,
                    |_| Ok(()),
                    |raw| {
                        raw[from..].fill(0);
                        Ok(())
                    },
                )
            })?;
        }
        self.learn_tail(self.before_zeros());
        Ok(())
    }
}

fn short(n: u64) -> usize {
    usize::try_from(n).expect("within a request or a block")
}

/// Copies bytes of a buffer into `to`, from the buffer's byte `skip` on.
fn copy_out(buf: &Buf, mut skip: usize, mut to: &mut [u8]) {
    for part in buf.parts() {
        let from = part.get(skip..).unwrap_or_default();
        skip = skip.saturating_sub(part.len());
        let now = from.len().min(to.len());
        let (head, rest) = std::mem::take(&mut to).split_at_mut(now);
        head.copy_from_slice(&from[..now]);
        to = rest;
    }
}
