//! More free space in an open volume, or less in one that is about to be closed.
//!
//! Input: the superblock of a larger size, descriptors of new groups. Output: clusters and inodes that can be allocated. Invariants: the
//! last group is locked from before its bitmap changes until everybody sees the new size, so nobody meets a bitmap of one size with a count
//! of the other; new groups can be found only when the superblock says that they are there. Limit: one caller at a time.

use super::Alloc;
use super::group::Slot;
use super::mark::CLEAR;
use crate::error::Error;
use crate::journal::JournalHandle;
use diorite_block::sync::atomic::Ordering;
use diorite_format::{GroupDesc, GroupNo, Superblock};

impl Alloc {
    /// Lets the volume grow to `new`, whose groups behind the present ones are `added`. `change` gets the last group's descriptor with the
    /// clusters that it gains counted as free; it writes all that changes on disk, under the running handle, and publishes the
    /// superblock. The group's lock is held meanwhile.
    ///
    /// # Errors
    /// Those of `change`; then nothing has changed here.
    pub(crate) fn grow(
        &self,
        level: u8,
        (old, new): (&Superblock, &Superblock),
        added: &[GroupDesc],
        change: impl FnOnce(&mut GroupDesc) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let last = GroupNo::new(self.group_count() - 1);
        let more = new.group_clusters(last) - old.group_clusters(last);
        let mut locked = self.slot(last).lock();
        let mut desc = locked.group.desc.clone();
        desc.free_clusters += more;
        change(&mut desc)?;
        if locked.set_grown(desc) {
            self.loaded.fetch_sub(1, Ordering::Relaxed);
        }
        self.groups
            .append(added.iter().map(|desc| Slot::new(level, desc.clone())));
        let clusters: u64 = added.iter().map(|g| u64::from(g.free_clusters)).sum();
        let inodes = added.iter().map(|g| u64::from(g.free_inodes)).sum();
        self.totals.grew(new, clusters + u64::from(more), inodes);
        Ok(())
    }

    /// Takes over the counts of a volume that has become smaller. Nothing may be allocated or freed from now on.
    pub(crate) fn shrink(&self, new: &Superblock, clusters: u64, inodes: u64) {
        self.totals.shrank(new, clusters, inodes);
    }

    /// Reads what [`Alloc::grow`] changes of the last group, verified. Blocks.
    pub(crate) fn warm_last(&self, handle: &JournalHandle<'_>) -> Result<(), Error> {
        CLEAR.warm(handle, &self.last_group())
    }

    /// The descriptor of the last group, as the running transaction has it.
    pub(crate) fn last_group(&self) -> GroupDesc {
        self.desc_of(GroupNo::new(self.group_count() - 1))
    }
}
