//! Usage files made by hand: every check, and walks that end whatever the references are.

use super::*;
use crate::error::FormatError;
use crate::le::{put_le16, put_le32, put_le64};

const INO: Ino = Ino::new(3);

/// Blocks of a file: header, root, two levels, references of ids 0..=255, entries of 0 and 9.
fn sample() -> Vec<u8> {
    let mut file = vec![0u8; 6 * BLOCK_SIZE];
    for (at, value) in [(0, 0xD9C0_1F11), (4, 1), (20, 6), (28, 5)] {
        put_le32(&mut file, at, value);
    }
    for block in 1..4 {
        put_le32(&mut file, block * BLOCK_SIZE, block as u32 + 1);
    }
    for id in [0, 9] {
        put_le32(&mut file, 4 * BLOCK_SIZE + 4 * id, 5);
        let at = 5 * BLOCK_SIZE + data::SIZE + entry::SIZE * (id / 9);
        put_le32(&mut file, at + entry::ID, id as u32);
        put_le64(&mut file, at + entry::CUR_SPACE, 1024 * (id as u64 + 1));
        put_le64(&mut file, at + entry::CUR_INODES, 1);
    }
    put_le16(&mut file, 5 * BLOCK_SIZE + data::ENTRIES, 2);
    file
}

/// All entries, and all errors.
fn walked(file: &[u8]) -> (Vec<Entry>, Vec<Corrupt>) {
    let mut wrong = Vec::new();
    let mut note = |e| match e {
        FormatError::Corrupt(e) => wrong.push(e),
        FormatError::Unsupported(e) => panic!("{e}"),
    };
    let header = match Header::parse(Kind::User, INO, file.len() as u64, file) {
        Ok(header) => header,
        Err(e) => {
            note(e);
            return (Vec::new(), wrong);
        }
    };
    let block = |n: u32| &file[n as usize * BLOCK_SIZE..];
    let mut tree = Tree::new(&header);
    let mut read = 0;
    while let Some(level) = tree.level() {
        for at in level {
            read += 1;
            tree.references(at, block(at.block), &mut note);
        }
    }
    assert!(read < header.blocks, "a block was asked for twice");
    let leaves = tree.leaves();
    let mut all = Vec::new();
    for ids in leaves.chunk_by(|a, b| a.block == b.block) {
        all.extend(tree.entries(ids, block(ids[0].block), &mut note));
    }
    (all, wrong)
}

#[test]
fn a_sound_file_has_its_entries() {
    let (entries, wrong) = walked(&sample());
    let found: Vec<_> = entries.iter().map(|e| (e.id, e.space, e.inodes)).collect();
    assert_eq!((found, wrong), (vec![(0, 1024, 1), (9, 10240, 1)], vec![]));
}

#[test]
fn every_check_has_its_error() {
    let (ino, blocks) = (INO, 6);
    let leaf = 5 * BLOCK_SIZE;
    let rows: Vec<(usize, u32, Corrupt)> = vec![
        (
            0,
            7,
            Corrupt::QuotaMagic {
                ino,
                found: 7,
                expected: 0xD9C0_1F11,
            },
        ),
        (4, 0, Corrupt::QuotaVersion { ino, found: 0 }),
        (
            20,
            7,
            Corrupt::QuotaBlocks {
                ino,
                found: 7,
                max: 6,
            },
        ),
        (
            20,
            1,
            Corrupt::QuotaBlocks {
                ino,
                found: 1,
                max: 6,
            },
        ),
        (
            24,
            6,
            Corrupt::QuotaFree {
                ino,
                found: 6,
                blocks,
            },
        ),
        (
            28,
            99,
            Corrupt::QuotaFree {
                ino,
                found: 99,
                blocks,
            },
        ),
        (
            3 * BLOCK_SIZE + 8,
            6,
            Corrupt::QuotaReference {
                ino,
                block: 3,
                slot: 2,
                found: 6,
                blocks,
            },
        ),
        (
            3 * BLOCK_SIZE + 8,
            1,
            Corrupt::QuotaTwice {
                ino,
                block: 3,
                found: 1,
            },
        ),
        (
            3 * BLOCK_SIZE + 8,
            4,
            Corrupt::QuotaTwice {
                ino,
                block: 3,
                found: 4,
            },
        ),
        (
            4 * BLOCK_SIZE + 8,
            2,
            Corrupt::QuotaTwice {
                ino,
                block: 4,
                found: 2,
            },
        ),
        (
            4 * BLOCK_SIZE + 8,
            5,
            Corrupt::QuotaNoEntry {
                ino,
                block: 5,
                id: 2,
            },
        ),
        (
            4 * BLOCK_SIZE + 36,
            0,
            Corrupt::QuotaAstray {
                ino,
                block: 5,
                id: 9,
            },
        ),
        (
            leaf + 8,
            15,
            Corrupt::QuotaEntries {
                ino,
                block: 5,
                found: 15,
                max: 14,
            },
        ),
    ];
    for (at, value, expected) in rows {
        let mut file = sample();
        put_le32(&mut file, at, value);
        assert_eq!(walked(&file).1, vec![expected]);
    }
}

#[test]
fn an_entry_twice_is_one_too_many() {
    let mut file = sample();
    let leaf = 5 * BLOCK_SIZE + data::SIZE;
    put_le64(&mut file, leaf + 13 * entry::SIZE + entry::CUR_SPACE, 5);
    let (entries, wrong) = walked(&file);
    let (ino, block, id) = (INO, 5, 0);
    assert_eq!(wrong, vec![Corrupt::QuotaAstray { ino, block, id }]);
    assert_eq!(entries.len(), 3);
}

#[test]
fn a_file_of_nothing_but_references_ends() {
    for value in 0..6 {
        let mut file = sample();
        for at in (BLOCK_SIZE..file.len()).step_by(4) {
            put_le32(&mut file, at, value);
        }
        let (_, wrong) = walked(&file);
        assert_eq!(wrong.is_empty(), value == 0, "{value}");
    }
}

#[test]
fn what_is_too_short_or_too_long_is_refused() {
    let file = sample();
    let short = Header::parse(Kind::User, INO, 6144, &file[..BLOCK_SIZE - 1]);
    assert!(matches!(
        short,
        Err(FormatError::Corrupt(Corrupt::Short { .. }))
    ));
    let (ino, max) = (INO, 1 << 31);
    assert_eq!(
        Header::parse(Kind::User, INO, max + 1, &file),
        Err(Corrupt::QuotaSize {
            ino,
            found: max + 1,
            max
        }
        .into())
    );
    let header = Header::parse(Kind::User, INO, max, &file).unwrap();
    let mut tree = Tree::new(&header);
    let root = tree.level().unwrap()[0];
    let mut wrong = 0;
    tree.references(root, &file[..9], &mut |_| wrong += 1);
    let leaf = [Branch { block: 5, id: 9 }];
    assert!(tree.entries(&leaf, &[], &mut |_| wrong += 1).is_empty());
    assert_eq!(wrong, 2);
}

/// Files that are made hold exactly what they were asked to hold, in whatever order it was said.
#[test]
fn a_new_file_has_its_entries() {
    let entry = |id: u32| Entry {
        id,
        space: 1024 * (1 + u64::from(id)),
        inodes: 1 + u64::from(id % 7),
    };
    let sparse = (0..40u32).map(|n| n.wrapping_mul(0x9E37_79B9));
    let ids: [Vec<u32>; 6] = [
        vec![0],
        vec![],
        (0..14).collect(),
        (0..600).collect(),
        vec![u32::MAX, 0, 255, 256, 65_535, 65_536, 1 << 24],
        sparse.collect(),
    ];
    for ids in ids {
        let mut wanted: Vec<Entry> = ids.iter().map(|id| entry(*id)).collect();
        let file = usage_bytes(Kind::User, &wanted);
        let (mut found, wrong) = walked(&file);
        wanted.sort_by_key(|e| e.id);
        found.sort_by_key(|e| e.id);
        assert_eq!((found, wrong), (wanted.clone(), vec![]));
        let first = le32(&file, header::FREE_ENTRY);
        let full = wanted.len().is_multiple_of(usize::from(ENTRIES));
        assert_eq!(first == 0, full, "a block with room is known");
        wanted.reverse();
        assert_eq!(usage_bytes(Kind::User, &wanted), file);
    }
}
