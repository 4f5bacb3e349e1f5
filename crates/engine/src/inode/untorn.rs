//! Atomic (untorn) writes of a file: the blocks that they write to, the bounds of their lengths, and what readers have to know of them.
//!
//! Input: a view of the map, a range with an entry in the pending map. Output: mappings to blocks that no reader sees. Invariants: no block
//! of the range that is written gets other data; the old blocks are used again only after every request that may know them has ended.
//! Limits: with bigalloc only whole clusters are replaced.

use super::fill::fill_claimed;
use super::{Inode, Patience, claims, fill};
use crate::alloc::{Alloc, MOST_UNIT, Owner, Run};
use crate::error::Error;
use crate::inode::{From, Fs};
use crate::map::edit::MappedRun;
use crate::map::{MapView, NotLoaded};
use crate::mapping::{Mapping, MappingState};
use diorite_block::AtomicWrites;
use diorite_block::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use diorite_format::FsBlock;
use std::ops::Range;
use std::sync::OnceLock;

/// Bounds of atomic writes, as `stx_atomic_write_unit_min`, `stx_atomic_write_unit_max` and `stx_atomic_write_segments_max` of statx(2).
/// The length of an atomic write is a power of two between the first two, and its position is a multiple of the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicLimits {
    /// The smallest length in bytes.
    pub unit_min: u32,
    /// The largest length in bytes.
    pub unit_max: u32,
    /// The most buffers of one write. A request has one.
    pub segments_max: u32,
}

/// How a volume writes atomically.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ways {
    /// By mapping new blocks, in units of these lengths.
    pub(crate) remaps: Option<(u32, u32)>,
    /// By one request of the device.
    pub(crate) device: Option<AtomicWrites>,
}

impl Ways {
    pub(crate) fn of(fs: &Fs) -> Ways {
        let sb = &fs.sb;
        let most = u32::try_from(MOST_UNIT).expect("64 KiB");
        let cluster = sb.geometry().cluster_size();
        let remaps = fs.has_log() && fs.alloc.is_some() && cluster <= most;
        let of_device = fs.alloc.as_ref().and_then(|_| fs.device.atomic_writes());
        let device = of_device.map(|device| AtomicWrites {
            unit_min: device.unit_min.max(sb.block_size()),
            unit_max: device.unit_max.min(most),
        });
        Ways {
            remaps: remaps.then_some((cluster, most)),
            device: device.filter(|device| device.unit_min <= device.unit_max),
        }
    }

    pub(crate) fn limits(self) -> Option<AtomicLimits> {
        let of_device = self.device.map(|device| (device.unit_min, device.unit_max));
        let (unit_min, unit_max) = self.remaps.or(of_device)?;
        Some(AtomicLimits {
            unit_min,
            unit_max,
            segments_max: 1,
        })
    }
}

/// What an inode knows of its atomic writes.
#[derive(Debug, Default)]
pub(super) struct Untorn {
    /// How many were about to go down.
    begun: AtomicU64,
    /// As whom it frees old blocks.
    owner: OnceLock<Owner>,
    /// Clusters of old blocks that requests in flight may know; whether somebody waits for the turn because of them.
    old: AtomicU64,
    is_asked: AtomicBool,
}

impl Inode {
    /// Notes that an atomic write is about to go down; its cached pages are dropped.
    pub(crate) fn note_untorn(&self) {
        self.untorn.begun.fetch_add(1, Ordering::SeqCst);
    }

    /// How many atomic writes were about to go down. If a reader that did not read with one request finds another number afterwards, it may
    /// have seen a part of one.
    pub(crate) fn untorn_begun(&self) -> u64 {
        self.untorn.begun.load(Ordering::SeqCst)
    }

    /// Notes that blocks, whole clusters, are replaced that requests in flight may know. Returns their owner.
    pub(super) fn note_swapped(&self, alloc: &Alloc, old: &[MappedRun]) -> Owner {
        let owner = *self.untorn.owner.get_or_init(|| alloc.new_owner());
        let ratio = self.volume.sb.geometry().cluster_ratio();
        let clusters = old.iter().map(|(_, len)| u64::from(len.div_ceil(ratio)));
        self.untorn.old.fetch_add(clusters.sum(), Ordering::SeqCst);
        owner
    }

    /// Are there old blocks that requests in flight may know?
    pub(crate) fn has_swapped(&self) -> bool {
        self.untorn.old.load(Ordering::SeqCst) > 0
    }

    /// Has the volume so many old blocks, and this file so many of them, that this request should have the turn, after which those of this
    /// file may be used again? One request asks, which may wait; all do if that was of no use.
    pub(crate) fn should_let_go_of_swapped(&self, nowait: bool) -> bool {
        let own = self.untorn.old.load(Ordering::SeqCst);
        self.volume.alloc.as_ref().is_some_and(|alloc| {
            let one = !nowait && alloc.has_many_swapped(1, own);
            let first = || !self.untorn.is_asked.swap(true, Ordering::SeqCst);
            one && first() || alloc.has_many_swapped(2, own)
        })
    }

    /// Lets old blocks be used again. The caller has the turn, or is the last user: nobody has a request in flight.
    pub(crate) fn let_go_of_swapped(&self) {
        if self.untorn.old.swap(0, Ordering::SeqCst) > 0
            && let (Some(alloc), Some(owner)) = (&self.volume.alloc, self.untorn.owner.get())
        {
            alloc.note_unknown(&self.volume.sb, *owner);
        }
        self.untorn.is_asked.store(false, Ordering::SeqCst);
    }
}

impl Fs {
    /// Lets the old blocks of atomic writes be used again, of files that have no request in flight. No lock may be held.
    pub(crate) fn let_go_of_swapped(&self) {
        let inodes = self.known_inodes();
        for inode in inodes.iter().filter(|inode| inode.has_swapped()) {
            if inode.gate.try_turn() {
                inode.let_go_of_swapped();
                inode.gate.end_turn();
            }
        }
    }
}

/// Has the file blocks, written or not, in all of the range?
pub(crate) fn is_mapped(view: &MapView, blocks: &Range<u64>) -> bool {
    let is_hole = |m: &Mapping| m.state == MappingState::Hole;
    let mut all = view.walk(blocks.start, blocks.end);
    all.all(|m| m.is_ok_and(|m| !is_hole(&m)))
}

/// As [`fill`], for an atomic write of `blocks`, which are whole clusters: other clusters replace those with a written block. None if it
/// would have to wait for that.
pub(crate) fn fill_anew(
    inode: &Inode,
    view: &MapView,
    entry: u64,
    blocks: Range<u64>,
    patience: Patience,
) -> Result<Option<Vec<Mapping>>, Error> {
    let volume = &inode.volume;
    volume.alloc()?.keep_spare(&volume.sb, volume.reach);
    let ratio = u64::from(volume.sb.geometry().cluster_ratio());
    let Ok(stretches) = stretches(view, blocks, ratio) else {
        return Ok(None);
    };
    let mut filled = Vec::new();
    for (stretch, is_anew) in stretches {
        let is_filled = if is_anew {
            let claims = inode.pending.claims(entry);
            let claim = |blocks| claim_anew(inode, view, blocks, patience);
            fill_claimed(inode, (entry, &claims), stretch, &mut filled, claim)?
        } else {
            let part = fill(inode, view, entry, stretch, (patience, From::Free))?;
            let is_filled = part.is_some();
            filled.extend(part.into_iter().flatten());
            is_filled
        };
        if !is_filled {
            return Ok(None);
        }
    }
    Ok(Some(filled))
}

/// The range in parts: whether the clusters of each have a written block.
fn stretches(
    view: &MapView,
    blocks: Range<u64>,
    ratio: u64,
) -> Result<Vec<(Range<u64>, bool)>, NotLoaded> {
    let mut all: Vec<(Range<u64>, bool)> = Vec::new();
    let mut at = blocks.start;
    while at < blocks.end {
        let end = (at + ratio).min(blocks.end);
        let mut has_written = false;
        for mapping in view.walk(at, end) {
            has_written |= matches!(mapping?.state, MappingState::Written(_));
        }
        match all.last_mut() {
            Some((last, same)) if *same == has_written => last.end = end,
            _ => all.push((at..end, has_written)),
        }
        at = end;
    }
    Ok(all)
}

/// Claims whole clusters for the first blocks of a range.
fn claim_anew(
    inode: &Inode,
    view: &MapView,
    blocks: Range<u64>,
    patience: Patience,
) -> Result<Option<Run>, Error> {
    let volume = &inode.volume;
    let want = u32::try_from(blocks.end - blocks.start).expect("at most 64 KiB");
    let asked = (claims::goal(inode, view, blocks.start), want);
    let waits = patience == Patience::Waits;
    let found = volume
        .alloc()?
        .claim_anew(volume, asked, volume.reach, waits)?;
    let Some(run) = found else {
        return Ok(None);
    };
    // The last cluster of the volume may be too short.
    let ratio = volume.sb.geometry().cluster_ratio();
    let len = run.len / ratio * ratio;
    inode.give_back(Run {
        start: FsBlock::new(run.start.get() + u64::from(len)),
        len: run.len - len,
    });
    match len {
        0 => Err(Error::NoSpace {
            asked: u64::from(want),
            free: u64::from(run.len),
        }),
        _ => Ok(Some(Run { len, ..run })),
    }
}
