//! Makes the reference counts of a file that was not closed fit for a writer.
//!
//! Input: an open file whose dirty bit is set. Output: the file, with a count for everything that its tables lead to, and without the bit.
//! Invariants: nothing but counts is changed, and none becomes smaller, so a cluster that nobody uses may stay counted; a file that is too
//! short for its last clusters becomes longer; a file in which something is used twice, lies outside, or has no room for its count is left
//! as it was; what is done may be done again. Limits: no snapshots.

use crate::header::{DIRTY, FEATURES_AT, Header};
use crate::judge::FAR;
use crate::tables::{Tables, Uses};
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
    // Compressed data shares clusters, and nothing else does without a snapshot.
    let is_twice = |uses: &Uses| uses.is_plain() && uses.times() > 1;
    let mut twice = tables.uses().filter(|(_, uses)| is_twice(uses));
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
    let width = 1_usize << header.order;
    let (most, in_block) = (
        u64::MAX >> (64 - width),
        header.cluster as usize * 8 / width,
    );
    for write in [false, true] {
        let mut uses = tables.uses().peekable();
        while let Some((first, _)) = uses.peek() {
            let of = first / in_block;
            let at = tables.blocks.get(of).copied().filter(|at| *at != 0);
            let at = at.ok_or_else(|| other("there is no room for its counts"))?;
            let mut block = vec![0; header.cluster as usize];
            file.read_exact_at(&mut block, at)?;
            let mut changed = false;
            while let Some((n, uses)) = uses.next_if(|(n, _)| n / in_block == of) {
                let (n, count) = (n % in_block, uses.times());
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
