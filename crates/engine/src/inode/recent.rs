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
        // Two threads that brought it into memory together have kept it twice.
        let mut gone = Vec::new();
        kept.all.retain(|inode| {
            let stays = inode.ino != ino;
            gone.extend((!stays).then(|| inode.clone()));
            stays
        });
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

#[cfg(test)]
mod tests {
    use crate::testing::small_volume;

    /// The defect: a directory that two threads had brought into memory together was kept twice, and one of the references after it had
    /// lost its name: it was not deleted.
    #[test]
    fn one_that_is_kept_twice_goes_as_a_whole() {
        let volume = small_volume("16M", &[]);
        let ino = volume.mkdir("/dir", 0o755).unwrap();
        let volume = volume.inner();
        let dir = volume.inode(ino).unwrap();
        volume.recent.keep(&dir);
        volume.recent.let_go(dir.ino);
        assert_eq!(std::sync::Arc::strong_count(&dir), 1);
    }
}
