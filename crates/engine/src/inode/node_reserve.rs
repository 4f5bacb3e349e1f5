//! Blocks reserved for the nodes that conversions may need (rule U5): a write that was admitted never fails for lack of space.
//!
//! Input: the most that a write into new space may need, before its data goes down. Output: a part of the free count from which only
//! conversions of this file take; it is given back as writes end. Invariants: while writes are under way, either a block is reserved for
//! every node that all of them may need, or the leaves have room for all entries that they may add. Limits: a write is admitted without
//! a reserve if the map is a root with room, which costs no look at the device, and, if no block is free, if the leaves have room; if they
//! have none, it is refused, unless `range/zero_out` makes room for it.
//!
//! Example: A and B are admitted without a reserve, as the leaf has room for their four entries. C reserves two blocks, converts first,
//! and fills the leaf. What C has not used stays reserved, since A and B may need more than that; the split for A takes from it.

use crate::alloc::{Alloc, Reach, Reservation, Run};
use crate::error::Error;
use crate::inode::Inode;
use crate::journal::JournalHandle;
use crate::locks::CLAIMS;
use crate::map::edit;
use crate::mapping::{Mapping, MappingState};
use crate::turn::NodesNeeded;
use diorite_block::sync::Mutex;
use diorite_format::{FsBlock, Inode as DiskInode, MapKind};

/// The reserve of one file.
#[derive(Debug)]
pub(crate) struct NodeReserve {
    pool: Mutex<Pool>,
}

#[derive(Debug, Default)]
struct Pool {
    blocks: Option<Reservation>,
    /// The most that all writes under way together may need.
    owed: NodesNeeded,
    /// How many writes have ended.
    ended: u64,
}

impl NodeReserve {
    pub(crate) fn new(level: u8) -> NodeReserve {
        NodeReserve {
            pool: Mutex::at_level(&CLAIMS, level, Pool::default()),
        }
    }

    /// Takes a reserved block for a node. None if none is reserved.
    pub(super) fn take(
        &self,
        alloc: &Alloc,
        handle: &JournalHandle<'_>,
        goal: FsBlock,
    ) -> Option<Result<Run, Error>> {
        // Submitters take this lock, so it is not held while a bitmap is read.
        let mut one = self.pool.lock().blocks.as_mut()?.take_one()?;
        let taken = alloc.allocate_reserved(handle, &mut one, goal);
        let mut pool = self.pool.lock();
        let most = u64::from(pool.owed.nodes);
        if let Some(blocks) = pool.blocks.as_mut().filter(|_| one.left() > 0) {
            blocks.absorb(one);
            blocks.keep(most);
        }
        Some(taken)
    }

    /// How many entries writes under way may add for which no block is reserved.
    pub(super) fn counted_on(&self) -> usize {
        let pool = self.pool.lock();
        let reserved = pool.blocks.as_ref().map_or(0, Reservation::left);
        match u64::from(pool.owed.nodes) <= reserved {
            true => 0,
            false => pool.owed.entries as usize,
        }
    }

    /// Ends a write's part: what is reserved beyond the need of the others is given back.
    pub(crate) fn end(&self, share: NodesNeeded) {
        if share == NodesNeeded::default() {
            return;
        }
        let mut pool = self.pool.lock();
        pool.ended += 1;
        pool.owed.nodes -= share.nodes;
        pool.owed.entries -= share.entries;
        let most = u64::from(pool.owed.nodes);
        match &mut pool.blocks {
            Some(blocks) if most > 0 => blocks.keep(most),
            _ => pool.blocks = None,
        }
    }
}

impl Inode {
    /// Reserves what the conversion of an entry's part of `mappings` may need, unless the entry has a reserve, or the root has room.
    /// `replaces`: the file has blocks in all of the range. Blocks on nothing.
    pub(crate) fn set_aside(
        &self,
        entry: u64,
        mappings: &[Mapping],
        replaces: bool,
    ) -> Result<(), Error> {
        let share = self.share_of(mappings);
        if share.nodes == 0 || self.pending.share(entry) != NodesNeeded::default() {
            return Ok(());
        }
        let end = new_parts(mappings).map(|m| m.start + m.len).max();
        if !self.owe_in_root(share, end.unwrap_or(0)) {
            let has_blocks = replaces || !self.pending.has_claims(entry);
            let taken = self.take_share(share, self.reach_of_nodes(has_blocks));
            match taken {
                Err(Error::NoSpace { .. }) if replaces && self.take_share_of_spare(share)? => {}
                taken => taken?,
            }
        }
        self.pending.note_share(entry, share);
        Ok(())
    }

    /// Admits a write without a reserve, if the leaves have room for all entries that the writes under way may add. Blocks while the
    /// device reads.
    pub(crate) fn go_without(&self, entry: u64, mappings: &[Mapping]) -> bool {
        let share = self.share_of(mappings);
        let fits = self.owe_without(share, new_parts(mappings));
        if fits {
            self.pending.note_share(entry, share);
        }
        fits
    }

    /// Reserves what mapping these may need, or admits the write without a reserve; for a write that has the turn. The result must be
    /// given to [`NodeReserve::end`]. Blocks.
    pub(super) fn set_aside_at_once(
        &self,
        mappings: &[Mapping],
        reach: Reach,
    ) -> Result<NodesNeeded, Error> {
        let share = self.share_of(mappings);
        self.take_share_or_owe((share, reach), new_parts(mappings))
    }

    /// How much of the free space nodes may take for a write whose blocks the file has already, or has not.
    pub(super) fn reach_of_nodes(&self, has_blocks: bool) -> Reach {
        match has_blocks {
            true => Reach::All,
            false => self.volume.reach,
        }
    }

    /// As [`Inode::set_aside_at_once`], for extents each of which is going to be split into two.
    pub(crate) fn set_aside_for_splits(&self, splits: &[Mapping]) -> Result<NodesNeeded, Error> {
        let lens = splits.iter().map(|_| 1);
        let (nodes, _) = edit::most_nodes(&self.volume, &self.disk(), lens);
        let entries = u32::try_from(splits.len()).expect("as many as a range has ends");
        match self.disk().map_kind() {
            MapKind::Extents => {
                let share = NodesNeeded { nodes, entries };
                self.take_share_or_owe((share, Reach::All), splits.iter())
            }
            _ => Ok(NodesNeeded::default()),
        }
    }

    /// As [`Inode::set_aside_at_once`], for nodes that are written anew; here a reserve is required.
    pub(crate) fn set_aside_nodes(&self, nodes: u32) -> Result<NodesNeeded, Error> {
        let share = NodesNeeded { nodes, entries: 0 };
        if nodes > 0 {
            self.volume
                .with_space_of_others(|| self.take_share(share, self.volume.reach))?;
        }
        Ok(share)
    }

    fn take_share_or_owe<'m>(
        &self,
        (share, reach): (NodesNeeded, Reach),
        runs: impl Iterator<Item = &'m Mapping> + Clone,
    ) -> Result<NodesNeeded, Error> {
        if share.nodes == 0 {
            return Ok(NodesNeeded::default());
        }
        let taken = || self.take_share(share, reach);
        match self.volume.with_space_of_others(taken) {
            Err(Error::NoSpace { .. }) if self.owe_without(share, runs) => Ok(share),
            taken => taken.map(|()| share),
        }
    }

    /// Takes a share, or relies on the room that the leaves of these mappings have.
    pub(super) fn take_share_or_rely(
        &self,
        (share, reach): (NodesNeeded, Reach),
        mappings: &[Mapping],
    ) -> Result<(), Error> {
        match self.take_share(share, reach) {
            Err(Error::NoSpace { .. }) if self.owe_without(share, new_parts(mappings)) => Ok(()),
            taken => taken,
        }
    }

    fn take_share(&self, share: NodesNeeded, reach: Reach) -> Result<(), Error> {
        let alloc = self.volume.alloc()?;
        self.add_share(share, alloc.reserve(u64::from(share.nodes), reach)?);
        Ok(())
    }

    /// As [`Inode::take_share`], from what is kept for atomic writes. False if there is not enough.
    fn take_share_of_spare(&self, share: NodesNeeded) -> Result<bool, Error> {
        let more = self.volume.alloc()?.reserve_spare(u64::from(share.nodes))?;
        Ok(more.map(|more| self.add_share(share, more)).is_some())
    }

    fn add_share(&self, share: NodesNeeded, more: Reservation) {
        let mut pool = self.node_reserve.pool.lock();
        match &mut pool.blocks {
            Some(blocks) => blocks.absorb(more),
            none => *none = Some(more),
        }
        pool.owed.add(share);
    }

    /// Counts a share of blocks below `end` for which nothing is reserved, if the root has room for it. Blocks on nothing.
    pub(super) fn owe_in_root(&self, share: NodesNeeded, end: u64) -> bool {
        self.owe_where(share, |disk| edit::room_in_root(disk, end))
    }

    fn owe_without<'m>(
        &self,
        share: NodesNeeded,
        runs: impl Iterator<Item = &'m Mapping> + Clone,
    ) -> bool {
        self.owe_where(share, |disk| {
            let room =
                |run: &Mapping| edit::room_for(&self.volume, disk, run.start..run.start + run.len);
            runs.clone().map(room).min().unwrap_or(u32::MAX)
        })
    }

    /// Counts a share for which nothing is reserved, if there is `room` for it beside all that is owed.
    fn owe_where(&self, share: NodesNeeded, room: impl Fn(&DiskInode) -> u32) -> bool {
        loop {
            let seen = self.node_reserve.pool.lock().ended;
            let room = room(&self.disk());
            let mut pool = self.node_reserve.pool.lock();
            if pool.ended != seen {
                // A write that ended meanwhile may be missing in both counts: in what is owed, and in the room that was read.
                continue;
            }
            let fits = room >= pool.owed.entries.saturating_add(share.entries);
            if fits {
                pool.owed.add(share);
            }
            return fits;
        }
    }

    fn share_of(&self, mappings: &[Mapping]) -> NodesNeeded {
        let lens = new_parts(mappings).map(|m| m.len);
        let (nodes, entries) = edit::most_nodes(&self.volume, &self.disk(), lens);
        NodesNeeded { nodes, entries }
    }
}

/// The mappings that are not written yet.
fn new_parts(mappings: &[Mapping]) -> impl Iterator<Item = &Mapping> + Clone {
    let is_new = |m: &&Mapping| !matches!(m.state, MappingState::Written(_));
    mappings.iter().filter(is_new)
}
