//! A directory's inode, then its blocks: entries, hash-tree nodes, inline parts.
#![no_main]

use diorite_format::dir::{DirBlock, DirBlockKind, inline_parent};
use diorite_format::dirhash::HashVersion;
use diorite_format::dx::{DxNode, DxRoot};
use diorite_format::{FileBlock, Ino, Inode};
use diorite_fuzz::{byte, take, volume};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut data = data;
    let sb = volume(byte(&mut data));
    let raw = take(&mut data, sb.geometry().inode_size() as usize);
    let Ok(dir) = Inode::parse(&sb, Ino::new(12), &raw) else {
        return;
    };
    let _ = inline_parent(&sb, &dir);
    if let Ok(part) = DirBlock::parse_inline(&sb, &dir, data) {
        assert_eq!(part.kind(), DirBlockKind::Inline);
        covers(&part, data.len());
    }
    for n in 0..4 {
        let raw = take(&mut data, sb.block_size() as usize);
        let block = FileBlock::new(n);
        if let Ok(b) = DirBlock::parse(&sb, &dir, block, &raw) {
            covers(&b, raw.len());
            let _ = b.dots(dir.ino);
            for e in b.entries() {
                assert!(
                    !e.name.is_empty() && e.name.len() <= 255 && sb.check_ino(e.ino.get()).is_ok()
                );
                assert!(b.find(e.name).is_some());
                for v in [
                    HashVersion::Legacy,
                    HashVersion::HalfMd4,
                    HashVersion::TeaUnsigned,
                ] {
                    assert_eq!(v.hash(sb.hash(), e.name).major & 1, 0);
                }
            }
        }
        if let Ok(root) = DxRoot::parse(&sb, &dir, &raw) {
            assert!(root.indirect_levels <= 2);
            node(&root.node, dir.size >> sb.geometry().block_bits());
        }
        if let Ok(inner) = DxNode::parse(&sb, &dir, block, &raw) {
            node(&inner, dir.size >> sb.geometry().block_bits());
        }
    }
});

/// The records are contiguous and cover all `len` bytes.
fn covers(block: &DirBlock<'_>, len: usize) {
    let mut at = 0;
    for e in block.slots() {
        assert_eq!(e.offset, at);
        at += e.rec_len;
    }
    assert_eq!(at as usize, len);
}

fn node(node: &DxNode, blocks: u64) {
    assert!(!node.entries.is_empty() && node.entries.len() <= usize::from(node.limit));
    for e in &node.entries {
        assert!(e.block.get() > 0 && e.block.get() < blocks);
    }
    for hash in [0, 1, 0x8000_0000, u32::MAX] {
        let at = node.find(hash);
        assert!(at < node.entries.len() && node.entries[at].hash <= hash);
        let _ = node.continues(at, hash);
    }
}
