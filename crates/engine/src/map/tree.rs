//! The in-core extent map: a path-copying ordered tree of small nodes.
//!
//! Input: segments that `load` read from disk, and changes of them. Output: a new tree that shares all it can with the
//! old one, so readers of the old one never notice. Invariants: segments are sorted and disjoint; every leaf has the
//! same depth; no node but the root is empty. Limits: a change costs one node per level plus what it inserts, however
//! many extents the file has.

use super::Segment;
use std::sync::Arc;

/// Entries per node, at most.
const FAN: usize = 48;

#[derive(Debug)]
enum Node {
    Leaf(Vec<Segment>),
    Inner(Vec<Child>),
}

#[derive(Clone, Debug)]
struct Child {
    /// The first file block of the child's first segment.
    first: u32,
    node: Arc<Node>,
}

/// An immutable map from file blocks to segments.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    root: Arc<Node>,
}

impl Tree {
    /// The map in which everything is a hole.
    pub(crate) fn new() -> Tree {
        Tree {
            root: Arc::new(Node::Leaf(Vec::new())),
        }
    }

    /// The segment that covers `block`, or the next one after it, if there is any.
    #[inline]
    pub(crate) fn at_or_after(&self, block: u32) -> Option<Segment> {
        let mut node = &*self.root;
        // Where to look when the leaf that should hold `block` ends before it: the next child to the right.
        let mut right: Option<&Node> = None;
        loop {
            match node {
                Node::Leaf(segments) => {
                    let after = segments.partition_point(|s| s.start <= block);
                    if let Some(hit) = after
                        .checked_sub(1)
                        .map(|i| segments[i])
                        .filter(|s| block <= s.last())
                    {
                        return Some(hit);
                    }
                    return segments
                        .get(after)
                        .copied()
                        .or_else(|| right.and_then(Node::first));
                }
                Node::Inner(children) => {
                    let after = children.partition_point(|c| c.first <= block);
                    let at = after.saturating_sub(1);
                    right = children.get(at + 1).map(|c| &*c.node).or(right);
                    node = &children[at].node;
                }
            }
        }
    }

    /// Replaces every segment that starts in `from..=last` by `new`, which must lie in that range and be in order.
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
            nodes = pack_inner(nodes);
        }
        let mut root = nodes
            .pop()
            .map_or_else(|| Arc::new(Node::Leaf(Vec::new())), |c| c.node);
        while let Node::Inner(children) = &*root {
            let [only] = children.as_slice() else { break };
            root = only.node.clone();
        }
        Tree { root }
    }

    /// Every segment in order.
    #[cfg(test)]
    fn iter(&self) -> impl Iterator<Item = Segment> {
        let mut next = Some(0u32);
        std::iter::from_fn(move || {
            let segment = self.at_or_after(next?)?;
            next = segment.last().checked_add(1);
            Some(segment)
        })
    }
}

impl Node {
    fn first(&self) -> Option<Segment> {
        match self {
            Node::Leaf(segments) => segments.first().copied(),
            Node::Inner(children) => children.first().and_then(|c| c.node.first()),
        }
    }

    /// The nodes, of this node's height, that take its place.
    fn splice(&self, from: u32, last: u32, new: &[Segment]) -> Vec<Child> {
        match self {
            Node::Leaf(segments) => {
                let start = segments.partition_point(|s| s.start < from);
                let end = segments.partition_point(|s| s.start <= last);
                let all: Vec<Segment> = segments[..start]
                    .iter()
                    .chain(new)
                    .chain(&segments[end..])
                    .copied()
                    .collect();
                pack_leaf(&all)
            }
            Node::Inner(children) => {
                let begin = children
                    .partition_point(|c| c.first <= from)
                    .saturating_sub(1);
                let end = children.partition_point(|c| c.first <= last).max(begin + 1);
                let mut middle = Vec::new();
                for (i, child) in children[begin..end].iter().enumerate() {
                    middle.extend(
                        child
                            .node
                            .splice(from, last, if i == 0 { new } else { &[] }),
                    );
                }
                let all = children[..begin]
                    .iter()
                    .cloned()
                    .chain(middle)
                    .chain(children[end..].iter().cloned());
                pack_inner(merge_small(all.collect()))
            }
        }
    }
}

fn pack_leaf(segments: &[Segment]) -> Vec<Child> {
    let nodes = segments.len().div_ceil(FAN);
    even_chunks(segments, nodes)
        .map(|c| Child {
            first: c[0].start,
            node: Arc::new(Node::Leaf(c.to_vec())),
        })
        .collect()
}

fn pack_inner(children: Vec<Child>) -> Vec<Child> {
    let nodes = children.len().div_ceil(FAN);
    even_chunks(&children, nodes)
        .map(|c| Child {
            first: c[0].first,
            node: Arc::new(Node::Inner(c.to_vec())),
        })
        .collect()
}

/// `items` in `count` runs of nearly the same length, none empty.
fn even_chunks<T>(items: &[T], count: usize) -> impl Iterator<Item = &[T]> {
    let len = items.len();
    (0..count).map(move |i| &items[i * len / count..(i + 1) * len / count])
}

/// Joins neighbouring leaves (or inner nodes) that together are at most half full.
fn merge_small(children: Vec<Child>) -> Vec<Child> {
    let mut out: Vec<Child> = Vec::with_capacity(children.len());
    for child in children {
        let merged = out
            .last()
            .and_then(|last| match (&*last.node, &*child.node) {
                (Node::Leaf(a), Node::Leaf(b)) if a.len() + b.len() <= FAN / 2 => {
                    Some(Node::Leaf(a.iter().chain(b).copied().collect()))
                }
                (Node::Inner(a), Node::Inner(b)) if a.len() + b.len() <= FAN / 2 => {
                    Some(Node::Inner(a.iter().chain(b).cloned().collect()))
                }
                _ => None,
            });
        match (merged, out.last_mut()) {
            (Some(node), Some(last)) => last.node = Arc::new(node),
            _ => out.push(child),
        }
    }
    out
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

    fn check(tree: &Tree, model: &BTreeMap<u32, Segment>) {
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
            // As in use: what is spliced away lies in the range whole.
            let old = tree.clone();
            let cut = |s: &Segment| {
                s.start < from && s.last() >= from || s.start <= last && s.last() > last
            };
            if model.values().any(cut) {
                continue;
            }
            tree = tree.splice(from, last, &new);
            check(&old, &model);
            model.retain(|k, _| *k < from || *k > last);
            model.extend(new.iter().map(|s| (s.start, *s)));
            check(&tree, &model);
            let probe = rng.below(101_000) as u32;
            let expect = model.values().find(|s| s.last() >= probe).copied();
            assert_eq!(tree.at_or_after(probe), expect, "looking for {probe}");
        }
    }

    #[test]
    fn a_large_map_stays_shallow() {
        let all: Vec<Segment> = (0..100_000).map(|i| written(i * 2, 1)).collect();
        let tree = Tree::new().splice(0, u32::MAX, &all);
        let mut depth = 1;
        let mut node = tree.root.clone();
        while let Node::Inner(children) = &*node.clone() {
            node = children[0].node.clone();
            depth += 1;
        }
        assert!(depth <= 3, "{depth} levels");
        assert_eq!(tree.iter().count(), 100_000);
        assert!(tree.splice(0, u32::MAX, &[]).iter().next().is_none());
    }
}
