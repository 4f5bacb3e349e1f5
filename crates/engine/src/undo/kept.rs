//! Which ranges of a device are in its undo file already.
//!
//! Input: ranges of bytes. Output: the parts of them that are missing. Invariant: ranges that are kept do not overlap. Limits: none.

use std::collections::BTreeMap;
use std::ops::Range;

/// See the module: the end of each range, by its first byte.
#[derive(Default)]
pub(super) struct Kept(BTreeMap<u64, u64>);

impl Kept {
    pub(super) fn add(&mut self, range: Range<u64>) {
        self.0.insert(range.start, range.end);
    }

    /// The parts of a range that are not kept, each of at most so many bytes.
    pub(super) fn missing(&self, range: Range<u64>, most: u64) -> Vec<Range<u64>> {
        let (mut at, end) = (range.start, range.end);
        let mut missing = Vec::new();
        if let Some((_, kept)) = self.0.range(..=at).next_back() {
            at = at.max(*kept);
        }
        while at < end {
            let next = self.0.range(at..).next();
            let (start, behind) = next.map_or((end, end), |(start, kept)| (*start, *kept));
            let until = start.min(end).min(at.saturating_add(most));
            if until > at {
                missing.push(at..until);
            }
            at = if until == start { behind } else { until };
        }
        missing
    }
}
