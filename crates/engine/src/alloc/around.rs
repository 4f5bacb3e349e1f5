//! From blocks of a file to the clusters that they lie in.
//!
//! Input: a run of blocks that a file maps, or is going to map. Output: the whole clusters around it, and which of them are claimed.
//! Invariants: without bigalloc a cluster is a block, and the functions return the run that they were given; a run of a file shares at
//! most its first and its last cluster with other runs of that file, and a shared cluster is used, not claimed. Limits: none.
//!
//! Example: clusters of 16 blocks; the file has blocks 3 and 4 in cluster 70, and now gets blocks 5 to 40 there and in clusters 71 and 72.
//! Of the three clusters around the new run, 71 and 72 are claimed, and become used with it.

use super::{Alloc, Clusters, Run, outside};
use crate::error::Error;
use crate::journal::JournalHandle;
use crate::journal::Store;
use diorite_format::{FsBlock, Superblock};

impl Alloc {
    /// The whole clusters around a run of blocks.
    ///
    /// # Errors
    /// The run is not on this volume.
    pub(crate) fn around(sb: &Superblock, run: Run) -> Result<Run, Error> {
        if run.len == 0 || sb.geometry().cluster_ratio() == 1 {
            return Ok(run);
        }
        let first = cluster_of(sb, run.start);
        let last = cluster_of(sb, FsBlock::new(run.end().get() - 1));
        let (first, last) = first.zip(last).ok_or_else(|| outside(run))?;
        let (start, end) = (first.run(sb).start, last.run(sb).end());
        let len = u32::try_from(end.get() - start.get()).map_err(|_| outside(run))?;
        Ok(Run { start, len })
    }

    /// Marks the claimed ones of the clusters around a run as used, and returns their number of blocks. Otherwise as [`Alloc::mark_used`].
    pub(crate) fn mark_claimed(&self, handle: &JournalHandle<'_>, run: Run) -> Result<u32, Error> {
        let claimed = self.claimed_around(&handle.store().sb, run)?;
        self.mark_used(handle, claimed)?;
        Ok(claimed.len)
    }

    /// Gives back the claimed ones of the clusters around a run. Otherwise as [`Alloc::unclaim`].
    pub(crate) fn unclaim_around(&self, volume: &Store, run: Run) -> Result<(), Error> {
        self.unclaim(volume, self.claimed_around(&volume.sb, run)?)
    }

    /// The clusters around a run, without those at its ends that the file has already.
    fn claimed_around(&self, sb: &Superblock, run: Run) -> Result<Run, Error> {
        if sb.geometry().cluster_ratio() == 1 {
            return Ok(run);
        }
        let mut around = Alloc::around(sb, run)?;
        let shared =
            |at: FsBlock| cluster_of(sb, at).filter(|c| !self.slot(c.group).lock().is_claimed(*c));
        if let Some(first) = shared(around.start).filter(|_| around.len > 0) {
            let cut = first.run(sb).len;
            around.start = FsBlock::new(around.start.get() + u64::from(cut));
            around.len -= cut;
        }
        if around.len > 0
            && let Some(last) = shared(FsBlock::new(around.end().get() - 1))
        {
            around.len -= last.run(sb).len;
        }
        Ok(around)
    }
}

fn cluster_of(sb: &Superblock, at: FsBlock) -> Option<Clusters> {
    let (group, start) = sb.bitmap_bit(at)?;
    let len = 1;
    Some(Clusters { group, start, len })
}
