//! Tests of `check`: clean images are reported as clean, damage is reported with its place and path, and the exit codes are
//! those of e2fsck. `verdicts` compares both over a table of oddities.

mod verdicts;

use crate::common::{Ran, diorite, image, run, scratch, tree};
use serde_json::Value;
use std::path::Path;

fn some_image(dir: &Path, args: &[&str]) -> String {
    let source = dir.join("tree");
    if !source.exists() {
        tree(&source);
        std::fs::create_dir(source.join("sub")).unwrap();
        std::fs::write(source.join("sub/one"), [1; 5000]).unwrap();
        std::fs::write(source.join("sub/two"), [2; 5000]).unwrap();
    }
    image(dir, "image", "64M", args, Some(&source))
}

fn debugfs(img: &str, request: &str) -> String {
    run("debugfs", &["-w", "-R", request, img])
}

fn json(ran: &Ran) -> Value {
    serde_json::from_slice(&ran.out).unwrap()
}

#[test]
fn clean_images_are_clean() {
    let dir = scratch();
    for args in [&["-t", "ext4"][..], &["-t", "ext2", "-b", "1024"]] {
        let img = some_image(dir.path(), args);
        let before = std::fs::read(&img).unwrap();
        let said = diorite(&["check", &img]).ok().text();
        assert!(said.starts_with(&format!("{img}: clean; ")), "{said}");
        for threads in ["1", "3"] {
            let found = json(&diorite(&["check", "--json", "-j", threads, &img]).ok());
            assert_eq!(
                (&found["clean"], &found["findings"]),
                (&true.into(), &Value::Array(vec![]))
            );
            assert!(
                found["directories"].as_u64().unwrap() > 2
                    && found["blocks"].as_u64().unwrap() > 100
            );
        }
        assert!(
            std::fs::read(&img).unwrap() == before,
            "a check writes nothing"
        );
    }
}

/// As e2fsck. Defect: the mark of an orphan file without entries was not told, and without metadata_csum its checksum was not looked at.
#[test]
fn the_orphan_file_is_judged_as_by_e2fsck() {
    let dir = scratch();
    for features in ["orphan_file,metadata_csum", "orphan_file,^metadata_csum"] {
        let img = some_image(dir.path(), &["-t", "ext4", "-b", "1024", "-O", features]);
        let by_e2fsck = || {
            let mut tool = xtask::run::tool("e2fsck");
            tool.args(["-fn", &img]).output().unwrap().status.code()
        };
        debugfs(&img, "feature orphan_present");
        assert_eq!(by_e2fsck(), Some(4), "{features}");
        let ran = diorite(&["check", &img]);
        assert_eq!(ran.code, Some(4), "{features}: {}", ran.text());
        assert!(ran.text().contains("(orphan_present)"), "{}", ran.text());
        assert_eq!(diorite(&["check", "--repair", &img]).code, Some(1));
        assert_eq!(by_e2fsck(), Some(0), "{features}");
        diorite(&["check", &img]).ok();
        let head = run("dumpe2fs", &["-h", &img]);
        let line = head
            .lines()
            .find(|line| line.starts_with("Orphan file inode"));
        let ino = line.unwrap().split_whitespace().last().unwrap();
        let blocks = debugfs(&img, &format!("blocks <{ino}>"));
        let first: usize = blocks.split_whitespace().next().unwrap().parse().unwrap();
        let mut bytes = std::fs::read(&img).unwrap();
        bytes[first * 1024 + 1020] ^= 0x55;
        std::fs::write(&img, &bytes).unwrap();
        assert_eq!(by_e2fsck(), Some(4), "{features}");
        let ran = diorite(&["check", &img]);
        assert_eq!(ran.code, Some(4), "{features}: {}", ran.text());
        assert!(ran.text().contains("checksum is"), "{}", ran.text());
        assert_eq!(diorite(&["check", "--repair", &img]).code, Some(4));
    }
}

#[test]
fn damage_is_named() {
    let dir = scratch();
    let img = some_image(dir.path(), &["-t", "ext4"]);
    debugfs(&img, "sif /sub/one links_count 7");
    let ran = diorite(&["check", &img]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(4), ""));
    let said = ran.text();
    assert!(
        said.contains("says that it has 7 links; 1 were found [/sub/one]"),
        "{said}"
    );
    assert!(said.contains("NOT clean: 1 finding;"), "{said}");
}

#[test]
fn double_use_names_everybody() {
    let dir = scratch();
    let img = some_image(dir.path(), &["-t", "ext4"]);
    let number = |path: &str| {
        let stat = run("debugfs", &["-R", &format!("stat {path}"), &img]);
        stat.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    let (one, two) = (number("/sub/one"), number("/sub/two"));
    let start = debugfs(&img, "bmap /sub/two 0");
    // The first extent's block, its lower half.
    debugfs(&img, &format!("sif /sub/one block[5] {}", start.trim()));
    let found = json(&diorite(&["check", "--json", &img]));
    let kinds = found["findings"].as_array().unwrap();
    let double = kinds.iter().find(|k| k["kind"] == "double_use").unwrap();
    let what = double["kept"][0]["what"].as_str().unwrap();
    assert!(
        what.ends_with(&format!(" in use by inode {one}, inode {two}")),
        "{what}"
    );
    assert_eq!(double["kept"][0]["path"], "/sub/one");
    assert!(kinds.iter().any(|k| k["kind"] == "block_bitmap"), "{found}");
}

#[test]
fn every_end_has_its_code() {
    let dir = scratch();
    let img = some_image(dir.path(), &["-t", "ext4"]);
    let file = std::fs::File::options().write(true).open(&img).unwrap();
    file.set_len(20 << 20).unwrap();
    let cut = diorite(&["check", &img]);
    assert_eq!(cut.code, Some(4));
    assert!(
        cut.text().contains("but the device has 20971520"),
        "{}",
        cut.text()
    );
    file.set_len(0).unwrap();
    file.set_len(1 << 20).unwrap();
    diorite(&["check", &img]).failed(8, "no ext2/ext3/ext4 superblock");
    diorite(&["check", "/nowhere"]).failed(8, "/nowhere");
    for usage in [
        &["check"][..],
        &["check", "-j", "0", &img],
        &["--policy", "diorite", "check", "--what"],
    ] {
        assert_eq!(diorite(usage).code, Some(16), "{usage:?}");
    }
    assert_eq!(diorite(&["check", "--help"]).code, Some(0));
}

/// The free counts of the superblock are not trusted: the kernel and e2fsck accept an image whose free count is too high, and
/// e2fsck -E journal_only leaves such images. The defect: the image was refused, for reading as well.
#[test]
fn counts_beyond_what_exists_are_no_damage() {
    let dir = scratch();
    let img = some_image(dir.path(), &["-t", "ext4", "-b", "1024"]);
    for field in ["free_inodes_count", "free_blocks_count"] {
        debugfs(&img, &format!("ssv {field} 999999"));
        run("e2fsck", &["-fn", &img]);
        let judged = diorite(&["check", &img]).ok().text();
        assert!(
            judged.contains("note: the superblock counts 999999"),
            "{judged}"
        );
        diorite(&["ls", &img]).ok();
        diorite(&["mkdir", &img, field]).ok();
        let judged = diorite(&["check", &img]).ok().text();
        assert!(!judged.contains("999999"), "{judged}");
    }
    // e2fsck accepts at most half of the blocks as reserved.
    debugfs(&img, "ssv r_blocks_count 32768");
    diorite(&["check", &img]).ok();
    debugfs(&img, "ssv r_blocks_count 32769");
    let judged = diorite(&["check", &img]);
    assert_eq!(judged.code, Some(4));
    assert!(
        judged.text().contains("half of the blocks"),
        "{}",
        judged.text()
    );
}

/// As tune2fs -O ^has_journal leaves it.
#[test]
fn an_orphan_file_needs_a_journal() {
    let dir = scratch();
    let img = dir.path().join("img").to_str().unwrap().to_owned();
    diorite(&["mkfs", "-q", &img, "16M"]).ok();
    run("tune2fs", &["-O", "^has_journal", &img]);
    let judged = diorite(&["check", &img]);
    let said = judged.text();
    assert_eq!(judged.code, Some(4), "{said}");
    assert!(said.contains("a file of orphans, and no journal"), "{said}");
    let theirs = xtask::run::tool("e2fsck").args(["-fn", &img]).output();
    assert_eq!(theirs.unwrap().status.code(), Some(4));
}

/// Exit code 1 of e2fsck means that errors were corrected, so a result that cannot be printed must give another code. Help that
/// cannot be printed is a failure, too.
#[test]
fn a_full_disk_for_what_is_said() {
    let dir = scratch();
    let img = some_image(dir.path(), &["-t", "ext4"]);
    for (args, code) in [
        (&["check", &img][..], 8),
        (&["check", "--help"], 8),
        (&["ls", &img], 1),
        (&["ls", "--help"], 1),
        (&["--version"], 1),
    ] {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let out = std::process::Command::new(env!("CARGO_BIN_EXE_diorite"))
            .args(args)
            .stdout(full)
            .output()
            .unwrap();
        assert_eq!(out.status.code(), Some(code), "{args:?}");
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(said, "diorite: write error: No space left on device\n");
    }
}

/// An external journal that has to be replayed, on a device that was not named. The defect: `check` reported a clean image and
/// exited with 0. It cannot check this image, and must say what is missing. e2fsck exits with 12: errors left uncorrected, and
/// no check.
#[test]
fn a_journal_that_is_not_here() {
    let dir = scratch();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (log, img) = (path("log"), path("img"));
    let uuid = "84228b46-77cc-4c1c-8ca5-e91c0ce6ada5";
    run(
        "mke2fs",
        &[
            "-q",
            "-b",
            "1024",
            "-U",
            uuid,
            "-O",
            "journal_dev",
            &log,
            "4M",
        ],
    );
    run(
        "mke2fs",
        &[
            "-q",
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "^metadata_csum,^has_journal",
            &img,
            "8M",
        ],
    );
    let bytes = std::fs::read(&log).unwrap();
    let mut raw = std::fs::read(&img).unwrap();
    let word = |raw: &mut [u8], at: usize, bits: u8| raw[1024 + at] |= bits;
    // Sets has_journal, and copies the journal's UUID and its device number (s_journal_dev); sets needs_recovery below.
    word(&mut raw, 0x5C, 4);
    raw[1024 + 0xD0..1024 + 0xE0].copy_from_slice(&bytes[1024 + 0x68..1024 + 0x78]);
    raw[1024 + 0xE4..1024 + 0xE8].copy_from_slice(&0x700u32.to_le_bytes());
    std::fs::write(&img, &raw).unwrap();
    let said = diorite(&["check", &img]).ok().text();
    assert!(
        said.contains("note: the journal is on a device that was not named"),
        "{said}"
    );
    word(&mut raw, 0x60, 4);
    std::fs::write(&img, &raw).unwrap();
    let ran = diorite(&["check", &img]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(12), ""));
    let said = ran.text();
    assert!(
        said.contains(uuid) && said.contains("0x0700") && said.contains("--journal"),
        "{said}"
    );
    assert!(
        said.ends_with("NOT clean: it could not be checked\n"),
        "{said}"
    );
    let found = json(&diorite(&["check", "--json", &img]));
    assert_eq!(
        (&found["clean"], &found["finished"]),
        (&false.into(), &false.into())
    );
    let theirs = xtask::run::tool("e2fsck")
        .args(["-fn", &img])
        .output()
        .unwrap();
    assert_eq!(theirs.status.code(), Some(12));
}
