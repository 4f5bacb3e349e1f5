//! Allocates all space for a write that needs several handles before the first handle begins. So a write that fails for lack of space has
//! changed nothing.
//!
//! Input: file blocks; the caller has the turn on the file. Output: their mappings, with claimed blocks in the place of holes; blocks
//! reserved for nodes of the map, unless the page cache has reserved them when its pages became dirty. Invariants: each claimed block is
//! mapped or given back. Limits: blocks the calling thread; commits if that makes freed blocks usable.

use super::{From, Inode};
use crate::alloc::Run;
use crate::error::Error;
use crate::mapping::{Mapping, MappingState};
use crate::turn::pending::{Claimed, NodesNeeded};
use diorite_format::FsBlock;
use std::ops::Range;

/// The space for one write, to be ended with [`Inode::end_space`].
pub(super) struct Space {
    /// The mappings of the whole range, without holes.
    pub(super) mappings: Vec<Mapping>,
    claims: Vec<Claimed>,
    share: NodesNeeded,
}

impl Space {
    /// Is the block that this file block gets a claimed one?
    pub(super) fn is_claimed(&self, block: u64) -> bool {
        self.claims.iter().any(|c| c.blocks().contains(&block))
    }
}

impl Inode {
    /// Takes space for these file blocks. If it fails, it keeps nothing.
    pub(super) fn take_space(&self, blocks: Range<u64>, from: From) -> Result<Space, Error> {
        let mut space = Space {
            mappings: Vec::new(),
            claims: Vec::new(),
            share: NodesNeeded::default(),
        };
        let taken = self.fill_space(&mut space, blocks.clone(), from);
        let share = taken.and_then(|()| match from {
            From::Free => {
                let reach = self.reach_of_nodes(space.claims.is_empty());
                self.set_aside_at_once(&space.mappings, reach)
            }
            From::Delayed => Ok(NodesNeeded::default()),
        });
        match share {
            Ok(share) => Ok(Space { share, ..space }),
            Err(error) => {
                self.end_space(&space, blocks.start);
                Err(error)
            }
        }
    }

    fn fill_space(&self, space: &mut Space, blocks: Range<u64>, from: From) -> Result<(), Error> {
        let view = self.load_map(self.whole_clusters(blocks.clone()))?;
        for mapping in view.walk(blocks.start, blocks.end).flatten() {
            if mapping.state != MappingState::Hole {
                space.mappings.push(mapping);
                continue;
            }
            let (mut start, end) = (mapping.start, mapping.start + mapping.len);
            while start < end {
                let want = u32::try_from(end - start).unwrap_or(u32::MAX);
                let take = || self.claims.take_from(from, self, &view, (start, want));
                let run = self.volume.with_space_of_others(take)?;
                let file_block = u32::try_from(start).expect("the largest size was checked");
                space.claims.push(Claimed { file_block, run });
                let (len, state) = (u64::from(run.len), MappingState::Unwritten(run.start));
                space.mappings.push(Mapping { start, len, state });
                start += len;
            }
        }
        Ok(())
    }

    /// Ends the write: gives back the claims from file block `unmapped` on, which were not mapped, and the reserve for nodes.
    pub(super) fn end_space(&self, space: &Space, unmapped: u64) {
        for claim in &space.claims {
            let blocks = claim.blocks();
            let mut from = unmapped.max(blocks.start);
            if from > blocks.start {
                // A cluster belongs to the file if any of its blocks is mapped.
                from = self.whole_clusters(blocks.start..from).end;
            }
            if from < blocks.end {
                self.give_back(Run {
                    start: FsBlock::new(claim.run.start.get() + (from - blocks.start)),
                    len: u32::try_from(blocks.end - from).expect("a part of the run"),
                });
            }
        }
        self.claims.close(self);
        self.node_reserve.end(space.share);
    }
}
