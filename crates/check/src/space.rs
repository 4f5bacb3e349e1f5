//! The clusters in use: one bit each, and a second bit for a cluster that was claimed twice.
//!
//! Input: runs of blocks in use. Output: the number of their clusters that were already claimed; at the end, the bits of a
//! group. Invariants: any number of threads may claim at once; each bit is set once and a second claim is reported. Limits:
//! memory is allocated with the first claim in a group: at most two bits per cluster.

use diorite_format::features::RoCompat;
use diorite_format::{FsBlock, GroupNo, Superblock};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

type Bits = OnceLock<Box<[AtomicU64]>>;

/// See the module.
pub(super) struct Space {
    first: u64,
    ratio: u64,
    /// Clusters per group.
    per_group: u64,
    used: Box<[Bits]>,
    twice: Box<[Bits]>,
    doubles: AtomicU64,
    /// On volumes with shared blocks: the blocks that belong to a map itself.
    nodes: Option<Box<[Bits]>>,
}

impl Space {
    pub(super) fn new(sb: &Superblock) -> Space {
        let bits = || (0..sb.group_count()).map(|_| Bits::new()).collect();
        let shares = sb.features().ro_compat.has(RoCompat::SHARED_BLOCKS);
        Space {
            nodes: shares.then(bits),
            first: sb.geometry().first_data_block().get(),
            ratio: u64::from(sb.geometry().cluster_ratio()),
            per_group: u64::from(sb.geometry().clusters_per_group()),
            used: bits(),
            twice: bits(),
            doubles: AtomicU64::new(0),
        }
    }

    /// The cluster of a block.
    pub(super) fn cluster(&self, block: u64) -> u64 {
        (block - self.first) / self.ratio
    }

    /// The first block of a cluster.
    pub(super) fn block_of(&self, cluster: u64) -> FsBlock {
        FsBlock::new(self.first + cluster * self.ratio)
    }

    /// Claims blocks; returns how many of their clusters were claimed before.
    pub(super) fn claim(&self, start: FsBlock, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        let end = self.cluster(start.get() + len - 1) + 1;
        self.claim_clusters(self.cluster(start.get()), end)
    }

    /// Claims a block of a map itself; returns false if it was claimed before and must not be read again. On volumes with
    /// shared blocks only a claim by another map counts.
    pub(super) fn claim_node(&self, block: FsBlock) -> bool {
        let had = self.claim(block, 1);
        let Some(nodes) = &self.nodes else {
            return had == 0;
        };
        let (cluster, mut first) = (self.cluster(block.get()), true);
        self.words(cluster, cluster + 1, |group, word, mask| {
            let bits = nodes[group].get_or_init(|| self.fresh());
            first = bits[word].fetch_or(mask, Ordering::Relaxed) & mask == 0;
        });
        first
    }

    /// Whether files may share blocks.
    pub(super) fn is_shared(&self) -> bool {
        self.nodes.is_some()
    }

    /// As [`Space::claim`], for one of the volume's own structures, of which several may lie in one cluster. That they have a block in
    /// common is found otherwise.
    pub(super) fn claim_own(&self, start: FsBlock, len: u64) {
        if len > 0 {
            let end = self.cluster(start.get() + len - 1) + 1;
            self.words(self.cluster(start.get()), end, |group, word, mask| {
                let bits = self.used[group].get_or_init(|| self.fresh());
                bits[word].fetch_or(mask, Ordering::Relaxed);
            });
        }
    }

    /// As [`Space::claim`], for clusters `from..to`.
    pub(super) fn claim_clusters(&self, from: u64, to: u64) -> u64 {
        let mut before = 0;
        self.words(from, to, |group, word, mask| {
            let bits = self.used[group].get_or_init(|| self.fresh());
            let had = bits[word].fetch_or(mask, Ordering::Relaxed) & mask;
            if had != 0 {
                before += u64::from(had.count_ones());
                let twice = self.twice[group].get_or_init(|| self.fresh());
                twice[word].fetch_or(had, Ordering::Relaxed);
            }
        });
        if before != 0 {
            self.doubles.fetch_add(before, Ordering::Relaxed);
        }
        before
    }

    /// Calls `each` with group, word and mask for the bits of clusters `from..to`.
    fn words(&self, from: u64, to: u64, mut each: impl FnMut(usize, usize, u64)) {
        let mut at = from;
        while at < to {
            let (group, bit) = (at / self.per_group, at % self.per_group);
            let room = (64 - bit % 64).min(self.per_group - bit);
            let count = room.min(to - at);
            let ones = if count == 64 {
                u64::MAX
            } else {
                (1 << count) - 1
            };
            each(group as usize, (bit / 64) as usize, ones << (bit % 64));
            at += count;
        }
    }

    fn fresh(&self) -> Box<[AtomicU64]> {
        (0..self.per_group.div_ceil(64))
            .map(|_| AtomicU64::new(0))
            .collect()
    }

    /// The number of second claims so far.
    pub(super) fn doubles(&self) -> u64 {
        self.doubles.load(Ordering::Relaxed)
    }

    /// Word `n` of a group's bits.
    pub(super) fn used_word(&self, group: GroupNo, n: usize) -> u64 {
        word(&self.used[group.get() as usize], n)
    }

    /// Clusters of a group that are in use.
    pub(super) fn used_in(&self, group: GroupNo) -> u32 {
        let bits = self.used[group.get() as usize].get();
        let ones = |w: &AtomicU64| w.load(Ordering::Relaxed).count_ones();
        bits.map_or(0, |b| b.iter().map(ones).sum())
    }

    /// The first `most` runs of clusters that were claimed more than once, as (first, count).
    pub(super) fn double_runs(&self, most: usize) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (group, bits) in self.twice.iter().enumerate() {
            let Some(bits) = bits.get() else { continue };
            for bit in 0..self.per_group {
                let set = bits[(bit / 64) as usize].load(Ordering::Relaxed) >> (bit % 64) & 1 != 0;
                let cluster = group as u64 * self.per_group + bit;
                let full = runs.len() == most;
                match runs.last_mut() {
                    Some((first, count)) if set && *first + *count == cluster => *count += 1,
                    _ if set && full => return runs,
                    _ if set => runs.push((cluster, 1)),
                    _ => {}
                }
            }
        }
        runs
    }
}

fn word(bits: &Bits, n: usize) -> u64 {
    bits.get().map_or(0, |b| b[n].load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(per_group: u64, ratio: u64) -> Space {
        let bits = || (0..8).map(|_| Bits::new()).collect();
        Space {
            first: 1,
            ratio,
            per_group,
            used: bits(),
            twice: bits(),
            doubles: AtomicU64::new(0),
            nodes: None,
        }
    }

    #[test]
    fn second_claims_are_told_across_words_and_groups() {
        // Groups of 72 clusters: the second word is incomplete.
        let space = space(72, 1);
        assert_eq!(space.claim(FsBlock::new(1), 100), 0);
        assert_eq!(space.claim(FsBlock::new(101), 60), 0);
        assert_eq!(space.claim(FsBlock::new(70), 10), 10);
        assert_eq!(
            (space.doubles(), space.double_runs(9)),
            (10, vec![(69, 10)])
        );
        assert_eq!(space.used_in(GroupNo::new(0)), 72);
        assert_eq!(space.used_in(GroupNo::new(1)), 72);
        assert_eq!(space.used_in(GroupNo::new(2)), 16);
        assert_eq!(space.used_word(GroupNo::new(1), 1), 0xFF);
        assert_eq!(
            space.claim(FsBlock::new(5), 1) + space.claim(FsBlock::new(9), 1),
            2
        );
        assert_eq!(space.double_runs(2), vec![(4, 1), (8, 1)]);
    }

    #[test]
    fn blocks_of_one_cluster_are_one_claim() {
        let space = space(64, 4);
        assert_eq!(
            (
                space.claim(FsBlock::new(2), 2),
                space.used_in(GroupNo::new(0))
            ),
            (0, 1)
        );
        assert_eq!(
            (
                space.claim(FsBlock::new(4), 2),
                space.used_in(GroupNo::new(0))
            ),
            (1, 2)
        );
        assert_eq!(space.block_of(1), FsBlock::new(5));
    }
}
