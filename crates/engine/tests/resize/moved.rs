//! File systems whose descriptors have no room where they are: they grow, get longer or shorter descriptors (64bit), or lose meta_bg. Power
//! cuts in the middle leave the old volume or the new one.

use super::{
    KINDS, Kind, MIB, by_kernel, check_files, e2fsck_keeps, extend, fill, fresh, kind, made,
    numbers, open,
};
use crate::common::stage::mem_of;
use crate::common::{Rng, fsck, run, scaled, scratch};
use diorite::{Error, OpenOptions, Volume};
use diorite_block::RecordDevice;
use diorite_block::record::{PowerCuts, plan};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// No space is kept for descriptors, or too little.
const NO_ROOM: [Kind; 12] = [
    kind("-t ext4 -b 1024 -O ^resize_inode", 20, 300),
    kind("-t ext4 -b 1024 -g 1024 -O ^resize_inode", 20, 200),
    kind(
        "-t ext4 -b 1024 -g 1024 -O ^resize_inode,orphan_file",
        33,
        90,
    ),
    kind("-t ext4 -b 1024 -g 2048 -O ^resize_inode,^flex_bg", 20, 150),
    kind(
        "-t ext4 -b 2048 -O ^resize_inode,^64bit,^has_journal",
        40,
        4000,
    ),
    kind("-t ext4 -b 4096 -O ^resize_inode", 64, 20_000),
    kind(
        "-t ext4 -b 4096 -g 1024 -G 4 -O ^resize_inode,^metadata_csum,uninit_bg",
        50,
        1000,
    ),
    kind("-t ext3 -b 1024 -g 1024 -O ^resize_inode", 20, 100),
    kind("-t ext2 -b 1024 -O ^resize_inode", 20, 500),
    kind(
        "-t ext2 -b 1024 -g 1024 -O ^resize_inode,^sparse_super",
        12,
        66,
    ),
    kind("-t ext4 -b 1024 -g 1024 -E resize=30000", 12, 300),
    kind(
        "-t ext4 -b 1024 -g 1024 -O sparse_super2,^resize_inode",
        20,
        120,
    ),
];

fn copy_of(path: &Path, name: &str) -> PathBuf {
    let to = path.with_file_name(name);
    std::fs::copy(path, &to).unwrap();
    to
}

/// The volume is whole, has its files, takes more, and the kernel agrees.
fn is_well(path: &Path, files: &[(String, Vec<u8>)]) {
    fsck(path);
    by_kernel(path, files);
    fsck(path);
    check_files(&open(path), files);
}

/// The defect: growth ended where the blocks that are kept for descriptors do, and resize2fs goes on. Also: 12 sizes grown by both.
#[test]
fn it_grows_where_descriptors_have_no_room() {
    for kind in &NO_ROOM {
        let (_dir, path, files) = fresh(kind);
        let theirs = copy_of(&path, "theirs");
        for path in [&path, &theirs] {
            extend(path, kind.to * MIB);
        }
        run("resize2fs", &["-f", theirs.to_str().unwrap()]);
        let volume = open(&path);
        let refused = volume.grow(kind.to * MIB).unwrap_err();
        assert!(matches!(refused, Error::NotSupported(_)), "{refused}");
        assert_eq!(volume.enlarged_bytes(kind.to * MIB).unwrap(), kind.to * MIB);
        let bytes = volume.enlarge(kind.to * MIB, &mut |_| true).unwrap();
        assert_eq!(bytes, kind.to * MIB);
        is_well(&path, &files);
        assert_eq!(numbers(&path), numbers(&theirs), "{}", kind.words);
        // And back.
        if kind.to < 1000 {
            let bytes = open(&path).shrink(kind.from * MIB, &mut |_| true).unwrap();
            assert_eq!(bytes, kind.from * MIB);
            is_well(&path, &files);
        }
    }
}

/// The defect: 64bit could be switched by resize2fs alone.
#[test]
fn descriptors_get_another_size_as_by_resize2fs() {
    let more = [
        kind("-t ext4 -b 1024 -g 1024 -O ^64bit,^resize_inode", 30, 0),
        kind(
            "-t ext4 -b 1024 -g 1024 -O ^64bit,^resize_inode,^flex_bg",
            30,
            0,
        ),
        kind("-t ext4 -b 1024 -O ^64bit,meta_bg,^resize_inode", 40, 0),
        kind(
            "-t ext4 -b 1024 -O ^64bit,uninit_bg,^metadata_csum,^has_journal",
            40,
            0,
        ),
        kind("-t ext4 -b 4096 -O ^64bit,orphan_file", 40, 0),
    ];
    for kind in KINDS.iter().chain(&more) {
        let dir = scratch();
        let (path, files) = made(dir.path(), kind);
        let sb = open(&path).superblock().clone();
        let is_wide = sb.geometry().desc_size() == 64;
        let has_extents = kind.words.contains("ext4");
        if !has_extents {
            let refused = open(&path).set_64bit(true, &mut |_| true).unwrap_err();
            assert!(refused.to_string().contains("extents"), "{refused}");
            fsck(&path);
            continue;
        }
        eprintln!("{} of {} MiB, from {is_wide}", kind.words, kind.from);
        for wide in [!is_wide, is_wide, !is_wide] {
            let theirs = copy_of(&path, "theirs");
            run(
                "resize2fs",
                &[
                    "-f",
                    if wide { "-b" } else { "-s" },
                    theirs.to_str().unwrap(),
                ],
            );
            open(&path).set_64bit(wide, &mut |_| true).unwrap();
            fsck(&path);
            check_files(&open(&path), &files);
            assert_eq!(numbers(&path), numbers(&theirs), "{}", kind.words);
        }
        by_kernel(&path, &files);
        let volume = open(&path);
        fill(&volume);
        volume.close().unwrap();
        fsck(&path);
    }
}

/// The defect: a volume whose first meta block group is not 0 could not become smaller than that one.
#[test]
fn meta_bg_goes_where_no_descriptors_lie_in_their_groups() {
    let dir = scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("f"), vec![7; 100_000]).unwrap();
    let path = dir.path().join("image");
    let made = xtask::run::tool("mke2fs")
        .env("MKE2FS_FIRST_META_BG", "2")
        .args([
            "-q", "-F", "-t", "ext4", "-b", "1024", "-J", "size=1", "-N", "2000",
        ])
        .args(["-O", "64bit,meta_bg,^resize_inode", "-d"])
        .args([&tree, &path])
        .arg("500M")
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    for mib in [300, 200, 120, 48] {
        let theirs = copy_of(&path, "theirs");
        run(
            "resize2fs",
            &["-f", theirs.to_str().unwrap(), &format!("{mib}M")],
        );
        open(&path).shrink(mib * MIB, &mut |_| true).unwrap();
        is_well(&path, &[("/f".to_owned(), vec![7; 100_000])]);
        let ours = numbers(&path);
        assert_eq!(ours, numbers(&theirs), "{mib}");
        assert_eq!(
            mib > 128,
            ours.iter().any(|line| line.contains("meta_bg")),
            "{ours:?}"
        );
    }
}

/// A change that is cut off: what it does, and whether a superblock is of the new volume.
struct Cut {
    words: &'static str,
    from: u64,
    change: fn(Volume),
    is_new: fn(&Volume) -> bool,
}

fn enlarge(volume: Volume) {
    volume.enlarge(40 * MIB, &mut |_| true).unwrap();
}

fn is_large(volume: &Volume) -> bool {
    volume.superblock().geometry().volume_bytes() == 40 * MIB
}

fn widen(volume: Volume) {
    volume.set_64bit(true, &mut |_| true).unwrap();
}

fn is_wide(volume: &Volume) -> bool {
    volume.superblock().geometry().desc_size() == 64
}

fn narrow(volume: Volume) {
    volume.set_64bit(false, &mut |_| true).unwrap();
}

#[test]
fn a_power_cut_leaves_the_old_volume_or_the_new_one() {
    let cut = |words, from, change, is_new| Cut {
        words,
        from,
        change,
        is_new,
    };
    let narrow_words = "-t ext4 -b 1024 -g 1024 -N 1000";
    for cut in [
        cut(
            "-t ext4 -b 1024 -g 1024 -N 1000 -J size=1 -O ^resize_inode",
            12,
            enlarge,
            is_large,
        ),
        cut(
            "-t ext4 -b 1024 -g 1024 -N 1000 -O ^resize_inode,orphan_file",
            12,
            enlarge,
            is_large,
        ),
        cut(
            "-t ext4 -b 1024 -g 1024 -N 1000 -O ^64bit,^resize_inode",
            12,
            widen,
            is_wide,
        ),
        cut("-t ext4 -b 1024 -N 1000 -O ^64bit", 12, widen, is_wide),
        cut(
            "-t ext4 -b 1024 -g 2048 -O ^64bit,^metadata_csum,^uninit_bg",
            12,
            widen,
            is_wide,
        ),
        cut(narrow_words, 12, narrow, |volume| !is_wide(volume)),
    ] {
        cut_off(&cut);
    }
}

fn cut_off(cut: &Cut) {
    let words = cut.words;
    let mut rng = Rng::from_env(words);
    let dir = scratch();
    let (path, files) = made(dir.path(), &kind(words, cut.from, 0));
    let mut base = std::fs::read(&path).unwrap();
    // What lies behind the end are not zeros.
    base.resize((40 * MIB) as usize, 0xEE);
    let device = RecordDevice::with_volatile_cache(Arc::new(mem_of(&base)));
    let options = OpenOptions::writable();
    (cut.change)(Volume::open_device(Arc::new(device.clone()), &options).unwrap());
    let log = device.log();
    let mut walk = PowerCuts::new(base, &log);
    let (mut old, mut new) = (0, 0);
    // Copies of the superblock that stand in for a torn one are looked for in groups of the usual size.
    let unit = if words.contains("-g") { 1024 } else { 512 };
    let states = scaled("DIORITE_CUTS", 4) as usize;
    // Most writes are those of what moves; the change itself is at the end.
    let (last, all) = (
        log.len().saturating_sub(40),
        plan(&log, 8 * states, rng.below(u64::MAX), unit),
    );
    let cuts = all.into_iter().enumerate();
    let cuts = cuts.filter(|(n, cut)| n % 8 == 0 || cut.at > last);
    for (_, at) in cuts {
        let bytes = walk.with_image(at, <[u8]>::to_vec);
        let cut_at = dir.path().join("cut");
        std::fs::write(&cut_at, &bytes).unwrap();
        let volume = open(&cut_at);
        match (cut.is_new)(&volume) {
            true => new += 1,
            false => old += 1,
        }
        check_files(&volume, &files);
        volume.close().unwrap();
        // The journal's move may leave blocks that nobody uses; the same change completes what was cut off.
        let code = xtask::run::tool("e2fsck").arg("-fp").arg(&cut_at).output();
        let code = code.unwrap().status.code();
        assert!(code.is_some_and(|code| code < 2), "{words} {at:?}");
        let volume = open(&cut_at);
        match (cut.is_new)(&volume) {
            true => volume.close().unwrap(),
            false if rng.below(4) == 0 => {
                (cut.change)(volume);
                fsck(&cut_at);
            }
            false => drop(volume),
        }
        std::fs::write(&cut_at, &bytes).unwrap();
        e2fsck_keeps(&cut_at, &files, &format!("{words} {at:?}"));
    }
    eprintln!("{words}: {old} old, {new} new");
    assert!(old > 0 && new > 0);
}
