//! The in-core extent map: a path-copying ordered tree of small nodes.
//!
//! Input: segments that `load` read from disk, and changes of them. Output: a new tree that shares as many nodes as possible with the
//! old one, which its readers can go on using. Invariants: segments are sorted and disjoint; all leaves have the
//! same depth; only the root may be empty. Limits: a change costs one node per level plus what it inserts, however
//! many extents the file has.

use super::Segment;
use std::ops::Range;
use std::sync::Arc;

/// Most entries per node: their keys fill three cache lines.
const FAN: usize = 48;

/// The key of an unused entry. No segment starts there: the last block that can be mapped is one before.
const UNUSED: u32 = u32::MAX;

/// A node: first the keys of its entries, side by side, so that a search touches only them; then the entries.
#[derive(Clone, Debug)]
enum Node {
    Leaf(Entries<Segment>),
    Inner(Entries<Arc<Node>>),
}

/// Up to [`FAN`] entries, sorted by their first file blocks, which are the keys.
#[derive(Clone, Debug)]
struct Entries<T> {
    firsts: [u32; FAN],
    items: Vec<T>,
}

impl<T: Clone> Entries<T> {
    fn new(of: &[(u32, T)]) -> Entries<T> {
        let mut firsts = [UNUSED; FAN];
        firsts
            .iter_mut()
            .zip(of)
            .for_each(|(to, (first, _))| *to = *first);
        Entries {
            firsts,
            items: of.iter().map(|(_, item)| item.clone()).collect(),
        }
    }

    /// The number of entries that begin at or before `block`. The whole array is compared, which needs no branch.
    #[inline]
    fn up_to(&self, block: u32) -> usize {
        let below = self
            .firsts
            .iter()
            .map(|first| u32::from(*first <= block))
            .sum::<u32>();
        // Unused keys are counted only if `block` is the one that cannot be mapped.
        (below as usize).min(self.items.len())
    }

    fn pairs(&self) -> Vec<(u32, T)> {
        self.firsts
            .iter()
            .copied()
            .zip(self.items.iter().cloned())
            .collect()
    }
}

impl Entries<Segment> {
    /// A copy with some entries replaced by `new`, and capacity for a few more.
    fn spliced(&self, at: Range<usize>, new: &[Segment]) -> Entries<Segment> {
        let after = self.items.len() - at.len() + new.len();
        let mut items = Vec::with_capacity((after + 2).min(FAN));
        items.extend_from_slice(&self.items[..at.start]);
        items.extend_from_slice(new);
        items.extend_from_slice(&self.items[at.end..]);
        let firsts = self.firsts;
        let mut all = Entries { firsts, items };
        all.note_firsts(at.start);
        all
    }

    /// Updates the keys of the entries from `from` on.
    fn note_firsts(&mut self, from: usize) {
        let starts = self.items[from..].iter().map(|item| item.start);
        let all = starts.chain(std::iter::repeat(UNUSED));
        let firsts = self.firsts[from..].iter_mut();
        firsts.zip(all).for_each(|(first, start)| *first = start);
    }

    /// The entries that start in `from..=last`, if they can be replaced by `new` entries: no entry may lie partly in the range, and the
    /// result must fit into two nodes. Leaves further left need no check: their segments end before the key that leads here.
    fn fits(&self, from: u32, last: u32, new: usize) -> Option<Range<usize>> {
        let start = self.items.partition_point(|s| s.start < from);
        let end = start + self.items[start..].partition_point(|s| s.start <= last);
        let after = self.items.len() - (end - start) + new;
        let ends = |at: usize, by: u32| at == 0 || self.items[at - 1].last() <= by;
        let whole = (start == 0 || ends(start, from - 1)) && ends(end, last);
        // A leaf that would become empty or too full needs a change of the whole tree.
        (whole && (1..=2 * FAN).contains(&after)).then_some(start..end)
    }

    /// If the leaf has too many entries, moves the upper half into a new leaf, which belongs on its right.
    fn split(&mut self) -> Option<Child> {
        (self.items.len() > FAN).then(|| {
            let right = self.items.split_off(self.items.len() / 2);
            self.items.shrink_to_fit();
            self.note_firsts(self.items.len());
            let keyed: Vec<(u32, Segment)> = right.iter().map(|s| (s.start, *s)).collect();
            (keyed[0].0, Arc::new(Node::Leaf(Entries::new(&keyed))))
        })
    }
}

impl Entries<Arc<Node>> {
    /// Inserts a node at `at`. If the entries then do not fit, a new node, which belongs on the right, takes half of them.
    fn insert(&mut self, at: usize, (first, node): Child) -> Option<Child> {
        if self.items.len() < FAN {
            self.firsts.copy_within(at..FAN - 1, at + 1);
            self.firsts[at] = first;
            self.items.insert(at, node);
            return None;
        }
        let mut all = self.pairs();
        all.insert(at, (first, node));
        let right = all.split_off(all.len() / 2);
        *self = Entries::new(&all);
        Some((right[0].0, Arc::new(Node::Inner(Entries::new(&right)))))
    }
}

/// An immutable map from file blocks to segments.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    root: Arc<Node>,
}

impl Tree {
    /// The map of a file without blocks: one hole.
    pub(crate) fn new() -> Tree {
        Tree {
            root: Arc::new(Node::Leaf(Entries::new(&[]))),
        }
    }

    /// The segment that covers `block`, or the next one after it, if there is any.
    #[inline]
    pub(crate) fn at_or_after(&self, block: u32) -> Option<Segment> {
        let mut node = &*self.root;
        // Where to look if the leaf for `block` ends before it: the next child to the right.
        let mut right: Option<&Node> = None;
        loop {
            match node {
                Node::Leaf(leaf) => {
                    let after = leaf.up_to(block);
                    if let Some(hit) = after
                        .checked_sub(1)
                        .map(|i| leaf.items[i])
                        .filter(|s| block <= s.last())
                    {
                        return Some(hit);
                    }
                    return leaf
                        .items
                        .get(after)
                        .copied()
                        .or_else(|| right.and_then(Node::first));
                }
                Node::Inner(inner) => {
                    let at = inner.up_to(block).saturating_sub(1);
                    right = inner.items.get(at + 1).map(|n| &**n).or(right);
                    node = &inner.items[at];
                }
            }
        }
    }

    /// Replaces all segments that start in `from..=last` by `new`, which must be sorted and lie in that range.
    pub(crate) fn splice(&self, from: u32, last: u32, new: &[Segment]) -> Tree {
        debug_assert!(
            new.iter().all(|s| s.start >= from && s.last() <= last),
            "new segments lie in their range"
        );
        debug_assert!(
            new.windows(2).all(|w| w[0].last() < w[1].start),
            "new segments are in order"
        );
        let mut nodes = self.root.splice(from, last, new);
        while nodes.len() > 1 {
            nodes = pack_inner(&nodes);
        }
        let mut root = nodes
            .pop()
            .map_or_else(|| Tree::new().root, |(_, node)| node);
        while let Node::Inner(inner) = &*root {
            let [only] = inner.items.as_slice() else {
                break;
            };
            root = only.clone();
        }
        Tree { root }
    }

    /// As [`Tree::splice`], but changes this tree itself. Nodes that no other tree shares are changed in place, so a series of small
    /// changes copies each node at most once. Returns the number of segments replaced. Returns None, and does nothing, unless the range
    /// begins and ends inside one leaf and cuts no segment in two.
    pub(crate) fn splice_leaf(&mut self, from: u32, last: u32, new: &[Segment]) -> Option<usize> {
        let (replaced, right) = Node::splice_leaf(&mut self.root, from, last, new)?;
        if let Some(right) = right {
            let left = (self.root.key(), self.root.clone());
            self.root = Arc::new(Node::Inner(Entries::new(&[left, right])));
        }
        Some(replaced)
    }

    /// The number of segments that start in `from..=last`.
    pub(crate) fn count(&self, from: u32, last: u32) -> usize {
        self.root.count(from, last)
    }

    /// All segments in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Segment> {
        let mut next = Some(0u32);
        std::iter::from_fn(move || {
            let segment = self.at_or_after(next?)?;
            next = segment.last().checked_add(1);
            Some(segment)
        })
    }
}

/// A node with the first file block below it.
type Child = (u32, Arc<Node>);

impl Node {
    fn first(&self) -> Option<Segment> {
        match self {
            Node::Leaf(leaf) => leaf.items.first().copied(),
            Node::Inner(inner) => inner.items.first().and_then(|n| n.first()),
        }
    }

    /// The key of the node's first entry.
    fn key(&self) -> u32 {
        match self {
            Node::Leaf(leaf) => leaf.firsts[0],
            Node::Inner(inner) => inner.firsts[0],
        }
    }

    fn count(&self, from: u32, last: u32) -> usize {
        match self {
            Node::Leaf(leaf) => {
                let items = leaf.items.iter();
                items.filter(|s| (from..=last).contains(&s.start)).count()
            }
            Node::Inner(inner) => {
                let begin = inner.up_to(from).saturating_sub(1);
                let end = inner.up_to(last).max(begin + 1);
                inner.items[begin..end]
                    .iter()
                    .map(|n| n.count(from, last))
                    .sum()
            }
        }
    }

    /// See [`Tree::splice_leaf`]. Also returns the new node that belongs on the right of this one, if the change made one.
    fn splice_leaf(
        node: &mut Arc<Node>,
        from: u32,
        last: u32,
        new: &[Segment],
    ) -> Option<(usize, Option<Child>)> {
        let at = match &**node {
            Node::Leaf(leaf) => leaf.fits(from, last, new.len())?,
            Node::Inner(inner) => {
                let start = inner.up_to(from).saturating_sub(1);
                let end = inner.up_to(last).max(start + 1);
                (end == start + 1).then_some(start..end)?
            }
        };
        let shared = Arc::get_mut(node).is_none();
        if let (true, Node::Leaf(leaf)) = (shared, &**node) {
            // Other trees share it: make one copy that has the change already.
            let mut copy = leaf.spliced(at.clone(), new);
            let right = copy.split();
            *node = Arc::new(Node::Leaf(copy));
            return Some((at.len(), right));
        }
        match Arc::make_mut(node) {
            Node::Leaf(leaf) => {
                leaf.items.splice(at.clone(), new.iter().copied());
                let right = leaf.split();
                leaf.note_firsts(at.start.min(leaf.items.len()));
                Some((at.len(), right))
            }
            // The parent's key changes only if the new segments begin before everything in the tree: all entries of a child begin at or
            // behind its key.
            Node::Inner(inner) => {
                let child = &mut inner.items[at.start];
                let (replaced, right) = Node::splice_leaf(child, from, last, new)?;
                inner.firsts[at.start] = inner.firsts[at.start].min(from);
                Some((replaced, right.and_then(|r| inner.insert(at.end, r))))
            }
        }
    }

    /// The nodes, of the same height, that replace this node.
    fn splice(&self, from: u32, last: u32, new: &[Segment]) -> Vec<Child> {
        match self {
            Node::Leaf(leaf) => {
                let old = &leaf.items;
                let (start, end) = (
                    old.partition_point(|s| s.start < from),
                    old.partition_point(|s| s.start <= last),
                );
                pack_leaf(&[&old[..start], new, &old[end..]].concat())
            }
            Node::Inner(inner) => {
                let old = inner.pairs();
                let begin = inner.up_to(from).saturating_sub(1);
                let end = inner.up_to(last).max(begin + 1);
                let mut all = old[..begin].to_vec();
                for (i, (_, child)) in old[begin..end].iter().enumerate() {
                    all.extend(child.splice(from, last, if i == 0 { new } else { &[] }));
                }
                all.extend_from_slice(&old[end..]);
                pack_inner(&merge_small(all))
            }
        }
    }
}

fn pack_leaf(segments: &[Segment]) -> Vec<Child> {
    let keyed: Vec<(u32, Segment)> = segments.iter().map(|s| (s.start, *s)).collect();
    pack(&keyed, Node::Leaf)
}

fn pack_inner(children: &[Child]) -> Vec<Child> {
    pack(children, Node::Inner)
}

/// Distributes entries over as few nodes as possible, all nearly equally full.
fn pack<T: Clone>(entries: &[(u32, T)], node: fn(Entries<T>) -> Node) -> Vec<Child> {
    let (len, count) = (entries.len(), entries.len().div_ceil(FAN));
    let runs = (0..count).map(|i| &entries[i * len / count..(i + 1) * len / count]);
    runs.map(|run| (run[0].0, Arc::new(node(Entries::new(run)))))
        .collect()
}

/// Joins adjacent nodes that together are at most half full.
fn merge_small(children: Vec<Child>) -> Vec<Child> {
    let mut out: Vec<Child> = Vec::with_capacity(children.len());
    for child in children {
        let merged = out.last().and_then(|last| match (&*last.1, &*child.1) {
            (Node::Leaf(a), Node::Leaf(b)) => join(a, b).map(Node::Leaf),
            (Node::Inner(a), Node::Inner(b)) => join(a, b).map(Node::Inner),
            _ => None,
        });
        match (merged, out.last_mut()) {
            (Some(node), Some(last)) => last.1 = Arc::new(node),
            _ => out.push(child),
        }
    }
    out
}

fn join<T: Clone>(a: &Entries<T>, b: &Entries<T>) -> Option<Entries<T>> {
    (a.items.len() + b.items.len() <= FAN / 2)
        .then(|| Entries::new(&[a.pairs(), b.pairs()].concat()))
}

#[cfg(test)]
mod tests {
    use super::super::SegmentKind;
    use super::*;
    use crate::testing::Rng;
    use diorite_format::FsBlock;
    use std::collections::BTreeMap;

    fn written(start: u32, len: u32) -> Segment {
        Segment {
            start,
            len,
            kind: SegmentKind::Written(FsBlock::new(u64::from(start) * 10)),
        }
    }

    /// Checks that keys ascend, and that everything below a key lies between it and the next.
    fn check_keys(node: &Node, below: Range<u64>) {
        let firsts = match node {
            Node::Leaf(leaf) => &leaf.firsts[..leaf.items.len()],
            Node::Inner(inner) => &inner.firsts[..inner.items.len()],
        };
        assert!(firsts.windows(2).all(|w| w[0] < w[1]), "{firsts:?}");
        match node {
            Node::Leaf(leaf) => {
                let inside = |s: &Segment| {
                    below.contains(&u64::from(s.start)) && u64::from(s.last()) < below.end
                };
                assert!(leaf.items.iter().all(inside), "{below:?}");
            }
            Node::Inner(inner) => {
                for (n, child) in inner.items.iter().enumerate() {
                    let end = firsts.get(n + 1).map_or(below.end, |f| u64::from(*f));
                    check_keys(child, u64::from(firsts[n])..end);
                }
            }
        }
    }

    fn check(tree: &Tree, model: &BTreeMap<u32, Segment>) {
        check_keys(&tree.root, 0..u64::from(u32::MAX));
        assert_eq!(
            tree.iter().collect::<Vec<_>>(),
            model.values().copied().collect::<Vec<_>>()
        );
    }

    #[test]
    fn splices_as_a_naive_map_does() {
        let mut rng = Rng::from_env("tree");
        let (mut tree, mut model) = (Tree::new(), BTreeMap::new());
        for round in 0..3000u32 {
            let from = rng.below(100_000) as u32;
            let last = from + rng.below(if round % 50 == 0 { 50_000 } else { 300 }) as u32;
            let mut new = Vec::new();
            let mut at = from;
            while at < last && rng.below(5) != 0 {
                let len = 1 + rng.below(u64::from((last - at).min(20))) as u32;
                new.push(written(at, len));
                at += len + rng.below(3) as u32;
            }
            // As in real use: segments that are replaced lie completely in the range.
            let old = tree.clone();
            let cut = |s: &Segment| {
                s.start < from && s.last() >= from || s.start <= last && s.last() > last
            };
            if model.values().any(cut) {
                continue;
            }
            // Sometimes a new tree, sometimes a change in place: the old tree, which is shared, must not change.
            let replaced = model.range(from..=last).count();
            let here = rng.below(2) == 0;
            match here.then(|| tree.splice_leaf(from, last, &new)).flatten() {
                Some(found) => assert_eq!(found, replaced),
                None => tree = tree.splice(from, last, &new),
            }
            check(&old, &model);
            model.retain(|k, _| *k < from || *k > last);
            model.extend(new.iter().map(|s| (s.start, *s)));
            check(&tree, &model);
            let starts = model.keys().filter(|k| (from..=last).contains(k)).count();
            assert_eq!(tree.count(from, last), starts);
            let probe = rng.below(101_000) as u32;
            let expect = model.values().find(|s| s.last() >= probe).copied();
            assert_eq!(tree.at_or_after(probe), expect, "looking for {probe}");
        }
    }

    #[test]
    fn what_is_put_in_front_of_everything_is_found() {
        let mut model = BTreeMap::new();
        let far: Vec<Segment> = (0..49).map(|n| written(10_000 + 2 * n, 1)).collect();
        model.extend(far.iter().map(|s| (s.start, *s)));
        let mut tree = Tree::new().splice(0, u32::MAX, &far);
        let up = (0..60).map(|n| 2000 + 2 * n);
        let down = (0..60).map(|n| 1500 - 2 * n);
        for block in up.chain(down) {
            let one = written(block, 1);
            if tree.splice_leaf(block, block, &[one]).is_none() {
                tree = tree.splice(block, block, &[one]);
            }
            model.insert(block, one);
            check(&tree, &model);
            assert_eq!(
                tree.at_or_after(block + 1),
                model.range(block + 1..).next().map(|(_, s)| *s)
            );
        }
    }

    #[test]
    fn a_large_map_stays_shallow() {
        let all: Vec<Segment> = (0..100_000).map(|i| written(i * 2, 1)).collect();
        let tree = Tree::new().splice(0, u32::MAX, &all);
        let mut depth = 1;
        let mut node = tree.root.clone();
        while let Node::Inner(inner) = &*node.clone() {
            node = inner.items[0].clone();
            depth += 1;
        }
        assert!(depth <= 3, "{depth} levels");
        assert_eq!(tree.iter().count(), 100_000);
        assert!(tree.at_or_after(u32::MAX).is_none());
        assert!(tree.splice(0, u32::MAX, &[]).iter().next().is_none());
    }
}
