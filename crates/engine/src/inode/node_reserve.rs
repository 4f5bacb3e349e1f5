//! Blocks set aside for the nodes that conversions may need (rule U5): a write that was admitted never fails for space.
//!
//! Input: what a write into new space may need at most, before its data goes down. Output: a part of the free count that only conversions
//! of this file take from; given back as writes end. Invariants: as long as a write is under way, either there is a block for every node
//! that all of them may need, or the leaves have room for what they may add. Limits: where nothing is free but the leaves have room, a write goes
//! without; where they have not, it is refused.
//!
//! Example: A and B go without, as the leaf has room for their four entries. C sets two blocks aside, converts first, and fills the leaf. What it
//! has not used stays, since what A and B may need is more; A's split takes from it.

use crate::alloc::{Alloc, Reservation, Run};
use crate::error::Error;
use crate::inode::Inode;
use crate::journal::JournalHandle;
use crate::locks::CLAIMS;
use crate::map::edit;
use crate::mapping::{Mapping, MappingState};
use crate::turn::NodesNeeded;
use diorite_block::sync::Mutex;
use diorite_format::{FsBlock, MapKind};

/// See the module.
#[derive(Debug)]
pub(crate) struct NodeReserve {
    pool: Mutex<Pool>,
}

#[derive(Debug, Default)]
struct Pool {
    blocks: Option<Reservation>,
    /// What the writes under way may need, all together.
    owed: NodesNeeded,
    /// Writes that have ended.
    ended: u64,
}

impl NodeReserve {
    pub(crate) fn new(level: u8) -> NodeReserve {
        NodeReserve {
            pool: Mutex::at_level(&CLAIMS, level, Pool::default()),
        }
    }

    /// A block that was set aside, used for a node. None: there is none.
    pub(super) fn take(
        &self,
        alloc: &Alloc,
        handle: &JournalHandle<'_>,
        goal: FsBlock,
    ) -> Option<Result<Run, Error>> {
        // Submitters take the lock: nobody has it while a bitmap is read.
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

    /// A write has ended.
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
    /// Sets aside what the conversion of an entry's part of `mappings` may need, once. Blocks on nothing.
    pub(crate) fn set_aside(&self, entry: u64, mappings: &[Mapping]) -> Result<(), Error> {
        let share = self.share_of(mappings);
        if share.nodes == 0 || self.pending.share(entry) != NodesNeeded::default() {
            return Ok(());
        }
        self.take_share(share)?;
        self.pending.note_share(entry, share);
        Ok(())
    }

    /// Goes without, if the leaves have room for what all writes under way may add to them. Blocks while the device reads.
    pub(crate) fn go_without(&self, entry: u64, mappings: &[Mapping]) -> bool {
        let share = self.share_of(mappings);
        let starts = new_parts(mappings).map(|m| m.start);
        let fits = self.owe_without(share, starts);
        if fits {
            self.pending.note_share(entry, share);
        }
        fits
    }

    /// Sets aside what mapping all of these may need, or goes without, for a write by who has the turn; to be given to [`NodeReserve::end`]. Blocks.
    pub(super) fn set_aside_at_once(&self, mappings: &[Mapping]) -> Result<NodesNeeded, Error> {
        let starts = new_parts(mappings).map(|m| m.start);
        self.take_share_or_owe(self.share_of(mappings), starts)
    }

    /// The same for extents each of which becomes one more.
    pub(crate) fn set_aside_for_splits(&self, splits: &[Mapping]) -> Result<NodesNeeded, Error> {
        let lens = splits.iter().map(|_| 1);
        let (nodes, _) = edit::most_nodes(&self.volume, &self.disk(), lens);
        let entries = u32::try_from(splits.len()).expect("as many as a range has ends");
        match self.disk().map_kind() {
            MapKind::Extents => {
                let starts = splits.iter().map(|m| m.start);
                self.take_share_or_owe(NodesNeeded { nodes, entries }, starts)
            }
            _ => Ok(NodesNeeded::default()),
        }
    }

    /// The same for nodes that are written anew, for which there has to be room.
    pub(crate) fn set_aside_nodes(&self, nodes: u32) -> Result<NodesNeeded, Error> {
        let share = NodesNeeded { nodes, entries: 0 };
        if nodes > 0 {
            self.volume.with_all_space(|| self.take_share(share))?;
        }
        Ok(share)
    }

    fn take_share_or_owe(
        &self,
        share: NodesNeeded,
        starts: impl Iterator<Item = u64> + Clone,
    ) -> Result<NodesNeeded, Error> {
        if share.nodes == 0 {
            return Ok(NodesNeeded::default());
        }
        match self.volume.with_all_space(|| self.take_share(share)) {
            Err(Error::NoSpace { .. }) if self.owe_without(share, starts) => Ok(share),
            taken => taken.map(|()| share),
        }
    }

    fn take_share(&self, share: NodesNeeded) -> Result<(), Error> {
        let privileged = self.volume.privileged;
        let alloc = self.volume.alloc()?;
        let more = alloc.reserve(u64::from(share.nodes), privileged)?;
        let mut pool = self.node_reserve.pool.lock();
        match &mut pool.blocks {
            Some(blocks) => blocks.absorb(more),
            none => *none = Some(more),
        }
        pool.add(share);
        Ok(())
    }

    fn owe_without(&self, share: NodesNeeded, starts: impl Iterator<Item = u64> + Clone) -> bool {
        loop {
            let seen = self.node_reserve.pool.lock().ended;
            let disk = self.disk();
            let rooms = starts
                .clone()
                .map(|at| edit::room_at(&self.volume, &disk, at));
            let room = rooms.min().unwrap_or(u32::MAX);
            let mut pool = self.node_reserve.pool.lock();
            if pool.ended != seen {
                // What it has added may be missing in both counts.
                continue;
            }
            let fits = room >= pool.owed.entries.saturating_add(share.entries);
            if fits {
                pool.add(share);
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

impl Pool {
    fn add(&mut self, share: NodesNeeded) {
        self.owed.nodes += share.nodes;
        self.owed.entries += share.entries;
    }
}

/// What is not written yet.
fn new_parts(mappings: &[Mapping]) -> impl Iterator<Item = &Mapping> + Clone {
    let is_new = |m: &&Mapping| !matches!(m.state, MappingState::Written(_));
    mappings.iter().filter(is_new)
}
