//! Compares bitmaps and counters with what is in use.
//!
//! Input: claimed clusters, inodes found. Output: findings, by group and range. Invariant: a bitmap that was never written
//! stands for the group's own structures only. Limits: per group only the first differing ranges are reported, then their
//! number.

use super::context::Check;
use super::reader::Reader;
use super::report::Kind;
use diorite::Error;
use diorite_format::bitmap::{self, BitmapKind};
use diorite_format::features::Compat;
use diorite_format::group::{GroupCounts, GroupRun};
use diorite_format::{FsBlock, GroupDesc, GroupNo};

/// Ranges reported per bitmap.
const TOLD: usize = 4;

/// Features that a driver may ignore, of which the passes claim every block. A driver leaves the blocks of any other one alone; whoever
/// frees what nobody uses would not. `lazy_bg` is not among them: its bitmaps have blocks as used that nobody uses.
const CLAIMED: Compat = Compat::DIR_PREALLOC
    .with(Compat::IMAGIC_INODES)
    .with(Compat::HAS_JOURNAL)
    .with(Compat::EXT_ATTR)
    .with(Compat::RESIZE_INODE)
    .with(Compat::DIR_INDEX)
    .with(Compat::SPARSE_SUPER2)
    .with(Compat::FAST_COMMIT)
    .with(Compat::STABLE_INODES)
    .with(Compat::ORPHAN_FILE);

/// Sums over all groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    free_clusters: u64,
    free_inodes: u64,
}

/// Compares all groups. `fixed` is the number of clusters of the volume's own structures in each group.
pub(super) fn all(check: &Check<'_>, fixed: &[u32]) -> Result<(), Error> {
    let groups = &check.source.groups;
    let written = |uninit: fn(&GroupDesc) -> bool, at: fn(&GroupDesc) -> FsBlock| {
        let mut list: Vec<_> = groups
            .iter()
            .filter(|g| !uninit(g))
            .map(|g| (at(g), g.group))
            .collect();
        list.sort_unstable();
        list
    };
    let blocks = written(|g| g.flags.block_uninit(), |g| g.block_bitmap);
    let inodes = written(|g| g.flags.inode_uninit(), |g| g.inode_bitmap);
    each(check, &blocks, block_bitmap)?;
    each(check, &inodes, inode_bitmap)?;
    let mut sums = Sums::default();
    for (group, fixed) in groups.iter().zip(fixed) {
        never_written(check, group, *fixed);
        counters(check, group, &mut sums);
    }
    marked_inodes(check);
    totals(check, &sums);
    Ok(())
}

fn each(
    check: &Check<'_>,
    list: &[(FsBlock, GroupNo)],
    compare: fn(&Check<'_>, &GroupDesc, &[u8]),
) -> Result<(), Error> {
    let mut at: Vec<FsBlock> = list.iter().map(|(b, _)| *b).collect();
    at.dedup();
    // Two groups with the same bitmap were reported when bitmaps were claimed.
    Reader::new(check.source).each(&at, |n, raw| {
        let first = list.partition_point(|(b, _)| *b < at[n]);
        let (_, group) = list[first];
        compare(check, &check.source.groups[group.get() as usize], raw);
        Ok(())
    })
}

fn block_bitmap(check: &Check<'_>, group: &GroupDesc, raw: &[u8]) {
    let from_copy = check.source.from_copy[group.group.get() as usize];
    match group.verify_block_bitmap(&check.source.sb, raw) {
        Err(e) if !from_copy => check.found.block(Kind::BlockBitmap, group.block_bitmap, e),
        _ => {}
    }
    let bits = check.source.sb.group_clusters(group.group);
    let expected = |n: usize| check.space.used_word(group.group, n);
    let number =
        u64::from(group.group.get()) * u64::from(check.source.sb.geometry().clusters_per_group());
    let name = |n: u32| check.space.block_of(number + u64::from(n)).get();
    compare(check, BitmapKind::Block, group, raw, bits, expected, name);
}

fn inode_bitmap(check: &Check<'_>, group: &GroupDesc, raw: &[u8]) {
    let number = group.group.get() as usize;
    match group.verify_inode_bitmap(&check.source.sb, raw) {
        Err(e) if !check.source.from_copy[number] => {
            check.found.block(Kind::InodeBitmap, group.inode_bitmap, e);
        }
        _ => {}
    }
    let bits = check.source.sb.geometry().inodes_per_group();
    let ino = |n: u32| group.group.get() * bits + n + 1;
    let mut taken = vec![0u64; bits.div_ceil(64) as usize];
    let mut take = |n: u32| taken[(n / 64) as usize] |= 1 << (n % 64);
    (0..bits.min(first_ino(check).saturating_sub(ino(0)))).for_each(&mut take);
    for (used, ..) in check.link_counts.of_group(number) {
        take(used.get() - ino(0));
    }
    compare(
        check,
        BitmapKind::Inode,
        group,
        raw,
        bits,
        |n| taken[n],
        |n| u64::from(ino(n)),
    );
}

/// The first inode that is not reserved.
fn first_ino(check: &Check<'_>) -> u32 {
    check.source.sb.geometry().first_ino()
}

fn compare(
    check: &Check<'_>,
    kind: BitmapKind,
    group: &GroupDesc,
    raw: &[u8],
    bits: u32,
    expected: impl Fn(usize) -> u64,
    name: impl Fn(u32) -> u64,
) {
    let (report, at) = match kind {
        BitmapKind::Block => (Kind::BlockBitmap, group.block_bitmap),
        BitmapKind::Inode => (Kind::InodeBitmap, group.inode_bitmap),
    };
    let mut all: Vec<(u32, u32, bool)> = Vec::new();
    for (n, set) in differences(raw, bits, expected) {
        match all.last_mut() {
            Some((first, count, was)) if *was == set && *first + *count == n => *count += 1,
            _ => all.push((n, 1, set)),
        }
    }
    let (what, group) = (kind.name(), group.group);
    let (ranges, rest) = all.split_at(all.len().min(TOLD));
    let more: u32 = rest.iter().map(|(_, count, _)| count).sum();
    if kind == BitmapKind::Block && all.iter().all(|(.., set)| *set) {
        let findings = ranges.len() as u64 + u64::from(more > 0);
        unused(check, group, &all, findings);
    }
    for &(first, count, set) in ranges {
        let (first, last) = (name(first), name(first + count - 1));
        let says = if set { "in use" } else { "free" };
        let who = match count {
            1 => format!("{what} {first} is marked as {says}, which it is not"),
            _ => format!("{what}s {first} to {last} are marked as {says}, which they are not"),
        };
        let what = format_args!("{what} bitmap of group {group}: {who}");
        check.found.block(report, at, what);
    }
    if more > 0 {
        check.found.block(
            report,
            at,
            format_args!("{what} bitmap of group {group}: {more} more bits are wrong"),
        );
    }
    padding(check, report, kind, group, at, raw, bits);
}

/// Notes clusters that are marked as used, and that nobody uses: whether all of them may be freed is known only if no feature may own them.
fn unused(check: &Check<'_>, group: GroupNo, all: &[(u32, u32, bool)], findings: u64) {
    let others = check.source.sb.features().compat.without(CLAIMED);
    if others == Compat::default() {
        let run = |&(start, len, _): &(u32, u32, bool)| GroupRun { group, start, len };
        let runs: Vec<GroupRun> = all.iter().map(run).collect();
        check.found.unused(&runs, findings);
    } else if !all.is_empty() {
        let names = others.names().join(", ");
        check.found.note(format_args!(
            "blocks that nobody uses are not freed: they may belong to {names}, whose blocks this check does not know"
        ));
    }
}

/// The ranges of bits that differ from the expected state, with that state.
fn differences(
    raw: &[u8],
    bits: u32,
    expected: impl Fn(usize) -> u64,
) -> impl Iterator<Item = (u32, bool)> {
    let word = |part: &[u8]| {
        let mut bytes = [0; 8];
        bytes[..part.len()].copy_from_slice(part);
        u64::from_le_bytes(bytes)
    };
    let words = raw.chunks(8).take(bits.div_ceil(64) as usize).enumerate();
    words
        .map(move |(n, part)| (n, word(part), expected(n)))
        .filter(|(_, is, should)| is != should)
        .flat_map(|(n, is, should)| {
            let first = u32::try_from(n * 64).unwrap_or(u32::MAX);
            let wrong = (0..64).filter(move |bit| (is ^ should) >> bit & 1 != 0);
            wrong.map(move |bit| (first + bit, is >> bit & 1 != 0))
        })
        .filter(move |(n, _)| *n < bits)
}

/// Checks that bits past the group's end are set.
fn padding(
    check: &Check<'_>,
    report: Kind,
    kind: BitmapKind,
    group: GroupNo,
    at: FsBlock,
    raw: &[u8],
    bits: u32,
) {
    let end = check.source.sb.block_size() * 8;
    if let Some(n) = bitmap::next_zero(raw, bits, end) {
        let what = format_args!(
            "{} bitmap of group {group}: bit {n}, behind the group's end, is not set",
            kind.name()
        );
        check.found.block(report, at, what);
    }
}

/// A group whose bitmaps were never written must contain only its own structures, and no inodes. It must not be the last one, for e2fsck:
/// a part of that group's bitmap may stand for no blocks.
fn never_written(check: &Check<'_>, group: &GroupDesc, fixed: u32) {
    let number = group.group;
    let used = check.space.used_in(number);
    if group.flags.block_uninit() && number.get() + 1 == check.source.sb.group_count() {
        let what =
            format_args!("group {number} is the last one, and its block bitmap was never written");
        check
            .found
            .block(Kind::BlockBitmap, group.block_bitmap, what);
    }
    if group.flags.block_uninit() && used != fixed {
        let what = format_args!(
            "group {number}: its block bitmap was never written, and {} clusters of it are in use",
            used.saturating_sub(fixed)
        );
        check
            .found
            .block(Kind::BlockBitmap, group.block_bitmap, what);
    }
}

/// Groups whose inodes are marked as never written, on a volume on which that mark has no meaning, must have no inode in use.
fn marked_inodes(check: &Check<'_>) {
    for group in &check.source.oddly_unwritten {
        let number = group.get() as usize;
        let what = format!("group {group}: its inodes are marked as never written");
        if check.link_counts.of_group(number).next().is_some() {
            let what = format_args!("{what}, and some are in use");
            check.found.add(Kind::Descriptor, what);
        } else {
            check
                .found
                .note(format_args!("{what}, which has no meaning on this volume"));
        }
    }
}

/// Checks the counts in a group's descriptor.
fn counters(check: &Check<'_>, group: &GroupDesc, sums: &mut Sums) {
    let (sb, number) = (&check.source.sb, group.group);
    let clusters = sb.group_clusters(number);
    let free = clusters.saturating_sub(check.space.used_in(number));
    let per_group = sb.geometry().inodes_per_group();
    let reserved = first_ino(check)
        .saturating_sub(number.get() * per_group + 1)
        .min(per_group);
    let (mut inodes, mut dirs) = (reserved, 0);
    for (ino, person, _) in check.link_counts.of_group(number.get() as usize) {
        inodes += u32::from(ino.get() >= first_ino(check));
        dirs += u32::from(person.is_dir());
    }
    let free_inodes = per_group.saturating_sub(inodes);
    sums.free_clusters += u64::from(free);
    sums.free_inodes += u64::from(free_inodes);
    if check.source.from_copy[number.get() as usize] {
        return;
    }
    let mut wrong = false;
    for (what, says, is) in [
        ("free clusters", group.free_clusters, free),
        ("free inodes", group.free_inodes, free_inodes),
        ("directories", group.used_dirs, dirs),
    ] {
        if says != is {
            let what =
                format_args!("group {number}: its descriptor counts {says} {what}; there are {is}");
            check.found.add(Kind::Counters, what);
            wrong = true;
        }
    }
    if wrong || check.found.has_unused(number) {
        check.found.counts(GroupCounts {
            group: number,
            free_clusters: free,
            free_inodes,
            used_dirs: dirs,
        });
    }
}

/// Checks the counts in the superblock. No writer keeps them up to date through a crash, and e2fsck accepts such differences,
/// too.
fn totals(check: &Check<'_>, sums: &Sums) {
    let geometry = check.source.sb.geometry();
    let blocks = sums.free_clusters * u64::from(geometry.cluster_ratio());
    for (what, says, is) in [
        ("free blocks", geometry.free_blocks_count(), blocks),
        (
            "free inodes",
            u64::from(geometry.free_inodes_count()),
            sums.free_inodes,
        ),
    ] {
        if says != is {
            let what = format_args!(
                "the superblock counts {says} {what}, the groups have {is}; whoever writes next puts it right"
            );
            check.found.note(what);
            check.found.stale(|stale| stale.totals = true);
        }
    }
}
