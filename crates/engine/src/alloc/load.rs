//! A group's merged bitmap into memory.
//!
//! Input: a group. Output: the group, locked, with its bitmap. Invariants: a bitmap is read without the group's lock, and checked under it
//! against the descriptor; one that was never written is made, not read. Limits: who waits may read a block twice if it is evicted
//! at once.

use super::Alloc;
use super::group::Locked;
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::journal::Store;
use diorite_block::sync::atomic::Ordering;
use diorite_format::{GroupDesc, GroupNo, bitmap};

/// May a search wait?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// For locks, and for bitmaps to be read.
    Waits,
    /// For nothing.
    None,
}

impl Alloc {
    /// Locks a group whose merged bitmap is in memory. None if that would take waiting, and `patience` has none.
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
                // It was read and is gone again, or was changed and went home meanwhile: now nobody can change it.
                read_bitmap(volume, &desc)?;
                if self.load_from_memory(volume, &mut locked)? {
                    return Ok(Some(locked));
                }
            }
            drop(locked);
            // Without the lock, so that nobody waits for the device behind it. What is wrong is found again under the lock.
            tried = true;
            let _seen_again = read_bitmap(volume, &desc);
        }
    }

    /// Loads the merged bitmap if that takes no reading.
    fn load_from_memory(&self, volume: &Store, locked: &mut Locked<'_>) -> Result<bool, Error> {
        let desc = &locked.group.desc;
        let bits = volume.sb.group_clusters(desc.group);
        if desc.flags.block_uninit() {
            let bytes = fresh_bitmap(volume, desc.group)?;
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

/// Brings a group's block bitmap into the metadata cache.
fn read_bitmap(volume: &Store, desc: &GroupDesc) -> Result<(), Error> {
    let verify = |raw: &[u8]| desc.verify_block_bitmap(&volume.sb, raw);
    let (cache, at) = (&volume.cache, desc.block_bitmap);
    let read = cache.read(&volume.blocking, at, Kind::Bitmap, verify);
    volume.watched(read).map(drop)
}

/// The block bitmap of a group in which nothing was ever allocated.
pub(super) fn fresh_bitmap(volume: &Store, group: GroupNo) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; volume.block_size() as usize];
    bitmap::fresh_blocks(&volume.sb, group, volume.groups.iter(), &mut bytes)?;
    Ok(bytes)
}
