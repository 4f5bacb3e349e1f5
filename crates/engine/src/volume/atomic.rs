//! Atomic changes: everything that is changed while an [`Atomic`] is open is committed as a whole, or never.
//!
//! Input: a volume open for writing. Output: one commit, when [`Atomic::commit`] is called; or, if the atomic change is abandoned, a closed
//! volume whose device is as it was before the atomic change. Invariant: dropping an atomic change abandons it. Limits: those of a
//! transaction.

use super::Volume;
use crate::delete;
use crate::error::Error;
use crate::inode::Fs;
use crate::inode::Owed;
use crate::journal::{AtomicFill, Journal};
use crate::slots::Service;
use std::sync::Arc;

/// Changes that are committed together: see [`Volume::atomic`].
#[derive(Debug)]
#[must_use = "an atomic change that is dropped is abandoned"]
pub struct Atomic {
    /// None once the atomic change was committed or abandoned.
    through: Option<Through>,
}

/// While it lives, writes to the cache are on the device when they return.
#[derive(Debug)]
struct Through {
    service: Arc<Service>,
}

impl Through {
    fn begin(service: &Arc<Service>) -> Through {
        service.fs.cached.begin_writing_through();
        Through {
            service: service.clone(),
        }
    }
}

impl Drop for Through {
    fn drop(&mut self) {
        self.service.fs.cached.end_writing_through();
    }
}

impl Volume {
    /// Begins an atomic change. Everything that any thread changes from now on becomes durable with [`Atomic::commit`], in one
    /// transaction, or not at all. While the atomic change is open an operation fails if it would need a commit: a change for which the
    /// transaction has no room, an fsync, reuse of space that the atomic change itself has freed. Data that overwrites old data in place is
    /// not part of the atomic change. Without a journal there is no transaction: a crash during [`Atomic::commit`] may leave a part of the
    /// changes. Blocks: what was changed before is committed first.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/example.rs"));
    /// use diorite::{OpenOptions, RenameFlags, Volume};
    ///
    /// # fn main() -> Result<(), diorite::Error> {
    /// # let volume = Volume::open_device(example_volume(), &OpenOptions::writable())?;
    /// let atomic = volume.atomic()?;
    /// volume.mkdir("/new", 0o755)?;
    /// volume.create("/new/file", 0o644)?;
    /// volume.rename("/new", "/current", RenameFlags::default())?;
    /// atomic.commit()?; // all three, or after a crash none
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Invalid` if an atomic change is open already; `WouldBlock` if other threads keep changing the volume; errors of the commit of
    /// earlier changes.
    pub fn atomic(&self) -> Result<Atomic, Error> {
        let volume = self.inner();
        volume.check_open()?;
        delete::commit_deleted(volume)?;
        // In this order: a write that returns after the beginning is on the device, by this write-back or by itself.
        let through = Through::begin(self.service());
        volume.write_back_all()?;
        volume.begin_atomic()?;
        Ok(Atomic {
            through: Some(through),
        })
    }
}

impl Atomic {
    /// How many blocks the atomic change's transaction has, and how many it can have.
    #[must_use]
    pub fn fill(&self) -> AtomicFill {
        let fs = self.through.as_ref().map(|through| &through.service.fs);
        let journal = fs.and_then(|fs| fs.journal().ok());
        journal.map_or(AtomicFill::default(), Journal::fill)
    }

    /// Commits the atomic change: when this returns all of its changes are durable. Blocks.
    ///
    /// # Errors
    /// Errors of the commit or of the device; after an error the volume cannot be changed any more.
    pub fn commit(mut self) -> Result<(), Error> {
        let Some(through) = self.through.take() else {
            return Ok(());
        };
        let volume = &through.service.fs;
        let since = volume.told.since();
        // Writes to the cache that belong to it are on the device already: they would have failed otherwise.
        let owed = Owed::data(volume.data_epoch()).and(Owed::commit(volume.newest_uncommitted()));
        volume.journal()?.end_atomic();
        delete::delete_doomed_best_effort(volume);
        match volume.make_all_durable(since) {
            // Another atomic change has begun since `end_atomic`. It could begin only after everything before it, noted times too, was
            // committed.
            Err(Error::InAtomic) => {
                volume.end_sync((&volume.told, since), volume.make_durable(owed))
            }
            made => made,
        }
    }

    /// Abandons the atomic change: none of its changes is ever written. This closes the volume, because its state in memory no longer
    /// matches the device. The device is as it was before the atomic change, and needs no recovery. Blocks.
    ///
    /// # Errors
    /// Errors of the device; after an error the image needs recovery.
    pub fn abandon(mut self) -> Result<(), Error> {
        match self.through.take() {
            Some(through) => abandon(&through.service.fs),
            None => Ok(()),
        }
    }
}

fn abandon(volume: &Fs) -> Result<(), Error> {
    volume.shut_down();
    let abandoned = volume.journal()?.abandon_atomic(volume);
    // Takes inodes with noted times off the list, as each keeps the volume alive. The times themselves are refused and lost.
    let _refused = volume.write_noted_times();
    abandoned
}

impl Drop for Atomic {
    fn drop(&mut self) {
        if let Some(through) = self.through.take() {
            // An error cannot be reported from here; then the next open recovers.
            let _best_effort = abandon(&through.service.fs);
        }
    }
}
