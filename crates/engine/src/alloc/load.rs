//! Loads a group's merged bitmap.
//!
//! Input: a group. Output: the group, locked, with its bitmap in memory. Invariants: a bitmap is read without the group's lock, and
//! checked against the descriptor under the lock; one that was never written is computed, not read. Limits: a thread that waits may read a
//! block twice, if the cache evicts it at once.

use super::Alloc;
use super::group::Locked;
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::journal::Store;
use diorite_block::sync::atomic::Ordering;
use diorite_format::{GroupDesc, GroupNo};

/// Whether a search may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// It may wait for locks, and for bitmaps to be read.
    Waits,
    /// It may not wait at all.
    None,
}

impl Alloc {
    /// Locks a group and makes sure that its merged bitmap is in memory. None if that has to wait and `patience` does not allow it.
    pub(super) fn lock_loaded(
        &self,
        volume: &Store,
        group: GroupNo,
        patience: Patience,
    ) -> Result<Option<Locked<'_>>, Error> {
        let slot = self.slot(group);
        let mut tried = false;
        loop {
            let locked = match patience {
                Patience::Waits => Some(slot.lock()),
                Patience::None => slot.try_lock(),
            };
            let Some(mut locked) = locked else {
                return Ok(None);
            };
            if locked.is_loaded() || self.load_from_memory(volume, &mut locked)? {
                return Ok(Some(locked));
            }
            let desc = locked.group.desc.clone();
            if patience == Patience::None {
                return Ok(None);
            }
            if tried {
                // It was read and evicted, or changed and written home, meanwhile. With the lock held nobody can change it.
                read_bitmap(volume, &desc)?;
                if self.load_from_memory(volume, &mut locked)? {
                    return Ok(Some(locked));
                }
            }
            drop(locked);
            // Read without the lock, so that nobody waits for the device behind it. An error is found again under the lock.
            tried = true;
            let _seen_again = read_bitmap(volume, &desc);
        }
    }

    /// Makes the merged bitmap, if the bitmap on disk need not be read for it.
    fn load_from_memory(&self, volume: &Store, locked: &mut Locked<'_>) -> Result<bool, Error> {
        let desc = &locked.group.desc;
        let bits = volume.sb.group_clusters(desc.group);
        if desc.flags.block_uninit() {
            let bytes = volume.fresh_bitmap(desc.group)?;
            locked.load(&bytes, bits)?;
        } else if let Some(bytes) = volume.cache.peek(desc.block_bitmap, Kind::Bitmap) {
            locked.load(&bytes, bits)?;
        } else {
            return Ok(false);
        }
        self.loaded.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }
}

/// Reads a group's block bitmap into the metadata cache.
fn read_bitmap(volume: &Store, desc: &GroupDesc) -> Result<(), Error> {
    let verify = |raw: &[u8]| desc.verify_block_bitmap(&volume.sb, raw);
    let (cache, at) = (&volume.cache, desc.block_bitmap);
    let read = cache.read(&volume.blocking, at, Kind::Bitmap, verify);
    volume.watched(read).map(drop)
}
