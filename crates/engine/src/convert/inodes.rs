//! Larger inodes.
//!
//! Input: an [`Image`], and a size of inodes. Output: the image with tables of such inodes at other places, and these tables on the device,
//! in blocks that are free until the change takes effect. Invariants: an inode keeps all its bytes, and gets zeros behind them; its
//! checksum is made anew. Limits: each table needs its blocks in one run, without flex_bg inside of its group; clusters are refused.

use super::image::Image;
use super::{Progress, Step};
use crate::error::Error;
use diorite_format::features::Incompat;
use diorite_format::superblock::JournalPlace;
use diorite_format::{FsBlock, GroupNo, Ino, Superblock, inode};
use diorite_mkfs::parts::Out;

/// Blocks of an old table that are read at once.
const AT_ONCE: u32 = 256;

/// Makes inodes larger: see the module. Blocks.
pub(super) fn enlarge(image: &mut Image, size: u16, progress: Progress<'_>) -> Result<(), Error> {
    let old = image.sb.clone();
    check(&old, size)?;
    let before = old.geometry().inode_table_blocks();
    let mut probe = image.clone();
    probe.edit_super(|edit| edit.set_inode_size(size))?;
    let after = probe.sb.geometry().inode_table_blocks();
    let mut tables = Vec::new();
    for group in image.group_numbers() {
        tables.push(place(image, group, after)?);
    }
    for (desc, _) in image.groups.clone().iter().zip(&tables) {
        let at = desc.inode_table.get();
        image.free_blocks(at..at + u64::from(before))?;
    }
    // All places are known, so everything is judged.
    let groups = u64::from(old.group_count());
    for (group, at) in image.group_numbers().zip(&tables) {
        copy(image, (&old, &probe.sb), group, *at)?;
        let done = u64::from(group.get()) + 1;
        progress(&Step::tables(done, groups));
    }
    image.edit_super(|edit| edit.set_inode_size(size))?;
    let marks = image.sb.features().descriptor_sums();
    for (desc, at) in image.groups.iter_mut().zip(tables) {
        desc.inode_table = FsBlock::new(at);
        if marks {
            desc.flags = desc.flags.with_itable_zeroed();
        }
    }
    keep_journal(image, &old)?;
    let more = i64::from(after - before) * i64::try_from(groups).unwrap_or(0);
    image.count_overhead(more)
}

/// Notes where the old file system would find the journal's inode in the new table: behind the fields of another inode, where there are
/// zeros. The block there has to be in the log, as it gets something else for a while.
fn keep_journal(image: &mut Image, old: &Superblock) -> Result<(), Error> {
    let table = image.groups[0].inode_table.get();
    let byte = u64::from(Ino::JOURNAL.get() - 1) * u64::from(old.geometry().inode_size());
    let size = u64::from(old.block_size());
    let at = FsBlock::new(table + byte / size);
    let bytes = image.block(at)?;
    image.put(at, &bytes);
    image.old_journal = Some((at, (byte % size) as usize));
    Ok(())
}

fn check(sb: &Superblock, size: u16) -> Result<(), Error> {
    let now = sb.geometry().inode_size();
    let most = sb.block_size();
    let wanted = u32::from(size);
    let refused = |what: String| Err(Error::NotSupported(what));
    if !wanted.is_power_of_two() || wanted < 128 || wanted > most {
        return Err(Error::Invalid(format!(
            "inodes of {size} bytes: a power of two, 128 to {most}, is possible"
        )));
    }
    if wanted < now {
        return refused(format!(
            "inodes of {size} bytes: they have {now}, and cannot become smaller"
        ));
    }
    if sb.info().revision == 0 {
        return refused("larger inodes: revision 0 has inodes of 128 bytes".to_owned());
    }
    if matches!(sb.journal(), JournalPlace::Internal(ino) if ino != Ino::JOURNAL) {
        return refused("larger inodes: the journal is in an unusual inode".to_owned());
    }
    // tune2fs refuses it with flex_bg; without, it leaves files that break the rules of clusters.
    if sb.geometry().cluster_ratio() > 1 {
        return refused("larger inodes on a file system with clusters (bigalloc)".to_owned());
    }
    Ok(())
}

/// Hands out the place of a group's larger table: in the group, or with flex_bg in another one.
fn place(image: &mut Image, group: GroupNo, blocks: u32) -> Result<u64, Error> {
    let count = image.sb.group_count();
    let others = match image.has_incompat(Incompat::FLEX_BG) {
        true => count,
        false => 1,
    };
    let table = image.groups[group.get() as usize].inode_table;
    let from = image.sb.group_of(table).unwrap_or(group);
    for n in 0..others {
        let near = GroupNo::new((from.get() + n) % count);
        if image.groups[near.get() as usize].free_clusters >= blocks
            && let Some(at) = image.take_run_in(near, blocks.into())?
        {
            return Ok(at);
        }
    }
    let help = "free or move files, or make the file system larger";
    Err(Error::refused(
        format!("the larger inode table of group {group} needs {blocks} free blocks in one run"),
        help,
    ))
}

/// Writes the larger table of a group.
fn copy(
    image: &Image,
    (old, new): (&Superblock, &Superblock),
    group: GroupNo,
    to: u64,
) -> Result<(), Error> {
    let desc = &image.groups[group.get() as usize];
    let (per_group, bytes) = (
        old.geometry().inodes_per_group(),
        u64::from(old.block_size()),
    );
    let (was, is) = (
        old.geometry().inode_size() as usize,
        new.geometry().inode_size() as usize,
    );
    let used = match desc.flags.inode_uninit() {
        true => 0,
        false => per_group - desc.itable_unused.min(per_group),
    };
    let per_block = old.block_size() / old.geometry().inode_size();
    let mut out = Out::new(&image.blocking);
    let all = to * bytes..(to + u64::from(new.geometry().inode_table_blocks())) * bytes;
    let mut pos = all.start;
    for from in (0..used.div_ceil(per_block)).step_by(AT_ONCE as usize) {
        let count = (used.div_ceil(per_block) - from).min(AT_ONCE);
        let table = FsBlock::new(desc.inode_table.get() + u64::from(from));
        let raw = image.run(table, count)?;
        let mut larger = vec![0; raw.len() / was * is];
        let slots = larger.chunks_exact_mut(is).zip(raw.chunks_exact(was));
        for (slot, (larger, raw)) in (from * per_block..).zip(slots) {
            if slot < used && raw.iter().any(|byte| *byte != 0) {
                larger[..was].copy_from_slice(raw);
                inode::seal(new, Ino::new(group.get() * per_group + slot + 1), larger);
            }
        }
        let len = larger.len().next_multiple_of(bytes as usize);
        larger.resize(len, 0);
        // The last block of the old table may have room for more inodes than the new one.
        let len = larger.len().min((all.end - pos) as usize);
        out.put(pos, &larger[..len])?;
        pos += len as u64;
    }
    if pos < all.end {
        out.zero(pos..all.end)?;
    }
    Ok(out.flush()?)
}
