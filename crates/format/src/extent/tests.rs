//! Nodes made by hand, each breaking one rule.

use super::*;
use crate::layout::{inode as at, sb as sb_at};
use crate::superblock::tests::sample;

/// The sample grown to 20 groups, so that an extent of full length fits.
fn volume() -> Superblock {
    let mut b = sample();
    b[sb_at::BLOCKS_COUNT_LO + 2] = 2;
    b[sb_at::INODES_COUNT + 1] = 0xA0;
    Superblock::parse(&b).unwrap()
}

type Raw = (u32, u16, u16, u32);

fn node(depth: u16, max: u16, list: &[Raw], size: usize) -> Vec<u8> {
    let mut b = vec![0u8; size];
    let head = [MAGIC, list.len() as u16, max, depth];
    for (n, word) in head.iter().enumerate() {
        b[n * 2..n * 2 + 2].copy_from_slice(&word.to_le_bytes());
    }
    for (n, (block, mid, hi, lo)) in list.iter().enumerate() {
        let e = &mut b[slot(n)..slot(n + 1)];
        e[0..4].copy_from_slice(&block.to_le_bytes());
        if depth == 0 {
            e[4..6].copy_from_slice(&mid.to_le_bytes());
            e[6..8].copy_from_slice(&hi.to_le_bytes());
            e[8..12].copy_from_slice(&lo.to_le_bytes());
        } else {
            e[4..8].copy_from_slice(&lo.to_le_bytes());
            e[8..10].copy_from_slice(&hi.to_le_bytes());
        }
    }
    b
}

fn root(raw: &[u8]) -> Result<ExtentNode> {
    let sb = volume();
    let mut b = [0u8; 256];
    b[at::MODE + 1] = 0x81;
    b[at::LINKS_COUNT] = 1;
    b[at::FLAGS + 2] = 0x08;
    b[at::BLOCK..at::BLOCK + 60].copy_from_slice(raw);
    ExtentNode::parse_root(&sb, &Inode::parse(&sb, Ino::new(12), &b)?)
}

fn child(depth: u16, first: u64, end: u64, raw: &[u8]) -> Result<ExtentNode> {
    let sb = volume();
    let expect = Expect {
        depth,
        first: FileBlock::new(first),
        end,
    };
    ExtentNode::parse_block(&sb, Ino::new(12), 0, expect, FsBlock::new(99), raw)
}

#[test]
fn a_leaf_is_read() {
    let n = root(&node(
        0,
        4,
        &[(0, 5, 0, 100), (10, 32768, 0, 0x40), (40000, 32769, 0, 300)],
        60,
    ))
    .unwrap();
    let e = n.extents();
    assert_eq!((e.len(), e[1].len, e[1].unwritten), (3, 32768, false));
    assert_eq!((e[2].len, e[2].unwritten, e[2].end()), (1, true, 40001));
    assert_eq!(n.find_extent(FileBlock::new(7)).unwrap().block.get(), 10);
    assert_eq!(n.find_extent(FileBlock::new(12)).unwrap().block.get(), 10);
    assert!(n.find_extent(FileBlock::new(40001)).is_none());
}

#[test]
fn an_index_splits_its_range() {
    let n = root(&node(1, 4, &[(0, 0, 0, 100), (50, 0, 0, 101)], 60)).unwrap();
    let i = n.indexes();
    assert_eq!((i[0].end, i[1].end), (50, END));
    assert_eq!(
        n.expect_child(&i[0]),
        Expect {
            depth: 0,
            first: FileBlock::new(0),
            end: 50
        }
    );
    assert_eq!(n.find_child(FileBlock::new(49)).unwrap().child.get(), 100);
    assert!(child(0, 0, 50, &node(0, 84, &[(49, 1, 0, 200)], 1024)).is_ok());
    assert!(child(0, 0, 50, &node(0, 84, &[(49, 2, 0, 200)], 1024)).is_err());
    assert!(child(0, 10, 50, &node(0, 84, &[(9, 1, 0, 200)], 1024)).is_err());
}

#[test]
fn each_rule_is_checked() {
    assert!(root(&node(0, 5, &[(0, 1, 0, 100)], 60)).is_err(), "room");
    assert!(root(&node(0, 0, &[], 60)).is_err(), "no room");
    assert!(root(&node(6, 4, &[(0, 0, 0, 100)], 60)).is_err(), "depth");
    assert!(root(&node(1, 4, &[], 60)).is_err(), "empty index");
    assert!(root(&node(0, 4, &[(0, 0, 0, 100)], 60)).is_err(), "length");
    assert!(
        root(&node(0, 4, &[(0, 2, 0, 100), (1, 1, 0, 200)], 60)).is_err(),
        "overlap"
    );
    assert!(
        root(&node(0, 4, &[(9, 1, 0, 100), (1, 1, 0, 200)], 60)).is_err(),
        "order"
    );
    assert!(root(&node(0, 4, &[(0, 1, 1, 0)], 60)).is_err(), "volume");
    assert!(
        root(&node(0, 4, &[(0, 1, 0, 1)], 60)).is_err(),
        "superblock"
    );
    assert!(
        root(&node(0, 4, &[(u32::MAX, 1, 0, 100)], 60)).is_err(),
        "end"
    );
    assert!(
        child(1, 0, END, &node(0, 84, &[], 1024)).is_err(),
        "depth mismatch"
    );
    assert!(
        child(0, 0, END, &node(0, 85, &[], 1024)).is_err(),
        "room in block"
    );
    assert!(child(0, 0, END, &[0; 10]).is_err(), "short");
    let mut wrong = node(0, 4, &[(0, 1, 0, 100)], 60);
    wrong[2] = 5;
    assert!(root(&wrong).is_err(), "entries");
}

fn leaf(list: &[(u64, u32, u64, bool)]) -> ExtentNode {
    let extents = list.iter().map(|(block, len, start, unwritten)| Extent {
        block: FileBlock::new(*block),
        len: *len,
        start: FsBlock::new(*start),
        unwritten: *unwritten,
    });
    ExtentNode {
        depth: 0,
        max: ROOT_CAPACITY,
        entries: Entries::Leaf(extents.collect()),
    }
}

#[test]
fn what_is_written_is_read_back() {
    let tree = leaf(&[
        (0, 32768, 100, false),
        (40000, 32767, 0x40, true),
        (90000, 1, 9, false),
    ]);
    let mut i_block = [0xAAu8; 60];
    tree.write_root(&mut i_block).unwrap();
    assert_eq!(root(&i_block).unwrap(), tree);
    assert_eq!(
        (&i_block[8..12], &i_block[48..]),
        ([0xAA; 4].as_slice(), [0xAA; 12].as_slice())
    );
    ExtentNode::empty_root().write_root(&mut i_block).unwrap();
    assert_eq!(root(&i_block).unwrap(), ExtentNode::empty_root());

    let sb = volume();
    assert_eq!(block_capacity(&sb), 84);
    let index = |n: u64, end: u64| ExtentIndex {
        block: FileBlock::new(n * 10),
        end,
        child: FsBlock::new(100 + n),
    };
    let list: Vec<ExtentIndex> = (0..84)
        .map(|n| index(n, if n == 83 { 900 } else { n * 10 + 10 }))
        .collect();
    let tree = ExtentNode {
        depth: 2,
        max: 84,
        entries: Entries::Index(list),
    };
    let mut raw = vec![0u8; 1024];
    tree.write_block(&sb, Ino::new(12), 0, &mut raw).unwrap();
    assert_eq!(child(2, 0, 900, &raw).unwrap(), tree);
}

#[test]
fn what_the_parser_would_refuse_is_not_written() {
    let refused = |node: ExtentNode| {
        let mut i_block = [7u8; 60];
        assert!(node.write_root(&mut i_block).is_err());
        assert_eq!(i_block, [7; 60]);
    };
    refused(leaf(&[(0, 0, 100, false)]));
    refused(leaf(&[(0, 32769, 100, false)]));
    refused(leaf(&[(0, 32768, 100, true)]));
    refused(leaf(&[(0xFFFF_FFFE, 2, 100, true)]));
    refused(leaf(&[(0, 2, (1 << 48) - 1, false)]));
    refused(leaf(&[(0, 2, 100, false), (1, 1, 200, false)]));
    refused(leaf(&[(0, 1, 100, false); 5]));
    let mut deep = leaf(&[(0, 1, 100, false)]);
    deep.depth = 1;
    refused(deep);
    let mut empty = ExtentNode::empty_root();
    (empty.depth, empty.entries) = (1, Entries::Index(Vec::new()));
    refused(empty);
    let mut roomy = ExtentNode::empty_root();
    roomy.max = 5;
    refused(roomy);
}
