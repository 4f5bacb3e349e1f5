//! The first pass: finds the log's transactions, and the one with which the log ends.
//!
//! Input: the journal's superblock and blocks. Output: [`Scan`]. Invariant: ends where the kernel ends (found by experiment with kernel
//! 6.18 and e2fsck 1.47, recorded in PROVENANCE.md):
//!
//! | what is found | what it means |
//! |---|---|
//! | no magic number, another sequence, an unknown type | the log ends before this transaction |
//! | commit block: wrong checksum, older than the commit before it | left from an older log: the log ends before it |
//! | commit block: wrong checksum, not older | ends before it, damaged; asynchronous: damaged only if v1 and a commit block follows |
//! | descriptor or revoke block: wrong checksum | at the commit block: if that is older, the log ends; else nothing may be replayed |
//!
//! Limits: each block of the log is scanned once; tags are kept for the later passes, no more of them than blocks were scanned.

use super::source::LogBlocks;
use crate::error::Error;
use diorite_format::journal::{
    CommitSum, JournalChecksum, JournalSuper, LogBlockKind, LogForm, LogHeader, Tag, TransactionSum,
};
use diorite_format::{Corrupt, FormatError, FsBlock, Tid};

/// A part of a transaction, in the order of the log.
#[derive(Debug)]
pub(super) enum Piece {
    /// Copies of blocks; the first of them is in block `first` of the log.
    Copies {
        tid: Tid,
        first: u32,
        tags: Vec<Tag>,
    },
    /// Revoked blocks; or the error in the list.
    Revoked {
        tid: Tid,
        blocks: Result<Vec<FsBlock>, FormatError>,
    },
}

/// Where a log ends, and the number of the transaction that would come next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogEnd {
    /// The block of the log.
    pub(crate) at: u32,
    pub(crate) tid: Tid,
}

impl LogEnd {
    /// The end of a log without transactions, which goes on with the sequence in its superblock.
    pub(crate) fn of_empty(journal: &JournalSuper) -> LogEnd {
        LogEnd {
            at: journal.first,
            tid: Tid::new(journal.sequence.get().wrapping_sub(1)),
        }
    }

    /// The sequence for a log that is emptied after `more` further transactions. One number is left out, so that no old block of the log
    /// is ever taken for one of a new transaction.
    pub(crate) fn next(self, more: u32) -> Tid {
        Tid::new(self.tid.get().wrapping_add(more).wrapping_add(1))
    }
}

/// What the log holds.
#[derive(Debug)]
pub(super) struct Scan {
    /// The parts of all transactions. Only those of transactions before `end` count.
    pub(super) pieces: Vec<Piece>,
    /// The first transaction that is not, or not completely, in the log.
    pub(super) end: Tid,
    /// The block of the log where that transaction begins, or would begin.
    pub(super) end_at: u32,
    /// The number of transactions before `end`.
    pub(super) transactions: u32,
    /// Set if the log ends with this transaction because of damage, not because nothing more was written.
    pub(super) damaged: Option<Tid>,
}

/// Whether the log goes on after a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Go,
    End,
}

struct Scanner<'a> {
    log: &'a mut dyn LogBlocks,
    form: LogForm,
    ring: Ring,
    asynchronous: bool,
    /// The transaction that the next block must belong to.
    tid: Tid,
    sum: TransactionSum,
    /// The time of the last commit block, in seconds.
    committed: Option<u64>,
    /// A wrong checksum in the transaction that is being scanned.
    doubt: Option<FormatError>,
    /// In a log with asynchronous commits: the transaction whose commit block had a wrong checksum.
    pending: Option<Tid>,
    damaged: Option<Tid>,
    pieces: Vec<Piece>,
}

/// The area of the log, which wraps around at its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    first: u32,
    end: u32,
}

impl Ring {
    pub(super) fn of(journal: &JournalSuper) -> Ring {
        Ring {
            first: journal.first,
            end: journal.log_end(),
        }
    }

    pub(super) fn len(self) -> u32 {
        self.end - self.first
    }

    /// The block that is `by` blocks after `at`; `by` is at most the log's length.
    pub(super) fn step(self, at: u32, by: u32) -> u32 {
        let (into, len) = (
            u64::from(at - self.first) + u64::from(by),
            u64::from(self.len()),
        );
        // The remainder is less than the length, which is a u32.
        self.first + (into % len) as u32
    }
}

/// Scans the log.
pub(super) fn scan(journal: &JournalSuper, log: &mut dyn LogBlocks) -> Result<Scan, Error> {
    let ring = Ring::of(journal);
    let mut scanner = Scanner {
        log,
        form: journal.form(),
        ring,
        asynchronous: journal.features.async_commit(),
        tid: journal.sequence,
        sum: TransactionSum::default(),
        committed: None,
        doubt: None,
        pending: None,
        damaged: None,
        pieces: Vec::new(),
    };
    let (mut at, mut left) = (journal.start, ring.len());
    let mut end_at = at;
    // In a log that is completely in use, the scan would come back to its start, where the sequence is wrong.
    while left > 0 {
        let before = scanner.tid;
        let taken = match scanner.block(at)? {
            Some(taken) if taken <= left => taken,
            _ => break,
        };
        left -= taken;
        at = ring.step(at, taken);
        if scanner.tid != before && scanner.pending.is_none() {
            end_at = at;
        }
    }
    Ok(scanner.finish(journal.sequence, end_at))
}

impl Scanner<'_> {
    /// Scans the block at `at` with the copies that belong to it. Returns the number of blocks, or None at the log's end.
    fn block(&mut self, at: u32) -> Result<Option<u32>, Error> {
        let raw = self.log.read(at)?;
        let Some(header) = LogHeader::parse(raw).filter(|h| h.sequence == self.tid) else {
            return Ok(None);
        };
        match header.kind {
            LogBlockKind::Descriptor => self.descriptor(at),
            LogBlockKind::Revoke => {
                let blocks = self.form.revoked(at, raw);
                if let Err(e @ FormatError::Corrupt(Corrupt::JournalRevokeChecksum { .. })) =
                    &blocks
                {
                    self.doubt = Some(e.clone());
                }
                let tid = self.tid;
                self.pieces.push(Piece::Revoked { tid, blocks });
                Ok(Some(1))
            }
            LogBlockKind::Commit => Ok((self.commit(at)? == Next::Go).then_some(1)),
            LogBlockKind::Other(_) => Ok(None),
        }
    }

    fn descriptor(&mut self, at: u32) -> Result<Option<u32>, Error> {
        let raw = self.log.read(at)?;
        if let Err(e) = self.form.verify_descriptor(at, raw) {
            self.doubt = Some(e);
        }
        let tags = self.form.tags(raw)?;
        let count = u32::try_from(tags.len()).unwrap_or(u32::MAX);
        if count >= self.ring.len() {
            return Ok(None);
        }
        if self.form.checksum == JournalChecksum::V1 {
            self.sum = self.sum.with(raw);
            for n in 1..=count {
                let copy = self.log.read(self.ring.step(at, n))?;
                self.sum = self.sum.with(copy);
            }
        }
        self.pieces.push(Piece::Copies {
            tid: self.tid,
            first: self.ring.step(at, 1),
            tags,
        });
        Ok(Some(count + 1))
    }

    fn commit(&mut self, at: u32) -> Result<Next, Error> {
        let raw = self.log.read(at)?;
        let commit = self.form.commit(raw, self.sum)?;
        let older = self.committed.is_some_and(|t| commit.seconds < t);
        if let Some(wrong) = self.doubt.take() {
            let tid = self.tid;
            return if older {
                Ok(Next::End)
            } else {
                Err(Error::from(wrong).at(format!("journal transaction {tid}")))
            };
        }
        let v1 = self.form.checksum == JournalChecksum::V1;
        if v1 && self.pending.is_some() {
            self.damaged = self.pending;
            return Ok(Next::End);
        }
        if matches!(commit.sum, CommitSum::Bad { .. }) {
            if older {
                return Ok(Next::End);
            }
            if !self.asynchronous {
                self.damaged = Some(self.tid);
                return Ok(Next::End);
            }
            self.pending = Some(self.tid);
        }
        self.committed = Some(commit.seconds);
        self.tid = Tid::new(self.tid.get().wrapping_add(1));
        self.sum = TransactionSum::default();
        Ok(Next::Go)
    }

    fn finish(self, first: Tid, end_at: u32) -> Scan {
        let end = self.pending.unwrap_or(self.tid);
        Scan {
            pieces: self.pieces,
            end,
            end_at,
            transactions: end.get().wrapping_sub(first.get()),
            damaged: self.damaged,
        }
    }
}
