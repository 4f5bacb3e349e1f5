//! Volumes with quotas for users, groups and projects: `check` agrees with `e2fsck -fn`, on right and on wrong usage.
//!
//! Input: images of mke2fs, owners and damage set with debugfs; where mounting is allowed, usage that the kernel has counted.
//! Output: assertions. Invariants: both find an image damaged, or neither does. Limits: wrong bytes inside quota files are left to
//! the test of fields.

use crate::common::kernel::mounted;
use crate::common::recipe::debugfs;
use crate::common::{fsck, image, scratch};
use crate::{ours, theirs};
use diorite_check::{CheckOptions, check};
use diorite_format::features::RoCompat;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const FILES: u32 = 40;

/// An image with files of many owners, whose quota files are right.
fn kept(dir: &Path, args: &[&str]) -> PathBuf {
    let source = dir.join("source");
    std::fs::create_dir_all(&source).unwrap();
    for n in 0..FILES {
        std::fs::write(source.join(format!("f{n}")), vec![1; 700 * n as usize]).unwrap();
    }
    for (name, len) in [("short", 20), ("long", 60), ("longer", 200)] {
        std::os::unix::fs::symlink("x/".repeat(len), source.join(name)).unwrap();
    }
    let all: Vec<&str> = ["-t", "ext4"].iter().chain(args).copied().collect();
    let image = image(dir, "24M", &all, &source);
    let mut script = String::new();
    for n in 0..FILES {
        let id = [n, n << 8 | 7, n << 24, u32::MAX - 9][n as usize % 4];
        writeln!(script, "sif /f{n} uid {id}\nsif /f{n} gid {}", id ^ 1).unwrap();
        // Inodes of 128 bytes have no project id.
        if args.contains(&PROJECT) {
            writeln!(script, "sif /f{n} projid {id}").unwrap();
        }
    }
    for name in ["short", "long"] {
        writeln!(script, "sif /{name} uid 5").unwrap();
    }
    let value = dir.join("value");
    let (mut names, mut len) = (vec!["large"], 900);
    // An attribute block has room for only one of these values.
    if args.iter().any(|a| a.contains("ea_inode")) {
        (names, len) = (vec!["large", "too"], 5000);
    }
    std::fs::write(&value, "v".repeat(len)).unwrap();
    for n in [3, 9] {
        for name in &names {
            writeln!(script, "ea_set -f {} /f{n} user.{name}", value.display()).unwrap();
        }
    }
    debugfs(&image, dir, &script);
    repair(&image);
    fsck(&image);
    image
}

fn repair(image: &Path) {
    let status = xtask::run::tool("e2fsck").arg("-fy").arg(image).output();
    assert!(status.is_ok());
}

const PROJECT: &str = "quota,project";

#[test]
fn what_is_kept_right_is_clean_and_another_owner_is_found() {
    for args in [
        &["-b", "1024", "-O", PROJECT][..],
        &["-b", "4096", "-O", PROJECT],
        &["-b", "1024", "-O", PROJECT, "-O", "ea_inode,inline_data"],
        &["-b", "2048", "-O", PROJECT, "-O", "bigalloc,ea_inode"],
        &[
            "-b",
            "1024",
            "-O",
            PROJECT,
            "-O",
            "orphan_file,meta_bg,^resize_inode",
        ],
        &["-b", "1024", "-O", PROJECT, "-E", "quotatype=prjquota"],
        &["-b", "1024", "-O", "quota,^metadata_csum", "-I", "128"],
        &[
            "-b",
            "1024",
            "-O",
            "quota,^has_journal",
            "-E",
            "quotatype=grpquota",
        ],
    ] {
        let dir = scratch();
        let image = kept(dir.path(), args);
        for field in ["uid", "gid", "projid", "blocks"] {
            let pristine = std::fs::read(&image).unwrap();
            let counted = field != "projid" || args.contains(&PROJECT);
            if counted {
                debugfs(&image, dir.path(), &format!("sif /f9 {field} 77"));
            }
            agree(&image, &format!("{args:?}: {field} of a file"));
            std::fs::write(&image, pristine).unwrap();
        }
    }
}

/// Asserts that both find the image damaged, or neither. Returns whether they do.
fn agree(image: &Path, what: &str) -> bool {
    let (ours, theirs) = (ours(image), theirs(image));
    assert_eq!(ours.0, theirs.0, "{what}: {ours:?}, e2fsck: {theirs:?}");
    ours.0
}

#[test]
fn usage_files_are_where_the_superblock_says() {
    let dir = scratch();
    let image = kept(dir.path(), &["-b", "1024", "-O", PROJECT]);
    let pristine = std::fs::read(&image).unwrap();
    let mut cases: Vec<String> = Vec::new();
    let inos = [0, 1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 100, 6000, 99_999];
    for field in ["usr", "grp", "prj"] {
        let set = |ino| format!("ssv {field}_quota_inum {ino}");
        cases.extend(inos.map(set));
    }
    cases.push("ssv usr_quota_inum 4\nssv grp_quota_inum 3".into());
    let features = u32::from_le_bytes(pristine[1124..1128].try_into().unwrap());
    let without = |bit: RoCompat| format!("ssv feature_ro_compat {:#x}", features & !bit.bits());
    cases.extend([RoCompat::QUOTA, RoCompat::PROJECT].map(without));
    for ino in [3, 12] {
        let inode = [
            "mode 0",
            "mode 010600",
            "mode 0100000",
            "uid 5",
            "projid 5",
            "flags 0x80000",
            "links_count 0",
            "links_count 2",
            "size 0",
            "size 5000",
            "size 6145",
            "size 70000",
        ];
        cases.extend(inode.map(|field| format!("sif <{ino}> {field}")));
        let rest = ["clri", "freei"].map(|command| format!("{command} <{ino}>"));
        cases.extend(rest);
        cases.extend([format!("punch <{ino}> 0 99"), format!("link <{ino}> name")]);
    }
    for case in &cases {
        debugfs(&image, dir.path(), case);
        agree(&image, case);
        std::fs::write(&image, &pristine).unwrap();
    }
}

#[test]
fn inodes_for_usage_files_that_are_not_kept_are_empty() {
    let dir = scratch();
    std::fs::create_dir_all(dir.path().join("source")).unwrap();
    let args = ["-t", "ext4", "-b", "1024"];
    let image = image(dir.path(), "8M", &args, &dir.path().join("source"));
    let pristine = std::fs::read(&image).unwrap();
    for (case, damaged) in [
        ("sif <3> mode 0100600", false),
        ("sif <3> links_count 1", true),
        ("sif <4> blocks 2", true),
        ("sif <4> block[0] 1500", true),
        ("sif <3> flags 0x80000", false),
        ("sif <5> links_count 1", false),
    ] {
        debugfs(&image, dir.path(), case);
        assert_eq!(agree(&image, case), damaged, "{case}");
        std::fs::write(&image, &pristine).unwrap();
    }
}

#[test]
fn findings_do_not_depend_on_threads() {
    let dir = scratch();
    let image = kept(dir.path(), &["-b", "1024", "-N", "6000", "-O", PROJECT]);
    let script: String = (0..FILES)
        .map(|n| format!("sif /f{n} uid {}\n", n * 3))
        .collect();
    debugfs(&image, dir.path(), &script);
    let report = |threads| {
        let options = CheckOptions::default().threads(threads);
        check(image.to_str().unwrap(), &options, &|_| ()).unwrap()
    };
    let one = report(1);
    assert!(one.count() > 20);
    assert_eq!(one, report(4));
}

#[test]
fn what_the_kernel_counts_is_clean() {
    let dir = scratch();
    let image = kept(dir.path(), &["-b", "1024", "-O", PROJECT]);
    let done = mounted(&image, "prjquota", |at| {
        for n in 0..300_u32 {
            let path = at.join(format!("k{n}"));
            std::fs::write(&path, vec![2; 50 * n as usize]).unwrap();
            std::os::unix::fs::chown(&path, Some(n * 70), Some(n << 16)).unwrap();
            let _ = xtask::run::tool("chattr")
                .args(["-p", &n.to_string()])
                .arg(&path)
                .output();
        }
        (0..FILES).for_each(|n| std::fs::remove_file(at.join(format!("f{n}"))).unwrap());
    });
    if done {
        fsck(&image);
    }
}
