//! Directory blocks made by hand on the sample superblock (no checksums).

use super::*;
use crate::inode::FileType;
use crate::layout::{inode as at, sb as sb_at};
use crate::record::record_len;
use crate::superblock::tests::sample;

fn volume() -> Superblock {
    let mut b = sample();
    b[sb_at::FEATURE_INCOMPAT] |= 2;
    Superblock::parse(&b).unwrap()
}

fn dir(sb: &Superblock) -> Inode {
    let mut raw = [0u8; 256];
    raw[at::MODE + 1] = 0x41;
    raw[at::LINKS_COUNT] = 2;
    Inode::parse(sb, Ino::new(2), &raw).unwrap()
}

fn put(b: &mut [u8], off: usize, ino: u32, rec_len: u16, name: &[u8], kind: u8) {
    b[off..off + 4].copy_from_slice(&ino.to_le_bytes());
    b[off + 4..off + 6].copy_from_slice(&rec_len.to_le_bytes());
    b[off + 6] = name.len() as u8;
    b[off + 7] = kind;
    b[off + 8..off + 8 + name.len()].copy_from_slice(name);
}

fn block() -> Vec<u8> {
    let mut b = vec![0u8; 1024];
    put(&mut b, 0, 2, 12, b".", 2);
    put(&mut b, 12, 2, 12, b"..", 2);
    put(&mut b, 24, 0, 16, b"gone", 1);
    put(&mut b, 40, 12, 984, b"file", 1);
    b
}

#[test]
fn entries_are_walked() {
    let sb = volume();
    let d = dir(&sb);
    let raw = block();
    let b = DirBlock::parse(&sb, &d, FileBlock::new(0), &raw).unwrap();
    let names: Vec<&[u8]> = b.entries().map(|e| e.name).collect();
    assert_eq!(names, [b".".as_slice(), b"..", b"file"]);
    assert_eq!(b.slots().count(), 4);
    assert_eq!(b.find(b"file").unwrap().file_type, Some(FileType::Regular));
    assert!(b.find(b"gone").is_none());
    assert_eq!(b.dots(Ino::ROOT).unwrap(), (Ino::ROOT, Ino::ROOT));
    assert!(b.dots(Ino::new(3)).is_err());
}

#[test]
fn broken_chains_are_refused() {
    let sb = volume();
    let d = dir(&sb);
    let check = |edit: &dyn Fn(&mut Vec<u8>)| {
        let mut b = block();
        edit(&mut b);
        DirBlock::parse(&sb, &d, FileBlock::new(0), &b).map(|_| ())
    };
    assert!(check(&|_| ()).is_ok());
    for (at, v) in [
        (44, 0),
        (44, 0xD4),
        (45, 0x04),
        (4, 8),
        (16, 15),
        (40 + 6, 0),
        (40 + 3, 1),
        (40 + 9, b'/'),
    ] {
        assert!(check(&|b| b[at] = v).is_err(), "byte {at} = {v}");
    }
    assert!(check(&|b| b[46..48].copy_from_slice(&[0, 0])).is_err());
    assert!(check(&|b| b.truncate(1023)).is_err());
}

#[test]
fn record_lengths_of_huge_blocks() {
    assert_eq!(record_len(0, true), 65536);
    assert_eq!(record_len(0xFFFF, true), 65536);
    assert_eq!(record_len(0xFFF4, true), 65524);
    assert_eq!(record_len(1, true), 65536);
    assert_eq!(record_len(12, false), 12);
}

#[test]
fn hostile_bytes_end_the_walk() {
    let e = Entries::new(&[0u8; 4096], false, true);
    assert_eq!(e.count(), 4096 / 12);
}

/// A volume with checksums.
fn summed() -> Superblock {
    let mut b = sample();
    b[sb_at::FEATURE_INCOMPAT] |= 2;
    b[sb_at::FEATURE_RO_COMPAT + 1] |= 4;
    b[sb_at::CHECKSUM_TYPE] = 1;
    crate::superblock::SuperblockEdit::new(&mut b).seal();
    Superblock::parse(&b).unwrap()
}

fn new_dir(sb: &Superblock) -> Inode {
    crate::inode::Inode::fresh(
        sb,
        &crate::inode::NewInode {
            ino: Ino::new(30),
            mode: 0o040755,
            uid: 0,
            gid: 0,
            projid: 0,
            flags: InodeFlags::default(),
            generation: 77,
            time: crate::inode::Timestamp::default(),
        },
    )
}

/// Names and inodes of a valid block.
fn list(sb: &Superblock, d: &Inode, block: u64, raw: &[u8]) -> Vec<(Vec<u8>, u32)> {
    let b = DirBlock::parse(sb, d, FileBlock::new(block), raw).unwrap();
    b.entries()
        .map(|e| (e.name.to_vec(), e.ino.get()))
        .collect()
}

#[test]
fn new_blocks_are_sound() {
    for sb in [volume(), summed()] {
        let d = new_dir(&sb);
        let mut raw = vec![7u8; 1024];
        init_block(&sb, &d, &mut raw).unwrap();
        assert!(list(&sb, &d, 1, &raw).is_empty());
        init_first_block(&sb, &d, Ino::new(2), &mut raw).unwrap();
        let b = DirBlock::parse(&sb, &d, FileBlock::new(0), &raw).unwrap();
        assert_eq!(b.dots(d.ino).unwrap(), (d.ino, Ino::ROOT));
        assert!(init_block(&sb, &d, &mut raw[..1023]).is_err());
    }
}

#[test]
fn names_come_and_go_as_in_a_model() {
    for sb in [volume(), summed()] {
        let d = new_dir(&sb);
        for (block, first) in [(0, true), (1, false)] {
            let mut raw = vec![0u8; 1024];
            if first {
                init_first_block(&sb, &d, Ino::new(2), &mut raw).unwrap();
            } else {
                init_block(&sb, &d, &mut raw).unwrap();
            }
            let mut model: Vec<(Vec<u8>, u32)> = list(&sb, &d, block, &raw);
            let mut x = 1u32;
            let mut full = 0;
            for _ in 0..3000 {
                x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let name = vec![b'a' + (x >> 8) as u8 % 8; 1 + (x >> 16) as usize % 60];
                let ino = 11 + (x >> 20);
                let at = model.iter().position(|(n, _)| *n == name);
                let mut edit =
                    DirBlockEdit::open(&sb, &d, FileBlock::new(block), &mut raw).unwrap();
                let there = at.map(|n| Ino::new(model[n].1));
                match x >> 4 & 3 {
                    0 => {
                        assert_eq!(edit.remove(&name).unwrap(), there);
                        at.map(|n| model.remove(n));
                    }
                    1 => {
                        let old = edit.replace(&name, Ino::new(ino), FileType::Fifo).unwrap();
                        assert_eq!(old, there);
                        if let Some(n) = at {
                            model[n].1 = ino;
                        }
                    }
                    _ => match edit
                        .insert(&name, Ino::new(ino), FileType::Regular)
                        .unwrap()
                    {
                        Inserted::At(_) => {
                            assert_eq!(there, None);
                            model.push((name, ino));
                        }
                        Inserted::Exists(ino) => assert_eq!(there, Some(ino)),
                        Inserted::Full => full += 1,
                    },
                }
                let (mut found, mut expected) = (list(&sb, &d, block, &raw), model.clone());
                found.sort();
                expected.sort();
                assert_eq!(found, expected);
            }
            assert!(full > 10 && model.len() > 5, "{full} times full");
        }
    }
}

/// The search that compares ends of names first finds what a comparison of whole records finds: names that differ in one byte anywhere,
/// and the first record with room.
#[test]
fn one_pass_finds_the_name_or_the_first_room() {
    for sb in [volume(), summed()] {
        let d = new_dir(&sb);
        let mut x = 7u32;
        for len in 1..24usize {
            let mut raw = vec![0u8; 1024];
            init_block(&sb, &d, &mut raw).unwrap();
            let name = |n: usize| {
                let mut name = vec![b'n'; len];
                name[n % len] = b'a' + (n / len) as u8;
                name
            };
            let mut edit = DirBlockEdit::open(&sb, &d, FileBlock::new(1), &mut raw).unwrap();
            for n in 0..40 {
                x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                edit.insert(&name(n), Ino::new(12), FileType::Regular)
                    .unwrap();
                if x >> 30 == 0 {
                    edit.remove(&name(x as usize >> 8 & 31)).unwrap();
                }
            }
            let block = DirBlock::parse(&sb, &d, FileBlock::new(1), &raw).unwrap();
            for (n, asked) in (0..40).flat_map(|n| [(n, len), (n, len + 1), (n, 255)]) {
                let mut asked_for = name(n);
                asked_for.resize(asked, b'n');
                let there = block.entries().find(|e| e.name == asked_for);
                let before = |at: u32| block.slots().find(|e| e.offset + e.rec_len == at);
                let need = record_size(asked);
                let left = |e: &DirEntry<'_>| match e.ino.is_none() {
                    true => e.rec_len,
                    false => e.rec_len - record_size(e.name.len()),
                };
                let expected = match there {
                    Some(e) => Sought::At {
                        ino: e.ino,
                        offset: e.offset,
                        before: before(e.offset).map(|b| b.offset),
                    },
                    None => match block.slots().find(|e| left(e) >= need) {
                        Some(e) => Sought::Room(e.offset),
                        None => Sought::Full,
                    },
                };
                assert_eq!(block.seek(&asked_for), expected, "{len} {n} {asked}");
            }
        }
    }
}

#[test]
fn removed_names_leave_no_bytes() {
    let sb = volume();
    let d = new_dir(&sb);
    let mut raw = vec![0u8; 1024];
    init_block(&sb, &d, &mut raw).unwrap();
    let empty = raw.clone();
    for name in [b"first".as_slice(), b"second", b"third"] {
        let mut edit = DirBlockEdit::open(&sb, &d, FileBlock::new(1), &mut raw).unwrap();
        edit.insert(name, Ino::new(12), FileType::Regular).unwrap();
    }
    for name in [b"second".as_slice(), b"third", b"first"] {
        let mut edit = DirBlockEdit::open(&sb, &d, FileBlock::new(1), &mut raw).unwrap();
        edit.remove(name).unwrap();
    }
    assert!(raw == empty);
}

#[test]
fn what_no_entry_can_be_is_not_written() {
    let sb = summed();
    let d = new_dir(&sb);
    let mut raw = vec![0u8; 1024];
    init_first_block(&sb, &d, Ino::new(2), &mut raw).unwrap();
    let before = raw.clone();
    let mut edit = DirBlockEdit::open(&sb, &d, FileBlock::new(0), &mut raw).unwrap();
    let long = [b'x'; 256];
    for name in [b"".as_slice(), b".", b"..", b"a/b", b"a\0", &long] {
        assert!(edit.insert(name, Ino::new(12), FileType::Regular).is_err());
        assert!(edit.remove(name).is_err());
    }
    for ino in [0, 8193] {
        assert!(edit.insert(b"x", Ino::new(ino), FileType::Regular).is_err());
        assert!(
            edit.replace(b"..", Ino::new(ino), FileType::Regular)
                .is_err()
        );
    }
    assert!(raw == before);
    raw[100] ^= 1;
    assert!(DirBlockEdit::open(&sb, &d, FileBlock::new(0), &mut raw).is_err());
}

#[test]
fn inline_parts_have_no_sum() {
    let sb = summed();
    let d = new_dir(&sb);
    let mut part = [0u8; 56];
    part[4] = 56;
    for (name, done) in [
        (b"one".as_slice(), true),
        (b"two", true),
        (&[b'n'; 30], false),
    ] {
        let mut edit = DirBlockEdit::open_inline(&sb, &d, &mut part).unwrap();
        let got = edit.insert(name, Ino::new(12), FileType::Regular).unwrap();
        assert_eq!(matches!(got, Inserted::At(_)), done, "{got:?}");
    }
    let b = DirBlock::parse_inline(&sb, &d, &part).unwrap();
    assert_eq!(b.entries().count(), 2);
}

/// A directory that begins inline takes names until its two parts are full; no record crosses between them.
#[test]
fn inline_directories_take_names() {
    let sb = summed();
    let mut d = new_dir(&sb);
    init_inline(&mut d, Ino::new(2));
    assert_eq!((d.size, inline_parent(&sb, &d).unwrap()), (60, Ino::new(2)));
    let mut edit = InlineDirEdit::open(&sb, &d, &[]).unwrap();
    let put = |edit: &mut InlineDirEdit<'_>, n: u8| {
        let name = [b'a', b'0' + n];
        edit.insert_new(&name, Ino::new(12), FileType::Regular)
            .unwrap()
    };
    for n in 0..4 {
        assert!(matches!(put(&mut edit, n), Inserted::At(_)));
    }
    assert_eq!(put(&mut edit, 4), Inserted::Full);
    assert!(!edit.stretch(0) && !edit.stretch(8) && !edit.stretch(22));
    assert!(edit.stretch(12) && matches!(put(&mut edit, 4), Inserted::At(_)));
    assert_eq!(put(&mut edit, 5), Inserted::Full);
    assert!(edit.stretch(24) && !edit.stretch(24) && !edit.stretch(12));
    assert!(matches!(put(&mut edit, 5), Inserted::At(_)));
    assert_eq!(edit.remove(b"a1").unwrap(), Some(Ino::new(12)));
    assert_eq!(edit.remove(b"a1").unwrap(), None);
    let other = (Ino::new(13), FileType::Directory);
    assert!(edit.replace(b"a5", other.0, other.1).unwrap().is_some());
    assert!(edit.replace(b"a1", other.0, other.1).unwrap().is_none());
    let (i_block, rest) = edit.into_parts();
    let mut after = d.clone();
    (after.i_block, after.size) = (i_block, 60 + 24);
    let data = crate::inline::InlineData::new(&after, &rest).unwrap();
    let parts = data.dir_parts();
    let names = parts.iter().flat_map(|part| {
        let part = DirBlock::parse_inline(&sb, &after, part).unwrap();
        part.entries().map(|e| (e.name, e.ino.get()))
    });
    let expected: [(&[u8], u32); 5] = [
        (b"a0", 12),
        (b"a2", 12),
        (b"a3", 12),
        (b"a4", 12),
        (b"a5", 13),
    ];
    assert_eq!(names.collect::<Vec<_>>(), expected);
}

/// Arbitrary bytes are refused, or remain chains of records.
#[test]
fn hostile_inline_directories_never_panic() {
    let sb = volume();
    let mut d = new_dir(&sb);
    init_inline(&mut d, Ino::new(2));
    let mut edit = InlineDirEdit::open(&sb, &d, &[]).unwrap();
    assert!(edit.stretch(36));
    for name in [
        b"one".as_slice(),
        b"two",
        b"three",
        b"a-name-of-twenty-four",
    ] {
        let put = edit.insert_new(name, Ino::new(12), FileType::Regular);
        assert!(matches!(put, Ok(Inserted::At(_))));
    }
    let (i_block, rest) = edit.into_parts();
    let mut opened = 0;
    for at in 0..60 + 36 {
        for value in 0..=255 {
            for size in [60 + 36, 60 + 35, 60 + 12, 60, 59, 4, 0] {
                let mut bytes = [&i_block[..], &rest].concat();
                bytes[at] = value;
                let mut d = d.clone();
                d.i_block.copy_from_slice(&bytes[..60]);
                d.size = size;
                let Ok(mut edit) = InlineDirEdit::open(&sb, &d, &bytes[60..]) else {
                    continue;
                };
                opened += 1;
                let _ = edit.stretch(usize::from(value) & !3);
                let _ = edit.insert_new(b"four", Ino::new(12), FileType::Regular);
                let _ = edit.remove(b"two");
                let (i_block, rest) = edit.into_parts();
                (d.i_block, d.size) = (i_block, size.min(60) + rest.len() as u64);
                InlineDirEdit::open(&sb, &d, &rest).unwrap();
            }
        }
    }
    assert!(opened > 1000, "{opened}");
}

#[test]
fn whole_huge_blocks_are_one_record() {
    let mut b = sample();
    b[sb_at::FEATURE_INCOMPAT] |= 2;
    (
        b[sb_at::LOG_BLOCK_SIZE],
        b[sb_at::LOG_CLUSTER_SIZE],
        b[sb_at::FIRST_DATA_BLOCK],
    ) = (6, 6, 0);
    b[sb_at::BLOCKS_COUNT_LO..sb_at::BLOCKS_COUNT_LO + 4].copy_from_slice(&32768u32.to_le_bytes());
    let sb = Superblock::parse(&b).unwrap();
    let d = new_dir(&sb);
    let mut raw = vec![0u8; 65536];
    init_block(&sb, &d, &mut raw).unwrap();
    assert_eq!(raw[4..6], [0xFF, 0xFF]);
    let empty = raw.clone();
    for name in [b"a".as_slice(), b"b"] {
        let mut edit = DirBlockEdit::open(&sb, &d, FileBlock::new(1), &mut raw).unwrap();
        assert!(matches!(
            edit.insert(name, Ino::new(12), FileType::Regular),
            Ok(Inserted::At(_))
        ));
    }
    for name in [b"b".as_slice(), b"a"] {
        let mut edit = DirBlockEdit::open(&sb, &d, FileBlock::new(1), &mut raw).unwrap();
        assert!(edit.remove(name).unwrap().is_some());
    }
    assert!(raw == empty);
}
