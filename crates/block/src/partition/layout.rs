//! New tables: where the partitions of a disk that is to be made lie, and the bytes of its table.
//!
//! Input: a [`NewTable`]. Output: its [`Layout`]. Invariants: partitions lie in the order in which they are given, at multiples of the
//! alignment, share no byte with each other or the table, and end inside the disk; the same table gives the same bytes. Limits: 128
//! partitions of a GPT, 4 of an MBR, whose last sectors have 32-bit numbers; sizes below 8 EiB.

use super::{Partition, PartitionKind, TableKind, gpt, mbr};
use crate::size::Rounded;

/// The most bytes of a disk: file offsets are signed.
const MOST: u64 = i64::MAX as u64;

/// How large a disk is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskSize {
    /// As large as its partitions need: a multiple of the alignment.
    Auto,
    /// So many bytes.
    Bytes(u64),
}

/// How large a partition is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartSize {
    /// At least so many bytes: whole sectors.
    Bytes(u64),
    /// What the others leave of the disk, but at least so many bytes.
    Rest(u64),
}

/// A partition that is to be made.
#[derive(Clone, Debug)]
pub struct NewPartition {
    /// Its length.
    pub size: PartSize,
    /// Its type, of the same kind as the table.
    pub kind: PartitionKind,
    /// GPT: its name, up to 36 units of UTF-16.
    pub name: String,
    /// GPT: its UUID, in the order of its text.
    pub uuid: [u8; 16],
    /// MBR: it is active. GPT: the attribute for a BIOS.
    pub bootable: bool,
}

/// A table that is to be made.
#[derive(Clone, Debug)]
pub struct NewTable {
    /// GPT or MBR.
    pub kind: TableKind,
    /// The UUID of a GPT's disk, in the order of its text; the first four bytes are the number of an MBR's.
    pub disk: [u8; 16],
    /// Bytes of a logical sector: 512 or 4096.
    pub sector: u32,
    /// Partitions begin at multiples of so many bytes.
    pub align: u64,
    /// The size of the disk.
    pub size: DiskSize,
    /// The partitions, in the order of their places.
    pub parts: Vec<NewPartition>,
}

/// Where a disk has what.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Bytes of the disk.
    pub size: u64,
    /// The partitions.
    pub parts: Vec<Partition>,
    /// The table: whole sectors, and where they belong. All other bytes outside the partitions are zeros.
    pub table: Vec<(u64, Vec<u8>)>,
}

/// The place of a partition.
#[derive(Clone, Copy)]
pub(super) struct Placed {
    pub(super) start: u64,
    pub(super) size: u64,
}

impl NewTable {
    /// Finds a place for everything.
    ///
    /// # Errors
    /// A sentence that says what does not fit, or cannot be said in such a table.
    pub fn lay_out(&self) -> Result<Layout, String> {
        self.check()?;
        let rest = match (self.rest(), self.size) {
            (None, _) => 0,
            (Some(number), DiskSize::Auto) => {
                return Err(format!(
                    "partition {number} is to take the rest of the disk: say how large the disk is"
                ));
            }
            (Some(number), DiskSize::Bytes(_)) => self.left(number)?,
        };
        let (placed, end) = self.place(rest)?;
        let size = match self.size {
            DiskSize::Bytes(size) => size,
            DiskSize::Auto => up(end + self.back(), self.align)?,
        };
        if end > size.saturating_sub(self.back()) {
            let needed = up(end + self.back(), self.align)?;
            return Err(format!(
                "the partitions do not fit into {size} bytes: with the table they need {needed}"
            ));
        }
        self.layout(size, &placed)
    }

    fn layout(&self, size: u64, placed: &[Placed]) -> Result<Layout, String> {
        let sector = u64::from(self.sector);
        let both: Vec<(Placed, &NewPartition)> = placed.iter().copied().zip(&self.parts).collect();
        let whole_sector = |mut record: Vec<u8>| {
            record.resize(self.sector as usize, 0);
            record
        };
        let table = match self.kind {
            TableKind::Gpt => {
                let (primary, backup) = gpt::encode(self.disk, sector, size, &both);
                let mut front = whole_sector(mbr::protective(size / sector));
                front.extend(primary);
                vec![(0, front), (size - self.back(), backup)]
            }
            TableKind::Mbr => {
                let end = placed.last().map_or(0, |p| p.start + p.size);
                if end / sector > u32::MAX.into() {
                    return Err(format!(
                        "an MBR counts 2^32 sectors, and partitions up to {} need more: a GPT does not",
                        Rounded(end)
                    ));
                }
                let [a, b, c, d, ..] = self.disk;
                let number = u32::from_be_bytes([a, b, c, d]);
                vec![(0, whole_sector(mbr::encode(number, sector, &both)))]
            }
        };
        let parts = (1..).zip(&both).map(|(number, (place, part))| Partition {
            number,
            kind: part.kind,
            start: place.start,
            size: place.size,
        });
        Ok(Layout {
            size,
            parts: parts.collect(),
            table,
        })
    }

    /// Bytes at the end of the disk that belong to the table.
    fn back(&self) -> u64 {
        match self.kind {
            TableKind::Gpt => gpt::back(self.sector.into()),
            TableKind::Mbr => 0,
        }
    }

    /// The number of the partition that takes the rest.
    fn rest(&self) -> Option<usize> {
        let takes = |p: &NewPartition| matches!(p.size, PartSize::Rest(_));
        self.parts.iter().position(takes).map(|at| at + 1)
    }

    /// How many bytes beyond its least size are left for the partition that takes the rest: a multiple of the alignment, so those behind it
    /// move by as much.
    fn left(&self, number: usize) -> Result<u64, String> {
        let DiskSize::Bytes(size) = self.size else {
            return Ok(0);
        };
        let (placed, end) = self.place(0)?;
        let left = size.saturating_sub(self.back()).saturating_sub(end);
        let left = left / self.align * self.align;
        // Its least size may end within the alignment; if it is the last one, that is filled.
        match placed[number - 1].size + left {
            0 => Err(format!(
                "nothing of the disk is left for partition {number}"
            )),
            _ => Ok(left),
        }
    }

    /// The places, if the partition that takes the rest has `more` than its least size, and the end of the last one.
    fn place(&self, more: u64) -> Result<(Vec<Placed>, u64), String> {
        let sector = u64::from(self.sector);
        let mut end = match self.kind {
            TableKind::Gpt => gpt::front(sector),
            TableKind::Mbr => sector,
        };
        let mut placed = Vec::new();
        for part in &self.parts {
            let start = up(end, self.align)?;
            let size = match part.size {
                PartSize::Bytes(size) => up(size, sector)?,
                PartSize::Rest(least) => up(least, self.align)?
                    .checked_add(more)
                    .ok_or_else(too_large)?,
            };
            end = start
                .checked_add(size)
                .filter(|end| *end <= MOST - self.back())
                .ok_or_else(too_large)?;
            placed.push(Placed { start, size });
        }
        Ok((placed, end))
    }

    fn check(&self) -> Result<(), String> {
        let sector = u64::from(self.sector);
        if ![512, 4096].contains(&self.sector) {
            return Err(format!(
                "a sector of {sector} bytes: 512 and 4096 are usual"
            ));
        }
        if self.align == 0 || !self.align.is_multiple_of(sector) {
            return Err(format!(
                "an alignment of {} bytes is no multiple of a sector of {sector}",
                self.align
            ));
        }
        if let DiskSize::Bytes(size) = self.size
            && (!size.is_multiple_of(sector) || size > MOST)
        {
            return Err(format!(
                "a disk of {size} bytes is no multiple of a sector of {sector}, or too large"
            ));
        }
        let most = match self.kind {
            TableKind::Gpt => gpt::COUNT,
            TableKind::Mbr => mbr::COUNT,
        };
        if self.parts.len() > most {
            let given = self.parts.len();
            return Err(format!(
                "{given} partitions: a new {} has up to {most}",
                self.kind
            ));
        }
        let rests = self
            .parts
            .iter()
            .filter(|p| matches!(p.size, PartSize::Rest(_)));
        let active = self.parts.iter().filter(|p| p.bootable).count();
        if self.kind == TableKind::Mbr && active > 1 {
            return Err("only one partition of an MBR is active".to_owned());
        }
        if rests.count() > 1 {
            return Err("only one partition can take the rest of the disk".to_owned());
        }
        (1..)
            .zip(&self.parts)
            .try_for_each(|(number, part)| self.check_part(number, part))
    }

    fn check_part(&self, number: usize, part: &NewPartition) -> Result<(), String> {
        if part.size == PartSize::Bytes(0) {
            return Err(format!(
                "partition {number} has no bytes: say how large it is"
            ));
        }
        let is_gpt = matches!(part.kind, PartitionKind::Gpt(_));
        if is_gpt != (self.kind == TableKind::Gpt) {
            return Err(format!(
                "partition {number}: {} is no type of a {}",
                part.kind, self.kind
            ));
        }
        if part.name.encode_utf16().count() > gpt::NAME || part.name.contains('\0') {
            return Err(format!(
                "partition {number}: the name {:?} does not fit into {} units of UTF-16",
                part.name,
                gpt::NAME
            ));
        }
        let same = |other: &NewPartition| is_gpt && other.uuid == part.uuid;
        match self.parts[..number - 1].iter().position(same) {
            Some(before) => Err(format!(
                "partitions {} and {number} have the same UUID",
                before + 1
            )),
            None => Ok(()),
        }
    }
}

fn too_large() -> String {
    "the disk would be larger than 8 EiB".to_owned()
}

/// The next multiple.
fn up(bytes: u64, unit: u64) -> Result<u64, String> {
    let up = bytes.checked_next_multiple_of(unit);
    up.filter(|up| *up <= MOST).ok_or_else(too_large)
}

#[cfg(test)]
mod tests;
