//! Clusters of a file that are tables.
//!
//! Input: where tables are. Output: whether a range touches one. Invariant: none. Limits: one bit per cluster of the file.

use std::ops::Range;

/// See the module.
#[derive(Debug)]
pub(crate) struct Taken {
    cluster: u64,
    bits: Vec<u64>,
}

impl Taken {
    pub(crate) fn new(cluster: u64) -> Taken {
        Taken {
            cluster,
            bits: Vec::new(),
        }
    }

    fn place(&self, at: u64) -> (usize, u64) {
        let n = at / self.cluster;
        ((n / 64) as usize, 1 << (n % 64))
    }

    pub(crate) fn add(&mut self, at: u64) {
        let (word, bit) = self.place(at);
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        self.bits[word] |= bit;
    }

    pub(crate) fn remove(&mut self, at: u64) {
        let (word, bit) = self.place(at);
        if let Some(bits) = self.bits.get_mut(word) {
            *bits &= !bit;
        }
    }

    pub(crate) fn has(&self, at: u64) -> bool {
        let (word, bit) = self.place(at);
        self.bits.get(word).is_some_and(|bits| bits & bit != 0)
    }

    /// Whether a range of bytes touches one of them.
    pub(crate) fn touches(&self, range: &Range<u64>) -> bool {
        let clusters = range.start / self.cluster..range.end.div_ceil(self.cluster);
        let mut clusters = clusters.map(|n| n * self.cluster);
        clusters.any(|at| self.has(at))
    }
}
