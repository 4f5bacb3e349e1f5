//! Tests of `tune`: the superblock and its copies are what tune2fs makes of them with the same words, and so is what changes more than
//! them; what cannot be changes nothing; e2fsck and the kernel take the result.

mod forms;

use crate::common::{Mount, copied_command, debugfs, diorite, image, noise, run, scratch};
use std::fs;
use std::path::Path;
use std::process::Command;

const UUID: &str = "c1b9d5a2-f162-11cf-9ece-0020afc76f16";

/// Words for any file system.
const WORDS: [&[&str]; 45] = [
    &["-u", "daemon", "-g", "daemon"],
    &["-c", "16000"],
    &["-c", "-16000"],
    &["-u", "010", "-g", "0x10"],
    &["-C", "16000"],
    &["-O", "encrypt,verity"],
    &["-L", "some label"],
    &["-L", "exactly16letters"],
    &["-L", ""],
    &["-M", "/mnt/somewhere"],
    &["-m", "3.7"],
    &["-m", "0"],
    &["-m", "50"],
    &["-r", "100"],
    &["-u", "1000"],
    &["-u", "root", "-g", "65535"],
    &["-e", "panic"],
    &["-e", "remount-ro"],
    &["-c", "20"],
    &["-c", "0"],
    &["-c", "-5"],
    &["-C", "7"],
    &["-C", "-1"],
    &["-i", "10"],
    &["-i", "2w"],
    &["-i", "1m"],
    &["-i", "5s"],
    &["-i", "49710"],
    &["-T", "20200102"],
    &["-T", "20200702030405"],
    &["-o", "acl,^user_xattr"],
    &["-o", "journal_data"],
    &["-o", "journal_data_ordered,journal_data"],
    &["-o", "journal_data_writeback,debug"],
    &["-o", "^journal_data"],
    &[
        "-o",
        "debug bsdgroups,uid16,nobarrier,block_validity,discard,nodelalloc",
    ],
    &["-E", "stride=16,stripe_width=64"],
    &["-E", "hash_alg=tea"],
    &["-E", "hash_alg=legacy,test_fs"],
    &["-E", "^test_fs,mount_opts=noatime"],
    &["-E", "mount_opts="],
    &["-E", "force_fsck"],
    &[
        "-L",
        "all",
        "-m",
        "1",
        "-c",
        "9",
        "-E",
        "stride=8",
        "-O",
        "large_dir",
    ],
    &["-O", "^read-only"],
    &["-O", "+Large_Dir,extents"],
];

/// Features that are set, each for itself.
const FEATURES: [&str; 15] = [
    "encrypt",
    "verity",
    "dir_index",
    "extent",
    "flex_bg",
    "large_dir",
    "ea_inode",
    "large_file",
    "huge_file",
    "dir_nlink",
    "extra_isize",
    "stable_inodes",
    "read-only",
    "fast_commit",
    "large_dir,ea_inode,^read-only",
];

/// The words of mke2fs. What has no journal is compared byte by byte.
const KINDS: [&str; 6] = [
    "-t ext4 -O ^has_journal",
    "-t ext4 -b 1024 -J size=4",
    "-t ext3 -b 1024 -J size=4",
    "-t ext2 -b 1024",
    "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg,^has_journal",
    "-t ext4 -b 1024 -O sparse_super2,^resize_inode,^has_journal",
];

fn tuned(words: &[&str], img: &str) -> crate::common::Ran {
    diorite(&[&["tune"], words, &[img]].concat())
}

/// Runs tune2fs; whether it did what it was told.
fn by_tune2fs(words: &[&str], img: &str) -> bool {
    let out = xtask::run::tool("tune2fs")
        .args(words)
        .arg(img)
        .env("TZ", "Europe/Berlin")
        .output()
        .unwrap();
    out.status.success()
}

/// What `dumpe2fs -h` prints, without what changes with every write.
fn header(img: &str) -> String {
    let said = run("dumpe2fs", &["-h", img]);
    let own = [
        "Journal features",
        "Last write time",
        "Lifetime writes",
        "Checksum:",
        "Journal sequence",
        "Journal checksum",
        "Journal start",
    ];
    let lines = said
        .lines()
        .filter(|l| !own.iter().any(|o| l.starts_with(o)));
    lines.collect::<Vec<_>>().join("\n")
}

fn block_size(bytes: &[u8]) -> usize {
    1024 << u32::from_le_bytes(bytes[1048..1052].try_into().unwrap())
}

/// Positions of the superblocks, found by their magic number where groups begin.
fn superblocks(bytes: &[u8]) -> Vec<usize> {
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (size, first, per_group) = (block_size(bytes), number(1044), number(1056));
    let groups = (first * size..bytes.len())
        .step_by(per_group * size)
        .skip(1);
    let is_one = |at: &usize| bytes[at + 0x38..at + 0x3A] == [0x53, 0xEF];
    std::iter::once(1024).chain(groups.filter(is_one)).collect()
}

/// Without the time of the last write, the KiB written and the checksum.
fn masked(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for at in superblocks(&bytes) {
        for range in [0x30..0x34, 0x178..0x180, 0x274..0x275, 0x3FC..0x400] {
            bytes[at + range.start..at + range.end].fill(0);
        }
    }
    bytes
}

fn fresh(dir: &Path, name: &str, words: &str) -> String {
    let source = dir.join("source");
    if !source.exists() {
        fs::create_dir_all(source.join("many")).unwrap();
        fs::write(source.join("file"), noise(100_000, 5)).unwrap();
        for n in 0..300 {
            fs::write(source.join(format!("many/a rather long name {n}")), b"").unwrap();
        }
    }
    let words: Vec<&str> = words.split(' ').collect();
    image(dir, name, "24M", &words, Some(&source))
}

fn same(kind: &str, words: &[&str], before: &str, ours: &str, theirs: &str) {
    for img in [ours, theirs] {
        fs::copy(before, img).unwrap();
    }
    assert!(by_tune2fs(words, theirs), "{kind}: {words:?}");
    let ran = tuned(words, ours);
    assert_eq!((ran.code, &ran.err[..]), (Some(0), ""), "{kind}: {words:?}");
    assert_eq!(header(ours), header(theirs), "{kind}: {words:?}");
    let (a, b) = (
        masked(&fs::read(ours).unwrap()),
        masked(&fs::read(theirs).unwrap()),
    );
    let places = superblocks(&a);
    assert!(
        places.len() > 1 || !kind.contains("1024"),
        "{kind}: {places:?}"
    );
    for at in &places {
        assert!(
            a[*at..at + 1024] == b[*at..at + 1024],
            "{kind}: {words:?}: superblock at {at}"
        );
    }
    if !header(before).contains("has_journal") {
        let at = (0..a.len()).find(|at| a[*at] != b[*at]);
        assert_eq!(at, None, "{kind}: {words:?}");
    }
    run("e2fsck", &["-fn", ours]);
}

#[test]
fn the_words_of_tune2fs_have_the_same_effect() {
    let dir = scratch();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (ours, theirs) = (path("ours"), path("theirs"));
    for (n, kind) in KINDS.into_iter().enumerate() {
        let before = fresh(dir.path(), "before", kind);
        // All of them with and without a journal; a part with every other kind.
        let (skipped, step) = if n < 2 { (0, 1) } else { (n, 5) };
        for words in WORDS.into_iter().skip(skipped).step_by(step) {
            same(kind, words, &before, &ours, &theirs);
        }
        for feature in FEATURES {
            // No journal to have them in; a journal of 4 MiB has no room with blocks of 4 KiB.
            let room = header(&before).contains("has_journal");
            if feature != "fast_commit" || room {
                same(kind, &["-O", feature], &before, &ours, &theirs);
            }
        }
        if !header(&before).contains("_csum")
            && !kind.contains("uninit_bg")
            && !kind.contains("ext4")
        {
            same(kind, &["-U", UUID], &before, &ours, &theirs);
            same(kind, &["-U", "clear"], &before, &ours, &theirs);
        }
    }
}

/// As tune2fs: the beginning is taken, and a warning says so.
#[test]
fn fields_that_are_too_long_are_cut_with_a_warning() {
    let dir = scratch();
    let img = fresh(dir.path(), "img", "-t ext4 -b 1024 -O ^has_journal");
    let theirs = dir.path().join("theirs").to_str().unwrap().to_owned();
    fs::copy(&img, &theirs).unwrap();
    let long = "/a/directory/".repeat(9);
    for words in [
        ["-L", "seventeen letters"],
        ["-L", "letters of \u{e4}\u{f6}\u{fc}"],
        ["-M", &long],
    ] {
        assert!(by_tune2fs(&words, &theirs));
        let ran = tuned(&words, &img);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        assert!(ran.err.contains("too long, truncated to"), "{}", ran.err);
        assert!(
            masked(&fs::read(&img).unwrap()) == masked(&fs::read(&theirs).unwrap()),
            "{words:?}"
        );
    }
    run("e2fsck", &["-fn", &img]);
}

#[test]
fn what_changes_more_is_refused_by_name() {
    let dir = scratch();
    let img = fresh(dir.path(), "img", "-t ext4 -b 1024 -J size=1");
    let before = fs::read(&img).unwrap();
    let refused: [(&[&str], &str); 27] = [
        (&["-I", "128"], "cannot become smaller"),
        (&["-Q", "bogus"], "Bad quota options specified: bogus"),
        (&["-j"], "already has a journal"),
        (&["-J", "bogus"], "Bad journal options specified: bogus"),
        (&["-I", "300"], "a power of two"),
        (&["-E", "clear_mmp"], "must be used with -f"),
        (&["-E", "encoding=bogus"], "Invalid encoding: bogus"),
        (&["-E", "bogus"], "Bad options specified: bogus"),
        (&["-E", "stride"], "needs a value"),
        (&["-E", "stride=70000"], "Invalid stride=70000"),
        (&["-E", "hash_alg=siphash"], "siphash is unknown"),
        (&["-O", "bogus"], "Invalid filesystem option set: bogus"),
        (&["-O", "none"], "Invalid filesystem option set: none"),
        (&["-O", "sparse_super2"], "sparse_super2: it cannot be set"),
        (&["-O", "fast_commit"], "too small"),
        (&["-O", "large_dir,^extent"], "extent: it cannot be taken"),
        (&["-c", "16001"], "bad mounts count - 16001"),
        (&["-c", "-16001"], "bad mounts count - -16001"),
        (&["-C", "16001"], "bad mounts count - 16001"),
        (&["-m", "60"], "bad reserved block ratio"),
        (&["-r", "99999999"], "at most"),
        (&["-e", "bogus"], "bad error behavior"),
        (&["-c", "70000"], "bad mounts count"),
        (&["-i", "99999"], "too big"),
        (&["-T", "garbage"], "could not parse"),
        (&["-u", "nosuch"], "bad user name - nosuch"),
        (&["-o", "bogus"], "Invalid mount option set: bogus"),
    ];
    for (words, why) in refused {
        tuned(words, &img).failed(1, why);
        // A good word beside it changes nothing either.
        tuned(&[&["-L", "new"], words].concat(), &img).failed(1, why);
        assert!(fs::read(&img).unwrap() == before, "{words:?}");
    }
    assert_eq!(tuned(&[], &img).code, Some(2));
    tuned(&["-r", "1", "-m", "1"], &img).failed(2, "cannot be used with");
}

#[test]
fn a_feature_is_cleared_only_if_nothing_needs_it() {
    let dir = scratch();
    let words = "-t ext4 -b 1024 -O ^has_journal";
    let img = fresh(dir.path(), "img", words);
    let theirs = dir.path().join("theirs").to_str().unwrap().to_owned();
    fs::copy(&img, &theirs).unwrap();
    tuned(&["-O", "^large_file,^huge_file,^dir_nlink"], &img).ok();
    assert!(by_tune2fs(
        &["-O", "^large_file,^huge_file,^dir_nlink"],
        &theirs
    ));
    // tune2fs cannot know that nothing needs them.
    assert_eq!(header(&img), header(&theirs).replace("not clean", "clean"));
    run("e2fsck", &["-fn", &img]);
    for (feature, damage) in [
        ("large_file", "sif /file size 3000000000"),
        ("huge_file", "sif /file flags 0xc0000"),
        ("dir_nlink", "sif /many links_count 1"),
        ("dir_index", "sif /many flags 0x81000"),
    ] {
        let img = fresh(dir.path(), "img", words);
        debugfs(&img, damage);
        let before = fs::read(&img).unwrap();
        let clear = format!("^{feature}");
        tuned(&["-O", &clear], &img).failed(1, &format!("{feature}: inode"));
        assert!(fs::read(&img).unwrap() == before, "{feature}");
    }
    // The feature comes back with the first file that needs it.
    let img = fresh(dir.path(), "img", words);
    tuned(&["-O", "^large_file"], &img).ok();
    assert!(!header(&img).contains("large_file"));
    diorite(&["truncate", "-s", "3G", &img, "/file"]).ok();
    assert!(header(&img).contains("large_file"));
    run("e2fsck", &["-fn", &img]);
}

#[test]
fn the_mark_read_only_is_set_and_taken_off() {
    let dir = scratch();
    let img = fresh(dir.path(), "img", "-t ext4");
    tuned(&["-O", "read-only"], &img).ok();
    diorite(&["mkdir", &img, "/d"]).failed(1, "read-only");
    tuned(&["-L", "x"], &img).failed(1, "read-only");
    tuned(&["-O", "^read-only", "-L", "y"], &img).ok();
    diorite(&["mkdir", &img, "/d"]).ok();
    assert!(header(&img).contains("volume name:   y"));
    // tune2fs 1.47 leaves out the upper bits of a time.
    tuned(&["-T", "21500101"], &img).ok();
    assert!(
        diorite(&["info", &img])
            .ok()
            .text()
            .contains("Jan  1 00:00:00 2150")
    );
    run("e2fsck", &["-fn", &img]);
}

#[test]
fn the_kernel_mounts_the_result() {
    let dir = scratch();
    for (kind, words) in [
        (
            "-t ext3 -b 1024 -J size=4",
            "dir_index,extent,flex_bg,large_dir,ea_inode,huge_file,dir_nlink,extra_isize,fast_commit",
        ),
        (
            "-t ext4 -b 4096 -J size=8",
            "metadata_csum_seed,large_dir,ea_inode,fast_commit,stable_inodes",
        ),
        ("-t ext2 -b 1024", "extent,huge_file,dir_nlink,large_dir"),
        (
            "-t ext4 -O fast_commit -J size=8",
            "^fast_commit,^huge_file",
        ),
    ] {
        let img = fresh(dir.path(), "img", kind);
        tuned(
            &[
                "-O",
                words,
                "-o",
                "acl",
                "-E",
                "mount_opts=noatime,hash_alg=tea",
            ],
            &img,
        )
        .ok();
        let Some(mount) = Mount::new(&img, &dir.path().join("mnt"), "rw") else {
            return;
        };
        assert!(fs::read(mount.0.join("file")).unwrap() == noise(100_000, 5));
        fs::create_dir(mount.0.join("new")).unwrap();
        for n in 0..400 {
            fs::write(
                mount.0.join(format!("new/another long name, number {n}")),
                b"x",
            )
            .unwrap();
        }
        drop(mount);
        run("e2fsck", &["-fn", &img]);
        diorite(&["check", &img]).ok();
        diorite(&[
            "put",
            &img,
            dir.path().join("source/file").to_str().unwrap(),
            "/put",
        ])
        .ok();
        run("e2fsck", &["-fn", &img]);
    }
}

#[test]
fn the_superblock_is_printed() {
    let dir = scratch();
    let img = fresh(dir.path(), "img", "-t ext4");
    let said = tuned(&["-l"], &img).ok().text();
    let own = run("tune2fs", &["-l", &img]);
    let lines = |text: &str| -> Vec<String> {
        let lines = text.lines().skip_while(|l| !l.starts_with("Filesystem"));
        lines.take(20).map(|l| l.trim_end().to_owned()).collect()
    };
    assert_eq!(lines(&said), lines(&own));
    let said = tuned(&["-L", "new", "-l"], &img).ok().text();
    assert!(said.contains("Filesystem volume name:   new"), "{said}");
    let json = tuned(&["-l", "--json"], &img).ok().out;
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["label"], "new");
}

#[test]
fn it_takes_the_place_of_tune2fs_and_e2label() {
    let dir = scratch();
    let img = fresh(dir.path(), "img", "-t ext4");
    let copy = copied_command(dir.path());
    let called = |name: &str, args: &[&str]| {
        let link = dir.path().join(name);
        let _ = std::os::unix::fs::symlink(&copy, &link);
        let out = Command::new(link).args(args).output().unwrap();
        (out.status.code(), String::from_utf8(out.stdout).unwrap())
    };
    assert_eq!(called("e2label", &[&img, "mine"]).0, Some(0));
    assert_eq!(called("e2label", &[&img]), (Some(0), "mine\n".to_owned()));
    assert_eq!(called("tune2fs", &["-c", "5", &img]).0, Some(0));
    assert!(
        called("tune2fs", &["-l", &img])
            .1
            .contains("Maximum mount count:      5")
    );
    assert_eq!(called("tune2fs", &["--bogus"]).0, Some(1));
}
