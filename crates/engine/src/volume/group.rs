//! Groups of changes: everything that is changed while a [`Group`] is open is committed as a whole, or never.
//!
//! Input: a volume open for writing. Output: one commit, when [`Group::commit`] is called; or, if the group is abandoned, a closed volume
//! whose device is as it was before the group. Invariant: dropping a group abandons it. Limits: those of the journal's groups.

use super::Volume;
use crate::delete;
use crate::error::Error;
use crate::inode::Fs;
use crate::inode::Owed;
use crate::journal::{GroupFill, Journal};
use std::sync::Arc;

/// A group of changes that are committed together: see [`Volume::group`].
#[derive(Debug)]
#[must_use = "a group that is dropped is abandoned"]
pub struct Group {
    /// None once the group was committed or abandoned.
    volume: Option<Arc<Fs>>,
}

impl Volume {
    /// Begins a group of changes. Everything that any thread changes from now on becomes durable with [`Group::commit`], in one
    /// transaction, or not at all. While the group is open an operation fails if it would need a commit: a change for which the transaction
    /// has no room, an fsync, reuse of space that the group itself has freed. Data that overwrites old data in place is not part of the
    /// group. Without a journal there is no transaction: a crash during [`Group::commit`] may leave a part of the changes. Blocks: what was
    /// changed before is committed first.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/example.rs"));
    /// use diorite::{OpenOptions, RenameFlags, Volume};
    ///
    /// # fn main() -> Result<(), diorite::Error> {
    /// # let volume = Volume::open_device(example_volume(), &OpenOptions::writable())?;
    /// let group = volume.group()?;
    /// volume.mkdir("/new", 0o755)?;
    /// volume.create("/new/file", 0o644)?;
    /// volume.rename("/new", "/current", RenameFlags::default())?;
    /// group.commit()?; // all three, or after a crash none
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Invalid` if a group is open already; `WouldBlock` if other threads keep changing the volume; errors of the commit of earlier
    /// changes.
    pub fn group(&self) -> Result<Group, Error> {
        let volume = self.inner();
        volume.check_open()?;
        delete::commit_deleted(volume)?;
        volume.journal()?.begin_group(&**volume)?;
        Ok(Group {
            volume: Some(volume.clone()),
        })
    }
}

impl Group {
    /// How many blocks the group's transaction has, and how many it can have.
    #[must_use]
    pub fn fill(&self) -> GroupFill {
        let journal = self.volume.as_ref().and_then(|v| v.journal().ok());
        journal.map_or(GroupFill::default(), Journal::fill)
    }

    /// Commits the group: when this returns all of its changes are durable. Blocks.
    ///
    /// # Errors
    /// Errors of the commit or of the device; after an error the volume cannot be changed any more.
    pub fn commit(mut self) -> Result<(), Error> {
        let Some(volume) = self.volume.take() else {
            return Ok(());
        };
        let since = volume.told.since();
        let owed = Owed::data(volume.data_epoch()).and(Owed::commit(volume.newest_uncommitted()));
        volume.journal()?.end_group();
        delete::delete_doomed_best_effort(&volume);
        match volume.make_all_durable(since) {
            // Another group has begun since `end_group`. It could begin only after everything before it, noted times too, was committed.
            Err(Error::InGroup) => {
                volume.end_sync((&volume.told, since), volume.make_durable(owed))
            }
            made => made,
        }
    }

    /// Abandons the group: none of its changes is ever written. This closes the volume, because its state in memory no longer matches the
    /// device. The device is as it was before the group, and needs no recovery. Blocks.
    ///
    /// # Errors
    /// Errors of the device; after an error the image needs recovery.
    pub fn abandon(mut self) -> Result<(), Error> {
        match self.volume.take() {
            Some(volume) => abandon(&volume),
            None => Ok(()),
        }
    }
}

fn abandon(volume: &Arc<Fs>) -> Result<(), Error> {
    volume.shut_down();
    let abandoned = volume.journal()?.abandon_group(volume);
    // Takes inodes with noted times off the list, as each keeps the volume alive. The times themselves are refused and lost.
    let _refused = volume.write_noted_times();
    abandoned
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(volume) = self.volume.take() {
            // An error cannot be reported from here; then the next open recovers.
            let _best_effort = abandon(&volume);
        }
    }
}
