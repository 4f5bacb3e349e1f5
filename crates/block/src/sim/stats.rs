//! Counters of a simulated disk: requests by operation, and their latency.
//!
//! Input: taken and ended bios. Output: [`SimCounters`] and [`SimLatency`]. Invariant: counters only grow. Limits: latencies
//! are counted in buckets of 1/16 of their value.

use crate::bio::{Bio, BioOp};
use std::time::Duration;

/// Requests that a simulated disk has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimCounters {
    /// Reads.
    pub reads: u64,
    /// Bytes of the reads.
    pub read_bytes: u64,
    /// Writes with data.
    pub writes: u64,
    /// Bytes of the writes.
    pub write_bytes: u64,
    /// Writes with FUA, also counted in `writes`.
    pub fua_writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Write-zeroes of both kinds.
    pub zeroes: u64,
}

impl SimCounters {
    pub(super) fn count(&mut self, bio: &Bio) {
        match bio.op {
            BioOp::Read => {
                self.reads += 1;
                self.read_bytes += bio.len;
            }
            BioOp::Write => {
                self.writes += 1;
                self.write_bytes += bio.len;
                self.fua_writes += u64::from(bio.flags.fua);
            }
            BioOp::Flush => self.flushes += 1,
            BioOp::Discard => self.discards += 1,
            BioOp::WriteZeroes | BioOp::WriteZeroesUnmap => self.zeroes += 1,
        }
    }

    pub(super) fn add(&mut self, other: &SimCounters) {
        *self = self.zip(other, |a, b| a + b);
    }

    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &SimCounters) -> SimCounters {
        self.zip(earlier, |a, b| a - b)
    }

    fn zip(&self, other: &SimCounters, f: impl Fn(u64, u64) -> u64) -> SimCounters {
        SimCounters {
            reads: f(self.reads, other.reads),
            read_bytes: f(self.read_bytes, other.read_bytes),
            writes: f(self.writes, other.writes),
            write_bytes: f(self.write_bytes, other.write_bytes),
            fua_writes: f(self.fua_writes, other.fua_writes),
            flushes: f(self.flushes, other.flushes),
            discards: f(self.discards, other.discards),
            zeroes: f(self.zeroes, other.zeroes),
        }
    }
}

/// The latency from submit to reap of a simulated disk, as seen by its user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimLatency {
    /// Requests.
    pub count: u64,
    /// Their mean.
    pub mean: Duration,
    /// The median.
    pub p50: Duration,
    /// The 99th percentile.
    pub p99: Duration,
    /// The maximum, to within a bucket.
    pub max: Duration,
}

/// Sixteen buckets per power of two.
const BUCKETS: usize = 61 * 16;

#[derive(Clone, Debug)]
pub(super) struct Histogram {
    buckets: Box<[u64]>,
    sum: u128,
}

impl Histogram {
    pub(super) fn new() -> Histogram {
        Histogram {
            buckets: vec![0; BUCKETS].into_boxed_slice(),
            sum: 0,
        }
    }

    #[inline]
    pub(super) fn add(&mut self, nanos: u64) {
        self.buckets[bucket(nanos)] += 1;
        self.sum += u128::from(nanos);
    }

    pub(super) fn merge(&mut self, other: &Histogram) {
        for (a, b) in self.buckets.iter_mut().zip(&other.buckets) {
            *a += b;
        }
        self.sum += other.sum;
    }

    pub(super) fn summary(&self) -> SimLatency {
        let count: u64 = self.buckets.iter().sum();
        if count == 0 {
            return SimLatency::default();
        }
        let mean = u64::try_from(self.sum / u128::from(count)).unwrap_or(u64::MAX);
        SimLatency {
            count,
            mean: Duration::from_nanos(mean),
            p50: self.rank(count.div_ceil(2)),
            p99: self.rank(count - count / 100),
            max: self.rank(count),
        }
    }

    /// The upper edge of the bucket that the `n`th smallest value lies in.
    fn rank(&self, n: u64) -> Duration {
        let mut seen = 0;
        let at = self.buckets.iter().position(|b| {
            seen += b;
            seen >= n
        });
        Duration::from_nanos(upper_edge(at.unwrap_or(BUCKETS - 1)))
    }
}

/// 0 to 15 have buckets of their own; above, the four bits after the leading one choose within the power of two.
#[inline]
fn bucket(nanos: u64) -> usize {
    let power = 63 - (nanos | 15).leading_zeros() as usize;
    if power < 4 || nanos < 16 {
        return nanos as usize;
    }
    (power - 3) * 16 + ((nanos >> (power - 4)) & 15) as usize
}

fn upper_edge(bucket: usize) -> u64 {
    if bucket < 16 {
        return bucket as u64;
    }
    let power = bucket / 16 + 3;
    let low = (16 + (bucket % 16) as u64) << (power - 4);
    low + ((1 << (power - 4)) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket() {
        let mut below = None;
        for at in 0..BUCKETS {
            let edge = upper_edge(at);
            assert_eq!(bucket(edge), at);
            assert!(below.is_none_or(|b: u64| bucket(b + 1) == at));
            below = Some(edge);
        }
        assert_eq!(below, Some(u64::MAX));
    }

    #[test]
    fn a_summary_is_within_a_sixteenth() {
        let mut histogram = Histogram::new();
        (1..=1000).for_each(|n| histogram.add(n * 1000));
        let s = histogram.summary();
        assert_eq!((s.count, s.mean), (1000, Duration::from_nanos(500_500)));
        assert!(s.p50 >= Duration::from_micros(500) && s.p50 < Duration::from_micros(535));
        assert!(s.p99 >= Duration::from_micros(990) && s.max < Duration::from_micros(1065));
    }
}
