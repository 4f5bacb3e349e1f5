//! The dirty bit of a qcow2 file: its reference counts may be wrong.
//!
//! Input: a file, the features in its header. Output: the bit, set before the first write, and taken off when nobody writes. Invariants:
//! the bit is durable before anything else is written, and is taken off only after everything is durable. The library below links a new
//! table of clusters before the count of that table is in the file, and orders counts and tables in the host's cache alone: after a crash a
//! writer that trusts the counts would overwrite the table with data. Limits: version 2 has no such bit. Source: the description of the
//! format in QEMU's documentation (interop/qcow2).

use crate::header::{DIRTY, FEATURES_AT};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// See the module.
pub(crate) struct Mark {
    file: File,
    features: u64,
    is_set: AtomicBool,
    /// Held together by writes, and alone to set the bit or take it off.
    writes: RwLock<()>,
}

impl Mark {
    pub(crate) fn new(file: File, features: u64) -> Mark {
        Mark {
            file,
            features,
            is_set: AtomicBool::new(false),
            writes: RwLock::new(()),
        }
    }

    fn write(&self, features: u64) -> io::Result<()> {
        self.file
            .write_all_at(&features.to_be_bytes(), FEATURES_AT)?;
        self.file.sync_data()
    }

    fn alone(&self) -> RwLockWriteGuard<'_, ()> {
        self.writes.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the bit, unless it is set. It stays while what is returned is held.
    pub(crate) fn writing(&self) -> io::Result<RwLockReadGuard<'_, ()>> {
        loop {
            let shared = self.writes.read().unwrap_or_else(PoisonError::into_inner);
            if self.is_set.load(Ordering::Acquire) {
                return Ok(shared);
            }
            drop(shared);
            let _alone = self.alone();
            if !self.is_set.load(Ordering::Acquire) {
                self.write(self.features | DIRTY)?;
                self.is_set.store(true, Ordering::Release);
            }
        }
    }

    /// Takes the bit off when all writes have ended and `flush` has made them durable.
    pub(crate) fn rest(&self, flush: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let _alone = self.alone();
        if self.is_set.load(Ordering::Acquire) {
            flush()?;
            if let Err(error) = self.write(self.features) {
                // It may be off in the host's cache, and more may be written. Best effort: the error is told.
                let _ = self.write(self.features | DIRTY);
                return Err(error);
            }
            self.is_set.store(false, Ordering::Release);
        }
        Ok(())
    }
}
