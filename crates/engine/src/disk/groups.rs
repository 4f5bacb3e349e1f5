//! Group descriptors, and the inode tables that they point to.
//!
//! Input: the superblock; inode numbers. Output: descriptors; an inode's place in its table, and its contents. Invariants: every
//! descriptor and every inode is checked when it is read. Limits: blocks while the device reads.

use super::cache::Kind;
use super::{Disk, read_bytes};
use crate::error::Error;
use diorite_block::Blocking;
use diorite_format::superblock::JournalPlace;
use diorite_format::{FsBlock, GroupDesc, GroupNo, Ino, Inode as DiskInode, Superblock};

/// What is expected of descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Descriptors {
    /// Each is checked.
    Whole,
    /// The log may have newer ones, and new groups whose descriptors are in the log alone. Only the first group's, which leads to the
    /// journal's inode, has to be there. Inodes of a group that lacks it are not found.
    BeforeReplay,
}

/// Reads and checks the descriptors of all groups. Runs of descriptor blocks are read together.
pub(crate) fn read_groups(
    blocking: &Blocking,
    sb: &Superblock,
    expected: Descriptors,
) -> Result<Box<[GroupDesc]>, Error> {
    const MOST_BLOCKS: u32 = 64;
    let (geometry, block) = (sb.geometry(), sb.block_size() as usize);
    let size = geometry.desc_size() as usize;
    let mut groups = Vec::with_capacity(geometry.group_count() as usize);
    let (mut index, mut lacking) = (0, 0);
    while index < geometry.gdt_blocks() {
        let first = sb.gdt_location(index)?;
        let mut run = 1;
        while run < MOST_BLOCKS
            && index + run < geometry.gdt_blocks()
            && sb.gdt_location(index + run)?.get() == first.get() + u64::from(run)
        {
            run += 1;
        }
        let raw = read_bytes(blocking, sb.byte_of(first).get(), run as usize * block)?;
        for desc in raw.chunks(block).flat_map(|b| b.chunks_exact(size)) {
            let number = u32::try_from(groups.len()).unwrap_or(u32::MAX);
            if number < geometry.group_count() {
                let group = GroupNo::new(number);
                match GroupDesc::parse_places(sb, group, desc) {
                    Err(_) if expected.may_lack(group, lacking) => {
                        lacking += 1;
                        groups.push(GroupDesc::unknown(group));
                    }
                    Err(wrong) if expected == Descriptors::BeforeReplay => {
                        // Its log may change the size of descriptors.
                        let half = GroupDesc::parse_first_half(sb, group, desc);
                        groups.push(half.map_err(|_| wrong)?);
                    }
                    parsed => groups.push(expected.check(sb, parsed?)?),
                }
            }
        }
        index += run;
    }
    Ok(groups.into())
}

/// Groups whose descriptors may be in the log alone: more do not come with one transaction, and each takes memory.
const MOST_LACKING: u32 = 1 << 16;

impl Descriptors {
    fn may_lack(self, group: GroupNo, lacking: u32) -> bool {
        self == Descriptors::BeforeReplay && group.get() > 0 && lacking < MOST_LACKING
    }

    fn check(self, sb: &Superblock, desc: GroupDesc) -> Result<GroupDesc, Error> {
        if self == Descriptors::Whole {
            desc.check_counts(sb)?;
        }
        Ok(desc)
    }
}

impl Disk {
    /// The block of the inode table that holds this inode, and the inode's byte offset in it.
    pub(crate) fn inode_place(&self, ino: Ino) -> Result<(FsBlock, usize), Error> {
        let place = self.sb.inode_place(ino)?;
        let table = self.groups[place.group.get() as usize].inode_table;
        if table.is_none() {
            let what = format!(
                "inode {ino}: the descriptor of group {} is damaged",
                place.group
            );
            return Err(Error::Damaged(what));
        }
        let block = FsBlock::new(table.get() + u64::from(place.table_block));
        Ok((block, place.offset as usize))
    }

    /// Is this one of the volume's own inodes: a reserved one other than the root, or the journal's?
    pub(crate) fn is_system_inode(&self, ino: Ino) -> bool {
        ino == self.journal_ino() || ino != Ino::ROOT && ino.get() < self.sb.geometry().first_ino()
    }

    /// Inodes that are no user's: those, and the orphan file.
    pub(crate) fn is_own_inode(&self, ino: Ino) -> bool {
        self.is_system_inode(ino) || ino != Ino::ROOT && self.sb.orphan_file() == Some(ino)
    }

    fn journal_ino(&self) -> Ino {
        match self.sb.journal() {
            JournalPlace::Internal(ino) => ino,
            JournalPlace::None | JournalPlace::External { .. } => Ino::new(0),
        }
    }
}

/// Reads an inode from the inode table.
pub(crate) fn read_disk_inode(disk: &Disk, ino: Ino) -> Result<DiskInode, Error> {
    let (block, from) = disk.inode_place(ino)?;
    let bytes = disk
        .cache
        .read(&disk.blocking, block, Kind::InodeTable, |_| Ok(()))?;
    let to = from + disk.sb.geometry().inode_size() as usize;
    Ok(DiskInode::parse(&disk.sb, ino, &bytes[from..to])?)
}
