//! Where a file's new blocks are claimed: near what it has, and for a file that grows ahead of what it asks.
//!
//! Input: a hole's first block and length. Output: claimed runs, or of a cluster that the file has already. Invariants: what is kept
//! ahead (the window) is claimed and nobody else's; it is given back when the file is let go, written elsewhere, or space is short; no
//! lock of the file is held while a bitmap is read. Limits: a window of at most [`MOST`] blocks per file.

use super::Inode;
use super::clusters::{self, Shape};
use crate::alloc::Run;
use crate::error::Error;
use crate::locks::CLAIMS;
use crate::map::MapView;
use diorite_block::sync::Mutex;
use diorite_format::FsBlock;

/// The first window of a file that grows, and the largest; each is twice the one before.
const LEAST: u32 = 16;
const MOST: u32 = 2048;

/// See the module.
#[derive(Debug)]
pub(crate) struct Claims {
    window: Mutex<Window>,
}

/// May a claim wait?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    None,
    Waits,
}

/// Blocks kept for the file blocks from `next` on.
#[derive(Debug)]
struct Window {
    next: u64,
    run: Run,
    /// How many to keep next time.
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
        }
    }

    /// Claims 1 to `want` blocks for file block `at` and those behind it, a hole in `view`, in which the clusters around it are loaded. With
    /// clusters they are a part of one that the file has, or of new ones. Blocks while a bitmap is read.
    pub(crate) fn take(
        &self,
        inode: &Inode,
        view: &MapView,
        at: u64,
        want: u32,
    ) -> Result<Run, Error> {
        let run = self.in_clusters(inode, view, (at, want), Patience::Waits)?;
        run.ok_or_else(|| Error::Invalid(format!("inode {}: its map is not loaded", inode.ino)))
    }

    /// The same; none where it would have to wait.
    pub(crate) fn try_take(
        &self,
        inode: &Inode,
        view: &MapView,
        at: u64,
        want: u32,
    ) -> Result<Option<Run>, Error> {
        self.in_clusters(inode, view, (at, want), Patience::None)
    }

    /// Gives back what is kept ahead.
    pub(crate) fn close(&self, inode: &Inode) {
        let kept = self.window.lock().close();
        inode.give_back(kept);
    }

    /// None: it would have to wait, and has no patience; or the cluster is not loaded.
    fn in_clusters(
        &self,
        inode: &Inode,
        view: &MapView,
        (at, want): (u64, u32),
        patience: Patience,
    ) -> Result<Option<Run>, Error> {
        if inode.volume.sb.geometry().cluster_ratio() == 1 {
            return self.search(inode, view, (at, want), patience);
        }
        let shape = match clusters::shape(inode, view, at, want)? {
            None => return Ok(None),
            Some(Shape::Has(run)) => return Ok(Some(run)),
            Some(Shape::New(shape)) => shape,
        };
        let found = self.search(inode, view, (shape.start, shape.len), patience)?;
        found
            .map(|run| clusters::cut(inode, run, (at, want)))
            .transpose()
    }

    fn search(
        &self,
        inode: &Inode,
        view: &MapView,
        (at, want): (u64, u32),
        patience: Patience,
    ) -> Result<Option<Run>, Error> {
        let (volume, alloc) = (&inode.volume, inode.volume.alloc()?);
        let mut window = self.window.lock();
        let follows = window.next == at;
        if follows && window.run.len > 0 {
            return Ok(Some(window.cut(want)));
        }
        // Only a file that is written on and on is worth keeping blocks for.
        let (goal, ahead) = if follows {
            (window.run.start, window.size.max(want))
        } else {
            let kept = window.close();
            inode.give_back(kept);
            (goal(inode, view, at), want)
        };
        let run = match alloc.try_claim(volume, goal, ahead, volume.privileged)? {
            Some(run) => run,
            None if patience == Patience::None => return Ok(None),
            None => {
                // Submitters take the lock: nobody has it while a bitmap is read.
                let seen = window.next;
                drop(window);
                let run = alloc.claim(volume, goal, ahead, volume.privileged)?;
                window = self.window.lock();
                if window.next != seen || window.run.len > 0 {
                    // Another has taken it meanwhile.
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

impl Window {
    /// Takes the first `want` blocks, or all there are.
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

/// Behind the blocks before the hole, or where the block would lie if the file were in one piece from its group's first block on.
fn goal(inode: &Inode, view: &MapView, at: u64) -> FsBlock {
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
