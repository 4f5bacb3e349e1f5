//! Where in a file there may be cached pages, in one word: what a direct request looks at before anything else.
//!
//! Input: ranges of bytes that get pages. Output: "none there", or "perhaps". Invariants: a segment once noted stays noted as long as the
//! inode is in memory; so "none there" is right for everything that was noted before. Limits: 56 segments per file; they double in size
//! when a page lies behind the last one.

use diorite_block::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::ops::Range;

const COUNT: u32 = 56;
const MASK: u64 = (1 << COUNT) - 1;
/// log2 of the smallest segment, in bytes.
const LEAST: u32 = 20;

/// The word: a bit per segment below, log2 of a segment's bytes in the highest eight bits.
#[derive(Debug, Default)]
pub(super) struct Segments(AtomicU64);

impl Segments {
    /// May a range of bytes have pages?
    #[inline]
    pub(super) fn may_have(&self, bytes: &Range<u64>) -> bool {
        let word = self.0.load(SeqCst);
        word & of(word >> COUNT, bytes) != 0
    }

    /// Are all segments of the range noted?
    pub(super) fn has_all(&self, bytes: &Range<u64>) -> bool {
        let word = self.0.load(SeqCst);
        let shift = word >> COUNT;
        let inside = shift != 0 && (bytes.end.saturating_sub(1) >> shift) < u64::from(COUNT);
        let wanted = of(shift, bytes);
        inside && word & wanted == wanted
    }

    /// Notes a range of bytes.
    pub(super) fn add(&self, bytes: &Range<u64>) {
        let mut seen = self.0.load(SeqCst);
        loop {
            let mut shift = (seen >> COUNT).max(u64::from(LEAST));
            let mut mask = seen & MASK;
            while bytes.end.saturating_sub(1) >> shift >= u64::from(COUNT) {
                mask = folded(mask);
                shift += 1;
            }
            let new = shift << COUNT | mask | of(shift, bytes);
            match self.0.compare_exchange(seen, new, SeqCst, SeqCst) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }
}

/// The bits of the segments that a range touches.
#[inline]
fn of(shift: u64, bytes: &Range<u64>) -> u64 {
    let first = bytes.start >> shift;
    if first >= u64::from(COUNT) || bytes.is_empty() {
        return 0;
    }
    let last = ((bytes.end - 1) >> shift).min(u64::from(COUNT) - 1);
    (u64::MAX >> (63 - (last - first))) << first & MASK
}

/// Each pair of segments becomes one.
fn folded(mask: u64) -> u64 {
    (0..COUNT / 2).fold(0, |all, n| all | u64::from(mask >> (2 * n) & 3 != 0) << n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;

    /// What was noted is found after any later note; far from it nothing is.
    #[test]
    fn what_was_noted_is_found() {
        let mut rng = Rng::from_env("segments");
        for round in 0..200 {
            let segments = Segments::default();
            assert!(!segments.may_have(&(0..u64::MAX)) && !segments.has_all(&(0..1)));
            let mut noted = Vec::new();
            for _ in 0..round % 9 {
                let bits = 10 + rng.below(34);
                let start = rng.below(1 << bits);
                let bytes = start..start + 1 + rng.below(1 << 22);
                segments.add(&bytes);
                noted.push(bytes);
                for bytes in &noted {
                    assert!(segments.has_all(bytes) && segments.may_have(bytes));
                    assert!(segments.may_have(&(bytes.end - 1..bytes.end)));
                }
            }
        }
        let segments = Segments::default();
        segments.add(&(5 << 20..6 << 20));
        assert!(!segments.may_have(&(0..5 << 20)) && !segments.may_have(&(6 << 20..1 << 40)));
        assert!(!segments.may_have(&(5 << 20..5 << 20)));
        segments.add(&(55 << 21..(55 << 21) + 1));
        assert!(segments.may_have(&(4 << 20..5 << 20)), "doubled segments");
        assert!(!segments.may_have(&(0..4 << 20)));
    }
}
