//! The files of the volume itself: the journal, the orphan file, and what keeps space for growing.
//!
//! Input: a [`Plan`], and the [`Space`] that its groups left. Output: [`Files`]: inodes, and the blocks with their contents. Invariant: a
//! block is named by one file. Limits: directories are no matter of this module. Source: the kernel's ext4 documentation
//! ("special inodes", "journal", "orphan file"); the shape of the inode for growing by experiment with mke2fs and debugfs.

mod bad;
mod quota;

pub(crate) use bad::{in_copies, keep_off};

use crate::error::Error;
use crate::fill::Filling;
use crate::map;
use crate::options::MkfsOptions;
use crate::plan::{Has, Plan};
use crate::space::Space;
use crate::tree::Tree;
use diorite_format::extent::Extent;
use diorite_format::features::{Compat, Incompat};
use diorite_format::inode::{I_BLOCK_SIZE, Inode, InodeFlags, NewInode};
use diorite_format::{FileBlock, FsBlock, GroupNo, Ino, Superblock, indirect, journal, mmp};
use std::collections::BTreeMap;
use std::ops::Range;

/// Slots of an inode with direct pointers.
const DIRECT: u64 = 12;

/// What is written for the files.
pub(crate) struct Files {
    /// Blocks and their contents.
    pub(crate) blocks: BTreeMap<u64, Vec<u8>>,
    /// Blocks that must read as zeros.
    pub(crate) zeros: Vec<Range<u64>>,
    pub(crate) inodes: Vec<Inode>,
    /// Blocks behind the descriptors, and where their copies are.
    pub(crate) kept: Option<Kept>,
    /// The orphan file, which names nothing, and its blocks.
    pub(crate) orphans: Option<(Inode, Vec<Range<u64>>)>,
    /// Clusters that are not metadata of the volume: the orphan file, maps, the root of the inode for growing.
    pub(crate) of_files: u64,
    /// The last inode that the volume has for itself, `lost+found` among them.
    pub(crate) last_own: u32,
}

impl Files {
    /// Adds the usage files, once all places of a tree are known.
    pub(crate) fn with_usage<'s>(
        self,
        plan: &mut Plan,
        sb: &'s Superblock,
        space: &mut Space<'s>,
        filling: &Filling,
        tree: &Tree,
    ) -> Result<Files, Error> {
        let files = self;
        let mut maker = Maker {
            plan,
            sb,
            space,
            files,
        };
        maker.usage_files(filling, tree)?;
        Ok(maker.files)
    }

    /// Another inode of the volume's own.
    pub(crate) fn next_own(&mut self) -> Ino {
        self.last_own += 1;
        Ino::new(self.last_own)
    }
}

/// Blocks that are kept so that the descriptors can grow: the inode for growing has them. Its doubly indirect block has a slot for each
/// block of descriptors; the block that is kept behind the primary ones names those behind the copies.
pub struct Kept {
    /// Those behind the primary descriptors.
    pub blocks: Range<u64>,
    /// How far behind them those of each copy are.
    pub copies: Vec<u64>,
}

impl Kept {
    /// Those of a volume.
    #[must_use]
    pub fn of(sb: &Superblock) -> Kept {
        // As readers compute them: so many groups behind the primary ones.
        let per_group = u64::from(sb.geometry().blocks_per_group());
        let copies = sb
            .groups_with_copies()
            .map(|group| u64::from(group.get()) * per_group)
            .collect();
        let first = sb.super_block().get() + u64::from(sb.geometry().gdt_blocks()) + 1;
        let count = u64::from(sb.geometry().reserved_gdt_blocks());
        let blocks = first..first + count;
        Kept { blocks, copies }
    }

    /// What the doubly indirect block of the inode holds.
    pub fn fill_root(&self, sb: &Superblock, raw: &mut [u8]) -> Result<(), Error> {
        raw.fill(0);
        let slots = indirect::pointers_per_block(sb);
        for (n, own) in (sb.geometry().gdt_blocks()..).zip(self.blocks.clone()) {
            indirect::set_pointer(sb, raw, n % slots, FsBlock::new(own))?;
        }
        Ok(())
    }

    /// Sectors of the inode, its doubly indirect block among them. Each block counts as a cluster.
    pub fn sectors(&self, sb: &Superblock) -> u64 {
        let count = self.blocks.end - self.blocks.start;
        let blocks = 1 + count * (1 + self.copies.len() as u64);
        blocks * u64::from(sb.geometry().cluster_size() / 512)
    }

    /// What one of them holds: the places of those that are kept behind the copies.
    pub fn fill(&self, sb: &Superblock, block: u64, raw: &mut [u8]) -> Result<(), Error> {
        raw.fill(0);
        for (slot, copy) in (0..).zip(&self.copies) {
            indirect::set_pointer(sb, raw, slot, FsBlock::new(copy + block))?;
        }
        Ok(())
    }
}

pub(crate) struct Maker<'a, 's> {
    pub(crate) plan: &'a mut Plan,
    pub(crate) sb: &'s Superblock,
    pub(crate) space: &'a mut Space<'s>,
    pub(crate) files: Files,
}

/// Places the files. Writes into the plan's superblock what names them.
pub(crate) fn make<'s>(
    plan: &mut Plan,
    sb: &'s Superblock,
    space: &mut Space<'s>,
    options: &MkfsOptions,
) -> Result<Files, Error> {
    let mut maker = Maker {
        plan,
        sb,
        space,
        files: Files {
            blocks: BTreeMap::new(),
            zeros: Vec::new(),
            inodes: Vec::new(),
            kept: None,
            orphans: None,
            of_files: 0,
            last_own: sb.geometry().first_ino(),
        },
    };
    maker.bad_blocks(&options.bad_blocks)?;
    maker.for_growing()?;
    maker.mount_protection(options)?;
    maker.journal(options)?;
    maker.orphan_file(options)?;
    maker.number_usage_files();
    Ok(maker.files)
}

impl Maker<'_, '_> {
    pub(crate) fn block_size(&self) -> usize {
        self.sb.block_size() as usize
    }

    pub(crate) fn fresh(&self, ino: Ino, mode: u16) -> Inode {
        let time = self.plan.made_at();
        let mut inode = Inode::fresh(
            self.sb,
            &NewInode {
                ino,
                mode,
                uid: 0,
                gid: 0,
                projid: 0,
                flags: InodeFlags::default(),
                generation: 0,
                time,
            },
        );
        if inode.crtime.is_some() {
            inode.crtime = Some(time);
        }
        inode
    }

    pub(crate) fn clusters(&self, blocks: u64) -> u64 {
        blocks.div_ceil(self.sb.geometry().cluster_ratio().into())
    }

    pub(crate) fn block(&mut self, at: u64) -> &mut Vec<u8> {
        let size = self.block_size();
        self.files.blocks.entry(at).or_insert_with(|| vec![0; size])
    }

    /// The inode that keeps blocks behind the descriptors, so that those can grow in place: see [`Kept`].
    fn for_growing(&mut self) -> Result<(), Error> {
        if !Has(&self.plan.sb.features).compat(Compat::RESIZE_INODE) {
            return Ok(());
        }
        let mut inode = self.fresh(Ino::RESIZE, 0o100_600);
        inode.flags = InodeFlags::default();
        inode.i_block = [0; I_BLOCK_SIZE];
        let (size, slots) = (
            u64::from(self.sb.block_size()),
            indirect::pointers_per_block(self.sb),
        );
        let root = self.space.for_file(1, "the inode for growing")?[0].start;
        let (kept, sb) = (Kept::of(self.sb), self.sb);
        kept.fill_root(sb, self.block(root))?;
        indirect::set_root_pointer(sb, &mut inode.i_block, 13, FsBlock::new(root))?;
        inode.blocks = kept.sectors(sb);
        self.files.kept = Some(kept);
        inode.size = (DIRECT + u64::from(slots) + u64::from(slots) * u64::from(slots)) * size;
        self.files.of_files += 1;
        self.files.inodes.push(inode);
        Ok(())
    }

    /// resize2fs moves what lies where descriptors and tables need room, and leaves the checksums of this file's blocks, which have the
    /// numbers of the blocks in them, as they were: the kernel would refuse the volume. So this file lies behind the journal or, where
    /// the journal is elsewhere, in the middle of a group in the middle of the volume.
    fn orphan_file(&mut self, options: &MkfsOptions) -> Result<(), Error> {
        let blocks = u64::from(self.plan.orphan_blocks);
        if blocks == 0 {
            return Ok(());
        }
        let ino = self.files.next_own();
        let mut inode = self.fresh(ino, 0o100_600);
        let is_behind_journal = self.plan.journal_blocks > 0 && options.journal_at.is_none();
        let what = "the orphan file";
        let runs = match is_behind_journal {
            true => self.space.for_file(blocks, what)?,
            false => self.space.for_file_at(self.far_in(), blocks, what)?,
        };
        self.map(&mut inode, &runs)?;
        self.files.orphans = Some((inode.clone(), runs));
        self.plan.sb.orphan_file = ino;
        self.files.inodes.push(inode);
        self.files.of_files += self.clusters(blocks);
        Ok(())
    }

    /// A block as far from the heads of groups as there is one.
    fn far_in(&self) -> u64 {
        let group = GroupNo::new(self.sb.group_count() / 2);
        self.sb.group_first_block(group).get() + u64::from(self.sb.group_blocks(group)) / 2
    }

    fn mount_protection(&mut self, options: &MkfsOptions) -> Result<(), Error> {
        if Has(&self.plan.sb.features).incompat(Incompat::MMP) {
            let block = self.space.for_file(1, "multiple-mount protection")?[0].start;
            let interval = self.plan.sb.mmp_interval;
            let mut raw = vec![0; self.block_size()];
            mmp::init_block(self.sb, options.time, interval, &mut raw)?;
            let (node, device) = &options.mmp_names;
            mmp::set_names(self.sb, (node, device), &mut raw)?;
            *self.block(block) = raw;
            self.plan.sb.mmp_block = FsBlock::new(block);
            self.files.of_files += 1;
        }
        Ok(())
    }

    fn journal(&mut self, options: &MkfsOptions) -> Result<(), Error> {
        let blocks = self.plan.journal_blocks;
        if blocks == 0 {
            return Ok(());
        }
        let mut inode = self.fresh(Ino::JOURNAL, 0o100_600);
        let runs = match options.journal_at {
            Some(at) => self.space.for_file_at(at, blocks.into(), "the journal")?,
            None => self.space.for_file(blocks.into(), "the journal")?,
        };
        self.map(&mut inode, &runs)?;
        let mut raw = vec![0; self.block_size()];
        let new = journal::write::NewJournal {
            block_size: self.sb.block_size(),
            maxlen: blocks,
            first: 1,
            users: 1,
            fc_blocks: self.plan.fast_commit_blocks,
            uuid: self.plan.sb.uuid,
        };
        journal::write::init_super(&new, &mut raw);
        *self.block(runs[0].start) = raw;
        let sb = &mut self.plan.sb;
        sb.journal = Ino::JOURNAL;
        sb.back_up_journal(&inode);
        self.files.inodes.push(inode);
        self.files.zeros.extend(runs);
        Ok(())
    }

    /// Gives an inode these blocks, in order: its map, its size and its space.
    pub(crate) fn map(&mut self, inode: &mut Inode, runs: &[Range<u64>]) -> Result<(), Error> {
        let mut at = 0;
        let mut extents = Vec::new();
        for run in runs {
            extents.push(Extent {
                block: FileBlock::new(at),
                len: (run.end - run.start) as u32,
                start: FsBlock::new(run.start),
                unwritten: false,
            });
            at += run.end - run.start;
        }
        let size = u64::from(self.sb.block_size());
        inode.size = at * size;
        let space = &mut *self.space;
        let mut take = || Ok(space.for_file(1, "the map of the journal")?[0].start);
        let upper = map::make(self.sb, inode, extents, &mut take)?;
        let ratio = u64::from(self.sb.geometry().cluster_ratio());
        inode.blocks = (at.next_multiple_of(ratio) + ratio * upper.len() as u64) * (size / 512);
        // Such blocks are no metadata of the volume, either.
        self.files.of_files += upper.len() as u64;
        self.files.blocks.extend(upper);
        Ok(())
    }
}
