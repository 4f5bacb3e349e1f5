//! Damage where a reader may not look: in the values of attributes in inodes of their own, in copies of the superblock and of the
//! descriptors, and in inodes that the descriptor says were never used.
//!
//! Input: images changed by debugfs, or byte by byte. Output: assertions. Invariant: what e2fsck -fn finds, `check` finds. Limits: the
//! kernel's verdict on values (it refuses another checksum, another size, and holes) was found by mounts, and is not asked again here.

use crate::bench::Bench;
use crate::common::{run, scratch};
use crate::seal::{Bytes, Seal};
use crate::{ours, theirs};
use diorite_check::{CheckOptions, check};
use diorite_format::GroupNo;
use std::path::Path;

/// The notes of `check`, of an image that both find clean.
fn notes(image: &Path) -> Vec<String> {
    assert!(!theirs(image).0, "{:?}", theirs(image));
    let report = check(image.to_str().unwrap(), &CheckOptions::default(), &|_| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
    report.notes
}

/// The defect: the value itself was not read, so an image with a value that the kernel refuses was called clean.
#[test]
fn values_in_inodes_are_what_their_inode_says() {
    let bench = Bench::new("ea_inode", |source| {
        std::fs::write(source.join("file"), b"").unwrap();
    });
    bench.give_large_attribute("file", "user.v");
    let holder = bench.ino("file") + 1;
    let at = bench.ask(&format!("bmap <{holder}> 0"));
    let pristine = std::fs::read(&bench.image).unwrap();
    for (change, words) in [
        ("atime 0x12345678", "hash"),
        ("ctime 1", "attributes have their value in it"),
        ("version 2", "attributes have their value in it"),
        ("version 0", "attributes have their value in it"),
        ("flags 0x80000", "which is not for that"),
        ("links_count 2", ""),
    ] {
        bench.debugfs(&format!("sif <{holder}> {change}\n"));
        bench.both_damaged(words);
        std::fs::write(&bench.image, &pristine).unwrap();
    }
    // Of these only the kernel finds anything, and a reader of that attribute.
    bench.patch(at as usize * 1024 + 5, b"X");
    bench.ours_damaged("has the checksum");
    std::fs::write(&bench.image, &pristine).unwrap();
    bench.debugfs(&format!("sif <{holder}> size 1023\n"));
    bench.ours_damaged("1023 bytes");
    std::fs::write(&bench.image, &pristine).unwrap();
    bench.debugfs(&format!("punch <{holder}> 0 1\n"));
    bench.ours_damaged("never written");
    std::fs::write(&bench.image, &pristine).unwrap();
    bench.both_clean("the same value again");
}

/// Copies are read by `e2fsck -b`, on the day when nothing else is left; e2fsck -fn does not look at them.
#[test]
fn copies_of_no_use_are_noted() {
    let bench = Bench::new("has_journal", |_| ());
    run("resize2fs", &[bench.image.to_str().unwrap(), "40M"]);
    let group = |n: usize| (1 + n * 8192) * 1024;
    assert_eq!(notes(&bench.image), [""; 0]);
    let pristine = std::fs::read(&bench.image).unwrap();
    let big = 0x3C_u32.to_le_bytes();
    for (at, bytes, words) in [
        (
            group(1) + 0x38,
            &[0, 0][..],
            "block 8193 (group 1) is not valid",
        ),
        (
            group(3) + 0x68,
            b"another",
            "block 24577 (group 3) is out of date: it has another UUID",
        ),
        (
            group(1) + 4,
            &[0x40, 0x9C, 0, 0],
            "another number of blocks",
        ),
        (group(3) + 0x64, &[3], "another set of features"),
        // Only counts, times, and what drivers set in passing: no copy is out of date by them.
        (group(1) + 0x0C, &[1, 2, 3], ""),
        (group(1) + 0x2C, &[1, 2, 3], ""),
        (group(1) + 0x64, &[0x49], ""),
        (
            group(1) + 1024 + 8,
            &big,
            "block 8194 has other places for group 0",
        ),
        (
            group(3) + 1024 + 32 + 4,
            &big,
            "block 24578 has other places for group 1",
        ),
        (group(1) + 1024 + 12, &big, ""),
    ] {
        bench.patch(at, bytes);
        let notes = notes(&bench.image);
        match words {
            "" => assert_eq!(notes, [""; 0], "at {at}"),
            _ => assert!(
                notes.len() == 1 && notes[0].contains(words),
                "{words}: {notes:?}"
            ),
        }
        std::fs::write(&bench.image, &pristine).unwrap();
    }
}

/// No tool that changes a volume leaves copies that are noted. (Of resize2fs with bigalloc, e2fsck itself minds the counts.)
#[test]
fn copies_that_tools_write_are_of_use() {
    let dir = scratch();
    let image = dir.path().join("image");
    let path = image.to_str().unwrap();
    let diorite = |change: &dyn Fn(&diorite::Volume)| {
        let volume = diorite::Volume::open(path, &diorite::OpenOptions::writable()).unwrap();
        change(&volume);
        volume.close().unwrap();
    };
    for features in [
        "^sparse_super,^resize_inode",
        "sparse_super2",
        "meta_bg,^resize_inode",
        "uninit_bg,^metadata_csum",
        "^has_journal,^metadata_csum,^64bit",
    ] {
        let _ = std::fs::remove_file(&image);
        run(
            "mke2fs",
            &[
                "-q", "-F", "-t", "ext4", "-b", "1024", "-O", features, path, "60M",
            ],
        );
        assert_eq!(notes(&image), [""; 0], "{features}");
        run("resize2fs", &["-f", path, "100M"]);
        assert_eq!(notes(&image), [""; 0], "{features}");
        run("tune2fs", &["-L", "label", "-O", "^dir_index", path]);
        assert_eq!(notes(&image), [""; 0], "{features}");
        diorite(&|volume| volume.set_label("other").unwrap());
        assert_eq!(notes(&image), [""; 0], "{features}");
        std::fs::File::options()
            .write(true)
            .open(&image)
            .unwrap()
            .set_len(150 << 20)
            .unwrap();
        diorite(&|volume| drop(volume.grow(130 << 10)));
        assert_eq!(notes(&image), [""; 0], "{features}");
    }
}

/// A descriptor may say that fewer inodes were never used than is true, but not more. Some inodes before the last one are free, so the
/// count of free inodes does not give that away; and with the flag, nothing of the table was ever used.
#[test]
fn inodes_in_use_were_used() {
    for features in ["uninit_bg", "metadata_csum,^uninit_bg"] {
        let bench = Bench::new(features, |source| {
            for n in 0..9 {
                std::fs::write(source.join(format!("file{n}")), b"data").unwrap();
            }
        });
        bench.debugfs("rm file0\nrm file1\nrm file2\n");
        let last = (0..9)
            .filter(|n| *n > 2)
            .map(|n| bench.ino(&format!("file{n}")))
            .max()
            .unwrap();
        let pristine = std::fs::read(&bench.image).unwrap();
        let bytes = Bytes::new(&pristine);
        let group = GroupNo::new(0);
        let at = bytes.desc_at(group) as usize;
        let true_count = bytes.sb.geometry().inodes_per_group() - u32::try_from(last).unwrap();
        assert!(bytes.desc(group).free_inodes > true_count + 2);
        for (unused, flags) in (0..7).map(|more| (true_count - 2 + more, 0)).chain([
            (0, 0),
            (true_count, 1),
            (true_count, 4),
            (u32::from(u16::MAX), 0),
        ]) {
            let mut image = pristine.clone();
            let low = u16::try_from(unused).unwrap().to_le_bytes();
            image[at + 0x1C..at + 0x1E].copy_from_slice(&low);
            image[at + 0x12] = flags;
            Seal::Desc(group).apply(&mut image, &pristine);
            std::fs::write(&bench.image, &image).unwrap();
            let is_wrong = unused > true_count || flags == 1;
            let what = format!("{features}: {unused} of {true_count}, flags {flags}");
            assert_eq!(
                ours(&bench.image).0,
                is_wrong,
                "{what}: {:?}",
                ours(&bench.image)
            );
            assert_eq!(
                theirs(&bench.image).0,
                is_wrong,
                "{what}: {:?}",
                theirs(&bench.image)
            );
        }
    }
}
