//! What a directory remembers of searches, so that the next one needs neither the table of inodes nor its map and blocks: subdirectories by
//! name, the map, the root of its hash tree.
//!
//! Input: what searches have found, under the inode lock. Output: the same for later ones. Invariants: this is the value of the inode lock;
//! who holds that shared reads it and adds to it, and who gets it exclusively, as every change of names does, empties it of subdirectories.
//! So what it has is as the directory says. It keeps no inode in use, only its memory. Limits: [`SLOTS`] subdirectories of a directory and
//! [`MOST`] of a volume; a map of up to [`MOST_SEGMENTS`] segments; a root of a hash tree in its first [`ROOT_BYTES`] bytes.

use super::Inode;
use crate::map::{Cached, MapView};
use diorite_block::sync::BiasedWriteGuard;
use diorite_block::sync::atomic::{AtomicUsize, Ordering};
use diorite_format::dirhash::HashVersion;
use std::sync::{Arc, OnceLock, Weak};

const SLOTS: usize = 32;
/// A subdirectory is looked for in so many slots.
const LOOKS: usize = 4;
/// Remembered subdirectories of a volume: the memory of an inode is some 2 KiB.
const MOST: usize = 1024;
const ROOT_BYTES: usize = 1024;
/// Segments of a map that were read from nodes. The budget of maps does not count those that are remembered only.
const MOST_SEGMENTS: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    subdirs: OnceLock<Box<Subdirs>>,
    map: OnceLock<Cached<MapView>>,
    root: OnceLock<HashRoot>,
}

/// The root of a directory's hash tree, without levels below it but the leaves.
#[derive(Clone, Debug)]
pub(crate) struct HashRoot {
    pub(crate) hash: HashVersion,
    /// The block up to its last entry.
    pub(crate) raw: Arc<[u8]>,
    /// How often the directory had been remade: [`Inode::note_remade`].
    remade: u64,
}

#[derive(Debug, Default)]
struct Subdirs([OnceLock<Subdir>; SLOTS]);

#[derive(Debug)]
struct Subdir {
    name: Box<[u8]>,
    inode: Weak<Inode>,
    #[expect(dead_code, reason = "held for its Drop only")]
    counted: Counted,
}

/// One of the remembered subdirectories of a volume.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Counted {
    /// None if there are enough.
    fn new(count: &Arc<AtomicUsize>) -> Option<Counted> {
        let one = Counted(count.clone());
        (count.fetch_add(1, Ordering::Relaxed) < MOST).then_some(one)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Subdirs {
    /// The slots in which a name may be. Whoever chooses names that have the same slots only makes their searches as long as without.
    fn slots_of(&self, name: &[u8]) -> impl Iterator<Item = &OnceLock<Subdir>> {
        let (mut last, len) = ([0; 8], name.len().min(8));
        last[..len].copy_from_slice(&name[name.len() - len..]);
        let mixed =
            (u64::from_le_bytes(last) ^ name.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let first = (mixed >> 32) as usize;
        (first..first + LOOKS).map(|slot| &self.0[slot % SLOTS])
    }
}

impl Remembered {
    /// The subdirectory with this name, if it is remembered and in memory.
    fn subdir(&self, name: &[u8]) -> Option<Arc<Inode>> {
        let all = self.subdirs.get()?.slots_of(name);
        let named = all.map_while(OnceLock::get);
        // One that was read again has a second slot.
        let mut named = named.filter(|subdir| *subdir.name == *name);
        named.find_map(|subdir| subdir.inode.upgrade())
    }

    /// The newest map of the directory.
    pub(crate) fn map(&self, dir: &Inode) -> Arc<MapView> {
        if let Some(map) = self.map.get().filter(|map| map.is_latest(&dir.map)) {
            return map.value().clone();
        }
        let map = dir.map.cached();
        let value = map.value().clone();
        if dir.loaded.load(Ordering::Relaxed) <= MOST_SEGMENTS {
            let _first = self.map.set(map);
        }
        value
    }

    /// The root of the directory's hash tree, if it is remembered.
    pub(crate) fn root(&self, dir: &Inode) -> Option<&HashRoot> {
        let root = self.root.get()?;
        (root.remade == dir.remade.load(Ordering::Acquire)).then_some(root)
    }

    /// Remembers the root of a hash tree, whose used bytes are these.
    pub(crate) fn note_root(&self, dir: &Inode, hash: HashVersion, used: &[u8]) {
        if used.len() <= ROOT_BYTES && self.root.get().is_none() {
            let remade = dir.remade.load(Ordering::Acquire);
            let raw = used.into();
            let _first = self.root.set(HashRoot { hash, raw, remade });
        }
    }
}

impl Inode {
    /// The subdirectory with this name, if that is remembered. Mostly takes no lock.
    pub(crate) fn remembered_subdir(&self, name: &[u8]) -> Option<Arc<Inode>> {
        if !self.knows_subdirs.load(Ordering::Relaxed) {
            return None;
        }
        self.try_lock_briefly()?.subdir(name)
    }

    /// Remembers an inode that a name refers to, if it is a directory. `names`: the inode lock's value.
    pub(crate) fn note_subdir(&self, names: &Remembered, name: &[u8], inode: &Arc<Inode>) {
        if !inode.is_dir() || matches!(name, b"." | b"..") {
            return;
        }
        let subdirs = names.subdirs.get_or_init(Box::default);
        let Some(slot) = subdirs.slots_of(name).find(|slot| slot.get().is_none()) else {
            return;
        };
        if let Some(counted) = Counted::new(&self.volume.remembered) {
            let _first = slot.set(Subdir {
                name: name.into(),
                inode: Arc::downgrade(inode),
                counted,
            });
            self.knows_subdirs.store(true, Ordering::Relaxed);
        }
    }

    /// Call when the blocks of the directory were rebuilt, which may have changed its hash tree.
    pub(crate) fn note_remade(&self) {
        self.remade.fetch_add(1, Ordering::AcqRel);
    }

    /// Forgets what is going to be, or is, out of date.
    pub(super) fn forgotten<'a>(
        &self,
        mut names: BiasedWriteGuard<'a, Remembered>,
    ) -> BiasedWriteGuard<'a, Remembered> {
        if self.knows_subdirs.load(Ordering::Relaxed) {
            self.knows_subdirs.store(false, Ordering::Relaxed);
            names.subdirs.take();
        }
        let is_old = |map: &Cached<MapView>| !map.is_latest(&self.map);
        if names.map.get().is_some_and(is_old) {
            names.map.take();
        }
        if names.root.get().is_some() && names.root(self).is_none() {
            names.root.take();
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use crate::dir::lookup;
    use crate::testing::small_volume;
    use std::sync::Arc;

    /// The defect: a subdirectory that had left memory was remembered no more, until a name in its parent changed.
    #[test]
    fn one_that_was_read_again_is_remembered_again() {
        let volume = small_volume("16M", &[]);
        let ino = volume.mkdir("/dir", 0o755).unwrap();
        let root = volume.inner().inode(diorite_format::Ino::ROOT).unwrap();
        for _ in 0..3 {
            let dir = lookup(&root, b"dir").unwrap().unwrap();
            let again = root.remembered_subdir(b"dir").unwrap();
            assert!(Arc::ptr_eq(&dir, &again));
            volume.inner().recent.let_go(ino);
            drop((dir, again));
            assert!(root.remembered_subdir(b"dir").is_none());
        }
    }
}
