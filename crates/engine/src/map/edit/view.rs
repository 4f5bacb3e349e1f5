//! The next view of the in-core map after an edit.
//!
//! Input: the latest view, and the results of edits. Output: the next view. Invariants: a node that a view shows as not loaded is at the
//! block that the view says, and at that depth; all its entries lie in its segment, although its range on disk may have grown to the right
//! since; what edits have put beyond that is in their windows. Limits: costs as much as a leaf has entries; if a window begins or ends
//! inside a node that is not loaded, the view is reduced to the root.
//!
//! Example: a leaf with the range 1000 to 1999 is emptied and removed. On disk its range belongs to the leaf on its left now, which
//! views show as not loaded, with the blocks up to 999. That is still true of its contents until something is mapped at 1000; the edit for
//! that reads this leaf, and its whole range is in the edit's window.

use super::Edited;
use crate::map::{MapView, Tree};

/// The view after the latest one.
pub(crate) enum Next {
    /// The latest view is still right.
    Same,
    /// The view of the root alone, with this number of edits before it.
    Root(u64),
    /// This view. `after` of its segments replace `before` segments of the latest one.
    View {
        view: MapView,
        before: usize,
        after: usize,
    },
}

/// The view after some edits, in their order.
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
