//! GPT: UEFI specification 5.3.
//!
//! Input: the source. Output: the partitions of the primary table or, if that is broken, of the backup at the end. Invariant:
//! header and entries pass their checksums before a field is used for anything but locating them. Limits: [`MAX_ARRAY`] bytes
//! of entries.

use super::{Partition, PartitionKind, Source, Wrong, le32, le64};

/// The most bytes of entries: 8,192 entries of the usual size.
pub(super) const MAX_ARRAY: u64 = 1 << 20;
/// The defined part of the header.
const HEADER: usize = 92;

/// The result at one sector size.
pub(super) enum Found {
    None,
    Broken(String),
    Table(Vec<Partition>),
}

/// Looks for a table whose addresses count in `sector`.
pub(super) fn read(source: &Source<'_>, sector: u32) -> Found {
    let sector = u64::from(sector);
    let primary = table(source, sector, 1);
    let why = match primary {
        Ok(Some(parts)) => return Found::Table(parts),
        Ok(None) => None,
        Err(Wrong(why)) => Some(why),
    };
    let last = (source.size / sector).saturating_sub(1);
    match table(source, sector, last) {
        Ok(Some(parts)) if last > 1 => Found::Table(parts),
        _ => why.map_or(Found::None, Found::Broken),
    }
}

/// The table whose header is at `lba`; none if there is no header.
fn table(source: &Source<'_>, sector: u64, lba: u64) -> Result<Option<Vec<Partition>>, Wrong> {
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
    let mut parts = Vec::new();
    for (index, entry) in entries.chunks_exact(size as usize).enumerate() {
        parts.extend(part(entry, index as u32 + 1, sector)?);
    }
    Ok(Some(parts))
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
    let (start, size) =
        range().ok_or_else(|| Wrong(format!("entry {number} is from sector {first} to {last}")))?;
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
