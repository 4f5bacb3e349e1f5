//! GPT: UEFI specification 5.3.
//!
//! Input: the source; partitions that have their places. Output: the partitions of the primary table or, if that is broken, of the backup
//! at the end; the bytes of both tables. Invariant: header and entries pass their checksums before a field is used for anything but
//! locating them. Limits: [`MAX_ARRAY`] bytes of entries; a new table has [`COUNT`] entries.

use super::kind::swapped;
use super::layout::{NewPartition, Placed};
use super::{Partition, PartitionKind, Source, Wrong, le32, le64};

/// The most bytes of entries: 8,192 entries of the usual size.
pub(super) const MAX_ARRAY: u64 = 1 << 20;
/// The defined part of the header.
const HEADER: usize = 92;

/// Entries of a new table, and the bytes of one.
pub(super) const COUNT: usize = 128;
const ENTRY: usize = 128;
/// UTF-16 units of a name.
pub(super) const NAME: usize = 36;
/// The attribute of a partition that a BIOS starts.
const LEGACY_BOOT: u64 = 1 << 2;

/// Sectors of the entries of a new table.
fn entry_sectors(sector: u64) -> u64 {
    ((COUNT * ENTRY) as u64).div_ceil(sector)
}

/// Bytes that a new table takes at the start of the disk: the protective MBR, the header and the entries.
pub(super) fn front(sector: u64) -> u64 {
    (2 + entry_sectors(sector)) * sector
}

/// Bytes that it takes at the end: the entries and the header again.
pub(super) fn back(sector: u64) -> u64 {
    (1 + entry_sectors(sector)) * sector
}

/// The bytes of a new table at the start, behind the protective MBR's sector, and of its backup at the end.
pub(super) fn encode(
    disk: [u8; 16],
    sector: u64,
    size: u64,
    parts: &[(Placed, &NewPartition)],
) -> (Vec<u8>, Vec<u8>) {
    let mut entries = vec![0; (entry_sectors(sector) * sector) as usize];
    for ((place, part), entry) in parts.iter().zip(entries.chunks_exact_mut(ENTRY)) {
        let (first, last) = (
            place.start / sector,
            (place.start + place.size) / sector - 1,
        );
        let attributes = if part.bootable { LEGACY_BOOT } else { 0 };
        if let PartitionKind::Gpt(kind) = part.kind {
            entry[..16].copy_from_slice(&kind);
        }
        entry[16..32].copy_from_slice(&swapped(part.uuid));
        entry[32..40].copy_from_slice(&first.to_le_bytes());
        entry[40..48].copy_from_slice(&last.to_le_bytes());
        entry[48..56].copy_from_slice(&attributes.to_le_bytes());
        for (unit, at) in part
            .name
            .encode_utf16()
            .zip(entry[56..].chunks_exact_mut(2))
        {
            at.copy_from_slice(&unit.to_le_bytes());
        }
    }
    let last = size / sector - 1;
    let sum = crc32(&entries[..COUNT * ENTRY]);
    let header = |own: u64, other: u64, entries_at: u64| {
        let mut header = vec![0; sector as usize];
        header[..8].copy_from_slice(b"EFI PART");
        header[8..12].copy_from_slice(&0x0001_0000_u32.to_le_bytes());
        header[12..16].copy_from_slice(&(HEADER as u32).to_le_bytes());
        header[24..32].copy_from_slice(&own.to_le_bytes());
        header[32..40].copy_from_slice(&other.to_le_bytes());
        header[40..48].copy_from_slice(&(front(sector) / sector).to_le_bytes());
        header[48..56].copy_from_slice(&((size - back(sector)) / sector - 1).to_le_bytes());
        header[56..72].copy_from_slice(&swapped(disk));
        header[72..80].copy_from_slice(&entries_at.to_le_bytes());
        header[80..84].copy_from_slice(&(COUNT as u32).to_le_bytes());
        header[84..88].copy_from_slice(&(ENTRY as u32).to_le_bytes());
        header[88..92].copy_from_slice(&sum.to_le_bytes());
        let crc = crc32(&header[..HEADER]);
        header[16..20].copy_from_slice(&crc.to_le_bytes());
        header
    };
    let primary = [header(1, last, 2), entries.clone()].concat();
    let backup = [entries, header(last, 1, last - entry_sectors(sector))].concat();
    (primary, backup)
}

/// The result at one sector size.
pub(super) enum Found {
    None,
    Broken(String),
    /// The partitions, and what is wrong with the table.
    Table(Vec<Partition>, Vec<String>),
}

/// Looks for a table whose addresses count in `sector`.
pub(super) fn read(source: &Source<'_>, sector: u32) -> Found {
    let sector = u64::from(sector);
    let primary = table(source, sector, 1);
    let last = (source.size / sector).saturating_sub(1);
    let backup = match last > 1 {
        true => table(source, sector, last),
        false => Ok(None),
    };
    match (primary, backup) {
        (Ok(Some((parts, mut notes))), backup) => {
            notes.extend(match backup {
                Ok(Some((copy, _))) if copy == parts => None,
                Ok(Some(_)) => Some("its backup GPT has other partitions".to_owned()),
                Ok(None) => Some("it has no backup GPT at the end".to_owned()),
                Err(Wrong(why)) => Some(format!("its backup GPT is broken: {why}")),
            });
            Found::Table(parts, notes)
        }
        (primary, Ok(Some((parts, mut notes)))) => {
            let why = primary.err().map_or("not there".to_owned(), |Wrong(why)| {
                format!("broken: {why}")
            });
            notes.push(format!("its GPT is {why}; this is the backup at the end"));
            Found::Table(parts, notes)
        }
        (Err(Wrong(why)), _) => Found::Broken(why),
        (Ok(None), _) => Found::None,
    }
}

/// The partitions of a table, and what is wrong with it.
type Table = (Vec<Partition>, Vec<String>);

/// The table whose header is at `lba`; none if there is no header.
fn table(source: &Source<'_>, sector: u64, lba: u64) -> Result<Option<Table>, Wrong> {
    let Ok(header) = source.read(lba.saturating_mul(sector), sector as usize) else {
        return Ok(None);
    };
    if &header[..8] != b"EFI PART" {
        return Ok(None);
    }
    check_header(&header, lba)?;
    let (count, size) = (le32(&header, 80), le32(&header, 84));
    let legal_size = size >= 128 && size.is_power_of_two();
    let bytes = u64::from(count) * u64::from(size);
    if !legal_size || bytes > MAX_ARRAY {
        return Err(Wrong(format!("{count} entries of {size} bytes")));
    }
    let at = le64(&header, 72).checked_mul(sector);
    let at = at.ok_or_else(|| Wrong("its entries lie beyond the end".to_owned()))?;
    let entries = source.read(at, bytes as usize)?;
    if crc32(&entries) != le32(&header, 88) {
        return Err(Wrong("the checksum of its entries is wrong".to_owned()));
    }
    let (mut parts, mut notes) = (Vec::new(), Vec::new());
    let usable = le64(&header, 40)..=le64(&header, 48);
    for (index, entry) in entries.chunks_exact(size as usize).enumerate() {
        let number = index as u32 + 1;
        match part(entry, number, sector) {
            Ok(Some(part)) => parts.push(part),
            Ok(None) => continue,
            Err(Wrong(why)) => {
                notes.push(why);
                continue;
            }
        }
        if !usable.contains(&le64(entry, 32)) || !usable.contains(&le64(entry, 40)) {
            notes.push(format!(
                "partition {number} lies outside of the sectors for partitions"
            ));
        }
    }
    Ok(Some((parts, notes)))
}

fn check_header(header: &[u8], lba: u64) -> Result<(), Wrong> {
    let size = le32(header, 12) as usize;
    if !(HEADER..=header.len()).contains(&size) {
        return Err(Wrong(format!("a header of {size} bytes")));
    }
    let mut copy = header[..size].to_vec();
    copy[16..20].fill(0);
    if crc32(&copy) != le32(header, 16) {
        return Err(Wrong("the header's checksum is wrong".to_owned()));
    }
    let own = le64(header, 24);
    if own != lba {
        return Err(Wrong(format!(
            "the header at sector {lba} says that it is at {own}"
        )));
    }
    Ok(())
}

/// The partition in an entry; none if the entry is not used.
fn part(entry: &[u8], number: u32, sector: u64) -> Result<Option<Partition>, Wrong> {
    if entry[..16].iter().all(|b| *b == 0) {
        return Ok(None);
    }
    let (first, last) = (le64(entry, 32), le64(entry, 40));
    let range = || {
        let sectors = last.checked_sub(first)?.checked_add(1)?;
        let (start, size) = (first.checked_mul(sector)?, sectors.checked_mul(sector)?);
        start.checked_add(size).map(|_| (start, size))
    };
    let (start, size) = range().ok_or_else(|| {
        Wrong(format!(
            "partition {number} is from sector {first} to {last}"
        ))
    })?;
    let mut guid = [0; 16];
    guid.copy_from_slice(&entry[..16]);
    Ok(Some(Partition {
        number,
        kind: PartitionKind::Gpt(guid),
        start,
        size,
    }))
}

/// CRC-32 as Ethernet and the UEFI specification have it.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    let byte = |crc: u32, b: &u8| (0..8).fold(crc ^ u32::from(*b), |c, _| step(c));
    !bytes.iter().fold(u32::MAX, byte)
}
