//! How many credits a handle gets: as many as its change may need, and no more than a small journal holds.
//!
//! Input: volumes of 1 KiB blocks with the smallest journal: of one group, of groups of 256 blocks, of files without extents. Output:
//! none. Invariant: exact bounds are tested exactly, as a missing credit breaks a transaction and a needless one divides a change.
//! Limits: the credits of an edit of the map are tested in `edit`.

use crate::inode::pieces::*;
use crate::op::Fallocate;
use crate::queue::File;
use crate::testing::small_volume;
use crate::volume::Volume;
use diorite_format::InodeFlags;

/// Credits for the inode, and for its place on the orphan list.
const OWN: u32 = 1 + ORPHAN_CREDITS;

fn one_group(more: &[&str]) -> Volume {
    let volume = small_volume("8M", &[&["-J", "size=1"], more].concat());
    assert_eq!(volume.superblock().group_count(), 1);
    volume
}

/// Nearly all of its space lies in one piece, behind the tables of all its groups.
fn many_groups() -> Volume {
    let args = [
        "-g",
        "256",
        "-G",
        "4096",
        "-N",
        "1280",
        "-J",
        "size=1",
        "-O",
        "^resize_inode,sparse_super2",
        "-E",
        "num_backup_sb=0",
    ];
    let volume = small_volume("40M", &args);
    assert_eq!(volume.superblock().group_count(), GROUPS);
    volume
}

const GROUPS: u32 = 160;

fn run(file_block: u32, len: u32, start: u64) -> NewRun {
    NewRun {
        file_block,
        len,
        start: FsBlock::new(start),
        unwritten: false,
    }
}

fn nodes(inode: &Inode, leaves: u32, new: &[NewRun]) -> u32 {
    edit::credits(&inode.volume, &inode.disk(), leaves, new)
}

/// Rule D5. Beside the nodes of the map a change needs credits for the inode, its place on the orphan list, and one bitmap with its
/// descriptor for each group: exactly those if there is one group.
#[test]
fn one_group_has_one_bitmap() {
    let volume = one_group(&[]);
    let file = volume.temporary("/", 0o600).unwrap();
    let inode = file.inode();
    // More extents than the inode holds: leaves count.
    (0..8).for_each(|n| allocate(&file, 2 * n, 1));
    assert!(nodes(inode, 2, &[]) > nodes(inode, 1, &[]));
    assert_eq!(inode.credits_to_convert(&[], false), OWN);
    // Blocks of the file that do not follow each other, and ones that do.
    let apart: Vec<NewRun> = (0..200)
        .map(|n| run(3 * n, 1, 7000 - u64::from(n)))
        .collect();
    let hole: Vec<NewRun> = (0..200)
        .map(|n| run(n, 1, 7000 - 2 * u64::from(n)))
        .collect();
    for new in [&[][..], &apart[..1], &apart, &hole] {
        for leaves in [0, 2, 7] {
            let tree = nodes(inode, leaves, new);
            assert_eq!(inode.credits_to_map(leaves, new), OWN + tree + MARK_CREDITS);
            assert_eq!(
                inode.credits_to_change(leaves, new),
                OWN + tree + MARK_CREDITS
            );
        }
    }
    // Edits that follow each other may split twice what one edit of all touches: it touches a leaf for each run, or one hole's.
    let converted = |leaves, new| OWN + 2 * nodes(inode, leaves, new) + MARK_CREDITS;
    assert_eq!(
        inode.credits_to_convert(&apart, false),
        converted(202, &apart)
    );
    assert_eq!(inode.credits_to_convert(&hole, true), converted(2, &hole));
}

/// Rule D5. Each group in which something is mapped is counted once, as is one for each block of the map, and no more than there are.
#[test]
fn every_group_has_its_bitmap() {
    let volume = many_groups();
    let file = volume.temporary("/", 0o600).unwrap();
    let inode = file.inode();
    let in_group = |g: u32| run(g, 1, 1 + u64::from(g) * 256);
    let of = |groups: u32, new: &[NewRun]| {
        let (map, convert) = (nodes(inode, 1, new), 2 * nodes(inode, 2, new));
        let marks = |nodes: u32| MARK_CREDITS * (groups + nodes).min(GROUPS);
        assert_eq!(inode.credits_to_map(1, new), OWN + map + marks(map));
        assert_eq!(
            inode.credits_to_convert(new, true),
            OWN + convert + marks(convert)
        );
    };
    for groups in [1, 40, 100, GROUPS] {
        let new: Vec<NewRun> = (0..groups).map(in_group).collect();
        of(groups, &new);
    }
    // Of one group, to its last block; of two; of three, the first and the last in part.
    for (len, start, groups) in [(256, 257, 1), (257, 257, 2), (2, 512, 2), (300, 510, 3)] {
        of(groups, &[run(0, len, start)]);
    }
    of(2, &[run(0, 1, 300), run(1, 1, 400), run(2, 1, 600)]);
}

/// A write into a file without extents changes as many blocks of pointers as its range has, in however many pieces its space lies, and as
/// few at its end as at its beginning.
#[test]
fn pointers_cost_what_their_range_needs() {
    let volume = one_group(&["-O", "^extents,^64bit"]);
    let file = volume.temporary("/", 0o600).unwrap();
    let inode = file.inode();
    assert_eq!(inode.disk().map_kind(), MapKind::Indirect);
    for from in [0, 1000, 100_000] {
        let pieces: Vec<NewRun> = (0..200)
            .map(|n| run(from + 2 * n, 2, 7000 - 3 * u64::from(n)))
            .collect();
        let whole = [run(from, 400, 6000)];
        let cost = inode.credits_to_convert(&whole, true);
        assert_eq!(cost, inode.credits_to_map(2, &whole));
        assert_eq!(inode.credits_to_convert(&pieces, true), cost);
        assert!(cost <= inode.volume.most_credits());
    }
}

/// Rule D5. What one handle edits at most fits into one of the smallest journal, if every extent of its leaves is mapped anew.
#[test]
fn as_many_leaves_as_a_handle_holds() {
    let volume = one_group(&[]);
    let file = volume.temporary("/", 0o600).unwrap();
    let inode = file.inode();
    (0..8).for_each(|n| allocate(&file, 2 * n, 1));
    let leaves = inode.leaves_per_handle();
    let extents = leaves * u32::from(diorite_format::extent::block_capacity(&inode.volume.sb));
    let new: Vec<NewRun> = (0..extents).map(|n| run(2 * n, 1, 7000)).collect();
    let credits = inode.credits_to_change(leaves, &new);
    assert!(
        credits <= inode.volume.most_credits(),
        "{leaves} leaves: {credits}"
    );
}

fn allocate(file: &File, block: u64, len: u64) {
    let keep_size = false;
    file.fallocate(Fallocate::Allocate { keep_size }, block << 10, len << 10)
        .unwrap();
}

/// All pieces of a file from one end, none of them empty.
fn pieces(inode: &Inode, end: End) -> Vec<Piece> {
    let (mut rest, mut all) = (0..END, Vec::new());
    while !rest.is_empty() {
        let piece = inode.piece_to_free(rest.clone(), end).unwrap();
        assert!(!piece.blocks.is_empty(), "{rest:?} of {all:?}");
        match end {
            End::First => {
                assert_eq!(piece.blocks.start, rest.start);
                rest.start = piece.blocks.end;
            }
            End::Last => {
                assert_eq!(piece.blocks.end, rest.end);
                rest.end = piece.blocks.start;
            }
        }
        all.push(piece);
    }
    all
}

/// Frees the file, piece by piece, in handles with room for what they change.
fn free(volume: &Volume, file: &File) {
    volume.sync().unwrap();
    file.truncate(0).unwrap();
    assert_eq!(file.metadata().blocks, 0);
    assert_eq!(volume.journal_stats().uncredited, 0);
}

/// Rule D5. A file with a block in every other group is freed in as many handles as its groups need and no more; each fits the journal.
#[test]
fn a_piece_has_as_many_groups_as_a_handle_holds() {
    let volume = many_groups();
    for end in [End::First, End::Last] {
        let file = volume.temporary("/", 0o600).unwrap();
        allocate(&file, 0, 80 * 256);
        for n in 0..80 {
            let (pos, len) = ((n * 256 + 1) << 10, 255 << 10);
            file.fallocate(Fallocate::PunchHole, pos, len).unwrap();
        }
        let inode = file.inode();
        let mut groups = Groups::of(inode, 0);
        for mapping in file.mappings(0, u64::MAX).unwrap() {
            if let MappingState::Unwritten(at) = mapping.state {
                groups.add(at, mapping.len);
            }
        }
        assert_eq!(groups.data.len(), 80);
        let most = inode.volume.most_credits();
        let all = pieces(inode, end);
        assert!((2..4).contains(&all.len()), "{all:?}");
        assert!(all.iter().all(|p| p.credits <= most), "{most}: {all:?}");
        free(&volume, &file);
    }
}

/// One extent in more groups than a handle should change is a piece all the same: a handle that comes alone may be larger.
#[test]
fn a_piece_is_never_empty() {
    let volume = many_groups();
    for end in [End::First, End::Last] {
        let file = volume.temporary("/", 0o600).unwrap();
        allocate(&file, 0, 80 * 256);
        let longest = file.mappings(0, u64::MAX).unwrap();
        let longest = longest.iter().map(|m| m.len).max().unwrap();
        assert!(longest > 64 * 256, "{longest}");
        let all = pieces(file.inode(), end);
        let most = file.inode().volume.most_credits();
        assert!(all.iter().any(|p| p.credits > most), "{most}: {all:?}");
        free(&volume, &file);
    }
}

/// What holds metadata is revoked block by block: one long run of it is cut into what handles hold, one that just fits is not.
#[test]
fn a_run_of_metadata_is_cut() {
    let volume = one_group(&[]);
    for end in [End::First, End::Last] {
        let file = volume.temporary("/", 0o600).unwrap();
        allocate(&file, 0, 1000);
        let flags = file.metadata().flags.with(InodeFlags::JOURNAL_DATA);
        file.set_flags(flags).unwrap();
        let inode = file.inode();
        assert!(inode.holds_metadata());
        let most = inode.volume.most_credits();
        let others = OWN + nodes(inode, inode.leaves_per_handle(), &[]) + MARK_CREDITS;
        let all = pieces(inode, end);
        assert!(all.iter().all(|p| p.credits <= most), "{most}: {all:?}");
        // Three quarters at least of the room that a handle has for them.
        assert!(
            all.len() as u32 <= 1000_u32.div_ceil((most - others) * 3 / 4),
            "{all:?}"
        );
        file.truncate(u64::from(most - others) << 10).unwrap();
        let one = pieces(inode, end);
        assert_eq!((one.len(), one[0].credits), (1, most), "{one:?}");
        free(&volume, &file);
    }
}
