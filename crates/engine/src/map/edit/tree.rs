//! Edits an extent tree.
//!
//! Input: the root in the inode, and a change. Output: nodes to write in the plan, a new root, and the segments for views.
//! Invariants: an edit goes down once, through one node per level and leaf that the range touches, and returns the entries that replace
//! each; the key of a changed node's index entry is its first key, as e2fsck wants it. Limits: depth 5; edits do not compact a tree, so
//! e2fsck may offer to make it narrower, as it does for the kernel's trees; it reports no error.

use super::leaf::Change;
use super::nodes::{Child, State, is_append, joins, len, place_children, with_ends};
use super::plan::Plan;
use crate::error::Error;
use crate::map::load::{END, check_places, extent_segments};
use crate::map::{Segment, SegmentKind};
use diorite_format::FileBlock;
use diorite_format::extent::{
    Entries, Expect, ExtentIndex, ExtentNode, MAX_DEPTH, ROOT_CAPACITY, block_capacity,
};
use std::ops::Range;

/// Edits the extent tree of the plan's inode.
pub(super) fn edit(plan: &mut Plan<'_>, change: &Change) -> Result<(), Error> {
    plan.shifts = change.is_shift();
    let new = change.new_extents();
    plan.new_runs = new.iter().map(|e| (e.start, e.len)).collect();
    let root = ExtentNode::parse_root(&plan.volume().sb, &plan.inode)?;
    check_places(plan.volume(), &plan.inode, &extent_segments(&root))?;
    let whole = Expect {
        depth: root.depth,
        first: FileBlock::new(0),
        end: u64::from(END),
    };
    let entries = edit_node(plan, change, &root, whole, true)?;
    let (entries, depth) = grow(plan, entries, root.depth)?;
    let (entries, depth) = shrink(plan, entries, depth)?;
    let root = ExtentNode {
        depth,
        max: ROOT_CAPACITY,
        entries,
    };
    root.write_root(&mut plan.inode.i_block)?;
    let mut segments = Vec::new();
    collect(plan, &root, u64::from(END), &mut segments);
    plan.segments = segments;
    Ok(())
}

/// Edits a node; returns the entries that replace its own.
fn edit_node(
    plan: &mut Plan<'_>,
    change: &Change,
    node: &ExtentNode,
    expect: Expect,
    is_first: bool,
) -> Result<Entries, Error> {
    let list = match &node.entries {
        Entries::Leaf(extents) => {
            let out_of_range = || Error::Invalid("a file's blocks end at 2^32 - 2".into());
            let changed = change.apply(extents, is_first).ok_or_else(out_of_range)?;
            let reach = change.reach(expect.first.get()..expect.end);
            plan.touch(reach.ok_or_else(out_of_range)?);
            let removed = changed.removed.iter().map(|e| (e.start, e.len));
            plan.old_runs.extend(removed);
            return Ok(Entries::Leaf(changed.extents));
        }
        Entries::Index(list) => list,
    };
    let (from, to) = (u64::from(change.range.start), u64::from(change.range.end));
    let begin = list
        .partition_point(|e| e.block.get() <= from)
        .saturating_sub(1);
    let end = list.partition_point(|e| e.block.get() < to).max(begin + 1);
    let mut children = Vec::with_capacity(end - begin + 2);
    for (n, entry) in list[begin..end].iter().enumerate() {
        let is_first = is_first && n == 0;
        children.push(edit_child(
            plan,
            change,
            node.expect_child(entry),
            entry,
            is_first,
        )?);
    }
    let (begin, end) = adopt(plan, node, begin..end, &mut children)?;
    let mut all = list[..begin].to_vec();
    all.extend(place_children(plan, children)?);
    all.extend_from_slice(&list[end..]);
    Ok(Entries::Index(with_ends(all, expect.end)))
}

fn edit_child(
    plan: &mut Plan<'_>,
    change: &Change,
    expect: Expect,
    entry: &ExtentIndex,
    is_first: bool,
) -> Result<Child, Error> {
    let child = plan.read_node(entry.child, expect)?;
    let now = edit_node(plan, change, &child, expect, is_first)?;
    let state = if now == child.entries {
        State::Unchanged
    } else {
        State::Changed
    };
    Ok(Child {
        at: Some(entry.child),
        expect,
        max: child.max,
        was: len(&child.entries),
        // Behind another node's entries more may be put in any order, as a hole is filled.
        is_append: expect.end == u64::from(END) && is_append(&child.entries, &now),
        now,
        state,
    })
}

/// Reads the neighbours of children that have shrunk so far that they may be joined. Returns the range of entries that `children` now
/// cover.
fn adopt(
    plan: &mut Plan<'_>,
    node: &ExtentNode,
    of: Range<usize>,
    children: &mut Vec<Child>,
) -> Result<(usize, usize), Error> {
    let list = node.indexes();
    if !joins(plan) {
        return Ok((of.start, of.end));
    }
    let half = usize::from(block_capacity(&plan.volume().sb)) / 2;
    let small =
        |c: Option<&Child>| c.is_some_and(|c| c.shrank() && (1..=half).contains(&len(&c.now)));
    let (mut begin, mut end) = (of.start, of.end);
    let mut read = |entry: &ExtentIndex| -> Result<Child, Error> {
        let expect = node.expect_child(entry);
        let child = plan.read_node(entry.child, expect)?;
        Ok(Child {
            at: Some(entry.child),
            expect,
            max: child.max,
            was: len(&child.entries),
            now: child.entries,
            state: State::Adopted,
            is_append: false,
        })
    };
    if end < list.len() && small(children.last()) {
        children.push(read(&list[end])?);
        end += 1;
    }
    if begin > 0 && small(children.first()) {
        begin -= 1;
        children.insert(0, read(&list[begin])?);
    }
    Ok((begin, end))
}

/// Adds levels below the root until the root's entries fit into the inode.
fn grow(
    plan: &mut Plan<'_>,
    mut entries: Entries,
    mut depth: u16,
) -> Result<(Entries, u16), Error> {
    while len(&entries) > usize::from(ROOT_CAPACITY) {
        if depth == MAX_DEPTH {
            let ino = plan.inode.ino;
            return Err(Error::Invalid(format!(
                "inode {ino}: its extent tree is full at depth {depth}"
            )));
        }
        let child = Child {
            at: None,
            expect: Expect {
                depth,
                first: FileBlock::new(0),
                end: u64::from(END),
            },
            max: 0,
            was: 0,
            now: entries,
            state: State::Changed,
            is_append: false,
        };
        let mut list = Vec::new();
        child.place(plan, &mut list)?;
        entries = Entries::Index(with_ends(list, u64::from(END)));
        depth += 1;
    }
    Ok((entries, depth))
}

/// Removes levels: while the root has one child whose entries fit into the root, they replace it. The root must have room for what writes
/// count on, too (rule U5).
fn shrink(
    plan: &mut Plan<'_>,
    mut entries: Entries,
    mut depth: u16,
) -> Result<(Entries, u16), Error> {
    if len(&entries) == 0 {
        return Ok((Entries::Leaf(Vec::new()), 0));
    }
    while let Entries::Index(list) = &entries {
        let &[only] = list.as_slice() else {
            break;
        };
        let (child, is_news) = match plan.known(only.child) {
            Some(known) => (known.clone(), false),
            None => {
                let expect = Expect {
                    depth: depth - 1,
                    first: only.block,
                    end: u64::from(END),
                };
                (plan.read_node(only.child, expect)?, true)
            }
        };
        if len(&child.entries) + plan.counted_on() > usize::from(ROOT_CAPACITY) {
            break;
        }
        if is_news {
            plan.touch(0..END);
        }
        plan.let_go(only.child)?;
        entries = child.entries;
        depth -= 1;
    }
    Ok((entries, depth))
}

/// Collects the segments for views in the edit's window. Nodes that the edit has not read appear as nodes to load.
fn collect(plan: &mut Plan<'_>, node: &ExtentNode, end: u64, to: &mut Vec<Segment>) {
    let list = match &node.entries {
        Entries::Leaf(_) => {
            let window = plan.window();
            let all = extent_segments(node).into_iter();
            to.extend(all.filter(|s| window.contains(&s.start)));
            return;
        }
        Entries::Index(list) => with_ends(list.clone(), end),
    };
    let from = u64::from(plan.window().start);
    for entry in &list[list.partition_point(|e| e.end <= from)..] {
        if entry.block.get() >= u64::from(plan.window().end) {
            return;
        }
        match plan.known(entry.child).cloned() {
            Some(child) => collect(plan, &child, entry.end, to),
            // Its entries lie before the window, though its range now reaches into the window.
            None if entry.block.get() < from => {}
            None => {
                let (start, end) = (short(entry.block.get()), short(entry.end));
                plan.touch(start..end);
                to.push(Segment {
                    start,
                    len: end - start,
                    kind: SegmentKind::ExtentNode(entry.child, node.depth - 1),
                });
            }
        }
    }
}

fn short(block: u64) -> u32 {
    u32::try_from(block).expect("the parser keeps file blocks below 2^32")
}
