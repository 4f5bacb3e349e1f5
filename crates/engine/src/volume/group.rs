//! Many changes as one: a [`Group`] of them is committed as a whole, or never.
//!
//! Input: a volume open for writing. Output: its next commit, when the group says so; or a closed volume whose device is as before.
//! Invariant: a group that is dropped is abandoned. Limits: those of the journal's groups.

use super::Volume;
use crate::delete;
use crate::error::Error;
use crate::inode::Fs;
use crate::inode::Owed;
use crate::journal::{GroupFill, Journal};
use std::sync::Arc;

/// Changes that are committed together: see [`Volume::group`].
#[derive(Debug)]
#[must_use = "a group that is dropped is abandoned"]
pub struct Group {
    /// None once it has ended.
    volume: Option<Arc<Fs>>,
}

impl Volume {
    /// Begins a group of changes: whatever is changed from now on becomes durable with [`Group::commit`], all of it in one transaction, or
    /// not at all. What would need a commit before - more changes than one transaction holds, an fsync, space that the group itself has
    /// freed - fails. Data written over old data is not part of it; nor, without a journal, is there one transaction: a crash during
    /// its commit may leave a part of it then. Blocks.
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
    /// `Invalid` if a group is open already; `WouldBlock` if others keep changing the volume; the device's, on committing what came before.
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
    /// How far it is filled.
    #[must_use]
    pub fn fill(&self) -> GroupFill {
        let journal = self.volume.as_ref().and_then(|v| v.journal().ok());
        journal.map_or(GroupFill::default(), Journal::fill)
    }

    /// Makes all of it durable. Blocks.
    ///
    /// # Errors
    /// The device's; the volume may not be changed any more.
    pub fn commit(mut self) -> Result<(), Error> {
        let Some(volume) = self.volume.take() else {
            return Ok(());
        };
        let since = volume.told.since();
        let owed = Owed::data(volume.data_epoch()).and(Owed::commit(volume.newest_uncommitted()));
        volume.journal()?.end_group();
        delete::delete_doomed_best_effort(&volume);
        match volume.make_all_durable(since) {
            // The next one has begun behind this one, and began when all that there was, times too, was committed.
            Err(Error::InGroup) => {
                volume.end_sync((&volume.told, since), volume.make_durable(owed))
            }
            made => made,
        }
    }

    /// Gives it up: nothing of it is ever written, and the volume is closed, for what it has in memory is not what is on the device. That
    /// is as it was before the group, and needs no recovery. Blocks.
    ///
    /// # Errors
    /// The device's: then the image needs recovery.
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
    // Times that were noted meanwhile: nobody will ever write them, and their inodes hold the volume.
    let _refused = volume.write_noted_times();
    abandoned
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(volume) = self.volume.take() {
            // Nobody can be told; the next open recovers.
            let _best_effort = abandon(&volume);
        }
    }
}
