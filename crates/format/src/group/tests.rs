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
