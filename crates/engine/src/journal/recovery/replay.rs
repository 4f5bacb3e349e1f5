//! The second and third pass: which blocks were revoked, and the newest copy of each block that was not.
//!
//! Input: the log. Output: [`Replay`]. Invariants: a revoke in a transaction cancels copies in that transaction and all earlier ones,
//! wherever in the transaction it is; of several copies of a block the last one counts; a copy is verified before it is taken, even if a
//! later one replaces it; its target lies outside the journal, and inside the volume, as large as it is at home or in any copy of its
//! superblock: what lies behind that is left out. Limits: all or nothing: the first copy that fails a check is an error.

use super::fast::fast_commits;
use super::scan::{LogEnd, Piece, Ring, scan};
use super::source::LogBlocks;
use crate::disk::Blocks;
use crate::error::Error;
use diorite_format::journal::{FastCommits, JournalSuper, Tag};
use diorite_format::{FsBlock, Tid};
use std::collections::HashMap;
use std::sync::Arc;

/// What a log holds.
#[derive(Debug)]
pub(crate) struct Replay {
    /// The newest copies, by their places on the volume.
    pub(crate) blocks: Blocks,
    /// The number of transactions in the log.
    pub(crate) transactions: u32,
    /// Where these transactions end.
    pub(crate) end: LogEnd,
    /// Set if this transaction is damaged: nothing from it on was taken.
    pub(crate) damaged: Option<Tid>,
    /// The fast commits after the last transaction; or why they cannot be replayed.
    pub(crate) fast: Result<FastCommits, Error>,
}

/// Decides which blocks of the volume copies may be written to.
pub(crate) trait Target {
    /// The block with the superblock.
    fn superblock(&self) -> FsBlock;

    /// Takes note of a copy of that block which the log holds: the volume may have another size there.
    fn note_superblock(&mut self, copy: &[u8]);

    /// Why nothing may be written to this block; None if it may.
    fn refuses(&self, block: FsBlock) -> Option<&'static str>;

    /// Is it behind the end of the volume, so that a copy of it is not taken? Who makes a volume larger may write what is there before it
    /// writes the superblock, and not come to that.
    fn is_behind(&self, block: FsBlock) -> bool;
}

/// Replays a log in memory, without writing anything.
pub(crate) fn replay(
    journal: &JournalSuper,
    log: &mut dyn LogBlocks,
    target: &mut dyn Target,
) -> Result<Replay, Error> {
    let scan = scan(journal, log)?;
    let pieces = || scan.pieces.iter().filter(|p| scan.end.is_after(p.tid()));
    let mut revoked = HashMap::new();
    for piece in pieces() {
        if let Piece::Revoked { tid, blocks } = piece {
            // Revokes come in the log's order, so the last one of a block is the latest.
            let blocks = blocks.clone()?;
            revoked.extend(blocks.into_iter().map(|block| (block, *tid)));
        }
    }
    let sb = target.superblock();
    each_copy(journal, pieces(), &revoked, |at, tid, tag| {
        if tag.block == sb {
            let copy = take(journal, log, target, at, tid, tag)?;
            target.note_superblock(&copy);
        }
        Ok(())
    })?;
    let mut blocks = Blocks::new();
    // A log in a sparse image may have many holes, which take no space there. All blocks of zeros share one copy in memory.
    let zeros: Arc<[u8]> = vec![0; journal.block_size as usize].into();
    each_copy(journal, pieces(), &revoked, |at, tid, tag| {
        let copy = take(journal, log, target, at, tid, tag)?;
        if target.is_behind(tag.block) {
            return Ok(());
        }
        let is_zeros = copy.iter().all(|b| *b == 0);
        let copy = if is_zeros { zeros.clone() } else { copy.into() };
        blocks.insert(tag.block, copy);
        Ok(())
    })?;
    Ok(Replay {
        blocks,
        transactions: scan.transactions,
        end: LogEnd {
            at: scan.end_at,
            tid: scan.end,
        },
        damaged: scan.damaged,
        fast: fast_commits(journal, log, scan.end),
    })
}

/// Passes the copies that are not revoked to `each`, in the order of the log: the block of the log, the transaction, the tag.
fn each_copy<'p>(
    journal: &JournalSuper,
    pieces: impl Iterator<Item = &'p Piece>,
    revoked: &HashMap<FsBlock, Tid>,
    mut each: impl FnMut(u32, Tid, &Tag) -> Result<(), Error>,
) -> Result<(), Error> {
    for piece in pieces {
        let Piece::Copies { tid, first, tags } = piece else {
            continue;
        };
        for (n, tag) in (0..).zip(tags) {
            let silenced = revoked.get(&tag.block).is_some_and(|r| !tid.is_after(*r));
            if !silenced {
                each(Ring::of(journal).step(*first, n), *tid, tag)?;
            }
        }
    }
    Ok(())
}

impl Piece {
    fn tid(&self) -> Tid {
        match self {
            Piece::Copies { tid, .. } | Piece::Revoked { tid, .. } => *tid,
        }
    }
}

fn take(
    journal: &JournalSuper,
    log: &mut dyn LogBlocks,
    target: &dyn Target,
    at: u32,
    tid: Tid,
    tag: &Tag,
) -> Result<Box<[u8]>, Error> {
    if let Some(why) = target.refuses(tag.block) {
        return Err(Error::Damaged(format!(
            "journal transaction {tid}: block {at} of the log is a copy of block {}, which is {why}; run e2fsck",
            tag.block
        )));
    }
    let copy = log.read(at)?;
    tag.verify(&journal.form(), tid, at, copy)
        .map_err(|e| Error::from(e).at(format!("journal transaction {tid}")))?;
    let mut copy: Box<[u8]> = copy.into();
    tag.unescape(&mut copy);
    Ok(copy)
}

#[cfg(all(test, not(any(feature = "_loom", feature = "_shuttle"))))]
mod tests {
    use super::*;
    use diorite_format::journal::write;
    use std::collections::HashSet;

    /// A log whose blocks are all holes, except these.
    struct Sparse(HashMap<u32, Vec<u8>>, Vec<u8>);

    impl LogBlocks for Sparse {
        fn read(&mut self, at: u32) -> Result<&[u8], Error> {
            Ok(self.0.get(&at).unwrap_or(&self.1))
        }
    }

    struct Anywhere;

    impl Target for Anywhere {
        fn superblock(&self) -> FsBlock {
            FsBlock::new(0)
        }

        fn note_superblock(&mut self, _: &[u8]) {}

        fn refuses(&self, _: FsBlock) -> Option<&'static str> {
            None
        }

        fn is_behind(&self, _: FsBlock) -> bool {
            false
        }
    }

    /// Twenty descriptors, each followed by as many holes as it can name. The defect: memory for each of these blocks.
    #[test]
    fn copies_that_are_holes_take_no_memory() {
        const SIZE: u32 = 4096;
        let words = [0xC03B_3998, 3, 0, SIZE, 100_000, 1, 7, 1];
        let mut raw: Vec<u8> = words.iter().flat_map(|w: &u32| w.to_be_bytes()).collect();
        raw.resize(1024, 0);
        let journal = JournalSuper::parse(&raw, SIZE, 100_000).unwrap();
        let hole = vec![0; SIZE as usize];
        let mut log = Sparse(HashMap::new(), hole.clone());
        let each = u32::try_from(write::tags_per_descriptor(&journal)).unwrap();
        let (mut at, mut named) = (1, 1000);
        for _ in 0..20 {
            let blocks = named..named + u64::from(each);
            let tags = blocks.clone().map(|block| write::Tag {
                block: FsBlock::new(block),
                escaped: false,
                sum: 0,
            });
            let mut descriptor = hole.clone();
            let tags: Vec<_> = tags.collect();
            write::descriptor(&journal, Tid::new(7), &tags, &mut descriptor);
            log.0.insert(at, descriptor);
            at += 1 + each;
            named = blocks.end;
        }
        // The last copy is not a hole.
        let mut data = hole.clone();
        data[SIZE as usize - 1] = 1;
        log.0.insert(at - 1, data.clone());
        let mut commit = hole;
        write::commit(&journal, Tid::new(7), 0, 0, &mut commit);
        log.0.insert(at, commit);
        let found = replay(&journal, &mut log, &mut Anywhere).unwrap().blocks;
        assert_eq!(found.len() as u64, named - 1000);
        let (last, others) = (found[&FsBlock::new(named - 1)].clone(), found.values());
        assert!(*last == data[..] && others.filter(|b| b.iter().any(|x| *x != 0)).count() == 1);
        let held: HashSet<*const u8> = found.values().map(|b| b.as_ptr()).collect();
        assert_eq!(held.len(), 2, "blocks of memory for {} copies", found.len());
    }
}
