//! The hashes by which hashed directories are ordered.
//! Input: a name and the volume's seed. Output: a 32-bit hash with bit 0 clear, and a minor hash.
//! Invariant: defined for every name. Limit: siphash (encrypted casefolded directories) is refused.
//! Source: FreeBSD's ext2fs (BSD licence) for the constants and rounds, MD4 (RFC 1320), TEA (Wheeler & Needham
//! 1994); all six checked against `debugfs -R "dx_hash ..."` in tests.

use crate::error::{FormatError, Result, Unsupported};
use crate::num;
use crate::superblock::HashSettings;

/// A hash function, and whether it treats characters as signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HashVersion {
    /// The original hash, signed characters.
    Legacy,
    /// Half of MD4, signed.
    HalfMd4,
    /// TEA, signed.
    Tea,
    /// The original hash, unsigned.
    LegacyUnsigned,
    /// Half of MD4, unsigned.
    HalfMd4Unsigned,
    /// TEA, unsigned.
    TeaUnsigned,
}

/// A name's hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameHash {
    /// Orders the tree; bit 0 is clear, and 0xFFFFFFFE never occurs (it marks the end for readers).
    pub major: u32,
    /// Orders names with the same major hash for readers of directories.
    pub minor: u32,
}

impl HashVersion {
    /// Decodes a stored version; 0..=2 become unsigned if the superblock says so.
    ///
    /// # Errors
    /// `Unsupported` for siphash and unknown versions.
    pub fn from_disk(version: u8, unsigned_chars: bool) -> Result<Self> {
        match (version, unsigned_chars) {
            (0, false) => Ok(Self::Legacy),
            (1, false) => Ok(Self::HalfMd4),
            (2, false) => Ok(Self::Tea),
            (0, true) | (3, _) => Ok(Self::LegacyUnsigned),
            (1, true) | (4, _) => Ok(Self::HalfMd4Unsigned),
            (2, true) | (5, _) => Ok(Self::TeaUnsigned),
            _ => Err(FormatError::Unsupported(Unsupported {
                feature: format!("directory hash {version}"),
                read_only_would_do: false,
                help: "the directory's names can be listed, but not looked up by hash",
            })),
        }
    }

    /// The hash of a name. Four zeros in `settings.seed` mean the built-in seed.
    #[must_use]
    pub fn hash(self, settings: &HashSettings, name: &[u8]) -> NameHash {
        let seed = if settings.seed == [0; 4] {
            DEFAULT_SEED
        } else {
            settings.seed
        };
        let (major, minor) = match self {
            Self::Legacy | Self::LegacyUnsigned => (legacy(name, self.is_signed()), 0),
            Self::HalfMd4 | Self::HalfMd4Unsigned => half_md4_name(seed, name, self.is_signed()),
            Self::Tea | Self::TeaUnsigned => tea_name(seed, name, self.is_signed()),
        };
        let major = major & !1;
        NameHash {
            major: if major == 0xFFFF_FFFE {
                0xFFFF_FFFC
            } else {
                major
            },
            minor,
        }
    }

    const fn is_signed(self) -> bool {
        matches!(self, Self::Legacy | Self::HalfMd4 | Self::Tea)
    }
}

/// The initial state of MD4.
const DEFAULT_SEED: [u32; 4] = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476];

fn widen(c: u8, signed: bool) -> u32 {
    if signed {
        num::signed_char(c)
    } else {
        u32::from(c)
    }
}

fn legacy(name: &[u8], signed: bool) -> u32 {
    let (mut current, mut before) = (0x12A3_FE2Du32, 0x37AB_E8F9u32);
    for c in name {
        let mut next = before.wrapping_add(current ^ widen(*c, signed).wrapping_mul(7_152_373));
        if next & 0x8000_0000 != 0 {
            next = next.wrapping_sub(0x7FFF_FFFF);
        }
        before = current;
        current = next;
    }
    current.wrapping_shl(1)
}

/// Packs up to `N * 4` characters into words, most significant first; missing bytes are filled with the length of the remaining
/// name, repeated in every byte.
fn pack<const N: usize>(name: &[u8], signed: bool) -> [u32; N] {
    let len = num::low32(num::wide(name.len()));
    let twice = len | len.wrapping_shl(8);
    let pad = twice | twice.wrapping_shl(16);
    let mut words = [pad; N];
    for (word, part) in words.iter_mut().zip(name.chunks(4)) {
        *word = part.iter().fold(pad, |w, c| {
            w.wrapping_shl(8).wrapping_add(widen(*c, signed))
        });
    }
    words
}

fn half_md4_name(seed: [u32; 4], name: &[u8], signed: bool) -> (u32, u32) {
    let mut state = seed;
    let mut rest = name;
    while !rest.is_empty() {
        state = half_md4(state, pack(rest, signed));
        rest = rest.get(32..).unwrap_or(&[]);
    }
    let [_, major, minor, _] = state;
    (major, minor)
}

fn tea_name(seed: [u32; 4], name: &[u8], signed: bool) -> (u32, u32) {
    let [mut x, mut y, _, _] = seed;
    let mut rest = name;
    while !rest.is_empty() {
        let (dx, dy) = tea(x, y, pack(rest, signed));
        x = x.wrapping_add(dx);
        y = y.wrapping_add(dy);
        rest = rest.get(16..).unwrap_or(&[]);
    }
    (x, y)
}

/// Sixteen rounds of TEA over (x, y) with the key `k`.
fn tea(x: u32, y: u32, k: [u32; 4]) -> (u32, u32) {
    let [a, b, c, d] = k;
    let (mut x, mut y, mut sum) = (x, y, 0u32);
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9E37_79B9);
        x = x.wrapping_add(
            y.wrapping_shl(4).wrapping_add(a)
                ^ y.wrapping_add(sum)
                ^ y.wrapping_shr(5).wrapping_add(b),
        );
        y = y.wrapping_add(
            x.wrapping_shl(4).wrapping_add(c)
                ^ x.wrapping_add(sum)
                ^ x.wrapping_shr(5).wrapping_add(d),
        );
    }
    (x, y)
}

/// MD4's three rounds over eight words instead of sixteen: two passes of four steps each per round.
fn half_md4(state: [u32; 4], m: [u32; 8]) -> [u32; 4] {
    let [m0, m1, m2, m3, m4, m5, m6, m7] = m;
    let choose = |x: u32, y: u32, z: u32| z ^ (x & (y ^ z));
    let majority = |x: u32, y: u32, z: u32| (x & y).wrapping_add((x ^ y) & z);
    let parity = |x: u32, y: u32, z: u32| x ^ y ^ z;
    let mut s = state;
    s = round(
        s,
        choose,
        0,
        [3, 7, 11, 19],
        [m0, m1, m2, m3, m4, m5, m6, m7],
    );
    s = round(
        s,
        majority,
        0x5A82_7999,
        [3, 5, 9, 13],
        [m1, m3, m5, m7, m0, m2, m4, m6],
    );
    s = round(
        s,
        parity,
        0x6ED9_EBA1,
        [3, 9, 11, 15],
        [m3, m7, m2, m6, m1, m5, m0, m4],
    );
    let [a, b, c, d] = s;
    let [a0, b0, c0, d0] = state;
    [
        a0.wrapping_add(a),
        b0.wrapping_add(b),
        c0.wrapping_add(c),
        d0.wrapping_add(d),
    ]
}

/// Eight steps: `a = rotl(a + f(b, c, d) + word + constant, shift)`; the roles rotate in the order a, d, c, b.
#[inline]
fn round(
    s: [u32; 4],
    f: impl Fn(u32, u32, u32) -> u32,
    constant: u32,
    shifts: [u32; 4],
    words: [u32; 8],
) -> [u32; 4] {
    let [mut a, mut b, mut c, mut d] = s;
    let [one, two, three, four] = shifts;
    let step = |sum: u32, mixed: u32, word: u32, shift: u32| {
        sum.wrapping_add(mixed)
            .wrapping_add(word)
            .wrapping_add(constant)
            .rotate_left(shift)
    };
    let [w0, w1, w2, w3, w4, w5, w6, w7] = words;
    for [w0, w1, w2, w3] in [[w0, w1, w2, w3], [w4, w5, w6, w7]] {
        a = step(a, f(b, c, d), w0, one);
        d = step(d, f(a, b, c), w1, two);
        c = step(c, f(d, a, b), w2, three);
        b = step(b, f(c, d, a), w3, four);
    }
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packing_repeats_the_length() {
        let w: [u32; 2] = pack(b"abcde", false);
        assert_eq!(w, [0x6162_6364, 0x0505_0565]);
        assert_eq!(pack::<2>(b"", false), [0, 0]);
    }

    #[test]
    fn bit_zero_is_clear_and_the_end_mark_never_occurs() {
        let s = HashSettings {
            seed: [0; 4],
            default_version: 1,
            unsigned_chars: false,
        };
        for n in 0u32..2000 {
            for v in [
                HashVersion::Legacy,
                HashVersion::HalfMd4,
                HashVersion::TeaUnsigned,
            ] {
                let h = v.hash(&s, format!("n{n}\u{e9}").as_bytes());
                assert!(h.major & 1 == 0 && h.major != 0xFFFF_FFFE);
            }
        }
    }
}
