//! The numbers of a file system of another size.
//!
//! Input: the superblock, the number of blocks that is asked for. Output: the superblock of the new size. Invariants: a new last group has
//! room for its own metadata and some data, otherwise it is left out; the heads of groups (copies of superblock and descriptors, and what
//! is kept for more of these) become no longer than they are. Limit: whether the device is large enough is
//! the caller's question.

use crate::error::Error;
use diorite_format::features::{Compat, Incompat};
use diorite_format::superblock::NewSize;
use diorite_format::{GroupNo, Superblock};
use diorite_mkfs::parts::{LEAST_IN_GROUP, own_blocks};

/// The superblock of at most `blocks` blocks, at least as large as `sb`. That of `sb` itself if the rest is of no use.
///
/// # Errors
/// `Invalid`: fewer blocks than there are, or more than the format allows; `NotSupported`: more than the descriptors have room for.
pub(super) fn larger(sb: &Superblock, blocks: u64) -> Result<Superblock, Error> {
    let new = larger_at_will(sb, blocks)?;
    check_descriptors(sb, new.group_count())?;
    Ok(new)
}

/// As [`larger`], where the descriptors may need blocks of others.
///
/// # Errors
/// As [`larger`], without `NotSupported`.
pub(super) fn larger_at_will(sb: &Superblock, blocks: u64) -> Result<Superblock, Error> {
    let old = sb.geometry();
    if blocks < old.blocks_count() {
        return Err(Error::Invalid(format!(
            "the file system has {} blocks, and {blocks} are fewer: it can only be made larger here",
            old.blocks_count()
        )));
    }
    check_format(sb, blocks)?;
    // A short last cluster would come into two groups of sizes: nobody writes to such a volume.
    let ratio = u64::from(old.cluster_ratio());
    let blocks = (blocks - blocks % ratio).max(old.blocks_count());
    let first = old.first_data_block().get();
    let per_group = u64::from(old.blocks_per_group());
    let (groups, rest) = (
        (blocks - first).div_ceil(per_group),
        (blocks - first) % per_group,
    );
    let is_new = groups > u64::from(old.group_count());
    let new = resized(sb, blocks)?;
    if rest == 0 || !is_new || rest >= least_of_last(&new) {
        return Ok(new);
    }
    resized(sb, blocks - rest)
}

/// The superblock of at most `blocks` blocks, at most as large as `sb`. Whether structures of the groups that stay lie before its end is
/// seen when what lies behind it is to move.
///
/// # Errors
/// `Invalid`: more blocks than there are, or so few that the groups' own structures do not fit.
pub(super) fn smaller(sb: &Superblock, blocks: u64) -> Result<Superblock, Error> {
    let old = sb.geometry();
    if blocks > old.blocks_count() {
        return Err(Error::Invalid(format!(
            "the file system has {} blocks, and {blocks} are more: it can only be made smaller here",
            old.blocks_count()
        )));
    }
    let ratio = u64::from(old.cluster_ratio());
    let (first, per_group) = (
        old.first_data_block().get(),
        u64::from(old.blocks_per_group()),
    );
    let too_small = || {
        Error::Invalid(format!(
            "{blocks} blocks have no room for the file system's own structures"
        ))
    };
    let mut blocks = blocks - blocks % ratio;
    loop {
        if blocks <= first {
            return Err(too_small());
        }
        let new = resized(sb, blocks)?;
        let rest = (blocks - first) % per_group;
        if rest == 0 || blocks == old.blocks_count() || rest >= least_of_last(&new) {
            return Ok(new);
        }
        blocks -= rest;
    }
}

/// Checks what the format limits, for an error that says how far it goes.
fn check_format(sb: &Superblock, blocks: u64) -> Result<(), Error> {
    let old = sb.geometry();
    let (first, per_group) = (
        old.first_data_block().get(),
        u64::from(old.blocks_per_group()),
    );
    if !sb.features().incompat.has(Incompat::BIT64) && blocks > u64::from(u32::MAX) {
        return Err(Error::Invalid(format!(
            "{blocks} blocks need the feature 64bit: without it there are at most {}; 'diorite resize2fs -b' adds it",
            u32::MAX
        )));
    }
    let groups = (blocks - first).div_ceil(per_group);
    let most = u64::from(u32::MAX / old.inodes_per_group());
    if groups > most {
        return Err(Error::Invalid(format!(
            "{blocks} blocks are {groups} groups of {} inodes each, and inodes have 32-bit numbers: at most {} blocks can be",
            old.inodes_per_group(),
            first + most * per_group
        )));
    }
    Ok(())
}

/// Checks that so many groups can be described with no other block moved.
fn check_descriptors(sb: &Superblock, groups: u32) -> Result<(), Error> {
    let (old, groups) = (sb.geometry(), u64::from(groups));
    let per_group = u64::from(old.blocks_per_group());
    let (first, blocks) = (old.first_data_block().get(), groups * per_group);
    match descriptor_room(sb) {
        Some(room) if groups > room.max(old.group_count().into()) => {
            Err(Error::NotSupported(format!(
                "{blocks} blocks are {groups} groups, and behind the group descriptors space is kept for {room}: \
                 while it is in use the file system can grow to {} blocks",
                first + room * per_group
            )))
        }
        _ => Ok(()),
    }
}

/// How many groups can be described, if something limits that.
fn descriptor_room(sb: &Superblock) -> Option<u64> {
    if sb.features().incompat.has(Incompat::META_BG) {
        return None;
    }
    let g = sb.geometry();
    let kept = match sb.features().compat.has(Compat::RESIZE_INODE) {
        true => g.reserved_gdt_blocks(),
        false => 0,
    };
    Some(u64::from(g.gdt_blocks() + kept) * u64::from(g.descs_per_block()))
}

/// The superblock of exactly `blocks` blocks. Overhead is that of the old size.
fn resized(sb: &Superblock, blocks: u64) -> Result<Superblock, Error> {
    let old = sb.geometry();
    let reserved =
        u128::from(old.r_blocks_count()) * u128::from(blocks) / u128::from(old.blocks_count());
    let data = blocks.saturating_sub(old.first_data_block().get());
    let groups = u32::try_from(data.div_ceil(old.blocks_per_group().into())).unwrap_or(u32::MAX);
    let size = |kept| NewSize {
        blocks,
        reserved_blocks: u64::try_from(reserved).unwrap_or(u64::MAX),
        reserved_gdt_blocks: kept,
        backup_groups: sb
            .backup_groups()
            .map(|group| if group.get() < groups { group.get() } else { 0 }),
        overhead_clusters: sb.info().overhead_clusters,
    };
    let kept = old.reserved_gdt_blocks();
    if sb.features().incompat.has(Incompat::META_BG) {
        let descs = groups.div_ceil(old.descs_per_block());
        // None would lie in the groups that it describes.
        if old.first_meta_bg() > descs {
            let wide = sb.features().incompat.has(Incompat::BIT64);
            return Ok(sb.with_descriptors(wide, None)?.resized(&size(kept))?);
        }
        return Ok(sb.resized(&size(kept))?);
    }
    if !sb.features().compat.has(Compat::RESIZE_INODE) {
        return Ok(sb.resized(&size(kept))?);
    }
    let descs = sb.resized(&size(0))?.geometry().gdt_blocks();
    // As many as one block has pointers to; if a smaller size leaves more, the rest becomes free.
    let kept = (old.gdt_blocks() + kept).saturating_sub(descs);
    Ok(sb.resized(&size(kept.min(old.block_size() / 4)))?)
}

/// The superblock with descriptors of 64 bytes, or of 32. The blocks that are kept for more of them become fewer, or more.
pub(super) fn with_width(sb: &Superblock, wide: bool) -> Result<Superblock, Error> {
    let incompat = sb.features().incompat;
    let first = incompat
        .has(Incompat::META_BG)
        .then(|| sb.geometry().first_meta_bg());
    // First without meta_bg, whose first block may be behind the last one.
    let plain = sb.with_descriptors(wide, None)?;
    let g = plain.geometry();
    if let Some(first) = first.filter(|first| *first <= g.gdt_blocks()) {
        return Ok(sb.with_descriptors(wide, Some(first))?);
    }
    let room = sb.geometry().gdt_blocks() + sb.geometry().reserved_gdt_blocks();
    let kept = match sb.features().compat.has(Compat::RESIZE_INODE) {
        true => room.saturating_sub(g.gdt_blocks()).min(g.block_size() / 4),
        false => g.reserved_gdt_blocks(),
    };
    Ok(plain.resized(&NewSize {
        reserved_gdt_blocks: kept,
        ..same_size(&plain)
    })?)
}

/// The same superblock with so many clusters of metadata; 0 = unknown.
pub(super) fn with_overhead(sb: &Superblock, clusters: u64) -> Result<Superblock, Error> {
    Ok(sb.resized(&NewSize {
        overhead_clusters: u32::try_from(clusters).unwrap_or(0),
        ..same_size(sb)
    })?)
}

fn same_size(sb: &Superblock) -> NewSize {
    let g = sb.geometry();
    NewSize {
        blocks: g.blocks_count(),
        reserved_blocks: g.r_blocks_count(),
        reserved_gdt_blocks: g.reserved_gdt_blocks(),
        backup_groups: sb.backup_groups().map(GroupNo::get),
        overhead_clusters: sb.info().overhead_clusters,
    }
}

/// `new`, smaller than `old`, with its last group in place of a group that goes and had a copy (sparse_super2). None if no such group
/// goes, or if the last one has a copy already, or no room for one.
pub(super) fn with_last_copy(old: &Superblock, new: &Superblock) -> Option<Superblock> {
    if !old.features().compat.has(Compat::SPARSE_SUPER2) {
        return None;
    }
    let last = new.group_count() - 1;
    let mut groups = old.backup_groups().map(GroupNo::get);
    if last == 0 || groups.contains(&last) {
        return None;
    }
    *groups.iter_mut().find(|group| **group > last)? = last;
    let with = new.resized(&NewSize {
        backup_groups: groups.map(|group| if group > last { 0 } else { group }),
        ..same_size(new)
    });
    let with = with.ok()?;
    let room = u64::from(with.group_blocks(GroupNo::new(last)));
    (room >= least_of_last(&with)).then_some(with)
}

/// Blocks that the last group has to have.
fn least_of_last(sb: &Superblock) -> u64 {
    own_blocks(sb, GroupNo::new(sb.group_count() - 1)) + LEAST_IN_GROUP
}
