//! Which parts of the contents of a read are zeros, so that they need not be sent.
//!
//! Input: bytes. Output: runs of granules that are all zeros, or are not. Invariants: the runs cover the bytes in order and alternate.
//! Limits: at most [`MOST`] granules, of at least [`LEAST`] bytes, so that a reply has few chunks. The contents decide, not how they are
//! stored: that costs no question to the device, and finds zeros that are stored, too.

use std::ops::Range;

const LEAST: usize = 4096;
const MOST: usize = 32;

/// A run of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) range: Range<usize>,
    pub(super) zero: bool,
}

/// Whether all bytes are zero. Fast for zeros, and ends early for anything else.
#[inline]
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    bytes
        .chunks(256)
        .all(|chunk| chunk.iter().fold(0, |or, byte| or | byte) == 0)
}

/// The runs of `bytes`.
pub(super) fn parts(bytes: &[u8]) -> impl Iterator<Item = Part> {
    let granule = bytes.len().div_ceil(MOST).next_multiple_of(LEAST);
    let mut at = 0;
    std::iter::from_fn(move || {
        let (start, mut zero) = (at, None);
        while at < bytes.len() {
            let end = bytes.len().min(at + granule);
            let this = is_zero(&bytes[at..end]);
            if *zero.get_or_insert(this) != this {
                break;
            }
            at = end;
        }
        zero.map(|zero| Part {
            range: start..at,
            zero,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cover_the_bytes_and_say_what_is_zero() {
        for (len, dirty) in [
            (512, vec![]),
            (4096, vec![4095]),
            (12_288, vec![5000]),
            (12_289, vec![12_288]),
            (1 << 20, vec![0, 40_000, 300_000, (1 << 20) - 1]),
        ] {
            let mut bytes = vec![0; len];
            dirty.iter().for_each(|at| bytes[*at] = 1);
            let (mut at, mut last) = (0, None);
            let all: Vec<Part> = parts(&bytes).collect();
            for part in &all {
                assert_eq!(part.range.start, at);
                assert_ne!(last, Some(part.zero), "runs alternate");
                let holds = dirty.iter().any(|d| part.range.contains(d));
                assert_eq!(holds, !part.zero, "{part:?}");
                (at, last) = (part.range.end, Some(part.zero));
            }
            assert_eq!(at, len);
            assert!(all.len() <= MOST);
        }
        assert_eq!(parts(&[]).count(), 0);
    }
}
