//! Files of the file system itself, made and taken away: the orphan file, blocks kept for descriptors, the block against several mounts.
//!
//! Input: an [`Image`]. Output: the image with such a file or without. Invariants: a file that is not empty is refused; afterwards its
//! blocks are free, and its inode too, or cleared if it is a reserved one. Limits: places are the first free ones.

use super::image::Image;
use super::journal::own_inode;
use super::tree::Map;
use crate::error::Error;
use diorite_format::features::{Compat, Incompat, RoCompat};
use diorite_format::inode::InodeFlags;
use diorite_format::mmp::{self, Mmp, MmpState};
use diorite_format::{FsBlock, GroupNo, Ino, orphan};
use diorite_mkfs::parts::usual_orphan_blocks;
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

impl Image {
    /// Whether the file system has a feature.
    pub(super) fn has_compat(&self, one: Compat) -> bool {
        self.sb.features().compat.has(one)
    }

    pub(super) fn has_incompat(&self, one: Incompat) -> bool {
        self.sb.features().incompat.has(one)
    }

    pub(super) fn has_ro(&self, one: RoCompat) -> bool {
        self.sb.features().ro_compat.has(one)
    }

    fn ratio(&self) -> u64 {
        u64::from(self.sb.geometry().cluster_ratio())
    }

    /// Frees everything that an inode maps, with the nodes of its map. Blocks.
    pub(super) fn free_map(&mut self, ino: Ino) -> Result<Map, Error> {
        let inode = self.inode(ino)?;
        let map = self.map(&inode)?;
        for run in map.places(self.ratio()) {
            self.free_blocks(run)?;
        }
        Ok(map)
    }

    /// Takes away an own file: a reserved inode stays, empty. Blocks.
    pub(super) fn remove_own(&mut self, ino: Ino) -> Result<(), Error> {
        self.free_map(ino)?;
        match ino.get() < self.sb.geometry().first_ino() {
            true => self.clear_inode(ino),
            false => self.free_inode(ino),
        }
    }

    /// Makes an own file of these bytes, whole blocks of it, hidden from names. Blocks.
    pub(super) fn make_own(
        &mut self,
        ino: Ino,
        blocks: u64,
        flags: InodeFlags,
    ) -> Result<Vec<FsBlock>, Error> {
        let group = self.sb.inode_place(ino)?.group;
        let mut runs = self.take_space(group, blocks)?;
        // Of its last cluster it has what it needs.
        let more = runs.iter().map(|run| run.end - run.start).sum::<u64>() - blocks;
        if let Some(last) = runs.last_mut() {
            last.end -= more;
        }
        let mut inode = own_inode(self, ino);
        self.make_map(&mut inode, &runs, &mut |image| {
            Ok(image.take_space(group, 1)?[0].start)
        })?;
        inode.size = blocks * u64::from(self.sb.block_size());
        inode.flags = inode.flags.with(flags);
        self.put_new_inode(&inode)?;
        Ok(runs.into_iter().flatten().map(FsBlock::new).collect())
    }

    /// Takes the orphan file away. Blocks.
    pub(super) fn remove_orphan_file(&mut self) -> Result<(), Error> {
        let Some(ino) = self.sb.orphan_file() else {
            return Ok(());
        };
        let inode = self.inode(ino)?;
        for (_, at) in self.map(&inode)?.blocks() {
            let raw = self.block(at)?;
            if !orphan::parse_block(&self.sb, &inode, at, &raw)?.is_empty() {
                return Err(unfinished());
            }
        }
        self.remove_own(ino)?;
        self.edit_super(|edit| edit.set_orphan_file(Ino::new(0)))
    }

    /// Makes an orphan file of so many blocks, or of as many as usual. Blocks.
    pub(super) fn add_orphan_file(&mut self, blocks: Option<u32>) -> Result<(), Error> {
        if self.sb.orphan_file().is_some() {
            return Ok(());
        }
        if !self.has_compat(Compat::HAS_JOURNAL) {
            let what = "the feature orphan_file: it needs a journal";
            return Err(Error::NotSupported(what.to_owned()));
        }
        let usual = usual_orphan_blocks(&self.sb);
        let ino = self.take_inode()?;
        let places = self.make_own(ino, blocks.unwrap_or(usual).into(), InodeFlags::default())?;
        let inode = self.inode(ino)?;
        let mut raw = vec![0; self.sb.block_size() as usize];
        for at in places {
            orphan::init_block(&self.sb, &inode, at, &mut raw)?;
            self.put(at, &raw);
        }
        self.edit_super(|edit| edit.set_orphan_file(ino))
    }

    /// Gives the blocks back that are kept for descriptors. Blocks.
    pub(super) fn remove_kept_blocks(&mut self) -> Result<(), Error> {
        if !self.has_compat(Compat::RESIZE_INODE) {
            return Ok(());
        }
        let before = self.free_clusters();
        let inode = self.inode(Ino::RESIZE)?;
        if !inode.is_free() && self.ratio() == 1 {
            self.remove_own(Ino::RESIZE)?;
        } else if !inode.is_free() {
            for cluster in self.kept_clusters()? {
                self.free_blocks(cluster..cluster + self.ratio())?;
            }
            self.clear_inode(Ino::RESIZE)?;
        }
        let given = self.free_clusters().saturating_sub(before);
        self.count_overhead(-i64::try_from(given).unwrap_or(0))?;
        self.edit_super(|edit| edit.forget_kept_blocks())
    }

    /// The first blocks of the clusters that have nothing but blocks kept for descriptors, and blocks that lead to those. Blocks.
    ///
    /// Others have the superblock, descriptors, bitmaps or inodes beside them, and stay in use. The map of the resize inode is no measure:
    /// with blocks of 1 KiB mke2fs lets it lead to one block too many, which may be in somebody's cluster.
    fn kept_clusters(&self) -> Result<BTreeSet<u64>, Error> {
        let ratio = self.ratio();
        let around =
            |run: Range<u64>| (run.start - run.start % ratio..run.end).step_by(ratio as usize);
        let mut probe = self.clone();
        probe.edit_super(|edit| edit.forget_kept_blocks())?;
        let mut kept = BTreeSet::new();
        let mut used = Vec::new();
        for (group, desc) in self.group_numbers().zip(&self.groups) {
            let start = self.sb.group_first_block(group).get();
            let head = start + u64::from(probe.sb.group_head_blocks(group));
            kept.extend(around(
                head..start + u64::from(self.sb.group_head_blocks(group)),
            ));
            let table = desc.inode_table.get();
            used.extend([
                start..head,
                desc.block_bitmap.get()..desc.block_bitmap.get() + 1,
                desc.inode_bitmap.get()..desc.inode_bitmap.get() + 1,
                table..table + u64::from(self.sb.geometry().inode_table_blocks()),
            ]);
        }
        let inode = self.inode(Ino::RESIZE)?;
        for node in self.map(&inode)?.nodes() {
            kept.extend(around(node.get()..node.get() + 1));
        }
        for run in used.into_iter().filter(|run| !run.is_empty()) {
            for cluster in around(run) {
                kept.remove(&cluster);
            }
        }
        Ok(kept)
    }

    pub(super) fn free_clusters(&self) -> u64 {
        self.groups
            .iter()
            .map(|desc| u64::from(desc.free_clusters))
            .sum()
    }

    /// Changes the count of clusters that are no file's, if it is known.
    pub(super) fn count_overhead(&mut self, by: i64) -> Result<(), Error> {
        let now = self.sb.info().overhead_clusters;
        let new = i64::from(now) + by;
        match u32::try_from(new) {
            Ok(new) if now != 0 => self.edit_super(|edit| edit.set_overhead(new)),
            _ => Ok(()),
        }
    }

    /// The block against several mounts, checked. Blocks.
    fn mmp(&self) -> Result<(Vec<u8>, MmpState), Error> {
        let at = self.sb.mmp_block();
        let raw = self.block(at)?.to_vec();
        let state = Mmp::parse(&self.sb, &raw)?.state;
        Ok((raw, state))
    }

    /// Takes the block against several mounts away. Blocks.
    pub(super) fn remove_mmp(&mut self) -> Result<(), Error> {
        if !self.has_incompat(Incompat::MMP) {
            return Ok(());
        }
        let at = self.sb.mmp_block().get();
        let first = at - at % self.ratio();
        self.free_blocks(first..first + self.ratio())?;
        self.edit_super(|edit| edit.set_mmp(FsBlock::NONE, 0))
    }

    /// Makes a block against several mounts, with updates after so many seconds. Blocks.
    pub(super) fn add_mmp(
        &mut self,
        interval: u16,
        (node, device): &(String, String),
        now: Duration,
    ) -> Result<(), Error> {
        if self.has_incompat(Incompat::MMP) {
            return Ok(());
        }
        let at = FsBlock::new(self.take_space(GroupNo::new(0), 1)?[0].start);
        let mut raw = vec![0; self.sb.block_size() as usize];
        let seconds = i64::try_from(now.as_secs()).unwrap_or(0);
        mmp::init_block(&self.sb, seconds, interval, &mut raw)?;
        mmp::set_names(&self.sb, (node, device), &mut raw)?;
        self.put(at, &raw);
        self.edit_super(|edit| edit.set_mmp(at, interval))
    }

    /// Refuses if a host has the file system mounted. Blocks.
    pub(super) fn check_mmp(&self) -> Result<(), Error> {
        if !self.has_incompat(Incompat::MMP) {
            return Ok(());
        }
        match self.mmp()? {
            (_, MmpState::Clean) => Ok(()),
            _ => Err(mounted_elsewhere()),
        }
    }

    /// Sets the seconds between updates of the block against several mounts. Blocks.
    pub(super) fn set_mmp_interval(&mut self, seconds: u16) -> Result<(), Error> {
        let (mut raw, _) = self.mmp()?;
        mmp::set_interval(&self.sb, &mut raw, seconds);
        self.put(self.sb.mmp_block(), &raw);
        self.edit_super(|edit| edit.set_mmp_interval(seconds))
    }

    /// Marks the file system as mounted by nobody, whatever its block says. Blocks.
    pub(super) fn clear_mmp(&mut self) -> Result<(), Error> {
        if !self.has_incompat(Incompat::MMP) {
            let what = "clearing the mmp block: the file system has no mmp";
            return Err(Error::NotSupported(what.to_owned()));
        }
        let at = self.sb.mmp_block();
        let mut raw = self.block(at)?.to_vec();
        mmp::set_clean(&self.sb, &mut raw);
        self.put(at, &raw);
        Ok(())
    }
}

/// The file system was not closed, and has inodes to delete.
pub(super) fn unfinished() -> Error {
    Error::refused(
        "it has files that wait to be deleted",
        "run e2fsck -f first",
    )
}

fn mounted_elsewhere() -> Error {
    let what = "a host has it mounted, or had when it failed (mmp)";
    Error::refused(what, "if none has: 'diorite tune -f -E clear_mmp'")
}
