//! A new usage file: header, tree, blocks of entries.
//! Input: usage by id. Output: the file's bytes. Invariants: [`super::Tree`] finds exactly these entries; the same usage gives the same
//! bytes. Limits: no id has a limit; times of grace are those of mke2fs, a week.
//! Source: files that mke2fs, tune2fs and e2fsck make, by experiment: `quota` says how.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::{BLOCK_SIZE, ENTRIES, Entry as Used, Kind, ROOT};
use crate::layout::{quota_data as data, quota_entry as entry, quota_header as header};
use crate::le::{put_le16, put_le32, put_le64};
use crate::num;

const VERSION: u32 = 1;
/// Seconds for which a soft limit may be exceeded.
const GRACE: u32 = 7 * 24 * 3600;

/// The bytes of a usage file with these entries, of which each id has one.
#[must_use]
pub fn usage_bytes(kind: Kind, used: &[Used]) -> Vec<u8> {
    let used: BTreeMap<u32, Used> = used.iter().map(|entry| (entry.id, *entry)).collect();
    let mut file = vec![0; BLOCK_SIZE.saturating_mul(2)];
    // The references of each level, by the part of the id that leads to them.
    let mut above = BTreeMap::from([(0, ROOT)]);
    for shift in [24u32, 16, 8] {
        let mut level: BTreeMap<u32, u32> = BTreeMap::new();
        for id in used.keys() {
            let prefix = id >> shift;
            if let Entry::Vacant(vacant) = level.entry(prefix) {
                let own = *vacant.insert(add_block(&mut file));
                refer(&mut file, above.get(&upper(prefix, shift)), prefix, own);
            }
        }
        above = level;
    }
    let entries: Vec<&Used> = used.values().collect();
    let mut with_room = 0;
    for part in entries.chunks(usize::from(ENTRIES)) {
        let own = add_block(&mut file);
        for one in part {
            refer(&mut file, above.get(&(one.id >> 8)), one.id, own);
        }
        put_entries(block(&mut file, own), part);
        with_room = if part.len() < usize::from(ENTRIES) {
            own
        } else {
            0
        };
    }
    let blocks = num::count32(file.len().checked_div(BLOCK_SIZE).unwrap_or(0));
    put_le32(&mut file, header::MAGIC, kind.magic());
    put_le32(&mut file, header::VERSION, VERSION);
    put_le32(&mut file, header::SETTINGS, GRACE);
    put_le32(&mut file, header::SETTINGS.saturating_add(4), GRACE);
    put_le32(&mut file, header::BLOCKS, blocks);
    put_le32(&mut file, header::FREE_ENTRY, with_room);
    file
}

/// The part of an id that leads to the level above.
fn upper(prefix: u32, shift: u32) -> u32 {
    if shift == 24 { 0 } else { prefix >> 8 }
}

fn add_block(file: &mut Vec<u8>) -> u32 {
    let own = num::count32(file.len().checked_div(BLOCK_SIZE).unwrap_or(0));
    file.resize(file.len().saturating_add(BLOCK_SIZE), 0);
    own
}

fn block(file: &mut [u8], number: u32) -> &mut [u8] {
    let at = num::usize32(number).saturating_mul(BLOCK_SIZE);
    file.get_mut(at..).unwrap_or(&mut [])
}

/// Writes into the block above, at the lowest byte of this part of an id, where it leads.
fn refer(file: &mut [u8], above: Option<&u32>, prefix: u32, to: u32) {
    if let Some(above) = above {
        let slot = num::usize32(prefix & 0xFF).saturating_mul(4);
        put_le32(block(file, *above), slot, to);
    }
}

fn put_entries(raw: &mut [u8], part: &[&Used]) {
    put_le16(raw, data::ENTRIES, num::low16(num::count32(part.len())));
    for (n, one) in part.iter().enumerate() {
        let at = data::SIZE.saturating_add(n.saturating_mul(entry::SIZE));
        let slot = raw.get_mut(at..).unwrap_or(&mut []);
        put_le32(slot, entry::ID, one.id);
        put_le64(slot, entry::CUR_INODES, one.inodes);
        put_le64(slot, entry::CUR_SPACE, one.space);
    }
}
