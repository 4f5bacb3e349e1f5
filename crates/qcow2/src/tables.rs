//! What the tables of a qcow2 file lead to.
//!
//! Input: an open file, its header. Output: [`Tables`]: how each cluster of the file is used, and where the tables are. Invariants: an
//! entry that leads between two clusters, out of the file, or to a cluster that already is a table, is an error; so is a table that is used
//! twice. Limits: the tables of the disk, without those of snapshots; memory: two bytes per cluster of the parts of the file that are used,
//! and a pointer for each [`PART`] clusters; what is read of holes: [`MOST_IN_HOLES`]. Source: the description of the format in QEMU's
//! documentation (interop/qcow2).

use crate::header::{Header, be64};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

/// The offset in an entry of a table.
pub(crate) const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
/// The cluster is counted once, so it may be written in place.
const COPIED_ENTRY: u64 = 1 << 63;
pub(crate) const COMPRESSED: u64 = 1 << 62;
/// Bits of entries that mean nothing: of both kinds of tables; and the lowest one, which says "zeros" in a table of clusters.
pub(crate) const UNKNOWN: u64 = 0x3f00_0000_0000_01fe;
pub(crate) const ZEROS: u64 = 1;
pub(crate) const SECTOR: u64 = 512;
/// Clusters of a file, at most: 512 MiB of memory if all are used, 16 TiB of clusters of the usual size.
const MOST_CLUSTERS: usize = 1 << 28;
/// Clusters whose uses are kept together.
const PART: usize = 512;
/// Bytes of tables that the host need not have, at most: a table that is all in a hole leads nowhere.
const MOST_IN_HOLES: u64 = 1 << 30;

/// How a cluster is used: a number, and what it is used for.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Uses(u16);

impl Uses {
    /// It is a table, or a part of one.
    const TABLE: u16 = 1 << 15;
    /// An entry says that it is counted once.
    const COPIED: u16 = 1 << 14;
    /// It is data that is not compressed.
    const PLAIN: u16 = 1 << 13;

    /// How often it is used.
    pub(crate) fn times(self) -> u64 {
        u64::from(self.0 & (Uses::PLAIN - 1))
    }

    pub(crate) fn is_table(self) -> bool {
        self.0 & Uses::TABLE != 0
    }

    pub(crate) fn is_plain(self) -> bool {
        self.0 & Uses::PLAIN != 0
    }

    pub(crate) fn is_copied(self) -> bool {
        self.0 & Uses::COPIED != 0
    }
}

/// See the module.
pub(crate) struct Tables<'f> {
    file: &'f File,
    header: &'f Header,
    len: u64,
    /// Of a part in which nothing is used: None.
    uses: Vec<Option<Box<[Uses; PART]>>>,
    /// The clusters of the file.
    total: usize,
    /// Bytes of tables that may still be read.
    allowed: u64,
    #[cfg(test)]
    pub(crate) reads: std::cell::Cell<u64>,
    /// The blocks of counts, as the table of counts has them.
    pub(crate) blocks: Vec<u64>,
    /// The tables of clusters.
    pub(crate) clusters: Vec<u64>,
    /// Where what is used ends.
    pub(crate) end: u64,
    /// Whether an entry leads to data that is compressed, or does not say that it is counted once.
    pub(crate) frees: bool,
}

impl<'f> Tables<'f> {
    /// Walks all tables. Data may begin up to `behind` bytes behind the end of the file.
    ///
    /// # Errors
    /// Why the tables cannot be right, or cannot be read.
    pub(crate) fn walk(
        file: &'f File,
        header: &'f Header,
        behind: u64,
    ) -> Result<Tables<'f>, String> {
        let meta = file.metadata().map_err(|e| e.to_string())?;
        let len = meta.len();
        let clusters = (len + behind).div_ceil(header.cluster);
        let clusters = usize::try_from(clusters)
            .ok()
            .filter(|n| *n <= MOST_CLUSTERS)
            .ok_or("the file has too many clusters")?;
        let mut tables = Tables {
            file,
            header,
            len,
            // Compressed data may end in a part of a sector behind the end.
            uses: vec![None; (clusters + 1).div_ceil(PART)],
            total: clusters + 1,
            allowed: (meta.blocks() * 512).saturating_add(MOST_IN_HOLES),
            #[cfg(test)]
            reads: std::cell::Cell::new(0),
            blocks: Vec::new(),
            clusters: Vec::new(),
            end: 0,
            frees: false,
        };
        tables.add_tables()?;
        for at in 0..tables.clusters.len() {
            let entries = tables.entries(tables.clusters[at], header.cluster)?;
            for entry in entries {
                tables.add_data(entry, behind)?;
            }
        }
        Ok(tables)
    }

    fn add_tables(&mut self) -> Result<(), String> {
        let header = self.header;
        self.add_table(0, header.cluster.min(self.len))?;
        self.add_table(header.l1.0, header.l1.1)?;
        let (at, len) = (header.counts.0, header.counts.1 as u64);
        self.add_table(at, len)?;
        self.blocks = self.entries(at, len)?;
        for at in 0..self.blocks.len() {
            match self.blocks[at] {
                0 => {}
                block => self.add_table(block, header.cluster)?,
            }
        }
        for entry in self.entries(header.l1.0, header.l1.1)? {
            if let Some(table) = table_of(entry)? {
                self.add_table(table, header.cluster)?;
                self.clusters.push(table);
                let copied = if entry & COPIED_ENTRY != 0 {
                    Uses::COPIED
                } else {
                    0
                };
                let n = self.number(table);
                self.of(n).0 |= copied;
            }
        }
        Ok(())
    }

    /// The clusters of the file that are used, in order.
    pub(crate) fn uses(&self) -> impl Iterator<Item = (usize, Uses)> {
        let parts = self.uses.iter().enumerate();
        let parts = parts.filter_map(|(at, part)| Some((at * PART, part.as_deref()?)));
        let each = parts.flat_map(|(from, part)| (from..).zip(part.iter().copied()));
        each.filter(|(_, uses)| uses.times() > 0)
    }

    /// How a cluster of the file is used.
    fn of(&mut self, n: usize) -> &mut Uses {
        let part = self.uses[n / PART].get_or_insert_with(|| Box::new([Uses::default(); PART]));
        &mut part[n % PART]
    }

    #[cfg(test)]
    pub(crate) fn parts(&self) -> usize {
        self.uses.iter().flatten().count()
    }

    /// The number of clusters of the file.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// What a cluster is.
    pub(crate) fn name(&self, cluster: usize) -> &'static str {
        let at = cluster as u64 * self.header.cluster;
        let within = |(from, len): (u64, u64)| (from..from + len).contains(&at);
        match at {
            0 => "its header",
            _ if within(self.header.l1) => "its first table of clusters",
            _ if within((self.header.counts.0, self.header.counts.1 as u64)) => {
                "its table of reference counts"
            }
            _ if self.blocks.contains(&at) => "a block of reference counts",
            _ if self.clusters.contains(&at) => "a table of clusters",
            _ => "data",
        }
    }

    pub(crate) fn read(&self, at: u64, len: u64) -> Result<Vec<u8>, String> {
        #[cfg(test)]
        self.reads.set(self.reads.get() + 1);
        let mut bytes = vec![0; usize::try_from(len).map_err(|e| e.to_string())?];
        let read = self.file.read_exact_at(&mut bytes, at);
        read.map_err(|e: io::Error| format!("its tables cannot be read: {e}"))?;
        Ok(bytes)
    }

    fn entries(&self, at: u64, len: u64) -> Result<Vec<u64>, String> {
        let bytes = self.read(at, len)?;
        Ok(bytes.chunks_exact(8).map(|entry| be64(entry, 0)).collect())
    }

    /// The number of the cluster at a place that is in the file.
    fn number(&self, at: u64) -> usize {
        (at / self.header.cluster) as usize
    }

    /// Counts a table, all of which is in the file.
    fn add_table(&mut self, at: u64, len: u64) -> Result<(), String> {
        check_aligned(at, self.header.cluster)?;
        let end = at.checked_add(len).filter(|end| *end <= self.len);
        let end = end.ok_or_else(out_of_file)?;
        for n in self.number(at)..end.div_ceil(self.header.cluster) as usize {
            if *self.of(n) != Uses(0) {
                return Err(used_twice(n));
            }
            *self.of(n) = Uses(Uses::TABLE | 1);
        }
        let allowed = self.allowed.checked_sub(len);
        self.allowed = allowed.ok_or("its tables are larger than what the host has of the file")?;
        self.end = self.end.max(end);
        Ok(())
    }

    /// Counts what an entry of a table of clusters leads to.
    fn add_data(&mut self, entry: u64, behind: u64) -> Result<(), String> {
        if entry & COMPRESSED != 0 {
            self.frees = true;
            return self.add_compressed(entry);
        }
        let known = if self.header.features.is_some() {
            ZEROS
        } else {
            0
        };
        let at = entry & OFFSET;
        if entry & (UNKNOWN | ZEROS) & !known != 0 || at == 0 && entry & COPIED_ENTRY != 0 {
            return Err(unknown_bits());
        }
        if at == 0 {
            return Ok(());
        }
        check_aligned(at, self.header.cluster)?;
        if at >= self.len.saturating_add(behind) {
            return Err(out_of_file());
        }
        let n = self.number(at);
        let now = *self.of(n);
        let is_copied = entry & COPIED_ENTRY != 0;
        self.frees |= !is_copied;
        // Data that is shared says so: its entries do not claim to be the only ones.
        let is_shared = now.is_plain() && !now.is_copied() && !is_copied;
        if now != Uses(0) && !is_shared {
            return Err(used_twice(n));
        }
        let copied = if is_copied { Uses::COPIED } else { 0 };
        self.use_once(n, Uses::PLAIN | copied)?;
        self.end = self.end.max(at + self.header.cluster);
        Ok(())
    }

    /// Counts compressed data, which shares clusters with other compressed data.
    fn add_compressed(&mut self, entry: u64) -> Result<(), String> {
        let bits = self.header.cluster.trailing_zeros();
        let shift = 62 - (bits - 8);
        let at = entry & ((1 << shift) - 1) & !(SECTOR - 1);
        let more = entry >> shift & ((1 << (bits - 8)) - 1);
        if entry & COPIED_ENTRY != 0 {
            return Err(unknown_bits());
        }
        let end = at.saturating_add((more + 1) * SECTOR);
        if at >= self.len || end > self.len.next_multiple_of(SECTOR) {
            return Err(out_of_file());
        }
        for n in self.number(at)..end.div_ceil(self.header.cluster) as usize {
            if self.of(n).0 & (Uses::TABLE | Uses::PLAIN) != 0 {
                return Err(used_twice(n));
            }
            self.use_once(n, 0)?;
        }
        self.end = self.end.max(end);
        Ok(())
    }

    fn use_once(&mut self, n: usize, kind: u16) -> Result<(), String> {
        let now = self.of(n);
        if now.times() == u64::from(Uses::PLAIN - 1) {
            return Err(format!("cluster {n} is used too often"));
        }
        now.0 = (now.0 + 1) | kind;
        Ok(())
    }
}

/// Where the table is that an entry of the first table leads to.
///
/// # Errors
/// The entry has bits that mean nothing.
pub(crate) fn table_of(entry: u64) -> Result<Option<u64>, String> {
    match entry & (UNKNOWN | COMPRESSED) {
        0 => Ok(Some(entry & OFFSET).filter(|at| *at != 0)),
        _ => Err(unknown_bits()),
    }
}

/// Whether the tables that the first table names can be read: they lie in a file of `len` bytes.
///
/// # Errors
/// Why not.
pub(crate) fn check_first_table(table: &[u8], cluster: u64, len: u64) -> Result<(), String> {
    for entry in table.chunks_exact(8).map(|entry| be64(entry, 0)) {
        if let Some(at) = table_of(entry)? {
            check_aligned(at, cluster)?;
            if at.saturating_add(cluster) > len {
                return Err(out_of_file());
            }
        }
    }
    Ok(())
}

fn check_aligned(at: u64, cluster: u64) -> Result<(), String> {
    match at.is_multiple_of(cluster) {
        true => Ok(()),
        false => Err("an entry of a table leads between two clusters".to_owned()),
    }
}

fn out_of_file() -> String {
    "a table leads out of the file".to_owned()
}

fn unknown_bits() -> String {
    "an entry of a table has unknown bits".to_owned()
}

fn used_twice(cluster: usize) -> String {
    format!("cluster {cluster} is used twice")
}
