//! Writes replayed blocks home, and empties the log afterwards.
//!
//! Input: the blocks of a [`Replay`](super::replay::Replay). Output: a volume that needs no recovery. Invariants: the order below, each
//! step durable before the next begins, so that a crash at any point leaves an image that recovers to the same content. Limits: blocks the
//! calling thread.
//!
//! 1. The log itself is flushed: its writer may have ended before its own flush, and what was read here may have come from a cache. Blocks
//!    at home must not be newer than the log that the next recovery finds.
//! 2. The blocks are written home, the superblock last, or first if it is of a smaller volume. Until that is durable the log is untouched,
//!    and recovery can start again.
//! 3. If there were fast commits: what they have changed is committed as one more transaction in place of the log, then written home.
//!    Until that commit the fast commits count, and recovery does the same with them again; afterwards it is a log like any other.
//! 4. If an error aborted the journal: the superblock's error state is set. The log still has the error, too.
//! 5. The log is emptied and its error cleared. Recovery would find nothing to do.
//! 6. The superblock's `needs_recovery` is cleared.

use super::fast::commit;
use super::scan::LogEnd;
use super::source::LogSource;
use crate::disk::{Blocks, blocks_in, edit_superblock, flush, read_bytes, write_block};
use crate::error::Error;
use diorite_block::Blocking;
use diorite_format::journal::JournalSuper;
use diorite_format::journal::write::{LogPosition, set_errno, set_position};
use diorite_format::superblock::SUPERBLOCK_OFFSET;
use diorite_format::{FsBlock, Tid};
use std::sync::Arc;
use std::time::Duration;

/// Most bytes of neighbouring blocks that are written together.
const MOST: usize = 1 << 20;

/// What there is to do after the log's own blocks.
pub(crate) struct After<'a> {
    pub(crate) journal: &'a JournalSuper,
    pub(crate) log: &'a mut LogSource,
    /// The sequence with which the emptied log goes on.
    pub(crate) next: Tid,
    /// What fast commits have changed, where the log ends, and the time of the commit.
    pub(crate) fast: Option<(&'a Blocks, LogEnd, Duration)>,
}

/// Writes `blocks` home on the device below `blocking`, then what fast commits have changed; empties the log, if there is one.
pub(crate) fn bring_home(
    blocking: &Blocking,
    block_size: u32,
    blocks: &Blocks,
    mut log: Option<After<'_>>,
) -> Result<(), Error> {
    if let Some(after) = &log {
        after.log.flush()?;
    }
    flush(blocking)?;
    // A larger superblock counts descriptors that have to be home before it; a smaller one leaves descriptors out that are overwritten.
    let sb = FsBlock::new(SUPERBLOCK_OFFSET / u64::from(block_size));
    let newer = blocks.get(&sb);
    let shrinks = newer.is_some_and(|bytes| is_smaller(blocking, block_size, bytes));
    let only_sb = || newer.map(|bytes| (&sb, bytes));
    if shrinks {
        write_all(blocking, block_size, only_sb())?;
        flush(blocking)?;
    }
    let others = blocks.iter().filter(|(at, _)| **at != sb);
    write_all(blocking, block_size, others)?;
    flush(blocking)?;
    if newer.is_some() && !shrinks {
        write_all(blocking, block_size, only_sb())?;
        flush(blocking)?;
    }
    if let Some(after) = &mut log
        && let Some((changed, end, now)) = after.fast
    {
        commit(after.journal, after.log, end, changed, now)?;
        write_all(blocking, block_size, changed)?;
        flush(blocking)?;
    }
    let errno = log.as_ref().map_or(0, |after| after.journal.errno);
    if errno != 0 {
        edit_superblock(blocking, block_size, |sb| sb.set_error_state(true))?;
    }
    if let Some(After { log, next, .. }) = log {
        let mut raw = log.read_super()?;
        set_errno(&mut raw, 0);
        set_position(
            &mut raw,
            LogPosition {
                start: 0,
                sequence: next,
            },
        );
        log.write_super(&raw)?;
    }
    edit_superblock(blocking, block_size, |sb| sb.set_needs_recovery(false))
}

/// Whether the superblock in a block is of a smaller volume than the one at home. One that cannot be read is of none.
fn is_smaller(blocking: &Blocking, block_size: u32, block: &[u8]) -> bool {
    let at = SUPERBLOCK_OFFSET - SUPERBLOCK_OFFSET % u64::from(block_size);
    let home = read_bytes(blocking, at, block_size as usize);
    let home = home.ok().and_then(|raw| blocks_in(&raw));
    blocks_in(block)
        .zip(home)
        .is_some_and(|(newer, home)| newer < home)
}

fn write_all<'a>(
    blocking: &Blocking,
    block_size: u32,
    blocks: impl IntoIterator<Item = (&'a FsBlock, &'a Arc<[u8]>)>,
) -> Result<(), Error> {
    let (mut run, mut start, mut next) = (Vec::new(), 0, 0);
    for (block, bytes) in blocks {
        if !run.is_empty() && (block.get() != next || run.len() >= MOST) {
            write_block(blocking, start * u64::from(block_size), &run)?;
            run.clear();
        }
        if run.is_empty() {
            start = block.get();
        }
        run.extend_from_slice(bytes);
        next = block.get() + 1;
    }
    if !run.is_empty() {
        write_block(blocking, start * u64::from(block_size), &run)?;
    }
    Ok(())
}

#[cfg(all(test, not(any(feature = "_loom", feature = "_shuttle"))))]
mod tests;
