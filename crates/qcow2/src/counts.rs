//! Makes the reference counts of a file that was not closed fit for a writer.
//!
//! Input: an open file whose dirty bit is set. Output: the file, with a count for everything that its tables lead to, and without the bit.
//! Invariants: nothing but counts is changed, and none becomes smaller, so a cluster that nobody uses may stay counted; a file in which
//! something is used twice, lies outside, or has no room for its count is left as it was; what is done may be done again. Limits: no
//! snapshots; memory: two bytes per cluster of the file. Source: the description of the format in QEMU's documentation (interop/qcow2).

use crate::header::{DIRTY, be32, be64};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The offset in an entry of a table.
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
const COMPRESSED: u64 = 1 << 62;
const SECTOR: u64 = 512;
/// Clusters of a file, at most: 512 MiB of memory, 16 TiB of clusters of the usual size.
const MOST_CLUSTERS: usize = 1 << 28;

fn other(why: &str) -> io::Error {
    let rest = "it was not closed (the dirty bit), and";
    io::Error::other(format!(
        "{rest} {why}: 'qemu-img check -r all' may repair it"
    ))
}

/// What the tables of a file lead to.
struct Used<'f> {
    file: &'f File,
    cluster: u64,
    /// How often each cluster is used.
    counts: Vec<u16>,
}

impl Used<'_> {
    fn table(&self, at: u64, len: u64) -> io::Result<Vec<u64>> {
        let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(bytes.chunks_exact(8).map(|entry| be64(entry, 0)).collect())
    }

    /// Counts a range. `shared`: others may have a part of its clusters.
    fn add(&mut self, at: u64, len: u64, shared: bool) -> io::Result<()> {
        if !shared && !at.is_multiple_of(self.cluster) {
            return Err(other("an entry of a table leads between two clusters"));
        }
        let end = at
            .checked_add(len)
            .ok_or_else(|| other("a length makes no sense"))?;
        for n in at / self.cluster..end.div_ceil(self.cluster) {
            let count = usize::try_from(n).ok().and_then(|n| self.counts.get_mut(n));
            let count = count.ok_or_else(|| other("a table leads out of the file"))?;
            if *count > 0 && !shared {
                return Err(other("a cluster is used twice"));
            }
            *count = count.saturating_add(1);
        }
        Ok(())
    }

    /// Counts what a table of clusters leads to: data that lies in whole clusters first, as others may share those of compressed data.
    fn add_data(&mut self, entries: &[u64], compressed: bool) -> io::Result<()> {
        let bits = self.cluster.trailing_zeros();
        for entry in entries
            .iter()
            .filter(|e| (**e & COMPRESSED != 0) == compressed)
        {
            if compressed {
                let shift = 62 - (bits - 8);
                let at = entry & ((1 << shift) - 1) & !(SECTOR - 1);
                let more = entry >> shift & ((1 << (bits - 8)) - 1);
                self.add(at, (more + 1) * SECTOR, true)?;
            } else if entry & OFFSET != 0 {
                self.add(entry & OFFSET, self.cluster, false)?;
            }
        }
        Ok(())
    }
}

/// See the module. The header was checked.
///
/// # Errors
/// Why it cannot be done; the host's.
pub(crate) fn repair(file: &File) -> io::Result<()> {
    let mut head = [0; 104];
    file.read_exact_at(&mut head, 0)?;
    let cluster = 1_u64 << be32(&head, 20);
    let order = be32(&head, 96);
    if order > 6 {
        return Err(other("its counts have an unknown width"));
    }
    let clusters = file.metadata()?.len().div_ceil(cluster);
    let clusters = usize::try_from(clusters)
        .ok()
        .filter(|n| *n <= MOST_CLUSTERS);
    let clusters = clusters.ok_or_else(|| other("the file has too many clusters"))?;
    let mut used = Used {
        file,
        cluster,
        // Compressed data may end in a part of a sector behind the end.
        counts: vec![0; clusters + 1],
    };
    let (l1_at, l1_len) = (be64(&head, 40), u64::from(be32(&head, 36)) * 8);
    let (counts_at, counts_len) = (be64(&head, 48), u64::from(be32(&head, 56)) * cluster);
    used.add(0, cluster, false)?;
    used.add(l1_at, l1_len, false)?;
    used.add(counts_at, counts_len, false)?;
    let blocks = used.table(counts_at, counts_len)?;
    for block in blocks.iter().filter(|at| **at != 0) {
        used.add(*block, cluster, false)?;
    }
    let tables = used.table(l1_at, l1_len)?;
    let tables: Vec<u64> = tables
        .iter()
        .map(|e| e & OFFSET)
        .filter(|at| *at != 0)
        .collect();
    for table in &tables {
        used.add(*table, cluster, false)?;
    }
    for compressed in [false, true] {
        for table in &tables {
            let entries = used.table(*table, cluster)?;
            used.add_data(&entries, compressed)?;
        }
    }
    raise(&used, &blocks, order)?;
    file.sync_data()?;
    file.write_all_at(&(be64(&head, 72) & !DIRTY).to_be_bytes(), 72)?;
    file.sync_data()
}

/// Writes the blocks of counts in which one is too small, all of them looked at first.
fn raise(used: &Used<'_>, blocks: &[u64], order: u32) -> io::Result<()> {
    let (width, most) = (1_usize << order, u64::MAX >> (64 - (1 << order)));
    let in_block = used.cluster as usize * 8 / width;
    for write in [false, true] {
        for (n, counts) in used.counts.chunks(in_block).enumerate() {
            if counts.iter().all(|count| *count == 0) {
                continue;
            }
            let at = blocks.get(n).copied().filter(|at| *at != 0);
            let at = at.ok_or_else(|| other("there is no room for its counts"))?;
            let mut block = vec![0; used.cluster as usize];
            used.file.read_exact_at(&mut block, at)?;
            let mut changed = false;
            for (n, count) in counts.iter().map(|count| u64::from(*count)).enumerate() {
                let stored = get(&block, n, width);
                if stored < count {
                    if count > most {
                        return Err(other("a count does not fit"));
                    }
                    set(&mut block, n, width, count);
                    changed = true;
                }
            }
            if write && changed {
                used.file.write_all_at(&block, at)?;
            }
        }
    }
    Ok(())
}

/// A count of a width in bits: whole bytes begin with the highest one, parts of a byte with the lowest bits.
fn get(block: &[u8], n: usize, width: usize) -> u64 {
    match width {
        1 | 2 | 4 => {
            let byte = block[n * width / 8] >> (n * width % 8);
            u64::from(byte) & ((1 << width) - 1)
        }
        _ => {
            let bytes = &block[n * width / 8..][..width / 8];
            bytes
                .iter()
                .fold(0, |all, byte| all << 8 | u64::from(*byte))
        }
    }
}

fn set(block: &mut [u8], n: usize, width: usize, count: u64) {
    match width {
        1 | 2 | 4 => {
            let (at, shift) = (n * width / 8, n * width % 8);
            let mask = ((1_u8 << width) - 1) << shift;
            block[at] = block[at] & !mask | (count as u8) << shift;
        }
        _ => {
            let bytes = &mut block[n * width / 8..][..width / 8];
            let all = count.to_be_bytes();
            bytes.copy_from_slice(&all[8 - width / 8..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_every_width() {
        for order in 0..=6 {
            let width = 1 << order;
            let most = (u64::MAX >> (64 - width)).min(5);
            let mut block = vec![0; 64];
            for n in 0..8 {
                set(&mut block, n, width, n as u64 % (most + 1));
            }
            set(&mut block, 3, width, most);
            for n in 0..8 {
                let want = if n == 3 { most } else { n as u64 % (most + 1) };
                assert_eq!(get(&block, n, width), want, "{width} bits, {n}");
            }
        }
    }
}
