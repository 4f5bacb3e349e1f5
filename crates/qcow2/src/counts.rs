//! Makes the reference counts of a file that was not closed fit for a writer.
//!
//! Input: an open file whose dirty bit is set. Output: the file, with a count for everything that its tables lead to, and without the bit.
//! Invariants: nothing but counts is changed, and none becomes smaller, so a cluster that nobody uses may stay counted; a file that is too
//! short for its last clusters becomes longer; a file in which something is used twice, lies outside, or has no room for its count is left
//! as it was; what is done may be done again. Limits: no snapshots.

use crate::header::{DIRTY, FEATURES_AT, Header};
use crate::judge::FAR;
use crate::tables::Tables;
use crate::widths::{get, set};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

fn other(why: &str) -> io::Error {
    let rest = "it was not closed (the dirty bit), and";
    io::Error::other(format!(
        "{rest} {why}: 'qemu-img check -r all' may repair it"
    ))
}

/// See the module. The header was checked.
///
/// # Errors
/// Why it cannot be done; the host's.
pub(crate) fn repair(file: &File, header: &Header) -> io::Result<()> {
    let tables = Tables::walk(file, header, FAR).map_err(|why| other(&why))?;
    let uses = tables.uses().iter().enumerate();
    // Compressed data shares clusters, and nothing else does without a snapshot.
    let mut twice = uses.filter(|(_, uses)| uses.is_plain() && uses.times() > 1);
    if let Some((n, _)) = twice.next() {
        return Err(other(&format!("cluster {n} is used twice")));
    }
    raise(file, &tables, header)?;
    if tables.end > tables.len().next_multiple_of(header.cluster) {
        // What was written there is lost, and nobody was told that it is durable.
        file.set_len(tables.end)?;
    }
    file.sync_all()?;
    let features = header.features.unwrap_or(0) & !DIRTY;
    file.write_all_at(&features.to_be_bytes(), FEATURES_AT)?;
    file.sync_data()
}

/// Writes the blocks of counts in which one is too small, all of them looked at first.
fn raise(file: &File, tables: &Tables<'_>, header: &Header) -> io::Result<()> {
    let (width, most) = (
        1_usize << header.order,
        u64::MAX >> (64 - (1 << header.order)),
    );
    let in_block = header.cluster as usize * 8 / width;
    for write in [false, true] {
        for (n, uses) in tables.uses().chunks(in_block).enumerate() {
            if uses.iter().all(|uses| uses.times() == 0) {
                continue;
            }
            let at = tables.blocks.get(n).copied().filter(|at| *at != 0);
            let at = at.ok_or_else(|| other("there is no room for its counts"))?;
            let mut block = vec![0; header.cluster as usize];
            file.read_exact_at(&mut block, at)?;
            let mut changed = false;
            for (n, count) in uses.iter().map(|uses| uses.times()).enumerate() {
                if get(&block, n, width) < count {
                    if count > most {
                        return Err(other("a count does not fit"));
                    }
                    set(&mut block, n, width, count);
                    changed = true;
                }
            }
            if write && changed {
                file.write_all_at(&block, at)?;
            }
        }
    }
    Ok(())
}
