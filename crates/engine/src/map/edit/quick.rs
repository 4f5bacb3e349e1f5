//! The common edit, made in place: one run into one leaf, which may have to be split first.
//!
//! Input: a run for a hole, for a part of an unwritten extent that keeps its blocks, or for other blocks in the place of a part of an
//! extent. Output: a few entries of one leaf replaced; or None and nothing done, and then the general edit is used. Invariants: every node
//! on the way was checked when it was loaded; the leaf keeps its first key, so the nodes above it do not change, except for the new entry
//! of a split; entries that have become contiguous are joined; what freeing the replaced blocks needs is loaded before the first change.
//! Limits: edits that replace more than one extent, split more than the leaf, touch two leaves, or leave a leaf with fewer entries by other
//! blocks are left to the general edit.

use super::place::{Place, find_leaf, owner, too_full};
use super::{Edited, MappedRun, NewRun, TreeBlocks, split};
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::journal::JournalHandle;
use crate::map::load::extent_segment;
use diorite_format::extent::{Extent, max_len, raw};
use diorite_format::{FileBlock, FsBlock, Inode as DiskInode, MapKind};
use smallvec::{SmallVec, smallvec};

/// Makes the edit if it is of this kind. Blocks while the device reads. The caller holds the map lock.
pub(super) fn try_replace(
    handle: &JournalHandle<'_>,
    blocks: &mut impl TreeBlocks,
    inode: &mut DiskInode,
    new: &NewRun,
) -> Result<Option<Edited>, Error> {
    if inode.map_kind() != MapKind::Extents || new.len > max_len(new.unwritten) {
        return Ok(None);
    }
    if raw::depth(&inode.i_block) == 0 {
        let Some(step) = plan(&inode.i_block, new) else {
            return Ok(None);
        };
        if !step.fits(&inode.i_block) || !step.may_free(handle) {
            return Ok(None);
        }
        step.prepare_to_free(blocks, inode)?;
        let done = raw::splice(&mut inode.i_block, step.from, step.to, &step.entries);
        return Ok(done.then(|| step.edited()));
    }
    let Some((place, end)) = find_leaf(handle, inode, new.file_block) else {
        return Ok(None);
    };
    // The range of the next leaf may begin before its first entry.
    if new.file_block.checked_add(new.len).is_none_or(|b| b > end) {
        return Ok(None);
    }
    let Some(step) = plan(&place.leaf, new) else {
        return Ok(None);
    };
    if !step.may_free(handle) || step.shrinks() {
        return Ok(None);
    }
    step.prepare_to_free(blocks, inode)?;
    if step.fits(&place.leaf) {
        return step.carry_out(handle, inode, place).map(Some);
    }
    // Appending is left to the general edit, which leaves the left leaf full instead of half full.
    if step.is_last {
        return Ok(None);
    }
    let Some(halves) = split::leaf(handle, blocks, inode, place)? else {
        return Ok(None);
    };
    // The half that the run belongs to has room. It is in memory, since the handle's transaction has changed it.
    let place = halves.place(handle, new.file_block);
    let step = place.and_then(|place| Some((plan(&place.leaf, new)?, place)));
    let split_in_vain = || Error::Damaged(format!("inode {}: its map is not in order", inode.ino));
    let done = step.ok_or_else(split_in_vain);
    let done = done.and_then(|(step, place)| step.carry_out(handle, inode, place));
    let edited = handle.or_abort(done)?;
    Ok(Some(Edited {
        nodes_taken: 1,
        ..edited
    }))
}

/// A replacement of some entries of a leaf.
struct Step {
    from: usize,
    to: usize,
    entries: SmallVec<[Extent; 3]>,
    /// The file blocks that the entries cover.
    window: (u64, u64),
    /// The blocks that are not mapped any more.
    removed: Option<MappedRun>,
    /// The entries are the last of the leaf.
    is_last: bool,
}

impl Step {
    /// Without a journal, the order in which blocks are written matters where others are freed: the general edit notes it.
    fn may_free(&self, handle: &JournalHandle<'_>) -> bool {
        self.removed.is_none() || handle.store().has_journal()
    }

    /// Blocks elsewhere join extents. The tree may need fewer nodes then, which is the general edit's work.
    fn shrinks(&self) -> bool {
        self.removed.is_some() && self.entries.len() < self.to - self.from
    }

    /// See [`TreeBlocks::prepare_to_free`].
    fn prepare_to_free(
        &self,
        blocks: &mut impl TreeBlocks,
        inode: &DiskInode,
    ) -> Result<(), Error> {
        match self.removed {
            Some(run) => blocks.prepare_to_free(inode, &[run], &[]),
            None => Ok(()),
        }
    }

    fn fits(&self, leaf: &[u8]) -> bool {
        raw::count(leaf) - (self.to - self.from) + self.entries.len() <= raw::room(leaf)
    }

    /// Replaces the entries in the leaf, which has room.
    fn carry_out(
        self,
        handle: &JournalHandle<'_>,
        inode: &DiskInode,
        place: Place,
    ) -> Result<Edited, Error> {
        if inode.is_dir() {
            handle.node(place.at, inode.ino);
        }
        handle.update_held(
            (place.at, Kind::Map.into(), owner(inode)),
            place.leaf,
            |bytes| {
                let done = raw::splice(bytes, self.from, self.to, &self.entries);
                done.then_some(()).ok_or_else(|| too_full(inode.ino))
            },
        )?;
        Ok(self.edited())
    }

    fn edited(self) -> Edited {
        let short = |b: u64| u32::try_from(b).expect("an extent ends below 2^32");
        Edited {
            window: short(self.window.0)..short(self.window.1),
            segments: self.entries.iter().map(extent_segment).collect(),
            removed: self.removed.into_iter().collect(),
            ..Edited::default()
        }
    }
}

/// The replacement that maps the run, if it lies between two extents of the leaf or inside one.
fn plan(leaf: &[u8], new: &NewRun) -> Option<Step> {
    let (start, end) = (
        u64::from(new.file_block),
        u64::from(new.file_block) + u64::from(new.len),
    );
    let run = Extent {
        block: FileBlock::new(start),
        len: new.len,
        start: new.start,
        unwritten: new.unwritten,
    };
    let after = raw::up_to(leaf, new.file_block);
    let before = raw::extent(leaf, after.checked_sub(1)?)?;
    if before.end() > start {
        return inside(leaf, after - 1, &before, run);
    }
    let Some(next) = raw::extent(leaf, after) else {
        return Some(behind_all(after, before, run));
    };
    if next.block.get() < end {
        return None;
    }
    let mut step = Step {
        from: after,
        to: after,
        entries: smallvec![run],
        window: (start, end),
        removed: None,
        is_last: false,
    };
    step.join_left(leaf);
    step.join_right(leaf);
    Some(step)
}

/// Adds a run behind the last entry of a leaf. The leaf's range on disk may be larger than in views that show the leaf as not loaded:
/// it has grown if the first entries of the next leaf were removed. So the entry before the run is part of the window, too, and
/// such views learn what is there now.
fn behind_all(at: usize, before: Extent, run: Extent) -> Step {
    let entries = match joined(&before, &run) {
        Some(both) => smallvec![both],
        None => smallvec![before, run],
    };
    Step {
        from: at - 1,
        to: at,
        entries,
        window: (before.block.get(), run.end()),
        removed: None,
        is_last: true,
    }
}

/// Changes the state of a part of an extent, from unwritten to written or back, or maps it to blocks of which the extent has none.
fn inside(leaf: &[u8], at: usize, old: &Extent, run: Extent) -> Option<Step> {
    let skip = run.block.get() - old.block.get();
    let now = old.start.get() + skip;
    let same_place = now == run.start.get();
    let (old_end, run_end) = (
        old.start.get() + u64::from(old.len),
        run.start.get() + u64::from(run.len),
    );
    let elsewhere = run_end <= old.start.get() || old_end <= run.start.get();
    let fits = if same_place {
        old.unwritten != run.unwritten
    } else {
        elsewhere
    };
    if run.end() > old.end() || !fits {
        return None;
    }
    let mut entries = SmallVec::new();
    entries.extend(part(old, old.block.get(), run.block.get()));
    entries.push(run);
    entries.extend(part(old, run.end(), old.end()));
    let mut step = Step {
        from: at,
        to: at + 1,
        entries,
        window: (old.block.get(), old.end()),
        removed: (!same_place).then_some((FsBlock::new(now), run.len)),
        is_last: false,
    };
    step.join_left(leaf);
    step.join_right(leaf);
    Some(step)
}

/// The part of an extent with the file blocks `from..to`; None if that is empty.
fn part(of: &Extent, from: u64, to: u64) -> Option<Extent> {
    let len = u32::try_from(to.checked_sub(from)?).ok()?;
    (len > 0).then(|| Extent {
        block: FileBlock::new(from),
        len,
        start: FsBlock::new(of.start.get() + (from - of.block.get())),
        unwritten: of.unwritten,
    })
}

impl Step {
    /// Joins the first entry with the entry on its left, if they are contiguous.
    fn join_left(&mut self, leaf: &[u8]) {
        let left = self.from.checked_sub(1).and_then(|n| raw::extent(leaf, n));
        if let Some(both) = left.and_then(|left| joined(&left, &self.entries[0])) {
            self.from -= 1;
            self.window.0 = both.block.get();
            self.entries[0] = both;
        }
    }

    fn join_right(&mut self, leaf: &[u8]) {
        let last = self.entries.len() - 1;
        let right = raw::extent(leaf, self.to);
        if let Some(both) = right.and_then(|right| joined(&self.entries[last], &right)) {
            self.to += 1;
            self.window.1 = both.end();
            self.entries[last] = both;
        }
    }
}

/// Two extents as one, if they are contiguous in the file and on the volume, and not too long.
fn joined(a: &Extent, b: &Extent) -> Option<Extent> {
    let len = a.len + b.len;
    let fits = a.unwritten == b.unwritten
        && a.end() == b.block.get()
        && a.start.get() + u64::from(a.len) == b.start.get()
        && len <= max_len(a.unwritten);
    fits.then_some(Extent { len, ..*a })
}
