//! The random choices of a load: the next block, and whether it is read or written.
//!
//! Input: a job, a seed, a thread's number. Output: positions. Invariant: the same seed draws the same requests, whatever they
//! are drawn for. Limits: blocks may repeat (fio's norandommap).

use super::job::{Job, Rw};

/// A small, fast random generator; it only has to be good statistically.
#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Rng {
        // splitmix64's finaliser: neighbouring seeds must not draw neighbouring numbers.
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Rng((z ^ (z >> 31)) | 1)
    }

    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`, all about equally likely.
    #[inline]
    pub(super) fn below(&mut self, n: u64) -> u64 {
        let wide = u128::from(self.next()) * u128::from(n);
        u64::try_from(wide >> 64).expect("the high half of a 128-bit product has 64 bits")
    }

    pub(super) fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_ne_bytes()[..chunk.len()]);
        }
    }
}

/// Draws one thread's requests.
pub(super) struct Load {
    rng: Rng,
    rw: Rw,
    stride: u64,
    blocks: u64,
    next: u64,
    /// For a load that takes every block once: the step of each thread, and the order of the blocks.
    once: Option<(u64, Shuffle)>,
}

impl Load {
    /// The load of thread `index` over a target of `len` bytes. Sequential threads all start at the beginning, as fio's, unless
    /// the load takes every block once: then the blocks are dealt to the threads in turn.
    pub(super) fn new(job: &Job, len: u64, index: u32) -> Load {
        let blocks = job.blocks(len);
        let shuffle = Shuffle::new(blocks, job.seed);
        Load {
            rng: Rng::new(job.seed ^ u64::from(index) << 32),
            rw: job.rw,
            stride: job.stride,
            blocks,
            next: if job.once { u64::from(index) } else { 0 },
            once: job.once.then_some((u64::from(job.numjobs), shuffle)),
        }
    }

    /// The next request: whether it writes, and its block. None if all blocks have been taken.
    #[inline]
    pub(super) fn draw(&mut self) -> Option<(bool, u64)> {
        let block = match &self.once {
            Some((jobs, shuffle)) => {
                let turn = self.next;
                if turn >= self.blocks {
                    return None;
                }
                self.next += jobs;
                if self.rw.is_random() {
                    shuffle.at(turn)
                } else {
                    turn
                }
            }
            None if self.rw.is_random() => self.rng.below(self.blocks),
            None => {
                let block = self.next;
                self.next = if block + 1 == self.blocks {
                    0
                } else {
                    block + 1
                };
                block
            }
        };
        let write = match self.rw {
            Rw::Randrw => self.rng.next() >> 63 == 0,
            rw => rw.writes(),
        };
        Some((write, block))
    }

    #[inline]
    pub(super) fn pos(&self, block: u64) -> u64 {
        block * self.stride
    }
}

/// The numbers below some bound in an order that looks random, each once, without a list of them.
struct Shuffle {
    below: u64,
    /// All ones: the smallest such number that is not less than the last.
    mask: u64,
    key: u64,
}

impl Shuffle {
    fn new(below: u64, seed: u64) -> Shuffle {
        Shuffle {
            below,
            mask: below.max(2).next_power_of_two() - 1,
            key: Rng::new(seed).next(),
        }
    }

    /// The number at position `n` of the order. It applies a bijection of the numbers up to the mask repeatedly until the
    /// result is below the bound. This ends, because a bijection runs in cycles and `n`, which is in the cycle, is below the
    /// bound.
    #[inline]
    fn at(&self, n: u64) -> u64 {
        let half = self.mask.count_ones().div_ceil(2);
        let mut x = n;
        loop {
            for multiplier in [0x9e37_79b9_7f4a_7c15_u64, 0xbf58_476d_1ce4_e5b9] {
                x = x.wrapping_add(self.key).wrapping_mul(multiplier) & self.mask;
                x ^= x >> half;
            }
            if x < self.below {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_repeat_and_stay_inside() {
        let job = Job::new(Rw::Randrw, 4096, 8);
        let draw = |index| {
            let mut load = Load::new(&job, 1 << 20, index);
            let draws = (0..1000).map(|_| load.draw().expect("it never ends"));
            draws.collect::<Vec<_>>()
        };
        assert_eq!(draw(0), draw(0));
        assert_ne!(draw(0), draw(1));
        let all = draw(0);
        assert!(all.iter().all(|(_, block)| *block < 256));
        let writes = all.iter().filter(|(write, _)| *write).count();
        assert!((400..600).contains(&writes), "{writes}");
    }

    #[test]
    fn sequential_loads_wrap() {
        let job = Job::new(Rw::Write, 4096, 8);
        let mut load = Load::new(&job, 3 * 4096, 5);
        let blocks = (0..5).map(|_| load.draw().expect("it never ends").1);
        assert_eq!(blocks.collect::<Vec<_>>(), [0, 1, 2, 0, 1]);
    }

    #[test]
    fn threads_take_every_block_once() {
        for (rw, len) in [
            (Rw::Write, 37),
            (Rw::Randwrite, 37),
            (Rw::Randwrite, 1),
            (Rw::Randwrite, 4096),
        ] {
            let job = Job::new(rw, 4096, 8).jobs(3).once();
            let mut blocks = Vec::new();
            for index in 0..3 {
                let mut load = Load::new(&job, len * 4096, index);
                blocks.extend(std::iter::from_fn(|| load.draw()).map(|(_, block)| block));
            }
            let in_order = blocks.is_sorted();
            blocks.sort_unstable();
            assert!(blocks.iter().copied().eq(0..len), "{rw:?} {len}");
            assert!(len < 3 || !in_order, "{rw:?} {len}");
        }
    }
}
