//! Claims of blocks for a file's holes: near the blocks that the file has, and, for a file that grows, more than it asks for.
//!
//! Input: a hole's first block and length. Output: claimed runs, or blocks of a cluster that the file has already. Invariants: the blocks
//! that are kept ahead (the window) are claimed by this file; they are given back when the file is dropped, is written elsewhere, or space
//! is short; no lock of the file is held while a bitmap is read. Limits: a window of at most [`MOST`] blocks per file.

use super::Inode;
use super::clusters::{self, Shape};
use crate::alloc::Run;
use crate::error::Error;
use crate::locks::CLAIMS;
use crate::map::MapView;
use diorite_block::sync::Mutex;
use diorite_block::sync::atomic::{AtomicBool, Ordering};
use diorite_format::FsBlock;

/// Blocks in the first window of a growing file, and in the largest; each window is twice as large as the one before.
const LEAST: u32 = 16;
const MOST: u32 = 2048;
/// Blocks in the largest window of a file whose pages are written back, in runs of at least so many.
const MOST_DELAYED: u32 = 16384;
const LONG: u32 = 256;

/// The window of a file.
#[derive(Debug)]
pub(crate) struct Claims {
    window: Mutex<Window>,
    /// Something was ever claimed, so there may be a window.
    is_used: AtomicBool,
}

/// Where the blocks of a claim are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// They are taken from the free count.
    Free,
    /// They were taken from it when they became dirty in the page cache.
    Delayed,
}

/// May a claim wait for a bitmap to be read?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    None,
    Waits,
}

/// Blocks that are kept for the file blocks from `next` on.
#[derive(Debug)]
struct Window {
    next: u64,
    run: Run,
    /// How many blocks to claim for the next window.
    size: u32,
}

const EMPTY: Run = Run {
    start: FsBlock::NONE,
    len: 0,
};

impl Claims {
    pub(crate) fn new(level: u8) -> Claims {
        let window = Window {
            next: u64::MAX,
            run: EMPTY,
            size: LEAST,
        };
        Claims {
            window: Mutex::at_level(&CLAIMS, level, window),
            is_used: AtomicBool::new(false),
        }
    }

    /// Claims 1 to `want` blocks for the file blocks from `at` on, which are a hole in `view`; the clusters around the hole must be loaded
    /// there. With bigalloc the blocks are a part of a cluster that the file has, or of new clusters. Blocks while a bitmap is read.
    pub(crate) fn take(
        &self,
        inode: &Inode,
        view: &MapView,
        at: u64,
        want: u32,
    ) -> Result<Run, Error> {
        self.take_from(From::Free, inode, view, (at, want))
    }

    /// As [`Claims::take`], from the file's own reserve or the free count.
    pub(crate) fn take_from(
        &self,
        from: From,
        inode: &Inode,
        view: &MapView,
        range: (u64, u32),
    ) -> Result<Run, Error> {
        let run = self.in_clusters(inode, view, range, (Patience::Waits, from))?;
        run.ok_or_else(|| Error::Invalid(format!("inode {}: its map is not loaded", inode.ino)))
    }

    /// As [`Claims::take_from`], but None if it would have to wait.
    pub(crate) fn try_take(
        &self,
        from: From,
        inode: &Inode,
        view: &MapView,
        range: (u64, u32),
    ) -> Result<Option<Run>, Error> {
        self.in_clusters(inode, view, range, (Patience::None, from))
    }

    /// Gives back the blocks that are kept ahead.
    pub(crate) fn close(&self, inode: &Inode) {
        if !self.is_used.load(Ordering::Acquire) {
            return;
        }
        let kept = self.window.lock().close();
        inode.give_back(kept);
    }

    /// None if it would have to wait without patience, or if a part of the cluster is not loaded.
    fn in_clusters(
        &self,
        inode: &Inode,
        view: &MapView,
        (at, want): (u64, u32),
        how: (Patience, From),
    ) -> Result<Option<Run>, Error> {
        if inode.volume.sb.geometry().cluster_ratio() == 1 {
            return self.search(inode, view, (at, want), how);
        }
        let shape = match clusters::shape(inode, view, at, want)? {
            None => return Ok(None),
            Some(Shape::Has(run)) => return Ok(Some(run)),
            Some(Shape::New(shape)) => shape,
        };
        let found = self.search(inode, view, (shape.start, shape.len), how)?;
        found
            .map(|run| clusters::cut(inode, run, (at, want)))
            .transpose()
    }

    fn search(
        &self,
        inode: &Inode,
        view: &MapView,
        (at, want): (u64, u32),
        how: (Patience, From),
    ) -> Result<Option<Run>, Error> {
        let (patience, from) = how;
        if !self.is_used.load(Ordering::Relaxed) {
            self.is_used.store(true, Ordering::Release);
        }
        let mut window = self.window.lock();
        let follows = window.next == at;
        if follows && window.run.len > 0 {
            return Ok(Some(window.cut(want)));
        }
        // Blocks are kept ahead only for a file that is written sequentially.
        let (goal, ahead) = if follows {
            (window.run.start, window.size.max(want))
        } else {
            let kept = window.close();
            inode.give_back(kept);
            (goal(inode, view, at), want)
        };
        // Write-back brings long runs, of which more will follow: the longer the file is by now, the more.
        let ahead = match from {
            From::Delayed if want >= LONG => {
                let written = if follows { at } else { 0 };
                let written = u32::try_from(written).unwrap_or(MOST_DELAYED);
                ahead.max(want.saturating_mul(4).max(written).min(MOST_DELAYED))
            }
            _ => ahead,
        };
        let asked = Asked {
            goal,
            want,
            ahead,
            from,
        };
        let run = match asked.claim(inode, Patience::None)? {
            Some(run) => run,
            None if patience == Patience::None => return Ok(None),
            None => {
                // Submitters take this lock, so it is not held while a bitmap is read.
                let seen = window.next;
                drop(window);
                let run = asked.claim(inode, Patience::Waits)?;
                let run = run.expect("a claim that waits has a run or an error");
                window = self.window.lock();
                if window.next != seen || window.run.len > 0 {
                    // Another thread has changed the window meanwhile: this claim is used alone, without a window.
                    let (next, size) = (at, LEAST);
                    let mut own = Window { next, run, size };
                    let taken = own.cut(want);
                    drop(window);
                    inode.give_back(own.run);
                    return Ok(Some(taken));
                }
                run
            }
        };
        if follows {
            window.size = (2 * window.size).min(MOST);
        }
        window.run = run;
        window.next = at;
        Ok(Some(window.cut(want)))
    }
}

/// One claim: `want` blocks, or `ahead` if there are so many.
struct Asked {
    goal: FsBlock,
    want: u32,
    ahead: u32,
    from: From,
}

impl Asked {
    /// None if it would have to wait without patience.
    fn claim(&self, inode: &Inode, patience: Patience) -> Result<Option<Run>, Error> {
        let (volume, alloc) = (&inode.volume, inode.volume.alloc()?);
        let ratio = volume.sb.geometry().cluster_ratio();
        let clusters = u64::from(self.want.div_ceil(ratio));
        let own = match self.from {
            From::Free => None,
            From::Delayed => inode.delayed.take(clusters),
        };
        let waits = patience == Patience::Waits;
        let Some(mut own) = own else {
            return match waits {
                true => alloc
                    .claim(volume, self.goal, self.ahead, volume.reach)
                    .map(Some),
                false => alloc.try_claim(volume, self.goal, self.ahead, volume.reach),
            };
        };
        // What is claimed ahead was not reserved; without it the claim is only shorter.
        let more = u64::from(self.ahead.div_ceil(ratio)).saturating_sub(clusters);
        if own.left() == clusters
            && let Ok(more) = alloc.reserve(more, volume.reach)
        {
            own.absorb(more);
        }
        let run = alloc.claim_from(volume, self.goal, self.ahead, (&mut own, waits));
        inode.delayed.put_back(own);
        run
    }
}

impl Window {
    /// Takes the first `want` blocks, or all if there are fewer.
    fn cut(&mut self, want: u32) -> Run {
        let len = want.min(self.run.len);
        let start = self.run.start;
        self.run = Run {
            start: FsBlock::new(start.get() + u64::from(len)),
            len: self.run.len - len,
        };
        self.next += u64::from(len);
        Run { start, len }
    }

    fn close(&mut self) -> Run {
        (self.next, self.size) = (u64::MAX, LEAST);
        std::mem::replace(&mut self.run, EMPTY)
    }
}

/// The goal of a claim: right behind the block before the hole; else where the block would be if the file lay in one piece from the first
/// block of its group on.
pub(super) fn goal(inode: &Inode, view: &MapView, at: u64) -> FsBlock {
    let before = at.checked_sub(1).and_then(|b| view.written_run(b));
    match before {
        Some((start, _, place)) => FsBlock::new(place + (at - start)),
        None => {
            let sb = &inode.volume.sb;
            let alloc = inode.volume.alloc.as_ref();
            let first = alloc.map_or(0, |a| a.goal_of(sb, inode.ino).get());
            let room = sb.geometry().blocks_count().saturating_sub(first).max(1);
            FsBlock::new(first + at % room)
        }
    }
}
