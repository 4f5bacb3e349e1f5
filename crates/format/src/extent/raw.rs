//! Reads and changes single entries of a node in place.
//! Input: the bytes of a node that [`ExtentNode`](super::ExtentNode) accepted before, in its block or in `i_block`. Output:
//! entries found by binary search; some entries replaced. Invariant: the work grows with the entries moved, not with those in
//! the node; a refused change changes nothing. Limit: the caller keeps the order of the entries and updates the checksum: see
//! [`super::seal_block`].

use crate::layout::{eh, ei};
use crate::le::{le16, le32, put, put_le16, put_le32};
use crate::num;
use crate::superblock::Superblock;
use crate::types::FsBlock;

use super::encode::{block_capacity, encode_extent, encode_index};
use super::{Extent, ExtentIndex, MAGIC, decode_extent, slot};

/// The number of used entries.
#[must_use]
pub fn count(node: &[u8]) -> usize {
    num::usize16(le16(node, eh::ENTRIES))
}

/// The maximum number of entries.
#[must_use]
pub fn room(node: &[u8]) -> usize {
    num::usize16(le16(node, eh::MAX))
}

/// Levels below the node.
#[must_use]
pub fn depth(node: &[u8]) -> u16 {
    le16(node, eh::DEPTH)
}

/// Extent `n` of a leaf.
#[must_use]
pub fn extent(leaf: &[u8], n: usize) -> Option<Extent> {
    let bytes = leaf.get(slot(n)..slot(n.saturating_add(1)))?;
    (n < count(leaf)).then(|| decode_extent(bytes))
}

/// How many entries begin at or before `block`.
#[must_use]
pub fn up_to(node: &[u8], block: u32) -> usize {
    let (mut low, mut high) = (0, count(node));
    while low < high {
        let middle = low.saturating_add(high) / 2;
        if le32(node, slot(middle)) <= block {
            low = middle.saturating_add(1);
        } else {
            high = middle;
        }
    }
    low
}

/// The child of an index node that covers `block`; none if `block` is before the first entry.
#[must_use]
pub fn child(node: &[u8], block: u32) -> Option<FsBlock> {
    let n = up_to(node, block).checked_sub(1)?;
    let entry = node.get(slot(n)..slot(n.saturating_add(1)))?;
    let high = u32::from(le16(entry, ei::LEAF_HI));
    Some(FsBlock::new(num::join(high, le32(entry, ei::LEAF_LO))))
}

/// The first block of the entry after those that begin at or before `block`, if there is one.
#[must_use]
pub fn next_key(node: &[u8], block: u32) -> Option<u32> {
    let n = up_to(node, block);
    (n < count(node)).then(|| le32(node, slot(n)))
}

/// Makes the entry of an index node for the child at `old` one for the child at `new`. Returns false, with nothing changed, if
/// there is no such entry.
#[must_use]
pub fn set_child(node: &mut [u8], old: FsBlock, new: FsBlock) -> bool {
    let child = |n: usize| {
        let entry = node.get(slot(n)..slot(n.saturating_add(1)))?;
        let high = u32::from(le16(entry, ei::LEAF_HI));
        Some(FsBlock::new(num::join(high, le32(entry, ei::LEAF_LO))))
    };
    let Some(n) = (0..count(node)).find(|n| child(*n) == Some(old)) else {
        return false;
    };
    let (high, low) = num::split(new.get());
    put_le32(node, slot(n).saturating_add(ei::LEAF_LO), low);
    put_le16(node, slot(n).saturating_add(ei::LEAF_HI), num::low16(high));
    true
}

/// Replaces extents `from..to` of a leaf by `new`. Returns false, with nothing changed, if there is no room for them.
#[must_use]
pub fn splice(leaf: &mut [u8], from: usize, to: usize, new: &[Extent]) -> bool {
    if !make_room(leaf, from, to, new.len()) {
        return false;
    }
    for (n, one) in new.iter().enumerate() {
        put(leaf, slot(from.saturating_add(n)), &encode_extent(one));
    }
    true
}

/// Inserts the entry of a child at position `n` of an index node. Returns false, with nothing changed, if there is no room.
#[must_use]
pub fn insert_child(node: &mut [u8], n: usize, entry: &ExtentIndex) -> bool {
    let fits = make_room(node, n, n, 1);
    if fits {
        put(node, slot(n), &encode_index(entry));
    }
    fits
}

/// Makes a zeroed block a leaf with the extents `from..` of another leaf. Returns false, with nothing changed, if there are
/// none or no room for them.
#[must_use]
pub fn copy_upper(leaf: &[u8], from: usize, into: &mut [u8], sb: &Superblock) -> bool {
    let upper = count(leaf).saturating_sub(from);
    let (end, max) = (slot(from.saturating_add(upper)), block_capacity(sb));
    let Some(entries) = leaf.get(slot(from)..end) else {
        return false;
    };
    if upper == 0 || upper > num::usize16(max) || slot(upper) > into.len() {
        return false;
    }
    put(into, slot(0), entries);
    put_le16(into, eh::MAGIC, MAGIC);
    put_le16(into, eh::ENTRIES, u16::try_from(upper).unwrap_or(u16::MAX));
    put_le16(into, eh::MAX, max);
    true
}

/// Resizes the entries `from..to` of a node to `new` entries, whose bytes the caller writes. Returns false, with nothing
/// changed, if there is no room.
fn make_room(node: &mut [u8], from: usize, to: usize, new: usize) -> bool {
    let before = count(node);
    let after = before
        .saturating_sub(to.saturating_sub(from))
        .saturating_add(new);
    let fits = from <= to && to <= before && after <= room(node);
    if !fits || slot(before.max(after)) > node.len() {
        return false;
    }
    node.copy_within(slot(to)..slot(before), slot(from.saturating_add(new)));
    put_le16(node, eh::ENTRIES, u16::try_from(after).unwrap_or(u16::MAX));
    true
}

#[cfg(test)]
mod tests {
    use super::super::{Entries, ExtentNode, ROOT_CAPACITY};
    use super::*;
    use crate::superblock::tests::sample;
    use crate::types::FileBlock;

    fn one(block: u64, len: u32) -> Extent {
        Extent {
            block: FileBlock::new(block),
            len,
            start: FsBlock::new(1000 + block),
            unwritten: block % 2 == 1,
        }
    }

    fn root(list: &[Extent]) -> [u8; 60] {
        let mut raw = [0; 60];
        let node = ExtentNode {
            depth: 0,
            max: ROOT_CAPACITY,
            entries: Entries::Leaf(list.to_vec()),
        };
        node.write_root(&mut raw).unwrap();
        raw
    }

    #[test]
    fn entries_are_found_and_replaced_as_in_a_list() {
        let all = [one(2, 3), one(7, 1), one(20, 4)];
        let raw = root(&all);
        assert_eq!((count(&raw), depth(&raw)), (3, 0));
        for block in 0..30 {
            let expect = all.iter().filter(|e| e.block.get() <= block).count();
            assert_eq!(up_to(&raw, block as u32), expect);
        }
        for from in 0..=3 {
            for to in from..=3 {
                for new in [&[][..], &[one(9, 2)], &[one(9, 2), one(12, 1)]] {
                    let mut list = all.to_vec();
                    list.splice(from..to, new.iter().copied());
                    let mut spliced = raw;
                    let done = splice(&mut spliced, from, to, new);
                    assert_eq!(done, list.len() <= 4);
                    let found: Vec<Extent> = (0..4).map_while(|n| extent(&spliced, n)).collect();
                    assert_eq!(found, if done { list } else { all.to_vec() });
                }
            }
        }
        let mut short = raw;
        assert!(!splice(&mut short, 3, 4, &[]));
    }

    #[test]
    fn a_leaf_is_halved_and_its_halves_are_named() {
        let sb = Superblock::parse(&sample()).unwrap();
        let all = [one(2, 3), one(7, 1), one(20, 4)];
        let leaf = root(&all);
        let mut upper = vec![0; num::usize32(sb.block_size())];
        assert!(copy_upper(&leaf, 1, &mut upper, &sb));
        assert_eq!((count(&upper), depth(&upper)), (2, 0));
        assert_eq!(room(&upper), usize::from(block_capacity(&sb)));
        let found: Vec<Extent> = (0..3).map_while(|n| extent(&upper, n)).collect();
        assert_eq!(found, all[1..]);
        assert!(
            !copy_upper(&leaf, 3, &mut [0; 1024], &sb),
            "nothing to copy"
        );
        assert!(!copy_upper(&leaf, 0, &mut [0; 40], &sb), "no room");

        let entry = |block: u64, child: u64| ExtentIndex {
            block: FileBlock::new(block),
            end: 0,
            child: FsBlock::new(child),
        };
        let mut above = [0; 60];
        put_le16(&mut above, eh::MAX, ROOT_CAPACITY);
        for (n, (block, at)) in [(0, 1 << 33), (90, 12), (40, 11), (7, 13)]
            .into_iter()
            .enumerate()
        {
            let place = up_to(&above, block);
            assert!(insert_child(&mut above, place, &entry(block.into(), at)));
            assert_eq!(count(&above), n + 1);
        }
        for (block, at) in [(0, 1 << 33), (6, 1 << 33), (7, 13), (89, 11), (90, 12)] {
            assert_eq!(child(&above, block), Some(FsBlock::new(at)));
        }
        let full = above;
        assert!(!insert_child(&mut above, 2, &entry(8, 14)));
        assert_eq!(above, full);
    }
}
