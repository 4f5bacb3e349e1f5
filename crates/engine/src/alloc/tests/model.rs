//! The allocator against a list of states, step by step, on every kind of volume.
//!
//! Input: a seed. Output: nothing, or the step after which they differ. Invariants: after every step the counts agree; after every settling
//! `dumpe2fs` agrees, bit by bit; at the end, with all given back, e2fsck is silent. Limits: one thread.

use super::super::{Alloc, MARK_CREDITS, NEW_INODE_CREDITS, Run};
use super::free_credits;
use super::{Dump, Image, KINDS};
use crate::alloc::Reach;
use crate::error::{Error, Wait};
use crate::inode::Fs;
use crate::testing::Rng;
use crate::volume::Volume;
use diorite_format::{FsBlock, Ino};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In use before the test began.
    Theirs,
    Free,
    Claimed,
    Used,
    Waiting,
}

struct Model {
    /// Per cluster of the volume.
    states: Vec<State>,
    first: u64,
    ratio: u64,
    claimed: Vec<Run>,
    used: Vec<Run>,
    /// Inodes taken, and which are directories.
    inodes: BTreeMap<Ino, bool>,
    free_inodes: u32,
}

impl Model {
    fn new(volume: &Fs, dump: &Dump) -> Model {
        let geometry = volume.sb.geometry();
        let (first, ratio) = (
            geometry.first_data_block().get(),
            u64::from(geometry.cluster_ratio()),
        );
        let clusters = (geometry.blocks_count() - first).div_ceil(ratio);
        let mut model = Model {
            states: vec![State::Theirs; clusters as usize],
            first,
            ratio,
            claimed: Vec::new(),
            used: Vec::new(),
            inodes: BTreeMap::new(),
            free_inodes: dump.inodes,
        };
        for (from, to) in &dump.free_blocks {
            let cluster = |block: u64| ((block - first) / ratio) as usize;
            model.states[cluster(*from)..=cluster(*to)].fill(State::Free);
        }
        model
    }

    fn count(&self, what: &[State]) -> u64 {
        let of = |state: &&State| what.contains(state);
        self.states.iter().filter(of).count() as u64 * self.ratio
    }

    /// All of the run goes from one state into another.
    fn go(&mut self, run: Run, from: State, to: State) {
        let start = run.start.get() - self.first;
        assert_eq!(start % self.ratio, 0, "{run} begins with a cluster");
        let end = (start + u64::from(run.len)).div_ceil(self.ratio);
        let part = &mut self.states[(start / self.ratio) as usize..end as usize];
        assert!(part.iter().all(|s| *s == from), "{run}: {from:?} to {to:?}");
        part.fill(to);
    }

    fn check_counts(&self, alloc: &Alloc) {
        use State::{Claimed, Free, Waiting};
        assert_eq!(alloc.usable_blocks(Reach::All), self.count(&[Free]));
        assert_eq!(alloc.free_blocks(), self.count(&[Free, Claimed, Waiting]));
        assert_eq!(alloc.free_inodes(), self.free_inodes);
    }

    /// Everything is home, so nothing waits.
    fn check_dump(&self, dump: &Dump) {
        use State::{Claimed, Free};
        assert_eq!(dump.blocks, self.count(&[Free, Claimed]));
        let clusters: u64 = dump.counts.iter().map(|c| c.0).sum();
        assert_eq!(clusters * self.ratio, dump.blocks);
        assert_eq!(dump.inodes, self.free_inodes);
        assert_eq!(dump.counts.iter().map(|c| c.1).sum::<u32>(), dump.inodes);
        let mut free = vec![false; self.states.len()];
        for (from, to) in &dump.free_blocks {
            let cluster = |block: u64| ((block - self.first) / self.ratio) as usize;
            free[cluster(*from)..=cluster(*to)].fill(true);
        }
        for (at, (free, state)) in free.iter().zip(&self.states).enumerate() {
            assert_eq!(*free, matches!(state, Free | Claimed), "cluster {at}");
        }
        let is_free = |ino: &Ino| {
            let n = u64::from(ino.get());
            dump.free_inodes.iter().any(|(a, b)| (*a..=*b).contains(&n))
        };
        assert!(!self.inodes.keys().any(is_free));
    }
}

/// The whole of a list's run, or a part of it; the rest stays in the list.
fn part_of(list: &mut Vec<Run>, rng: &mut Rng, ratio: u64) -> Option<Run> {
    let at = rng.below(list.len().max(1) as u64) as usize;
    let run = (at < list.len()).then(|| list.swap_remove(at))?;
    let clusters = u64::from(run.len).div_ceil(ratio);
    let cut = (rng.below(clusters) * ratio) as u32;
    if cut == 0 || rng.below(2) == 0 {
        return Some(run);
    }
    let (head, tail) = (
        Run {
            start: run.start,
            len: cut,
        },
        Run {
            start: FsBlock::new(run.start.get() + u64::from(cut)),
            len: run.len - cut,
        },
    );
    list.push(head);
    Some(tail)
}

struct Walk<'a> {
    volume: &'a Fs,
    alloc: &'a Alloc,
    model: Model,
    rng: Rng,
}

impl Walk<'_> {
    fn goal(&mut self) -> FsBlock {
        FsBlock::new(
            self.rng
                .below(self.volume.sb.geometry().blocks_count() + 10),
        )
    }

    fn want(&mut self) -> u32 {
        1 + match self.rng.below(3) {
            0 => self.rng.below(4) as u32,
            1 => self.rng.below(200) as u32,
            _ => self.rng.below(20_000) as u32,
        }
    }

    fn claim(&mut self) {
        let (goal, want) = (self.goal(), self.want());
        let claimed = match self.rng.below(2) {
            0 => self
                .alloc
                .claim(self.volume, goal, want, Reach::All)
                .map(Some),
            _ => self.alloc.try_claim(self.volume, goal, want, Reach::All),
        };
        let none = self.model.count(&[State::Free]) == 0;
        match claimed {
            Ok(Some(run)) => {
                assert!(u64::from(run.len) < u64::from(want) + self.model.ratio);
                self.model.go(run, State::Free, State::Claimed);
                self.model.claimed.push(run);
            }
            Ok(None) => {}
            Err(Error::NoSpace { .. }) => assert!(none && self.model.count(&[State::Waiting]) == 0),
            Err(Error::WouldBlock(Wait::Commit)) => assert!(none),
            Err(e) => panic!("{e}"),
        }
    }

    fn unclaim(&mut self) {
        let ratio = self.model.ratio;
        if let Some(run) = part_of(&mut self.model.claimed, &mut self.rng, ratio) {
            self.alloc.unclaim(self.volume, run).unwrap();
            self.model.go(run, State::Claimed, State::Free);
        }
    }

    fn mark(&mut self) {
        let ratio = self.model.ratio;
        if let Some(run) = part_of(&mut self.model.claimed, &mut self.rng, ratio) {
            let handle = self.volume.begin(MARK_CREDITS).unwrap();
            self.alloc.mark_used(&handle, run).unwrap();
            self.model.go(run, State::Claimed, State::Used);
            self.model.used.push(run);
        }
    }

    fn free(&mut self) {
        let ratio = self.model.ratio;
        if let Some(run) = part_of(&mut self.model.used, &mut self.rng, ratio) {
            let handle = self
                .volume
                .begin(free_credits(&self.volume.sb, run.len))
                .unwrap();
            self.alloc.free(&handle, run.start, run.len).unwrap();
            self.model.go(run, State::Used, State::Waiting);
            let twice = self.alloc.free(&handle, run.start, run.len);
            assert!(twice.is_err_and(|e| e.is_corrupt()));
        }
    }

    fn allocate(&mut self) {
        let (goal, want) = (self.goal(), self.want());
        let handle = self.volume.begin(MARK_CREDITS).unwrap();
        match self.alloc.allocate(&handle, goal, want, Reach::All) {
            Ok(run) => {
                self.model.go(run, State::Free, State::Used);
                self.model.used.push(run);
            }
            Err(_) => assert_eq!(self.model.count(&[State::Free]), 0),
        }
    }

    fn allocate_reserved(&mut self) {
        let count = 1 + self.rng.below(3);
        let goal = self.goal();
        let Ok(mut reservation) = self.alloc.reserve(count, Reach::All) else {
            assert!(self.model.count(&[State::Free]) < count * self.model.ratio);
            return;
        };
        let handle = self.volume.begin(MARK_CREDITS).unwrap();
        let made = self
            .alloc
            .allocate_reserved(&handle, &mut reservation, goal);
        let run = made.unwrap();
        self.model.go(run, State::Free, State::Used);
        self.model.used.push(run);
        assert_eq!(reservation.left(), count - 1);
    }

    fn trim(&mut self) {
        let (from, len) = (self.goal(), u64::from(self.want()));
        let end = FsBlock::new(from.get() + len);
        let least = self.rng.below(40) as u32;
        let ratio = self.volume.sb.geometry().cluster_ratio();
        let most = least.max(ratio) + self.rng.below(40) as u32;
        let found = self
            .alloc
            .claim_free_run(self.volume, from..end, (least, most));
        if let Some(run) = found.unwrap() {
            assert!(run.start >= from && run.end() <= end && run.len >= least);
            assert!(run.len <= most.next_multiple_of(ratio));
            self.model.go(run, State::Free, State::Claimed);
            self.alloc.unclaim(self.volume, run).unwrap();
            self.model.go(run, State::Claimed, State::Free);
        }
    }

    fn new_inode(&mut self) {
        let known: Vec<Ino> = self
            .model
            .inodes
            .keys()
            .copied()
            .chain([Ino::ROOT])
            .collect();
        let parent = known[self.rng.below(known.len() as u64) as usize];
        let dir = self.rng.below(3) == 0;
        let handle = self.volume.begin(NEW_INODE_CREDITS).unwrap();
        match self.alloc.new_inode(&handle, parent, dir) {
            Ok(ino) => {
                assert!(ino.get() >= self.volume.sb.geometry().first_ino());
                assert!(self.model.inodes.insert(ino, dir).is_none(), "{ino} twice");
                self.model.free_inodes -= 1;
            }
            Err(Error::NoInodes { .. }) => assert_eq!(self.model.free_inodes, 0),
            Err(e) => panic!("{e}"),
        }
    }

    fn free_inode(&mut self) {
        let at = self.rng.below(self.model.inodes.len().max(1) as u64) as usize;
        let Some((ino, dir)) = self.model.inodes.iter().nth(at).map(|(i, d)| (*i, *d)) else {
            return;
        };
        let handle = self.volume.begin(NEW_INODE_CREDITS).unwrap();
        self.alloc.free_inode(&handle, ino, dir).unwrap();
        let twice = self.alloc.free_inode(&handle, ino, false);
        assert!(twice.is_err_and(|e| e.is_corrupt()));
        self.model.inodes.remove(&ino);
        self.model.free_inodes += 1;
    }

    fn commit(&mut self) {
        self.volume
            .journal()
            .unwrap()
            .commit_running(self.volume)
            .unwrap();
        let waiting = self
            .model
            .states
            .iter_mut()
            .filter(|s| **s == State::Waiting);
        waiting.for_each(|s| *s = State::Free);
    }

    fn step(&mut self) {
        match self.rng.below(40) {
            0..=11 => self.claim(),
            12..=15 => self.unclaim(),
            16..=22 => self.mark(),
            23..=28 => self.free(),
            29 => self.allocate_reserved(),
            30 => self.allocate(),
            31 => self.trim(),
            32..=36 => self.new_inode(),
            37..=38 => self.free_inode(),
            _ => self.commit(),
        }
        self.model.check_counts(self.alloc);
    }

    fn give_all_back(&mut self) {
        while !self.model.claimed.is_empty() {
            self.unclaim();
        }
        while !self.model.used.is_empty() {
            self.free();
        }
        while !self.model.inodes.is_empty() {
            self.free_inode();
        }
    }
}

#[test]
fn it_agrees_with_a_list_of_states_on_every_kind_of_volume() {
    for kind in &KINDS {
        eprintln!("{}", kind.name);
        let image = Image::new(kind);
        let before = image.dump();
        let volume: Volume = image.open_with(64 << 10);
        let shared = volume.inner();
        let mut walk = Walk {
            volume: shared,
            alloc: shared.alloc().unwrap(),
            model: Model::new(shared, &before),
            rng: Rng::from_env(kind.name),
        };
        walk.model.check_counts(walk.alloc);
        for step in 0..1500 {
            walk.step();
            if step % 500 == 499 {
                walk.commit();
                shared.make_clean().unwrap();
                walk.model.check_dump(&image.dump());
            }
        }
        walk.give_all_back();
        volume.close().unwrap();
        image.fsck();
        assert_eq!(image.dump(), before);
    }
}
