//! Attribute blocks made by hand on the sample superblock (no checksums).

use super::*;
use crate::superblock::tests::sample;

fn block() -> Vec<u8> {
    let mut b = vec![0u8; 1024];
    b[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    b[4] = 1;
    b[8] = 1;
    b[32] = 3; // name length
    b[33] = 1; // user.
    b[34..36].copy_from_slice(&1016u16.to_le_bytes());
    b[40] = 5; // value size
    b[48..51].copy_from_slice(b"abc");
    b[1016..1021].copy_from_slice(b"value");
    b
}

fn check(edit: impl Fn(&mut Vec<u8>)) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let sb = Superblock::parse(&sample()).unwrap();
    let mut b = block();
    edit(&mut b);
    let x = Xattrs::parse_block(&sb, Ino::new(12), FsBlock::new(99), &b)?;
    let pair = |e: &XattrEntry<'_>| match e.value {
        XattrValue::Bytes(v) => (e.full_name().unwrap_or_default(), v.to_vec()),
        XattrValue::Inode { .. } => unreachable!(),
    };
    Ok(x.entries.iter().map(pair).collect())
}

#[test]
fn a_block_is_read() {
    assert_eq!(
        check(|_| ()).unwrap(),
        [(b"user.abc".to_vec(), b"value".to_vec())]
    );
    assert!(check(|b| b[32..36].fill(0)).unwrap().is_empty());
}

#[test]
fn each_rule_is_checked() {
    assert!(check(|b| b[0] = 1).is_err(), "magic");
    assert!(check(|b| b[8] = 2).is_err(), "blocks");
    assert!(check(|b| b[40] = 9).is_err(), "value past the end");
    assert!(
        check(|b| b[34..36].copy_from_slice(&52u16.to_le_bytes())).is_err(),
        "value over the list"
    );
    assert!(check(|b| b[49] = 0).is_err(), "NUL");
    assert!(
        check(|b| b[36] = 13).is_err(),
        "ea_inode without the feature"
    );
    assert!(check(|b| b[52..].fill(0xFF)).is_err(), "no end");
    assert!(check(|b| b.truncate(1023)).is_err(), "short");
}

#[test]
fn names_split_and_join() {
    assert_eq!(
        NameIndex::split(b"user.a.b"),
        Some((NameIndex::USER, b"a.b".as_slice()))
    );
    assert_eq!(
        NameIndex::split(b"system.posix_acl_access"),
        Some((NameIndex::ACL_ACCESS, b"".as_slice()))
    );
    assert_eq!(
        NameIndex::split(b"system.data"),
        Some((NameIndex::SYSTEM, b"data".as_slice()))
    );
    assert_eq!(NameIndex::split(b"user."), None);
    assert_eq!(NameIndex::split(b"other.a"), None);
}

#[test]
fn hostile_names_never_panic() {
    let sb = Superblock::parse(&sample()).unwrap();
    for at in 32..64 {
        for v in 0..=255u8 {
            let mut b = block();
            b[at] = v;
            let _ = Xattrs::parse_block(&sb, Ino::new(12), FsBlock::new(99), &b);
        }
    }
}
