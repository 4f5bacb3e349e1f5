//! A new qcow2 file that is written in order.
//!
//! Input: the bytes of a disk, in order. Output: a file of version 3 with clusters of 64 KiB and counts of 16 bits. Invariants: the same
//! bytes make the same file; clusters of zeros take no space; the header is written last, so a file that is not complete is no qcow2 file.
//! Limits: the size is known before; a table of clusters is in memory, and 128 bytes for each GiB of the disk. Source: imago (MIT); what
//! qemu-img check and qemu-img map say of such files.

use diorite_block::uncached::write_all_at;
use std::fs::File;
use std::io;

const BITS: u32 = 16;
const CLUSTER: u64 = 1 << BITS;
/// Entries of a table of clusters, and counts in a cluster of them.
const ENTRIES: u64 = CLUSTER / 8;
const COUNTS: u64 = CLUSTER / 2;
/// The cluster is counted once, so it may be written in place.
const COPIED: u64 = 1 << 63;
/// Bytes of the largest table of tables, as qemu has it.
const MOST_L1: u64 = 32 << 20;
/// Bytes of the header.
const HEADER: u32 = 104;

/// See the module.
///
/// ```
/// use diorite_qcow2::FreshWriter;
///
/// let out = tempfile::tempfile()?;
/// let mut writer = FreshWriter::new(out.try_clone()?, 1 << 30)?;
/// writer.data(&[7; 65536])?;
/// writer.zeros((1 << 30) - 65536)?;
/// writer.finish()?;
/// assert!(out.metadata()?.len() < 1 << 20);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct FreshWriter {
    out: File,
    size: u64,
    /// Bytes of the disk so far, without those in `part`.
    at: u64,
    /// The cluster that is not complete.
    part: Vec<u8>,
    /// Clusters of the file that are taken.
    taken: u64,
    /// Where the tables of clusters are.
    tables: Vec<u64>,
    /// The table of the clusters that are written now, and its number.
    table: (u64, Vec<u64>),
}

impl FreshWriter {
    /// For a disk of `size` bytes. The file is empty.
    ///
    /// # Errors
    /// The size is no multiple of 512, or larger than such a file can be.
    pub fn new(out: File, size: u64) -> io::Result<FreshWriter> {
        let tables = size.div_ceil(CLUSTER).div_ceil(ENTRIES);
        if !size.is_multiple_of(512) || tables * 8 > MOST_L1 {
            return Err(io::Error::other(format!(
                "a disk of {size} bytes: a multiple of 512 can be, up to {} TiB",
                (MOST_L1 / 8 * ENTRIES * CLUSTER) >> 40
            )));
        }
        Ok(FreshWriter {
            out,
            size,
            at: 0,
            part: Vec::new(),
            // The header.
            taken: 1,
            // At most four million.
            tables: vec![0; usize::try_from(tables).unwrap_or(0)],
            table: (0, Vec::new()),
        })
    }

    /// The next bytes of the disk.
    ///
    /// # Errors
    /// Of the file; there are more than the size says.
    pub fn data(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.check(bytes.len() as u64)?;
        while !bytes.is_empty() {
            let room = CLUSTER as usize - self.part.len();
            let (now, rest) = bytes.split_at(room.min(bytes.len()));
            bytes = rest;
            self.part.extend_from_slice(now);
            if self.part.len() as u64 == CLUSTER {
                self.cluster()?;
            }
        }
        Ok(())
    }

    /// So many zeros are next.
    ///
    /// # Errors
    /// As of [`FreshWriter::data`].
    pub fn zeros(&mut self, len: u64) -> io::Result<()> {
        self.check(len)?;
        let fills = match self.part.len() as u64 {
            0 => 0,
            have => len.min(CLUSTER - have),
        };
        self.part.resize(self.part.len() + fills as usize, 0);
        if self.part.len() as u64 == CLUSTER {
            self.cluster()?;
        }
        let left = len - fills;
        self.at += left / CLUSTER * CLUSTER;
        self.part
            .resize(self.part.len() + (left % CLUSTER) as usize, 0);
        Ok(())
    }

    fn check(&self, more: u64) -> io::Result<()> {
        let end = (self.at + self.part.len() as u64).checked_add(more);
        match end.is_some_and(|end| end <= self.size) {
            true => Ok(()),
            false => Err(io::Error::other("there are more bytes than the disk has")),
        }
    }

    /// Writes the cluster that is complete, unless it is zeros.
    fn cluster(&mut self) -> io::Result<()> {
        let cluster = self.at / CLUSTER;
        self.at += CLUSTER;
        if self.part.iter().any(|byte| *byte != 0) {
            let (number, entry) = (cluster / ENTRIES, (cluster % ENTRIES) as usize);
            if self.table.0 != number || self.table.1.is_empty() {
                self.end_table()?;
                self.table = (number, vec![0; ENTRIES as usize]);
            }
            let place = self.take(1);
            write_all_at(&self.out, &self.part, place)?;
            self.table.1[entry] = place | COPIED;
        }
        self.part.clear();
        Ok(())
    }

    /// Takes clusters of the file: where they are.
    fn take(&mut self, count: u64) -> u64 {
        let place = self.taken * CLUSTER;
        self.taken += count;
        place
    }

    fn end_table(&mut self) -> io::Result<()> {
        if self.table.1.is_empty() {
            return Ok(());
        }
        let place = self.take(1);
        let (number, entries) = std::mem::take(&mut self.table);
        self.tables[number as usize] = place | COPIED;
        write_all_at(&self.out, &words(&entries), place)
    }

    /// The disk is complete: what is missing is zeros.
    ///
    /// # Errors
    /// Of the file.
    pub fn finish(mut self) -> io::Result<()> {
        if !self.part.is_empty() {
            self.part.resize(CLUSTER as usize, 0);
            self.cluster()?;
        }
        self.end_table()?;
        let l1 = self.take((self.tables.len() as u64 * 8).div_ceil(CLUSTER).max(1));
        write_all_at(&self.out, &words(&self.tables), l1)?;
        // Counts count themselves: more of them until that is enough.
        let (mut blocks, mut table) = (0, 0);
        while (self.taken + blocks + table).div_ceil(COUNTS) > blocks
            || blocks.div_ceil(ENTRIES) > table
        {
            blocks = (self.taken + blocks + table).div_ceil(COUNTS);
            table = blocks.div_ceil(ENTRIES);
        }
        let (table_at, blocks_at) = (self.take(table), self.take(blocks));
        let places: Vec<u64> = (0..blocks).map(|n| blocks_at + n * CLUSTER).collect();
        write_all_at(&self.out, &words(&places), table_at)?;
        for (n, place) in (0..).zip(&places) {
            let used = (self.taken - n * COUNTS).min(COUNTS);
            let counts = [0, 1].repeat(used as usize);
            write_all_at(&self.out, &counts, *place)?;
        }
        self.out.set_len(self.taken * CLUSTER)?;
        write_all_at(&self.out, &self.header(l1, table_at, table), 0)
    }

    fn header(&self, l1: u64, counts: u64, of_counts: u64) -> Vec<u8> {
        let mut header = b"QFI\xfb".to_vec();
        let narrow = |value: u64| (value as u32).to_be_bytes();
        header.extend(3_u32.to_be_bytes());
        // No backing file.
        header.extend([0; 12]);
        header.extend(BITS.to_be_bytes());
        header.extend(self.size.to_be_bytes());
        // Not encrypted.
        header.extend([0; 4]);
        header.extend(narrow(self.tables.len() as u64));
        header.extend(l1.to_be_bytes());
        header.extend(counts.to_be_bytes());
        header.extend(narrow(of_counts));
        // No snapshots and no features; then counts of 2^4 bits.
        header.extend([0; 36]);
        header.extend(4_u32.to_be_bytes());
        header.extend(HEADER.to_be_bytes());
        // The end of the extensions.
        header.extend([0; 8]);
        header
    }
}

fn words(all: &[u64]) -> Vec<u8> {
    all.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::{Header, check_counts};
    use std::io::Read;

    fn written(size: u64, pieces: &[(&[u8], u64)]) -> Vec<u8> {
        let path =
            std::env::temp_dir().join(format!("diorite-fresh-{}-{size}", std::process::id()));
        let open = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path);
        let mut file = open.expect("a file");
        std::fs::remove_file(&path).expect("it was made");
        let mut writer = FreshWriter::new(file.try_clone().expect("a file"), size).expect("a size");
        for (data, zeros) in pieces {
            writer.data(data).expect("room");
            writer.zeros(*zeros).expect("room");
        }
        writer.finish().expect("room");
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).expect("a file");
        bytes
    }

    /// However the bytes come, the file is the same, and its header and counts are taken.
    #[test]
    fn pieces_make_no_difference() {
        let size = 5 * CLUSTER + 512;
        let mut disk = vec![0; size as usize];
        for at in [0, CLUSTER + 7, 3 * CLUSTER - 1, size - 1] {
            disk[at as usize] = 9;
        }
        let whole = written(size, &[(&disk, 0)]);
        for step in [1000, 4096, 65_535, 65_536, 65_537, 200_000] {
            let pieces: Vec<(&[u8], u64)> = disk
                .chunks(step)
                .map(|piece| match piece.iter().all(|b| *b == 0) {
                    true => (&piece[..0], piece.len() as u64),
                    false => (piece, 0),
                })
                .collect();
            assert!(written(size, &pieces) == whole, "{step}");
        }
        let header =
            Header::parse(&whole[..CLUSTER as usize], whole.len() as u64).expect("a header");
        assert_eq!(header.size, size);
        let (at, len) = (header.counts.0 as usize, header.counts.1);
        check_counts(&whole[at..at + len]).expect("counts");
        // Header, four clusters, their table, the table of tables, the table of counts, counts.
        assert_eq!(whole.len() as u64, 9 * CLUSTER);
        for empty in [0, 512, 1 << 40] {
            let bytes = written(empty, &[(&[], empty)]);
            Header::parse(&bytes[..CLUSTER as usize], bytes.len() as u64).expect("a header");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let file = || File::open("/dev/null").expect("a device");
        assert!(FreshWriter::new(file(), 1000).is_err());
        assert!(FreshWriter::new(file(), 1 << 60).is_err());
        let mut writer = FreshWriter::new(file(), 512).expect("a size");
        assert!(writer.zeros(1024).is_err() && writer.zeros(u64::MAX).is_err());
    }
}
