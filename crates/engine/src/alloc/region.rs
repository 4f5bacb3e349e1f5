//! Blocks whose contents are to be moved elsewhere. The allocator hands out none of them meanwhile.
//!
//! Input: runs of blocks, in any order. Output: [`Region`]: whether a block is in it, and which parts of a run. Invariants: its runs are in
//! order and do not touch each other. Limits: with clusters, both ends of a run are whole clusters, which the caller sees to.

use std::ops::Range;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Region(Vec<Range<u64>>);

impl Region {
    /// Everything from this block on.
    pub(crate) fn behind(first: u64) -> Region {
        Region::of(std::iter::once(first..u64::MAX))
    }

    /// The blocks of these runs, which may overlap.
    pub(crate) fn of(runs: impl IntoIterator<Item = Range<u64>>) -> Region {
        let mut runs: Vec<_> = runs.into_iter().filter(|run| !run.is_empty()).collect();
        runs.sort_unstable_by_key(|run| run.start);
        let mut all: Vec<Range<u64>> = Vec::with_capacity(runs.len());
        for run in runs {
            match all.last_mut() {
                Some(last) if last.end >= run.start => last.end = last.end.max(run.end),
                _ => all.push(run),
            }
        }
        Region(all)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn has(&self, block: u64) -> bool {
        self.touches(block..block.saturating_add(1))
    }

    /// Whether it has a block of the run.
    pub(crate) fn touches(&self, run: Range<u64>) -> bool {
        self.inside(run).next().is_some()
    }

    /// The parts of a run that are in it, in order.
    pub(crate) fn inside(&self, run: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.0.partition_point(|own| own.end <= run.start);
        let end = run.end;
        let meets = self.0[first..]
            .iter()
            .take_while(move |own| own.start < end);
        meets
            .map(move |own| own.start.max(run.start)..own.end.min(run.end))
            .filter(|part| !part.is_empty())
    }

    /// The run, divided: each part, and whether it is inside.
    pub(crate) fn divided(&self, run: Range<u64>) -> Vec<(Range<u64>, bool)> {
        let (mut parts, mut at) = (Vec::new(), run.start);
        for part in self.inside(run.clone()) {
            if at < part.start {
                parts.push((at..part.start, false));
            }
            at = part.end;
            parts.push((part, true));
        }
        if at < run.end {
            parts.push((at..run.end, false));
        }
        parts
    }

    pub(crate) fn runs(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::Region;

    #[test]
    fn a_run_is_divided_at_the_ends_of_the_region() {
        let region = Region::of([30..40, 10..20, 20..25, 12..14]);
        assert_eq!(region.runs().collect::<Vec<_>>(), [10..25, 30..40]);
        assert!(region.has(10) && region.has(24) && !region.has(25) && !region.has(9));
        assert!(region.touches(25..31) && !region.touches(25..30));
        assert_eq!(
            region.divided(5..35),
            [
                (5..10, false),
                (10..25, true),
                (25..30, false),
                (30..35, true)
            ]
        );
        assert_eq!(region.divided(26..29), [(26..29, false)]);
        assert_eq!(region.divided(12..14), [(12..14, true)]);
        assert_eq!(
            Region::behind(7).divided(0..9),
            [(0..7, false), (7..9, true)]
        );
        assert_eq!(Region::default().divided(0..9), [(0..9, false)]);
    }
}
