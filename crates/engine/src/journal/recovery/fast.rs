//! Fast commits: reads the area behind the log, and commits what their replay has changed.
//!
//! Input: the log's end; blocks that the replay of fast commits has changed. Output: the fast commits that follow that end; later those
//! blocks as one transaction of the log, which replaces the fast commits. Invariants: all transactions of the log are home before the log
//! is overwritten; the fast commits are valid until the transaction's commit block is durable, and invalid afterwards, so after a crash at
//! any point exactly one of the two is found, complete. Limits: the changed blocks have to fit into the log.

use super::scan::{LogEnd, Ring};
use super::source::{LogBlocks, LogSource};
use crate::disk::Blocks;
use crate::error::Error;
use diorite_format::journal::write::{self, LogPosition, Tag, set_position};
use diorite_format::journal::{FastCommits, FastScan, JournalSuper};
use diorite_format::{FsBlock, Tid};
use std::time::Duration;

/// Reads the fast commits that follow the transactions before `end`.
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

/// The number of blocks of the log that a transaction of so many blocks takes: with descriptors and the commit block.
fn needed(journal: &JournalSuper, blocks: usize) -> usize {
    let each = write::tags_per_descriptor(journal).max(1);
    blocks + blocks.div_ceil(each) + 1
}

/// Checks that these blocks fit into the log as one transaction.
pub(crate) fn check_fits(journal: &JournalSuper, blocks: &Blocks) -> Result<(), Error> {
    let (needed, room) = (needed(journal, blocks.len()), Ring::of(journal).len());
    if needed < room as usize {
        return Ok(());
    }
    let what =
        format!("what the fast commits change takes {needed} blocks of a log that has {room}");
    Err(Error::refused(what, "run e2fsck"))
}

/// Commits blocks as the next transaction of the log, durably. Everything in the log must be home, durably. `now` is the time of the
/// commit.
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
    // The log begins at its present end from now on: recovery finds nothing there, or the new transaction.
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
    // As in every commit: zeros first, so that the commit block differs in its first sector only from what is in its place.
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

/// A descriptor block, and the copies of blocks that it describes.
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
