//! A set of the blocks of one folio.
//!
//! Input: block numbers inside a folio. Output: [`Bits`]. Invariants: none. Limits: at most [`MOST`] blocks.

use std::ops::Range;

/// The most blocks in a folio.
pub(crate) const MOST: u32 = 512;

const WORDS: usize = MOST as usize / 64;

/// A set of numbers below [`MOST`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bits([u64; WORDS]);

impl Bits {
    /// The numbers of a range.
    pub(super) fn of(range: Range<u32>) -> Bits {
        let mut bits = Bits::default();
        for (n, word) in (0u32..).zip(&mut bits.0) {
            let (from, to) = (range.start.max(n * 64), range.end.min(n * 64 + 64));
            if from < to {
                let ones = u64::MAX >> (64 - (to - from));
                *word = ones << (from - n * 64);
            }
        }
        bits
    }

    pub(super) fn or(self, other: Bits) -> Bits {
        self.with(other, |a, b| a | b)
    }

    pub(super) fn and(self, other: Bits) -> Bits {
        self.with(other, |a, b| a & b)
    }

    pub(super) fn without(self, other: Bits) -> Bits {
        self.with(other, |a, b| a & !b)
    }

    fn with(self, other: Bits, each: impl Fn(u64, u64) -> u64) -> Bits {
        let mut all = self;
        all.0
            .iter_mut()
            .zip(other.0)
            .for_each(|(a, b)| *a = each(*a, b));
        all
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == [0; WORDS]
    }

    pub(super) fn count(self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    #[inline]
    pub(super) fn has(self, n: u32) -> bool {
        self.0[n as usize / 64] >> (n % 64) & 1 != 0
    }

    /// The first run of numbers in the set, from `from` on.
    pub(super) fn run(self, from: u32) -> Option<Range<u32>> {
        let start = self.first_from(from, 0)?;
        Some(start..self.end_of_run(start))
    }

    /// The first number from `from` on that is not in the set.
    #[inline]
    pub(super) fn end_of_run(self, from: u32) -> u32 {
        self.first_from(from, u64::MAX).unwrap_or(MOST)
    }

    /// The first number from `from` on that is in the set; outside of it with all bits of `flip`.
    #[inline]
    fn first_from(self, from: u32, flip: u64) -> Option<u32> {
        let mut at = from;
        while at < MOST {
            let word = (self.0[at as usize / 64] ^ flip) >> (at % 64);
            if word != 0 {
                return Some(at + word.trailing_zeros());
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a plain list, for all ranges that begin or end around a word's edge.
    #[test]
    fn a_set_is_what_was_put_into_it() {
        for from in [0, 1, 63, 64, 65, 127, 200, 511] {
            for to in [0, 1, 63, 64, 65, 128, 201, 512] {
                let bits = Bits::of(from..to);
                let naive: Vec<u32> = (from..to).collect();
                let has: Vec<u32> = (0..MOST).filter(|n| bits.has(*n)).collect();
                assert_eq!(has, naive, "{from}..{to}");
                assert_eq!(bits.count() as usize, naive.len());
                assert_eq!(bits.run(0), (from < to).then_some(from..to));
                let other = Bits::of(32..192);
                assert_eq!(bits.without(other).or(bits.and(other)), bits);
                assert_eq!(bits.is_empty(), naive.is_empty());
            }
        }
        let two = Bits::of(3..5).or(Bits::of(250..512));
        assert_eq!((two.end_of_run(3), two.end_of_run(9)), (5, 9));
        assert_eq!(
            (two.run(0), two.run(4), two.run(5)),
            (Some(3..5), Some(4..5), Some(250..512))
        );
    }
}
