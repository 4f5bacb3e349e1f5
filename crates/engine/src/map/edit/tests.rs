//! Edits of real maps, compared with a model and judged by e2fsck.

mod aged;
mod hostile;
mod judge;
mod rig;
mod units;

use super::{End, NewRun};
use crate::testing::Rng;
use diorite_format::FsBlock;
use rig::Rig;
use std::ops::Range;

const EXT4: &[&str] = &["-t", "ext4", "-O", "^has_journal"];
const JOURNALLED: &[&str] = &["-t", "ext4", "-J", "size=4"];

/// What a random edit may do.
struct Dice {
    rng: Rng,
    /// File blocks in use.
    span: u64,
    /// Blocks in one edit.
    long: u64,
    extents: bool,
}

impl Dice {
    fn range(&mut self) -> Range<u32> {
        let from = self.rng.below(self.span) as u32;
        let long = match self.rng.below(40) {
            0 => self.span / 4,
            1..=4 => self.long * 10,
            _ => self.long,
        };
        from..from + 1 + self.rng.below(long) as u32
    }

    /// Maps holes of a range, leaves what is mapped.
    fn fill(&mut self, rig: &Rig, range: Range<u32>) -> Vec<NewRun> {
        let mut new = as_mapped(rig, range.clone(), false);
        let unwritten = self.extents && self.rng.below(2) == 0;
        let at = range.start + self.rng.below(u64::from(range.end - range.start)) as u32;
        let hole = rig
            .file
            .blocks
            .range(at..)
            .next()
            .map_or(u32::MAX, |(b, _)| *b)
            - at;
        if hole > 0 && rig.free.blocks.len() > 2000 {
            let len = hole.min(range.end - at);
            let run = rig.pick(&mut self.rng, len);
            new.push(NewRun {
                file_block: at,
                unwritten,
                ..run
            });
        }
        new.sort_by_key(|n| n.file_block);
        new
    }

    fn step(&mut self, rig: &mut Rig) -> Range<u32> {
        let range = self.range();
        match self.rng.below(10) {
            0..=5 => {
                let new = self.fill(rig, range.clone());
                rig.replace(range.clone(), &new);
            }
            6 | 7 => {
                // What was unwritten has been written.
                let new = as_mapped(rig, range.clone(), true);
                rig.replace(range.clone(), &new);
            }
            8 => rig.replace(range.clone(), &[]),
            _ if self.extents => self.move_all(rig, &range),
            _ => {}
        }
        range
    }

    /// Takes a short range out of the file, or puts one in.
    fn move_all(&mut self, rig: &mut Rig, range: &Range<u32>) {
        let by = 1 + self.rng.below(50) as u32;
        let from = range.start + by;
        if self.rng.below(2) == 0 {
            rig.replace(range.start..from, &[]);
            let mut start = from;
            while start < u32::MAX {
                let part = rig.part(start..u32::MAX, End::First);
                start = part.end;
            }
        } else {
            let mut end = self.span as u32 * 2;
            rig.truncate(end);
            while from < end {
                let part = rig.part(from..end, End::Last);
                end = part.start;
            }
        }
    }
}

/// The runs that a range is mapped to; as written if that is asked.
fn as_mapped(rig: &Rig, range: Range<u32>, written: bool) -> Vec<NewRun> {
    let mut runs: Vec<NewRun> = Vec::new();
    for (block, (at, was_unwritten)) in rig.file.blocks.range(range) {
        let unwritten = *was_unwritten && !written;
        match runs.last_mut() {
            Some(r)
                if r.file_block + r.len == *block
                    && r.start.get() + u64::from(r.len) == *at
                    && r.unwritten == unwritten =>
            {
                r.len += 1;
            }
            _ => runs.push(NewRun {
                file_block: *block,
                len: 1,
                start: FsBlock::new(*at),
                unwritten,
            }),
        }
    }
    runs
}

fn storm(mut rig: Rig, mut dice: Dice, steps: u32, depth: u16) {
    let mut deepest = 0;
    for step in 0..steps {
        let range = dice.step(&mut rig);
        deepest = deepest.max(rig.depth());
        rig.check(range.start.saturating_sub(300)..range.end + 300);
        match dice.rng.below(100) {
            0 => rig.check_disk(),
            1..=5 => rig.file.inode.drop_loaded_map(),
            _ => {}
        }
        if step % 2000 == 1999 {
            rig.truncate(dice.rng.below(dice.span) as u32);
            rig.check_disk();
        }
    }
    assert!(deepest >= depth || !dice.extents, "depth {deepest} only");
    let better = rig.finish_with_e2fsck();
    let is_offer = |l: &str| l.ends_with("Optimize? no");
    assert!(better.lines().all(is_offer), "{better}");
}

fn dice(what: &str, span: u64, long: u64, extents: bool) -> Dice {
    Dice {
        rng: Rng::from_env(what),
        span,
        long,
        extents,
    }
}

#[test]
fn ten_thousand_edits_of_an_extent_tree() {
    for (made, steps) in [(JOURNALLED, 7000), (EXT4, 3000)] {
        if let Some(rig) = Rig::new(made, "48M", 30_000) {
            storm(rig, dice("tree edits", 40_000, 12, true), steps, 2);
        }
    }
}

#[test]
fn edits_through_a_journal() {
    if let Some(rig) = Rig::new(JOURNALLED, "48M", 20_000) {
        storm(rig, dice("journalled edits", 8000, 8, true), 1500, 1);
    }
}

#[test]
fn edits_of_pointers() {
    for kind in ["ext2", "ext3"] {
        if let Some(rig) = Rig::new(&["-t", kind], "48M", 20_000) {
            storm(rig, dice("pointer edits", 70_000, 30, false), 2000, 0);
        }
    }
}
