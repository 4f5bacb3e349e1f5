//! MBR: UEFI specification 5.2, and the usual chain of extended boot records.
//!
//! Input: the source and its first sector; partitions that have their places. Output: the used primary partitions (up to four), and the
//! logical ones from 5 on; the sector of a new table. Invariant: the chain is followed for at most [`MAX_LOGICAL`] steps. Limits: 32-bit
//! sector numbers.

use super::layout::{NewPartition, Placed};
use super::{Partition, PartitionKind, Source, Wrong, le32};

/// The most logical partitions.
pub(super) const MAX_LOGICAL: u32 = 128;
/// Where the four entries begin, and how long one is.
const ENTRIES: usize = 446;
const ENTRY: usize = 16;
/// Entries, and so the most primary partitions.
pub(super) const COUNT: usize = 4;
/// Where the number of the disk is, which Linux uses.
const NUMBER: usize = 440;
/// Heads and sectors of the geometry that addresses by cylinder, head and sector are said to be of.
const HEADS: u64 = 255;
const SECTORS: u64 = 63;
/// The type of the partition that only protects a GPT.
const PROTECTIVE: u8 = 0xee;

/// The record of a new table, of which nobody starts code.
fn record(number: u32, entries: impl Iterator<Item = [u8; ENTRY]>) -> Vec<u8> {
    let mut record = vec![0; 512];
    record[NUMBER..NUMBER + 4].copy_from_slice(&number.to_le_bytes());
    for (entry, at) in entries.zip(record[ENTRIES..].chunks_exact_mut(ENTRY)) {
        at.copy_from_slice(&entry);
    }
    record[510..].copy_from_slice(&[0x55, 0xaa]);
    record
}

fn entry(boot: bool, kind: u8, ends: [[u8; 3]; 2], first: u32, sectors: u32) -> [u8; ENTRY] {
    let mut entry = [0; ENTRY];
    entry[0] = if boot { 0x80 } else { 0 };
    entry[1..4].copy_from_slice(&ends[0]);
    entry[4] = kind;
    entry[5..8].copy_from_slice(&ends[1]);
    entry[8..12].copy_from_slice(&first.to_le_bytes());
    entry[12..].copy_from_slice(&sectors.to_le_bytes());
    entry
}

/// The address of a sector by cylinder, head and sector; the largest if it has none.
fn chs(at: u64) -> [u8; 3] {
    let (cylinder, head, sector) = (at / SECTORS / HEADS, at / SECTORS % HEADS, at % SECTORS + 1);
    match cylinder {
        0..=1023 => [
            head as u8,
            (sector | cylinder >> 2 & 0xc0) as u8,
            cylinder as u8,
        ],
        _ => [0xfe, 0xff, 0xff],
    }
}

/// The record in front of a GPT: programs that know no GPT see one partition that takes everything.
pub(super) fn protective(sectors: u64) -> Vec<u8> {
    let all = u32::try_from(sectors - 1).unwrap_or(u32::MAX);
    let ends = [[0, 2, 0], [0xff; 3]];
    record(0, std::iter::once(entry(false, PROTECTIVE, ends, 1, all)))
}

/// The record of these partitions, whose last sectors have 32-bit numbers.
pub(super) fn encode(number: u32, sector: u64, parts: &[(Placed, &NewPartition)]) -> Vec<u8> {
    let entries = parts.iter().map(|(place, part)| {
        let kind = match part.kind {
            PartitionKind::Mbr(kind) => kind,
            PartitionKind::Gpt(_) => PROTECTIVE,
        };
        let (first, sectors) = (place.start / sector, place.size / sector);
        let ends = [chs(first), chs(first + sectors - 1)];
        entry(part.bootable, kind, ends, first as u32, sectors as u32)
    });
    record(number, entries)
}

#[derive(Clone, Copy)]
struct Entry {
    kind: u8,
    first: u64,
    sectors: u64,
}

impl Entry {
    fn is_used(&self) -> bool {
        self.kind != 0 && self.sectors != 0
    }

    /// A logical partition may have no type, and still has a number.
    fn is_logical(&self) -> bool {
        self.sectors != 0 && !self.is_extended()
    }

    fn is_extended(&self) -> bool {
        is_extended(self.kind)
    }

    /// The partition, its sectors counted from `base`. Sums of 32-bit numbers times a 16-bit one: no overflow.
    fn part(&self, number: u32, base: u64, sector: u64) -> Partition {
        Partition {
            number,
            kind: PartitionKind::Mbr(self.kind),
            start: (base + self.first) * sector,
            size: self.sectors * sector,
        }
    }
}

/// The entries of a boot record, if it is one.
fn entries(record: &[u8]) -> Option<[Entry; 4]> {
    let legal_boot = |i: usize| record[ENTRIES + i * ENTRY] & 0x7f == 0;
    let is_record = record[510..512] == [0x55, 0xaa] && (0..4).all(legal_boot);
    is_record.then(|| {
        std::array::from_fn(|i| {
            let at = ENTRIES + i * ENTRY;
            Entry {
                kind: record[at + 4],
                first: le32(record, at + 8).into(),
                sectors: le32(record, at + 12).into(),
            }
        })
    })
}

/// Whether the record only protects a GPT.
pub(super) fn is_protective(record: &[u8]) -> bool {
    entries(record).is_some_and(|e| e.iter().any(|e| e.kind == PROTECTIVE))
}

/// Whether it has partitions beside one that protects a GPT.
pub(super) fn is_hybrid(record: &[u8]) -> bool {
    let others = |e: &Entry| e.is_used() && e.kind != PROTECTIVE;
    is_protective(record) && entries(record).is_some_and(|e| e.iter().any(others))
}

/// Whether partitions of this type hold others.
pub(super) const fn is_extended(kind: u8) -> bool {
    matches!(kind, 0x05 | 0x0f | 0x85)
}

/// The partitions, and what is wrong with the table; none if the sector has none.
pub(super) fn read(
    source: &Source<'_>,
    record: &[u8],
    sector: u32,
) -> Option<(Vec<Partition>, Vec<String>)> {
    let primary = entries(record)?;
    let size = u64::from(sector);
    let mut parts: Vec<Partition> = (1..)
        .zip(primary)
        .filter(|(_, e)| e.is_used())
        .map(|(number, e)| e.part(number, 0, size))
        .collect();
    let mut notes = Vec::new();
    if let Some(extended) = primary.iter().find(|e| e.is_used() && e.is_extended()) {
        notes.extend(follow(source, extended.first, size, &mut parts).err());
    }
    // A sector that only looks like a table, for example the boot sector of a file system.
    (!parts.is_empty()).then_some((parts, notes))
}

/// Follows the chain of extended boot records that starts at sector `base`.
///
/// # Errors
/// What is wrong with it; the partitions of the records before are there.
fn follow(
    source: &Source<'_>,
    base: u64,
    sector: u64,
    parts: &mut Vec<Partition>,
) -> Result<(), String> {
    let (mut at, mut number, mut seen) = (base, 5, Vec::new());
    while seen.len() < MAX_LOGICAL as usize {
        if seen.contains(&at) {
            return Err(format!(
                "the chain of its MBR's logical partitions comes back to sector {at}"
            ));
        }
        seen.push(at);
        let record = source.read(at * sector, 512).map_err(|Wrong(why)| {
            format!("the chain of its MBR's logical partitions is broken: {why}")
        })?;
        let Some(entries) = entries(&record) else {
            return Ok(());
        };
        // A partition counts from its own record, the link from the start of the extended partition. Either may come first.
        if let Some(logical) = entries.iter().find(|e| e.is_logical()) {
            parts.push(logical.part(number, at, sector));
            number += 1;
        }
        let next = entries.iter().find(|e| e.is_used() && e.is_extended());
        match next {
            Some(link) => at = base + link.first,
            None => return Ok(()),
        }
    }
    Err(format!(
        "the chain of its MBR's logical partitions has more than {MAX_LOGICAL} links"
    ))
}
