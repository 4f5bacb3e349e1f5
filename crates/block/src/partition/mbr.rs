//! MBR: UEFI specification 5.2, and the usual chain of extended boot records.
//!
//! Input: the source and its first sector. Output: the used primary partitions (up to four), and the logical ones from 5 on.
//! Invariant: the chain is followed for at most [`MAX_LOGICAL`] steps. Limits: 32-bit sector numbers.

use super::{Partition, PartitionKind, Source, Wrong, le32};

/// The most logical partitions.
pub(super) const MAX_LOGICAL: u32 = 128;
/// Where the four entries begin, and how long one is.
const ENTRIES: usize = 446;
const ENTRY: usize = 16;
/// The types of an extended partition, and of the one that only protects a GPT.
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
const PROTECTIVE: u8 = 0xee;

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

    fn is_extended(&self) -> bool {
        EXTENDED.contains(&self.kind)
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

/// The partitions; none if the sector has no table.
pub(super) fn read(
    source: &Source<'_>,
    record: &[u8],
    sector: u32,
) -> Result<Option<Vec<Partition>>, Wrong> {
    let Some(primary) = entries(record) else {
        return Ok(None);
    };
    let size = u64::from(sector);
    let mut parts: Vec<Partition> = (1..)
        .zip(primary)
        .filter(|(_, e)| e.is_used())
        .map(|(number, e)| e.part(number, 0, size))
        .collect();
    if let Some(extended) = primary.iter().find(|e| e.is_used() && e.is_extended()) {
        follow(source, extended.first, size, &mut parts)?;
    }
    // A sector that only looks like a table, for example the boot sector of a file system.
    Ok((!parts.is_empty()).then_some(parts))
}

/// Follows the chain of extended boot records that starts at sector `base`.
fn follow(
    source: &Source<'_>,
    base: u64,
    sector: u64,
    parts: &mut Vec<Partition>,
) -> Result<(), Wrong> {
    let (mut at, mut number) = (base, 5);
    for _ in 0..MAX_LOGICAL {
        let record = source.read(at * sector, 512)?;
        let Some(entries) = entries(&record) else {
            return Ok(());
        };
        // The first entry counts from its own record, the link from the start of the extended partition.
        if entries[0].is_used() && !entries[0].is_extended() {
            parts.push(entries[0].part(number, at, sector));
            number += 1;
        }
        let next = entries.iter().find(|e| e.is_used() && e.is_extended());
        match next {
            Some(link) => at = base + link.first,
            None => return Ok(()),
        }
    }
    Err(Wrong(format!(
        "the chain of its MBR's logical partitions has more than {MAX_LOGICAL} links"
    )))
}
