//! Whether a file may be written: do its counts include everything that its tables refer to?
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
    let (mut taken, mut blocks) = (Taken::new(header.cluster), Taken::new(header.cluster));
    for (n, _) in tables.uses().filter(|(_, uses)| uses.is_table()) {
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
    check_far(tables, header, in_block)?;
    let (mut counts, mut read) = (Vec::new(), None);
    for (n, uses) in tables.uses() {
        let at = n / in_block;
        if read != Some(at) {
            let block = tables.blocks.get(at).filter(|block| **block != 0);
            let block = block.ok_or("its reference counts do not cover the file")?;
            counts = tables.read(*block, header.cluster)?;
            read = Some(at);
        }
        let count = get(&counts, n % in_block, width);
        if count < uses.times() || uses.is_copied() && count != 1 {
            return Err(contradiction(tables.name(n), n, uses.times(), count));
        }
    }
    Ok(())
}

/// Whether nothing is counted so far behind the end that the next free cluster would be too far behind it.
fn check_far(tables: &Tables<'_>, header: &Header, in_block: usize) -> Result<(), String> {
    let width = 1_usize << header.order;
    // What writes have allocated that are under way comes behind that cluster.
    let most = ((tables.len() + FAR / 2) / header.cluster) as usize;
    let far = most.max(tables.total());
    let told = |n: usize| Err(format!("it counts cluster {n}, far behind its end"));
    let mut blocks = tables.blocks.iter().enumerate().skip(far / in_block);
    if let Some((at, block)) = blocks.next().filter(|(_, block)| **block != 0) {
        let counts = tables.read(*block, header.cluster)?;
        // Counts in a byte of which a part is not far, and whole bytes.
        let from = far % in_block;
        let bytes = (from * width).div_ceil(8);
        let whole = (bytes * 8 / width).min(in_block);
        if (from..whole).any(|n| get(&counts, n, width) > 0)
            || counts[bytes..].iter().any(|byte| *byte != 0)
        {
            return told(at * in_block + from);
        }
    }
    match blocks.find(|(_, block)| **block != 0) {
        Some((at, _)) => told(at * in_block),
        None => Ok(()),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::widths::set;
    use std::os::unix::fs::FileExt;

    const CLUSTER: u64 = 512;
    /// Counts in a block, of one bit each.
    const IN_BLOCK: u64 = CLUSTER * 8;
    /// Clusters of the table of counts.
    const TABLE: u64 = 8;
    const FIRST_BLOCK: u64 = TABLE + 2;

    /// A file of so many bytes with an empty disk and so many blocks of counts: its header, table of counts, table of tables, the blocks.
    fn made(blocks: u64, len: u64) -> (File, Header) {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(len).expect("room");
        let table = (0..blocks).flat_map(|n| ((FIRST_BLOCK + n) * CLUSTER).to_be_bytes());
        let table: Vec<u8> = table.collect();
        file.write_all_at(&table, CLUSTER).expect("room");
        count(&file, 0..FIRST_BLOCK + blocks);
        let header = Header {
            size: CLUSTER,
            cluster: CLUSTER,
            order: 0,
            l1: ((TABLE + 1) * CLUSTER, 8),
            snapshots: 0,
            features: Some(0),
            packing: crate::header::Packing::Deflate,
            is_extended: false,
            backing: None,
            counts: (CLUSTER, (TABLE * CLUSTER) as usize),
        };
        (file, header)
    }

    fn count(file: &File, clusters: std::ops::Range<u64>) {
        for n in clusters {
            let at = (FIRST_BLOCK + n / IN_BLOCK) * CLUSTER;
            let mut block = [0; CLUSTER as usize];
            file.read_exact_at(&mut block, at).expect("a block");
            set(&mut block, (n % IN_BLOCK) as usize, 1, 1);
            file.write_all_at(&block, at).expect("room");
        }
    }

    /// The defect: all counts of all blocks were looked at, those of clusters that cannot be in the file, too.
    #[test]
    fn what_is_read_is_bounded_by_what_is_used() {
        let len = 1 << 20;
        let needed = (len + FAR / 2).div_ceil(CLUSTER).div_ceil(IN_BLOCK);
        let (file, header) = made(needed, len);
        let tables = Tables::walk(&file, &header, 0).expect("it is whole");
        check_counts(&tables, &header).expect("it is whole");
        let reads = tables.reads.get();
        assert!(reads <= 6, "{reads} reads of {needed} blocks");
        let (file, header) = made(needed + 1, len);
        let why = judge(&file, &header).err().expect("a block too many");
        assert!(why.contains("far behind its end"), "{why}");
        assert!(
            Tables::walk(&file, &header, 0)
                .expect("it can be read")
                .reads
                .get()
                <= 4
        );
    }

    /// The defect: if all clusters up to the last one that may be written were counted, the next one could not be.
    #[test]
    fn the_next_free_cluster_can_be_written() {
        // The limit is within a cluster.
        let len = (1 << 20) + 100;
        let last = (len + FAR / 2) / CLUSTER;
        let (file, header) = made(last / IN_BLOCK + 1, len);
        count(&file, last - 20..last);
        assert!(judge(&file, &header).is_ok());
        count(&file, last..last + 1);
        let why = judge(&file, &header).err().expect("too far");
        assert!(
            why.contains(&format!("cluster {last}, far behind")),
            "{why}"
        );
    }

    /// Memory is for what is used, and a file is not read that the host does not have.
    #[test]
    fn a_hole_is_no_table() {
        let len = 3 << 30;
        let (file, header) = made(1, len);
        let tables = Tables::walk(&file, &header, 0).expect("it is whole");
        assert!(tables.total() > 6 << 20 && tables.parts() == 1);
        // Tables of clusters in a hole: more than a file of this size may have.
        let cluster = 2 << 20;
        let header = Header {
            cluster,
            l1: (2 * cluster, 1000 * 8),
            counts: (cluster, cluster as usize),
            ..header
        };
        let table: Vec<u8> = (3..1003_u64)
            .flat_map(|n| (n * cluster).to_be_bytes())
            .collect();
        file.write_all_at(&table, header.l1.0).expect("room");
        let why = Tables::walk(&file, &header, 0).err().expect("holes");
        assert!(why.contains("larger than what the host has"), "{why}");
    }
}
