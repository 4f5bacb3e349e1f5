//! File times: 32 bits of seconds, extended by two epoch bits and by nanoseconds if the inode has room.
//! Input: the two stored words. Output: seconds since 1970 and nanoseconds, wide enough for the full range. Invariant:
//! nanoseconds are below 10^9 (a larger stored value is cut). Range: 1901-12-13 to 2446-05-10.
//! Source: the kernel's ext4 documentation, "inode timestamps".

use crate::num;

/// A time on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Seconds since 1970, may be negative.
    pub secs: i64,
    /// Nanoseconds, 0..=999,999,999.
    pub nanos: u32,
}

impl Timestamp {
    /// From the 32-bit seconds and, if the inode has it, the extra word: two low bits of epoch, 30 of nanoseconds.
    #[must_use]
    pub fn decode(seconds: u32, extra: u32, has_extra: bool) -> Self {
        let base = num::signed32(seconds);
        if !has_extra {
            return Self {
                secs: base,
                nanos: 0,
            };
        }
        let epoch = i64::from(extra & 3) << 32;
        Self {
            secs: base.saturating_add(epoch),
            nanos: (extra >> 2).min(999_999_999),
        }
    }

    /// The two stored words, or `None` if the time is out of range.
    #[must_use]
    pub fn encode(self) -> Option<(u32, u32)> {
        let low = num::low32(u64::from_ne_bytes(self.secs.to_ne_bytes()));
        let epoch = self.secs.checked_sub(num::signed32(low))?.checked_shr(32)?;
        let epoch = u32::try_from(epoch).ok().filter(|e| *e < 4)?;
        Some((low, (self.nanos.min(999_999_999) << 2) | epoch))
    }
}

/// The first and the last second that can be stored.
fn range(has_extra: bool) -> (i64, i64) {
    let last = match has_extra {
        true => 0x3_7FFF_FFFF,
        false => 0x7FFF_FFFF,
    };
    (-0x8000_0000, last)
}

impl Timestamp {
    /// The time that an inode shows once it has been stored and read: the nearest in range, without nanoseconds where it has no room, and
    /// at both ends of the range.
    #[must_use]
    pub fn as_stored(self, has_extra: bool) -> Self {
        let (low, extra) = self.stored(has_extra);
        let near = Self::decode(low, extra, has_extra);
        let (first, last) = range(has_extra);
        match near.secs == first || near.secs == last {
            true => Self { nanos: 0, ..near },
            false => near,
        }
    }

    /// The two words to store; a time out of range becomes the nearest in range. Without the extra word the range ends in 2038
    /// and that word is 0.
    #[must_use]
    pub fn stored(self, has_extra: bool) -> (u32, u32) {
        let (first, last) = range(has_extra);
        let near = Self {
            secs: self.secs.clamp(first, last),
            nanos: self.nanos,
        };
        let (low, extra) = near.encode().unwrap_or((0, 0));
        (low, if has_extra { extra } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_epochs() {
        // The table of the kernel's documentation: epoch bits, sign of the seconds, meaning.
        for (lo, extra, secs) in [
            (0x8000_0000, 0, -0x8000_0000i64),
            (0xFFFF_FFFF, 0, -1),
            (0, 0, 0),
            (0x7FFF_FFFF, 0, 0x7FFF_FFFF),
            (0x8000_0000, 1, 0x8000_0000),
            (0xFFFF_FFFF, 1, 0xFFFF_FFFF),
            (0, 1, 0x1_0000_0000),
            (0x7FFF_FFFF, 3, 0x3_7FFF_FFFF),
        ] {
            let t = Timestamp::decode(lo, extra | 5 << 2, true);
            assert_eq!((t.secs, t.nanos), (secs, 5));
            assert_eq!(t.encode(), Some((lo, extra | 5 << 2)));
        }
        assert_eq!(
            Timestamp {
                secs: 0x3_8000_0000,
                nanos: 0
            }
            .encode(),
            None
        );
        assert_eq!(
            Timestamp {
                secs: -0x8000_0001,
                nanos: 0
            }
            .encode(),
            None
        );
        assert_eq!(Timestamp::decode(1, u32::MAX, true).nanos, 999_999_999);
    }

    #[test]
    fn stored_is_the_nearest() {
        let at = |secs| Timestamp { secs, nanos: 5 };
        for (secs, has_extra, expected) in [
            (7, true, (7, 5 << 2)),
            (7, false, (7, 0)),
            (0x1_0000_0000, true, (0, 1 | 5 << 2)),
            (0x1_0000_0000, false, (0x7FFF_FFFF, 0)),
            (i64::MIN, true, (0x8000_0000, 5 << 2)),
            (i64::MAX, true, (0x7FFF_FFFF, 3 | 5 << 2)),
        ] {
            assert_eq!(at(secs).stored(has_extra), expected, "{secs}");
        }
        for (secs, has_extra, expected) in [
            (7, true, (7, 5)),
            (7, false, (7, 0)),
            (i64::MIN, true, (-0x8000_0000, 0)),
            (-0x8000_0000, true, (-0x8000_0000, 0)),
            (0x3_7FFF_FFFF, true, (0x3_7FFF_FFFF, 0)),
            (i64::MAX, true, (0x3_7FFF_FFFF, 0)),
            (i64::MAX, false, (0x7FFF_FFFF, 0)),
        ] {
            let shown = at(secs).as_stored(has_extra);
            assert_eq!((shown.secs, shown.nanos), expected, "{secs}");
        }
    }
}
