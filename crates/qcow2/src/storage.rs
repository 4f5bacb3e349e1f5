//! The file below the library: in which order its bytes become durable, and what data may not overwrite.
//!
//! Input: reads and writes of the library, those of tables apart from those of data. Output: the same on a file. Invariants: an entry that
//! leads somewhere is written after that place is durable, with the length of the file, and tables and data after what led to their places
//! before, so after a power cut no table leads to bytes that are not there, or not its own; a cluster that is a table is not written as
//! data; nothing is read behind the end, nor written far behind it; after a failed sync nothing is durable. Limits: the file of the data,
//! if there is one, and files behind it are not ordered. `unsafe` because the library's trait has such functions.

use crate::header::be64;
use crate::judge::FAR;
use crate::reader::Reader;
use crate::tables::OFFSET;
use crate::taken::Taken;
use diorite_block::Stored;
use imago::file::File;
use imago::io_buffers::{IoVector, IoVectorMut};
use imago::storage::drivers::CommonStorageHelper;
use imago::{Storage, StorageCreateOptions, StorageExt, StorageOpenOptions};
use loose::{ALL, CLUSTERS, COUNTS, DATA, LEFT, Loose, ROOTS, lock};
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// The largest cluster: of files whose clusters are not known.
const MOST_CLUSTER: u64 = 2 << 20;

/// What the library uses a file for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Tables,
    Data,
    /// A file that the image names, or an image that is only read.
    Other,
}

/// Where the tables of a file are that lead to others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Roots {
    /// The first table of clusters: its place and its bytes.
    pub(crate) clusters: (u64, u64),
    /// The table of counts.
    pub(crate) counts: (u64, u64),
}

/// What both roles share.
#[derive(Debug)]
struct Shared {
    file: File,
    cluster: u64,
    roots: Mutex<Roots>,
    taken: RwLock<Taken>,
    /// Blocks of counts; the other clusters of `taken` that are no roots are tables of clusters.
    blocks: RwLock<Taken>,
    loose: Loose,
    #[cfg(test)]
    log: std::sync::OnceLock<tests::Log>,
    #[cfg(test)]
    fails: std::sync::atomic::AtomicBool,
}

/// A file as the library sees it.
#[derive(Debug)]
pub(crate) struct Below {
    shared: Arc<Shared>,
    role: Role,
    /// It is the disk in the chain of files that an image names, of which `shared` has the first.
    behind: Option<Arc<Reader>>,
}

fn touches(one: &Range<u64>, (at, len): (u64, u64)) -> bool {
    one.start < at + len && at < one.end
}

impl Below {
    fn new(file: File, role: Role, cluster: u64, roots: Roots, taken: [Taken; 2]) -> Below {
        let [taken, blocks] = taken.map(RwLock::new);
        Below {
            role,
            behind: None,
            shared: Arc::new(Shared {
                file,
                cluster,
                roots: Mutex::new(roots),
                taken,
                blocks,
                // Whoever wrote before may not have synced.
                loose: Loose::new(ALL),
                #[cfg(test)]
                log: std::sync::OnceLock::new(),
                #[cfg(test)]
                fails: std::sync::atomic::AtomicBool::new(false),
            }),
        }
    }

    /// A file that is not ordered: one that is only read, and its clusters are so large.
    pub(crate) fn plain(file: File, cluster: u64) -> Below {
        let nothing = Roots {
            clusters: (0, 0),
            counts: (0, 0),
        };
        let none = || Taken::new(cluster);
        Below::new(file, Role::Other, cluster, nothing, [none(), none()])
    }

    /// The disk in a chain of files; the first of them.
    pub(crate) fn behind(reader: Reader, file: File) -> Below {
        Below {
            behind: Some(Arc::new(reader)),
            ..Below::plain(file, MOST_CLUSTER)
        }
    }

    /// A file that is written: for its tables, and for its data.
    pub(crate) fn ordered(file: File, cluster: u64, roots: Roots, taken: [Taken; 2]) -> [Below; 2] {
        let tables = Below::new(file, Role::Tables, cluster, roots, taken);
        let data = Below {
            shared: tables.shared.clone(),
            role: Role::Data,
            behind: None,
        };
        [tables, data]
    }

    /// How the bytes at a place are stored, and how many of `most`.
    pub(crate) fn run(&self, at: u64, most: u64) -> io::Result<(Stored, u64)> {
        match &self.behind {
            Some(reader) => reader.run(at, most),
            None => Ok((Stored::Data, most)),
        }
    }

    /// What outlives the library's hold on the file.
    pub(crate) fn watch(&self) -> Watch {
        Watch(self.shared.clone())
    }
}

/// A view of a file that the library has.
pub(crate) struct Watch(Arc<Shared>);

impl Watch {
    /// Whether a sync has failed: what was written may be lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.0.loose.is_lost()
    }
}

impl Shared {
    /// Makes everything durable if something of these kinds is not.
    fn settle(&self, kinds: u8) -> io::Result<()> {
        self.loose.settle(kinds, || self.sync_file())
    }

    fn sync_file(&self) -> io::Result<()> {
        #[cfg(test)]
        tests::synced(self)?;
        self.file.sync()
    }

    fn is_taken(&self, range: &Range<u64>) -> bool {
        let taken = self.taken.read().unwrap_or_else(PoisonError::into_inner);
        taken.touches(range)
    }

    /// A write of the library, which `write` does.
    fn write(
        &self,
        role: Role,
        at: u64,
        len: u64,
        write: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let end = at.checked_add(len).ok_or(io::ErrorKind::FileTooLarge)?;
        let range = at..end;
        if role == Role::Other {
            return write();
        }
        if at > self.file.size()?.saturating_add(FAR) {
            return Err(io::Error::other("a cluster far behind the end of the file"));
        }
        if role == Role::Data {
            if self.is_taken(&range) {
                return Err(io::Error::other("data would overwrite a table"));
            }
            // It may be a cluster that was freed: what led to it is gone for good first.
            self.settle(CLUSTERS | LEFT)?;
            let done = write();
            self.loose.note(DATA);
            return done;
        }
        let mut roots = lock(&self.roots);
        let is_root = range.start < MOST_HEADER
            || touches(&range, roots.clusters)
            || touches(&range, roots.counts);
        if is_root {
            self.settle(ALL)?;
            return self.write_root(&mut roots, range, write);
        }
        drop(roots);
        self.write_table(&range, write)
    }

    /// A write of a table of clusters, or of a block of counts.
    fn write_table(
        &self,
        range: &Range<u64>,
        write: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let blocks = self.blocks.read().unwrap_or_else(PoisonError::into_inner);
        let is_block = blocks.touches(range);
        drop(blocks);
        let (kind, before) = match (is_block, self.is_taken(range)) {
            // A smaller count, behind the entry that is gone.
            (true, _) => (COUNTS, CLUSTERS),
            (false, true) => (CLUSTERS, DATA | COUNTS),
            // A new one, in a cluster that may be free since a moment, as that of data.
            (false, false) => (CLUSTERS | COUNTS, CLUSTERS | LEFT),
        };
        self.settle(before)?;
        let done = write();
        self.loose.note(kind);
        done
    }

    /// A write of a table that leads to others, or of the header.
    fn write_root(
        &self,
        roots: &mut Roots,
        range: Range<u64>,
        write: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let before = self.bytes(&range)?;
        let done = write();
        // One that failed may be in the file in part.
        self.loose.note(ROOTS);
        let followed = self.follow(roots, &range, &before);
        if followed.is_err() {
            self.loose.lose();
        }
        done.and(followed)
    }

    /// Notes which tables the roots lead to since a write of one, whose bytes were others `before`.
    fn follow(&self, roots: &mut Roots, range: &Range<u64>, before: &[u8]) -> io::Result<()> {
        let after = self.bytes(range)?;
        let mut taken = self.taken.write().unwrap_or_else(PoisonError::into_inner);
        let mut blocks = self.blocks.write().unwrap_or_else(PoisonError::into_inner);
        if range.start < MOST_HEADER {
            let Some(table) = after.get(48..60) else {
                return Ok(());
            };
            let clusters = u32::from_be_bytes([table[8], table[9], table[10], table[11]]);
            let new = (first(table), u64::from(clusters) * self.cluster);
            if new == roots.counts {
                return Ok(());
            }
            let each = |(at, len): (u64, u64)| (at..at + len).step_by(self.cluster as usize);
            self.loose.note(LEFT);
            each(roots.counts).for_each(|at| taken.remove(at));
            each(new).for_each(|at| taken.add(at));
            roots.counts = new;
            for entry in self.bytes(&(new.0..new.0 + new.1))?.chunks_exact(8) {
                if first(entry) != 0 {
                    taken.add(first(entry));
                    blocks.add(first(entry));
                }
            }
            return Ok(());
        }
        let is_counts = touches(range, roots.counts);
        for (old, new) in before.chunks_exact(8).zip(after.chunks_exact(8)) {
            let [old, new] = [old, new].map(|entry| first(entry) & OFFSET);
            if old != new && old != 0 {
                self.loose.note(LEFT);
                taken.remove(old);
                blocks.remove(old);
            }
            if old != new && new != 0 {
                taken.add(new);
                if is_counts {
                    blocks.add(new);
                }
            }
        }
        Ok(())
    }

    fn bytes(&self, range: &Range<u64>) -> io::Result<Vec<u8>> {
        let len = range.end.min(self.file.size()?).saturating_sub(range.start);
        let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        if !bytes.is_empty() {
            self.file.read(&mut bytes, range.start)?;
        }
        Ok(bytes)
    }
}

/// The part of the header that the library writes.
const MOST_HEADER: u64 = 512;

/// The first number of some bytes.
fn first(bytes: &[u8]) -> u64 {
    be64(bytes, 0)
}

impl fmt::Display for Below {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.file.fmt(f)
    }
}

impl Storage for Below {
    fn open(options: StorageOpenOptions) -> io::Result<Self> {
        Ok(Below::plain(File::open(options)?, MOST_CLUSTER))
    }

    fn create_open(options: StorageCreateOptions) -> io::Result<Self> {
        Ok(Below::plain(File::create_open(options)?, MOST_CLUSTER))
    }

    fn mem_align(&self) -> usize {
        self.shared.file.mem_align()
    }

    fn req_align(&self) -> usize {
        self.shared.file.req_align()
    }

    fn zero_align(&self) -> usize {
        self.shared.file.zero_align()
    }

    fn discard_align(&self) -> usize {
        self.shared.file.discard_align()
    }

    fn size(&self) -> io::Result<u64> {
        match &self.behind {
            Some(reader) => Ok(reader.size()),
            None => self.shared.file.size(),
        }
    }

    fn resolve_relative_path<P: AsRef<Path>>(&self, relative: P) -> io::Result<PathBuf> {
        self.shared.file.resolve_relative_path(relative)
    }

    fn get_filename(&self) -> Option<PathBuf> {
        self.shared.file.get_filename()
    }

    unsafe fn pure_readv(&self, bufv: IoVectorMut<'_>, offset: u64) -> io::Result<()> {
        if let Some(reader) = &self.behind {
            let mut at = offset;
            return bufv.into_inner().into_iter().try_for_each(|mut part| {
                let from = at;
                at += part.len() as u64;
                reader.read(&mut part, from)
            });
        }
        let end = self.shared.file.size()?;
        if !bufv.is_empty() && offset >= end.next_multiple_of(self.shared.cluster) {
            let what = format!("a table leads to {offset}, behind the end of the file");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        // SAFETY: the caller's promise is the same, and alignments are those of the file.
        unsafe { self.shared.file.pure_readv(bufv, offset) }
    }

    unsafe fn pure_writev(&self, bufv: IoVector<'_>, offset: u64) -> io::Result<()> {
        let shared = &self.shared;
        shared.write(self.role, offset, bufv.len(), || {
            #[cfg(test)]
            tests::written(shared, &bufv, offset);
            // SAFETY: the caller's promise is the same, and alignments are those of the file.
            unsafe { shared.file.pure_writev(bufv, offset) }
        })
    }

    unsafe fn pure_write_zeroes(&self, offset: u64, length: u64) -> io::Result<()> {
        let shared = &self.shared;
        shared.write(self.role, offset, length, || {
            #[cfg(test)]
            tests::zeroed(shared, offset, length);
            // SAFETY: the caller's promise is the same, and alignments are those of the file.
            unsafe { shared.file.pure_write_zeroes(offset, length) }
        })
    }

    unsafe fn pure_write_allocated_zeroes(&self, offset: u64, length: u64) -> io::Result<()> {
        let shared = &self.shared;
        shared.write(self.role, offset, length, || {
            #[cfg(test)]
            tests::zeroed(shared, offset, length);
            // SAFETY: the caller's promise is the same, and alignments are those of the file.
            unsafe { shared.file.pure_write_allocated_zeroes(offset, length) }
        })
    }

    fn flush(&self) -> io::Result<()> {
        self.shared.file.flush()
    }

    /// Both roles have the same file, which is synced once.
    fn sync(&self) -> io::Result<()> {
        match self.role {
            Role::Tables => self.shared.settle(ALL),
            Role::Data => Ok(()),
            Role::Other => self.shared.loose.sync(|| self.shared.sync_file()),
        }
    }

    unsafe fn invalidate_cache(&self) -> io::Result<()> {
        // SAFETY: the caller's promise is the same.
        unsafe { self.shared.file.invalidate_cache() }
    }

    fn get_storage_helper(&self) -> &CommonStorageHelper {
        self.shared.file.get_storage_helper()
    }
}

mod loose;
#[cfg(test)]
mod tests;
