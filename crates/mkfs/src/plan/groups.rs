//! Groups of a new file system, and the inodes and descriptors in them.
//!
//! Input: options, the size, what is needed. Output: groups, inodes per group, reserved descriptors in a [`NewSuper`]. Invariant: every
//! group has room for its own structures. Limits: those of [`super`].

use super::super::{MkfsOptions, options};
use super::{Has, KIB, LEAST_BLOCKS, LEAST_IN_GROUP, MIB, invalid, no_room};
use crate::error::Error;
use diorite_format::features::{Compat, Incompat};
use diorite_format::superblock::NewSuper;
use diorite_format::{GroupNo, Superblock};

/// Chooses groups and inodes; a last group that has no use is left out.
pub(super) fn settle_groups(
    sb: &mut NewSuper,
    options: &MkfsOptions,
    bytes: u64,
    needed: u64,
) -> Result<(), Error> {
    let needed = if options.inodes.is_some() { 0 } else { needed };
    let inodes = match options.inodes {
        Some(n) => u64::from(n),
        None => {
            let usual = || options::usual_ratio(bytes).max(1 << sb.cluster_bits);
            let ratio = options.inode_ratio.unwrap_or_else(usual);
            let most = (64 * MIB) << (sb.cluster_bits - sb.block_bits);
            if !(KIB..=most).contains(&ratio) {
                return invalid(format!("{ratio} bytes per inode: 1024 to {most} can be"));
            }
            // As mke2fs, of whole blocks, also where a cluster is cut off. A ratio is a guess; the files are there.
            ((bytes >> sb.block_bits << sb.block_bits) / ratio).max(needed)
        }
    };
    let least = options.inodes.map_or(needed, u64::from);
    let asked = sb.blocks_count;
    loop {
        let data = sb.blocks_count.saturating_sub(sb.first_data_block.into());
        let groups = data.div_ceil(sb.blocks_per_group.into());
        let what = || {
            format!(
                "{} blocks of {} bytes cannot be a file system",
                sb.blocks_count,
                1 << sb.block_bits
            )
        };
        if data < 8 {
            return no_room(what());
        }
        if groups > u64::from(u32::MAX >> 3) {
            return invalid(what());
        }
        sb.group_count = groups as u32;
        let Some(per_group) = inodes_per_group(sb, inodes, (needed, least))? else {
            // As mke2fs: groups become smaller, and so more.
            sb.blocks_count = asked;
            sb.blocks_per_group -= 8;
            continue;
        };
        sb.inodes_per_group = per_group;
        settle_descriptors(sb, options)?;
        if Has(&sb.features).compat(Compat::SPARSE_SUPER2) {
            let last = sb.group_count - 1;
            sb.backup_groups = match options.backups {
                0 => [0, 0],
                1 => [u32::from(last > 0), 0],
                _ => [u32::from(last > 0), if last > 1 { last } else { 0 }],
            };
        }
        let rest = data % u64::from(sb.blocks_per_group);
        if rest == 0 || rest >= least_of_last(sb)? + LEAST_IN_GROUP {
            return Ok(());
        }
        if groups == 1 {
            return no_room(format!(
                "{} blocks of {} bytes have no room for a file system",
                sb.blocks_count,
                1 << sb.block_bits
            ));
        }
        sb.blocks_count -= rest;
    }
}

fn table_blocks(sb: &NewSuper, inodes: u64) -> u64 {
    (inodes * u64::from(sb.inode_size)).div_ceil(1 << sb.block_bits)
}

/// None: groups as large as these cannot have so many inodes, smaller ones may. `needed`: for the files, if the number is a guess; `least`:
/// as many there have to be, guess or not.
fn inodes_per_group(
    sb: &NewSuper,
    inodes: u64,
    (needed, least): (u64, u64),
) -> Result<Option<u32>, Error> {
    let per_block = (1u64 << sb.block_bits) / u64::from(sb.inode_size);
    let groups = u64::from(sb.group_count);
    let bits = 8u64 << sb.block_bits;
    let most = bits.min(65536 - per_block.max(8));
    let mut wanted = inodes.max(16).div_ceil(groups);
    if inodes > u64::from(u32::MAX) {
        return invalid(format!("{inodes} inodes: {} can be", u32::MAX));
    }
    // As mke2fs: fewer than was guessed, unless the bitmap were too small for those.
    if wanted <= bits && least <= most * groups {
        wanted = wanted.min(most);
    }
    if wanted > most {
        if sb.cluster_bits == sb.block_bits && sb.blocks_per_group >= LEAST_BLOCKS + 8 {
            return Ok(None);
        }
        return no_room(format!(
            "{inodes} inodes are too many for {groups} groups of at most {most}"
        ));
    }
    let full = table_blocks(sb, wanted) * per_block;
    let count = (full.min(most) & !7).max(8);
    // Rounded down as by mke2fs, unless files are counted on.
    let more = count * groups < needed && count + 8 <= most;
    Ok(Some((count + if more { 8 } else { 0 }) as u32))
}

/// Blocks of the last group that its own metadata takes.
fn least_of_last(sb: &NewSuper) -> Result<u64, Error> {
    let checked = Superblock::parse(&sb.encode())?;
    Ok(own_blocks(&checked, GroupNo::new(sb.group_count - 1)))
}

/// Blocks of a group's own structures: copies of superblock and descriptors, bitmaps and inode table, wherever these lie.
pub fn own_blocks(sb: &Superblock, group: GroupNo) -> u64 {
    let head = u64::from(sb.group_head_blocks(group));
    2 + u64::from(sb.geometry().inode_table_blocks()) + head
}

fn descriptor_blocks(sb: &NewSuper, groups: u32) -> u64 {
    (u64::from(groups) * u64::from(sb.desc_size)).div_ceil(1 << sb.block_bits)
}

/// Chooses where descriptors lie. As mke2fs: they and the blocks kept for them get three quarters of a group at most; otherwise they are
/// spread over the volume (meta_bg), and nothing is kept.
fn settle_descriptors(sb: &mut NewSuper, options: &MkfsOptions) -> Result<(), Error> {
    let count = descriptor_blocks(sb, sb.group_count);
    let is_too_much = |blocks: u64| 4 * blocks > 3 * u64::from(sb.blocks_per_group);
    let mut kept = 0;
    if !Has(&sb.features).incompat(Incompat::META_BG) {
        if !is_too_much(count) {
            kept = reserved_gdt(sb, options)?;
        }
        if is_too_much(count + u64::from(kept)) {
            sb.features.incompat = sb.features.incompat.with(Incompat::META_BG);
            sb.features.compat = sb.features.compat.without(Compat::RESIZE_INODE);
            kept = 0;
        }
    }
    sb.reserved_gdt_blocks = kept;
    Ok(())
}

/// Blocks that are kept so that the descriptors can grow in place.
fn reserved_gdt(sb: &NewSuper, options: &MkfsOptions) -> Result<u16, Error> {
    if !Has(&sb.features).compat(Compat::RESIZE_INODE) {
        return Ok(0);
    }
    let kept = |limit: u64| {
        let limit = limit.min(u32::MAX.into()) - u64::from(sb.first_data_block);
        let groups = limit.div_ceil(sb.blocks_per_group.into());
        let all = (groups * u64::from(sb.desc_size)).div_ceil(1 << sb.block_bits);
        let more = all.saturating_sub(descriptor_blocks(sb, sb.group_count));
        // The pointers of one block lead to them; and each group has room for them, its bitmaps and its table.
        let others = 4
            + descriptor_blocks(sb, sb.group_count)
            + table_blocks(sb, sb.inodes_per_group.into());
        let room = u64::from(sb.blocks_per_group).saturating_sub(others);
        more.min((1 << sb.block_bits) / 4).min(room) as u16
    };
    let usual = kept(sb.blocks_count.saturating_mul(1024));
    match options.resize_limit {
        None => Ok(usual),
        Some(blocks) if blocks < sb.blocks_count => invalid(format!(
            "the size to grow to is {blocks} blocks, less than the {} that it has",
            sb.blocks_count
        )),
        // As mke2fs: for growth that needs none, the usual number is kept.
        Some(blocks) => Ok(match kept(blocks) {
            0 => usual,
            more => more,
        }),
    }
}
