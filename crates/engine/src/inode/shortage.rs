//! Before `NoSpace` is reported: space that others keep or reserve for a while comes back.
//!
//! Input: an attempt that failed for lack of space. Output: whether another one may succeed. Invariants: an attempt during which nothing
//! was reserved, after all windows were closed, is the last one; each wait for a reservation is bounded, unless others have come back
//! meanwhile. Limits: what a request reserves whose queue nobody reaps comes back as the queue is drained, and not before its device is
//! done.

use super::Fs;
use std::time::Duration;

/// How often, a millisecond each, reservations are waited for of which none comes back.
const PATIENCE: u32 = 50;

/// See the module.
#[derive(Debug)]
pub(crate) struct Shortage {
    /// Clusters that were reserved before the attempt, and the fewest that were.
    before: u64,
    fewest: u64,
    tries: u32,
    waits: u32,
}

impl Shortage {
    /// Call before the first attempt.
    pub(crate) fn new(fs: &Fs) -> Shortage {
        let before = reserved(fs);
        Shortage {
            before,
            fewest: before,
            tries: 0,
            waits: 0,
        }
    }

    /// Has an attempt failed?
    pub(crate) fn was_met(&self) -> bool {
        self.tries > 0
    }

    /// Has one attempt failed, and not more?
    pub(crate) fn is_first(&self) -> bool {
        self.tries == 1
    }

    /// Call after an attempt that failed: closes windows, and waits for what is reserved. False if that was of no use. Blocks; no lock but
    /// a directory's may be held.
    pub(crate) fn relieve(&mut self, fs: &Fs) -> bool {
        self.tries += 1;
        if self.is_first() {
            self.before = reserved(fs);
            fs.close_windows();
            return true;
        }
        if self.before == 0 || self.waits >= PATIENCE {
            return false;
        }
        self.waits += 1;
        if fs.page_cache.dirty_bytes() > 0 {
            fs.page_cache.ask_for_write_back();
        }
        fs.drain_all();
        std::thread::sleep(Duration::from_millis(1));
        self.before = reserved(fs);
        if self.before < self.fewest {
            self.fewest = self.before;
            self.waits = 0;
        }
        fs.close_windows();
        true
    }
}

fn reserved(fs: &Fs) -> u64 {
    fs.alloc.as_ref().map_or(0, |alloc| alloc.reserved())
}
