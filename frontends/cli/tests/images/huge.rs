//! Large files of new file systems (make_hugefiles): names, sizes and places are those of the installed mke2fs.
//!
//! Input: configurations in the format of mke2fs.conf. Output: file systems of both, read by debugfs. Invariant: e2fsck finds nothing in
//! ours. Limits: mke2fs leaves an inconsistent file system where the last file does not fit, and with clusters where a file begins inside
//! of one: there only names and sizes are compared, or ours alone is judged.

use super::{clean, path};
use crate::common::{run, scratch};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// A new file system of `size` by this program. Returns what it said on standard error.
fn made(program: &Path, line: &str, (img, size): (&Path, &str), config: &Path) -> String {
    let _ = fs::remove_file(img);
    let mut command = match program.components().count() {
        1 => xtask::run::tool(path(program)),
        _ => Command::new(program),
    };
    let words = "-q -F -t ext4 -T huge"
        .split(' ')
        .chain(line.split_whitespace());
    let out = command.args(words).args([path(img), size]);
    let out = out.env("MKE2FS_CONFIG", config).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(0), "{line} {said}");
    said
}

/// A run of data: its first block in the file, its first block on the volume, its length.
type Data = (u64, u64, u64);

/// Name, size and data of each file of a directory, without what every file system has.
fn listed(img: &Path, dir: &str) -> Vec<(String, String, Vec<Data>)> {
    let ask = |words: &str| run("debugfs", &["-R", words, path(img)]);
    let names = ask(&format!("ls -p {dir}"));
    let names = names.lines().filter_map(|line| line.split('/').nth(5));
    let mut names: Vec<&str> = names
        .filter(|name| !matches!(*name, "." | ".." | "lost+found"))
        .collect();
    names.sort_unstable();
    // One process for all: there may be hundreds.
    let script = img.with_extension("stats");
    let dir = dir.trim_end_matches('/');
    let words: Vec<String> = names.iter().map(|n| format!("stat {dir}/{n}\n")).collect();
    fs::write(&script, words.concat()).unwrap();
    let told = run("debugfs", &["-f", path(&script), path(img)]);
    let texts = told.split("debugfs: stat ").skip(1);
    let of = |(name, text): (&str, &str)| {
        let size = text.split("Size: ").nth(1).unwrap();
        let size = size.split_whitespace().next().unwrap().to_owned();
        let extents = text.split("EXTENTS:").nth(1).unwrap_or_default();
        let mut runs: Vec<Data> = Vec::new();
        for part in extents.split([',', '\n']).map(str::trim) {
            let Some((blocks, places)) = part.split_once(':') else {
                continue;
            };
            let ends = |text: &str| -> Option<(u64, u64)> {
                let text = text.trim_matches(['(', ')']);
                let (first, last) = text.split_once('-').unwrap_or((text, text));
                Some((first.parse().ok()?, last.parse().ok()?))
            };
            // Blocks of maps (ETB0) lie elsewhere.
            let Some(((block, last), (at, _))) = ends(blocks).zip(ends(places)) else {
                continue;
            };
            let len = last + 1 - block;
            match runs.last_mut() {
                Some(run) if run.0 + run.2 == block && run.1 + run.2 == at => run.2 += len,
                _ => runs.push((block, at, len)),
            }
        }
        (name.to_owned(), size, runs)
    };
    names.into_iter().zip(texts).map(of).collect()
}

/// A configuration, with a type `huge` of these lines.
fn written(config: &Path, lines: &str) {
    let base = "[defaults]\nbase_features = sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr\n\
                default_mntopts = acl,user_xattr\nblocksize = 4096\ninode_size = 256\ninode_ratio = 16384\n[fs_types]\next4 = {\n\
                features = has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize\n}\nhuge = {\n\
                make_hugefiles = true\n";
    fs::write(config, format!("{base}{lines}}}\n")).unwrap();
}

const VOLUMES: [(&str, &str); 5] = [
    ("256M", "-O ^has_journal"),
    ("256M", "-E packed_meta_blocks=1"),
    ("64M", "-b 1024 -E packed_meta_blocks=1"),
    ("64M", "-b 2048 -O ^has_journal"),
    (
        "2G",
        "-E packed_meta_blocks=1,num_backup_sb=0 -O sparse_super2,^resize_inode",
    ),
];

const LINES: [&str; 18] = [
    "",
    "num_hugefiles = 3\nhugefiles_size = 1M\n",
    "num_hugefiles = 3\nhugefiles_size = 1M\nhugefiles_align = 2M\n",
    "num_hugefiles = 2\nhugefiles_align = 1M\n",
    "num_hugefiles = 40\nhugefiles_align = 100\n",
    "hugefiles_align = 4M\n",
    "hugefiles_align = 4M\nhugefiles_align_disk = true\n",
    "hugefiles_size = 5M\nhugefiles_align = 2M\n",
    "hugefiles_size = 2648\nhugefiles_align = 2648\n",
    "hugefiles_size = 7M\n",
    "hugefiles_slack = 10%\nhugefiles_digits = 0\n",
    "hugefiles_slack = 3M\nhugefiles_digits = 0\nnum_hugefiles = 12\nhugefiles_align = 64K\n",
    "hugefiles_slack = 0\nnum_hugefiles = 3\nhugefiles_size = 100\n",
    "hugefiles_slack = 26000\nnum_hugefiles = 1\nhugefiles_align = 3000\n",
    // Room for some, for none.
    "hugefiles_slack = 26000\nnum_hugefiles = 1\nhugefiles_align = 40000\n",
    "num_hugefiles = 3\nhugefiles_align = 3G\n",
    "hugefiles_size = 4G\n",
    "hugefiles_size = nothing\nnum_hugefiles = 2\n",
];

/// The defect: an alignment was refused, `hugefiles_digits = 0` gave a file a number, and a slack that is no size was refused.
#[test]
fn large_files_lie_where_mke2fs_has_them() {
    let dir = scratch();
    let (config, mke2fs) = (dir.path().join("mke2fs.conf"), dir.path().join("mke2fs"));
    symlink(env!("CARGO_BIN_EXE_diorite"), &mke2fs).unwrap();
    let (theirs, ours) = (dir.path().join("theirs"), dir.path().join("ours"));
    for (size, line) in VOLUMES {
        // Large ones take their time.
        let step = if size == "2G" { 4 } else { 1 };
        for lines in LINES.into_iter().step_by(step) {
            written(&config, lines);
            made(Path::new("mke2fs"), line, (&theirs, size), &config);
            made(&mke2fs, line, (&ours, size), &config);
            assert!(
                listed(&theirs, "/") == listed(&ours, "/"),
                "{size} {line} {lines}"
            );
            run("e2fsck", &["-fn", path(&ours)]);
        }
    }
    written(&config, "hugefiles_dir = /a/b\nnum_hugefiles = 30\n");
    made(Path::new("mke2fs"), "", (&theirs, "256M"), &config);
    made(&mke2fs, "", (&ours, "256M"), &config);
    assert_eq!(listed(&theirs, "/a/b"), listed(&ours, "/a/b"));
    clean(&ours);
}

/// With clusters: places are those of mke2fs where the alignment is one of clusters. Otherwise mke2fs begins a file inside of a cluster,
/// which e2fsck does not accept.
#[test]
fn large_files_begin_at_clusters() {
    let dir = scratch();
    let (config, mke2fs) = (dir.path().join("mke2fs.conf"), dir.path().join("mke2fs"));
    symlink(env!("CARGO_BIN_EXE_diorite"), &mke2fs).unwrap();
    let (theirs, ours) = (dir.path().join("theirs"), dir.path().join("ours"));
    let line = "-O bigalloc -C 65536";
    for (lines, is_same) in [
        (
            "num_hugefiles = 3\nhugefiles_size = 1M\nhugefiles_align = 2M\n",
            true,
        ),
        ("hugefiles_size = 5M\nhugefiles_align = 2M\n", true),
        ("hugefiles_align = 1M\n", true),
        ("num_hugefiles = 3\nhugefiles_size = 1M\n", false),
        ("num_hugefiles = 30\nhugefiles_dir = /a\n", false),
        ("num_hugefiles = 12\nhugefiles_align = 100\n", false),
        ("", false),
    ] {
        written(&config, lines);
        made(&mke2fs, line, (&ours, "64M"), &config);
        clean(&ours);
        let files = listed(&ours, if lines.contains("/a") { "/a" } else { "/" });
        for (name, _, runs) in &files {
            assert!(
                runs.iter().all(|run| run.1.is_multiple_of(16)),
                "{lines} {name}"
            );
        }
        if is_same {
            made(Path::new("mke2fs"), line, (&theirs, "64M"), &config);
            assert_eq!(files, listed(&theirs, "/"), "{lines}");
        } else {
            assert!(!files.is_empty(), "{lines}");
        }
    }
}

/// What has no room is left out and told. mke2fs makes as many files, and leaves blocks behind that nobody has.
#[test]
fn large_files_without_room_are_told() {
    let dir = scratch();
    let (config, mke2fs) = (dir.path().join("mke2fs.conf"), dir.path().join("mke2fs"));
    symlink(env!("CARGO_BIN_EXE_diorite"), &mke2fs).unwrap();
    let (theirs, ours) = (dir.path().join("theirs"), dir.path().join("ours"));
    for (lines, missing) in [
        ("num_hugefiles = 20\nhugefiles_size = 50M\n", 16),
        ("num_hugefiles = 2\nhugefiles_size = 300M\n", 2),
        ("hugefiles_size = 300M\n", 1),
    ] {
        written(&config, lines);
        let said = made(&mke2fs, "", (&ours, "256M"), &config);
        let told = format!("{missing} huge files are left out: there is no room for them");
        assert!(said.contains(&told), "{said}");
        clean(&ours);
        made(Path::new("mke2fs"), "", (&theirs, "256M"), &config);
        let sizes = |img: &Path| -> Vec<(String, String)> {
            let files = listed(img, "/").into_iter();
            files.map(|(name, size, _)| (name, size)).collect()
        };
        assert_eq!(sizes(&ours), sizes(&theirs), "{lines}");
    }
    written(&config, "hugefiles_slack = 10%\n");
    let said = made(&mke2fs, "", (&ours, "64M"), &config);
    assert!(
        said.contains("hugefiles_slack = 10%: no size, taken as 0"),
        "{said}"
    );
}

/// An alignment on the disk counts from the disk's start, where the file system is in a partition.
#[test]
fn large_files_are_aligned_on_the_disk() {
    let dir = scratch();
    let (config, mke2fs) = (dir.path().join("mke2fs.conf"), dir.path().join("mke2fs"));
    symlink(env!("CARGO_BIN_EXE_diorite"), &mke2fs).unwrap();
    let disk = dir.path().join("disk");
    fs::File::create(&disk).unwrap().set_len(128 << 20).unwrap();
    let table = dir.path().join("table");
    fs::write(&table, "label: gpt\nstart=3072, size=200000\n").unwrap();
    let shell = format!(
        "PATH=$PATH:/usr/sbin:/sbin sfdisk -q {} <{}",
        path(&disk),
        path(&table)
    );
    run("sh", &["-c", &shell]);
    let start = |lines: &str| {
        written(&config, lines);
        let part = format!("{}?part=1", path(&disk));
        let words = ["-q", "-F", "-t", "ext4", "-T", "huge", &part];
        let mut command = Command::new(&mke2fs);
        let made = command.args(words).env("MKE2FS_CONFIG", &config);
        assert!(made.status().unwrap().success());
        let offset = format!("{}?offset={}", path(&disk), 3072 * 512);
        listed(Path::new(&offset), "/")[0].2[0].1 * 4096
    };
    let lines = "num_hugefiles = 1\nhugefiles_size = 8M\nhugefiles_align = 4M\n";
    assert_eq!(start(lines) % (4 << 20), 0);
    let on_disk = start(&format!("{lines}hugefiles_align_disk = true\n")) + 3072 * 512;
    assert_eq!(on_disk % (4 << 20), 0);
}

/// The defect: a size of one block asked for as many files as there are blocks, of which all were kept in memory; the file system got
/// inodes for them.
#[test]
fn more_files_than_inodes_are_refused() {
    let dir = scratch();
    let (config, img) = (dir.path().join("conf"), dir.path().join("img"));
    written(&config, "hugefiles_size = 1\n");
    let line = "-q -F -t ext4 -T huge -N 4096";
    let by = |program: &mut Command| {
        let _ = fs::remove_file(&img);
        let words = line.split(' ').chain([path(&img), "64G"]);
        let out = program.args(words).env("MKE2FS_CONFIG", &config).output();
        out.unwrap()
    };
    let link = dir.path().join("mke2fs");
    symlink(env!("CARGO_BIN_EXE_diorite"), &link).unwrap();
    let out = by(&mut Command::new(&link));
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("inodes are missing"), "{said}");
}
