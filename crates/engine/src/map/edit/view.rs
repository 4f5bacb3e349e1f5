//! The in-core map after an edit.
//!
//! Input: the latest view, and what an edit touched. Output: the next view. Invariants: a node that a view shows as not loaded is where
//! the view says, of that depth, and all that it holds lies in its segment, though its space may have grown to the right since; what an
//! edit changed beyond that is in its window. Limits: costs what a leaf has entries; where a part of a window lies in a node that is not
//! loaded, the view falls back to the root.
//!
//! Example: a leaf of blocks 1000 to 1999 is emptied and goes. To the disk its space belongs to the leaf on its left now, which
//! views show as not loaded, with the blocks up to 999. That stays true of its contents until something is mapped at 1000; then that leaf is
//! the one that the edit reads, and its whole range is the edit's window.

use super::Edited;
use crate::map::{MapView, Tree};

/// What comes behind a view.
pub(crate) enum Next {
    /// The same.
    Same,
    /// What the root alone gives, so many edits behind the first.
    Root(u64),
    /// This one; it has so many segments in the place of so many.
    View {
        view: MapView,
        before: usize,
        after: usize,
    },
}

/// What some edits, in their order, make of the latest view.
pub(crate) fn next_view(latest: &MapView, all: &[Edited]) -> Next {
    let all: Vec<&Edited> = all.iter().filter(|e| !e.window.is_empty()).collect();
    if all.is_empty() {
        return Next::Same;
    }
    let edits = latest.edits + all.len() as u64;
    let mut tree = latest.tree.clone();
    let (mut before, mut after) = (0, 0);
    for edited in all {
        let (start, last) = (edited.window.start, edited.window.end - 1);
        after += edited.segments.len();
        if let Some(replaced) = tree.splice_leaf(start, last, &edited.segments) {
            before += replaced;
            continue;
        }
        if tree.is_cut_at(start, last) {
            return Next::Root(edits);
        }
        before += tree.count(start, last);
        tree = tree.splice(start, last, &edited.segments);
    }
    let view = MapView { tree, edits };
    Next::View {
        view,
        before,
        after,
    }
}

impl Tree {
    /// Does a segment lie partly in `from..=last` and partly outside?
    fn is_cut_at(&self, from: u32, last: u32) -> bool {
        let first = self.at_or_after(from);
        let end = self.at_or_after(last);
        first.is_some_and(|s| s.start < from)
            || end.is_some_and(|s| s.start <= last && s.last() > last)
    }
}
