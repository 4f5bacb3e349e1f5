//! Conversions of file systems of many kinds: e2fsck and the check of contents take the result, and what a power cut leaves of them.

mod cuts;

use super::{Conversion, InnerJournal, convert};
use crate::relocate::tests::world::{bytes_of, complaint, contents, device};
use diorite_block::Device;
use diorite_format::features::{Compat, Features, Incompat, RoCompat};
use diorite_format::superblock::SUPERBLOCK_SIZE;
use diorite_format::{Superblock, quota};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// An image of 12 MiB made by mke2fs with some directories: small ones, one with a hash tree to be, and one whose blocks are full.
fn made(words: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let (source, image) = (dir.path().join("source"), dir.path().join("image"));
    fs::create_dir_all(source.join("full")).unwrap();
    fs::write(source.join("file"), [7; 100_000]).unwrap();
    for n in 0..150 {
        // Records of 64 bytes leave no room in a block.
        fs::write(source.join(format!("full/{n:056}")), b"x").unwrap();
        fs::write(source.join(format!("{n:017}")), b"").unwrap();
    }
    std::os::unix::fs::symlink("a".repeat(200), source.join("slow")).unwrap();
    let out = xtask::run::tool("mke2fs")
        .args(["-q", "-F", "-b", "1024", "-I", "256", "-N", "512", "-d"])
        .arg(&source)
        .args(words.split(' '))
        .args([image.to_str().unwrap(), "12M"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{words}: {said}");
    fs::read(&image).unwrap()
}

fn superblock(bytes: &[u8]) -> Superblock {
    let raw: [u8; SUPERBLOCK_SIZE] = bytes[1024..2048].try_into().unwrap();
    Superblock::parse(&raw).unwrap()
}

/// The image after a conversion.
fn converted(before: &[u8], change: &Conversion) -> Result<Vec<u8>, crate::Error> {
    let below = device(before);
    let device: Arc<dyn Device> = below.clone();
    let clock = crate::OpenOptions::default().clock;
    convert(&device, change, &clock, &mut |_| {})?;
    drop(device);
    Ok(bytes_of(&below))
}

fn sound(dir: &Path, what: &str, bytes: &[u8]) {
    assert_eq!(complaint(dir, bytes), None, "{what}");
}

/// Compares all files. A directory may have been made anew: its size and its flags are its own.
fn same(what: &str, bytes: &[u8], files: &BTreeMap<String, String>) {
    let found = contents(bytes);
    for (path, entry) in files {
        let found = found.get(path).map(|entry| without_size(entry));
        assert_eq!(found, Some(without_size(entry)), "{what}: {path}");
    }
    assert_eq!(found.len(), files.len(), "{what}");
}

fn without_size(entry: &str) -> String {
    let words: Vec<&str> = entry.split(' ').collect();
    let is_dir = words[2].starts_with("40");
    let at = words.iter().position(|word| *word == "size").unwrap_or(0);
    let kept = words.iter().enumerate();
    let kept = kept.filter(|(n, _)| !is_dir || !(at..at + 4).contains(n));
    kept.map(|(_, word)| *word).collect::<Vec<_>>().join(" ")
}

fn ro(bits: RoCompat) -> Features {
    super::quota::ro(bits)
}

fn compat(bits: Compat) -> Features {
    Features {
        compat: bits,
        ..Features::default()
    }
}

fn incompat(bits: Incompat) -> Features {
    Features {
        incompat: bits,
        ..Features::default()
    }
}

fn set(set: Features) -> Conversion {
    Conversion {
        set,
        ..Conversion::default()
    }
}

fn clear(clear: Features) -> Conversion {
    Conversion {
        clear,
        ..Conversion::default()
    }
}

fn uuid() -> Conversion {
    Conversion {
        uuid: Some(*b"another volume's"),
        ..Conversion::default()
    }
}

fn journal() -> Conversion {
    Conversion {
        journal: Some(InnerJournal::default()),
        ..Conversion::default()
    }
}

fn inode_size(size: u16) -> Conversion {
    Conversion {
        inode_size: Some(size),
        ..Conversion::default()
    }
}

const SUMS: RoCompat = RoCompat::METADATA_CSUM;
const QUOTA: RoCompat = RoCompat::QUOTA;

/// All conversions, one after the other; each of them also of every kind of file system by itself.
fn all() -> Vec<(&'static str, Conversion)> {
    vec![
        ("uuid", uuid()),
        ("^metadata_csum", clear(ro(SUMS))),
        ("uuid without", uuid()),
        ("metadata_csum", set(ro(SUMS))),
        ("orphan_file", set(compat(Compat::ORPHAN_FILE))),
        ("quota,project", set(ro(QUOTA.with(RoCompat::PROJECT)))),
        ("mmp", set(incompat(Incompat::MMP))),
        ("uuid with more", uuid_of(9)),
        ("^metadata_csum with more", clear(ro(SUMS))),
        ("^mmp", clear(incompat(Incompat::MMP))),
        ("^quota,^project", clear(ro(QUOTA.with(RoCompat::PROJECT)))),
        ("^orphan_file", clear(compat(Compat::ORPHAN_FILE))),
        ("casefold", set(incompat(Incompat::CASEFOLD))),
        ("^casefold", clear(incompat(Incompat::CASEFOLD))),
        ("^resize_inode", clear(compat(Compat::RESIZE_INODE))),
        ("-I 512", inode_size(512)),
        ("^has_journal", clear(compat(Compat::HAS_JOURNAL))),
        ("metadata_csum without a journal", set(ro(SUMS))),
        ("-j", journal()),
    ]
}

fn uuid_of(byte: u8) -> Conversion {
    Conversion {
        uuid: Some([byte; 16]),
        ..Conversion::default()
    }
}

const KINDS: [&str; 4] = [
    "-t ext4 -O orphan_file,inline_data",
    "-t ext4 -O ^has_journal,^metadata_csum",
    "-t ext3 -g 1024 -J size=2",
    "-t ext4 -O ^flex_bg,^64bit,^metadata_csum,^uninit_bg",
];

#[test]
fn a_chain_of_conversions_keeps_all_files() {
    let dir = tempfile::tempdir().unwrap();
    for kind in KINDS {
        let mut bytes = made(kind);
        sound(dir.path(), kind, &bytes);
        let files = contents(&bytes);
        for (name, change) in all() {
            let has_journal = superblock(&bytes)
                .features()
                .compat
                .has(Compat::HAS_JOURNAL);
            let needs = change.set.compat.has(Compat::ORPHAN_FILE);
            let what = format!("{kind}: {name}");
            match converted(&bytes, &change) {
                Ok(after) => bytes = after,
                // These are the reasons that there are.
                Err(error) => {
                    let said = error.to_string();
                    let known = needs && !has_journal && said.contains("needs a journal")
                        || name == "-j" && said.contains("already has a journal");
                    assert!(known, "{what}: {said}");
                }
            }
            sound(dir.path(), &what, &bytes);
            same(&what, &bytes, &files);
        }
    }
}

/// The defect: a directory whose blocks are full had no room for checksums.
#[test]
fn a_full_directory_gets_room_for_checksums() {
    let dir = tempfile::tempdir().unwrap();
    let before = made("-t ext4 -O ^metadata_csum");
    let blocks = |bytes: &[u8]| superblock(bytes).geometry().free_blocks_count();
    let after = converted(&before, &set(ro(SUMS))).unwrap();
    assert!(blocks(&after) < blocks(&before), "no directory has grown");
    sound(dir.path(), "full", &after);
    same("full", &after, &contents(&before));
}

#[test]
fn what_is_asked_for_is_there_afterwards() {
    let before = made("-t ext4 -O orphan_file");
    let after = |change: &Conversion| superblock(&converted(&before, change).unwrap());
    assert_eq!(after(&uuid()).uuid(), b"another volume's");
    let plain = after(&clear(ro(SUMS)));
    assert!(!plain.has_metadata_csum() && plain.features().ro_compat.has(RoCompat::GDT_CSUM));
    let none = after(&clear(compat(Compat::HAS_JOURNAL)));
    // It is of use with a journal only.
    assert_eq!(none.orphan_file(), None);
    let old = Conversion {
        clear: Features {
            compat: Compat::ORPHAN_FILE,
            ro_compat: SUMS,
            ..Features::default()
        },
        ..Conversion::default()
    };
    let old = after(&old);
    assert!(old.orphan_file().is_none() && !old.has_metadata_csum());
    let quota = after(&set(ro(QUOTA)));
    assert!(quota::usage_file(&quota, quota::Kind::Group).is_some());
    assert!(quota::usage_file(&quota, quota::Kind::Project).is_none());
    assert_eq!(after(&inode_size(1024)).geometry().inode_size(), 1024);
}

#[test]
fn what_cannot_be_changes_nothing() {
    let before = made("-t ext4 -O ^has_journal");
    let refused = |bytes: &[u8], change: Conversion, why: &str| {
        let below = device(bytes);
        let device: Arc<dyn Device> = below.clone();
        let clock = crate::OpenOptions::default().clock;
        let error = convert(&device, &change, &clock, &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains(why), "{why}: {error}");
        drop(device);
        assert!(bytes_of(&below) == bytes, "{why}");
    };
    refused(&before, inode_size(128), "cannot become smaller");
    refused(&before, inode_size(300), "a power of two");
    refused(&before, set(compat(Compat::ORPHAN_FILE)), "needs a journal");
    let huge = Conversion {
        journal: Some(InnerJournal {
            blocks: Some(100_000),
            ..InnerJournal::default()
        }),
        ..Conversion::default()
    };
    refused(&before, huge, "blocks");
    let small = Conversion {
        journal: Some(InnerJournal {
            blocks: Some(100),
            ..InnerJournal::default()
        }),
        ..Conversion::default()
    };
    refused(&before, small, "at least 1024");
    let mut damaged = before.clone();
    // The root directory's inode.
    let table = superblock(&before)
        .inode_place(diorite_format::Ino::ROOT)
        .unwrap();
    let at = inode_table(&before) + table.offset as usize;
    damaged[at + 4] ^= 1;
    refused(&damaged, uuid(), "checksum");
}

/// Where the first inode table begins.
fn inode_table(bytes: &[u8]) -> usize {
    let sb = superblock(bytes);
    let at = sb.byte_of(sb.gdt_location(0).unwrap()).get() as usize + 8;
    let block = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    block as usize * sb.block_size() as usize
}
