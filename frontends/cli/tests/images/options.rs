//! Options of mke2fs that are no numbers: bad blocks, places of the journal, journals elsewhere, quotas, superblocks alone.

use super::{clean, kernel_shows, path};
use crate::common::{Mount, diorite, is_root, run, scratch, skip};
use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;
use xtask::run::words;

pub(super) const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

/// Blocks of the list that e2fsprogs find in inode 1.
fn bad_blocks(img: &Path) -> Vec<u64> {
    let text = run("dumpe2fs", &["-b", path(img)]);
    text.lines().filter_map(|l| l.trim().parse().ok()).collect()
}

/// Nothing lies in a block of the list; the list is what mke2fs would have made of it.
#[test]
fn bad_blocks_are_kept_out_of_use() {
    let dir = scratch();
    let (img, list, tree) = (
        dir.path().join("img"),
        dir.path().join("list"),
        dir.path().join("tree"),
    );
    crate::common::tree(&tree);
    let few = vec![5000, 6000, 6001, 7000];
    let many: Vec<u64> = (20_000..40_000).step_by(3).collect();
    let tables: Vec<u64> = (270..900).step_by(40).collect();
    for options in [
        "-b 1024",
        "-b 1024 -O ^extent,^64bit",
        "-b 1024 -O ^flex_bg",
        "-t ext2",
    ] {
        for blocks in [&few, &many, &tables] {
            let text: Vec<String> = blocks.iter().map(u64::to_string).collect();
            fs::write(&list, text.join("\n")).unwrap();
            let mut args = vec!["mkfs", "-q", "-F", "-b", "1024", "-d", path(&tree)];
            args.extend(options.split(' ').filter(|w| !["-b", "1024"].contains(w)));
            args.extend(["-l", path(&list), path(&img), "100M"]);
            let ran = diorite(&args);
            let is_flexible = !options.contains("flex_bg") && !options.contains("ext2");
            if !is_flexible && blocks.len() > 100 {
                // Their tables have to lie in groups in which no three blocks in a row are good.
                ran.failed(1, "is too small for the inode tables");
                continue;
            }
            assert!(ran.code == Some(0), "{options}: {}", ran.err);
            clean(&img);
            // Those in copies of the superblock stay with these.
            let found = bad_blocks(&img);
            let missing: Vec<&u64> = blocks.iter().filter(|b| !found.contains(b)).collect();
            if let [first, others @ ..] = &missing[..] {
                let said = format!("block {first} is bad, and {} others", others.len());
                assert!(ran.err.contains(&said), "{options}: {}", ran.err);
            }
            assert!(missing.len() * 20 <= blocks.len(), "{options}: {missing:?}");
            for block in found.iter().take(5) {
                let used = crate::common::debugfs(path(&img), &format!("testb {block}"));
                assert!(used.contains("marked in use"), "{options}: {used}");
                // debugfs looks for owners among the files that have links.
                let owner = crate::common::debugfs(path(&img), &format!("icheck {block}"));
                assert!(owner.contains("<block not found>"), "{options}: {owner}");
            }
            kernel_shows(&img, &dir.path().join("m"), |at| {
                crate::common::same_but(&tree, at, "lost+found");
            });
        }
    }
}

#[test]
fn lists_of_bad_blocks_are_judged() {
    let dir = scratch();
    let (img, list) = (dir.path().join("img"), dir.path().join("list"));
    for (text, options, why) in [
        ("1\n", "-b 1024", "block 1 is bad"),
        ("9000\nx7\n", "-b 1024", "line 2: x7"),
        ("9000\n", "-b 1024 -O bigalloc", "bigalloc"),
    ] {
        fs::write(&list, text).unwrap();
        let mut args = vec!["mkfs", "-q", "-l", path(&list)];
        args.extend(options.split(' '));
        args.extend([path(&img), "100M"]);
        diorite(&args).failed(1, why);
        assert!(!img.exists(), "{text}");
    }
    // Behind the end, and in a copy of the superblock: as mke2fs, it says so and goes on.
    fs::write(&list, "8193\n99999999\n9000\n").unwrap();
    let ran = diorite(&[
        "mkfs",
        "-q",
        "-b",
        "1024",
        "-l",
        path(&list),
        path(&img),
        "100M",
    ]);
    assert!(
        ran.code == Some(0)
            && ran.err.contains("99999999 out of range")
            && ran.err.contains("8193"),
        "{}",
        ran.err
    );
    clean(&img);
    assert_eq!(bad_blocks(&img), [9000]);
    diorite(&["mkfs", "-q", "-l", "/nowhere", path(&img)]).failed(1, "/nowhere");
}

/// The tests find nothing on a device that works, and that of writing leaves nothing.
#[test]
fn devices_are_tested() {
    let dir = scratch();
    let img = dir.path().join("img");
    fs::write(&img, vec![0xA5; 20 << 20]).unwrap();
    for test in [&["-c"][..], &["-c", "-c"]] {
        let mut args = vec!["mkfs", "-q", "-F"];
        args.extend(test);
        args.push(path(&img));
        diorite(&args).ok();
        clean(&img);
        assert!(bad_blocks(&img).is_empty());
    }
}

/// A part of a device that cannot be read, and one that loses what is written.
#[test]
fn tests_find_what_fails() {
    let dir = scratch();
    let img = dir.path().join("img");
    File::create(&img).unwrap().set_len(64 << 20).unwrap();
    let Some(device) = Mapped::new(&img, &dir) else {
        return;
    };
    diorite(&["mkfs", "-q", "-F", "-b", "1024", "-c", &device.path]).ok();
    let found = bad_blocks(Path::new(&device.path));
    assert_eq!(found, (40_000..40_008).collect::<Vec<u64>>());
    run("e2fsck", &["-fn", &device.path]);
}

/// A device of device-mapper with eight blocks of 1 KiB that fail.
struct Mapped {
    name: String,
    path: String,
    below: String,
}

impl Mapped {
    fn new(img: &Path, dir: &tempfile::TempDir) -> Option<Mapped> {
        let has_it = Path::new("/dev/mapper/control").exists();
        if !is_root() || !has_it || Command::new("dmsetup").arg("version").output().is_err() {
            skip("a device that fails needs root and dmsetup");
            return None;
        }
        let below = run("losetup", &["-f", "--show", path(img)])
            .trim()
            .to_owned();
        let name = format!("diorite-{}", std::process::id());
        let table = dir.path().join("table");
        let text =
            format!("0 80000 linear {below} 0\n80000 16 error\n80016 51056 linear {below} 80016\n");
        fs::write(&table, text).unwrap();
        let made = Command::new("dmsetup")
            .args(["create", &name, path(&table)])
            .output();
        if !made.is_ok_and(|ran| ran.status.success()) {
            run("losetup", &["-d", &below]);
            skip("device-mapper does not work here");
            return None;
        }
        let path = format!("/dev/mapper/{name}");
        Some(Mapped { name, path, below })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let _ = Command::new("dmsetup")
            .args(["remove", "--retry", &self.name])
            .status();
        let _ = Command::new("losetup").args(["-d", &self.below]).status();
    }
}

/// Where the journal lies, by debugfs.
fn journal_runs(img: &Path) -> String {
    let text = crate::common::debugfs(path(img), "stat <8>");
    text.trim_end()
        .lines()
        .last()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn the_journal_goes_where_it_is_asked_to() {
    let dir = scratch();
    let img = dir.path().join("img");
    for (at, first) in [
        ("20000", "20000-24095"),
        ("30M", "30720-34815"),
        ("70000", "70000-73728"),
    ] {
        let args = format!("mkfs -q -F -b 1024 -J location={at} {} 100M", path(&img));
        diorite(&words(&args)).ok();
        clean(&img);
        let runs = journal_runs(&img);
        assert!(runs.contains(&format!(":{first}")), "{at}: {runs}");
    }
    // From there to the end, and the rest from the beginning on.
    diorite(&[
        "mkfs",
        "-q",
        "-F",
        "-b",
        "1024",
        "-J",
        "location=99999,size=8",
        path(&img),
    ])
    .ok();
    clean(&img);
    let runs = journal_runs(&img);
    assert!(
        runs.contains("99999-102399") && runs.contains(", ("),
        "{runs}"
    );
    for (option, why) in [
        ("location=102400", "the journal is to be at block 102400"),
        ("location=x", "Bad journal options specified: location=x"),
    ] {
        diorite(&["mkfs", "-q", "-b", "1024", "-J", option, path(&img)]).failed(1, why);
    }
}

/// Journals on devices of their own, as dumpe2fs shows them; file systems with them, as e2fsck, the kernel and diorite take them.
#[test]
fn a_journal_can_lie_elsewhere() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let (journal, img) = (at("journal"), at("img"));
    for block in ["1024", "4096"] {
        let _ = fs::remove_file(&journal);
        let args = format!("-q -O journal_dev -b {block} -L log -U {UUID}");
        let ours = format!("mkfs {args} {} 40M", path(&journal));
        diorite(&words(&ours)).ok();
        let theirs = at("theirs");
        File::create(&theirs).unwrap().set_len(40 << 20).unwrap();
        let other = format!("-F -t ext4 {args} {}", path(&theirs));
        run("mke2fs", &words(&other));
        let shown = |img: &Path| -> Vec<String> {
            let text = run("dumpe2fs", &[path(img)]);
            let other = [
                "Filesystem created",
                "Last write",
                "Last checked",
                "Lifetime",
                "Checksum:",
                "Directory Hash Seed",
                "Filesystem flags",
            ];
            let lines = text
                .lines()
                .filter(|l| !other.iter().any(|o| l.starts_with(o)));
            lines
                .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect()
        };
        assert_eq!(shown(&journal), shown(&theirs));
        let named = format!("device={}", path(&journal));
        diorite(&["mkfs", "-q", "-b", block, "-J", &named, path(&img), "100M"]).ok();
        run("e2fsck", &["-fn", "-j", path(&journal), path(&img)]);
        diorite(&["check", "--journal", path(&journal), path(&img)]).ok();
        let text = run("dumpe2fs", &["-h", path(&img)]);
        assert!(
            text.contains(&format!("Journal UUID:             {UUID}")),
            "{text}"
        );
        // Without its journal it is only read; with it, it is written.
        let put = diorite(&["put", path(&img), "/etc/hostname", "/file"]);
        assert!(put.code != Some(0), "{}", put.text());
        diorite(&[
            "put",
            "--journal",
            path(&journal),
            path(&img),
            "/etc/hostname",
            "/file",
        ])
        .ok();
        run("e2fsck", &["-fn", "-j", path(&journal), path(&img)]);
        // It has a user now.
        let other = at("other");
        let again = [
            "mkfs",
            "-q",
            "-b",
            block,
            "-J",
            &named,
            path(&other),
            "100M",
        ];
        diorite(&again).failed(1, "drivers take no journal with two users");
        assert!(!other.exists());
        let size = if block == "1024" { "4096" } else { "1024" };
        diorite(&[
            "mkfs",
            "-q",
            "-F",
            "-b",
            size,
            "-J",
            &named,
            path(&other),
            "100M",
        ])
        .failed(1, "both must have the same");
        if is_root() {
            let device = run("losetup", &["-f", "--show", path(&journal)])
                .trim()
                .to_owned();
            let option = format!("loop,journal_path={device}");
            fs::create_dir_all(at("m")).unwrap();
            if let Some(mount) = Mount::new(path(&img), &at("m"), &option) {
                assert!(at("m").join("file").is_file());
                fs::write(at("m").join("more"), "more").unwrap();
                drop(mount);
            }
            // By UUID, which mke2fs finds with blkid.
            let by_uuid = format!("device=UUID={UUID}");
            let made = diorite(&["mkfs", "-q", "-F", "-b", block, "-J", &by_uuid, path(&img)]);
            let checked = Command::new("e2fsck")
                .args(["-fn", "-j", &device, path(&img)])
                .status();
            run("losetup", &["-d", &device]);
            made.ok();
            assert!(checked.unwrap().success());
        } else {
            skip("the kernel's view of a journal elsewhere needs root");
        }
        fs::remove_file(&img).unwrap();
    }
    for (words, why) in [
        ("-J device=/nowhere", "/nowhere"),
        (
            "-J device=LABEL=there-is-none",
            "no journal device with the LABEL",
        ),
        ("-J device=/dev/null,size=4", "has its size and place there"),
        ("-O journal_dev -b 4096 -S", "of no use"),
    ] {
        let mut args = vec!["mkfs", "-q"];
        args.extend(words.split(' '));
        args.extend([path(&img), "100M"]);
        diorite(&args).failed(1, why);
    }
    let small = format!("mkfs -q -O journal_dev -b 4096 {} 3M", path(&img));
    diorite(&words(&small)).failed(1, "at least 1024");
}

/// Usage files hold what the tree has: e2fsck counts it, and the kernel goes on from there.
#[test]
fn quotas_begin_with_what_is_there() {
    let dir = scratch();
    let (img, tree) = (dir.path().join("img"), dir.path().join("tree"));
    crate::common::tree(&tree);
    if is_root() {
        for n in 0..60u32 {
            let file = tree.join(format!("of{n}"));
            fs::write(&file, vec![1; 100 * n as usize]).unwrap();
            chown(&file, Some(n * 7_001), Some(n.wrapping_mul(0x1234_5678))).unwrap();
        }
    } else {
        skip("files of several owners need root");
    }
    for (options, types) in [
        ("-O quota", "User Group"),
        ("-O quota,project", "User Group Project"),
        ("-O quota -E quotatype=usrquota", "User"),
        ("-O quota -E quotatype=grpquota:prjquota", "Group Project"),
        ("-O quota,project -b 1024", "User Group Project"),
        ("-O quota,bigalloc -b 4096", "User Group"),
        ("-O quota,ea_inode,^orphan_file", "User Group"),
        ("-O quota -t ext3", "User Group"),
        ("-O project", ""),
    ] {
        let mut args = vec!["mkfs", "-q", "-F", "-d", path(&tree)];
        args.extend(options.split(' '));
        args.extend([path(&img), "100M"]);
        diorite(&args).ok();
        clean(&img);
        let text = run("dumpe2fs", &["-h", path(&img)]);
        for kind in ["User", "Group", "Project"] {
            let has = text.contains(&format!("{kind} quota inode:"));
            assert_eq!(has, types.contains(kind), "{options}: {kind}");
        }
        kernel_shows(&img, &dir.path().join("m"), |at| {
            crate::common::same_but(&tree, at, "lost+found");
        });
        fs::create_dir_all(dir.path().join("m")).unwrap();
        if let Some(mount) = Mount::new(path(&img), &dir.path().join("m"), "loop") {
            fs::write(dir.path().join("m/more"), vec![2; 50_000]).unwrap();
            chown(dir.path().join("m/more"), Some(7_001), Some(99)).unwrap();
            drop(mount);
            clean(&img);
        }
    }
    for (options, why) in [
        ("-O quota -E quotatype=x", "Invalid quotatype: x"),
        ("-O project -I 128", "inodes of more than 128 bytes"),
    ] {
        let mut args = vec!["mkfs", "-q", "-F"];
        args.extend(options.split(' '));
        args.push(path(&img));
        diorite(&args).failed(1, why);
    }
    // An image of the size that its files need has room for them, too.
    diorite(&["import", "-q", "-O", "quota", path(&tree), path(&img)]).ok();
    clean(&img);
}

/// Superblocks alone bring a file system back, and are not written over anything else.
#[test]
fn superblocks_come_back() {
    let dir = scratch();
    let (img, tree) = (dir.path().join("img"), dir.path().join("tree"));
    crate::common::tree(&tree);
    for options in ["", "-b 1024", "-O quota", "-O ^flex_bg", "-t ext2"] {
        let words: Vec<&str> = options.split(' ').filter(|w| !w.is_empty()).collect();
        let _ = fs::remove_file(&img);
        let mut args = vec!["mkfs", "-q", "-F", "-U", UUID, "-d", path(&tree)];
        args.extend(&words);
        args.extend([path(&img), "100M"]);
        diorite(&args).ok();
        // Everything up to the first bitmap.
        let lost = File::options().write(true).open(&img).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&lost, &[0; 6 << 10], 0).unwrap();
        drop(lost);
        let mut args = vec!["mkfs", "-S", "-U", UUID];
        args.extend(&words);
        args.push(path(&img));
        diorite(&args).ok();
        let text = run("dumpe2fs", &["-h", path(&img)]);
        assert!(text.contains("clean with errors"), "{options}: {text}");
        let repaired = Command::new("e2fsck").args(["-fy", path(&img)]).status();
        assert!(
            repaired.unwrap().code().is_some_and(|code| code < 4),
            "{options}"
        );
        clean(&img);
        kernel_shows(&img, &dir.path().join("m"), |at| {
            crate::common::same_but(&tree, at, "lost+found");
        });
    }
    let before = fs::read(&img).unwrap();
    for words in [&["-b", "4096"][..], &["-t", "ext2", "-N", "9000"]] {
        let mut args = vec!["mkfs", "-S", "-U", UUID];
        args.extend(words);
        args.push(path(&img));
        diorite(&args).failed(1, "nothing was written");
    }
    assert!(fs::read(&img).unwrap() == before);
}
