//! What changes more than the superblock: descriptors, checksums, journals, files of the file system itself, the size of inodes.
//!
//! Input: file systems of mke2fs. Output: those of `tune`, beside tune2fs's: the header is the same, e2fsck is content, the files are the
//! same. Limits: the kernel's mount is root's.

use super::*;

/// What changes more than the superblock, each line one file system after the other: the header is that of tune2fs, e2fsck is content,
/// and the files are the same.
const FORMS: [(&str, &[&[&str]]); 7] = [
    (
        "-t ext4 -b 1024",
        &[
            &["-U", UUID],
            &["-O", "^metadata_csum"],
            &["-U", "clear"],
            &["-O", "metadata_csum"],
        ],
    ),
    (
        "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg",
        &[&["-U", UUID]],
    ),
    (
        "-t ext4 -b 1024 -O orphan_file",
        &[
            &["-O", "^orphan_file"],
            &["-O", "orphan_file"],
            &["-O", "^orphan_file,^metadata_csum", "-L", "x"],
        ],
    ),
    (
        "-t ext4 -b 1024",
        &[
            &["-O", "^has_journal"],
            &["-j"],
            &["-O", "^has_journal"],
            &["-J", "size=2"],
        ],
    ),
    (
        "-t ext4 -b 1024",
        &[
            &["-O", "quota,project"],
            &["-L", "x"],
            &["-O", "^project"],
            &["-O", "^quota"],
            &["-Q", "usrquota,grpquota"],
            &["-Q", "^usrquota"],
        ],
    ),
    (
        "-t ext4 -b 1024",
        &[
            &["-O", "mmp"],
            &["-f", "-E", "clear_mmp"],
            &["-E", "mmp_update_interval=9"],
            &["-m", "3"],
            &["-O", "^mmp"],
            &["-O", "casefold"],
            &["-O", "^casefold"],
        ],
    ),
    (
        "-t ext3 -b 1024 -I 128 -J size=4",
        &[&["-I", "256"], &["-O", "extent"]],
    ),
];

#[test]
fn another_form_is_that_of_tune2fs() {
    let dir = scratch();
    let theirs = dir.path().join("theirs").to_str().unwrap().to_owned();
    let shown = |img: &str| {
        // tune2fs leaves the count of clusters that are no file's, and the copy of a journal's map, asks for e2fsck, and writes mmp at
        // other times.
        let own = [
            "Overhead clusters",
            "Journal backup",
            "    mmp_",
            "Journal checksum type",
            "Last checked",
        ];
        let all = header(img).replace("not clean", "clean");
        let lines = all
            .lines()
            .filter(|l| !own.iter().any(|o| l.starts_with(o)));
        lines.collect::<Vec<_>>().join("\n")
    };
    for (kind, steps) in FORMS {
        let img = fresh(dir.path(), "img", kind);
        fs::copy(&img, &theirs).unwrap();
        for words in steps {
            assert!(by_tune2fs(words, &theirs), "{kind}: {words:?}");
            let ran = tuned(words, &img);
            assert_eq!(ran.code, Some(0), "{kind}: {words:?}: {}", ran.err);
            assert_eq!(shown(&img), shown(&theirs), "{kind}: {words:?}");
            run("e2fsck", &["-fn", &img]);
            assert_eq!(diorite(&["cat", &img, "/file"]).ok().out, noise(100_000, 5));
        }
    }
}

#[test]
fn what_is_not_written_afterwards_is_told() {
    let dir = scratch();
    let img = fresh(dir.path(), "img", "-t ext4 -b 1024");
    for feature in ["quota", "mmp", "project"] {
        let ran = tuned(&["-O", feature], &img);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        assert!(
            ran.err.contains(&format!("'diorite tune -O ^{feature}'")),
            "{}",
            ran.err
        );
        diorite(&["mkdir", &img, "/d"]).failed(1, "diorite tune -O ^");
        tuned(&["-O", "^quota,^project,^mmp"], &img).ok();
        diorite(&["mkdir", &img, "/d"]).ok();
        diorite(&["rmdir", &img, "/d"]).ok();
    }
    run("e2fsck", &["-fn", &img]);
}

/// A journal on a device of its own is added, follows the UUID, and is taken away.
#[test]
fn a_journal_on_a_device_comes_and_goes() {
    let dir = scratch();
    let img = fresh(dir.path(), "img", "-t ext4 -b 1024 -O ^has_journal");
    let journal = image(
        dir.path(),
        "journal",
        "4M",
        &["-O", "journal_dev", "-b", "1024"],
        None,
    );
    let device = format!("device={journal}");
    let users = || run("dumpe2fs", &[&journal]);
    tuned(&["-J", &device], &img).ok();
    run("e2fsck", &["-fn", "-j", &journal, &img]);
    diorite(&["tune", "--journal", &journal, "-U", UUID, &img]).ok();
    assert!(users().contains(UUID), "{}", users());
    run("e2fsck", &["-fn", "-j", &journal, &img]);
    diorite(&["tune", "--journal", &journal, "-O", "^has_journal", &img]).ok();
    assert!(!users().contains(UUID) && !header(&img).contains("has_journal"));
    run("e2fsck", &["-fn", &img]);
}

/// The kernel reads the files of each form, and writes.
#[test]
fn the_kernel_mounts_another_form() {
    let dir = scratch();
    for (kind, words) in [
        (
            "-t ext4 -b 1024 -O orphan_file,^flex_bg",
            "-U random -I 512 -O ^metadata_csum",
        ),
        (
            "-t ext4 -b 1024 -O ^metadata_csum",
            "-O metadata_csum,orphan_file,^resize_inode -U random",
        ),
        ("-t ext4 -b 1024 -O ^has_journal", "-j -O orphan_file"),
    ] {
        let img = fresh(dir.path(), "img", kind);
        let words: Vec<&str> = words.split(' ').collect();
        let ran = tuned(&words, &img);
        assert_eq!(ran.code, Some(0), "{kind}: {}", ran.err);
        let Some(mount) = Mount::new(&img, &dir.path().join("mnt"), "rw") else {
            return;
        };
        assert!(fs::read(mount.0.join("file")).unwrap() == noise(100_000, 5));
        assert_eq!(fs::read_dir(mount.0.join("many")).unwrap().count(), 300);
        for n in 0..50 {
            fs::write(mount.0.join(format!("new {n}")), b"x").unwrap();
        }
        drop(mount);
        run("e2fsck", &["-fn", &img]);
        diorite(&["check", &img]).ok();
    }
}

/// The defect: 64bit was left to resize2fs. Other words of the same command have their effect, too.
#[test]
fn descriptors_get_another_size() {
    let dir = scratch();
    for (words, change) in [
        ("-t ext4 -b 1024 -O ^64bit,^resize_inode -g 1024", "64bit"),
        ("-t ext4 -b 1024 -O 64bit", "^64bit"),
    ] {
        let img = fresh(dir.path(), "img", words);
        tuned(&["-O", change, "-L", "label"], &img).ok();
        run("e2fsck", &["-fn", &img]);
        let header = header(&img);
        let lines = |start: &str| {
            let line = header.lines().find(|line| line.starts_with(start));
            line.unwrap_or_default().to_owned()
        };
        let features = lines("Filesystem features:");
        assert_eq!(features.contains("64bit"), change == "64bit", "{features}");
        assert!(
            lines("Filesystem volume name:").contains("label"),
            "{header}"
        );
    }
    let old = fresh(dir.path(), "old", "-t ext2");
    let refused = tuned(&["-O", "64bit"], &old);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("extents"), "{}", refused.err);
}

/// The defect: a UUID that checksums depend on was refused.
#[test]
fn a_new_uuid_rewrites_checksums_or_needs_a_stored_seed() {
    let dir = scratch();
    let theirs = dir.path().join("theirs").to_str().unwrap().to_owned();
    let img = fresh(dir.path(), "img", "-t ext4 -b 1024 -O ^has_journal");
    fs::copy(&img, &theirs).unwrap();
    tuned(&["-O", "metadata_csum_seed", "-U", UUID], &img).ok();
    for words in [["-O", "metadata_csum_seed"], ["-U", UUID]] {
        assert!(by_tune2fs(&words, &theirs));
    }
    assert_eq!(header(&img), header(&theirs));
    assert!(masked(&fs::read(&img).unwrap()) == masked(&fs::read(&theirs).unwrap()));
    run("e2fsck", &["-fn", &img]);
    // The checksums have the old one in them, and are written again.
    tuned(&["-O", "^metadata_csum_seed"], &img).ok();
    assert!(!header(&img).contains("metadata_csum_seed"));
    run("e2fsck", &["-fn", &img]);
    let old = fresh(dir.path(), "old", "-t ext4 -b 1024");
    tuned(&["-O", "metadata_csum_seed"], &old).ok();
    tuned(&["-O", "^metadata_csum_seed"], &old).ok();
    assert!(!header(&old).contains("metadata_csum_seed"));
    run("e2fsck", &["-fn", &old]);
    let sums = "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg";
    let sums = fresh(dir.path(), "sums", sums);
    tuned(&["-O", "metadata_csum_seed"], &sums).failed(1, "with metadata_csum only");
}

/// The form for old kernels, in one go: e2fsck and the kernel take it, and the files are the same.
#[test]
fn an_old_form_in_one_go() {
    let dir = scratch();
    for kind in [
        "-t ext4 -b 1024 -O orphan_file",
        "-t ext4 -b 4096 -O orphan_file,metadata_csum_seed",
        "-t ext4 -b 1024 -O orphan_file,^resize_inode,bigalloc",
    ] {
        let img = fresh(dir.path(), "img", kind);
        let mut bytes = vec![0; 70_000];
        for n in 0..40 {
            bytes[n * 1000] = n as u8 + 1;
            fs::write(dir.path().join("more"), &bytes).unwrap();
            let more = dir.path().join("more").to_str().unwrap().to_owned();
            diorite(&["put", &img, &more, &format!("/more {n}")]).ok();
        }
        run("e2fsck", &["-fn", &img]);
        tuned(
            &[
                "-O",
                "^orphan_file,^metadata_csum_seed,^metadata_csum,^64bit",
            ],
            &img,
        )
        .ok();
        run("e2fsck", &["-fn", &img]);
        let header = header(&img);
        for feature in ["orphan_file", "metadata_csum", "64bit"] {
            let features = header
                .lines()
                .find(|l| l.starts_with("Filesystem features"));
            assert!(!features.unwrap().contains(feature), "{kind}: {header}");
        }
        let same = |read: &dyn Fn(&str) -> Vec<u8>| {
            assert!(read("file") == noise(100_000, 5), "{kind}");
            let mut bytes = vec![0; 70_000];
            for n in 0..40 {
                bytes[n * 1000] = n as u8 + 1;
                assert!(read(&format!("more {n}")) == bytes, "{kind}: {n}");
            }
        };
        same(&|name| diorite(&["cat", &img, &format!("/{name}")]).ok().out);
        let Some(mount) = Mount::new(&img, &dir.path().join("mnt"), "rw") else {
            continue;
        };
        same(&|name| fs::read(mount.0.join(name)).unwrap());
        assert_eq!(fs::read_dir(mount.0.join("many")).unwrap().count(), 300);
        fs::write(mount.0.join("new"), b"x").unwrap();
        drop(mount);
        run("e2fsck", &["-fn", &img]);
    }
}

/// The defect: usage files were refused where values of attributes are in inodes of their own. e2fsck counts the same: a value for each who
/// refers to it, as an inode and as space in whole clusters.
#[test]
fn values_in_inodes_count_for_who_refers_to_them() {
    let dir = scratch();
    for kind in [
        "-t ext4 -b 1024 -O ea_inode",
        "-t ext4 -b 4096 -O ea_inode,bigalloc",
        "-t ext4 -b 1024 -O ea_inode,^metadata_csum -I 128",
    ] {
        let img = fresh(dir.path(), "img", kind);
        let value = |len: usize| "v".repeat(len);
        for (name, len, owner) in [
            ("/file", 5000, "1000:7"),
            ("/many/a rather long name 1", 5000, "1000:8"),
            ("/many/a rather long name 2", 5000, "1001:8"),
            ("/many/a rather long name 2", 60_000, "1001:8"),
            ("/many/a rather long name 3", 300, "1002:9"),
            ("/many", 9000, "1003:7"),
        ] {
            let attribute = format!("user.of{len}");
            diorite(&["setfattr", "-n", &attribute, "-v", &value(len), &img, name]).ok();
            diorite(&["chown", &img, owner, name]).ok();
        }
        // The kernel lets files share a block of attributes, of which each counts all values.
        if let Some(mount) = Mount::new(&img, &dir.path().join("mnt"), "rw") {
            for n in 10..14 {
                let file = mount.0.join(format!("many/a rather long name {n}"));
                for (name, len) in [("user.a", 7000), ("user.b", 200)] {
                    let set = rustix::fs::XattrFlags::empty();
                    rustix::fs::setxattr(&file, name, value(len).as_bytes(), set).unwrap();
                }
                std::os::unix::fs::chown(&file, Some(2000 + n % 2), Some(7)).unwrap();
            }
        }
        run("e2fsck", &["-fn", &img]);
        for words in [
            &["-O", "quota"][..],
            &["-O", "^quota"],
            &["-Q", "usrquota"],
            &["-Q", "grpquota"],
        ] {
            let ran = tuned(words, &img);
            assert_eq!(ran.code, Some(0), "{kind}: {words:?}: {}", ran.err);
            run("e2fsck", &["-fn", &img]);
            diorite(&["check", &img]).ok();
        }
        if !kind.contains("128") {
            let ran = tuned(&["-Q", "usrquota,grpquota,prjquota"], &img);
            assert_eq!(ran.code, Some(0), "{kind}: {}", ran.err);
            run("e2fsck", &["-fn", &img]);
        }
        let listed = run("debugfs", &["-R", "list_quota user", &img]);
        let of = |id: &str| {
            let line = listed.lines().find(|l| l.trim().starts_with(id));
            let line: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
            line[4].to_owned()
        };
        // Two files with one value; one with two; a directory with one.
        assert_eq!(
            [of("1000"), of("1001"), of("1003")],
            ["4", "3", "2"],
            "{listed}"
        );
    }
}

/// The defect: the block against several mounts named neither the host nor the device.
#[test]
fn mount_protection_names_host_and_device() {
    let dir = scratch();
    let img = fresh(dir.path(), "img", "-t ext4 -b 1024");
    let names = || {
        let shown = run("debugfs", &["-R", "dump_mmp", &img]);
        let lines = shown.lines().filter(|line| line.contains("_name"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(by_tune2fs(&["-O", "mmp"], &img));
    let theirs = names();
    assert!(by_tune2fs(&["-O", "^mmp"], &img));
    let ran = tuned(&["-O", "mmp"], &img);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert_eq!(names(), theirs);
    assert!(theirs.len() == 2 && theirs[1].contains(&img), "{theirs:?}");
}

/// The defect: a new UUID was refused where values of attributes are in inodes of their own. Their checksums and the hashes of entries, in
/// inodes and in blocks, have it in them.
#[test]
fn values_in_inodes_get_the_checksums_of_another_uuid() {
    let dir = scratch();
    let theirs = dir.path().join("theirs").to_str().unwrap().to_owned();
    for kind in [
        "-t ext4 -b 1024 -O ea_inode",
        "-t ext4 -b 4096 -O ea_inode,^metadata_csum,^uninit_bg",
        "-t ext4 -b 1024 -O ea_inode,^metadata_csum,uninit_bg -I 128",
        "-t ext4 -b 1024 -O ea_inode,metadata_csum_seed",
    ] {
        let img = fresh(dir.path(), "img", kind);
        let value = |len: usize| "v".repeat(len);
        // Small ones beside the large ones, so that entries are in inodes and in blocks.
        for (name, len) in [
            ("/file", 9000),
            ("/file", 20),
            ("/many/a rather long name 1", 9000),
            ("/many/a rather long name 2", 60_000),
            ("/many/a rather long name 2", 300),
            ("/many/a rather long name 2", 2000),
            ("/many", 9000),
        ] {
            let words = [
                "-n",
                &format!("user.of{len}"),
                "-v",
                &value(len),
                &img,
                name,
            ];
            diorite(&[&["setfattr"], &words[..]].concat()).ok();
        }
        run("e2fsck", &["-fn", &img]);
        fs::copy(&img, &theirs).unwrap();
        let seen = || {
            diorite(&["getfattr", "-R", "-d", "-m", "-", &img, "/"])
                .ok()
                .out
        };
        let before = seen();
        assert!(before.len() > 80_000);
        for uuid in [UUID, "random", UUID] {
            let ran = tuned(&["-U", uuid], &img);
            assert_eq!(ran.code, Some(0), "{kind}: {}", ran.err);
            run("e2fsck", &["-fn", &img]);
            diorite(&["check", &img]).ok();
            assert!(seen() == before, "{kind}");
        }
        assert!(header(&img).contains(UUID));
        // The same values get the same checksums from tune2fs.
        if by_tune2fs(&["-f", "-U", UUID], &theirs) {
            let of = |img: &str| {
                let inodes = 12..60;
                let all = inodes.map(|ino| run("debugfs", &["-R", &format!("stat <{ino}>"), img]));
                let times = all.map(|text| {
                    let line = text.lines().find(|line| line.trim().starts_with("atime:"));
                    line.unwrap_or_default().to_owned()
                });
                times.collect::<Vec<_>>()
            };
            let old = diorite(&["getfattr", "-R", "-d", "-m", "-", &theirs, "/"])
                .ok()
                .out;
            assert!(old == before, "{kind}");
            assert_eq!(of(&img), of(&theirs), "{kind}");
        }
    }
}

/// A value that is not what its checksum says is damage, and is not sealed.
#[test]
fn a_damaged_value_gets_no_new_checksum() {
    let dir = scratch();
    let img = fresh(
        dir.path(),
        "img",
        "-t ext4 -b 1024 -O ea_inode,^has_journal",
    );
    let value = "value".repeat(1000);
    diorite(&["setfattr", "-n", "user.big", "-v", &value, &img, "/file"]).ok();
    let mut bytes = fs::read(&img).unwrap();
    let at = bytes
        .windows(1000)
        .position(|part| part == &value.as_bytes()[..1000]);
    bytes[at.unwrap()] ^= 1;
    fs::write(&img, &bytes).unwrap();
    tuned(&["-U", UUID], &img).failed(1, "its checksum is not that of its contents");
    assert!(masked(&fs::read(&img).unwrap()) == masked(&bytes));
}

/// All words of `-O` but those of the conversions above.
const FEATURES: [&str; 22] = [
    "dir_index",
    "ext_attr",
    "fast_commit",
    "stable_inodes",
    "sparse_super2",
    "lazy_bg",
    "snapshot_bitmap",
    "filetype",
    "extent",
    "flex_bg",
    "meta_bg",
    "ea_inode",
    "large_dir",
    "metadata_csum_seed",
    "inline_data",
    "sparse_super",
    "large_file",
    "huge_file",
    "dir_nlink",
    "extra_isize",
    "bigalloc",
    "uninit_bg",
];

/// The defect: on a volume with features that are only read, and in the command that adds them, `-O` was not judged: seeds were zeros, and
/// features went that files need.
#[test]
fn features_are_judged_on_volumes_that_are_only_read() {
    let dir = scratch();
    let old = fresh(dir.path(), "old", "-t ext4 -b 1024 -O ^metadata_csum_seed");
    let new = format!("{old}-new");
    let (mut done, mut refused) = (0, 0);
    for with in ["quota", "mmp_there"] {
        let base = format!("{old}-{with}");
        std::fs::copy(&old, &base).unwrap();
        if let Some(feature) = with.strip_suffix("_there") {
            diorite(&["tune", "-O", feature, &base]);
        }
        for word in FEATURES
            .iter()
            .flat_map(|f| [(*f).to_owned(), format!("^{f}")])
        {
            std::fs::copy(&base, &new).unwrap();
            let words = match with.ends_with("_there") {
                true => word,
                false => format!("{with},{word}"),
            };
            let ran = diorite(&["tune", "-O", &words, &new]);
            let is_as_before = std::fs::read(&new).unwrap() == std::fs::read(&base).unwrap();
            match ran.code {
                Some(0) => done += 1,
                _ => {
                    refused += 1;
                    assert!(
                        is_as_before,
                        "{with} {words}: refused, and changed: {}",
                        ran.err
                    );
                }
            }
            run("e2fsck", &["-fn", &new]);
            let text = diorite(&["check", &new]);
            assert_eq!(text.code, Some(0), "{with} {words}: {}", text.text());
        }
    }
    assert!(done > 30 && refused > 20, "{done} done, {refused} refused");
}

/// The defect: resize_inode could not be taken from a file system with clusters. What is left is what e2fsck makes of tune2fs's: clusters
/// that had nothing but kept blocks are free.
#[test]
fn clusters_kept_for_descriptors_are_given_back() {
    let dir = scratch();
    let theirs = dir.path().join("theirs").to_str().unwrap().to_owned();
    for kind in [
        "-t ext4 -O bigalloc -b 1024 -C 2048",
        "-t ext4 -O bigalloc -b 1024 -C 16384",
        "-t ext4 -O bigalloc,^flex_bg -b 1024 -C 4096",
        "-t ext4 -O bigalloc -b 2048 -C 32768",
        "-t ext4 -O bigalloc -b 4096",
    ] {
        let img = fresh(dir.path(), "img", kind);
        // What it does to directories it has done then.
        let optimised = xtask::run::tool("e2fsck").args(["-fyD", &img]).output();
        assert!(
            matches!(optimised.unwrap().status.code(), Some(0 | 1)),
            "{kind}"
        );
        fs::copy(&img, &theirs).unwrap();
        assert!(by_tune2fs(&["-O", "^resize_inode"], &theirs), "{kind}");
        // It corrects what tune2fs has left, and says so by its code.
        let mended = xtask::run::tool("e2fsck")
            .args(["-fy", &theirs])
            .output()
            .unwrap();
        assert_eq!(mended.status.code(), Some(1), "{kind}");
        tuned(&["-O", "^resize_inode"], &img).ok();
        run("e2fsck", &["-fn", &img]);
        let free = |img: &str| {
            let all = run("dumpe2fs", &[img]);
            let lines = all
                .lines()
                .filter(|l| l.contains("ree blocks") || l.contains("Reserved GDT"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(free(&img), free(&theirs), "{kind}");
        assert_eq!(diorite(&["cat", &img, "/file"]).ok().out, noise(100_000, 5));
    }
}

/// Larger inodes with clusters are refused, as by tune2fs with flex_bg. Without that feature tune2fs goes ahead, and e2fsck refuses the
/// result.
#[test]
fn larger_inodes_are_refused_with_clusters() {
    let dir = scratch();
    for (kind, is_refused) in [
        ("-t ext4 -O bigalloc -b 4096", true),
        ("-t ext4 -O bigalloc,^flex_bg -b 1024 -C 16384", false),
    ] {
        let img = fresh(dir.path(), "img", kind);
        let before = fs::read(&img).unwrap();
        tuned(&["-I", "512"], &img).failed(1, "clusters (bigalloc)");
        assert!(fs::read(&img).unwrap() == before, "{kind}");
        assert_eq!(by_tune2fs(&["-I", "512"], &img), !is_refused, "{kind}");
        let judged = xtask::run::tool("e2fsck").args(["-fn", &img]).output();
        assert_eq!(judged.unwrap().status.success(), is_refused, "{kind}");
    }
}
