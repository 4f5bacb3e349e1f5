//! Inodes made by hand on the sample superblock.

use super::*;
use crate::superblock::tests::sample;

fn parse(edit: impl Fn(&mut [u8; 256])) -> Result<Inode> {
    let sb = Superblock::parse(&sample()).unwrap();
    let mut raw = [0u8; 256];
    raw[at::MODE..at::MODE + 2].copy_from_slice(&0o100644u16.to_le_bytes());
    raw[at::LINKS_COUNT] = 1;
    raw[at::EXTRA_ISIZE] = 32;
    edit(&mut raw);
    Inode::parse(&sb, Ino::new(12), &raw)
}

#[test]
fn fields_and_kinds() {
    let i = parse(|_| ()).unwrap();
    assert_eq!(
        (i.file_type, i.map_kind()),
        (Some(FileType::Regular), MapKind::Indirect)
    );
    assert_eq!(i.xattr_area(), Some(160..256));
    let link = parse(|r| {
        r[at::MODE + 1] = 0xA1;
        r[at::SIZE_LO] = 3;
        r[at::BLOCK..at::BLOCK + 3].copy_from_slice(b"a/b");
    });
    assert_eq!(link.unwrap().fast_symlink().unwrap(), b"a/b");
    let dev = parse(|r| {
        r[at::MODE + 1] = 0x61;
        r[at::BLOCK + 4..at::BLOCK + 8].copy_from_slice(&0x1230_0845u32.to_le_bytes());
    });
    assert_eq!(
        dev.unwrap().rdev(),
        Some(Rdev {
            major: 8,
            minor: 0x12345
        })
    );
}

#[test]
fn damage_is_refused() {
    assert!(parse(|r| r[at::EXTRA_ISIZE] = 33).is_err());
    assert!(parse(|r| r[at::EXTRA_ISIZE] = 132).is_err());
    assert!(parse(|r| r[at::MODE + 1] = 0xF1).is_err());
    assert!(parse(|r| r[at::SIZE_HIGH + 3] = 0xFF).is_err());
    assert!(parse(|r| r[at::FILE_ACL_LO + 3] = 1).is_err());
    assert!(parse(|r| r[at::FLAGS + 3] = 0x10).is_err());
}

#[test]
fn free_slots() {
    let sb = Superblock::parse(&sample()).unwrap();
    let free = Inode::parse(&sb, Ino::new(20), &[0; 256]).unwrap();
    assert!(free.is_free() && free.map_kind() == MapKind::None);
    assert!(!parse(|_| ()).unwrap().is_free());
}

#[test]
fn letters_are_those_of_lsattr() {
    assert_eq!(
        InodeFlags::from_bits(0x0008_1010).letters(),
        "----i------I--e-------"
    );
}
