//! Descriptors made by hand on the sample superblock.

use super::*;
use crate::superblock::tests::sample;

fn desc(bitmap: u32, inode_bitmap: u32, table: u32) -> [u8; 32] {
    let mut d = [0u8; 32];
    d[0..4].copy_from_slice(&bitmap.to_le_bytes());
    d[4..8].copy_from_slice(&inode_bitmap.to_le_bytes());
    d[8..12].copy_from_slice(&table.to_le_bytes());
    d
}

#[test]
fn places_stay_in_their_group() {
    let sb = Superblock::parse(&sample()).unwrap();
    let g = GroupNo::new(1);
    assert!(GroupDesc::parse(&sb, g, &desc(8195, 8196, 8197)).is_ok());
    for d in [
        desc(3, 8196, 8197),
        desc(8195, 0, 8197),
        desc(8195, 8196, 16000),
        desc(8195, 8196, u32::MAX),
    ] {
        assert!(GroupDesc::parse(&sb, g, &d).is_err());
    }
    assert!(GroupDesc::parse(&sb, GroupNo::new(4), &desc(8195, 8196, 8197)).is_err());
    assert!(GroupDesc::parse(&sb, g, &[0; 31]).is_err());
}

#[test]
fn counts_fit_the_group() {
    let sb = Superblock::parse(&sample()).unwrap();
    let mut d = desc(8195, 8196, 8197);
    d[0xC..0xE].copy_from_slice(&8193u16.to_le_bytes());
    let e = GroupDesc::parse(&sb, GroupNo::new(1), &d).unwrap_err();
    assert!(e.to_string().contains("free blocks is 8193"), "{e}");
}

#[test]
fn what_is_written_is_read_back() {
    let sb = Superblock::parse(&sample()).unwrap();
    let group = GroupNo::new(1);
    let mut raw = desc(8195, 8196, 8197);
    raw[0x12] = 3;
    raw[0x14] = 0x77;
    raw[0x1C] = 9;
    let mut d = GroupDesc::parse(&sb, group, &raw).unwrap();
    (d.free_clusters, d.free_inodes, d.used_dirs) = (100, 2000, 7);
    d.write(&sb, &mut raw).unwrap();
    assert_eq!(GroupDesc::parse(&sb, group, &raw).unwrap(), d);
    assert_eq!((raw[0x12], raw[0x14], raw[0x1C]), (3, 0x77, 9), "not ours");
    let before = raw;
    d.free_inodes = 2049;
    let wrong = d.write(&sb, &mut raw).unwrap_err();
    assert_eq!(
        wrong.to_string(),
        "free inodes is 2049; this volume stores at most 2048"
    );
    assert!(d.write(&sb, &mut raw[..31]).is_err() && raw == before);
}
