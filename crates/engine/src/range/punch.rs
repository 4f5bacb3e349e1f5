//! Makes ranges zeros: by removing their blocks from the map, by making the blocks unwritten, or by writing zeros.
//!
//! Input: an inode whose gate is closed, and a range of bytes. Output: zeros in it, nothing else changed. Invariants: parts of blocks at
//! the ends are zeroed on the device before any handle begins; whole blocks are changed piece by piece, and after each step every byte is
//! old or zero; a block becomes written only after zeros were written to it. Limits: a failure leaves a part of the range done.

use crate::error::Error;
use crate::inode::pieces::END;
use crate::inode::{Inode, Remap, timestamp};
use crate::map::edit::{self, End, NewRun};
use crate::mapping::MappingState;
use diorite_block::{Bio, BioErrorKind, BioOp, Buf};
use diorite_format::FsBlock;
use std::ops::Range;

/// How many bytes of zeros are written at once if the device has no write-zeroes.
const AT_ONCE: u64 = 1_048_576;

/// The whole blocks in a range of bytes. A block with the file's end counts as whole if the range reaches the end.
pub(super) fn whole_blocks(inode: &Inode, bytes: Range<u64>) -> Range<u32> {
    let whole = between(inode, &bytes);
    let short = |b: u64| u32::try_from(b / u64::from(inode.volume.block_size())).unwrap_or(END);
    match whole.is_empty() {
        true => 0..0,
        false => short(whole.start)..short(whole.end),
    }
}

/// The whole blocks of a range, in bytes. If there is none, the result is empty, or its start is behind its end.
fn between(inode: &Inode, bytes: &Range<u64>) -> Range<u64> {
    let block = u64::from(inode.volume.block_size());
    let end = match bytes.end >= inode.size() {
        true => bytes.end.next_multiple_of(block),
        false => bytes.end,
    };
    bytes.start.next_multiple_of(block)..end / block * block
}

/// Zeros the parts of the range that lie outside its whole blocks.
pub(super) fn zero_edges(inode: &Inode, bytes: Range<u64>) -> Result<(), Error> {
    let whole = between(inode, &bytes);
    if whole.start > whole.end {
        return inode.zero_within(bytes);
    }
    inode.zero_within(bytes.start..whole.start)?;
    inode.zero_within(whole.end..bytes.end.max(whole.end))
}

/// Removes all blocks of a range from the map, and frees them.
pub(super) fn punch(inode: &Inode, blocks: Range<u32>) -> Result<(), Error> {
    inode.claims.close(inode);
    take_away(inode, blocks, |remap| {
        remap.written_at(timestamp(inode.volume.now_nanos()));
    })
}

/// Frees blocks that were only just allocated; mtime and ctime do not change.
pub(super) fn unallocate(inode: &Inode, blocks: Range<u32>) -> Result<(), Error> {
    take_away(inode, blocks, |_| ())
}

fn take_away(
    inode: &Inode,
    blocks: Range<u32>,
    note: impl Fn(&mut Remap<'_>),
) -> Result<(), Error> {
    let mut at = blocks.start;
    while at < blocks.end {
        let piece = inode.piece_to_free(at..blocks.end, End::First)?;
        inode.volume.in_handle(piece.credits, |handle| {
            let mut remap = inode.remap(handle)?;
            remap.replace(piece.blocks.clone(), &[])?;
            note(&mut remap);
            remap.publish()
        })?;
        at = piece.blocks.end;
    }
    Ok(())
}

/// Makes all written blocks of a range unwritten.
pub(super) fn unwrite(inode: &Inode, blocks: Range<u32>) -> Result<(), Error> {
    remap_all(inode, blocks, true, |_| Ok(()))
}

/// Writes zeros to all unwritten blocks of a range and makes them written.
pub(super) fn write_zeros(inode: &Inode, blocks: Range<u32>) -> Result<(), Error> {
    remap_all(inode, blocks, false, |run| {
        zero_run(inode, run.start, run.len)
    })
}

/// Makes all mapped blocks of a range written or unwritten. `before` is called for each run that is in the other state.
fn remap_all(
    inode: &Inode,
    blocks: Range<u32>,
    unwritten: bool,
    before: impl Fn(&NewRun) -> Result<(), Error>,
) -> Result<(), Error> {
    let volume = &inode.volume;
    let leaves = inode.leaves_per_handle();
    let mut at = blocks.start;
    while at < blocks.end {
        let part = edit::part(volume, &inode.disk(), at..blocks.end, leaves, End::First)?;
        let began = volume.data_epoch();
        let mut changes = false;
        let mut new = Vec::new();
        for mut run in runs_in(inode, part.clone())? {
            if run.unwritten != unwritten {
                before(&run)?;
                run.unwritten = unwritten;
                changes = true;
            }
            new.push(run);
        }
        let now = timestamp(volume.now_nanos());
        if changes {
            volume.in_handle(inode.credits_to_change(leaves, &new), |handle| {
                handle.relies_on(began)?;
                let mut remap = inode.remap(handle)?;
                remap.replace(part.clone(), &new)?;
                remap.written_at(now);
                remap.publish()
            })?;
        }
        at = part.end;
    }
    Ok(())
}

/// The mapped runs of a range.
fn runs_in(inode: &Inode, blocks: Range<u32>) -> Result<Vec<NewRun>, Error> {
    let mut runs = Vec::new();
    for mapping in inode.mappings(u64::from(blocks.start)..u64::from(blocks.end))? {
        let (start, unwritten) = match mapping.state {
            MappingState::Hole => continue,
            MappingState::Unwritten(start) => (start, true),
            MappingState::Written(start) => (start, false),
        };
        runs.push(NewRun {
            file_block: u32::try_from(mapping.start).expect("a mapped block has 32 bits"),
            len: u32::try_from(mapping.len).expect("a mapped run has 32 bits"),
            start,
            unwritten,
        });
    }
    Ok(runs)
}

/// Writes zeros to the device, with its write-zeroes if it has that.
fn zero_run(inode: &Inode, start: FsBlock, len: u32) -> Result<(), Error> {
    let volume = &inode.volume;
    let block = u64::from(volume.block_size());
    let (mut pos, end) = (start.get() * block, (start.get() + u64::from(len)) * block);
    if volume.device.geometry().write_zeroes {
        let bio = Bio::range(BioOp::WriteZeroes, pos, end - pos, 0);
        match volume.blocking.run(bio).result {
            Err(error) if error.kind == BioErrorKind::Unsupported => {}
            Err(error) => return Err(Error::of_write(&*volume.device, pos, u32::MAX, error)),
            Ok(()) => return Ok(()),
        }
    }
    while pos < end {
        let most = AT_ONCE.min(u64::from(volume.device.geometry().max_transfer));
        let part = (end - pos).min(most);
        let len = usize::try_from(part).expect("at most a MiB");
        let done = volume.blocking.run(Bio::write(pos, Buf::zeroed(len), 0));
        let failed = |e| {
            Error::of_write(
                &*volume.device,
                pos,
                u32::try_from(part).unwrap_or(u32::MAX),
                e,
            )
        };
        done.result.map_err(failed)?;
        pos += part;
    }
    Ok(())
}
