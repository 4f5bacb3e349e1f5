//! A larger file system.
//!
//! Input: an open volume and a number of blocks. Output: the volume of that size: new groups, and a last group that is filled up. The
//! steps:
//!
//! 1. Places of the new groups' bitmaps and tables; these are written behind the end of the volume, and flushed.
//! 2. One transaction with the bitmap of the group that was the last one, descriptors, the inode for growing, the superblock. In it the
//!    volume in memory changes, too.
//! 3. A commit, after which it is home, and then the copies of superblock and descriptors in other groups.
//!
//! Invariants: after a crash before the commit nothing has changed, and behind the end lies nothing but zeros and what [`before_commit`]
//! tells; after it the volume is larger, and its copies may be those of the old size, which e2fsck replaces. Files may be read and written
//! meanwhile. Limits: one caller at a time; new inode tables are zeroed unless
//! the device says that they are.

use super::kept::KeptBlocks;
use super::{copies, size};
use crate::disk::Zone;
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::inode::Fs;
use crate::journal::JournalHandle;
use diorite_format::bitmap;
use diorite_format::features::Incompat;
use diorite_format::group::GroupFlags;
use diorite_format::{FsBlock, GroupDesc, GroupNo, Superblock};
use diorite_mkfs::parts::{Out, Space, count_group};
use std::collections::BTreeMap;
use std::ops::Range;

/// Superblock, bitmap of the last group.
const CREDITS: u32 = 2;

/// How many blocks a volume would have that [`grow`] makes larger to `blocks`. Judges the size alone.
///
/// # Errors
/// `Invalid`: fewer blocks than there are, more than the format has; `NotSupported`: no space is kept for the descriptors.
pub(crate) fn grown(fs: &Fs, blocks: u64) -> Result<u64, Error> {
    let new = size::larger(&fs.sb, blocks)?;
    Added::place(&fs.sb, &new)?;
    Ok(new.geometry().blocks_count())
}

/// What [`grow`] to `blocks` writes behind the end of the volume before the end moves, by its first byte. All else that it writes there is
/// zeros. The same for the same size, so a growth that was interrupted can be told from other data there.
///
/// # Errors
/// As [`grown`].
pub(crate) fn before_commit(fs: &Fs, blocks: u64) -> Result<BTreeMap<u64, Vec<u8>>, Error> {
    let (old, new) = (&*fs.sb, size::larger_at_will(&fs.sb, blocks)?);
    let added = Added::place(old, &new)?;
    let new = added.counted(old, &new)?;
    let change = Change::to(fs, &new, &added);
    let place = |block: u64| new.byte_of(FsBlock::new(block)).get();
    let mut found = BTreeMap::new();
    // With meta_bg, descriptors lie in the groups that they describe.
    for index in change.descriptors() {
        let at = new.gdt_location(index)?.get();
        if at >= old.geometry().blocks_count() {
            let mut bytes = vec![0; new.block_size() as usize];
            change.put_added(index, &mut bytes)?;
            found.insert(place(at), bytes);
        }
    }
    let bitmaps = added.bitmaps.iter();
    found.extend(bitmaps.map(|(block, bits)| (place(*block), bits.clone())));
    Ok(found)
}

/// Makes a volume larger: see the module. To as many of `blocks` as are of use: a last group without room for its own metadata is left out.
/// Blocks.
///
/// # Errors
/// `Invalid`: fewer blocks than there are, more than the format or the device has; `NotSupported`: no space is kept for the descriptors;
/// damage; errors of the device.
pub(crate) fn grow(fs: &Fs, blocks: u64) -> Result<(), Error> {
    let alloc = fs.alloc()?;
    let _alone = fs.alone()?;
    let (old, new) = (&*fs.sb, size::larger(&fs.sb, blocks)?);
    if new.geometry().blocks_count() == old.geometry().blocks_count() {
        return copies::renew(fs);
    }
    new.check_device(fs.device.geometry().size)?;
    fs.check_super_may_change()?;
    let added = Added::place(old, &new)?;
    let new = added.counted(old, &new)?;
    let change = Change::to(fs, &new, &added);
    let check = |handle: &JournalHandle<'_>| {
        alloc.warm_last(handle)?;
        change.check(handle)
    };
    // Before anything is written.
    fs.in_handle(1, check)?;
    added.prepare(fs, &new)?;
    fs.in_handle(change.credits(), |handle| {
        check(handle)?;
        let write = |last: &mut GroupDesc| change.write(handle, last);
        handle.or_abort(alloc.grow(fs.level, (old, &new), &added.descs, write))
    })?;
    fs.commit_running()?;
    copies::write(fs, &fs.sb)
}

/// New groups, before there is a volume that has them.
pub(super) struct Added {
    pub(super) descs: Vec<GroupDesc>,
    /// Bitmaps that are written, by their blocks.
    bitmaps: Vec<(u64, Vec<u8>)>,
}

impl Added {
    /// Places bitmaps and tables of the groups behind those of `old`: with flex_bg those of a flexible group together.
    pub(super) fn place(old: &Superblock, new: &Superblock) -> Result<Added, Error> {
        let per_flex = match new.features().incompat.has(Incompat::FLEX_BG) {
            true => 1u32 << new.geometry().flex_bits(),
            false => 1,
        };
        let mut space = Space::new(new);
        let mut descs = Vec::new();
        let mut first = old.group_count();
        while first < new.group_count() {
            let next = (first / per_flex + 1).saturating_mul(per_flex);
            let end = next.min(new.group_count());
            space.place_flex(first..end, &mut descs)?;
            first = end;
        }
        let mut bitmaps = Vec::new();
        for desc in &mut descs {
            bitmaps.extend(count_group(new, &space, desc, 0)?);
            let flags = desc.flags;
            // Flags mean something only with checksums of descriptors.
            let zeroed = new.features().descriptor_sums();
            desc.flags = GroupFlags::of_new(flags.inode_uninit(), flags.block_uninit(), zeroed);
        }
        Ok(Added { descs, bitmaps })
    }

    /// The superblock with the overhead of the new groups.
    fn counted(&self, old: &Superblock, new: &Superblock) -> Result<Superblock, Error> {
        let before = u64::from(old.info().overhead_clusters);
        let of_group = |desc: &GroupDesc| new.group_clusters(desc.group) - desc.free_clusters;
        let more: u64 = self
            .descs
            .iter()
            .map(|desc| u64::from(of_group(desc)))
            .sum();
        // 0 = unknown stays unknown.
        size::with_overhead(new, if before == 0 { 0 } else { before + more })
    }

    /// Writes what lies in the new groups, durably.
    pub(super) fn prepare(&self, fs: &Fs, new: &Superblock) -> Result<(), Error> {
        let bytes = |blocks: Range<u64>| {
            let bits = new.geometry().block_bits();
            blocks.start << bits..blocks.end << bits
        };
        let mut out = Out::new(&fs.blocking);
        for desc in &self.descs {
            let start = new.group_first_block(desc.group).get();
            let head = u64::from(new.group_head_blocks(desc.group));
            out.zero(bytes(start..start + head))?;
            let table = desc.inode_table.get();
            let blocks = u64::from(new.geometry().inode_table_blocks());
            out.zero(bytes(table..table + blocks))?;
        }
        for (block, bits) in &self.bitmaps {
            out.put(bytes(*block..*block).start, bits)?;
        }
        fs.note_written(out.written());
        Ok(out.flush()?)
    }
}

/// What changes in one transaction.
struct Change<'a> {
    fs: &'a Fs,
    old: &'a Superblock,
    new: &'a Superblock,
    added: &'a [GroupDesc],
    kept: KeptBlocks<'a>,
}

impl<'a> Change<'a> {
    /// From the volume as it is to `new`.
    fn to(fs: &'a Fs, new: &'a Superblock, added: &'a Added) -> Change<'a> {
        let old = &*fs.sb;
        Change {
            fs,
            old,
            new,
            added: &added.descs,
            kept: KeptBlocks::new(fs, (old, new), fs.groups[0].inode_table),
        }
    }

    /// The group that was the last one.
    fn last(&self) -> GroupNo {
        GroupNo::new(self.old.group_count() - 1)
    }

    /// Blocks of descriptors from that of the group that was the last one.
    fn descriptors(&self) -> Range<u32> {
        let per_block = self.new.geometry().descs_per_block();
        self.last().get() / per_block..self.new.geometry().gdt_blocks()
    }

    fn credits(&self) -> u32 {
        let descriptors = self.descriptors();
        CREDITS + (descriptors.end - descriptors.start) + self.kept.credits()
    }

    /// Checks what is about to change, as far as it is not verified when it is read.
    fn check(&self, handle: &JournalHandle<'_>) -> Result<(), Error> {
        let (from, to) = self.bits();
        let last = self.fs.alloc()?.last_group();
        if to > from && !last.flags.block_uninit() {
            let verify = |raw: &[u8]| last.verify_block_bitmap(self.old, raw);
            let map = handle.read(last.block_bitmap, Kind::Bitmap, verify)?;
            if bitmap::count_zeros(&map, to) != bitmap::count_zeros(&map, from) {
                let group = last.group;
                return Err(Error::Damaged(format!(
                    "group {group}: its bitmap has free blocks behind the end of the volume; run e2fsck"
                )));
            }
        }
        self.kept.check(handle)
    }

    /// The bits that the bitmap of the group that was the last one had, and has.
    fn bits(&self) -> (u32, u32) {
        let last = self.last();
        (self.old.group_clusters(last), self.new.group_clusters(last))
    }

    /// Changes everything on disk, then in memory. The caller holds the lock of the group that was the last one, whose descriptor `last`
    /// counts the blocks that it gains.
    fn write(&self, handle: &JournalHandle<'_>, last: &mut GroupDesc) -> Result<(), Error> {
        self.extend_bitmap(handle, last)?;
        self.write_descriptors(handle, last)?;
        self.kept.write(handle)?;
        handle.resize(self.new)?;
        let mut groups = self.fs.groups.to_vec();
        groups.extend_from_slice(self.added);
        let zone = Zone::of_groups(self.new, &groups)?;
        self.fs.publish(self.new.clone(), groups.into(), zone);
        Ok(())
    }

    fn extend_bitmap(&self, handle: &JournalHandle<'_>, last: &mut GroupDesc) -> Result<(), Error> {
        let (from, to) = self.bits();
        if from == to {
            return Ok(());
        }
        if !last.flags.block_uninit() {
            return handle.update(
                last.block_bitmap,
                Kind::Bitmap,
                |_| Ok(()),
                |map| {
                    let cleared = bitmap::clear_range(map, from, to - from);
                    let kind = bitmap::BitmapKind::Block;
                    cleared.map_err(|clash| clash.corrupt(last.group, kind))?;
                    Ok(last.seal_block_bitmap(self.new, map)?)
                },
            );
        }
        let mut map = vec![0; self.new.block_size() as usize];
        bitmap::fresh_blocks(self.new, last.group, self.fs.groups.iter(), &mut map)?;
        last.seal_block_bitmap(self.new, &map)?;
        last.flags = last.flags.without_block_uninit();
        handle.create(last.block_bitmap, Kind::Bitmap, |raw| {
            raw.copy_from_slice(&map)
        });
        Ok(())
    }

    fn write_descriptors(&self, handle: &JournalHandle<'_>, last: &GroupDesc) -> Result<(), Error> {
        let size = self.new.block_size() as usize;
        handle.lead(last.block_bitmap);
        for index in self.descriptors() {
            let at = self.new.gdt_location(index)?;
            handle.lead(at);
            if index < self.old.geometry().gdt_blocks() {
                handle.update(
                    at,
                    Kind::Groups,
                    |_| Ok(()),
                    |raw| {
                        let (_, offset) = self.new.desc_place(last.group)?;
                        last.write(self.new, &mut raw[offset as usize..])?;
                        self.put_added(index, raw)
                    },
                )?;
            } else {
                let mut bytes = vec![0; size];
                self.put_added(index, &mut bytes)?;
                handle.create(at, Kind::Groups, |raw| raw.copy_from_slice(&bytes));
            }
        }
        Ok(())
    }

    /// Writes the descriptors of new groups into the block of descriptors in which they lie.
    fn put_added(&self, index: u32, raw: &mut [u8]) -> Result<(), Error> {
        for desc in self.added {
            let (block, at) = self.new.desc_place(desc.group)?;
            if block == index {
                desc.write_new(self.new, &mut raw[at as usize..])?;
            }
        }
        Ok(())
    }
}
