//! Groups: changes of many handles that are committed together or not at all.
//!
//! Input: a volume on which everything is committed. Output: while a group is open, no commit; at its end one, or none ever. Invariants:
//! the group is one transaction, so a crash shows all of it or nothing; what would need a commit in the middle fails; an abandoned group
//! leaves on the device what was there before it, and a volume that takes no more requests. Limits: as large as the largest transaction;
//! one at a time, and whatever anybody changes meanwhile belongs to it; data that is written over data is not part of it; without a
//! journal a crash while it is committed may leave a part of it.

use super::transaction::State;
use super::{CommitHooks, Journal, Medium};
use crate::disk::Disk;
use crate::error::{Error, Wait};
use diorite_format::Ino;
use std::collections::BTreeSet;

/// How often it is tried to find a moment at which nothing is uncommitted.
const TRIES: u32 = 1000;

/// What is known of an open group.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// Blocks of files that became shorter, with bytes behind the new end as before: they are to be had again until the group is committed.
    shortened: BTreeSet<(Ino, u64)>,
    /// Files of which data is in its transaction, not only their maps.
    journalled: BTreeSet<Ino>,
    /// Something was refused because the transaction has no room for it.
    is_full: bool,
    /// The volume had orphans on disk before.
    had_orphans: bool,
}

/// How far the transaction of a group is filled, in blocks of metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupFill {
    /// Blocks that were changed.
    pub changed: u32,
    /// Blocks that one transaction of this journal may change.
    pub most: u32,
    /// A change was refused for want of room: the group can only be abandoned, or committed without that change.
    pub is_full: bool,
}

impl Journal {
    /// Begins a group. Blocks; no lock may be held.
    pub(crate) fn begin_group(&self, hooks: &dyn CommitHooks) -> Result<(), Error> {
        for _ in 0..TRIES {
            hooks.write_noted_times()?;
            self.commit_running(hooks)?;
            let (orphans, noted) = (hooks.has_orphans_in_file(), hooks.has_noted_times());
            let mut state = self.state.lock();
            if state.group.is_some() {
                let what = "a group of changes is open already";
                return Err(Error::Invalid(what.to_owned()));
            }
            // Nor is anything on its way into the log: whoever waits for that would find a group in his way.
            let quiet = state.newest_uncommitted().is_none() && !state.closing;
            if quiet && state.aborted.is_none() && !noted {
                state.group = Some(Group {
                    had_orphans: orphans,
                    ..Group::default()
                });
                return Ok(());
            }
        }
        Err(Error::WouldBlock(Wait::Commit))
    }

    /// Lets commits begin again: what the group has changed goes with the next one, whole.
    pub(crate) fn end_group(&self) {
        self.state.lock().group = None;
    }

    /// Ends a group of which nothing shall ever be committed: the device is left as it was before. Blocks; no lock may be held.
    pub(crate) fn abandon_group(&self, disk: &Disk) -> Result<(), Error> {
        let mut medium = self.medium.lock();
        let group = {
            let mut state = self.state.lock();
            if let Some(error) = &state.aborted {
                return Err(error.clone());
            }
            state.aborted = Some(Error::ShutDown);
            let Some(group) = state.group.take().filter(|_| state.marked) else {
                return Ok(());
            };
            group
        };
        self.opened.notify_all();
        self.committed.notify_all();
        disk.shut_down();
        self.leave_clean(disk, &mut medium, group.had_orphans)
    }

    /// What is committed goes home; then nothing has to be recovered. What is not committed is in memory only.
    fn leave_clean(
        &self,
        disk: &Disk,
        medium: &mut Medium,
        has_orphans: bool,
    ) -> Result<(), Error> {
        self.bring_home(disk, medium)?;
        disk.mark_clean_as_at_home(has_orphans)
    }

    /// Is a group open, and may still be committed? Nothing waits for the end of another one; what it has left unzeroed stays so, as it may be
    /// given back.
    pub(crate) fn has_group(&self) -> bool {
        let state = self.state.lock();
        state.group.is_some() && state.aborted.is_none()
    }

    /// Notes that a file of an open group became shorter, and that what is behind its end in this block was left; false without a group.
    pub(crate) fn leaves_tail(&self, ino: Ino, block: u64) -> bool {
        let mut state = self.state.lock();
        let group = state.group.as_mut();
        group.is_some_and(|group| {
            group.shortened.insert((ino, block));
            true
        })
    }

    /// May what is behind this file's end in this block be zeroed? Not if a group may yet give it back.
    pub(crate) fn check_tail(&self, ino: Ino, block: u64) -> Result<(), Error> {
        let state = self.state.lock();
        match &state.group {
            Some(group) if group.shortened.contains(&(ino, block)) => {
                Err(Error::CutInGroup { ino })
            }
            _ => Ok(()),
        }
    }

    /// Notes that data of a file goes into the transaction of an open group.
    pub(crate) fn note_data(&self, ino: Ino) {
        let mut state = self.state.lock();
        if let Some(group) = &mut state.group {
            group.journalled.insert(ino);
        }
    }

    /// Sees to it that all data of this file is committed: in a group it is, unless that has written some of it. Blocks; no lock may be
    /// held.
    pub(crate) fn commit_data(&self, hooks: &dyn CommitHooks, ino: Ino) -> Result<(), Error> {
        let group_wrote = self.with_group(|group| group.journalled.contains(&ino));
        match group_wrote {
            None => self.commit_running(hooks),
            Some(true) => Err(Error::WrittenInGroup { ino }),
            Some(false) => Ok(()),
        }
    }

    /// Has an open group room for all of this, which comes in several handles? Without a group a commit makes some for each.
    ///
    /// # Errors
    /// `GroupTooLarge`, as from the first handle that has none.
    pub(crate) fn check_room(&self, credits: u32) -> Result<(), Error> {
        let mut state = self.state.lock();
        match state.used() + u64::from(state.credits) + u64::from(credits) <= u64::from(self.most) {
            true => Ok(()),
            false => state.check_divisible(credits, self.most),
        }
    }

    /// Looks at the open group; the lock is let go of again.
    fn with_group<T>(&self, look: impl FnOnce(&Group) -> T) -> Option<T> {
        self.state.lock().group.as_ref().map(look)
    }

    /// How much of the running transaction is taken, of an open group mostly, and how much a transaction can take.
    pub(crate) fn fill(&self) -> GroupFill {
        let state = self.state.lock();
        GroupFill {
            changed: u32::try_from(state.used()).unwrap_or(u32::MAX),
            most: self.most,
            is_full: state.group.as_ref().is_some_and(|group| group.is_full),
        }
    }
}

impl State {
    /// No commit may begin while a group is open.
    pub(super) fn check_no_group(&self) -> Result<(), Error> {
        match self.group {
            Some(_) => Err(Error::InGroup),
            None => Ok(()),
        }
    }

    /// The running transaction has no room for a handle: that of a group cannot be committed to make some.
    pub(super) fn check_divisible(&mut self, needed: u32, most: u32) -> Result<(), Error> {
        let changed = u32::try_from(self.used()).unwrap_or(u32::MAX);
        let Some(group) = &mut self.group else {
            return Ok(());
        };
        group.is_full = true;
        Err(Error::GroupTooLarge {
            changed,
            needed,
            most,
        })
    }
}
