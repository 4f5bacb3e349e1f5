//! One entry of a node, read and changed where it lies.
//! Input: the bytes of a node that [`ExtentNode`](super::ExtentNode) accepted before, in its block or in `i_block`. Output: entries found by
//! binary search; a few of them replaced. Invariant: work grows with the entries moved, not with those that are there; on a refusal nothing
//! changes. Limit: the order of what is put in is the caller's to know, and so is the sum: see [`super::seal_block`].

use crate::layout::{eh, ei};
use crate::le::{le16, le32, put, put_le16};
use crate::num;
use crate::types::FsBlock;

use super::encode::encode_extent;
use super::{Extent, decode_extent, slot};

/// Entries in use.
#[must_use]
pub fn count(node: &[u8]) -> usize {
    num::usize16(le16(node, eh::ENTRIES))
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

/// The child of an index node below which `block` belongs, if it is not before the first.
#[must_use]
pub fn child(node: &[u8], block: u32) -> Option<FsBlock> {
    let n = up_to(node, block).checked_sub(1)?;
    let entry = node.get(slot(n)..slot(n.saturating_add(1)))?;
    let high = u32::from(le16(entry, ei::LEAF_HI));
    Some(FsBlock::new(num::join(high, le32(entry, ei::LEAF_LO))))
}

/// Replaces extents `from..to` of a leaf by `new`. False, and nothing done, if there is no room for them.
#[must_use]
pub fn splice(leaf: &mut [u8], from: usize, to: usize, new: &[Extent]) -> bool {
    let before = count(leaf);
    let after = before
        .saturating_sub(to.saturating_sub(from))
        .saturating_add(new.len());
    let fits = from <= to && to <= before && after <= num::usize16(le16(leaf, eh::MAX));
    let end = slot(before.max(after));
    if !fits || end > leaf.len() {
        return false;
    }
    let put_at = from.saturating_add(new.len());
    leaf.copy_within(slot(to)..slot(before), slot(put_at));
    for (n, one) in new.iter().enumerate() {
        put(leaf, slot(from.saturating_add(n)), &encode_extent(one));
    }
    put_le16(leaf, eh::ENTRIES, u16::try_from(after).unwrap_or(u16::MAX));
    true
}

#[cfg(test)]
mod tests {
    use super::super::{Entries, ExtentNode, ROOT_CAPACITY};
    use super::*;
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
}
