//! Number conversions: the one file of this crate where `as` is allowed.
//! Input: integers of any width from the parsers. Output: the same value, widened, or saturated if it does not fit. Invariant:
//! no function here panics, wraps or loses bits silently; each documents its edge cases. Limit: pointers of at least 32 bits
//! are assumed, and asserted below.
#![allow(clippy::as_conversions)]

const _: () = assert!(usize::BITS >= 32, "a file-block count must fit a usize");

/// A 32-bit number as an index or length. Exact.
pub(crate) const fn usize32(v: u32) -> usize {
    v as usize
}

/// A 16-bit number as an index or length. Exact.
pub(crate) const fn usize16(v: u16) -> usize {
    v as usize
}

/// A length in memory as a 64-bit number. Exact on every supported target.
pub(crate) const fn wide(v: usize) -> u64 {
    v as u64
}

/// A 64-bit number as an index; saturates, so that a bounds check on it fails.
pub(crate) const fn index(v: u64) -> usize {
    if v > usize::MAX as u64 {
        usize::MAX
    } else {
        v as usize
    }
}

/// The low 32 bits.
pub(crate) const fn low32(v: u64) -> u32 {
    (v & 0xFFFF_FFFF) as u32
}

/// The low 16 bits.
pub(crate) const fn low16(v: u32) -> u16 {
    (v & 0xFFFF) as u16
}

/// A 32-bit number as its high and low halves. Exact.
pub(crate) const fn halves(v: u32) -> (u16, u16) {
    ((v >> 16) as u16, low16(v))
}

/// A 64-bit number in 32 bits; saturates.
pub(crate) const fn sat32(v: u64) -> u32 {
    if v > u32::MAX as u64 {
        u32::MAX
    } else {
        v as u32
    }
}

/// A length in memory as a 32-bit count; saturates.
pub(crate) const fn count32(v: usize) -> u32 {
    sat32(v as u64)
}

/// A 64-bit number as its high and low halves. Exact.
pub(crate) const fn split(v: u64) -> (u32, u32) {
    ((v >> 32) as u32, low32(v))
}

/// `hi:lo` as one 64-bit number. Exact.
pub(crate) const fn join(hi: u32, lo: u32) -> u64 {
    ((hi as u64) << 32) | lo as u64
}

/// A byte as a signed character, sign-extended to 32 bits (the "signed" directory hashes).
pub(crate) const fn signed_char(v: u8) -> u32 {
    v as i8 as i32 as u32
}

/// The bits of an unsigned 32-bit number as a signed one, sign-extended.
pub(crate) const fn signed32(v: u32) -> i64 {
    v as i32 as i64
}
