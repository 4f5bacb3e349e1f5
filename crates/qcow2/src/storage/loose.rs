//! Which kinds of writes to a file are not durable yet.
//!
//! Input: kinds of what was written, a sync. Output: whether all of a kind is durable. Invariants: what is noted before a sync begins is
//! durable when it has ended; after one sync has failed none succeeds, because the host reports a failure once, and drops what it could not
//! write. Limits: kinds, not places.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The kinds.
pub(super) const DATA: u8 = 1;
pub(super) const CLUSTERS: u8 = 2;
pub(super) const COUNTS: u8 = 4;
pub(super) const ROOTS: u8 = 8;
/// A root that no longer leads to a table that it led to before.
pub(super) const LEFT: u8 = 16;
pub(super) const ALL: u8 = DATA | CLUSTERS | COUNTS | ROOTS | LEFT;

/// The state behind a lock has no invariant that a panic could break.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See the module.
#[derive(Debug)]
pub(super) struct Loose {
    /// What was written since the last sync.
    kinds: AtomicU8,
    /// What a sync that runs makes durable.
    under_way: AtomicU8,
    /// Held while the file is synced.
    syncing: Mutex<()>,
    /// A sync has failed, or what is in the file is not known.
    lost: AtomicBool,
}

impl Loose {
    pub(super) fn new(kinds: u8) -> Loose {
        Loose {
            kinds: AtomicU8::new(kinds),
            under_way: AtomicU8::new(0),
            syncing: Mutex::new(()),
            lost: AtomicBool::new(false),
        }
    }

    /// Something of these kinds was written.
    pub(super) fn note(&self, kinds: u8) {
        self.kinds.fetch_or(kinds, Ordering::SeqCst);
    }

    /// Whether something of one of these kinds is not durable and not under way.
    #[cfg(test)]
    pub(super) fn has(&self, kinds: u8) -> bool {
        self.kinds.load(Ordering::SeqCst) & kinds != 0
    }

    /// Nothing is durable from now on.
    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }

    /// # Errors
    /// A sync has failed.
    fn check_kept(&self) -> io::Result<()> {
        match self.is_lost() {
            true => Err(io::Error::other(
                "a sync of the file has failed, so what was written before may be lost",
            )),
            false => Ok(()),
        }
    }

    /// Makes everything durable by a sync, if something of these kinds is not.
    pub(super) fn settle(
        &self,
        kinds: u8,
        sync: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        // In the order in which a sync moves them, so one of the two has what is not durable.
        let loose = self.kinds.load(Ordering::SeqCst);
        let under_way = self.under_way.load(Ordering::SeqCst);
        // Behind them: a sync that fails notes that before it is no longer under way.
        self.check_kept()?;
        if (loose | under_way) & kinds == 0 {
            return Ok(());
        }
        let _turn = lock(&self.syncing);
        self.check_kept()?;
        let loose = self.kinds.load(Ordering::SeqCst);
        if loose & kinds == 0 {
            return Ok(());
        }
        self.under_way.store(loose, Ordering::SeqCst);
        // What is written from now on is loose again.
        self.kinds.fetch_and(!loose, Ordering::SeqCst);
        let done = self.sync(sync);
        self.under_way.store(0, Ordering::SeqCst);
        done
    }

    /// Runs a sync, unless one has failed.
    pub(super) fn sync(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.check_kept()?;
        let done = sync();
        if done.is_err() {
            self.lose();
        }
        done
    }
}
