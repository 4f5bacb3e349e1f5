//! Partition tables: reading one ends, and a partition that is opened lies inside the disk.
//!
//! The first byte chooses the sectors' size (512, 4096) and whether the checksums of a GPT are made right; the second is the logarithm of
//! the disk's size; the rest is the beginning of the disk, which is mirrored at its end.
#![no_main]

use diorite_block::locator::Part;
use diorite_block::{Device, MemDevice};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

fuzz_target!(|data: &[u8]| {
    let [first, log, bytes @ ..] = data else { return };
    let sector: u32 = if first & 1 == 0 { 512 } else { 4096 };
    let mut start = bytes.to_vec();
    start.resize(start.len().next_multiple_of(sector as usize).max(8 * sector as usize), 0);
    if first & 2 != 0 {
        seal(&mut start, sector as usize);
    }
    let size = (1_u64 << (log % 44)).max(start.len() as u64).next_multiple_of(u64::from(sector));
    let disk = MemDevice::new(size);
    if first & 4 == 0 {
        disk.write_at(0, &start);
    }
    // A backup header of its own place, with the entries wherever it says.
    if start.len() as u64 + u64::from(sector) <= size && first & 8 != 0 {
        disk.write_at(size - u64::from(sector), &start[sector as usize..2 * sector as usize]);
    }
    let disk: Arc<dyn Device> = Arc::new(disk);
    let part = |number| Part { part: number, sector: Some(sector), ..Part::default() };
    let Ok(Some(table)) = part(None).partitions(disk.clone(), "disk".to_owned()) else { return };
    let _ = table.to_string();
    for found in table.parts.iter().take(64) {
        if let Ok(window) = part(Some(found.number)).of_device(disk.clone(), "disk".to_owned()) {
            assert_eq!(window.geometry().size, found.size);
            assert!(found.start.checked_add(found.size).is_some_and(|end| end <= size));
        }
    }
});

fn seal(start: &mut [u8], sector: usize) {
    let le = |bytes: &[u8], at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize;
    let header = sector..2 * sector;
    if start[sector..sector + 8] != *b"EFI PART" {
        return;
    }
    let at = le(&start[header.clone()], 72).saturating_mul(sector);
    let len = le(&start[header.clone()], 80).saturating_mul(le(&start[header.clone()], 84));
    if let Some(entries) = at.checked_add(len).and_then(|end| start.get(at..end)) {
        let sum = crc32(entries);
        start[sector + 88..sector + 92].copy_from_slice(&sum.to_le_bytes());
    }
    start[sector + 16..sector + 20].fill(0);
    let len = le(&start[header], 12).min(sector);
    let sum = crc32(&start[sector..sector + len]);
    start[sector + 16..sector + 20].copy_from_slice(&sum.to_le_bytes());
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}
