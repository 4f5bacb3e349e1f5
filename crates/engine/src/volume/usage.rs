//! What a volume holds at one moment: space, requests, memory.
//!
//! Input: counters, and the inodes and queues in memory. Output: a [`Usage`]. Invariants: nothing is changed; only short locks are taken.
//! Limits: the parts are counted one after the other, so the sum is exact only while nothing changes.

use super::Volume;
use crate::stats::Usage;

impl Volume {
    /// What the volume holds now. A request that has ended holds nothing: after all files are dropped and a [`Volume::sync`], no free
    /// block waits for a commit, and there is no request, range or pin. For tests and monitoring; exact only while nothing changes. Does
    /// not block on I/O; its cost grows with the inodes and metadata blocks in memory.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let volume = self.inner();
        let mut usage = Usage {
            map_segments: volume.count_segments(),
            dirty_times: volume.count_noted_times() as u64,
            ..Usage::default()
        };
        (usage.cached_blocks, usage.pinned_blocks) = volume.cache.count();
        if let Some(alloc) = &volume.alloc {
            (usage.free, usage.waiting) = alloc.now_free();
            usage.free_on_disk = alloc.free_blocks();
            usage.free_inodes = u64::from(alloc.free_inodes());
        }
        for queue in self.service().open_queues() {
            let state = queue.lock();
            usage.queues += 1;
            usage.requests += state.slots.used() as u64;
            usage.waiting_requests += u64::from(state.parked) + u64::from(state.held);
            usage.attached += state.files.iter().flatten().count() as u64;
        }
        for inode in volume.known_inodes() {
            usage.inodes += 1;
            usage.in_flight += inode.gate.in_flight();
            usage.pending += inode.pending.count() as u64;
        }
        usage
    }
}
