//! Marks blocks as used or free on disk.
//!
//! Input: claimed runs, used runs, and a handle. Output: bits, counts and checksums, all changed in that handle. Invariants: only claimed
//! runs are marked used; the volume's own structures are never freed; freed blocks are not used again before the transaction is durable.
//! Limits: a run in several groups is changed group by group: after an error (damage, or a device that fails) the groups before it are
//! changed.

use super::bits::{Bits, Change, Way};
use super::claim::not_claimed;
use super::group::Group;
use super::{Alloc, Clusters, Reach, Reservation, Run, parts};
use crate::error::Error;
use crate::journal::JournalHandle;
use diorite_format::bitmap::BitmapKind;
use diorite_format::{FsBlock, GroupDesc, GroupNo};
use smallvec::SmallVec;

/// Credits for marking a claimed run: a bitmap and a descriptor.
pub(crate) const MARK_CREDITS: u32 = 2;

const SET: Change = Change {
    kind: BitmapKind::Block,
    way: Way::Set,
};
pub(super) const CLEAR: Change = Change {
    kind: BitmapKind::Block,
    way: Way::Clear,
};

impl Alloc {
    /// Marks a claimed run, or a part of one, as used on disk in this transaction. Blocks while metadata is read.
    ///
    /// # Errors
    /// The run is not claimed; damage; a device that fails. What was not marked stays claimed.
    pub(crate) fn mark_used(&self, handle: &JournalHandle<'_>, run: Run) -> Result<(), Error> {
        self.prepare_to_use(handle, [run], &mut None)?;
        self.mark_all_used(handle, &[run])
    }

    /// Loads what marking these runs changes, so that nobody waits for the device behind a group's lock, and a change that cannot be undone
    /// does not need the device. `last` is the group that was loaded last for the same change: it is not loaded again. Blocks while
    /// metadata is read.
    pub(crate) fn prepare_to_use(
        &self,
        handle: &JournalHandle<'_>,
        runs: impl IntoIterator<Item = Run>,
        last: &mut Option<GroupNo>,
    ) -> Result<(), Error> {
        let warm = |group| SET.warm(handle, &self.desc_of(group));
        for_groups(handle, runs, last, warm)
    }

    /// As [`Alloc::mark_used`] for many runs, after [`Alloc::prepare_to_use`]: each group's bitmap and descriptor are changed once.
    pub(crate) fn mark_all_used(
        &self,
        handle: &JournalHandle<'_>,
        runs: &[Run],
    ) -> Result<(), Error> {
        let sb = &handle.store().sb;
        let mut all = Vec::with_capacity(runs.len());
        for run in runs {
            for part in parts(sb, *run) {
                all.push(part?);
            }
        }
        all.sort_unstable_by_key(|part| (part.group, part.start));
        all.chunk_by(|a, b| a.group == b.group)
            .try_for_each(|of_group| self.mark_in(handle, of_group[0].group, of_group))
    }

    fn mark_in(
        &self,
        handle: &JournalHandle<'_>,
        group: GroupNo,
        all: &[Clusters],
    ) -> Result<(), Error> {
        let mut locked = self.slot(group).lock();
        if let Some(part) = all.iter().find(|part| !locked.is_claimed(**part)) {
            return Err(not_claimed(part.run(&handle.store().sb)));
        }
        let bits: Vec<Bits> = all.iter().map(|part| (part.start, part.len)).collect();
        let sum = all.iter().map(|part| part.len).sum();
        let group = &mut locked.group;
        let free = group.desc.free_clusters.checked_sub(sum);
        set_free(handle, group, SET, &bits, free)?;
        all.iter().for_each(|part| locked.claim_is_used(*part));
        self.totals.marked(sum);
        Ok(())
    }

    /// Loads what freeing these runs and nodes of maps changes. A change that cannot be undone frees blocks only after this: then a device
    /// that fails to read has failed before the change. Blocks while metadata is read.
    ///
    /// # Errors
    /// Damage; a device that fails.
    pub(crate) fn prepare_to_free(
        &self,
        handle: &JournalHandle<'_>,
        runs: &[(FsBlock, u32)],
        nodes: &[FsBlock],
    ) -> Result<(), Error> {
        let nodes = nodes.iter().map(|at| (*at, 1));
        let runs = runs.iter().copied().chain(nodes);
        let runs = runs.map(|(start, len)| Run { start, len });
        let prepare = |group| self.prepare(handle, CLEAR, group);
        for_groups(handle, runs, &mut None, prepare)
    }

    /// Loads what a change of a group's bitmap changes.
    pub(super) fn prepare(
        &self,
        handle: &JournalHandle<'_>,
        change: Change,
        group: GroupNo,
    ) -> Result<(), Error> {
        change.warm(handle, &self.desc_of(group))?;
        let locked = self.slot(group).lock();
        change.load(handle, &locked.group.desc)
    }

    /// Frees `len` used blocks from `start` on disk. They may be used again once the transaction is durable. Blocks while metadata is
    /// read.
    ///
    /// # Errors
    /// The blocks hold a part of the volume's own structures, are free already, or are not whole clusters: the map that named them is
    /// damaged.
    pub(crate) fn free(
        &self,
        handle: &JournalHandle<'_>,
        start: FsBlock,
        len: u32,
    ) -> Result<(), Error> {
        let run = Run { start, len };
        check_free(handle, run)?;
        for part in parts(&handle.store().sb, run) {
            self.free_in(handle, &[part?])
                .map_err(|e| e.at(format!("freeing {run}")))?;
        }
        Ok(())
    }

    /// As [`Alloc::free`] for many runs: each group's bitmap and descriptor are changed once. The runs are clusters of one group each,
    /// sorted by group.
    pub(super) fn free_parts(
        &self,
        handle: &JournalHandle<'_>,
        all: &[Clusters],
    ) -> Result<(), Error> {
        let sb = &handle.store().sb;
        all.iter()
            .try_for_each(|part| check_free(handle, part.run(sb)))?;
        all.chunk_by(|a, b| a.group == b.group)
            .try_for_each(|of_group| self.free_in(handle, of_group))
    }

    /// Frees runs of one group.
    fn free_in(&self, handle: &JournalHandle<'_>, all: &[Clusters]) -> Result<(), Error> {
        let group = all[0].group;
        CLEAR.warm(handle, &self.desc_of(group))?;
        let mut locked = self.slot(group).lock();
        let bits: SmallVec<[Bits; 1]> = all.iter().map(|part| (part.start, part.len)).collect();
        let sum = all.iter().map(|part| part.len).sum();
        let group = &mut locked.group;
        let free = group.desc.free_clusters.checked_add(sum);
        set_free(handle, group, CLEAR, &bits, free)?;
        all.iter().for_each(|part| locked.wait(*part));
        self.totals.freed(sum);
        drop(locked);
        let blocks = all.iter().map(|part| part.run(&handle.store().sb));
        handle.freed(blocks.map(|run| (run.start, run.len)));
        Ok(())
    }

    /// Claims a run of up to `want` blocks and marks it used, for blocks of metadata. Blocks while metadata is read.
    ///
    /// # Errors
    /// As [`Alloc::claim`] and [`Alloc::mark_used`]. After `WouldBlock(Commit)` the handle must be ended before committing.
    pub(crate) fn allocate(
        &self,
        handle: &JournalHandle<'_>,
        goal: FsBlock,
        want: u32,
        reach: Reach,
    ) -> Result<Run, Error> {
        let run = self.claim(handle.store(), goal, want, reach)?;
        self.mark_or_give_back(handle, run)
    }

    /// As [`Alloc::allocate`], for one cluster from `reservation`: it cannot fail for lack of space.
    ///
    /// # Errors
    /// Damage; a device that fails; the reservation is used up.
    pub(crate) fn allocate_reserved(
        &self,
        handle: &JournalHandle<'_>,
        reservation: &mut Reservation,
        goal: FsBlock,
    ) -> Result<Run, Error> {
        let run = self.claim_reserved(handle.store(), goal, reservation)?;
        self.mark_or_give_back(handle, run)
    }

    pub(super) fn mark_or_give_back(
        &self,
        handle: &JournalHandle<'_>,
        run: Run,
    ) -> Result<Run, Error> {
        match self.mark_used(handle, run) {
            Ok(()) => Ok(run),
            Err(error) => {
                self.unclaim(handle.store(), run)?;
                Err(error)
            }
        }
    }

    /// The descriptor of a group, as the running transaction has it.
    pub(crate) fn desc_of(&self, group: GroupNo) -> GroupDesc {
        self.slot(group).lock().group.desc.clone()
    }
}

/// Refuses to free a part of the volume's own structures.
fn check_free(handle: &JournalHandle<'_>, run: Run) -> Result<(), Error> {
    match handle.store().metadata_in(run.start, u64::from(run.len)) {
        None => Ok(()),
        Some(what) => Err(Error::Damaged(format!(
            "{run} are to be freed, where {what} lies; run e2fsck"
        ))),
    }
}

/// Calls `part` for each group of these runs, rounded out to clusters.
fn for_groups(
    handle: &JournalHandle<'_>,
    runs: impl IntoIterator<Item = Run>,
    last: &mut Option<GroupNo>,
    part: impl Fn(GroupNo) -> Result<(), Error>,
) -> Result<(), Error> {
    for run in runs {
        let sb = &handle.store().sb;
        for clusters in parts(sb, Alloc::around(sb, run)?) {
            let group = clusters?.group;
            if *last != Some(group) {
                part(group)?;
                *last = Some(group);
            }
        }
    }
    Ok(())
}

/// Changes bits of a group's block bitmap, and sets the number of its free clusters.
fn set_free(
    handle: &JournalHandle<'_>,
    group: &mut Group,
    change: Change,
    bits: &[Bits],
    free: Option<u32>,
) -> Result<(), Error> {
    let mut desc = group.desc.clone();
    let bits = change.begin(handle, &mut desc, |_| Ok(bits))?;
    // The count was compared with the bitmap before a run was claimed. If it is wrong, writing the descriptor fails.
    desc.free_clusters = free.unwrap_or(u32::MAX);
    change.finish(handle, &group.desc, &desc, bits)?;
    group.desc = desc;
    Ok(())
}
