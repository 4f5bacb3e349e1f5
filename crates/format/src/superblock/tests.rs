//! Superblocks made by hand: what is refused and why. Real ones are in `tests/golden.rs`.

use super::*;
use crate::types::GroupNo;

/// A valid superblock of a 32 MiB volume with 1 KiB blocks, without checksums.
pub(crate) fn sample() -> [u8; 1024] {
    let mut b = [0u8; 1024];
    let put32 =
        |b: &mut [u8; 1024], off: usize, v: u32| b[off..off + 4].copy_from_slice(&v.to_le_bytes());
    put32(&mut b, sb::INODES_COUNT, 4 * 2048);
    put32(&mut b, sb::BLOCKS_COUNT_LO, 32768);
    put32(&mut b, sb::FIRST_DATA_BLOCK, 1);
    put32(&mut b, sb::BLOCKS_PER_GROUP, 8192);
    put32(&mut b, sb::CLUSTERS_PER_GROUP, 8192);
    put32(&mut b, sb::INODES_PER_GROUP, 2048);
    put32(&mut b, sb::REV_LEVEL, 1);
    put32(&mut b, sb::FIRST_INO, 11);
    put32(&mut b, sb::FEATURE_INCOMPAT, 0x42);
    put32(&mut b, sb::FEATURE_RO_COMPAT, 0x1);
    b[sb::MAGIC..sb::MAGIC + 2].copy_from_slice(&0xEF53u16.to_le_bytes());
    b[sb::INODE_SIZE..sb::INODE_SIZE + 2].copy_from_slice(&256u16.to_le_bytes());
    b
}

fn with(at: usize, v: u32) -> Result<Superblock> {
    let mut b = sample();
    b[at..at + 4].copy_from_slice(&v.to_le_bytes());
    Superblock::parse(&b)
}

#[test]
fn the_sample_is_read() {
    let s = Superblock::parse(&sample()).unwrap();
    assert_eq!((s.group_count(), s.block_size()), (4, 1024));
    assert_eq!(s.group_blocks(GroupNo::new(3)), 8191);
    assert_eq!(s.group_of(FsBlock::new(8193)), Some(GroupNo::new(1)));
    assert_eq!(s.group_of(FsBlock::new(0)), None);
    assert_eq!(s.gdt_location(0).unwrap(), FsBlock::new(2));
    let p = s.inode_place(Ino::new(2049)).unwrap();
    assert_eq!(
        (p.group, p.index, p.table_block, p.offset),
        (GroupNo::new(1), 0, 0, 0)
    );
    assert!(s.check_device(32 << 20).is_ok() && s.check_device((32 << 20) - 1).is_err());
}

#[test]
fn impossible_geometry_is_refused() {
    for (at, v) in [
        (sb::LOG_BLOCK_SIZE, 7),
        (sb::LOG_BLOCK_SIZE, u32::MAX),
        (sb::LOG_CLUSTER_SIZE, 1),
        (sb::BLOCKS_PER_GROUP, 0),
        (sb::BLOCKS_PER_GROUP, 8200),
        (sb::BLOCKS_PER_GROUP, 8191),
        (sb::INODES_PER_GROUP, 0),
        (sb::INODES_PER_GROUP, u32::MAX),
        (sb::INODES_COUNT, 1),
        (sb::FIRST_DATA_BLOCK, 0),
        (sb::BLOCKS_COUNT_LO, 1),
        (sb::BLOCKS_COUNT_LO, u32::MAX),
        (sb::FIRST_INO, 3),
        (sb::R_BLOCKS_COUNT_LO, 32769),
    ] {
        assert!(
            matches!(with(at, v), Err(FormatError::Corrupt(_))),
            "{at:#x} = {v}"
        );
    }
}

/// The kernel uses the counts of the groups.
#[test]
fn counts_of_what_is_free_may_be_anything() {
    for at in [sb::FREE_INODES_COUNT, sb::FREE_BLOCKS_COUNT_LO] {
        assert!(with(at, u32::MAX).is_ok());
    }
}

#[test]
fn revision_and_journal_device_are_unsupported() {
    assert!(matches!(
        with(sb::REV_LEVEL, 2),
        Err(FormatError::Unsupported(_))
    ));
    let e = with(sb::FEATURE_INCOMPAT, 0x8).unwrap_err();
    assert!(e.to_string().contains("external journal device"), "{e}");
}

#[test]
fn backups_follow_the_powers() {
    let s = Superblock::parse(&sample()).unwrap();
    let with_copy: Vec<u32> = (0..130)
        .filter(|g| s.has_super_backup(GroupNo::new(*g)))
        .collect();
    assert_eq!(with_copy, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125]);
    assert_eq!(backup_candidates(200 << 20)[0].at.get(), 32768 * 4096);
    assert!(backup_candidates(0).is_empty());
}

#[test]
fn no_byte_makes_it_panic() {
    for at in 0..1024 {
        for flip in [0x01u8, 0x80, 0xFF] {
            let mut b = sample();
            b[at] ^= flip;
            if let Ok(s) = Superblock::parse(&b) {
                let _ = s.gdt_location(s.geometry().gdt_blocks().saturating_sub(1));
                let _ = s.inode_place(Ino::new(s.geometry().inodes_count()));
            }
        }
    }
}
