//! What it is: the states that a file goes through which is changed by one request at a time.
//! Input: what it began with, and its changes in their order. Output: after each change its size and what its blocks are mapped to; and of each sector
//! that it ever had on the device, all that was written there.
//! Invariants: a sector of the device (a cell) that moves to another place in the file keeps its number; one that is freed never comes back, for
//! it is not used again before the state without it is durable. Of a cluster only the whole is freed: a block that has become a hole gets its cells back while
//! another of the cluster is there. Limits: sizes and ranges are whole sectors.

use crate::history::Start;
use crate::stamp::SECTOR;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// How a file was changed. All ranges are of sectors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It was made, empty.
    Create,
    /// Its only name was removed.
    Unlink,
    /// These were written; the file grows if it ends before them.
    Write(Range<u64>),
    /// It was given this size.
    Truncate(u64),
    /// Holes became unwritten blocks; the file grows unless it keeps its size.
    Allocate(Range<u64>, KeepSize),
    /// The range became a hole.
    Punch(Range<u64>),
    /// The range became zeros that are allocated.
    Zero(Range<u64>, KeepSize),
    /// The range was taken out.
    Collapse(Range<u64>),
    /// The range was put in, as a hole.
    Insert(Range<u64>),
}

/// Does the size stay?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepSize {
    /// It does.
    Yes,
    /// The file ends behind the range, or farther.
    No,
}

/// What was written to a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Zeros,
    /// This sector of the file, as it was numbered then, by the action with this number.
    Stamp {
        sector: u64,
        write: u32,
    },
}

/// What a block of the file is mapped to: the number of its first cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Block {
    Hole,
    Unwritten(usize),
    Written(usize),
}

/// A file between two changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) there: bool,
    /// Its size.
    pub(crate) sectors: u64,
    pub(crate) blocks: Vec<Block>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct States {
    /// Sectors of a block, and blocks of a cluster.
    per: u64,
    cluster: u64,
    /// What was written to each cell, by the change with this place in the list of states.
    cells: Vec<Vec<(usize, Content)>>,
    /// The first is what the file began with.
    pub(crate) list: Vec<State>,
}

impl State {
    fn block(&mut self, number: u64) -> &mut Block {
        let at = place(number);
        if self.blocks.len() <= at {
            self.blocks.resize(at + 1, Block::Hole);
        }
        &mut self.blocks[at]
    }

    /// The same with a hole of so many blocks put in.
    pub(crate) fn with_hole(mut self, at: u64, blocks: u64) -> State {
        let at = place(at);
        if self.blocks.len() > at {
            let hole = std::iter::repeat_n(Block::Hole, place(blocks));
            self.blocks.splice(at..at, hole);
        }
        self
    }

    /// The same with what a write has made of its blocks before `end`, after which it is as in `after`.
    pub(crate) fn written(mut self, after: &State, end: u64, per: u64) -> State {
        let now = place(end).min(after.blocks.len());
        if self.blocks.len() < now {
            self.blocks.resize(now, Block::Hole);
        }
        self.blocks[..now].clone_from_slice(&after.blocks[..now]);
        self.sectors = self.sectors.max(after.sectors.min(end * per));
        self
    }

    /// The same with so many blocks taken out.
    pub(crate) fn without(mut self, blocks: Range<u64>) -> State {
        let end = place(blocks.end).min(self.blocks.len());
        self.blocks.drain(place(blocks.start).min(end)..end);
        self
    }
}

fn place(number: u64) -> usize {
    usize::try_from(number).expect("files here have few blocks")
}

impl States {
    /// A file as it begins, on a volume with blocks of `block` bytes, of which `cluster` are had together.
    pub(crate) fn new(start: &Start, there: bool, (block, cluster): (u32, u32)) -> States {
        let per = u64::from(block) / SECTOR as u64;
        let mut states = States {
            per,
            cluster: u64::from(cluster),
            cells: Vec::new(),
            list: Vec::new(),
        };
        let mut first = State {
            there,
            sectors: start.size / SECTOR as u64,
            blocks: Vec::new(),
        };
        for sectors in &start.data {
            states.write(&mut first, 0, 0, sectors);
        }
        states.list.push(first);
        states
    }

    /// Sectors of a block.
    pub(crate) fn per_block(&self) -> u64 {
        self.per
    }

    /// What may be in a cell when all that came up to the change `base` is settled, and nothing behind the change `last` has begun.
    pub(crate) fn may_hold(&self, cell: usize, base: usize, last: usize) -> Vec<Content> {
        let written = &self.cells[cell];
        let settled = written.iter().rposition(|(at, _)| *at <= base).unwrap_or(0);
        let later = written[settled..].iter().filter(|(at, _)| *at <= last);
        later.map(|(_, content)| *content).collect()
    }

    /// The action with this number changes the file.
    pub(crate) fn apply(&mut self, number: u32, change: &Change) {
        let at = self.list.len();
        let mut state = self.list.last().expect("the first is always there").clone();
        match change {
            Change::Create => state.there = true,
            Change::Unlink => {
                state = State {
                    there: false,
                    sectors: 0,
                    blocks: Vec::new(),
                };
            }
            Change::Write(sectors) => {
                self.write(&mut state, at, number, sectors);
                state.sectors = state.sectors.max(sectors.end);
            }
            Change::Truncate(to) => self.truncate(&mut state, at, *to),
            Change::Allocate(sectors, keep) => {
                self.fill_holes(&mut state, sectors);
                grow(&mut state, sectors.end, *keep);
            }
            Change::Punch(sectors) => {
                for block in self.zero_edges(&mut state, at, sectors) {
                    *state.block(block) = Block::Hole;
                }
            }
            Change::Zero(sectors, keep) => {
                for block in self.zero_edges(&mut state, at, sectors) {
                    if let Block::Written(cell) = *state.block(block) {
                        *state.block(block) = Block::Unwritten(cell);
                    }
                }
                self.fill_holes(&mut state, sectors);
                grow(&mut state, sectors.end, *keep);
            }
            Change::Collapse(sectors) => {
                state = state.without(self.blocks(sectors));
                state.sectors -= sectors.end - sectors.start;
            }
            Change::Insert(sectors) => {
                let blocks = self.blocks(sectors);
                state = state.with_hole(blocks.start, blocks.end - blocks.start);
                state.sectors += sectors.end - sectors.start;
            }
        }
        self.list.push(state);
    }

    /// The blocks that a range of sectors touches.
    pub(crate) fn blocks(&self, sectors: &Range<u64>) -> Range<u64> {
        sectors.start / self.per..sectors.end.div_ceil(self.per)
    }

    /// The cells of a block that was a hole: those of the cluster, if another block of the file has that, else new ones.
    fn new_block(&mut self, state: &State, block: u64) -> usize {
        let first = block - block % self.cluster;
        for other in first..first + self.cluster {
            let there = state.blocks.get(place(other));
            if let Some(Block::Unwritten(cell) | Block::Written(cell)) = there {
                return cell + place(block * self.per) - place(other * self.per);
            }
        }
        let cells = self.cells.len();
        self.cells
            .resize(cells + place(self.cluster * self.per), Vec::new());
        cells + place((block - first) * self.per)
    }

    /// The rest of a block that held no data is filled with zeros.
    fn write(&mut self, state: &mut State, at: usize, number: u32, sectors: &Range<u64>) {
        for block in self.blocks(sectors) {
            let (cell, was_written) = match *state.block(block) {
                Block::Written(cell) => (cell, true),
                Block::Unwritten(cell) => (cell, false),
                Block::Hole => (self.new_block(state, block), false),
            };
            for sector in block * self.per..(block + 1) * self.per {
                let content = match sectors.contains(&sector) {
                    true => Content::Stamp {
                        sector,
                        write: number,
                    },
                    false if was_written => continue,
                    false => Content::Zeros,
                };
                self.cells[cell + place(sector % self.per)].push((at, content));
            }
            *state.block(block) = Block::Written(cell);
        }
    }

    /// Zeros written to sectors of one block, if it holds data.
    fn zero_within(&mut self, state: &mut State, at: usize, sectors: Range<u64>) {
        if sectors.is_empty() {
            return;
        }
        if let Block::Written(cell) = *state.block(sectors.start / self.per) {
            for sector in sectors {
                self.cells[cell + place(sector % self.per)].push((at, Content::Zeros));
            }
        }
    }

    /// The whole blocks of a range, when the parts of blocks at its ends have been zeroed. What is behind the size counts as covered.
    fn zero_edges(&mut self, state: &mut State, at: usize, sectors: &Range<u64>) -> Range<u64> {
        let end = if sectors.end >= state.sectors {
            sectors.end.next_multiple_of(self.per)
        } else {
            sectors.end
        };
        let first = sectors.start.next_multiple_of(self.per);
        let last = end / self.per * self.per;
        if first > last {
            self.zero_within(state, at, sectors.clone());
            return 0..0;
        }
        self.zero_within(state, at, sectors.start..first);
        self.zero_within(state, at, last..end);
        first / self.per..last / self.per
    }

    fn fill_holes(&mut self, state: &mut State, sectors: &Range<u64>) {
        for block in self.blocks(sectors) {
            if *state.block(block) == Block::Hole {
                let cell = self.new_block(state, block);
                *state.block(block) = Block::Unwritten(cell);
            }
        }
    }

    fn truncate(&mut self, state: &mut State, at: usize, to: u64) {
        if to < state.sectors {
            let rest = to..to.next_multiple_of(self.per);
            self.zero_within(state, at, rest);
            state.blocks.truncate(place(to.div_ceil(self.per)));
        }
        state.sectors = to;
    }
}

fn grow(state: &mut State, end: u64, keep: KeepSize) {
    if keep == KeepSize::No {
        state.sectors = state.sectors.max(end);
    }
}

#[cfg(test)]
mod tests;
