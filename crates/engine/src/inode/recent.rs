//! Directories that came into memory lately, so that the next path through them need not read them again.
//!
//! Input: directories as they come into memory. Output: references that keep them there. Invariants: none without a name is kept, for it is to be deleted with
//! its last user; none is dropped under the lock; they hold the volume, so none is kept before it is served, and all go with its last handle: an opening that fails leaves
//! nothing behind. Limits: [`MOST`] directories; the one that came first goes first, and comes again if it is still used.

use crate::inode::Inode;
use crate::locks::RECENT;
use diorite_block::sync::Mutex;
use diorite_format::Ino;
use std::collections::VecDeque;
use std::sync::Arc;

/// Directories kept.
const MOST: usize = 512;

/// See the module.
#[derive(Debug)]
pub(crate) struct Recent {
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// The one that came first at the front.
    all: VecDeque<Arc<Inode>>,
    /// Some are taken.
    open: bool,
}

impl Recent {
    pub(crate) fn new(level: u8) -> Recent {
        Recent {
            kept: Mutex::at_level(&RECENT, level, Kept::default()),
        }
    }

    /// The volume is served from now on.
    pub(crate) fn open(&self) {
        self.kept.lock().open = true;
    }

    /// Keeps it for a while, if it is a directory.
    pub(crate) fn keep(&self, inode: &Arc<Inode>) {
        if !inode.disk().is_dir() {
            return;
        }
        let mut kept = self.kept.lock();
        if !kept.open || inode.is_unlinked() {
            return;
        }
        let first = match kept.all.len() < MOST {
            true => None,
            false => kept.all.pop_front(),
        };
        kept.all.push_back(inode.clone());
        drop(kept);
        drop(first);
    }

    /// This one has lost its name. Whoever says so has it.
    pub(crate) fn let_go(&self, ino: Ino) {
        let mut kept = self.kept.lock();
        let at = kept.all.iter().position(|inode| inode.ino == ino);
        let gone = at.and_then(|at| kept.all.remove(at));
        drop(kept);
        drop(gone);
    }

    /// All of them go, and none comes any more.
    pub(crate) fn close(&self) {
        let mut kept = self.kept.lock();
        kept.open = false;
        let all = std::mem::take(&mut kept.all);
        drop(kept);
        drop(all);
    }
}
