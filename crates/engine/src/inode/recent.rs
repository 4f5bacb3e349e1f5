//! Directories that were read lately, kept in memory so that the next path through them need not read them again.
//!
//! Input: directories when they come into memory. Output: references that keep them there. Invariants: a directory without a name is not
//! kept, as it has to be deleted with its last user; no reference is dropped under the lock; none is kept before the volume is served, and
//! all are dropped with its last handle, as they hold the file system: an opening that fails holds nothing. Limits: the root, which every
//! path begins at, and [`MOST`] other directories, first in first out; one that is still used comes back when it is read again.

use crate::inode::Inode;
use crate::locks::RECENT;
use diorite_block::sync::Mutex;
use diorite_format::Ino;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};

/// How many directories are kept at most.
const MOST: usize = 512;

/// The directories that are kept.
#[derive(Debug)]
pub(crate) struct Recent {
    kept: Mutex<Kept>,
    /// The root once it is kept, for readers without the lock. It keeps nothing.
    root: OnceLock<Weak<Inode>>,
}

#[derive(Debug, Default)]
struct Kept {
    /// The oldest is at the front.
    all: VecDeque<Arc<Inode>>,
    root: Option<Arc<Inode>>,
    /// Directories are kept.
    open: bool,
}

impl Recent {
    pub(crate) fn new(level: u8) -> Recent {
        Recent {
            kept: Mutex::at_level(&RECENT, level, Kept::default()),
            root: OnceLock::new(),
        }
    }

    /// Keeps directories from now on: the volume is served.
    pub(crate) fn open(&self) {
        self.kept.lock().open = true;
    }

    /// Keeps the inode for a while, if it is a directory with a name.
    pub(crate) fn keep(&self, inode: &Arc<Inode>) {
        if !inode.is_dir() {
            return;
        }
        let mut kept = self.kept.lock();
        if !kept.open || inode.is_unlinked() {
            return;
        }
        if inode.ino == Ino::ROOT {
            self.root.get_or_init(|| Arc::downgrade(inode));
            let before = kept.root.replace(inode.clone());
            drop(kept);
            return drop(before);
        }
        let first = match kept.all.len() < MOST {
            true => None,
            false => kept.all.pop_front(),
        };
        kept.all.push_back(inode.clone());
        drop(kept);
        drop(first);
    }

    /// The root, if it is kept. Takes no lock.
    pub(crate) fn root(&self) -> Option<Arc<Inode>> {
        self.root.get().and_then(Weak::upgrade)
    }

    /// Keeps this inode no longer, as it has lost its last name. The caller has a reference, so nothing is dropped here.
    pub(crate) fn let_go(&self, ino: Ino) {
        let mut kept = self.kept.lock();
        let at = kept.all.iter().position(|inode| inode.ino == ino);
        let gone = at.and_then(|at| kept.all.remove(at));
        drop(kept);
        drop(gone);
    }

    /// Drops all, and keeps none from now on.
    pub(crate) fn close(&self) {
        let mut kept = self.kept.lock();
        kept.open = false;
        let all = (std::mem::take(&mut kept.all), kept.root.take());
        drop(kept);
        drop(all);
    }
}
