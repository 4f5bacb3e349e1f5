//! Claims: runs of clusters that are taken in memory only.
//!
//! Input: a goal and a length. Output: a run that nobody else gets: at the goal if that is free; else the next run of that length in the
//! goal's group; else one in another group; else the longest that there is. Invariants: no space is reported only if there is
//! none; a search never holds the locks of two groups. Limits: at most `MOST_PICKS` groups are searched for a run of the full length;
//! after that any run is taken.

use super::group::Locked;
use super::load::Patience;
use super::totals::Wish;
use super::{Alloc, Clusters, Reach, Reservation, Run, parts};
use crate::error::Error;
use crate::journal::Store;
use diorite_format::{FsBlock, GroupNo};
use std::cell::Cell;

/// How many groups are searched for a run of the full length.
const MOST_PICKS: u32 = 16;
/// In the goal's group a run of this many clusters is enough, even if more are wanted.
const GOOD_AT_HOME: u32 = 2048;

/// Whether the clusters of a search were taken from the free count before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counted {
    /// They were not: they are taken from the count when they are found.
    Not,
    /// They were, by a reservation.
    Reserved,
}

#[derive(Clone, Copy, Debug)]
struct Ask {
    home: GroupNo,
    near: u32,
    want: u32,
    reach: Reach,
    counted: Counted,
    patience: Patience,
}

/// The result of looking into one group, or into all.
#[derive(Debug)]
enum Found {
    Run(Clusters),
    /// No run that is long enough.
    Nothing,
    /// Looking would have to wait.
    Waits,
}

impl Alloc {
    /// Claims a run of up to `want` blocks, rounded up to whole clusters, as near to `goal` as possible. Blocks while bitmaps are read.
    ///
    /// # Errors
    /// `NoSpace` if nothing is free; `WouldBlock(Commit)` if something will be after a commit, before which open handles must end; damage.
    pub(crate) fn claim(
        &self,
        volume: &Store,
        goal: FsBlock,
        want: u32,
        reach: Reach,
    ) -> Result<Run, Error> {
        let ask = ask(volume, goal, want, reach, Patience::Waits);
        let found = self.search(volume, ask)?;
        Ok(found.expect("a search that waits ends with a run or an error"))
    }

    /// As [`Alloc::claim`], but never blocks: returns None where it would have to.
    pub(crate) fn try_claim(
        &self,
        volume: &Store,
        goal: FsBlock,
        want: u32,
        reach: Reach,
    ) -> Result<Option<Run>, Error> {
        self.search(volume, ask(volume, goal, want, reach, Patience::None))
    }

    /// Claims one cluster for which `reservation` has reduced the free count. Blocks while bitmaps are read.
    pub(super) fn claim_reserved(
        &self,
        volume: &Store,
        goal: FsBlock,
        reservation: &mut Reservation,
    ) -> Result<Run, Error> {
        if reservation.left() == 0 {
            let what = "more blocks were needed than were reserved";
            return Err(Error::Invalid(what.to_owned()));
        }
        let ask = Ask {
            counted: Counted::Reserved,
            ..ask(volume, goal, 1, Reach::All, Patience::Waits)
        };
        let found = self.search(volume, ask)?;
        reservation.used(1);
        Ok(found.expect("a search that waits ends with a run or an error"))
    }

    /// As [`Alloc::claim`], of clusters for which `reservation` has reduced the free count; not more than it has left. With `waits` false
    /// as [`Alloc::try_claim`].
    pub(crate) fn claim_from(
        &self,
        volume: &Store,
        goal: FsBlock,
        want: u32,
        (reservation, waits): (&mut Reservation, bool),
    ) -> Result<Option<Run>, Error> {
        let patience = match waits {
            true => Patience::Waits,
            false => Patience::None,
        };
        let wanted = ask(volume, goal, want, Reach::All, patience);
        let most = u32::try_from(reservation.left()).unwrap_or(u32::MAX);
        let asked = Ask {
            counted: Counted::Reserved,
            want: wanted.want.min(most),
            ..wanted
        };
        let found = self.search(volume, asked)?;
        if let Some(run) = found {
            let ratio = volume.sb.geometry().cluster_ratio();
            reservation.used(u64::from(run.len.div_ceil(ratio)));
        }
        Ok(found)
    }

    /// Gives back a claimed run, or a part of one.
    ///
    /// # Errors
    /// A part of the run is not claimed, or not on the volume; the parts before it are given back.
    pub(crate) fn unclaim(&self, volume: &Store, run: Run) -> Result<(), Error> {
        for part in parts(&volume.sb, run) {
            let part = part?;
            let known = self.slot(part.group).lock().unclaim(part, &self.totals);
            if !known {
                return Err(not_claimed(run));
            }
            self.totals.give(u64::from(part.len));
        }
        Ok(())
    }

    /// Searches until a run is found, or it is proven that there is none.
    fn search(&self, volume: &Store, ask: Ask) -> Result<Option<Run>, Error> {
        let wish = Wish {
            clusters: u64::from(ask.want),
            reach: ask.reach,
        };
        self.trim_memory();
        loop {
            let returned = self.totals.returned();
            if ask.counted == Counted::Not
                && let Some(error) = self.totals.shortage(wish, 1, returned)
            {
                return Err(error);
            }
            match self.look(volume, ask)? {
                Found::Run(clusters) => return Ok(Some(clusters.run(&volume.sb))),
                Found::Waits => return Ok(None),
                Found::Nothing => {}
            }
            let counted = ask.counted == Counted::Reserved || self.totals.usable(ask.reach) > 0;
            // Something was counted as free all the time, nothing was returned meanwhile, and yet nothing was found.
            if counted && self.totals.returned() == returned {
                let what = "free blocks are counted that no group has; run e2fsck";
                return Err(Error::Damaged(what.to_owned()));
            }
        }
    }

    /// Looks into the goal's group first, then into those that may have the longest runs.
    fn look(&self, volume: &Store, ask: Ask) -> Result<Found, Error> {
        let good = ask.want.min(GOOD_AT_HOME);
        let mut home = ask.home.get();
        if self.slot(ask.home).brief.bound() > 0 {
            match self.look_in(
                volume,
                ask,
                (ask.home, Some(ask.near)),
                good,
                Patience::None,
            )? {
                found @ Found::Run(_) => return Ok(found),
                Found::Nothing => {}
                // Another thread holds the group, or its bitmap is not in memory.
                Found::Waits if ask.patience == Patience::None => return Ok(Found::Waits),
                Found::Waits => match self.wait_at_home(volume, ask, good)? {
                    Some(found) => return Ok(found),
                    None => home = home.wrapping_add(1 + stripe()) % self.group_count(),
                },
            }
        }
        let mut picks = 0;
        while let Some((group, bound)) = self.pick(home, ask.want) {
            picks += 1;
            let enough = bound.min(ask.want);
            let least = if picks <= MOST_PICKS {
                enough.div_ceil(2)
            } else {
                1
            };
            let found = self.look_in(volume, ask, (group, None), least, ask.patience)?;
            if !matches!(found, Found::Nothing) {
                return Ok(found);
            }
            if ask.counted == Counted::Not && self.totals.usable(ask.reach) == 0 {
                break;
            }
        }
        Ok(Found::Nothing)
    }

    /// Called when the goal's group cannot be looked into at once. Waits for its bitmap to be read, but not for another thread that holds
    /// the group, if there are other groups.
    fn wait_at_home(&self, volume: &Store, ask: Ask, good: u32) -> Result<Option<Found>, Error> {
        if self.slot(ask.home).try_lock().is_none() && self.groups.len() > 1 {
            return Ok(None);
        }
        let at = (ask.home, Some(ask.near));
        match self.look_in(volume, ask, at, good, Patience::Waits)? {
            found @ Found::Run(_) => Ok(Some(found)),
            Found::Nothing | Found::Waits => Ok(None),
        }
    }

    /// The next group to look into: the first from `home` on that may have a run of `want` clusters, else the one that may have the
    /// longest.
    fn pick(&self, home: u32, want: u32) -> Option<(GroupNo, u32)> {
        let count = self.group_count();
        let mut best: Option<(GroupNo, u32)> = None;
        for group in (home..count).chain(0..home).map(GroupNo::new) {
            let bound = self.slot(group).brief.bound();
            if bound >= want {
                return Some((group, bound));
            }
            if bound > best.map_or(0, |(_, b)| b) {
                best = Some((group, bound));
            }
        }
        best
    }

    /// Looks for a run of at least `least` clusters in one group, and claims it.
    fn look_in(
        &self,
        volume: &Store,
        ask: Ask,
        (number, near): (GroupNo, Option<u32>),
        least: u32,
        patience: Patience,
    ) -> Result<Found, Error> {
        let Some(mut locked) = self.lock_loaded(volume, number, patience)? else {
            return Ok(Found::Waits);
        };
        let bits = volume.sb.group_clusters(number);
        let Some((start, len)) = locked.find(near, ask.want, bits) else {
            return Ok(Found::Nothing);
        };
        if len < least && locked.brief.bound() <= len {
            return Ok(Found::Nothing);
        }
        let run = Clusters {
            group: number,
            start,
            len,
        };
        self.claim_found(volume, &mut locked, run, (ask.counted, ask.reach))
    }

    /// Claims the run that was found, or as much of it as the free count allows.
    fn claim_found(
        &self,
        volume: &Store,
        locked: &mut Locked<'_>,
        mut run: Clusters,
        (counted, reach): (Counted, Reach),
    ) -> Result<Found, Error> {
        let blocks = run.run(&volume.sb);
        if let Some(what) = volume.metadata_in(blocks.start, u64::from(blocks.len)) {
            let group = run.group;
            let what = format!(
                "group {group}: its bitmap says that {blocks} are free, where {what} lies; run e2fsck"
            );
            return Err(Error::Damaged(what));
        }
        if counted == Counted::Not {
            let taken = self.totals.take(1, u64::from(run.len), reach);
            run.len = u32::try_from(taken).expect("no more was taken than the run has");
        }
        if run.len == 0 {
            return Ok(Found::Nothing);
        }
        locked.claim(run);
        Ok(Found::Run(run))
    }

    /// Claims the first run of at least `least` free clusters in `from..to` of a group, at most `most` of it. Blocks while the bitmap is
    /// read.
    pub(super) fn claim_next(
        &self,
        volume: &Store,
        group: GroupNo,
        (from, to): (u32, u32),
        (least, most): (u32, u32),
    ) -> Result<Option<Clusters>, Error> {
        self.trim_memory();
        let locked = self.lock_loaded(volume, group, Patience::Waits)?;
        let mut locked = locked.expect("who waits gets the lock");
        let mut at = from;
        while let Some((start, len)) = locked.next_free(at, to) {
            if len >= least {
                let len = len.min(most);
                let run = Clusters { group, start, len };
                let how = (Counted::Not, Reach::All);
                return Ok(match self.claim_found(volume, &mut locked, run, how)? {
                    Found::Run(run) => Some(run),
                    Found::Nothing | Found::Waits => None,
                });
            }
            at = start + len;
        }
        Ok(None)
    }
}

fn ask(volume: &Store, goal: FsBlock, want: u32, reach: Reach, patience: Patience) -> Ask {
    let ratio = volume.sb.geometry().cluster_ratio();
    let (home, near) = volume.sb.bitmap_bit(goal).unwrap_or_default();
    Ask {
        home,
        near,
        want: want.div_ceil(ratio).max(1),
        reach,
        counted: Counted::Not,
        patience,
    }
}

/// The error for a caller that gives back or marks a run that it has not claimed.
pub(super) fn not_claimed(run: Run) -> Error {
    debug_assert!(false, "{run} are not claimed");
    Error::Invalid(format!("{run} are not claimed"))
}

/// A small number that usually differs between threads that run at the same time: it spreads their searches over groups.
fn stripe() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        static MINE: Cell<u32> = Cell::new(NEXT.fetch_add(1, Relaxed) % 16);
    }
    MINE.with(Cell::get)
}
