//! The patterns that a verifying load writes: every sector contains its own position and the generation of its write.
//!
//! Input: blocks about to be written, blocks that were read. Output: filled buffers, verdicts. Invariant: one thread owns a
//! block and has at most one request in it, so the newest acknowledged generation is what a read must find. Limits: the
//! contents of a block before its first write are not checked.

use super::job::Job;
use super::load::Rng;
use diorite_block::Buf;

const SECTOR: usize = 512;
const MAGIC: u64 = u64::from_be_bytes(*b"diorite!");

/// One thread's record of what it wrote.
pub(super) struct Verifier {
    seed: u64,
    /// This thread's blocks are those with this remainder.
    index: u64,
    threads: u64,
    /// The generation of each owned block; 0 before its first write.
    generations: Vec<u32>,
    busy: Vec<bool>,
    pub(super) checked: u64,
}

impl Verifier {
    pub(super) fn new(job: &Job, len: u64, index: u32) -> Verifier {
        let (blocks, threads, index) = (job.blocks(len), u64::from(job.numjobs), u64::from(index));
        let owned =
            usize::try_from((blocks - index).div_ceil(threads)).expect("a block table fits memory");
        Verifier {
            seed: job.seed,
            index,
            threads,
            generations: vec![0; owned],
            busy: vec![false; owned],
            checked: 0,
        }
    }

    /// The owned block nearest to a drawn one that has no request in flight; none if all have.
    pub(super) fn claim(&mut self, drawn: u64) -> Option<u64> {
        let owned = self.busy.len();
        let start = self.slot(drawn) % owned;
        let free = (0..owned)
            .map(|n| (start + n) % owned)
            .find(|at| !self.busy[*at])?;
        self.busy[free] = true;
        Some(free as u64 * self.threads + self.index)
    }

    /// Fills a buffer with the block's next generation.
    pub(super) fn fill(&mut self, block: u64, buf: &mut Buf) {
        let at = self.slot(block);
        self.generations[at] += 1;
        let generation = self.generations[at];
        for (n, sector) in (0u64..).zip(buf.as_mut_slice().chunks_mut(SECTOR)) {
            self.pattern(block, n, generation, sector);
        }
    }

    /// The block's request has ended: a read is compared with the newest generation.
    pub(super) fn ended(&mut self, block: u64, write: bool, buf: &Buf) -> Result<(), String> {
        let at = self.slot(block);
        self.busy[at] = false;
        let generation = self.generations[at];
        if write || generation == 0 {
            return Ok(());
        }
        self.checked += 1;
        let mut expected = [0; SECTOR];
        for (n, sector) in (0u64..).zip(buf.as_slice().chunks(SECTOR)) {
            self.pattern(block, n, generation, &mut expected[..sector.len()]);
            if sector != &expected[..sector.len()] {
                return Err(format!(
                    "verify: block {block}, sector {n}: not what write {generation} of it left there"
                ));
            }
        }
        Ok(())
    }

    /// The blocks that were written, for the final check.
    pub(super) fn written(&self) -> Vec<u64> {
        let all = (0u64..).zip(&self.generations);
        all.filter(|(_, g)| **g > 0)
            .map(|(at, _)| at * self.threads + self.index)
            .collect()
    }

    fn slot(&self, block: u64) -> usize {
        usize::try_from(block / self.threads).expect("the table was made for this block")
    }

    fn pattern(&self, block: u64, sector: u64, generation: u32, out: &mut [u8]) {
        let mut rng =
            Rng::new(self.seed ^ block.rotate_left(24) ^ sector << 40 ^ u64::from(generation));
        rng.fill(out);
        let head = [MAGIC, block, sector, u64::from(generation)];
        for (place, word) in out.chunks_mut(8).zip(head) {
            place.copy_from_slice(&word.to_be_bytes()[..place.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::job::Rw;
    use super::*;

    #[test]
    fn a_lost_write_and_a_stray_one_are_found() {
        let job = Job::new(Rw::Randwrite, 1024, 4).jobs(2);
        let mut verifier = Verifier::new(&job, 64 * 1024, 1);
        let block = verifier.claim(6).expect("all are free");
        assert_eq!(block, 7, "the second thread owns the odd blocks");
        assert_ne!(verifier.claim(6), Some(7), "one request at a time");
        let (mut first, mut second) = (Buf::zeroed(1024), Buf::zeroed(1024));
        verifier.fill(7, &mut first);
        assert_eq!(verifier.ended(7, false, &first), Ok(()));
        verifier.fill(7, &mut second);
        assert!(
            verifier.ended(7, false, &first).is_err(),
            "the second write was lost"
        );
        verifier.fill(9, &mut first);
        assert!(
            verifier.ended(7, false, &first).is_err(),
            "another block's bytes"
        );
        assert_eq!(verifier.ended(7, false, &second), Ok(()));
        assert_eq!((verifier.written(), verifier.checked), (vec![7, 9], 4));
    }
}
