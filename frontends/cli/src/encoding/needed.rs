//! Which zeros of a disk have to be written to a device that holds other bytes.
//!
//! Input: a disk that is open. Output: ranges of it. Invariants: a range is left out only if it is a hole that no ext4 file system on the
//! disk, or in a partition of it, uses: tables and files of zeros count although they may be holes. All of a file system that cannot be
//! read is written. Limits: of other file systems everything is written that is no hole.

use super::bmap::Bmap;
use crate::images::device::Opened;
use diorite::probe::find_superblock;
use diorite::{OpenOptions, Volume};
use diorite_block::device::Stored;
use diorite_block::locator::Part;
use diorite_block::{Blocking, Device};
use std::ops::Range;
use std::sync::Arc;

/// What a hole of a disk says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holes {
    /// Nobody has written there.
    Unwritten,
    /// Zeros are there: what is known of the disk came in a stream, which has no holes.
    Zeros,
}

/// See the module: a map, and what is needed beside what is stored.
pub(super) struct Needed {
    map: Bmap,
    device: Arc<dyn Device>,
    /// In order, and apart from each other.
    ranges: Vec<Range<u64>>,
}

impl Needed {
    pub(super) fn new(opened: &Opened, holes: Holes) -> Needed {
        let found = Found::of(&opened.device);
        let ranges = match holes {
            Holes::Unwritten => found.used(),
            Holes::Zeros => without(0..opened.size, &found.free()),
        };
        Needed {
            map: Bmap::default(),
            device: opened.device.clone(),
            ranges,
        }
    }

    /// The next bytes, which are stored.
    pub(super) fn data(&mut self, bytes: &[u8]) {
        self.map.data(bytes);
    }

    /// The next bytes, which the device says are zeros.
    pub(super) fn zeros(&mut self, mut at: u64, len: u64) {
        let (end, all) = (at + len, self.device.geometry().size);
        let sector = u64::from(self.device.geometry().logical);
        while at < end {
            let asked = at..end.next_multiple_of(sector).min(all);
            // What is not known is needed.
            let runs = self.device.stored(asked, 1).unwrap_or_default();
            let run = runs.first().filter(|run| run.len > 0);
            let until = run.map_or(end, |run| end.min(at + run.len));
            match run.map(|run| run.stored) {
                Some(Stored::Hole) => self.hole(at, until),
                _ => self.map.zeros(until - at),
            }
            at = until;
        }
    }

    fn hole(&mut self, mut at: u64, end: u64) {
        let first = self.ranges.partition_point(|range| range.end <= at);
        for range in &self.ranges[first..] {
            if range.start >= end {
                break;
            }
            let from = range.start.max(at);
            let until = range.end.min(end);
            self.map.skip(from - at);
            self.map.zeros(until - from);
            at = until;
        }
        self.map.skip(end - at);
    }

    /// The text of the map.
    pub(super) fn finish(self) -> String {
        self.map.finish()
    }
}

/// The file systems of a disk: where each is, and its free space in bytes of the disk.
struct Found(Vec<(Range<u64>, Vec<Range<u64>>)>);

impl Found {
    fn of(device: &Arc<dyn Device>) -> Found {
        let all = 0..device.geometry().size;
        if let Some(one) = file_system(device, all) {
            return Found(vec![one]);
        }
        let table = Part::default().partitions(device.clone(), device.name());
        let mut parts = table.ok().flatten().map_or(Vec::new(), |table| table.parts);
        parts.sort_by_key(|part| part.start);
        let mut found: Vec<(Range<u64>, _)> = Vec::new();
        for part in parts {
            let inside = Part {
                offset: part.start,
                size: Some(part.size),
                ro: true,
                ..Part::default()
            };
            let range = part.start..part.start.saturating_add(part.size);
            // Of parts that overlap, the first one counts.
            let is_apart = found.last().is_none_or(|(last, _)| last.end <= part.start);
            let window = inside.of_device(device.clone(), device.name());
            if let Some(window) = window.ok().filter(|_| is_apart) {
                found.extend(file_system(&window, range));
            }
        }
        Found(found)
    }

    fn used(&self) -> Vec<Range<u64>> {
        let all = self.0.iter();
        all.flat_map(|(range, free)| without(range.clone(), free))
            .collect()
    }

    fn free(&self) -> Vec<Range<u64>> {
        self.0.iter().flat_map(|(_, free)| free.clone()).collect()
    }
}

/// The file system on a device, which is the range of the disk: its part of that, and where it is free.
fn file_system(
    device: &Arc<dyn Device>,
    range: Range<u64>,
) -> Option<(Range<u64>, Vec<Range<u64>>)> {
    find_superblock(&Blocking::new(device.clone())).ok()?;
    let opened = Volume::open_device(device.clone(), &OpenOptions::default());
    let Ok(volume) = opened else {
        return Some((range, Vec::new()));
    };
    let geometry = volume.superblock().geometry();
    let len = geometry.blocks_count() << geometry.block_bits();
    let free = volume.free_ranges().unwrap_or_default();
    let moved = |free: Range<u64>| range.start + free.start..range.start + free.end;
    Some((
        range.start..range.end.min(range.start.saturating_add(len)),
        free.into_iter().map(moved).collect(),
    ))
}

/// A range without others, which are in order and inside it.
fn without(all: Range<u64>, others: &[Range<u64>]) -> Vec<Range<u64>> {
    let (mut left, mut at) = (Vec::new(), all.start);
    for other in others {
        left.push(at..other.start.clamp(at, all.end));
        at = other.end.clamp(at, all.end);
    }
    left.push(at..all.end);
    left.retain(|range| !range.is_empty());
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_taken_out() {
        let left = |others: &[(u64, u64)]| -> Vec<(u64, u64)> {
            let others: Vec<_> = others.iter().map(|(start, end)| *start..*end).collect();
            let left = without(5..50, &others);
            left.into_iter()
                .map(|range| (range.start, range.end))
                .collect()
        };
        assert_eq!(left(&[(5, 7), (9, 10), (40, 50)]), [(7, 9), (10, 40)]);
        assert_eq!(left(&[]), [(5, 50)]);
        assert_eq!(left(&[(45, 60)]), [(5, 45)]);
        assert_eq!(left(&[(5, 50)]), []);
    }
}
