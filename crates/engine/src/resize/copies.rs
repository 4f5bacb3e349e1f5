//! The copies of superblock and group descriptors in other groups.
//!
//! Input: an open volume, and its superblock: that of the size that it has on disk. Output: its copies are equal to the originals, durably.
//! Invariants: copies say that nothing is to be recovered, as those that mke2fs writes; they are written past the journal, since nothing
//! depends on them while the originals can be read. Limits: counts in them are out of date with the next change, as in any file system.

use crate::alloc::verify_descs;
use crate::disk::cache::Kind;
use crate::disk::read_bytes;
use crate::error::Error;
use crate::inode::Fs;
use diorite_format::features::Incompat;
use diorite_format::superblock::SUPERBLOCK_SIZE;
use diorite_format::{FsBlock, GroupNo, Superblock};
use diorite_mkfs::parts::Out;

/// Writes all copies if the last one is of a volume of another size: the growth to this size was cut off before it was written. Blocks.
///
/// # Errors
/// As [`write`].
pub(super) fn renew(fs: &Fs) -> Result<(), Error> {
    let sb = &*fs.sb;
    let Some(group) = sb.groups_with_copies().last() else {
        return Ok(());
    };
    let at = sb.byte_of(sb.group_first_block(group)).get();
    let found = read_bytes(&fs.blocking, at, SUPERBLOCK_SIZE)?;
    let raw = found.first_chunk();
    let copy = raw.and_then(|raw| Superblock::parse(raw).ok());
    let blocks = |sb: &Superblock| sb.geometry().blocks_count();
    match copy.is_some_and(|copy| blocks(&copy) == blocks(sb)) {
        true => Ok(()),
        false => write(fs, sb),
    }
}

/// Writes all copies. Blocks.
///
/// # Errors
/// Errors of the device; damage to the descriptors.
pub(super) fn write(fs: &Fs, sb: &Superblock) -> Result<(), Error> {
    let mut out = Out::new(&fs.blocking);
    let g = sb.geometry();
    let at_groups = match sb.features().incompat.has(Incompat::META_BG) {
        true => g.first_meta_bg().min(g.gdt_blocks()),
        false => g.gdt_blocks(),
    };
    let per_block = g.descs_per_block();
    let mut descriptors = Vec::new();
    for index in 0..g.gdt_blocks() {
        let verify = |raw: &[u8]| verify_descs(sb, GroupNo::new(index * per_block), raw);
        let at = sb.gdt_location(index)?;
        let raw = fs.cache.read(&fs.blocking, at, Kind::Groups, verify)?;
        descriptors.push(raw);
    }
    let place = |block: u64| sb.byte_of(FsBlock::new(block)).get();
    for group in sb.groups_with_copies() {
        let first = sb.group_first_block(group).get();
        for (block, raw) in (first + 1..).zip(&descriptors[..at_groups as usize]) {
            out.put(place(block), raw)?;
        }
    }
    for index in at_groups..g.gdt_blocks() {
        for copy in sb.gdt_copies(index) {
            out.put(place(copy.get()), &descriptors[index as usize])?;
        }
    }
    fs.note_written(out.written());
    out.flush()?;
    fs.write_super_copies(sb)
}
