//! The way back up of an edit: joins, splits and places the children of a node.
//!
//! Input: the children of one node in order, with their entries after the edit. Output: index entries for them, and nodes to write, in the
//! plan. Invariants: an empty child is removed; a child that fits keeps its block, and is written only if it changed; an index entry's key
//! is its child's first key; without a journal no entry is in two nodes on disk at any instant. Limits: joins only adjacent children, and
//! only if one of them shrank; none without a journal: it would have to go to a new block, and a removal must not need space on a full
//! volume.

use super::plan::{Node, Plan};
use crate::error::Error;
use crate::map::load::END;
use diorite_format::extent::{Entries, Expect, ExtentIndex, ExtentNode, block_capacity};
use diorite_format::{FileBlock, FsBlock};

/// A child of the node that is being edited, with its entries after the edit.
pub(super) struct Child {
    /// Its block. None for a new node.
    pub(super) at: Option<FsBlock>,
    pub(super) expect: Expect,
    pub(super) max: u16,
    pub(super) was: usize,
    pub(super) now: Entries,
    pub(super) state: State,
    /// All new entries come after all old ones.
    pub(super) is_append: bool,
}

/// How a child has changed.
#[derive(PartialEq, Eq)]
pub(super) enum State {
    /// Not at all: it was read only because its neighbour may be joined with it.
    Adopted,
    Unchanged,
    Changed,
}

/// May nodes be joined? Not without a journal: the left one could be on disk with entries that its parent still has on the right.
pub(super) fn joins(plan: &Plan<'_>) -> bool {
    plan.volume().has_journal()
}

/// Joins, splits and places children; returns their index entries.
pub(super) fn place_children(
    plan: &mut Plan<'_>,
    children: Vec<Child>,
) -> Result<Vec<ExtentIndex>, Error> {
    let mut joined: Vec<Child> = Vec::with_capacity(children.len());
    for child in children {
        if len(&child.now) == 0 {
            child.let_go(plan)?;
            continue;
        }
        match joined.last_mut() {
            Some(last) if last.may_join(&child, plan) => last.join(child, plan)?,
            _ => joined.push(child),
        }
    }
    let mut entries = Vec::with_capacity(joined.len());
    for child in joined {
        child.place(plan, &mut entries)?;
    }
    Ok(entries)
}

impl Child {
    pub(super) fn shrank(&self) -> bool {
        len(&self.now) < self.was
    }

    /// May the next one's entries be put into this one? It must have room for what writes count on (rule U5).
    fn may_join(&self, next: &Child, plan: &Plan<'_>) -> bool {
        let most = usize::from(block_capacity(&plan.volume().sb).min(self.max)) * 3 / 4;
        let both = len(&self.now) + len(&next.now) + plan.counted_on();
        joins(plan) && (self.shrank() || next.shrank()) && both <= most
    }

    /// Takes over all entries of the next child.
    fn join(&mut self, next: Child, plan: &mut Plan<'_>) -> Result<(), Error> {
        self.note_adopted(plan);
        match (&mut self.now, &next.now) {
            (Entries::Leaf(mine), Entries::Leaf(more)) => mine.extend_from_slice(more),
            (Entries::Index(mine), Entries::Index(more)) => mine.extend_from_slice(more),
            _ => unreachable!("siblings have one depth"),
        }
        self.state = State::Changed;
        self.was = self.was.max(next.was);
        next.let_go(plan)
    }

    fn let_go(self, plan: &mut Plan<'_>) -> Result<(), Error> {
        self.note_adopted(plan);
        self.at.map_or(Ok(()), |at| plan.let_go(at))
    }

    /// A view may show an adopted node as not loaded, and has to learn of its change. The nodes on the edit's own way down need no note:
    /// if a view has loaded the leaf below them it has loaded them, too, and if not, the view is reduced to its root.
    fn note_adopted(&self, plan: &mut Plan<'_>) {
        if self.state == State::Adopted {
            let block = |b: u64| u32::try_from(b).unwrap_or(END);
            plan.touch(block(self.expect.first.get())..block(self.expect.end));
        }
    }

    /// The block for the child's first part: its own block, unless without a journal the child is split or its extents move to other file
    /// blocks. Then all parts go to new nodes. They become part of the map by one write, of a node above them or of the inode, and the old
    /// ones are complete until then.
    fn stays(&self, plan: &mut Plan<'_>) -> Result<Option<FsBlock>, Error> {
        let is_split = len(&self.now) > usize::from(self.max);
        let moves = is_split || plan.shifts && self.state == State::Changed;
        if !moves || plan.volume().has_journal() {
            return Ok(self.at);
        }
        self.at.map_or(Ok(()), |at| plan.let_go(at))?;
        Ok(None)
    }

    /// Writes the child as one node, or as many as it needs, and adds their index entries.
    pub(super) fn place(self, plan: &mut Plan<'_>, to: &mut Vec<ExtentIndex>) -> Result<(), Error> {
        let capacity = block_capacity(&plan.volume().sb);
        let (total, depth) = (len(&self.now), self.expect.depth);
        let stays = self.stays(plan)?;
        let first = match stays {
            Some(_) => usize::from(self.max),
            None => usize::from(capacity),
        };
        let mut near = self.at.unwrap_or_else(|| near(&self.now));
        let mut rest = self.now;
        let sizes = sizes(total, first, capacity.into(), self.is_append);
        for (n, count) in sizes.into_iter().enumerate() {
            let after = split_off(&mut rest, count);
            let entries = std::mem::replace(&mut rest, after);
            let (at, max) = match stays {
                Some(at) if n == 0 => (at, self.max),
                _ => (plan.take(near)?, capacity),
            };
            near = at;
            to.push(ExtentIndex {
                block: key(&entries),
                end: self.expect.end,
                child: at,
            });
            if n > 0 || self.state == State::Changed {
                let node = ExtentNode {
                    depth,
                    max,
                    entries,
                };
                plan.write(at, Node::Extents(node));
            }
        }
        Ok(())
    }
}

pub(super) fn len(entries: &Entries) -> usize {
    match entries {
        Entries::Leaf(list) => list.len(),
        Entries::Index(list) => list.len(),
    }
}

/// The key of the first entry. The node must not be empty.
fn key(entries: &Entries) -> FileBlock {
    match entries {
        Entries::Leaf(list) => list[0].block,
        Entries::Index(list) => list[0].block,
    }
}

/// A goal for a node that has no block yet: near its first entry's blocks.
fn near(entries: &Entries) -> FsBlock {
    match entries {
        Entries::Leaf(list) => list[0].start,
        Entries::Index(list) => list[0].child,
    }
}

fn split_off(entries: &mut Entries, at: usize) -> Entries {
    match entries {
        Entries::Leaf(list) => Entries::Leaf(list.split_off(at)),
        Entries::Index(list) => Entries::Index(list.split_off(at)),
    }
}

/// Were entries only appended? The last old entry may have become longer.
pub(super) fn is_append(was: &Entries, now: &Entries) -> bool {
    let kept = len(was).saturating_sub(1);
    len(now) > len(was)
        && match (was, now) {
            (Entries::Leaf(was), Entries::Leaf(now)) => was[..kept] == now[..kept],
            (Entries::Index(was), Entries::Index(now)) => was[..kept] == now[..kept],
            _ => false,
        }
}

/// Sets where each child's range ends: at the key of the next child, the last one's at the end of the parent's range.
pub(super) fn with_ends(mut list: Vec<ExtentIndex>, end: u64) -> Vec<ExtentIndex> {
    let starts: Vec<u64> = list.iter().skip(1).map(|e| e.block.get()).collect();
    for (n, entry) in list.iter_mut().enumerate() {
        entry.end = starts.get(n).copied().unwrap_or(end);
    }
    list
}

/// How many of `total` entries go into each node. One node if the first one, with room for `first`, has room for all; otherwise as few as
/// possible. After an append they are filled from the left, since more will be appended; else they are nearly equally full.
pub(super) fn sizes(total: usize, first: usize, each: usize, is_append: bool) -> Vec<usize> {
    if total <= first {
        return vec![total];
    }
    let more = (total - first).div_ceil(each);
    let first = if is_append {
        first
    } else {
        first.min(total.div_ceil(more + 1))
    };
    let rest = total - first;
    let size = |n: usize| match is_append {
        true => each.min(rest - n * each),
        false => (n + 1) * rest / more - n * rest / more,
    };
    std::iter::once(first).chain((0..more).map(size)).collect()
}
