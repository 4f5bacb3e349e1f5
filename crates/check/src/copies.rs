//! The copies of the superblock and of the descriptors, as `e2fsck -b` would read them.
//!
//! Input: the first blocks of the groups that have copies. Output: a note about each copy that is not valid, or that is of another
//! volume than this one. Invariant: only what never changes while a volume is mounted is compared. Limits: notes, not findings, since
//! e2fsck -fn finds nothing in copies; the first [`MOST_SUPERBLOCKS`] copies of the superblock, which are all with sparse_super, and up to
//! eight of each block of descriptors; [`TOLD`] notes.

use super::context::Check;
use super::reader::Reader;
use diorite::Error;
use diorite_format::features::{Compat, Features, Incompat, RoCompat};
use diorite_format::superblock::SUPERBLOCK_SIZE;
use diorite_format::{FsBlock, GroupDesc, GroupNo, Superblock};

/// Copies of the superblock that are read.
const MOST_SUPERBLOCKS: usize = 32;
/// Notes about copies; the last one says how many more there are.
const TOLD: usize = 8;

/// Notes which copies are of no use.
pub(super) fn all(check: &Check<'_>) -> Result<(), Error> {
    let mut reader = Reader::new(check.source);
    let mut notes = Vec::new();
    let sb = &check.source.sb;
    for group in sb.groups_with_copies().take(MOST_SUPERBLOCKS) {
        let at = sb.group_first_block(group);
        if let Some(what) = superblock(sb, reader.block(at)?) {
            notes.push(format!(
                "the copy of the superblock in block {at} (group {group}) {what}"
            ));
        }
    }
    for index in 0..sb.geometry().gdt_blocks() {
        for at in sb.gdt_copies(index) {
            if let Some(group) = descriptors(check, index, reader.block(at)?) {
                notes.push(format!(
                    "the copy of the descriptors in block {at} has other places for group {group}"
                ));
            }
        }
    }
    let more = notes.len().saturating_sub(TOLD);
    notes
        .iter()
        .take(TOLD)
        .for_each(|note| check.found.note(note));
    if more > 0 {
        check.found.note(format_args!(
            "{more} more copies of superblock or descriptors are of no use"
        ));
    }
    Ok(())
}

/// What is wrong with a copy of the superblock at the start of a block.
fn superblock(sb: &Superblock, block: &[u8]) -> Option<String> {
    let raw: Option<&[u8; SUPERBLOCK_SIZE]> = block.first_chunk();
    let copy = match Superblock::parse(raw?) {
        Ok(copy) => copy,
        Err(e) => return Some(format!("is not valid: {e}")),
    };
    let (ours, theirs) = (sb.geometry(), copy.geometry());
    let differs = [
        ("UUID", sb.uuid() != copy.uuid()),
        (
            "number of blocks",
            ours.blocks_count() != theirs.blocks_count(),
        ),
        (
            "number of inodes",
            ours.inodes_count() != theirs.inodes_count(),
        ),
        ("block size", ours.block_size() != theirs.block_size()),
        (
            "size of groups",
            ours.blocks_per_group() != theirs.blocks_per_group()
                || ours.inodes_per_group() != theirs.inodes_per_group(),
        ),
        (
            "set of features",
            lasting(sb.features()) != lasting(copy.features()),
        ),
    ];
    let names: Vec<&str> = differs
        .iter()
        .filter(|(_, other)| *other)
        .map(|(name, _)| *name)
        .collect();
    (!names.is_empty()).then(|| {
        format!(
            "is out of date: it has another {}",
            names.join(", another ")
        )
    })
}

/// The features that no driver sets or clears on a mounted volume without writing copies.
fn lasting(features: &Features) -> [u32; 3] {
    let Features {
        compat,
        incompat,
        ro_compat,
    } = *features;
    let passing = RoCompat::LARGE_FILE
        .with(RoCompat::DIR_NLINK)
        .with(RoCompat::ORPHAN_PRESENT);
    [
        compat.without(Compat::EXT_ATTR).bits(),
        incompat
            .without(Incompat::RECOVER.with(Incompat::EXTENTS))
            .bits(),
        ro_compat.without(passing).bits(),
    ]
}

/// The first group for which a copy of the `index`-th block of descriptors has other places.
fn descriptors(check: &Check<'_>, index: u32, block: &[u8]) -> Option<GroupNo> {
    let geometry = check.source.sb.geometry();
    let first = index * geometry.descs_per_block();
    let here = (first..).zip(block.chunks_exact(geometry.desc_size() as usize));
    let mut wrong = here
        .map_while(|(number, raw)| Some((geometry.group(number)?, raw)))
        .filter(|(group, raw)| {
            let ours = places(&check.source.groups[group.get() as usize]);
            // The counts of a copy may be old, under the checksum of that time.
            GroupDesc::parse_places(&check.source.sb, *group, raw)
                .map_or(true, |copy| places(&copy) != ours)
        });
    wrong.next().map(|(group, _)| group)
}

fn places(desc: &GroupDesc) -> [FsBlock; 3] {
    [desc.block_bitmap, desc.inode_bitmap, desc.inode_table]
}
