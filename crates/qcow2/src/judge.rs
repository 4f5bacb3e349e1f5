//! Whether a file may be written: whether its counts know of everything that its tables lead to.
//!
//! Input: an open file, its header. Output: the clusters that are tables; why the file is only read. Invariants: nothing is written; a file
//! that passes has a count of at least its uses for each cluster in use, and of one where an entry says so, so that no cluster in use is
//! given to another; the first free cluster is not far behind the end. Clusters that are counted and not used are no reason. Source: the
//! description of the format in QEMU's documentation (interop/qcow2); what qemu-img check says of changed files.

use crate::header::Header;
use crate::tables::Tables;
use crate::taken::Taken;
use crate::widths::get;
use std::fs::File;

/// A new cluster begins at most this far behind the end of the file.
pub(crate) const FAR: u64 = 64 << 20;

/// What a writer has to know of a file.
pub(crate) struct Judged {
    /// The clusters that are tables: all of them, and those that are blocks of counts.
    pub(crate) taken: [Taken; 2],
    /// Whether clusters of data become free when they are overwritten: those that are compressed, or not said to be counted once.
    pub(crate) frees: bool,
}

/// See the module.
///
/// # Errors
/// Why the file is not written.
pub(crate) fn judge(file: &File, header: &Header) -> Result<Judged, String> {
    let tables = Tables::walk(file, header, 0);
    let tables = tables.and_then(|tables| check_counts(&tables, header).map(|()| tables));
    let tables = tables.map_err(|why| {
        format!("{why}, so it is only read: 'qemu-img check -r all' may repair it")
    })?;
    let uses = tables.uses().iter().enumerate();
    let (mut taken, mut blocks) = (Taken::new(header.cluster), Taken::new(header.cluster));
    for (n, _) in uses.filter(|(_, uses)| uses.is_table()) {
        taken.add(n as u64 * header.cluster);
    }
    for block in tables.blocks.iter().filter(|at| **at != 0) {
        blocks.add(*block);
    }
    Ok(Judged {
        taken: [taken, blocks],
        frees: tables.frees,
    })
}

fn check_counts(tables: &Tables<'_>, header: &Header) -> Result<(), String> {
    let width = 1_usize << header.order;
    let in_block = header.cluster as usize * 8 / width;
    let far = (tables.len() + FAR).div_ceil(header.cluster) as usize;
    let all = tables.uses();
    let uncovered = || Err("its reference counts do not cover the file".to_owned());
    let is_used = |from: usize, to: usize| {
        let part = all.get(from.min(all.len())..to.min(all.len()));
        part.is_some_and(|part| part.iter().any(|uses| uses.times() > 0))
    };
    if is_used(tables.blocks.len().saturating_mul(in_block), all.len()) {
        return uncovered();
    }
    for (at, block) in tables.blocks.iter().enumerate() {
        let from = at * in_block;
        if *block == 0 {
            match is_used(from, from + in_block) {
                true => return uncovered(),
                false => continue,
            }
        }
        let counts = tables.read(*block, header.cluster)?;
        for n in from..from + in_block {
            let count = get(&counts, n - from, width);
            let Some(uses) = all.get(n) else {
                match count > 0 && n >= far {
                    true => return Err(format!("it counts cluster {n}, far behind its end")),
                    false => continue,
                }
            };
            if count < uses.times() || uses.is_copied() && count != 1 {
                return Err(contradiction(tables.name(n), n, uses.times(), count));
            }
        }
    }
    Ok(())
}

fn contradiction(name: &str, n: usize, times: u64, count: u64) -> String {
    match count < times {
        true => format!(
            "cluster {n} is in use ({name}), and its reference count is {count}: a writer would lose it"
        ),
        false => format!(
            "cluster {n} ({name}) is said to be counted once, and its reference count is {count}"
        ),
    }
}
