//! The load's random side: which block comes next, and is it read or written.
//!
//! Input: a job, a seed, a thread's number. Output: positions. Invariant: the same seed draws the same requests, whatever
//! they are drawn for. Limits: blocks may repeat (fio's norandommap).

use super::job::{Job, Rw};

/// A small fast generator; statistical quality is all that is asked of it.
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
}

impl Load {
    /// The load of thread `index` over a target of `len` bytes. Sequential threads all start at the beginning, as fio's.
    pub(super) fn new(job: &Job, len: u64, index: u32) -> Load {
        Load {
            rng: Rng::new(job.seed ^ u64::from(index) << 32),
            rw: job.rw,
            stride: job.stride,
            blocks: job.blocks(len),
            next: 0,
        }
    }

    /// The next request: does it write, and which block.
    #[inline]
    pub(super) fn draw(&mut self) -> (bool, u64) {
        let block = if self.rw.is_random() {
            self.rng.below(self.blocks)
        } else {
            let block = self.next;
            self.next = if block + 1 == self.blocks {
                0
            } else {
                block + 1
            };
            block
        };
        let write = match self.rw {
            Rw::Randrw => self.rng.next() >> 63 == 0,
            rw => rw.writes(),
        };
        (write, block)
    }

    #[inline]
    pub(super) fn pos(&self, block: u64) -> u64 {
        block * self.stride
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
            (0..1000).map(|_| load.draw()).collect::<Vec<_>>()
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
        let blocks: Vec<u64> = (0..5).map(|_| load.draw().1).collect();
        assert_eq!(blocks, [0, 1, 2, 0, 1]);
    }
}
