//! Journals of an [`Image`]: the inode of one, one made, one taken away.
//!
//! Input: an image; places. Output: the image with, or without, a journal. Invariant: the inode of a journal is as mke2fs makes it: a
//! regular file of root's with mode 0600. Limits: what is in the log's blocks is written by the caller.

use super::image::Image;
use crate::error::Error;
use diorite_format::inode::NewInode;
use diorite_format::journal::write as journal;
use diorite_format::superblock::{JournalPlace, journal_backup};
use diorite_format::{FsBlock, GroupDesc, GroupNo, Ino, Inode, InodeFlags, Timestamp};
use diorite_mkfs::parts::usual_journal;
use std::ops::Range;

/// The mode of an inode that is the volume's own: a regular file.
pub(super) const OWN_MODE: u16 = 0o100_600;

/// Makes inode 8 the file of these runs, with nodes of its map in these blocks. Returns the copy of it for the superblock. Blocks.
pub(super) fn log_inode(
    image: &mut Image,
    runs: &[Range<u64>],
    nodes: &[Range<u64>],
) -> Result<[u32; 17], Error> {
    let mut inode = own_inode(image, Ino::JOURNAL);
    let mut nodes = nodes.iter().map(|run| run.start);
    image.make_map(&mut inode, runs, &mut |_| {
        let next = nodes.next();
        next.ok_or_else(|| Error::Invalid("the journal's map needs more nodes".to_owned()))
    })?;
    let blocks: u64 = runs.iter().map(|run| run.end - run.start).sum();
    inode.size = blocks * u64::from(image.sb.block_size());
    image.put_new_inode(&inode)?;
    Ok(journal_backup(&inode.i_block, inode.size))
}

/// A new inode that is the volume's own.
pub(super) fn own_inode(image: &Image, ino: Ino) -> Inode {
    let new = NewInode {
        ino,
        mode: OWN_MODE,
        uid: 0,
        gid: 0,
        projid: 0,
        flags: InodeFlags::default(),
        generation: 0,
        time: Timestamp {
            secs: image.sb.info().mkfs_time,
            nanos: 0,
        },
    };
    let mut inode = Inode::fresh(&image.sb, &new);
    inode.links = 1;
    inode
}

/// A journal to be made inside of the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InnerJournal {
    /// Blocks of its log; `None`: as many as are usual for the file system's size.
    pub blocks: Option<u32>,
    /// Blocks for fast commits behind them.
    pub fast_commit_blocks: u32,
    /// The block from which on it lies, if there is room; `None`: where there is most.
    pub at: Option<u64>,
}

/// Blocks of the smallest journal.
const LEAST: u32 = 1024;

impl Image {
    /// Takes the journal away. The superblock is to be written first: see [`super::log::write_super_first`]. Blocks.
    pub(super) fn remove_journal(&mut self) -> Result<(), Error> {
        let before = self.free_clusters();
        let place = self.sb.journal();
        // First: what frees blocks may not see them as the journal's.
        self.edit_super(|edit| edit.forget_journal())?;
        if let JournalPlace::Internal(ino) = place {
            self.remove_own(ino)?;
        }
        let given = self.free_clusters().saturating_sub(before);
        self.count_overhead(-i64::try_from(given).unwrap_or(0))
    }

    /// Whether inode 8 has something, and the file system no journal: its removal was cut off. Blocks.
    pub(super) fn has_lost_journal(&self) -> Result<bool, Error> {
        if self.sb.journal() != JournalPlace::None {
            return Ok(false);
        }
        let inode = self.inode(Ino::JOURNAL)?;
        Ok(inode.links > 0 && inode.blocks > 0)
    }

    /// Makes a journal. The superblock is to be written last: see [`super::log::write_super_last`]. Returns its runs. Blocks.
    pub(super) fn add_journal(&mut self, new: &InnerJournal) -> Result<Vec<Range<u64>>, Error> {
        if self.sb.journal() != JournalPlace::None {
            return Err(Error::Invalid("the file system has a journal".to_owned()));
        }
        let all = self.sb.geometry().blocks_count();
        let blocks = new.blocks.unwrap_or_else(|| usual_journal(all));
        if blocks < LEAST {
            let what = format!("a journal of {blocks} blocks: it has at least {LEAST}");
            return Err(Error::Invalid(what));
        }
        let want = u64::from(blocks) + u64::from(new.fast_commit_blocks);
        let goal = match new.at {
            Some(at) => self.sb.group_of(FsBlock::new(at)).ok_or_else(|| {
                Error::Invalid(format!("block {at} is outside of the file system"))
            })?,
            None => self.emptiest_group(),
        };
        let runs = match new.at {
            Some(at) => self.take_space_at(at, want)?,
            None => self.take_space(goal, want)?,
        };
        let mut nodes = Vec::new();
        for _ in 0..self.nodes_for(&runs, Ino::JOURNAL)? {
            nodes.extend(self.take_space(goal, 1)?);
        }
        let backup = log_inode(self, &runs, &nodes)?;
        let mut raw = vec![0; self.sb.block_size() as usize];
        let first = journal::NewJournal {
            block_size: self.sb.block_size(),
            maxlen: u32::try_from(want).unwrap_or(u32::MAX),
            first: 1,
            fc_blocks: new.fast_commit_blocks,
            users: 1,
            uuid: *self.sb.uuid(),
        };
        journal::init_super(&first, &mut raw);
        self.put(FsBlock::new(runs[0].start), &raw);
        self.edit_super(|edit| {
            edit.set_journal_inode(Ino::JOURNAL);
            edit.set_journal_backup(&backup);
        })?;
        self.count_overhead(i64::try_from(want).unwrap_or(0))?;
        Ok(runs)
    }

    fn emptiest_group(&self) -> GroupNo {
        let middle = self.sb.group_count() / 2;
        let key = |desc: &&GroupDesc| {
            (
                desc.free_clusters,
                u32::MAX - desc.group.get().abs_diff(middle),
            )
        };
        let best = self.groups.iter().max_by_key(key);
        best.map_or(GroupNo::new(0), |desc| desc.group)
    }
}
