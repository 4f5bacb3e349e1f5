//! Space for blocks that are dirty in the page cache and have no place yet (delayed allocation): reserved when they are written, so
//! write-back never fails for lack of it.
//!
//! Input: holes and unwritten blocks that are going to be dirty. Output: a part of the free count from which only write-back of this file
//! claims; a reserve of nodes for its conversions. Invariants: at least as much is reserved as the dirty blocks need, as long as nobody
//! takes blocks of the map away that were mapped when they became dirty; what is left goes back when the file has no dirty block. Limits:
//! with bigalloc each write reserves whole clusters, also where an earlier one has reserved the same; when space is short everything is
//! written back, which gives that back.

use super::Inode;
use crate::alloc::{Reach, Reservation};
use crate::error::Error;
use crate::locks::DELAYED;
use crate::map::edit;
use crate::mapping::{Mapping, MappingState};
use crate::turn::NodesNeeded;
use diorite_block::sync::Mutex;
use diorite_format::Inode as DiskInode;
use std::ops::Range;

/// What one file has reserved.
#[derive(Debug)]
pub(crate) struct Delayed {
    pool: Mutex<Pool>,
}

#[derive(Debug, Default)]
struct Pool {
    space: Option<Reservation>,
    /// Blocks for which space was reserved: dirty ones, and those that a write is about to make dirty.
    owed: u64,
    /// New runs of blocks, with space or unwritten, and how many blocks they have.
    runs: u64,
    blocks: u64,
    /// The nodes reserved for their conversion.
    share: NodesNeeded,
    /// Writes that have a [`Reserved`] now.
    writers: u32,
}

/// Space for one write to the cache. What the write does not use is given back on drop.
#[derive(Debug)]
pub(crate) struct Reserved<'a> {
    inode: &'a Inode,
    pub(crate) holes: Vec<Range<u64>>,
    /// Blocks of the pool that are of this write, as long as it has not made them dirty.
    unused: u64,
}

impl Pool {
    /// Keeps as much space as is owed.
    fn trim(&mut self) {
        let owed = self.owed;
        if let Some(space) = self.space.as_mut() {
            space.keep(owed);
        }
    }

    fn absorb(&mut self, more: Reservation) {
        match &mut self.space {
            Some(space) => space.absorb(more),
            none => *none = Some(more),
        }
    }
}

impl Delayed {
    pub(crate) fn new(level: u8) -> Delayed {
        Delayed {
            pool: Mutex::at_level(&DELAYED, level, Pool::default()),
        }
    }

    /// For how many blocks space is reserved.
    pub(super) fn owed(&self) -> u64 {
        self.pool.lock().owed
    }

    /// Takes space for at most `clusters` from the reserve, for a claim.
    pub(super) fn take(&self, clusters: u64) -> Option<Reservation> {
        let mut pool = self.pool.lock();
        pool.space.as_mut()?.take_some(clusters)
    }

    /// Gives back what a claim has not used.
    pub(super) fn put_back(&self, rest: Reservation) {
        let mut pool = self.pool.lock();
        pool.absorb(rest);
        pool.trim();
    }
}

impl Inode {
    /// Reserves space for the write of these blocks. Blocks while the device reads; the caller is counted in flight.
    ///
    /// # Errors
    /// `NoSpace`, with nothing changed; `WouldBlock(Commit)`; a damaged map.
    pub(crate) fn reserve_delayed(&self, blocks: Range<u64>) -> Result<Reserved<'_>, Error> {
        self.delayed.pool.lock().writers += 1;
        let mut reserved = Reserved {
            inode: self,
            holes: Vec::new(),
            unused: 0,
        };
        let end = blocks.end;
        let mappings = self.mappings(blocks)?;
        let ratio = u64::from(self.volume.sb.geometry().cluster_ratio());
        let is_hole = |m: &&Mapping| m.state == MappingState::Hole;
        let clusters = |m: &Mapping| (m.start + m.len).div_ceil(ratio) - m.start / ratio;
        let holes = mappings.iter().filter(is_hole);
        let needed: u64 = holes.clone().map(clusters).sum();
        reserved.holes = holes.map(|m| m.start..m.start + m.len).collect();
        let new = mappings
            .iter()
            .filter(|m| !matches!(m.state, MappingState::Written(_)));
        let (runs, count) = new.fold((0, 0), |(n, sum), m| (n + 1, sum + m.len));
        if count == 0 {
            return Ok(reserved);
        }
        let alloc = self.volume.alloc()?;
        let reach = self.reach_of_nodes(needed == 0);
        if needed > 0 {
            let space = alloc.reserve(needed, self.volume.reach)?;
            // Before the blocks become dirty: write-back may claim them at once.
            reserved.unused = reserved.holes.iter().map(|h| h.end - h.start).sum();
            let mut pool = self.delayed.pool.lock();
            pool.owed += reserved.unused;
            pool.absorb(space);
        }
        self.reserve_nodes(end, (runs, count), (&mappings, reach))?;
        Ok(reserved)
    }

    /// Makes the reserve of nodes large enough for so many runs and blocks more, which end below `end`; if no block is free, the leaves of
    /// these mappings may have room.
    fn reserve_nodes(
        &self,
        end: u64,
        (runs, blocks): (u64, u64),
        (mappings, reach): (&[Mapping], Reach),
    ) -> Result<(), Error> {
        let disk = self.disk();
        let more = {
            let mut pool = self.delayed.pool.lock();
            pool.runs += runs;
            pool.blocks += blocks;
            let wanted = self.nodes_for(&disk, &pool);
            wanted.without(pool.share)
        };
        if more == NodesNeeded::default() {
            return Ok(());
        }
        if !self.owe_in_root(more, end) {
            self.take_share_or_rely((more, reach), mappings)?;
        }
        // Only now: who sees it relies on it. Others may have taken the same, which goes back in the end.
        self.delayed.pool.lock().share.add(more);
        Ok(())
    }

    /// The most that conversions of the pool's runs need: parts of a run are written back on their own, and a run may be claimed in parts.
    fn nodes_for(&self, disk: &DiskInode, pool: &Pool) -> NodesNeeded {
        let (nodes, entries) =
            edit::most_nodes_in_pieces(&self.volume, disk, pool.runs, pool.blocks);
        NodesNeeded { nodes, entries }
    }

    /// Call when so many blocks for which space was reserved were written back, or could not be.
    pub(crate) fn end_delayed(&self, blocks: u64) {
        self.end_part(|pool| pool.owed -= blocks);
    }

    /// Ends a part of what is owed, and gives back what is not needed any more.
    fn end_part(&self, end: impl FnOnce(&mut Pool)) {
        let disk = self.disk();
        let mut pool = self.delayed.pool.lock();
        end(&mut pool);
        pool.trim();
        // The runs of a writer are not among the dirty blocks yet.
        if pool.writers > 0 {
            return;
        }
        pool.blocks = pool.blocks.min(self.pages.unwritten());
        pool.runs = pool.runs.min(pool.blocks);
        let needed = self.nodes_for(&disk, &pool);
        let more = pool.share.without(needed);
        pool.share = pool.share.without(more);
        drop(pool);
        self.node_reserve.end(more);
    }
}

impl Reserved<'_> {
    /// Call when the write has made so many blocks dirty that have the space.
    pub(crate) fn used(mut self, blocks: u64) {
        self.unused -= blocks;
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.inode.end_part(|pool| {
            pool.writers -= 1;
            pool.owed -= self.unused;
        });
    }
}
