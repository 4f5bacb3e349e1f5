//! Runs of bits: find, count and change them.
//! Input: a bitmap's bytes and bit numbers. Output: positions and counts, or changed bytes. Invariant: a change is made
//! completely or not at all: if a bit is not in the expected state, nothing changes and that bit is returned. Limit: the caller
//! knows what a bit means and how many bits are valid; bits past the slice do not exist.
//! Source: the kernel's ext4 documentation, "block and inode bitmaps" (bit order).

use crate::bitmap::BitmapKind;
use crate::error::Corrupt;
use crate::num;
use crate::types::GroupNo;

/// Bits looked at in one step.
const WORD: u32 = 64;

/// Why a range of bits was not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BitClash {
    /// This bit was already in the new state.
    Already(u32),
    /// The range ends past the bitmap, which has this many bits.
    Outside(u64),
}

impl BitClash {
    /// The same as damage of a group's bitmap.
    #[must_use]
    pub fn corrupt(self, group: GroupNo, kind: BitmapKind) -> Corrupt {
        let (what, bit) = match self {
            Self::Already(bit) => ("already in the state that it shall get", u64::from(bit)),
            Self::Outside(bits) => ("outside the bitmap", bits),
        };
        Corrupt::BitmapBit {
            group,
            kind: kind.name(),
            bit,
            what,
        }
    }
}

/// Whether bit `n` is set; `None` past the end of the slice.
#[must_use]
pub fn test(bitmap: &[u8], n: u32) -> Option<bool> {
    let byte = bitmap.get(num::usize32(n >> 3))?;
    Some(byte & 1u8.checked_shl(n & 7)? != 0)
}

/// Set bits in `from..to`.
#[must_use]
pub fn count_ones(bitmap: &[u8], from: u32, to: u32) -> u32 {
    let to = to.min(bits_of(bitmap));
    if from >= to {
        return 0;
    }
    let ones = |at| (word(bitmap, at) & inside(at, to)).count_ones();
    let last = to.saturating_sub(1);
    let [begin, end] = [next_word(from), last.saturating_sub(last % WORD)];
    if begin > end {
        return ones(from);
    }
    let whole = bitmap.get(num::usize32(begin / 8)..num::usize32(end / 8));
    let (words, _) = whole.unwrap_or(&[]).as_chunks::<8>();
    let inner = words
        .iter()
        .map(|word| u64::from_le_bytes(*word).count_ones());
    ones(from)
        .saturating_add(inner.fold(0, u32::saturating_add))
        .saturating_add(ones(end))
}

/// Clear bits among the first `bits`.
#[must_use]
pub fn count_zeros(bitmap: &[u8], bits: u32) -> u32 {
    let bits = bits.min(bits_of(bitmap));
    bits.saturating_sub(count_ones(bitmap, 0, bits))
}

/// First clear bit in `from..to`, if any.
#[must_use]
pub fn next_zero(bitmap: &[u8], from: u32, to: u32) -> Option<u32> {
    next(bitmap, from, to, u64::MAX)
}

/// First set bit in `from..to`, if any.
#[must_use]
pub fn next_one(bitmap: &[u8], from: u32, to: u32) -> Option<u32> {
    next(bitmap, from, to, 0)
}

/// The first run of clear bits in `from..to`: its start, and its length up to `max`.
///
/// Example: for the bits 1 1 0 0 0 1, from 0 and with `max` 2, the run is (2, 2).
#[must_use]
pub fn next_zero_run(bitmap: &[u8], from: u32, to: u32, max: u32) -> Option<(u32, u32)> {
    let to = to.min(bits_of(bitmap));
    let start = next_zero(bitmap, from, to)?;
    let limit = start.saturating_add(max).min(to);
    let end = next_one(bitmap, start, limit).unwrap_or(limit);
    Some((start, end.saturating_sub(start)))
}

/// Sets `len` bits from `start`, all of which must be clear.
///
/// # Errors
/// [`BitClash`]; then nothing was changed.
pub fn set_range(bitmap: &mut [u8], start: u32, len: u32) -> Result<(), BitClash> {
    let end = end_of(bitmap, start, len)?;
    if let Some(bit) = next_one(bitmap, start, end) {
        return Err(BitClash::Already(bit));
    }
    change(bitmap, start, end, true);
    Ok(())
}

/// Clears `len` bits from `start`, all of which must be set.
///
/// # Errors
/// [`BitClash`]; then nothing was changed.
pub fn clear_range(bitmap: &mut [u8], start: u32, len: u32) -> Result<(), BitClash> {
    let end = end_of(bitmap, start, len)?;
    if let Some(bit) = next_zero(bitmap, start, end) {
        return Err(BitClash::Already(bit));
    }
    change(bitmap, start, end, false);
    Ok(())
}

/// Sets the bits of `start..end` whatever their state; bits past the slice do not exist.
pub(super) fn force(bitmap: &mut [u8], start: u32, end: u32) {
    let end = end.min(bits_of(bitmap));
    change(bitmap, start, end, true);
}

fn bits_of(bitmap: &[u8]) -> u32 {
    num::sat32(num::wide(bitmap.len()).saturating_mul(8))
}

fn end_of(bitmap: &[u8], start: u32, len: u32) -> Result<u32, BitClash> {
    let bits = num::wide(bitmap.len()).saturating_mul(8);
    start
        .checked_add(len)
        .filter(|end| u64::from(*end) <= bits)
        .ok_or(BitClash::Outside(bits))
}

/// The 64 bits that contain bit `at`; bits past the slice are clear.
fn word(bitmap: &[u8], at: u32) -> u64 {
    let byte = num::usize32(at / WORD).saturating_mul(8);
    let rest = bitmap.get(byte..).unwrap_or(&[]);
    match rest.first_chunk::<8>() {
        Some(whole) => u64::from_le_bytes(*whole),
        None => crate::le::le64(rest, 0),
    }
}

/// The first bit of the word after the one with bit `at`.
fn next_word(at: u32) -> u32 {
    (at / WORD).saturating_add(1).saturating_mul(WORD)
}

/// A mask of the bits of `at..to` in the word with bit `at`.
fn inside(at: u32, to: u32) -> u64 {
    let low = u64::MAX.checked_shl(at % WORD).unwrap_or(0);
    let past = next_word(at).saturating_sub(to);
    low & u64::MAX.checked_shr(past).unwrap_or(0)
}

/// The first bit in `from..to` that is set after the words were XORed with `flip`, which is all ones or all zeros.
fn next(bitmap: &[u8], from: u32, to: u32, flip: u64) -> Option<u32> {
    let to = to.min(bits_of(bitmap));
    if from >= to {
        return None;
    }
    let first = next_within(bitmap, from, to, flip);
    if first.is_some() {
        return first;
    }
    let (begin, end) = (next_word(from), next_word(to.saturating_sub(1)));
    let [begin_byte, end_byte] = [begin, end].map(|bit| num::usize32(bit / 8));
    let rest = bitmap.get(begin_byte..end_byte.min(bitmap.len()));
    // A loop of its own, because an allocation may look at hundreds of words that have no such bit.
    let blank = flip.to_le_bytes();
    let words = rest.unwrap_or(&[]).chunks_exact(blank.len());
    let skipped = num::sat32(num::wide(words.take_while(|word| *word == blank).count()));
    let at = begin.saturating_add(skipped.saturating_mul(WORD));
    (at < to)
        .then(|| next_within(bitmap, at, to, flip))
        .flatten()
}

/// As [`next`], in the word with bit `from` only.
fn next_within(bitmap: &[u8], from: u32, to: u32, flip: u64) -> Option<u32> {
    let found = (word(bitmap, from) ^ flip) & inside(from, to);
    let first = from.saturating_sub(from % WORD);
    (found != 0).then(|| first.saturating_add(found.trailing_zeros()))
}

/// Sets or clears the bits of `start..end`, which are within the slice.
fn change(bitmap: &mut [u8], start: u32, end: u32, set: bool) {
    if start >= end {
        return;
    }
    let last = end.saturating_sub(1);
    let low = u8::MAX.checked_shl(start & 7).unwrap_or(0);
    let high = u8::MAX
        .checked_shr(7u32.saturating_sub(last & 7))
        .unwrap_or(0);
    let apply = |byte: &mut u8, mask: u8| *byte = if set { *byte | mask } else { *byte & !mask };
    match bitmap.get_mut(num::usize32(start >> 3)..=num::usize32(last >> 3)) {
        Some([only]) => apply(only, low & high),
        Some([head, inner @ .., tail]) => {
            apply(head, low);
            inner.fill(if set { u8::MAX } else { 0 });
            apply(tail, high);
        }
        Some([]) | None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_little_endian() {
        let map = [0b0000_0101u8, 0x80];
        let set: Vec<u32> = (0..16).filter(|n| test(&map, *n) == Some(true)).collect();
        assert_eq!(set, [0, 2, 15]);
        assert_eq!(test(&map, 16), None);
        assert_eq!(
            (
                count_zeros(&map, 16),
                count_zeros(&map, 3),
                count_zeros(&map, 15)
            ),
            (13, 1, 13)
        );
        assert_eq!(next_zero(&[0xFF, 0xFF, 0x01], 0, 24), Some(17));
        assert_eq!(next_zero(&[0xFF], 0, 24), None);
    }

    /// Pseudo-random bytes, dense enough for long and short runs.
    fn noise(len: usize) -> Vec<u8> {
        let mut x = 12345u32;
        let mut step = || {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            x >> 16
        };
        (0..len)
            .map(|_| match step() % 4 {
                0 => 0,
                1 => 0xFF,
                _ => step() as u8,
            })
            .collect()
    }

    #[test]
    fn searches_agree_with_a_bit_by_bit_model() {
        for len in [0, 1, 7, 8, 9, 41] {
            let map = noise(len);
            let bits = len as u32 * 8;
            let is = |n: u32, v: bool| test(&map, n) == Some(v);
            for from in 0..=bits + 3 {
                for to in (0..=bits + 70).step_by(3) {
                    let range = from..to.min(bits);
                    let zero = range.clone().find(|n| is(*n, false));
                    assert_eq!(next_zero(&map, from, to), zero);
                    assert_eq!(
                        next_one(&map, from, to),
                        range.clone().find(|n| is(*n, true))
                    );
                    let ones = range.clone().filter(|n| is(*n, true)).count();
                    assert_eq!(count_ones(&map, from, to) as usize, ones);
                    for max in [1, 5, 100] {
                        let run = zero.map(|s| {
                            let len = (s..range.end).take_while(|n| is(*n, false)).count();
                            (s, (len as u32).min(max))
                        });
                        assert_eq!(next_zero_run(&map, from, to, max), run);
                    }
                }
            }
        }
        assert_eq!(next_one(&[1], u32::MAX, u32::MAX), None);
        assert_eq!(next_zero_run(&[0; 4], 3, u32::MAX, u32::MAX), Some((3, 29)));
    }

    /// Whole words that have no such bit are skipped in a loop of their own.
    #[test]
    fn one_bit_among_words_of_the_other_kind() {
        for (len, fill) in [(16, 0), (24, 0xFF), (31, 0), (33, 0xFF)] {
            let bits = len as u32 * 8;
            for odd in 0..bits {
                let mut map = vec![fill; len];
                map[odd as usize / 8] ^= 1 << (odd % 8);
                let next = if fill == 0 { next_one } else { next_zero };
                for from in (0..bits).step_by(5) {
                    for to in (0..bits + 130).step_by(7) {
                        let is_there = (from..to).contains(&odd);
                        assert_eq!(
                            next(&map, from, to),
                            is_there.then_some(odd),
                            "{from}..{to}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn ranges_change_whole_or_not_at_all() {
        for start in 0..40u32 {
            for len in 0..=40 - start {
                let mut map = vec![0u8; 5];
                set_range(&mut map, start, len).unwrap();
                for n in 0..40 {
                    assert_eq!(test(&map, n), Some((start..start + len).contains(&n)));
                }
                let before = map.clone();
                if len > 0 {
                    let clash = set_range(&mut map, 0, start + 1);
                    assert_eq!((clash, &map), (Err(BitClash::Already(start)), &before));
                }
                clear_range(&mut map, start, len).unwrap();
                assert_eq!(map, [0; 5]);
            }
        }
        let mut map = vec![0u8; 2];
        assert_eq!(set_range(&mut map, 9, 8), Err(BitClash::Outside(16)));
        assert_eq!(set_range(&mut map, u32::MAX, 2), Err(BitClash::Outside(16)));
        assert_eq!(clear_range(&mut map, 3, 2), Err(BitClash::Already(3)));
        let text = BitClash::Already(3).corrupt(GroupNo::new(7), BitmapKind::Block);
        assert!(
            text.to_string()
                .starts_with("group 7: block bitmap: bit 3 ")
        );
    }
}
