//! A set of runs of clusters within a group.
//!
//! Input: runs to add and remove. Output: whether that was possible. Invariants: the runs in the set are disjoint, and adjacent ones are
//! merged, so a run that is completely in the set lies in one of them. Limits: as many runs as there are claims or freed runs at a time.

use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct RunSet {
    /// Start and length.
    runs: BTreeMap<u32, u32>,
}

impl RunSet {
    /// Adds a run, unless a part of it is in the set.
    pub(super) fn insert(&mut self, start: u32, len: u32) -> bool {
        let end = start + len;
        let before = self.runs.range(..end).next_back().map(|(s, l)| (*s, *l));
        let mut joined = (start, len);
        if let Some((s, l)) = before {
            if s + l > start {
                return false;
            }
            if s + l == start {
                joined = (s, l + len);
            }
        }
        if let Some(l) = self.runs.remove(&end) {
            joined.1 += l;
        }
        self.runs.insert(joined.0, joined.1);
        true
    }

    /// Removes a run, if all of it is in the set.
    pub(super) fn remove(&mut self, start: u32, len: u32) -> bool {
        let Some((s, l)) = self.around(start, len) else {
            return false;
        };
        self.runs.remove(&s);
        if s < start {
            self.runs.insert(s, start - s);
        }
        let (end, last) = (start + len, s + l);
        if end < last {
            self.runs.insert(end, last - end);
        }
        true
    }

    /// Is all of the run in the set?
    pub(super) fn contains(&self, start: u32, len: u32) -> bool {
        self.around(start, len).is_some()
    }

    /// All runs.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.runs.iter().map(|(s, l)| (*s, *l))
    }

    fn around(&self, start: u32, len: u32) -> Option<(u32, u32)> {
        let (s, l) = self.runs.range(..=start).next_back()?;
        (s + l >= start + len).then_some((*s, *l))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Rng;

    #[test]
    fn it_agrees_with_a_set_of_single_clusters() {
        let mut rng = Rng::from_env("runs");
        let (mut set, mut model) = (RunSet::default(), [false; 64]);
        for _ in 0..20_000 {
            let start = rng.below(60) as usize;
            let len = 1 + rng.below(4) as usize;
            let part = &mut model[start..start + len];
            let (s, l) = (start as u32, len as u32);
            assert_eq!(set.contains(s, l), part.iter().all(|b| *b));
            if rng.below(2) == 0 {
                let free = part.iter().all(|b| !*b);
                assert_eq!(set.insert(s, l), free);
                if free {
                    part.fill(true);
                }
            } else {
                let there = part.iter().all(|b| *b);
                assert_eq!(set.remove(s, l), there);
                if there {
                    part.fill(false);
                }
            }
            let mut last = None;
            for (s, l) in set.iter() {
                assert!(last.is_none_or(|end| end < s), "neighbours are merged");
                last = Some(s + l);
            }
            let sum: u32 = set.iter().map(|(_, l)| l).sum();
            assert_eq!(sum as usize, model.iter().filter(|b| **b).count());
        }
    }
}
