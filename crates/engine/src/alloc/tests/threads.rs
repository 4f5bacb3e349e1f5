//! Several threads: no run is given out twice, and no claim is refused while there is free space.

use super::super::{Alloc, MARK_CREDITS, Run};
use super::Image;
use crate::alloc::Reach;
use crate::inode::Fs;
use crate::testing::Rng;
use diorite_block::sync::atomic::{AtomicBool, Ordering};
use diorite_format::FsBlock;

const THREADS: u64 = 4;

/// What one thread owns of the volume, in a list that all share.
struct Owner<'a> {
    volume: &'a Fs,
    alloc: &'a Alloc,
    owned: &'a [AtomicBool],
    mine: Vec<Run>,
    rng: Rng,
}

impl Owner<'_> {
    fn flags(&self, run: Run) -> &[AtomicBool] {
        &self.owned[run.start.get() as usize..run.end().get() as usize]
    }

    fn holds(&self) -> u64 {
        self.mine.iter().map(|run| u64::from(run.len)).sum()
    }

    /// Never more than its share, so there is always something for it, though it may wait for a commit.
    fn claim(&mut self, share: u64) {
        let left = share - self.holds();
        let goal = FsBlock::new(self.rng.below(self.owned.len() as u64));
        let want = 1 + self.rng.below(left.min(300)) as u32;
        let (volume, alloc) = (self.volume, self.alloc);
        let run = volume
            .or_commit(|| alloc.claim(volume, goal, want, Reach::All))
            .unwrap();
        for flag in self.flags(run) {
            assert!(!flag.swap(true, Ordering::SeqCst), "{run} is somebody's");
        }
        self.mine.push(run);
    }

    fn give_back(&mut self) {
        let at = self.rng.below(self.mine.len() as u64) as usize;
        let run = self.mine.swap_remove(at);
        for flag in self.flags(run) {
            assert!(flag.swap(false, Ordering::SeqCst), "{run} is nobody's");
        }
        if self.rng.below(8) == 0 {
            let handle = self.volume.begin(2 * MARK_CREDITS).unwrap();
            self.alloc.mark_used(&handle, run).unwrap();
            self.alloc.free(&handle, run.start, run.len).unwrap();
        } else {
            self.alloc.unclaim(self.volume, run).unwrap();
        }
    }

    fn run(mut self, share: u64) {
        for _ in 0..3000 {
            if self.mine.is_empty() || self.holds() < share && self.rng.below(2) == 0 {
                self.claim(share);
            } else {
                self.give_back();
            }
        }
        while !self.mine.is_empty() {
            self.give_back();
        }
    }
}

#[test]
fn no_run_is_given_twice_and_nobody_is_refused_wrongly() {
    for name in ["ext2", "lazy"] {
        let image = Image::of(name);
        let before = image.dump();
        let volume = image.open_with(64 << 10);
        let (shared, alloc) = (volume.inner(), volume.inner().alloc().unwrap());
        let blocks = shared.sb.geometry().blocks_count();
        let owned: Vec<AtomicBool> = (0..blocks).map(|_| AtomicBool::new(false)).collect();
        // All but a few blocks are taken, so that the threads meet at the end of the space.
        let mut taken = Vec::new();
        while alloc.usable_blocks(Reach::All) > 2000 {
            let most = (alloc.usable_blocks(Reach::All) - 2000).min(5000) as u32;
            taken.push(
                alloc
                    .claim(shared, FsBlock::new(0), most, Reach::All)
                    .unwrap(),
            );
        }
        let share = alloc.usable_blocks(Reach::All) / THREADS;
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let owner = Owner {
                    volume: shared,
                    alloc,
                    owned: &owned,
                    mine: Vec::new(),
                    rng: Rng::from_env(&format!("{name}, thread {thread}")),
                };
                scope.spawn(move || owner.run(share));
            }
        });
        for run in taken {
            alloc.unclaim(shared, run).unwrap();
        }
        volume.close().unwrap();
        image.fsck();
        assert_eq!(image.dump(), before);
    }
}
