//! What it is: a sector that says which file, which place and which write it came from.
//! Input: those three. Output: 512 bytes, and what any 512 bytes turn out to be.
//! Invariants: the stamp fills the sector, so half a sector is no stamp; no stamp is all zero or the stale pattern.

/// Bytes of a sector, the unit that no power cut tears.
pub const SECTOR: usize = 512;

/// What the device is full of before an image is made on it: nobody ever wrote it to a file.
pub const STALE: u8 = 0xA5;

/// Marks the number of a sector whose place in the file nobody knew when it was filled.
pub const OF_APPEND: u64 = 1 << 63;

const MAGIC: u64 = 0x6469_6f72_6974_6521;
const RECORD: usize = 32;

/// Which write a sector came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The file's number in the workload.
    pub file: u32,
    /// The sector's number in the file; of an append its number in that, with [`OF_APPEND`] set.
    pub sector: u64,
    /// The write's number in the history; 0 is what the file began with.
    pub write: u32,
}

/// What a sector turns out to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// One write's sector, whole.
    Stamp(Stamp),
    /// Zeros.
    Zeros,
    /// What was on the device before: never written to any file.
    Stale,
    /// Nothing that anybody wrote: a torn or foreign sector.
    Other,
}

impl Stamp {
    fn record(self) -> [u8; RECORD] {
        let mut record = [0; RECORD];
        record[..8].copy_from_slice(&MAGIC.to_le_bytes());
        record[8..12].copy_from_slice(&self.file.to_le_bytes());
        record[12..16].copy_from_slice(&self.write.to_le_bytes());
        record[16..24].copy_from_slice(&self.sector.to_le_bytes());
        let whole = MAGIC ^ self.sector ^ (u64::from(self.file) << 32) ^ u64::from(self.write);
        record[24..].copy_from_slice(&whole.rotate_left(17).to_le_bytes());
        record
    }

    /// Fills one sector, or the part of it that lies inside a file.
    pub fn fill(self, sector: &mut [u8]) {
        let record = self.record();
        for part in sector.chunks_mut(RECORD) {
            part.copy_from_slice(&record[..part.len()]);
        }
    }
}

/// The bytes of `write` for the sectors of a file from `first` on.
pub fn fill(bytes: &mut [u8], file: u32, first: u64, write: u32) {
    for (sector, part) in (first..).zip(bytes.chunks_mut(SECTOR)) {
        let stamp = Stamp {
            file,
            sector,
            write,
        };
        stamp.fill(part);
    }
}

/// What a sector, or the part of it that lies inside a file, holds.
#[must_use]
pub fn held(bytes: &[u8]) -> Held {
    let all = |byte: u8| bytes.iter().all(|b| *b == byte);
    if all(0) {
        return Held::Zeros;
    }
    if all(STALE) {
        return Held::Stale;
    }
    let number = |from: usize| {
        let four = bytes.get(from..from + 4)?;
        Some(u32::from_le_bytes(four.try_into().ok()?))
    };
    let fields = (number(8), number(12), number(16), number(20));
    let (Some(file), Some(write), Some(low), Some(high)) = fields else {
        return Held::Other;
    };
    let stamp = Stamp {
        file,
        write,
        sector: u64::from(low) | u64::from(high) << 32,
    };
    let mut expected = [0; SECTOR];
    let expected = &mut expected[..bytes.len().min(SECTOR)];
    stamp.fill(expected);
    if *expected == *bytes {
        Held::Stamp(stamp)
    } else {
        Held::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sector_is_one_write_or_nothing() {
        let stamp = |write| Stamp {
            file: 3,
            sector: 77,
            write,
        };
        let (mut one, mut two) = ([0; SECTOR], [0; SECTOR]);
        stamp(5).fill(&mut one);
        stamp(6).fill(&mut two);
        assert_eq!(held(&one), Held::Stamp(stamp(5)));
        assert_eq!(held(&one[..100]), Held::Stamp(stamp(5)));
        one[256..].copy_from_slice(&two[256..]);
        assert_eq!(held(&one), Held::Other);
        assert_eq!(held(&[0; SECTOR]), Held::Zeros);
        assert_eq!(held(&[STALE; SECTOR]), Held::Stale);
        assert_eq!(held(&[1; 9]), Held::Other);
    }

    #[test]
    fn every_sector_of_a_range_knows_its_place() {
        let mut bytes = [0; 3 * SECTOR];
        fill(&mut bytes, 1, 40, 9);
        let sectors: Vec<Held> = bytes.chunks(SECTOR).map(held).collect();
        for (sector, held) in (40..).zip(sectors) {
            assert_eq!(
                held,
                Held::Stamp(Stamp {
                    file: 1,
                    sector,
                    write: 9
                })
            );
        }
    }
}
