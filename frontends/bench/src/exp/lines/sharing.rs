//! Which cache lines several threads write: caches without a limit, one for each thread, that hold lines of 64 bytes.
//!
//! Input: accesses in their order, and where the threads' stacks and the load's own memory are. Output: the lines that were written by more
//! than one thread in the measured time, with what they cost. Invariants: stacks (with the thread-local memory above them) and the load's
//! own memory count for nobody; a thread that is not one of the load's is known by its stack. Limits: an access that crosses lines counts
//! for the first of them.

use super::child::{Layout, THREADS};
use super::trace::{Access, Does};
use std::collections::HashMap;
use std::ops::Range;

const LINE: u64 = 64;

/// Places in a line that are remembered.
const PLACES: usize = 8;

/// Who is running, and what is measured.
#[derive(Debug)]
pub(super) struct Sharing {
    begin: u64,
    end: u64,
    turns: [u64; THREADS],
    own: Vec<Range<u64>>,
    /// Stacks and their threads, in the order of their addresses.
    stacks: Vec<(Range<u64>, usize)>,
    allocator: Range<u64>,
    phase: Phase,
    /// The thread of the load whose turn it is, and the thread that runs: it, or one that is not the load's.
    turn: usize,
    thread: usize,
    /// Turns since the beginning.
    count: u64,
    /// Accesses by threads that are not the load's.
    by_others: u64,
    lines: HashMap<u64, Line>,
    fetched: u64,
}

/// The memory of the markers is used for something else once the load is over, so nothing begins again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Before,
    Measured,
    After,
}

/// A line that was written in the measured time.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Bits of threads: those that wrote it, and those whose caches have it.
    writers: u64,
    holders: u64,
    last_turn: u64,
    /// Turns in which it was written, and stores.
    pub(super) turns: u64,
    pub(super) stores: u64,
    /// The allocator has written to it: it is memory that was freed and allocated again.
    pub(super) recycled: bool,
    /// Addresses that were written, and the instructions that did.
    pub(super) places: Vec<(u64, u64)>,
}

impl Line {
    fn is_shared(&self) -> bool {
        self.writers.count_ones() > 1
    }
}

/// What was found.
#[derive(Debug)]
pub(super) struct Found {
    /// Lines that several threads wrote.
    pub(super) lines: Vec<Line>,
    /// How often a thread had to fetch a line that another had written.
    pub(super) fetched: u64,
    pub(super) by_others: u64,
    pub(super) complete: bool,
}

impl Sharing {
    /// `mapped` are the stacks that the process has, the load's threads' among them.
    pub(super) fn new(layout: &Layout, mapped: &[Range<u64>]) -> Sharing {
        let mut others = THREADS..;
        let thread_of = |stack: &Range<u64>| layout.stacks.iter().position(|at| stack.contains(at));
        let mut stacks: Vec<_> = mapped
            .iter()
            .map(|stack| {
                let thread = thread_of(stack).or_else(|| others.next());
                (stack.clone(), thread.unwrap_or(THREADS))
            })
            .collect();
        stacks.sort_by_key(|(stack, _)| stack.start);
        let own = layout.own.iter().map(|p| p.from..p.from + p.len);
        let (low, high) = (layout.allocator.iter().min(), layout.allocator.iter().max());
        // The functions that these call are beside them.
        const BESIDE: u64 = 24 << 10;
        Sharing {
            begin: layout.begin,
            end: layout.end,
            turns: layout.turns,
            own: own.collect(),
            stacks,
            allocator: low.map_or(0, |at| at.saturating_sub(BESIDE))
                ..high.map_or(0, |at| at + BESIDE),
            phase: Phase::Before,
            turn: 0,
            thread: 0,
            count: 0,
            by_others: 0,
            lines: HashMap::new(),
            fetched: 0,
        }
    }

    pub(super) fn take(&mut self, access: Access) {
        if access.does == Does::Store && self.is_own(access.address) {
            return self.mark(access.address);
        }
        if self.phase != Phase::Measured {
            return;
        }
        if let Some(of) = self.stack(access.address) {
            // A thread of the load that waits for its turn runs a few instructions on its stack; it is not its turn.
            if access.does == Does::Store && (of >= THREADS || of == self.turn) {
                self.thread = of;
            }
            return;
        }
        self.by_others += u64::from(self.thread >= THREADS);
        let me = 1u64 << self.thread.min(63);
        match access.does {
            Does::Load => self.load(access.address / LINE, me),
            Does::Store => self.store(&access, me),
        }
    }

    fn is_own(&self, address: u64) -> bool {
        self.own.iter().any(|own| own.contains(&address))
    }

    fn stack(&self, address: u64) -> Option<usize> {
        let behind = self.stacks.partition_point(|(s, _)| s.start <= address);
        let (stack, thread) = self.stacks.get(behind.checked_sub(1)?)?;
        stack.contains(&address).then_some(*thread)
    }

    fn mark(&mut self, address: u64) {
        if self.phase == Phase::After {
            return;
        }
        if address == self.begin {
            self.phase = Phase::Measured;
        } else if address == self.end {
            self.phase = Phase::After;
        } else if let Some(thread) = self.turns.iter().position(|at| *at == address) {
            (self.turn, self.thread) = (thread, thread);
            self.count += 1;
        }
    }

    fn load(&mut self, line: u64, me: u64) {
        let Some(line) = self.lines.get_mut(&line) else {
            return;
        };
        if line.holders & me == 0 {
            line.holders |= me;
            self.fetched += 1;
        }
    }

    fn store(&mut self, access: &Access, me: u64) {
        let line = self.lines.entry(access.address / LINE).or_default();
        self.fetched += u64::from(line.writers != 0 && line.holders & me == 0);
        line.writers |= me;
        line.holders = me;
        line.stores += 1;
        if line.last_turn != self.count {
            line.last_turn = self.count;
            line.turns += 1;
        }
        line.recycled |= self.allocator.contains(&access.by);
        let place = (access.address, access.by);
        if line.places.len() < PLACES && !line.places.contains(&place) {
            line.places.push(place);
        }
    }

    pub(super) fn found(self) -> Found {
        Found {
            complete: self.phase == Phase::After,
            lines: self.lines.into_values().filter(Line::is_shared).collect(),
            fetched: self.fetched,
            by_others: self.by_others,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::child::Part;
    use super::*;

    fn sharing() -> Sharing {
        let own = Part {
            name: "own".into(),
            from: 0x1000,
            len: 0x1000,
        };
        let layout = Layout {
            begin: 0x1000,
            end: 0x1100,
            turns: [0x1200, 0x1300, 0x1400, 0x1500],
            stacks: vec![0x10_0800, 0x11_0800, 0x12_0800, 0x13_0800],
            own: vec![own],
            parts: Vec::new(),
            allocator: vec![0x900_0000],
        };
        let stacks: Vec<_> = (0x10..0x15u64)
            .map(|n| n << 16..(n << 16) + 0x1000)
            .collect();
        Sharing::new(&layout, &stacks)
    }

    fn access(does: Does, address: u64) -> Access {
        Access {
            does,
            address,
            len: 8,
            by: 0x40_0000,
        }
    }

    fn stores(to: &mut Sharing, addresses: &[u64]) {
        let each = addresses.iter().map(|at| access(Does::Store, *at));
        each.for_each(|a| to.take(a));
    }

    #[test]
    fn a_line_is_shared_if_two_threads_write_it_in_the_measured_time() {
        let mut sharing = sharing();
        // Before the beginning: nothing counts.
        stores(&mut sharing, &[0x1300, 0x5000]);
        stores(&mut sharing, &[0x1000, 0x1200, 0x5000, 0x5008, 0x6000]);
        // The second thread writes another word of the first line, and a line of its own.
        stores(&mut sharing, &[0x1300, 0x5010, 0x7000]);
        sharing.take(access(Does::Load, 0x6000));
        // Its stack is its own, and what the others have there.
        stores(&mut sharing, &[0x11_0000, 0x10_0000, 0x11_0008]);
        // Behind the end nothing counts, whatever is stored where the markers were.
        stores(
            &mut sharing,
            &[0x1100, 0x1200, 0x7000, 0x1000, 0x1200, 0x7000],
        );
        let found = sharing.found();
        assert!(found.complete);
        let lines: Vec<_> = found.lines.iter().map(|l| (l.turns, l.stores)).collect();
        assert_eq!(
            (lines, found.fetched, found.by_others),
            (vec![(2, 3)], 2, 0)
        );
    }

    #[test]
    fn a_worker_is_known_by_its_stack() {
        let mut sharing = sharing();
        stores(&mut sharing, &[0x1000, 0x1200, 0x5000]);
        stores(&mut sharing, &[0x14_0100, 0x5008]);
        stores(&mut sharing, &[0x10_0100, 0x6000, 0x1100]);
        let found = sharing.found();
        assert_eq!((found.lines.len(), found.by_others), (1, 1));
    }
}
