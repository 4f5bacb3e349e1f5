//! What an entry of a table of clusters says.
//!
//! Input: an entry, with its bitmaps if the file has extended entries. Output: a [`Place`], where the bytes of a cluster or subcluster are.
//! Invariants: bits that mean nothing, and bits that contradict each other, are errors; compressed data is at most as long as two
//! clusters. Source: the description of the format in QEMU's documentation (interop/qcow2).

use crate::header::Header;
use crate::tables::{COMPRESSED, OFFSET, SECTOR, UNKNOWN, ZEROS};

/// Subclusters of a cluster of a file with extended entries.
pub(crate) const SUBCLUSTERS: u64 = 32;

/// Where bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the file behind, or nowhere.
    Below,
    Zeros,
    /// At an offset of the file.
    Data(u64),
    /// Of the whole cluster, compressed.
    Packed {
        at: u64,
        len: usize,
    },
}

/// How a file's tables are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) cluster: u64,
    /// Bytes of an entry.
    pub(crate) entry: u64,
    /// Bytes of the disk that are described together: a cluster or a subcluster.
    pub(crate) unit: u64,
    /// Whether an entry may say "zeros".
    has_zeros: bool,
}

impl Layout {
    pub(crate) fn of(header: &Header) -> Layout {
        let cluster = header.cluster;
        let (entry, unit) = match header.is_extended {
            true => (16, cluster / SUBCLUSTERS),
            false => (8, cluster),
        };
        Layout {
            cluster,
            entry,
            unit,
            has_zeros: header.features.is_some(),
        }
    }

    pub(crate) fn is_extended(&self) -> bool {
        self.unit != self.cluster
    }

    /// Bytes of the disk that one table leads to.
    pub(crate) fn span(&self) -> u64 {
        self.cluster / self.entry * self.cluster
    }

    /// Where a unit is whose entry is known: the unit has this number in its cluster.
    ///
    /// # Errors
    /// What is wrong with the entry.
    pub(crate) fn place(&self, entry: u64, bitmaps: u64, unit: u64) -> Result<Place, &'static str> {
        if entry & COMPRESSED != 0 {
            return self.packed(entry, bitmaps);
        }
        let known = match self.has_zeros && !self.is_extended() {
            true => ZEROS,
            false => 0,
        };
        if entry & (UNKNOWN | ZEROS) & !known != 0 {
            return Err("an entry of a table has unknown bits");
        }
        let at = entry & OFFSET;
        if !at.is_multiple_of(self.cluster) {
            return Err("an entry of a table leads between two clusters");
        }
        let (data, zeros) = match self.is_extended() {
            true => (
                bitmaps >> unit & 1 != 0,
                bitmaps >> (unit + SUBCLUSTERS) & 1 != 0,
            ),
            false => (at != 0, entry & ZEROS != 0),
        };
        match (data, zeros) {
            (true, true) if self.is_extended() => Err("a subcluster has data and is zeros"),
            (_, true) => Ok(Place::Zeros),
            (true, false) if at == 0 => Err("a subcluster has data, and its cluster is nowhere"),
            (true, false) => Ok(Place::Data(at + unit * self.unit)),
            (false, false) => Ok(Place::Below),
        }
    }

    fn packed(&self, entry: u64, bitmaps: u64) -> Result<Place, &'static str> {
        if entry >> 63 != 0 || bitmaps != 0 {
            return Err("an entry of compressed data has unknown bits");
        }
        let bits = self.cluster.trailing_zeros();
        let shift = 62 - (bits - 8);
        let at = entry & ((1 << shift) - 1);
        let more = entry >> shift & ((1 << (bits - 8)) - 1);
        // At most two clusters: there are `cluster / 256` numbers of sectors.
        let len = (more + 1) * SECTOR - at % SECTOR;
        Ok(Place::Packed {
            at,
            len: usize::try_from(len).unwrap_or(0),
        })
    }
}

impl Place {
    /// The place of the next bytes, `len` behind, if it is the same.
    pub(crate) fn plus(self, len: u64) -> Option<Place> {
        match self {
            Place::Data(at) => Some(Place::Data(at + len)),
            Place::Packed { .. } => None,
            same => Some(same),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENDED: Layout = Layout {
        cluster: 1 << 17,
        entry: 16,
        unit: 1 << 12,
        has_zeros: true,
    };
    const PLAIN: Layout = Layout {
        entry: 8,
        unit: 1 << 17,
        ..EXTENDED
    };
    const COPIED: u64 = 1 << 63;

    #[test]
    fn entries() {
        let at = 5 << 17;
        let v2 = Layout {
            has_zeros: false,
            ..PLAIN
        };
        for (layout, entry, bitmaps, unit, want) in [
            (PLAIN, 0, 0, 0, Some(Place::Below)),
            (PLAIN, 1, 0, 0, Some(Place::Zeros)),
            (PLAIN, at | COPIED, 0, 0, Some(Place::Data(at))),
            (PLAIN, at | COPIED | 1, 0, 0, Some(Place::Zeros)),
            (PLAIN, at + 512, 0, 0, None),
            (PLAIN, at | 2, 0, 0, None),
            (v2, at | 1, 0, 0, None),
            (EXTENDED, at | 1, 0, 0, None),
            (
                EXTENDED,
                at | COPIED,
                1 << 3,
                3,
                Some(Place::Data(at + 3 * 4096)),
            ),
            (EXTENDED, at | COPIED, 1 << 3, 4, Some(Place::Below)),
            (EXTENDED, at | COPIED, 1 << 63, 31, Some(Place::Zeros)),
            (EXTENDED, 0, 1 << 32, 0, Some(Place::Zeros)),
            (EXTENDED, at, 1 << 32 | 1, 0, None),
            (EXTENDED, 0, 1, 0, None),
            (EXTENDED, COMPRESSED, 1, 0, None),
            (PLAIN, COMPRESSED | COPIED, 0, 0, None),
        ] {
            let got = layout.place(entry, bitmaps, unit).ok();
            assert_eq!(got, want, "{entry:#x} {bitmaps:#x} {unit}");
        }
    }

    /// The largest number of sectors that an entry can say is bounded by the clusters.
    #[test]
    fn compressed_data_is_at_most_two_clusters() {
        for bits in 9..=21 {
            let layout = Layout {
                cluster: 1 << bits,
                unit: 1 << bits,
                ..PLAIN
            };
            let Ok(Place::Packed { len, .. }) = layout.place(!COPIED & !(SECTOR - 1), 0, 0) else {
                panic!("it is compressed");
            };
            assert_eq!(len, 2 << bits);
        }
    }
}
