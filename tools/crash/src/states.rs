//! What it is: the states of a file that is changed by one request at a time.
//! Input: what the file begins with, and its changes in their order. Output: after each change, the file's size and what its blocks
//! are mapped to; and for each sector that the file ever had on the device, everything that was written there.
//! Invariants: a sector of the device (a cell) keeps its number if it moves to another position in the file. A freed cell never
//! returns to the file, because space is not reused before the state without it is durable. Clusters are freed as a whole: a block
//! that has become a hole gets its cells back while another block of its cluster is mapped. Limits: sizes and ranges are whole
//! sectors.

use crate::history::Start;
use crate::stamp::SECTOR;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// A change of a file. All ranges are in sectors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Create it, empty.
    Create,
    /// Remove its only name.
    Unlink,
    /// Write these sectors; the file grows if it ends before them.
    Write(Range<u64>),
    /// Set this size.
    Truncate(u64),
    /// Make unwritten blocks of holes; the file grows to the range's end unless it keeps its size.
    Allocate(Range<u64>, KeepSize),
    /// Make a hole of the range.
    Punch(Range<u64>),
    /// Make the range zeros, with its blocks allocated.
    Zero(Range<u64>, KeepSize),
    /// Remove the range from the file; later data moves down.
    Collapse(Range<u64>),
    /// Insert the range as a hole; later data moves up.
    Insert(Range<u64>),
}

/// Whether a change keeps the file's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepSize {
    /// The size does not change.
    Yes,
    /// The file ends at the end of the range or after it.
    No,
}

/// What was written to a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Zeros,
    /// This sector of the file (by its number at that time), written by the action with this number.
    Stamp {
        sector: u64,
        write: u32,
    },
}

/// What a block of the file is mapped to; the number is that of its first cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Block {
    Hole,
    Unwritten(usize),
    Written(usize),
}

/// A file after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) there: bool,
    /// The size in sectors.
    pub(crate) sectors: u64,
    pub(crate) blocks: Vec<Block>,
}

/// All states of a file. See the module.
#[derive(Debug)]
pub(crate) struct States {
    /// Sectors per block, and blocks per cluster.
    per: u64,
    cluster: u64,
    /// The writes to each cell, each with the index in `list` of the state that it led to.
    cells: Vec<Vec<(usize, Content)>>,
    /// The first state is what the file begins with.
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

    /// This state with a hole of `blocks` blocks inserted at block `at`.
    pub(crate) fn with_hole(mut self, at: u64, blocks: u64) -> State {
        let at = place(at);
        if self.blocks.len() > at {
            let hole = std::iter::repeat_n(Block::Hole, place(blocks));
            self.blocks.splice(at..at, hole);
        }
        self
    }

    /// This state with its blocks before `end` as in `after`: a write that is there only in part.
    pub(crate) fn written(mut self, after: &State, end: u64, per: u64) -> State {
        let now = place(end).min(after.blocks.len());
        if self.blocks.len() < now {
            self.blocks.resize(now, Block::Hole);
        }
        self.blocks[..now].clone_from_slice(&after.blocks[..now]);
        self.sectors = self.sectors.max(after.sectors.min(end * per));
        self
    }

    /// This state with these blocks removed.
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
    /// A file as it begins, on a volume with blocks of `block` bytes and clusters of `cluster` blocks.
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

    /// Sectors per block.
    pub(crate) fn per_block(&self) -> u64 {
        self.per
    }

    /// What a cell may hold when all changes up to `base` are durable, and none after `last` has begun.
    pub(crate) fn may_hold(&self, cell: usize, base: usize, last: usize) -> Vec<Content> {
        let written = &self.cells[cell];
        let durable = written.iter().rposition(|(at, _)| *at <= base).unwrap_or(0);
        let later = written[durable..].iter().filter(|(at, _)| *at <= last);
        later.map(|(_, content)| *content).collect()
    }

    /// Adds the state after the change that the action with this number makes.
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

    /// The blocks that a range of sectors touches, also in part.
    pub(crate) fn blocks(&self, sectors: &Range<u64>) -> Range<u64> {
        sectors.start / self.per..sectors.end.div_ceil(self.per)
    }

    /// The cells of a block that was a hole: those of its cluster if another block of the file maps it, else new ones.
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

    /// Writes sectors. In a block that held no data before, the other sectors become zeros.
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

    /// Writes zeros to sectors of one block, if that block holds data.
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

    /// Zeroes the partial blocks at the ends of a range and returns the whole blocks between them. A range that reaches the size
    /// includes the rest of its last block.
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
