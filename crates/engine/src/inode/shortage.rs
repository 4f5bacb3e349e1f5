//! Before `NoSpace` is reported: waits for space that others claim or reserve only temporarily.
//!
//! Input: an attempt that failed for lack of space. Output: whether another one may succeed. Invariants: an attempt during which nobody had
//! free blocks claimed or reserved, after all windows were closed, is the last one; waits are bounded, by [`PATIENCE`] without progress and
//! by [`MOST`] altogether. Limits: what the caller itself has claimed counts, too; the space of a request whose queue is not reaped comes
//! back when another thread drains the queue, and not before its bios have ended.

use super::Fs;
use crate::error::Error;
use std::time::{Duration, Instant};

/// How long blocks of others are waited for while none comes back; and in all.
const PATIENCE: Duration = Duration::from_millis(200);
const MOST: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    /// Clusters that others had before the attempt; not known before the first.
    before: u64,
    tries: u32,
    /// When the first attempt failed, and when blocks of others came back last.
    began: Option<Instant>,
    moved: Option<Instant>,
}

impl Shortage {
    /// Has an attempt failed?
    pub(crate) fn was_met(&self) -> bool {
        self.tries > 0
    }

    /// Has one attempt failed, and not more?
    pub(crate) fn is_first(&self) -> bool {
        self.tries == 1
    }

    /// Call after an attempt that failed: closes windows, and waits for what others have. False if that was of no use. Blocks; no lock may
    /// be held, not even a directory's.
    pub(crate) fn relieve(&mut self, fs: &Fs) -> bool {
        let time = Instant::now();
        let began = *self.began.get_or_insert(time);
        let moved = *self.moved.get_or_insert(time);
        self.tries += 1;
        if !self.is_first() {
            if self.before == 0 || time - moved >= PATIENCE || time - began >= MOST {
                return false;
            }
            if fs.page_cache.dirty_bytes() > 0 {
                fs.page_cache.ask_for_write_back();
            }
            fs.drain_all();
            std::thread::sleep(Duration::from_millis(1));
        }
        fs.close_windows();
        fs.let_go_of_swapped();
        let now = fs.alloc.as_ref().map_or(0, |alloc| alloc.spoken_for());
        if now < self.before {
            self.moved = Some(time);
        }
        self.before = now;
        true
    }
}

impl Fs {
    /// As [`Fs::with_all_space`], but repeats it as long as space comes back that others claim or reserve for a while. Blocks; no lock may
    /// be held, not even a directory's.
    pub(crate) fn with_space_of_others<R>(
        &self,
        mut attempt: impl FnMut() -> Result<R, Error>,
    ) -> Result<R, Error> {
        let mut shortage = Shortage::default();
        loop {
            match self.or_commit(&mut attempt) {
                Err(Error::NoSpace { .. }) if shortage.relieve(self) => {}
                done => return done,
            }
        }
    }
}
