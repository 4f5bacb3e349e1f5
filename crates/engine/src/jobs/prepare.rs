//! Work before a request's data goes down for which its submitter may not wait.
//!
//! Input: a request, counted in flight, and what it needs. Output: a message to its queue, with a view of the map for the next attempt,
//! or with an error. Invariants: no lock is held and no handle is open while a commit is waited for. Limits: one request at a time per
//! worker.

use crate::attr::prepare_first_write;
use crate::delete;
use crate::error::{Error, Wait};
use crate::inode::Handle;
use crate::inode::{Patience, Shortage, fill, fill_anew, is_mapped};
use crate::map::MapView;
use crate::range::{end_cut, zero_out};
use crate::threads::{Lead, Task, contained};
use crate::turn::{Mail, Message};
use std::ops::Range;
use std::sync::Arc;

/// One request, and what it needs.
#[derive(Debug)]
pub(crate) struct PrepareJob {
    /// Before the queue, so that it is dropped first: the drop of the queue waits for this job to let go of it.
    pub(crate) file: Arc<Handle>,
    pub(crate) queue: Arc<dyn Mail>,
    pub(crate) slot: u32,
    pub(crate) need: Need,
}

/// What a request needs before its data goes down.
#[derive(Debug)]
pub(crate) enum Need {
    /// Space for a write: its part of the map, bitmaps to claim from, zeros behind the old end.
    Space {
        entry: u64,
        blocks: Range<u64>,
        extends: bool,
        /// The request has the turn.
        alone: bool,
        /// It is an atomic write.
        anew: bool,
    },
    /// What has to be done before the first write of a file; with `alone` (the request has the turn) also what must precede a growing
    /// size.
    FirstWrite { alone: bool },
}

/// What came of preparing a request.
enum Prepared {
    With(Arc<MapView>),
    /// Only the exclusive turn can help.
    OnlyAlone,
}

impl PrepareJob {
    fn prepare(&self) -> Result<Prepared, Error> {
        match &self.need {
            Need::FirstWrite { alone } => {
                if *alone {
                    end_cut(&self.file.inode)?;
                }
                match self.file.of_cache {
                    true => self.file.inode.move_out()?,
                    false => prepare_first_write(&self.file.inode)?,
                }
                Ok(Prepared::With(self.file.inode.map.load()))
            }
            Need::Space {
                entry,
                blocks,
                extends,
                alone,
                anew,
            } => self.make_room(*entry, blocks, (*extends, *alone, *anew)),
        }
    }

    fn make_room(
        &self,
        entry: u64,
        blocks: &Range<u64>,
        (extends, alone, anew): (bool, bool, bool),
    ) -> Result<Prepared, Error> {
        let inode = &self.file.inode;
        if extends {
            inode.zero_tail_in(entry)?;
        }
        let mut view = inode.load_map(inode.whole_clusters(blocks.clone()))?;
        let mut shortage = Shortage::default();
        loop {
            let of_cache = self.file.of_cache;
            let how = (Patience::Waits, self.file.claims_from());
            let filled = match anew {
                true => fill_anew(inode, &view, entry, blocks.clone(), Patience::Waits),
                false => fill(inode, &view, entry, blocks.clone(), how),
            };
            let room = filled.and_then(|filled| {
                if of_cache {
                    // Its nodes were reserved when its pages became dirty.
                    return Ok(());
                }
                let mappings = filled.unwrap_or_default();
                let replaces = anew && is_mapped(&view, blocks);
                match inode.set_aside(entry, &mappings, replaces) {
                    Err(Error::NoSpace { .. })
                        if (alone || shortage.was_met()) && inode.go_without(entry, &mappings) =>
                    {
                        Ok(())
                    }
                    other => other,
                }
            });
            match room {
                // Freed blocks can be used once the transaction that freed them is durable.
                Err(Error::WouldBlock(Wait::Commit)) => inode.volume.commit_running()?,
                // Before `NoSpace` is reported, what others keep or reserve for a while, and blocks of deleted files, are given back.
                Err(Error::NoSpace { .. }) if anew && !alone && inode.has_swapped() => {
                    return Ok(Prepared::OnlyAlone);
                }
                Err(error @ Error::NoSpace { .. }) => {
                    // All of it is preallocated, so only nodes of the map are missing. What an atomic write finds written needs new
                    // blocks, so zeros would not help it.
                    let only_nodes = !of_cache && !anew && inode.pending.claims(entry).is_empty();
                    let has_blocks = only_nodes && is_mapped(&view, blocks);
                    if alone && has_blocks && zero_out(inode, blocks.clone())? {
                        view = inode.load_map(inode.whole_clusters(blocks.clone()))?;
                        continue;
                    }
                    // Meanwhile others can use what this one has. The claims of write-back are of the reserve of its file.
                    if !of_cache {
                        inode.give_back_claims(entry);
                    }
                    if !shortage.relieve(&inode.volume) {
                        return match has_blocks && !alone {
                            true => Ok(Prepared::OnlyAlone),
                            false => Err(error),
                        };
                    }
                    if shortage.is_first() && inode.volume.orphans.any() {
                        delete::free_deleted(&inode.volume)?;
                    }
                }
                other => return other.map(|()| Prepared::With(view)),
            }
        }
    }
}

impl Task for PrepareJob {
    const CLASS: &'static str = "prepare";
    const BATCH: usize = 1;

    fn run(batch: &mut Vec<PrepareJob>, _: &dyn Lead) {
        for job in batch.drain(..) {
            let message = match contained(|| job.prepare()) {
                Ok(Prepared::With(view)) => Message::Prepared(job.slot, view),
                Ok(Prepared::OnlyAlone) => Message::NeedsTurn(job.slot),
                Err(error) => Message::Unprepared(job.slot, error),
            };
            job.queue.post(message);
        }
    }

    fn refuse(self, error: &Error) {
        self.queue
            .post(Message::Unprepared(self.slot, error.clone()));
    }
}
