//! What the kernel has cached of an inode, where the reply to a request does not tell it what the request changed.
//!
//! Input: changes of attributes, direct writes, inodes whose bytes are wanted. Output: notices to the kernel, before the reply is sent.
//! Invariants: a notice about attributes waits for no page; only if the kernel is just dropping the inode does it wait until that is done.
//! One about pages waits until whoever has them locked has got a reply, so it is sent only while another thread serves that (see [`Help`]),
//! and never for a write from the kernel's cache, whose own pages are locked. Limits: if no thread is left, pages are forgotten as soon as
//! one is; then bytes are not asked for.

use super::FileSystem;
use super::opened::Way;
use diorite::Ino;
use diorite_block::sync::{LockClass, Mutex};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst, fence};

/// Pages that are to be forgotten late.
static FUSE_LATE: LockClass = LockClass::new("fuse-late", 65);

/// The largest offset that the kernel has.
pub(super) const ALL: Range<u64> = 0..i64::MAX.unsigned_abs();

/// The thread that executes a request, as one of those that serve the mount.
pub(crate) trait Help {
    /// Whether other threads serve what the kernel sends while this one waits for the kernel. True stays so until the request ends.
    /// `long`: that may take long, so there should be as many of them as usual.
    fn is_there(&self, long: bool) -> bool;

    /// Whether this thread may wait for other requests without being one that they wait for. False: the call that asks has to fail, and the
    /// whole request is executed again, by a thread that may.
    fn may_wait(&self) -> bool;
}

/// What is known of the kernel's pages of an inode that is open.
#[derive(Debug, Default)]
pub(super) struct Pages(AtomicBool);

impl Pages {
    /// Call before bytes are read or written in this way.
    pub(super) fn note(&self, way: Way, all: &WithPages) {
        if way != Way::Direct && !self.0.load(Relaxed) {
            // Before the inode is one of them, so that they are never too few.
            all.0.fetch_add(1, Relaxed);
            if self.0.swap(true, SeqCst) {
                all.0.fetch_sub(1, Relaxed);
            }
            // Either the bytes are newer than those of a direct write, or its thread finds this.
            fence(SeqCst);
        }
    }

    /// While its files stay open an inode keeps the answer "yes": the kernel does not say when it drops pages.
    pub(super) fn are_there(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// How many inodes that are open have pages: where all I/O is direct nobody looks for those of a file. Its cache line seldom changes, so it
/// has that alone.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct WithPages(AtomicUsize);

impl WithPages {
    /// Call when bytes have been written past the pages, before [`Pages::are_there`].
    pub(super) fn are_any(&self) -> bool {
        fence(SeqCst);
        self.0.load(Relaxed) > 0
    }

    /// Call when the last file of an inode is closed.
    pub(super) fn closed(&self, pages: &Pages) {
        if pages.are_there() {
            self.0.fetch_sub(1, Relaxed);
        }
    }
}

/// Notices that are under way, or late.
#[derive(Debug)]
pub(super) struct Notices {
    /// Threads that wait for the kernel to hand over what mappings have changed.
    handing_over: AtomicUsize,
    /// By node: what is to be forgotten when a thread is free.
    late: Mutex<BTreeMap<u64, Range<u64>>>,
}

impl Default for Notices {
    fn default() -> Self {
        Notices {
            handing_over: AtomicUsize::new(0),
            late: Mutex::new(&FUSE_LATE, BTreeMap::new()),
        }
    }
}

impl FileSystem {
    /// The kernel forgets the attributes of a node. A reply with older ones that is still under way does not count either.
    pub(super) fn forget_attributes(&self, node: u64) {
        self.kernel.forget_attributes(node);
    }

    /// Call when a direct write has ended, however: pages that were read before it, and that came into the kernel's cache after it had
    /// cleared the way for this write, are there no longer. The kernel itself looks for them only behind a write that its caller waits
    /// for. False: this thread may not wait for that, and the request has to be executed again.
    pub(super) fn forget_written(
        &self,
        node: u64,
        handle: u64,
        bytes: Range<u64>,
        help: &dyn Help,
    ) -> bool {
        if bytes.is_empty() || !self.files.may_have_pages(handle) {
            return true;
        }
        if !help.may_wait() {
            return false;
        }
        if help.is_there(false) {
            self.kernel.forget_pages(node, bytes);
            return true;
        }
        let mut late = self.notices.late.lock();
        let all = late.entry(node).or_insert_with(|| bytes.clone());
        *all = all.start.min(bytes.start)..all.end.max(bytes.end);
        true
    }

    /// Was something left to forget?
    pub(crate) fn has_late(&self) -> bool {
        !self.notices.late.lock().is_empty()
    }

    /// Call with a thread that may wait for the kernel.
    pub(crate) fn forget_late(&self) {
        loop {
            let next = self.notices.late.lock().pop_first();
            match next {
                Some((node, bytes)) => self.kernel.forget_pages(node, bytes),
                None => return,
            }
        }
    }

    /// Has the kernel hand over what mappings have changed in a range. False: too many threads wait for that already; the rest must serve
    /// what they wait for.
    pub(super) fn hand_over(&self, node: u64, bytes: Range<u64>) -> bool {
        const MOST: usize = 8;
        let others = self.notices.handing_over.fetch_add(1, Relaxed);
        if others < MOST {
            self.kernel.forget_pages(node, bytes);
        }
        self.notices.handing_over.fetch_sub(1, Relaxed);
        others < MOST
    }

    /// Has the kernel hand over all that it has collected of an inode, by writes or mappings: there is none without a file that is open
    /// for writing.
    pub(super) fn collect(&self, ino: Ino, help: &dyn Help) {
        if let Ok(node) = self.node(ino)
            && self.files.is_written(ino)
            && help.is_there(true)
        {
            self.kernel.forget_pages(node, ALL);
        }
    }
}
