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

#[test]
fn what_is_written_is_read_back() {
    let sb = Superblock::parse(&sample()).unwrap();
    let mut raw = [0u8; 256];
    raw[at::MODE..at::MODE + 2].copy_from_slice(&0o100644u16.to_le_bytes());
    raw[at::LINKS_COUNT] = 1;
    raw[at::EXTRA_ISIZE] = 32;
    raw[at::OBSO_FADDR] = 0x77;
    raw[at::RESERVED] = 0x78;
    raw[200] = 0x79;
    let mut i = Inode::parse(&sb, Ino::new(12), &raw).unwrap();
    let time = |n: i64| Timestamp {
        secs: 0x1_0000_0000 + n,
        nanos: 123_456_789,
    };
    (i.mode, i.uid, i.gid, i.size) = (0o100755, 0x12_3456, 0x65_4321, 0x1_2345_6789);
    (i.atime, i.ctime, i.mtime, i.crtime) = (time(1), time(2), time(3), Some(time(4)));
    (i.dtime, i.links, i.blocks, i.generation) = (9, 3, 88, 0xABCD_EF01);
    (i.version, i.file_acl, i.projid) = (0x1_0000_0002, FsBlock::new(500), 7);
    i.flags = InodeFlags::from_bits(0x8_0080);
    i.i_block = [0x5A; 60];
    i.write(&sb, &mut raw).unwrap();
    let mut again = Inode::parse(&sb, Ino::new(12), &raw).unwrap();
    assert_eq!(
        again.csum_seed,
        csum::inode_seed(sb.csum_seed(), i.ino, i.generation)
    );
    again.csum_seed = i.csum_seed;
    assert_eq!(again, i);
    assert_eq!(
        (raw[at::OBSO_FADDR], raw[at::RESERVED], raw[200]),
        (0x77, 0x78, 0x79)
    );
    i.write_new(&sb, &mut raw).unwrap();
    assert_eq!(
        (raw[at::OBSO_FADDR], raw[at::RESERVED], raw[200]),
        (0, 0, 0)
    );
}

#[test]
fn what_does_not_fit_is_not_written() {
    let sb = Superblock::parse(&sample()).unwrap();
    let refused = |edit: &dyn Fn(&mut Inode)| {
        let mut i = parse(|_| ()).unwrap();
        edit(&mut i);
        let mut raw = [7u8; 256];
        assert!(i.write(&sb, &mut raw).is_err() && i.write_new(&sb, &mut raw).is_err());
        assert_eq!(raw, [7; 256]);
    };
    refused(&|i| i.size = u64::MAX);
    refused(&|i| (i.mode, i.size) = (0o040755, 1 << 32));
    refused(&|i| i.blocks = 1 << 32);
    refused(&|i| i.file_acl = FsBlock::new(1 << 32));
    refused(&|i| i.extra_isize = 132);
    refused(&|i| i.extra_isize = 30);
    refused(&|i| (i.extra_isize, i.projid) = (28, 1));
    assert!(parse(|_| ()).unwrap().write(&sb, &mut [0; 255]).is_err());
}

#[test]
fn huge_files_count_blocks() {
    let mut b = sample();
    b[crate::layout::sb::FEATURE_RO_COMPAT] |= 8;
    let sb = Superblock::parse(&b).unwrap();
    let mut i = parse(|_| ()).unwrap();
    let mut stored = |blocks: u64, flag: bool| {
        i.blocks = blocks;
        i.flags = InodeFlags::from_bits(if flag { 0x4_0000 } else { 0 });
        let mut raw = [0u8; 256];
        i.write(&sb, &mut raw).ok()?;
        let again = Inode::parse(&sb, i.ino, &raw).unwrap();
        assert_eq!(again.blocks, blocks);
        Some((
            le32(&raw, at::BLOCKS_LO),
            le16(&raw, at::BLOCKS_HIGH),
            again.flags.bits(),
        ))
    };
    assert_eq!(stored(10, false), Some((10, 0, 0)));
    assert_eq!(stored(1 << 32, false), Some((0, 1, 0)));
    assert_eq!(stored(10, true), Some((5, 0, 0x4_0000)));
    assert_eq!(stored(11, true), Some((11, 0, 0)));
    assert_eq!(stored(1 << 48, false), Some((0, 0x8000, 0x4_0000)));
    assert_eq!(stored((1 << 48) + 1, false), None);
    assert_eq!(stored(1 << 49, false), None);
}

#[test]
fn new_inodes_parse_as_made() {
    let mut b = sample();
    let features = crate::layout::sb::FEATURE_RO_COMPAT;
    b[features..features + 2].copy_from_slice(&0x441u16.to_le_bytes());
    b[crate::layout::sb::WANT_EXTRA_ISIZE] = 36;
    b[crate::layout::sb::CHECKSUM_TYPE] = 1;
    let sum = csum::crc32c(csum::SEED, &b[..1020]);
    b[1020..].copy_from_slice(&sum.to_le_bytes());
    let sb = Superblock::parse(&b).unwrap();
    let new = |mode: u16| {
        Inode::fresh(
            &sb,
            &NewInode {
                ino: Ino::new(15),
                mode,
                uid: 1,
                gid: 2,
                projid: 3,
                flags: InodeFlags::NOATIME,
                generation: 0x1234_5678,
                time: Timestamp { secs: 99, nanos: 1 },
            },
        )
    };
    let back = |i: &Inode| {
        let mut raw = [9u8; 256];
        i.write_new(&sb, &mut raw).unwrap();
        let again = Inode::parse(&sb, i.ino, &raw).unwrap();
        assert_eq!(&again, i);
        again
    };
    let file = back(&new(0o100600));
    assert_eq!(
        (file.extra_isize, file.links, file.map_kind()),
        (36, 1, MapKind::Extents)
    );
    assert_eq!(
        crate::extent::ExtentNode::parse_root(&sb, &file)
            .unwrap()
            .extents(),
        []
    );
    assert_eq!(back(&new(0o040700)).links, 2);
    let mut link = new(0o120777);
    assert!(!link.set_fast_symlink(&[b'x'; 60]) && link.set_fast_symlink(b"target"));
    assert_eq!(back(&link).fast_symlink().unwrap(), b"target");
    for (major, minor) in [(8, 1), (0, 0), (255, 256), (0xFFF, 0xF_FFFF), (259, 3)] {
        let mut device = new(0o060600);
        let rdev = Rdev { major, minor };
        device.i_block = rdev.encode();
        assert_eq!(back(&device).rdev(), Some(rdev));
    }
}
