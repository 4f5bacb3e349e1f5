//! `diorite mkfs` beside the installed mke2fs.

use super::{clean, kernel_shows, path};
use crate::common::{Ran, copied_command, diorite, run, scratch, skip};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";
const SEED: &str = "fedcba98-7654-3210-fedc-ba9876543210";

/// Features that the installed mke2fs has to be asked for, and today's has by default.
const TODAY: &str = "metadata_csum_seed,orphan_file";

/// Options, and the size of the image in MiB.
const CASES: [(&str, u64); 49] = [
    ("-t ext4", 64),
    ("-t ext4 -b 1024", 700),
    ("-t ext4 -b 2048", 200),
    ("-t ext4 -b 4096 -I 128", 100),
    ("-t ext4 -I 512 -N 3000", 100),
    ("-t ext4 -i 8192 -m 0", 100),
    ("-t ext4 -i 65536 -m 12.5", 900),
    ("-t ext4 -T news", 100),
    ("-t ext4 -T largefile", 100),
    ("-t ext4 -T small,largefile4", 300),
    ("-t ext4 -L label -M /mnt/here -e panic", 50),
    ("-t ext4 -e remount-ro -o freebsd", 50),
    ("-t ext4 -g 4096", 300),
    ("-t ext4 -g 8192 -G 4 -b 4096", 600),
    ("-t ext4 -G 64", 900),
    ("-t ext4 -J size=16", 500),
    ("-t ext4 -O fast_commit -J size=8,fast_commit_size=512", 200),
    ("-t ext4 -O fast_commit -J size=8,fast_commit_size=0", 200),
    ("-t ext4 -O fast_commit -J size=8", 200),
    ("-t ext4 -O ^has_journal", 100),
    ("-t ext4 -O ^resize_inode", 100),
    ("-t ext4 -E resize=1000000 -b 4096", 300),
    ("-t ext4 -O sparse_super2", 900),
    (
        "-t ext4 -O sparse_super2,^resize_inode -E num_backup_sb=1",
        900,
    ),
    (
        "-t ext4 -O sparse_super2,^resize_inode -E num_backup_sb=0",
        900,
    ),
    ("-t ext4 -O ^sparse_super,^resize_inode", 300),
    ("-t ext4 -O meta_bg,^resize_inode", 400),
    ("-t ext4 -O meta_bg,^resize_inode,^64bit -b 1024", 400),
    ("-t ext4 -O ^64bit", 300),
    ("-t ext4 -O ^metadata_csum,uninit_bg", 300),
    ("-t ext4 -O ^metadata_csum", 300),
    ("-t ext4 -O ^flex_bg", 300),
    ("-t ext4 -O ^extent,^64bit", 300),
    (
        "-t ext4 -O ^dir_index,^ext_attr,^huge_file,^dir_nlink,^extra_isize",
        60,
    ),
    (
        "-t ext4 -O inline_data,large_dir,ea_inode,stable_inodes",
        60,
    ),
    ("-t ext4 -O encrypt,verity", 60),
    (
        "-t ext4 -O casefold -E encoding=utf8,encoding_flags=strict",
        60,
    ),
    ("-t ext4 -O mmp -E mmp_update_interval=9", 60),
    ("-t ext4 -O bigalloc -b 4096", 200),
    ("-t ext4 -O bigalloc -b 1024 -C 16384 -i 16384", 200),
    // A ratio of mke2fs.conf is never less than a cluster, or a block.
    ("-t ext4 -O bigalloc -b 1024 -C 16384", 200),
    ("-t ext4 -T largefile -O bigalloc -b 4096", 600),
    ("-t ext4 -b 16384", 100),
    ("-t ext4 -E packed_meta_blocks=1", 600),
    (
        "-t ext4 -E stride=16,stripe_width=64,test_fs,root_owner=7:8",
        60,
    ),
    ("-t ext3", 600),
    ("-t ext2 -b 1024", 60),
    ("-t ext2 -O none -r 1 -I 128", 60),
    ("-t ext2 -j -J size=4", 100),
];

fn image(at: &Path, mib: u64) {
    File::create(at).unwrap().set_len(mib << 20).unwrap();
}

/// The words of both programs, with what they would choose at random.
fn words<'w>(line: &'w str, extra: &'w [String]) -> Vec<&'w str> {
    let mut words: Vec<&str> = extra.iter().map(String::as_str).collect();
    words.extend(line.split(' '));
    words
}

/// The options that make both choose the same: `-E` and `-O` of the line go into theirs.
fn settled(line: &str, asks_today: bool) -> (String, Vec<String>) {
    let (mut rest, mut features, mut extended) = (Vec::new(), Vec::new(), Vec::new());
    let mut parts = line.split(' ');
    while let Some(part) = parts.next() {
        match part {
            "-O" => features.push(parts.next().unwrap().to_owned()),
            "-E" => extended.push(parts.next().unwrap().to_owned()),
            other => rest.push(other),
        }
    }
    let plain = features.join(",");
    let today = line.contains("ext4") && asks_today && !plain.contains("none");
    if today {
        let mut wanted: Vec<&str> = TODAY.split(',').collect();
        wanted.retain(|f| *f != "metadata_csum_seed" || !plain.contains("^metadata_csum"));
        wanted.retain(|f| *f != "orphan_file" || !plain.contains("^has_journal"));
        features.insert(0, wanted.join(","));
    }
    extended.insert(0, format!("hash_seed={SEED}"));
    let mut extra = vec![
        "-U".to_owned(),
        UUID.to_owned(),
        "-E".to_owned(),
        extended.join(","),
    ];
    let features: Vec<String> = features.into_iter().filter(|f| !f.is_empty()).collect();
    if !features.is_empty() {
        extra.extend(["-O".to_owned(), features.join(",")]);
    }
    (rest.join(" "), extra)
}

/// What dumpe2fs says of a volume, without what follows from the order of writes, from times, or from other places of the metadata.
fn shown(img: &Path, line: &str) -> Vec<String> {
    let text = run("dumpe2fs", &["-h", path(img)]);
    let mut skip = vec![
        "dumpe2fs",
        "Filesystem created",
        "Last write time",
        "Last checked",
        "Lifetime writes",
        "Checksum:",
        "MMP update time",
        "MMP node name",
        "MMP device name",
        "MMP block number",
        "mmp_",
    ];
    if line.contains("bigalloc") {
        // mke2fs gives each kind of bitmap a cluster of its own.
        skip.extend(["Overhead clusters", "Free blocks"]);
    }
    if line.contains("inline_data") {
        // Its root directory lies in the inode.
        skip.push("Free blocks");
    }
    text.lines()
        .filter(|l| !skip.iter().any(|s| l.trim_start().starts_with(s)))
        .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

#[test]
fn words_mean_what_they_mean_to_mke2fs() {
    let dir = scratch();
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    let mut differ = Vec::new();
    for (line, mib) in CASES {
        image(&ours, mib);
        let (rest, extra) = settled(line, false);
        let mut args = vec!["mkfs", "-F", "-q"];
        args.extend(words(&rest, &extra));
        args.push(path(&ours));
        let ran = diorite(&args);
        if ran.code != Some(0) {
            differ.push(format!("{line}: {}", ran.err));
            continue;
        }
        clean(&ours);
        image(&theirs, mib);
        let (rest, extra) = settled(line, true);
        let mut args = vec!["-F", "-q"];
        args.extend(words(&rest, &extra));
        args.push(path(&theirs));
        run("mke2fs", &args);
        let (mine, other) = (shown(&ours, line), shown(&theirs, line));
        let ours_only = mine.iter().filter(|l| !other.contains(l));
        differ.extend(ours_only.map(|l| format!("{line}: {l}")));
        let theirs_only = other.iter().filter(|l| !mine.contains(l));
        differ.extend(theirs_only.map(|l| format!("{line}: of mke2fs: {l}")));
        // By that flag mount(8) takes it for an ext4dev. The kernel may not know blocks larger than a page.
        if !["test_fs", "-b 16384"].iter().any(|w| line.contains(w)) {
            kernel_shows(&ours, &dir.path().join("m"), |at| {
                assert!(at.join("lost+found").is_dir(), "{line}");
            });
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

/// On a device with other bytes: nothing of them is seen, and what the tables say is zeroed is zeroed.
#[test]
fn old_bytes_are_gone() {
    let dir = scratch();
    let img = dir.path().join("img");
    for more in [
        &["-E", "nodiscard"][..],
        &["-E", "nodiscard,lazy_itable_init=0"],
        &["-O", "^metadata_csum", "-E", "nodiscard"],
    ] {
        fs::write(&img, vec![0xA5; 40 << 20]).unwrap();
        let mut args = vec!["mkfs", "-q", "--seed", "x"];
        args.extend(more);
        args.push(path(&img));
        diorite(&args).ok();
        clean(&img);
        diorite(&["put", path(&img), "/etc/hostname", "/file"]).ok();
        clean(&img);
    }
}

/// The same seed and time, and so the same bytes; another seed, other ones.
#[test]
fn the_same_is_made_again() {
    let dir = scratch();
    let at = |name: &str| dir.path().join(name);
    let make = |name: &str, seed: &str| {
        let img = at(name);
        let made = Command::new(env!("CARGO_BIN_EXE_diorite"))
            .args(["mkfs", "-q", "--seed", seed, path(&img), "32M"])
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .status();
        assert!(made.unwrap().success());
        fs::read(img).unwrap()
    };
    let first = make("a", "one");
    assert!(first == make("b", "one"));
    assert!(first != make("c", "two"));
    let shown = run("dumpe2fs", &["-h", path(&at("a"))]);
    assert!(
        shown.contains("Nov 14 22:13:20 2023") || shown.contains("2023"),
        "{shown}"
    );
}

/// With bigalloc a volume is whole clusters, as mke2fs makes it. The defect: the last cluster was a short one, and the kernel called the
/// volume damaged when it came to allocate that.
#[test]
fn no_cluster_is_short() {
    let dir = scratch();
    let img = dir.path().join("img");
    for (words, size) in [
        ("-t ext4 -b 1024 -C 16384 -N 64 -O bigalloc", "30235k"),
        ("-t ext4 -b 4096 -O bigalloc", "70020k"),
    ] {
        let mut args = vec!["mkfs", "-q"];
        args.extend(words.split(' '));
        args.extend([path(&img), size]);
        diorite(&args).ok();
        let sb = std::fs::read(&img).unwrap();
        let field = |at: usize| u32::from_le_bytes(sb[1024 + at..1028 + at].try_into().unwrap());
        let ratio = 1 << (field(28) - field(24));
        assert!(
            ratio > 1 && field(4).is_multiple_of(ratio),
            "{words} {size}"
        );
        std::fs::remove_file(&img).unwrap();
    }
}

/// As many inodes as mke2fs makes for blocks and clusters of any size. The defect: with large blocks there were up to 16 times as many, and
/// with bigalloc a quarter of them, or less.
#[test]
fn inodes_are_as_many_as_those_of_mke2fs() {
    let dir = scratch();
    let img = dir.path().join("img");
    let inodes = |said: &str| {
        let before = said.split(" inodes").next().unwrap();
        before.rsplit(' ').next().unwrap().to_owned()
    };
    let mut compared = 0;
    for mib in [2, 40, 300, 600, 3 << 10, 9 << 10] {
        image(&img, mib);
        for block in [1024, 4096, 8192, 16384, 65536] {
            let of_blocks = format!("-t ext4 -b {block}");
            let of_clusters = format!("{of_blocks} -O bigalloc");
            let of_two = format!("{of_clusters} -C {}", 2 * block);
            let of_ratio = format!("{of_blocks} -i 2048");
            for line in [of_blocks, of_clusters, of_two, of_ratio] {
                let words = || line.split(' ').chain([path(&img)]);
                // Too small for it, or too many for it.
                let mut mke2fs = xtask::run::tool("mke2fs");
                let theirs = mke2fs.args(["-n", "-F"]).args(words()).output().unwrap();
                if !theirs.status.success() {
                    continue;
                }
                let args: Vec<&str> = ["mkfs", "-n"].into_iter().chain(words()).collect();
                let ours = diorite(&args).ok().text();
                let theirs = String::from_utf8_lossy(&theirs.stdout);
                assert_eq!(inodes(&ours), inodes(&theirs), "{line}, {mib} MiB");
                compared += 1;
            }
        }
    }
    assert!(compared > 80, "{compared}");
}

/// A label that is too long is cut, as mke2fs does it.
#[test]
fn a_long_label_is_cut() {
    let dir = scratch();
    let img = dir.path().join("img");
    let label = "12345678901234567";
    let ran = diorite(&["mkfs", "-q", "-L", label, path(&img), "8M"]);
    assert_eq!(ran.code, Some(0));
    assert!(
        ran.err.contains("label too long, truncated to"),
        "{}",
        ran.err
    );
    assert_eq!(
        diorite(&["label", path(&img)]).ok().text(),
        "1234567890123456\n"
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    let dir = scratch();
    let img = dir.path().join("img");
    for (words, why) in [
        ("-b 3000", "power of two"),
        ("-I 100", "inodes of 100 bytes"),
        ("-O nonsense", "Invalid filesystem option set: nonsense"),
        ("-O meta_bg", "meta_bg"),
        ("-O ^extent", "64bit needs extent"),
        (
            "-O orphan_file,^has_journal",
            "orphan_file needs has_journal",
        ),
        ("-m 51", "51 %"),
        ("-G 3", "power of two"),
        ("-g 300", "groups of 300 blocks"),
        ("-N 100000000", "too many"),
        ("-J size=60", "too large"),
        (
            "-O fast_commit -J size=4,fast_commit_size=4294967295",
            "for fast commits is too large",
        ),
        (
            "-O fast_commit -J size=4,fast_commit_size=62000",
            "for fast commits is too large",
        ),
        ("-J size=x", "Bad journal options"),
        ("-E resize=10", "less than"),
        ("-E nonsense", "Bad option(s) specified: nonsense"),
        ("-U blah", "could not parse UUID"),
        ("-C 65536", "bigalloc"),
        ("-t ext3 -G 4", "-G needs the feature flex_bg"),
        ("-O sparse_super2 -E num_backup_sb=3", "0 to 2 copies"),
        ("-E encoding_flags=strict", "needs an encoding"),
    ] {
        let mut args = vec!["mkfs", "-q"];
        args.extend(words.split(' '));
        args.extend([path(&img), "64M"]);
        diorite(&args).failed(1, why);
        assert!(!img.exists(), "{words}: a failure leaves no image");
    }
    diorite(&["mkfs", "-q", path(&img)]).failed(1, "no such file");
    diorite(&["mkfs", "-q", path(&img), "20K"]).failed(1, "have no room");
    diorite(&["mkfs", "-q", path(dir.path()), "64M"])
        .failed(1, "neither a regular file nor a block device");
}

/// An image that is in use is not replaced under its user.
#[test]
fn an_image_in_use_is_refused() {
    let dir = scratch();
    let img = dir.path().join("img");
    diorite(&["mkfs", "-q", path(&img), "32M"]).ok();
    let at = dir.path().join("m");
    fs::create_dir(&at).unwrap();
    let Some(mount) = crate::common::Mount::new(path(&img), &at, "loop") else {
        return;
    };
    let ran = diorite(&["mkfs", "-q", path(&img)]);
    assert!(ran.code == Some(1), "{}", ran.text());
    drop(mount);
    clean(&img);
}

/// By the names of e2fsprogs' programs: their types, their exit codes, their configuration.
#[test]
fn it_takes_the_place_of_mke2fs() {
    let dir = scratch();
    let command = copied_command(dir.path());
    let img = dir.path().join("img");
    for (name, journal, extents) in [
        ("mke2fs", false, false),
        ("mkfs.ext3", true, false),
        ("mkfs.ext4", true, true),
    ] {
        let program = dir.path().join(name);
        fs::hard_link(&command, &program).unwrap();
        let ran = Command::new(&program)
            .args(["-F", path(&img), "40M"])
            .output()
            .unwrap();
        assert!(ran.status.success(), "{name}");
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(
            said.contains("Creating filesystem with") && said.contains("Superblock backups"),
            "{said}"
        );
        let shown = run("dumpe2fs", &["-h", path(&img)]);
        assert_eq!(
            (shown.contains("has_journal"), shown.contains(" extent ")),
            (journal, extents),
            "{name}: {shown}"
        );
        clean(&img);
        let code = Command::new(&program)
            .args(["-b", "x", path(&img)])
            .output()
            .unwrap()
            .status
            .code();
        assert_eq!(code, Some(1), "{name}");
    }
    let config = dir.path().join("conf");
    let text = "[defaults]\nbase_features = filetype\nblocksize = 2048\ninode_size = 128\n\
        inode_ratio = 8192\n[fs_types]\n ext4 = {\n features = extent\n }\n";
    fs::write(&config, text).unwrap();
    let ran = Command::new(dir.path().join("mkfs.ext4"))
        .args(["-F", "-q", path(&img)])
        .env("MKE2FS_CONFIG", &config)
        .output();
    assert!(ran.unwrap().status.success());
    let shown = run("dumpe2fs", &["-h", path(&img)]);
    assert!(
        shown.contains("features:      filetype extent\n")
            && shown.contains("Block size:               2048"),
        "{shown}"
    );
}

/// `-d` fills it, as mke2fs does.
#[test]
fn a_directory_goes_in() {
    let dir = scratch();
    let tree = dir.path().join("tree");
    crate::common::tree(&tree);
    let img = dir.path().join("img");
    for kind in ["ext2", "ext3", "ext4"] {
        diorite(&[
            "mkfs",
            "-q",
            "-F",
            "-t",
            kind,
            "-d",
            path(&tree),
            path(&img),
            "64M",
        ])
        .ok();
        clean(&img);
        kernel_shows(&img, &dir.path().join("m"), |at| {
            crate::common::same_but(&tree, at, "lost+found");
        });
    }
    let small: Ran = diorite(&["mkfs", "-q", "-F", "-d", path(&tree), path(&img), "1M"]);
    small.failed(1, "blocks of");
    if !crate::common::is_root() {
        skip("the kernel's view needs root");
    }
}

/// Small groups keep fewer blocks for descriptors, and are refused where not even the descriptors have room.
#[test]
fn small_groups_are_whole() {
    let dir = scratch();
    let img = dir.path().join("img");
    for (words, size) in [
        ("-b 2048 -g 512", "290845K"),
        ("-b 4096 -g 256 -E lazy_itable_init=1", "37212K"),
        ("-b 1024 -O ^64bit,ea_inode -g 256 -N 100 -t ext2", "25647K"),
        ("-b 1024 -g 256", "40M"),
        ("-b 4096 -O ^large_file", "40M"),
    ] {
        let mut args = vec!["mkfs", "-q", "-F"];
        args.extend(words.split(' '));
        args.extend([path(&img), size]);
        let ran = diorite(&args);
        match ran.code {
            Some(0) => clean(&img),
            _ => ran.failed(1, "no room"),
        }
        let _ = fs::remove_file(&img);
    }
}

/// Labels and UUIDs, as e2label and tune2fs show them; with a journal, without one, and where checksums have the UUID in them.
#[test]
fn images_get_names() {
    let dir = scratch();
    let img = dir.path().join("img");
    let kinds: [&[&str]; 5] = [
        &[],
        &["-O", "^metadata_csum_seed"],
        &["-O", "^metadata_csum,uninit_bg"],
        &["-O", "^has_journal"],
        &["-t", "ext2"],
    ];
    for options in kinds {
        let mut args = vec!["mkfs", "-q", "-F", "-L", "before", "-U", UUID];
        args.extend(options);
        args.extend([path(&img), "40M"]);
        diorite(&args).ok();
        assert_eq!(diorite(&["label", path(&img)]).ok().text(), "before\n");
        diorite(&["label", path(&img), "sixteen-bytes-it"]).ok();
        assert_eq!(run("e2label", &[path(&img)]).trim(), "sixteen-bytes-it");
        diorite(&["label", path(&img), "seventeen-bytes-i"]).failed(1, "at most 16 bytes");
        diorite(&["label", path(&img), ""]).ok();
        assert_eq!(diorite(&["label", path(&img)]).ok().text(), "\n");
        assert_eq!(diorite(&["uuid", path(&img)]).ok().text().trim(), UUID);
        diorite(&["uuid", path(&img), SEED]).ok();
        let shown = run("dumpe2fs", &["-h", path(&img)]);
        assert!(shown.contains(SEED), "{shown}");
        diorite(&["uuid", path(&img), "nonsense"]).failed(1, "could not parse UUID");
        clean(&img);
        diorite(&["put", path(&img), "/etc/hostname", "/file"]).ok();
        clean(&img);
    }
}
