//! Replayed blocks on their way home, and the log emptied behind them.
//!
//! Input: a [`Replay`]'s blocks. Output: a volume that needs no recovery. Invariants: the order below, each step durable before the next
//! begins, so that a crash anywhere leaves an image that recovers to the same content. Limits: blocks the calling thread.
//!
//! 1. The log itself: who wrote it may have ended before its flush, and what was read here came from a cache. What is home must not be
//!    newer than the log that a next recovery finds.
//! 2. The blocks, each to its place. Until then the log is untouched: recovery starts again.
//! 3. If there were fast commits: what they have changed, as one transaction more, in the place of the log; then that to its places. Until it is
//!    committed the fast commits count, and recovery makes the same of them; afterwards it is a log like any other.
//! 4. If the journal was aborted by an error: the superblock's error state. The log still says so, too.
//! 5. The log is emptied and its error cleared. Recovery would find nothing to do.
//! 6. The superblock's `needs_recovery` is cleared.

use super::fast::commit;
use super::scan::LogEnd;
use super::source::LogSource;
use crate::disk::{Blocks, edit_superblock, flush, write_block};
use crate::error::Error;
use diorite_block::Blocking;
use diorite_format::Tid;
use diorite_format::journal::JournalSuper;
use diorite_format::journal::write::{LogPosition, set_errno, set_position};
use std::time::Duration;

/// Bytes of neighbours that are written together.
const MOST: usize = 1 << 20;

/// What comes after the log's own blocks.
pub(crate) struct After<'a> {
    pub(crate) journal: &'a JournalSuper,
    pub(crate) log: &'a mut LogSource,
    /// The sequence with which an emptied log goes on.
    pub(crate) next: Tid,
    /// What fast commits have changed, where the log ends, and the time.
    pub(crate) fast: Option<(&'a Blocks, LogEnd, Duration)>,
}

/// Brings `blocks` home on the device below `blocking`; then deals with the log, if there is one, and empties it.
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
    write_all(blocking, block_size, blocks)?;
    flush(blocking)?;
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

fn write_all(blocking: &Blocking, block_size: u32, blocks: &Blocks) -> Result<(), Error> {
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
