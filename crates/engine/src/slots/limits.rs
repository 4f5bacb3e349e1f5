//! Alignments and sizes that every request of a queue is checked against, and what the policy lets the fast attempt do.
//!
//! Input: a file system, a policy. Output: [`Limits`], [`Fast`]. Invariants: limits do not change while a queue is open. Limits: none.

use super::Slot;
use crate::inode::{Fs, Ways};
use crate::ioend::{CachedPages, Facts, Verdict, decide};
use crate::policy::{CompletionPolicy, Policy, ReadLock, Unaligned};
use crate::request::MAX_REQUEST;

/// Numbers of the device and the volume that every request needs, and that do not change while a queue is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The device's logical block in bytes, minus 1.
    pub(crate) logical_mask: u64,
    /// The device's DMA alignment in bytes, minus 1.
    pub(crate) dma_mask: usize,
    /// log2 of the file system's block size in bytes, and that size minus 1.
    pub(crate) block_bits: u32,
    pub(crate) block_mask: u64,
    /// The largest bio, in bytes.
    pub(crate) max_transfer: u32,
    /// The largest request, in bytes, that one bio can carry.
    pub(crate) most_single: u64,
    /// The device has FUA: such a write is durable without a flush.
    pub(crate) fua: bool,
    /// The host follows a write with FUA by a flush, and the caller of a request runs such a write itself: [`Limits::of_caller`].
    pub(crate) fua_flushes: bool,
    /// The device has a volatile cache: without FUA or a flush writes are not durable.
    pub(crate) volatile_cache: bool,
    /// How the volume writes atomically.
    pub(crate) untorn: Ways,
}

impl Limits {
    pub(crate) fn new(volume: &Fs) -> Limits {
        let geometry = volume.device.geometry();
        let max_transfer = geometry.max_transfer & !(geometry.logical - 1);
        Limits {
            logical_mask: u64::from(geometry.logical) - 1,
            dma_mask: geometry.dma_align as usize - 1,
            block_bits: volume.block_size().trailing_zeros(),
            block_mask: u64::from(volume.block_size()) - 1,
            max_transfer,
            most_single: u64::from(max_transfer).min(MAX_REQUEST as u64),
            fua: geometry.fua,
            fua_flushes: false,
            volatile_cache: geometry.volatile_cache,
            untorn: Ways::of(volume),
        }
    }

    /// The limits of a queue whose caller runs blocking work itself: a flush has to be in the account from before it begins until it has
    /// ended, so only a thread that waits for it may make it a part of a write.
    pub(crate) fn of_caller(volume: &Fs) -> Limits {
        Limits {
            fua_flushes: volume.device.geometry().fua_flushes,
            ..Limits::new(volume)
        }
    }

    /// Are start and end of the request aligned to file-system blocks?
    #[inline]
    pub(crate) fn is_block_aligned(&self, slot: &Slot) -> bool {
        (slot.pos | u64::from(slot.len)) & self.block_mask == 0
    }
}

/// Which requests the policy lets the fast attempt take; computed when the policy changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fast {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    pub(crate) unaligned_writes: bool,
    /// Also writes of a file with cached pages, if there are none in their range.
    pub(crate) beside_pages: bool,
}

impl Fast {
    pub(crate) fn of(policy: Policy) -> Fast {
        let nothing_owed = Facts {
            failed: false,
            owes_flush: false,
            owes_commit: false,
            owes_map: false,
            cached: CachedPages::None,
        };
        let inline = decide(policy.completion, nothing_owed) == Verdict::Inline;
        // The fast attempt stays in one extent, so only a policy that runs every unaligned write alone excludes them.
        let unaligned_writes = inline && policy.unaligned != Unaligned::Exclusive;
        Fast {
            reads: policy.read_lock == ReadLock::None,
            writes: inline,
            unaligned_writes,
            beside_pages: policy.completion != CompletionPolicy::InlineUnlessCached,
        }
    }

    /// The same without writes, for a volume that is not open for them any more.
    pub(crate) fn for_reading(self) -> Fast {
        Fast {
            writes: false,
            unaligned_writes: false,
            ..self
        }
    }
}
