//! Every byte of every structure damaged in turn: with metadata_csum each is refused, or proven not to be covered; without
//! checksums nothing panics.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Image, MANY, Volume};
use diorite_format::dir::DirBlock;
use diorite_format::dx::DxRoot;
use diorite_format::extent::ExtentNode;
use diorite_format::journal::JournalSuper;
use diorite_format::superblock::JournalPlace;
use diorite_format::xattr::Xattrs;
use diorite_format::{FileBlock, GroupDesc, GroupNo, Inode, Superblock, orphan};

/// Calls `accepts` with each byte damaged in three ways; `may_pass` says where damage may pass.
fn sweep(
    what: &str,
    bytes: &[u8],
    may_pass: impl Fn(usize, u8) -> bool,
    accepts: impl Fn(&[u8]) -> bool,
) {
    assert!(accepts(bytes), "{what}: undamaged");
    for at in 0..bytes.len() {
        for flip in [0x01u8, 0x80, 0xFF] {
            let mut damaged = bytes.to_vec();
            damaged[at] ^= flip;
            let ok = accepts(&damaged);
            assert!(
                !ok || may_pass(at, flip),
                "{what}: byte {at:#x} ^ {flip:#x} was accepted"
            );
        }
        let _ = accepts(&bytes[..at]);
    }
}

fn covered(_: usize, _: u8) -> bool {
    false
}

fn anywhere(_: usize, _: u8) -> bool {
    true
}

fn superblock(v: &Volume, may_pass: fn(usize, u8) -> bool) {
    sweep("superblock", &v.bytes(1024, 1024), may_pass, |b| {
        let Ok(raw) = <[u8; 1024]>::try_from(b) else {
            return false;
        };
        let Ok(sb) = Superblock::parse(&raw) else {
            return false;
        };
        let _ = sb.features().check(diorite_format::Access::Write);
        let _ = sb.gdt_location(sb.geometry().gdt_blocks().saturating_sub(1));
        true
    });
}

fn groups(v: &Volume, may_pass: fn(usize, u8) -> bool) {
    for n in [0, v.sb.group_count() - 1].map(GroupNo::new) {
        sweep("descriptor", &v.raw_desc(n), may_pass, |b| {
            GroupDesc::parse(&v.sb, n, b).is_ok()
        });
    }
}

fn bitmaps(v: &Volume) {
    let g = &v.groups[0];
    let blocks = v.sb.geometry().clusters_per_group() as usize / 8;
    let inodes = v.sb.geometry().inodes_per_group() as usize / 8;
    sweep(
        "block bitmap",
        &v.block(g.block_bitmap),
        |at, _| at >= blocks,
        |b| g.verify_block_bitmap(&v.sb, b).is_ok(),
    );
    sweep(
        "inode bitmap",
        &v.block(g.inode_bitmap),
        |at, _| at >= inodes,
        |b| g.verify_inode_bitmap(&v.sb, b).is_ok(),
    );
}

fn inodes(v: &Volume, may_pass: fn(usize, u8) -> bool) {
    for name in ["", "hello.txt", "big", "many", "link", "blk"] {
        let ino = v.lookup(name).ino;
        sweep("inode", &v.raw_inode(ino), may_pass, |b| {
            let Ok(inode) = Inode::parse(&v.sb, ino, b) else {
                return false;
            };
            let _ = (
                inode.map_kind(),
                inode.rdev(),
                inode.fast_symlink(),
                inode.flags.letters(),
            );
            let _ = ExtentNode::parse_root(&v.sb, &inode);
            let _ = Xattrs::parse_inode(&v.sb, &inode, b);
            true
        });
    }
}

fn extent_block(v: &Volume, may_pass: fn(usize, u8) -> bool) {
    let frag = v.lookup("frag");
    let root = ExtentNode::parse_root(&v.sb, &frag).unwrap();
    let index = root.indexes()[0];
    // After the checksum, a node of 4 KiB or less has at most 8 unused bytes.
    let end = 12 + usize::from((v.sb.block_size() as u16 - 12) / 12) * 12 + 4;
    sweep(
        "extent block",
        &v.block(index.child),
        |at, f| at >= end || may_pass(at, f),
        |b| {
            ExtentNode::parse_block(
                &v.sb,
                frag.ino,
                frag.generation,
                root.expect_child(&index),
                index.child,
                b,
            )
            .is_ok()
        },
    );
}

fn directories(v: &Volume, may_pass: fn(usize, u8) -> bool) {
    let many = v.lookup("many");
    let map = v.map(&many);
    let raw = v.block(map[0].1);
    let count = usize::from(u16::from_le_bytes([raw[0x22], raw[0x23]]));
    let limit = usize::from(u16::from_le_bytes([raw[0x20], raw[0x21]]));
    let gap = 0x20 + count * 8..0x20 + limit * 8;
    sweep(
        "hash root",
        &raw,
        |at, f| gap.contains(&at) || may_pass(at, f),
        |b| DxRoot::parse(&v.sb, &many, b).is_ok(),
    );
    let raw = v.block(map[1].1);
    sweep("leaf", &raw, may_pass, |b| {
        let Ok(block) = DirBlock::parse(&v.sb, &many, FileBlock::new(1), b) else {
            return false;
        };
        block.slots().count() > 0
    });
}

fn attribute_block(v: &Volume, may_pass: fn(usize, u8) -> bool) {
    let big = v.lookup("big");
    let raw = v.block(big.file_acl);
    sweep("attributes", &raw, may_pass, |b| {
        Xattrs::parse_block(&v.sb, big.ino, big.file_acl, b).is_ok()
    });
}

fn journal(v: &Volume) {
    let JournalPlace::Internal(ino) = v.sb.journal() else {
        panic!("no journal")
    };
    let inode = v.inode(ino);
    let raw = v.block(v.map(&inode)[0].1);
    let blocks = inode.size / u64::from(v.sb.block_size());
    let has_sum = raw[0x2B] & 0x18 != 0;
    sweep(
        "journal",
        &raw[..1024],
        |_, _| !has_sum,
        |b| JournalSuper::parse(b, v.sb.block_size(), blocks).is_ok(),
    );
}

fn orphans(v: &Volume) {
    let inode = v.inode(v.sb.orphan_file().unwrap());
    let (_, block) = v.map(&inode)[0];
    sweep("orphans", &v.block(block), covered, |b| {
        orphan::parse_block(&v.sb, &inode, block, b).is_ok()
    });
}

/// Clearing the metadata_csum bit itself disables the checks: the only damage to a superblock that can pass.
fn only_the_switch(at: usize, flip: u8) -> bool {
    at == 0x65 && flip & 0x04 != 0
}

#[test]
fn with_checksums_damage_is_refused() {
    for args in [
        [
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "metadata_csum_seed,orphan_file",
        ],
        ["-t", "ext4", "-b", "2048", "-O", "^64bit,orphan_file"],
    ] {
        let Some(image) = Image::make(&args, "32M", MANY) else {
            return;
        };
        let v = Volume::open(&image.path);
        superblock(&v, only_the_switch);
        // A 32-byte descriptor has only 16 bits of each bitmap's checksum, but its own checksum covers every bit of it.
        groups(&v, covered);
        bitmaps(&v);
        inodes(&v, covered);
        extent_block(&v, covered);
        directories(&v, covered);
        attribute_block(&v, covered);
        journal(&v);
        orphans(&v);
    }
}

#[test]
fn without_checksums_damage_never_panics() {
    let Some(image) = Image::make(
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"],
        "24M",
        MANY,
    ) else {
        return;
    };
    let v = Volume::open(&image.path);
    superblock(&v, anywhere);
    groups(&v, anywhere);
    inodes(&v, anywhere);
    extent_block(&v, anywhere);
    directories(&v, anywhere);
    attribute_block(&v, anywhere);
}
