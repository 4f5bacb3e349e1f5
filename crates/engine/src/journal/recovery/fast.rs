//! Fast commits: the area behind the log read, and what was made of it committed.
//!
//! Input: the log's end, and blocks that a replay has changed. Output: the fast commits that follow that end; later those blocks as one
//! transaction of the log, which takes the place of the fast commits. Invariants: the log is at home before it is given up; until the
//! commit block is durable the fast commits count, from then on they do not: so a crash anywhere leaves one or the other, whole. Limits:
//! what was changed has to fit into the log.

use super::scan::{LogEnd, Ring};
use super::source::{LogBlocks, LogSource};
use crate::disk::Blocks;
use crate::error::Error;
use diorite_format::journal::write::{self, LogPosition, Tag, set_position};
use diorite_format::journal::{FastCommits, FastScan, JournalSuper};
use diorite_format::{FsBlock, Tid};
use std::time::Duration;

/// The fast commits that follow the transactions before `end`.
pub(super) fn fast_commits(
    journal: &JournalSuper,
    log: &mut dyn LogBlocks,
    end: Tid,
) -> Result<FastCommits, Error> {
    let mut scan = FastScan::new(end);
    let Some(start) = journal.fast_commit_start() else {
        return Ok(scan.finish());
    };
    for at in start..journal.maxlen {
        if !scan.block(log.read(at)?)? {
            break;
        }
    }
    Ok(scan.finish())
}

/// Blocks of the log that a transaction of so many takes: with descriptors and the commit block.
fn needed(journal: &JournalSuper, blocks: usize) -> usize {
    let each = write::tags_per_descriptor(journal).max(1);
    blocks + blocks.div_ceil(each) + 1
}

/// Do these blocks fit into the log, as one transaction?
pub(crate) fn check_fits(journal: &JournalSuper, blocks: &Blocks) -> Result<(), Error> {
    let (needed, room) = (needed(journal, blocks.len()), Ring::of(journal).len());
    if needed < room as usize {
        return Ok(());
    }
    let what =
        format!("what the fast commits change takes {needed} blocks of a log that has {room}");
    Err(Error::refused(what, "run e2fsck"))
}

/// Commits blocks as the transaction with which the log goes on. What the log holds is at home, durably. `now` is the time of that commit.
pub(super) fn commit(
    journal: &JournalSuper,
    log: &mut LogSource,
    end: LogEnd,
    blocks: &Blocks,
    now: Duration,
) -> Result<(), Error> {
    let position = LogPosition {
        start: end.at,
        sequence: end.tid,
    };
    // Recovery begins where it ended: there it finds nothing, or what follows.
    let mut raw = log.read_super()?;
    set_position(&mut raw, position);
    log.write_super(&raw)?;
    let ring = Ring::of(journal);
    let mut at = end.at;
    let mut append = |log: &mut LogSource, bytes: &[u8]| {
        let written = log.write(at, bytes);
        at = ring.step(at, 1);
        written
    };
    let all: Vec<(FsBlock, &[u8])> = blocks.iter().map(|(at, bytes)| (*at, &**bytes)).collect();
    for part in all.chunks(write::tags_per_descriptor(journal).max(1)) {
        for bytes in described(journal, end.tid, part) {
            append(log, &bytes)?;
        }
    }
    let mut last = vec![0; journal.block_size as usize];
    // As in every commit: the commit block differs from what is in its place in its first sector alone.
    let place = at;
    log.write(place, &last)?;
    log.flush()?;
    write::commit(
        journal,
        end.tid,
        now.as_secs(),
        now.subsec_nanos(),
        &mut last,
    );
    log.write(place, &last)?;
    log.flush()
}

/// A descriptor, and the blocks that it announces.
fn described(journal: &JournalSuper, tid: Tid, blocks: &[(FsBlock, &[u8])]) -> Vec<Vec<u8>> {
    let mut out = vec![vec![0; journal.block_size as usize]];
    let mut tags = Vec::with_capacity(blocks.len());
    for (block, bytes) in blocks {
        let mut bytes = bytes.to_vec();
        let escaped = write::escape(&mut bytes);
        let sum = write::block_sum(journal, tid, &bytes);
        tags.push(Tag {
            block: *block,
            escaped,
            sum,
        });
        out.push(bytes);
    }
    write::descriptor(journal, tid, &tags, &mut out[0]);
    out
}
