//! What a queue keeps of an attached file: its shard of the gate's count, the view of the map it saw last, the run it found last.
//!
//! Input: an open file. Output: the newest view of the map, at the cost of one load if nothing was published; for `dio::fast` the place
//! of a range, at one comparison more. Invariants: gate, size and map are read in this order; a run found in an older view is forgotten.
//! Limits: used under its queue's lock.

use crate::inode::{Handle, Inode};
use crate::map::{Cached, MapView};
use std::sync::Arc;

/// A written run, in bytes: where it starts in the file (`start`) and on the device (`at`), and its length.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    start: u64,
    len: u64,
    at: u64,
}

impl Run {
    #[inline(always)]
    fn covers(&self, pos: u64, len: u64) -> bool {
        let skip = pos.wrapping_sub(self.start);
        skip < self.len && len <= self.len - skip
    }
}

/// A file attached to a queue.
#[derive(Debug)]
pub(crate) struct Attached {
    handle: Arc<Handle>,
    /// The newest view of the map that this queue has seen.
    view: Cached<MapView>,
    /// The written run of `view` that was looked up last.
    last_run: Run,
    /// How many slots of the queue hold requests of this file that are not ready.
    pub(crate) requests: u32,
    pub(crate) generation: u32,
}

impl Attached {
    pub(crate) fn new(handle: Handle, generation: u32) -> Attached {
        Attached {
            view: handle.inode.map.cached(),
            last_run: Run::default(),
            handle: Arc::new(handle),
            requests: 0,
            generation,
        }
    }

    /// The file, and the newest view of its map. Costs one load if nothing was published since the last call.
    #[inline]
    pub(crate) fn with_latest_map(&mut self) -> (&Handle, &Arc<MapView>) {
        self.refresh();
        (&self.handle, self.view.value())
    }

    /// Counts a request for `len` bytes at `pos` in flight, if they lie inside the size and in one written run. Returns the byte of the
    /// device at which they start. Reads gate, size and map in this order. `beside_pages`: also if the file has cached pages elsewhere.
    #[inline(always)]
    pub(crate) fn enter_for_run(&mut self, pos: u64, len: u64, beside_pages: bool) -> Option<u64> {
        let Attached {
            handle,
            view,
            last_run,
            ..
        } = self;
        let inode: &Inode = &handle.inode;
        let no_pages = || beside_pages && !inode.pages.may_have(&(pos..pos.saturating_add(len)));
        if !inode.gate.enter(&handle.shard, no_pages) {
            return None;
        }
        let size = inode.size();
        let found = if len > size || pos > size - len {
            None
        } else if view.is_latest(&inode.map) && last_run.covers(pos, len) {
            Some(last_run.at + (pos - last_run.start))
        } else {
            self.look_up_run(pos, len)
        };
        if found.is_some() {
            self.requests += 1;
        } else {
            self.handle.inode.gate.leave(&self.handle.shard);
        }
        found
    }

    #[inline(never)]
    fn look_up_run(&mut self, pos: u64, len: u64) -> Option<u64> {
        self.refresh();
        if self.handle.inode.is_journalled() {
            return None;
        }
        let bits = self.handle.inode.volume.block_size().trailing_zeros();
        let (start, blocks, at) = self.view.value().written_run(pos >> bits)?;
        let run = Run {
            start: start << bits,
            len: blocks << bits,
            at: at << bits,
        };
        self.last_run = run;
        run.covers(pos, len).then(|| run.at + (pos - run.start))
    }

    /// Takes the newest view; if it is another, forgets the run found in the older one.
    #[inline]
    fn refresh(&mut self) {
        if self.view.refresh(&self.handle.inode.map) {
            self.last_run = Run::default();
            self.handle.retired.sweep();
        }
    }

    /// A reference that outlives the queue's lock.
    #[inline]
    pub(crate) fn handle(&self) -> Arc<Handle> {
        self.handle.clone()
    }
}

impl std::ops::Deref for Attached {
    type Target = Handle;
    #[inline]
    fn deref(&self) -> &Handle {
        &self.handle
    }
}
