//! Hash-tree nodes made by hand on the sample superblock (no checksums).

use super::*;
use crate::layout::inode as at;
use crate::superblock::tests::sample;
use crate::types::Ino;

fn dir(sb: &Superblock) -> Inode {
    let mut raw = [0u8; 256];
    raw[at::MODE + 1] = 0x41;
    raw[at::LINKS_COUNT] = 2;
    raw[at::SIZE_LO + 1] = 0x28; // ten blocks
    Inode::parse(sb, Ino::new(2), &raw).unwrap()
}

fn root(count: u16, hashes: &[u32]) -> Vec<u8> {
    let mut b = vec![0u8; 1024];
    b[4] = 12;
    b[16..18].copy_from_slice(&1012u16.to_le_bytes());
    b[0x1C] = 1;
    b[0x1D] = 8;
    b[0x20..0x22].copy_from_slice(&124u16.to_le_bytes());
    b[0x24] = 1;
    for (n, hash) in hashes.iter().enumerate() {
        b[0x28 + n * 8..0x2C + n * 8].copy_from_slice(&hash.to_le_bytes());
        b[0x2C + n * 8] = n as u8 + 2;
    }
    b[0x22..0x24].copy_from_slice(&count.to_le_bytes());
    b
}

#[test]
fn a_root_is_read_and_searched() {
    let sb = Superblock::parse(&sample()).unwrap();
    let d = dir(&sb);
    let r = DxRoot::parse(&sb, &d, &root(4, &[0x10, 0x20, 0x21])).unwrap();
    assert_eq!(
        (r.hash, r.indirect_levels, r.node.entries.len()),
        (HashVersion::HalfMd4, 0, 4)
    );
    assert_eq!(
        [0, 0xF, 0x10, 0x20, 0x22, u32::MAX].map(|h| r.node.find(h)),
        [0, 0, 1, 2, 3, 3]
    );
    assert!(r.node.continues(2, 0x20) && !r.node.continues(1, 0x10) && !r.node.continues(3, 0x20));
}

#[test]
fn each_rule_is_checked() {
    let sb = Superblock::parse(&sample()).unwrap();
    let d = dir(&sb);
    let bad = |edit: &dyn Fn(&mut Vec<u8>)| {
        let mut b = root(3, &[0x10, 0x20]);
        edit(&mut b);
        DxRoot::parse(&sb, &d, &b).is_err()
    };
    assert!(!bad(&|_| ()));
    assert!(bad(&|b| b[0x1E] = 2), "depth");
    assert!(bad(&|b| b[0x1C] = 9), "hash");
    assert!(bad(&|b| b[0x18] = 1), "reserved");
    assert!(bad(&|b| b[0x22] = 0), "no entries");
    assert!(bad(&|b| b[0x22] = 200), "too many");
    assert!(bad(&|b| b[0x20] = 125), "limit");
    assert!(bad(&|b| b[0x24] = 0), "points to the root");
    assert!(bad(&|b| b[0x24] = 10), "points outside");
    assert!(bad(&|b| b[0x30] = 0x05), "order");
}

#[test]
fn sealed_nodes_are_read() {
    let mut b = sample();
    let word = crate::layout::sb::FEATURE_RO_COMPAT;
    (b[word + 1], b[crate::layout::sb::CHECKSUM_TYPE]) = (4, 1);
    crate::superblock::SuperblockEdit::new(&mut b).seal();
    let sb = Superblock::parse(&b).unwrap();
    let mut raw = [0u8; 256];
    (
        raw[at::MODE + 1],
        raw[at::LINKS_COUNT],
        raw[at::SIZE_LO + 1],
    ) = (0x41, 2, 0x28);
    crate::inode::seal(&sb, Ino::new(2), &mut raw);
    let d = Inode::parse(&sb, Ino::new(2), &raw).unwrap();
    let mut r = root(3, &[0x10, 0x20]);
    assert!(
        seal(&sb, &d, FileBlock::new(0), &mut r).is_err(),
        "no room for the sum"
    );
    r[0x20] = 123;
    assert!(DxRoot::parse(&sb, &d, &r).is_err());
    seal(&sb, &d, FileBlock::new(0), &mut r).unwrap();
    assert_eq!(DxRoot::parse(&sb, &d, &r).unwrap().node.entries.len(), 3);
    assert!(!looks_like_node(&sb, &r));
    r[0x30] ^= 1;
    assert!(DxRoot::parse(&sb, &d, &r).is_err());
    assert!(seal(&sb, &d, FileBlock::new(0), &mut r[..1023]).is_err());
    let mut node = vec![0u8; 1024];
    node[4..6].copy_from_slice(&1024u16.to_le_bytes());
    (node[8], node[10], node[12]) = (126, 1, 5);
    assert!(looks_like_node(&sb, &node));
    seal(&sb, &d, FileBlock::new(3), &mut node).unwrap();
    let n = DxNode::parse(&sb, &d, FileBlock::new(3), &node).unwrap();
    assert_eq!(n.entries[0].block.get(), 5);
}
