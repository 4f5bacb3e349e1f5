//! Reads the inode tables: every slot that was ever used is judged, and what its inode uses is claimed.
//!
//! Input: the tables, group by group, in large reads. Output: [`crate::link_counts::LinkCounts`]; lists for later passes:
//! directories, attribute blocks, targets of links. Invariant: a slot is judged by one thread, once. Limits: of an inode with a
//! wrong checksum nothing else is trusted.

use super::context::{Check, STAGE_INODES};
use super::judge;
use super::met::Met;
use super::own;
use super::reader::{Reader, believed, is_wrong_sum};
use super::report::Kind;
use super::usage::Usage;
use diorite::Error;
use diorite_format::{Corrupt, FormatError, FsBlock, Ino, Inode};

/// Reads all tables.
pub(super) fn all(check: &Check<'_>) -> Result<Met, Error> {
    let fresh = || Met {
        usage: Usage::new(&check.source.sb),
        ..Met::default()
    };
    let reader = || Reader::new(check.source);
    let begin = || (reader(), reader(), fresh());
    let groups = check.source.groups.len();
    let done = check
        .threads
        .each(STAGE_INODES, groups, begin, |state, group| {
            let (table, reader, met) = state;
            of_group(check, table, reader, met, group)
        })?;
    let mut all = fresh();
    done.into_iter().for_each(|(_, _, met)| all.add(met));
    all.directories.sort_unstable();
    all.attributes.sort_unstable();
    all.values.sort_unstable();
    all.counted.sort_unstable();
    all.targets.sort_unstable();
    Ok(all)
}

fn of_group(
    check: &Check<'_>,
    table: &mut Reader<'_>,
    reader: &mut Reader<'_>,
    met: &mut Met,
    group: usize,
) -> Result<(), Error> {
    let geometry = check.source.sb.geometry();
    let (size, block) = (
        geometry.inode_size() as usize,
        u64::from(geometry.block_size()),
    );
    let known = check.link_counts.known(group);
    let blocks = (u64::from(known) * size as u64).div_ceil(block);
    let first = check.source.groups[group].inode_table.get();
    let mut index = 0;
    let mut from = 0;
    while from < blocks {
        let count = (blocks - from).min(table.stripe_blocks());
        let bytes = table.run(FsBlock::new(first + from), count)?;
        for raw in bytes.chunks_exact(size) {
            if index == known {
                break;
            }
            let number =
                group as u64 * u64::from(geometry.inodes_per_group()) + u64::from(index) + 1;
            // Groups times inodes per group is the number of inodes, which has 32 bits.
            let ino = Ino::new(u32::try_from(number).unwrap_or(u32::MAX));
            slot(check, reader, met, ino, raw)?;
            index += 1;
        }
        from += count;
    }
    Ok(())
}

fn slot(
    check: &Check<'_>,
    reader: &mut Reader<'_>,
    met: &mut Met,
    ino: Ino,
    raw: &[u8],
) -> Result<(), Error> {
    if is_zero(raw) {
        return Ok(());
    }
    let sb = &check.source.sb;
    let parsed = match Inode::parse(sb, ino, raw) {
        Err(e) if is_unused(check, ino, raw) => {
            if is_wrong_sum(&e) {
                check.found.inode(Kind::Inode, ino, e);
            }
            judge::unused(check, ino, raw);
            return Ok(());
        }
        // Nobody reads the other fields of a reserved inode that is not in use.
        Err(FormatError::Corrupt(Corrupt::InodeExtraSize { .. })) if is_untouched(raw) => {
            own::unused(check, ino, raw);
            return Ok(());
        }
        Err(e) if is_wrong_sum(&e) => {
            check.found.inode(Kind::Inode, ino, e);
            believed(sb, ino, raw)
        }
        parsed => parsed,
    };
    match parsed {
        Ok(inode) => judge::inode(check, reader, met, &inode, raw)?,
        Err(e) => {
            check.found.inode(Kind::Inode, ino, e);
            judge::damaged(check, met, ino, raw);
        }
    }
    Ok(())
}

/// The rest of a slot that is marked as free is ignored.
fn is_unused(check: &Check<'_>, ino: Ino, raw: &[u8]) -> bool {
    raw[26..28] == [0, 0]
        && !check.orphans.has(ino)
        && ino.get() >= check.source.sb.geometry().first_ino()
}

/// Whether an inode has neither mode nor links nor a map.
fn is_untouched(raw: &[u8]) -> bool {
    raw[..2] == [0, 0] && raw[26..28] == [0, 0] && is_zero(&raw[40..100])
}

/// Compared in large pieces: a zeroed table is mostly zeros.
fn is_zero(raw: &[u8]) -> bool {
    const ZEROS: [u8; 256] = [0; 256];
    raw.chunks(ZEROS.len()).all(|c| *c == ZEROS[..c.len()])
}
