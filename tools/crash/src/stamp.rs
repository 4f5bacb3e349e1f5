//! What it is: the stamp that fills a sector and says which file, position and write the sector came from.
//! Input: these three. Output: the 512 bytes of a stamp; and for any 512 bytes, what they are.
//! Invariants: the stamp fills the whole sector, so half a sector is no valid stamp; no stamp is all zeros or the stale pattern.

/// Bytes of a sector, the unit that a power cut does not tear.
pub const SECTOR: usize = 512;

/// The device is filled with this byte before an image is made on it; no workload writes it to a file.
pub const STALE: u8 = 0xA5;

/// Set in the sector number of an append's stamps: its position in the file was not known when the buffer was filled.
pub const OF_APPEND: u64 = 1 << 63;

const MAGIC: u64 = 0x6469_6f72_6974_6521;
const RECORD: usize = 32;

/// The origin of a sector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The file's number in the workload.
    pub file: u32,
    /// The sector's number in the file; for an append, its number within the append, with [`OF_APPEND`] set.
    pub sector: u64,
    /// The write's number in the history; 0 for the contents that the file began with.
    pub write: u32,
}

/// What a sector holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// A complete sector of one write.
    Stamp(Stamp),
    /// Zeros.
    Zeros,
    /// The stale pattern of the device: never written to any file.
    Stale,
    /// Bytes that no write produced: a torn or foreign sector.
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

    /// Fills one sector, or the part of the last one that is inside the file.
    pub fn fill(self, sector: &mut [u8]) {
        let record = self.record();
        for part in sector.chunks_mut(RECORD) {
            part.copy_from_slice(&record[..part.len()]);
        }
    }
}

/// Fills `bytes` with the stamps of `write`, for the sectors of a file from `first` on.
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

/// What a sector, or the part of the last one that is inside the file, holds.
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
