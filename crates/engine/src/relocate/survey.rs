//! Finds, before anything is changed, what lies behind the limit or in its region, and whether it can move.
//!
//! Input: a file system with nothing uncommitted, whose allocator hands out nothing behind the limit. Output: the inodes that have
//! something there. Invariants: nothing is changed; every block in use behind the limit has one owner that is known here; what cannot move
//! is refused by name, and so is a lack of space or inodes in front of the limit. Limits: maps may need more nodes than before, which no
//! count tells beforehand; holds four bytes for each inode that has something to move.

use super::attributes::{self, Users};
use super::job::{HELP, Limit};
use super::log;
use super::numbers::Plan;
use super::owners::Owners;
use super::tree::{Part, node_of, read_inode, walk};
use crate::alloc::Region;
use crate::error::Error;
use crate::inode::Fs;
use crate::map::root_segments;
use diorite_format::superblock::JournalPlace;
use diorite_format::{FsBlock, GroupNo, Ino, Inode as DiskInode};
use std::collections::BTreeSet;

/// What there is to move.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Inodes with a part of their map or of their data behind the limit.
    pub(super) files: Vec<Ino>,
    /// The journal's inode, if a part of the journal is behind the limit.
    pub(super) journal: Option<Ino>,
    /// Blocks of attributes behind the limit, with their users.
    pub(super) attributes: Users,
    /// Inodes behind the limit.
    pub(super) numbers: Plan,
    /// Blocks of whole clusters that have to move.
    pub(super) blocks: u64,
}

impl Survey {
    /// Looks at the volume. Blocks while metadata is read.
    pub(super) fn make(fs: &Fs, limit: &Limit) -> Result<Survey, Error> {
        check_limit(fs, limit)?;
        let mut look = Look {
            fs,
            limit,
            owners: Owners::new(limit.region.clone()),
            survey: Survey::default(),
            inodes: BTreeSet::new(),
        };
        look.fixed()?;
        let alloc = fs.alloc()?;
        for group in (0..fs.sb.group_count()).map(GroupNo::new) {
            for ino in alloc.used_inodes(fs, group)? {
                look.inode(ino)?;
            }
        }
        let Look {
            owners,
            mut survey,
            inodes,
            ..
        } = look;
        owners.check(fs)?;
        for (at, users) in &survey.attributes {
            attributes::check(fs, *at, users)?;
        }
        let (free, _) = alloc.now_free();
        if survey.blocks > free {
            let asked = survey.blocks;
            return Err(Error::NoSpace { asked, free });
        }
        survey.numbers = Plan::make(fs, inodes, Ino::new(limit.inodes))?;
        Ok(survey)
    }
}

/// Checks the limit itself, and that the structures that do not move lie elsewhere.
fn check_limit(fs: &Fs, limit: &Limit) -> Result<(), Error> {
    let geometry = fs.sb.geometry();
    let ratio = u64::from(geometry.cluster_ratio());
    let end = geometry.blocks_count();
    let to_the_end = limit.region.runs().find(|run| run.end >= end);
    let whole = limit.region.runs().all(|run| {
        let ends = run.end >= end || run.end.is_multiple_of(ratio);
        ends && run.start.is_multiple_of(ratio) && run.start <= end
    });
    let groups = to_the_end.map_or(geometry.group_count(), |run| {
        let last = FsBlock::new(run.start.saturating_sub(1));
        fs.sb.group_of(last).map_or(0, |group| group.get() + 1)
    });
    let inodes = groups.saturating_mul(geometry.inodes_per_group());
    if groups == 0 || !whole || limit.inodes != inodes {
        let what = format!("{limit:?} is no part of this volume");
        return Err(Error::Invalid(what));
    }
    if groups < geometry.group_count() || limit.region.has(end - 1) {
        check_groups_stay(fs, limit, groups)?;
    }
    let mmp = fs.sb.mmp_block();
    if limit.region.has(mmp.get()) {
        let what = format!("the block for multiple mount protection is at block {mmp}");
        return Err(Error::refused(
            what,
            "turn the feature off: diorite tune -O ^mmp",
        ));
    }
    Ok(())
}

/// Checks that the structures of the groups in front of the limit lie there, too.
fn check_groups_stay(fs: &Fs, limit: &Limit, groups: u32) -> Result<(), Error> {
    let table = u64::from(fs.sb.geometry().inode_table_blocks());
    for desc in fs.groups.iter().take(groups as usize) {
        let group = desc.group;
        let first = fs.sb.group_first_block(group).get();
        let head = u64::from(fs.sb.group_head_blocks(group));
        let parts = [
            (desc.block_bitmap.get(), 1, "block bitmap"),
            (desc.inode_bitmap.get(), 1, "inode bitmap"),
            (desc.inode_table.get(), table, "inode table"),
            (first, head, "superblock and group descriptors"),
        ];
        for (at, len, what) in parts {
            if let Some(part) = limit.region.inside(at..at + len).last() {
                let at = part.end - 1;
                let what = format!("the {what} of group {group}, which stays, are at block {at}");
                return Err(Error::refused(what, HELP));
            }
        }
    }
    Ok(())
}

struct Look<'a> {
    fs: &'a Fs,
    limit: &'a Limit,
    owners: Owners,
    survey: Survey,
    inodes: BTreeSet<Ino>,
}

impl Look<'_> {
    /// The structures at fixed places, and the block of the resize inode that points to the reserved ones and lies anywhere.
    fn fixed(&mut self) -> Result<(), Error> {
        let fs = self.fs;
        add_fixed(fs, &mut self.owners)?;
        let root = root_segments(fs, &read_inode(fs, Ino::RESIZE)?)?;
        let mut nodes = root.iter().filter(|segment| segment.is_unloaded());
        if nodes.any(|node| self.limit.region.has(node_of(node).get())) {
            self.survey.files.push(Ino::RESIZE);
            self.survey.blocks += u64::from(fs.sb.geometry().cluster_ratio());
        }
        Ok(())
    }

    fn inode(&mut self, ino: Ino) -> Result<(), Error> {
        if ino == Ino::RESIZE {
            return Ok(());
        }
        let fs = self.fs;
        let disk = read_inode(fs, ino)?;
        if disk.is_free() && ino != Ino::BAD_BLOCKS {
            return match ino.get() > self.limit.inodes {
                true => Err(Error::Damaged(format!(
                    "inode {ino} is in use and empty; run e2fsck -f"
                ))),
                false => Ok(()),
            };
        }
        self.check_number(&disk)?;
        let before = self.survey.blocks;
        self.owners.next_owner();
        let (owners, blocks) = (&mut self.owners, &mut self.survey.blocks);
        walk(fs, &disk, &mut |part| {
            *blocks += match part {
                Part::Node(at) => owners.add_node(&fs.sb, at)?,
                Part::Data(data) => owners.add(&fs.sb, data.at, data.len)?,
            };
            Ok(())
        })?;
        if self.survey.blocks > before {
            self.check_movable(&disk)?;
            if matches!(fs.sb.journal(), JournalPlace::Internal(journal) if journal == ino) {
                if !log::moves_in_parts(fs) {
                    self.survey.blocks = before + all_blocks(fs, &disk)?;
                }
                self.survey.journal = Some(ino);
            } else {
                self.survey.files.push(ino);
            }
        }
        self.attributes(&disk)
    }

    fn attributes(&mut self, disk: &DiskInode) -> Result<(), Error> {
        let at = disk.file_acl;
        if !self.limit.region.has(at.get()) {
            return Ok(());
        }
        let users = self.survey.attributes.entry(at).or_default();
        if users.is_empty() {
            self.owners.next_owner();
            self.survey.blocks += self.owners.add_node(&self.fs.sb, at)?;
        }
        users.push(disk.ino);
        Ok(())
    }

    fn check_number(&mut self, disk: &DiskInode) -> Result<(), Error> {
        let ino = disk.ino;
        if ino.get() <= self.limit.inodes {
            return Ok(());
        }
        if self.fs.is_own_inode(ino) {
            let what =
                format!("inode {ino} is one of the volume's own, and cannot get another number");
            return Err(Error::refused(what, HELP));
        }
        self.inodes.insert(ino);
        Ok(())
    }

    /// Refuses inodes whose blocks cannot move.
    fn check_movable(&self, disk: &DiskInode) -> Result<(), Error> {
        let (ino, sb) = (disk.ino, &self.fs.sb);
        let in_clusters = sb.geometry().cluster_ratio() > 1;
        let what = match sb.orphan_file() {
            _ if ino == Ino::BAD_BLOCKS => "bad blocks",
            Some(file) if file == ino && in_clusters => "the orphan file of a volume with bigalloc",
            _ => return Ok(()),
        };
        let at = self.limit.region.runs().next().map_or(0, |run| run.start);
        let told = format!("{what} lie at block {at} or behind, and cannot move");
        Err(Error::refused(told, HELP))
    }
}

/// All blocks of an inode's map, in whole clusters.
fn all_blocks(fs: &Fs, disk: &DiskInode) -> Result<u64, Error> {
    let (mut owners, mut blocks) = (Owners::new(Region::behind(0)), 0);
    walk(fs, disk, &mut |part| {
        blocks += match part {
            Part::Node(at) => owners.add_node(&fs.sb, at)?,
            Part::Data(data) => owners.add(&fs.sb, data.at, data.len)?,
        };
        Ok(())
    })?;
    Ok(blocks)
}

/// Adds the structures at fixed places: those of the groups, with the blocks reserved for more group descriptors, and the block of the
/// resize inode that leads to these.
fn add_fixed(fs: &Fs, owners: &mut Owners) -> Result<(), Error> {
    let mut runs: Vec<(FsBlock, u32)> = Vec::new();
    for (at, len, _) in fs.fixed_runs() {
        runs.push((at, u32::try_from(len).unwrap_or(u32::MAX)));
    }
    // What these lead to is reserved in the heads of groups. With clusters and blocks of 1 KiB mke2fs counts one block too far, into a
    // cluster that is not the inode's.
    let root = root_segments(fs, &read_inode(fs, Ino::RESIZE)?)?;
    let nodes = root.iter().filter(|segment| segment.is_unloaded());
    runs.extend(nodes.map(|node| (node_of(node), 1)));
    runs.sort_unstable();
    owners.next_owner();
    let mut next = 0;
    for (at, len) in runs {
        let (start, end) = (at.get().max(next), at.get() + u64::from(len));
        if let Some(rest) = end.checked_sub(start).and_then(|n| u32::try_from(n).ok()) {
            owners.add(&fs.sb, FsBlock::new(start), rest)?;
            next = end;
        }
    }
    Ok(())
}

/// Checks that nothing is in use behind the limit but structures at fixed places. Blocks while metadata is read.
pub(super) fn check_empty(fs: &Fs, limit: &Limit) -> Result<(), Error> {
    let mut owners = Owners::new(limit.region.clone());
    add_fixed(fs, &mut owners)?;
    owners.check(fs)
}
