//! An inode, then blocks of its map, read from the root down.
#![no_main]

use diorite_format::extent::ExtentNode;
use diorite_format::indirect::{IndirectPath, PointerBlock, root_pointer};
use diorite_format::inline::InlineData;
use diorite_format::{FileBlock, FsBlock, Ino, Inode, MapKind, Superblock};
use diorite_fuzz::{byte, take, volume};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut data = data;
    let sb = volume(byte(&mut data));
    let raw = take(&mut data, sb.geometry().inode_size() as usize);
    let Ok(inode) = Inode::parse(&sb, Ino::new(12), &raw) else {
        return;
    };
    let _ = (inode.rdev(), inode.flags.letters(), inode.is_free());
    for t in [inode.atime, inode.ctime, inode.mtime] {
        assert!(t.nanos < 1_000_000_000 && t.encode().is_some());
    }
    match inode.map_kind() {
        MapKind::Extents => {
            if let Ok(root) = ExtentNode::parse_root(&sb, &inode) {
                walk(&sb, &inode, &root, &mut data, &mut 0);
            }
        }
        MapKind::Indirect => indirect(&sb, &inode, &mut data),
        MapKind::FastSymlink => {
            if let Ok(target) = inode.fast_symlink() {
                assert_eq!(target.len() as u64, inode.size);
            }
        }
        MapKind::Inline => {
            if let Ok(inline) = InlineData::new(&inode, data) {
                // A regular file may be longer than its inline data; the rest reads as zeros.
                let len = inline.len() as u64;
                assert!(len == inode.size || len < inode.size && inode.is_file());
                let mut out = [0u8; 200];
                assert!(inline.read_at(u64::from(byte(&mut data)), &mut out) <= inline.len());
            }
        }
        MapKind::Device | MapKind::None => {}
    }
});

/// `low` is the end of the extents seen so far: in the whole tree, extents are in ascending order.
fn walk(sb: &Superblock, inode: &Inode, node: &ExtentNode, data: &mut &[u8], low: &mut u64) {
    for e in node.extents() {
        assert!(e.block.get() >= *low && e.len >= 1 && e.len <= 32768);
        assert!(sb.holds(e.start, u64::from(e.len)));
        *low = e.end();
        assert_eq!(node.find_extent(e.block), Some(e));
    }
    for i in node.indexes() {
        assert!(i.block.get() < i.end && sb.holds(i.child, 1));
        assert_eq!(node.find_child(i.block), Some(i));
        if data.is_empty() {
            return;
        }
        let raw = take(data, sb.block_size() as usize);
        let expect = node.expect_child(i);
        if let Ok(child) =
            ExtentNode::parse_block(sb, inode.ino, inode.generation, expect, i.child, &raw)
        {
            assert!(child.depth < node.depth);
            walk(sb, inode, &child, data, low);
        }
    }
}

fn indirect(sb: &Superblock, inode: &Inode, data: &mut &[u8]) {
    for n in [
        0,
        11,
        12,
        300,
        70_000,
        20_000_000,
        u64::from(u32::MAX),
        u64::MAX,
    ] {
        let Ok(path) = IndirectPath::of(sb, inode.ino, FileBlock::new(n)) else {
            continue;
        };
        assert!(path.root < 15 && path.run >= 1 && path.slots().len() <= 3);
        let mut at = root_pointer(sb, inode, path.root);
        for slot in path.slots() {
            let Ok(block) = at else { break };
            assert!(block.is_none() || sb.holds(block, 1));
            let raw = take(data, sb.block_size() as usize);
            at = PointerBlock::new(sb, inode.ino, block, &raw).and_then(|b| b.get(*slot));
        }
        let _ = at.map(|b: FsBlock| assert!(b.is_none() || sb.holds(b, 1)));
    }
}
