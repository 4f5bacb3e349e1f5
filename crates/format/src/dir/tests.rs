//! Directory blocks made by hand on the sample superblock (no checksums).

use super::*;
use crate::inode::FileType;
use crate::layout::{inode as at, sb as sb_at};
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
    assert_eq!(walk::record_len(0, true), 65536);
    assert_eq!(walk::record_len(0xFFFF, true), 65536);
    assert_eq!(walk::record_len(0xFFF4, true), 65524);
    assert_eq!(walk::record_len(1, true), 65536);
    assert_eq!(walk::record_len(12, false), 12);
}

#[test]
fn hostile_bytes_end_the_walk() {
    let e = Entries::new(&[0u8; 4096], false, true);
    assert_eq!(e.count(), 4096 / 12);
}
