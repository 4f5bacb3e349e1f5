//! Tests of `check --repair`: counts, recorded errors, the journal and orphans are repaired as e2fsck does it; where anything else is
//! wrong nothing is written; a power cut leaves what another repair finishes.

use crate::common::{Mount, debugfs, diorite, image, noise, run, scratch};
use diorite::{OpenOptions, Repair, Volume};
use diorite_block::record::{PowerCuts, plan};
use diorite_block::{Device, MemDevice, RecordDevice};
use diorite_check::{CheckOptions, Findings, Kind, check_device};
use diorite_format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, SuperblockEdit};
use diorite_format::{GroupDesc, GroupNo, Superblock};
use std::fs;
use std::path::Path;
use std::sync::Arc;

const KINDS: [&str; 5] = [
    "-t ext4 -b 1024 -O ^has_journal",
    "-t ext4 -b 1024",
    "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg",
    "-t ext2 -b 1024",
    "-t ext3 -b 4096",
];

fn fresh(dir: &Path, kind: &str) -> String {
    let source = dir.join("source");
    if !source.exists() {
        fs::create_dir_all(source.join("a/b/c")).unwrap();
        fs::write(source.join("file"), noise(300_000, 5)).unwrap();
        fs::write(source.join("a/more"), noise(70_000, 6)).unwrap();
    }
    let words: Vec<&str> = kind.split(' ').collect();
    let img = image(dir, "img", "24M", &words, Some(&source));
    // So that nothing but the damage is out of date.
    run("e2fsck", &["-fy", &img]);
    img
}

fn superblock(bytes: &[u8]) -> Superblock {
    let at = SUPERBLOCK_OFFSET as usize;
    Superblock::parse(bytes[at..at + SUPERBLOCK_SIZE].try_into().unwrap()).unwrap()
}

/// Changes a group's descriptor, with a right checksum.
fn damage_group(img: &str, group: u32, change: impl FnOnce(&mut GroupDesc)) {
    let mut bytes = fs::read(img).unwrap();
    let sb = superblock(&bytes);
    let group = GroupNo::new(group);
    let (index, offset) = sb.desc_place(group).unwrap();
    let at = sb.byte_of(sb.gdt_location(index).unwrap()).get() as usize + offset as usize;
    let size = sb.geometry().desc_size() as usize;
    let mut desc = GroupDesc::parse(&sb, group, &bytes[at..at + size]).unwrap();
    change(&mut desc);
    desc.write(&sb, &mut bytes[at..at + size]).unwrap();
    fs::write(img, bytes).unwrap();
}

type Damage = (&'static str, fn(&str));

const DAMAGES: [Damage; 9] = [
    ("free blocks", |img| {
        damage_group(img, 0, |d| d.free_clusters -= 7)
    }),
    ("free blocks of a group that was never written", |img| {
        let last = superblock(&fs::read(img).unwrap()).group_count() - 1;
        damage_group(img, last, |d| d.free_clusters -= 100);
    }),
    ("free inodes", |img| {
        damage_group(img, 0, |d| d.free_inodes -= 3)
    }),
    ("directories", |img| {
        damage_group(img, 0, |d| d.used_dirs += 40)
    }),
    ("all counts", |img| {
        damage_group(img, 0, |d| {
            (d.free_clusters, d.free_inodes, d.used_dirs) = (0, 0, 0)
        });
    }),
    ("sums", |img| {
        debugfs(img, "ssv free_blocks_count 5");
        debugfs(img, "ssv free_inodes_count 6");
    }),
    ("error state", |img| drop(debugfs(img, "ssv state 3"))),
    ("not clean", |img| drop(debugfs(img, "ssv state 0"))),
    ("recorded errors and counts", |img| {
        debugfs(img, "ssv state 2");
        debugfs(img, "ssv error_count 3");
        debugfs(img, "ssv first_error_time 1600000000");
        debugfs(img, "ssv last_error_time 1700000000");
        debugfs(img, "ssv first_error_ino 12");
        damage_group(img, 0, |d| d.free_clusters += 1);
    }),
];

/// Times of mounting, writing and checking, KiB written, the checksum: opening for writing counts as a mount.
fn masked(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let sb = 1024;
    for range in [
        0x2C..0x34,
        0x40..0x44,
        0x178..0x180,
        0x274..0x278,
        0x3FC..0x400,
    ] {
        bytes[sb + range.start..sb + range.end].fill(0);
    }
    bytes
}

#[test]
fn what_is_repaired_is_as_e2fsck_repairs_it() {
    let dir = scratch();
    for kind in KINDS {
        for (what, damage) in DAMAGES {
            let img = fresh(dir.path(), kind);
            damage(&img);
            let theirs = format!("{img}.e2fsck");
            fs::copy(&img, &theirs).unwrap();
            let fsck = xtask::run::tool("e2fsck")
                .args(["-fy", &theirs])
                .output()
                .unwrap();
            assert!(fsck.status.code().unwrap() < 2, "{kind}: {what}");
            let ran = diorite(&["check", "--repair", &img]);
            assert_eq!(
                (ran.code, &ran.err[..]),
                (Some(1), ""),
                "{kind}: {what}: {}",
                ran.text()
            );
            assert!(ran.text().contains(": clean; "), "{}", ran.text());
            run("e2fsck", &["-fn", &img]);
            let (a, b) = (fs::read(&img).unwrap(), fs::read(&theirs).unwrap());
            let (ours, own) = (superblock(&a), superblock(&b));
            assert!(
                ours.is_clean() && ours.recorded_errors().is_none(),
                "{kind}: {what}"
            );
            assert_eq!(ours.geometry(), own.geometry(), "{kind}: {what}");
            if !kind.contains("uninit_bg")
                && ours.journal() == diorite_format::superblock::JournalPlace::None
            {
                let (a, b) = (masked(&a), masked(&b));
                let at = (0..a.len()).find(|at| a[*at] != b[*at]);
                assert_eq!(at.map(|at| format!("{at:#x}")), None, "{kind}: {what}");
            }
            let again = diorite(&["check", "--repair", &img]).ok().text();
            assert!(!again.contains("corrected"), "{again}");
            assert!(
                fs::read(&img).unwrap() == a,
                "{kind}: {what}: a clean image is not written"
            );
            diorite(&["mkdir", &img, "/new"]).ok();
            run("e2fsck", &["-fn", &img]);
        }
    }
}

#[test]
fn what_is_not_safe_stays_as_it_is() {
    let dir = scratch();
    for kind in ["-t ext4 -b 1024", "-t ext2 -b 1024"] {
        for request in [
            "sif /file links_count 7",
            "freeb 100 20",
            "freei <14>",
            "sif /a/more size 1",
            "unlink /file",
            "sif /a/b links_count 9",
            "clri /a/b",
            "ssv inodes_count 99",
        ] {
            let img = fresh(dir.path(), kind);
            damage_group(&img, 0, |d| d.used_dirs += 1);
            debugfs(&img, "ssv state 2");
            debugfs(&img, request);
            let before = fs::read(&img).unwrap();
            let ran = diorite(&["check", "--repair", &img]);
            assert_eq!(ran.code, Some(4), "{request}: {}", ran.text());
            assert!(
                ran.text().contains(&format!("run 'e2fsck -f {img}'")),
                "{}",
                ran.text()
            );
            assert!(fs::read(&img).unwrap() == before, "{request}");
        }
    }
    let img = fresh(dir.path(), "-t ext4 -b 1024");
    debugfs(&img, "set_bg 1 checksum 0x1234");
    let before = fs::read(&img).unwrap();
    assert_eq!(diorite(&["check", "--repair", &img]).code, Some(4));
    assert!(fs::read(&img).unwrap() == before);
    assert_eq!(diorite(&["check", "--repair", "-n", &img]).code, Some(16));
    diorite(&["check", "--repair", "/nowhere"]).failed(8, "/nowhere");
}

/// The defect: a superblock with a wrong checksum was refused, which `recover` and e2fsck mend from a copy.
#[test]
fn a_superblock_with_a_wrong_checksum_is_mended() {
    let dir = scratch();
    for kind in ["-t ext4 -b 1024", "-t ext4 -b 1024 -O ^has_journal"] {
        let img = fresh(dir.path(), kind);
        let mut bytes = fs::read(&img).unwrap();
        bytes[2044] ^= 0x55;
        fs::write(&img, &bytes).unwrap();
        let ran = diorite(&["check", "--repair", &img]);
        assert_eq!(ran.code, Some(1), "{kind}: {}", ran.text());
        assert!(ran.text().contains("checksum is wrong"), "{}", ran.text());
        run("e2fsck", &["-fn", &img]);
        assert_eq!(diorite(&["check", "--repair", &img]).ok().code, Some(0));
        // Something else that cannot be mended is in the way.
        debugfs(&img, "sif /file links_count 7");
        let mut bytes = fs::read(&img).unwrap();
        bytes[2044] ^= 0x55;
        fs::write(&img, &bytes).unwrap();
        assert_eq!(diorite(&["check", "--repair", &img]).code, Some(4));
        assert!(fs::read(&img).unwrap() == bytes, "{kind}");
    }
}

/// An orphan, and counts that are wrong: the counts come first, since deleting it needs them.
#[test]
fn orphans_are_processed_after_the_counts() {
    let dir = scratch();
    for kind in [
        "-t ext4 -b 1024",
        "-t ext2 -b 1024",
        "-t ext4 -b 1024 -O orphan_file",
    ] {
        let img = fresh(dir.path(), kind);
        let stat = diorite(&["stat", "-c", "%i", &img, "/file"]).ok().text();
        let ino = stat.trim();
        for request in [
            "unlink /file",
            &format!("sif <{ino}> links_count 0"),
            &format!("ssv last_orphan {ino}"),
            "ssv state 3",
        ] {
            debugfs(&img, request);
        }
        damage_group(&img, 0, |d| d.free_clusters -= 2);
        let ran = diorite(&["check", "--repair", "--json", &img]);
        assert_eq!(ran.code, Some(1), "{kind}: {}{}", ran.err, ran.text());
        let said: serde_json::Value = serde_json::from_slice(&ran.out).unwrap();
        let done = said["repaired"].to_string();
        assert!(
            done.contains("orphaned inodes: 1 deleted") && done.contains("corrected"),
            "{done}"
        );
        assert_eq!(said["clean"], true);
        run("e2fsck", &["-fn", &img]);
        assert_eq!(diorite(&["cat", &img, "/file"]).code, Some(1));
    }
}

/// An image as a crash leaves it: a journal to replay, an orphan, in the orphan file or in the list; and recorded errors.
#[test]
fn the_journal_is_replayed_and_the_orphan_file_processed() {
    let dir = scratch();
    for kind in ["-t ext4 -b 1024 -O orphan_file", "-t ext4 -b 1024"] {
        let img = fresh(dir.path(), kind);
        let Some(mount) = Mount::new(&img, &dir.path().join("mnt"), "rw") else {
            return;
        };
        let held = fs::File::open(mount.0.join("file")).unwrap();
        fs::write(mount.0.join("new"), noise(50_000, 8)).unwrap();
        fs::remove_file(mount.0.join("file")).unwrap();
        run("sync", &["-f", mount.0.to_str().unwrap()]);
        let crashed = format!("{img}.crashed");
        fs::copy(&img, &crashed).unwrap();
        drop(held);
        drop(mount);
        let features = run("dumpe2fs", &["-h", &crashed]);
        assert!(features.contains("needs_recovery"), "{features}");
        assert_eq!(
            features.contains("orphan_present"),
            kind.contains("orphan_file")
        );
        debugfs(&crashed, "ssv state 3");
        let ran = diorite(&["check", "--repair", &crashed]);
        assert_eq!(
            ran.code.filter(|c| *c < 2),
            ran.code,
            "{}{}",
            ran.err,
            ran.text()
        );
        let said = ran.text();
        assert!(said.contains("the journal was replayed"), "{said}");
        assert!(said.contains("orphaned inodes: 1 deleted"), "{said}");
        run("e2fsck", &["-fn", &crashed]);
        assert!(diorite(&["cat", &crashed, "/new"]).ok().out == noise(50_000, 8));
        assert!(!run("dumpe2fs", &["-h", &crashed]).contains("orphan_present"));
    }
}

/// Neither the kernel nor e2fsck lets a file have the inode that the superblock names as the orphan file, also where the volume has no such
/// feature: e2fsck leaves the number there when it takes the feature away (after `tune2fs -O ^has_journal`). The defect: a new file got
/// that inode, and was lost to both.
#[test]
fn a_number_of_an_orphan_file_that_is_not_there_is_forgotten() {
    let dir = scratch();
    let source = dir.path().join("source/a/more");
    let named = |bytes: &[u8]| bytes[1024 + 0x280..1024 + 0x284] != [0; 4];
    for kind in KINDS {
        let free = |img: &str| {
            let stat = diorite(&["stat", "-c", "%i", img, "/new"]).ok().text();
            stat.trim().to_owned()
        };
        let put = |img: &str| diorite(&["put", "-q", img, source.to_str().unwrap(), "/new"]).ok();
        let img = fresh(dir.path(), kind);
        let other = format!("{img}.other");
        fs::copy(&img, &other).unwrap();
        put(&other);
        let next = free(&other);
        // Whoever writes takes it away first.
        debugfs(&img, &format!("ssv orphan_file_inum {next}"));
        assert!(named(&fs::read(&img).unwrap()), "{kind}");
        put(&img);
        assert_eq!(free(&img), next);
        assert!(!named(&fs::read(&img).unwrap()), "{kind}");
        run("e2fsck", &["-fn", &img]);
        diorite(&["check", &img]).ok();
        // A file has it already, as the kernel and e2fsck do not let it; and counts are wrong beside it.
        for damaged in [false, true] {
            debugfs(&img, &format!("ssv orphan_file_inum {next}"));
            if damaged {
                damage_group(&img, 0, |d| d.free_clusters -= 7);
            }
            let found = diorite(&["check", &img]);
            assert_eq!(found.code, Some(4), "{kind}: {}", found.text());
            let repaired = diorite(&["check", "--repair", &img]);
            assert_eq!(repaired.code, Some(1), "{kind}: {}", repaired.text());
            let said = "corrected: superblock: a file of orphans, and not the feature orphan_file";
            assert!(repaired.text().contains(said), "{}", repaired.text());
            assert!(!named(&fs::read(&img).unwrap()), "{kind}");
            run("e2fsck", &["-fn", &img]);
            diorite(&["check", &img]).ok();
        }
        // Beside anything else nothing is repaired.
        debugfs(&img, &format!("ssv orphan_file_inum {next}"));
        debugfs(&img, "ssv r_blocks_count 20000");
        let refused = diorite(&["check", "--repair", &img]);
        assert_eq!(refused.code, Some(4), "{kind}: {}", refused.text());
        assert!(named(&fs::read(&img).unwrap()), "{kind}");
        for img in [img, other] {
            fs::remove_file(img).unwrap();
        }
    }
}

/// Marks free blocks as used that nobody uses, and returns them.
fn take_unused(img: &str) -> Vec<String> {
    let found = run("debugfs", &["-R", "ffb 3", img]);
    let digits = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit());
    let blocks: Vec<String> = found
        .split_whitespace()
        .filter(digits)
        .map(str::to_owned)
        .collect();
    assert_eq!(blocks.len(), 3, "{found}");
    for block in &blocks {
        debugfs(img, &format!("setb {block}"));
    }
    blocks
}

fn is_used(img: &str, block: &str) -> bool {
    let said = run("debugfs", &["-R", &format!("testb {block}"), img]);
    said.contains("marked in use")
}

/// Blocks that a bitmap has as used and nobody uses are given back, as by e2fsck.
#[test]
fn blocks_that_nobody_uses_are_given_back() {
    let dir = scratch();
    for kind in KINDS {
        let img = fresh(dir.path(), kind);
        let blocks = take_unused(&img);
        let fsck = |words: &[&str]| xtask::run::tool("e2fsck").args(words).output().unwrap();
        assert_ne!(fsck(&["-fn", &img]).status.code(), Some(0), "{kind}");
        assert_eq!(diorite(&["check", &img]).code, Some(4), "{kind}");
        let ran = diorite(&["check", "--repair", &img]);
        assert_eq!(ran.code, Some(1), "{kind}: {}{}", ran.err, ran.text());
        assert!(
            ran.text().contains("corrected: block bitmap"),
            "{}",
            ran.text()
        );
        assert!(blocks.iter().all(|block| !is_used(&img, block)), "{kind}");
        run("e2fsck", &["-fn", &img]);
        diorite(&["check", "--repair", &img]).ok();
    }
}

/// A feature that a driver may ignore may own blocks that no pass of a check finds: they stay. The defect: they were freed.
#[test]
fn blocks_of_features_that_may_be_ignored_are_not_given_back() {
    let dir = scratch();
    // Known to have blocks of its own; known to nobody; and one without blocks of its own, beside which the repair is made.
    for (bit, name) in [
        (0x40, Some("lazy_bg")),
        (0x80, Some("FEATURE_C7")),
        (0x100, Some("snapshot_bitmap")),
        (0x2000, Some("FEATURE_C13")),
        (0x8000_0000, Some("FEATURE_C31")),
        (0x800, None),
    ] {
        let img = fresh(dir.path(), "-t ext4 -b 1024");
        let blocks = take_unused(&img);
        let mut bytes = fs::read(&img).unwrap();
        let at = SUPERBLOCK_OFFSET as usize;
        let compat = u32::from_le_bytes(bytes[at + 0x5c..at + 0x60].try_into().unwrap());
        bytes[at + 0x5c..at + 0x60].copy_from_slice(&(compat | bit).to_le_bytes());
        SuperblockEdit::new((&mut bytes[at..at + SUPERBLOCK_SIZE]).try_into().unwrap()).seal();
        fs::write(&img, &bytes).unwrap();
        let ran = diorite(&["check", "--repair", &img]);
        match name {
            Some(name) => {
                assert_eq!(ran.code, Some(4), "{name}: {}", ran.text());
                let said = format!("they may belong to {name},");
                assert!(ran.text().contains(&said), "{name}: {}", ran.text());
                assert!(fs::read(&img).unwrap() == bytes, "{name}");
            }
            None => {
                assert_eq!(ran.code, Some(1), "{}", ran.text());
                assert!(blocks.iter().all(|block| !is_used(&img, block)));
            }
        }
    }
}

fn memory(bytes: &[u8]) -> Arc<MemDevice> {
    let device = MemDevice::new(bytes.len() as u64);
    device.write_at(0, bytes);
    Arc::new(device)
}

/// What the command does with a device.
fn repair(device: &Arc<dyn Device>) {
    let look = || check_device(device, &CheckOptions::default(), &|_| ()).unwrap();
    let found = look();
    assert!(found.is_repairable(), "{found:?}");
    let open = |groups| {
        let options = OpenOptions::writable().repair(Repair {
            groups,
            ..Repair::default()
        });
        Volume::open_device(device.clone(), &options).unwrap()
    };
    open(found.counts).close().unwrap();
    assert!(look().is_clean());
    let volume = open(Vec::new());
    volume.note_checked().unwrap();
    volume.close().unwrap();
    let found = look();
    assert!(
        found.is_clean() && !found.stale.state && !found.stale.totals,
        "{found:?}"
    );
}

#[test]
fn a_power_cut_leaves_what_a_repair_finishes() {
    let dir = scratch();
    for kind in ["-t ext4 -b 1024", "-t ext2 -b 1024"] {
        let img = fresh(dir.path(), kind);
        for group in 0..superblock(&fs::read(&img).unwrap()).group_count() {
            damage_group(&img, group, |d| d.free_clusters -= 5);
        }
        damage_group(&img, 0, |d| (d.used_dirs, d.free_inodes) = (50, 0));
        debugfs(&img, "ssv state 2");
        let base = fs::read(&img).unwrap();
        let record = Arc::new(RecordDevice::with_volatile_cache(memory(&base)));
        let device: Arc<dyn Device> = record.clone();
        repair(&device);
        let log = record.log();
        let cuts = plan(&log, 60, 7, 512);
        let mut walk = PowerCuts::new(base, &log);
        let (mut left, all) = (0, cuts.len());
        for cut in cuts {
            walk.with_image(cut, |bytes| {
                let theirs = format!("{img}.cut");
                fs::write(&theirs, bytes).unwrap();
                let fsck = xtask::run::tool("e2fsck")
                    .args(["-fy", &theirs])
                    .output()
                    .unwrap();
                assert!(fsck.status.code().unwrap() < 2, "{kind}: {cut:?}");
                run("e2fsck", &["-fn", &theirs]);
                let device: Arc<dyn Device> = memory(bytes);
                let found = check_device(&device, &CheckOptions::default(), &|_| ()).unwrap();
                // A superblock of which a half was written is replaced by its copy, or left to e2fsck.
                let torn = |f: &Findings| f.kind == Kind::Superblock;
                match found.findings.iter().any(torn) {
                    true => left += 1,
                    false => repair(&device),
                }
            });
        }
        assert!(left < all / 4, "{kind}: {left} of {all}");
    }
}
