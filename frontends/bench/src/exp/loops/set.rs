//! A working set: files in an inner volume, on loop on a file in an outer volume, on a simulated disk.
//!
//! Input: the disk's parameters, the size of the set. Output: both volumes opened, with one budget of memory for the pages of both.
//! Invariants: all blocks of the files of both volumes are written; after a run both are closed, so that the next begins cold. Limits: the
//! set is there twice: in the file of the single job, and in those of the 16.

use super::super::super::failure::Failure;
use super::nest::{self, BLOCK, Mark};
use super::policy;
use diorite::policy::LoopMode;
use diorite::{File, OpenFlags, OpenOptions, PageCache, Volume};
use diorite_block::{Buf, Device, SimDevice, SimOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const MIB: u64 = 1 << 20;
/// The smallest set: its budget of pages is one for every two jobs.
pub(super) const LEAST: u64 = MIB / 4;
/// The image in the outer volume.
const IMAGE: &str = "/inner.img";
/// The largest number of jobs with a file each.
pub(super) const JOBS: u64 = 16;

/// See the module.
pub(super) struct Set {
    label: String,
    disk: SimDevice,
    /// Bytes of the set.
    pub(super) bytes: u64,
    /// Whether the targets apply.
    pub(super) counts: bool,
    runs: AtomicU64,
}

/// A file of the inner volume, with what its blocks say.
pub(super) struct Part {
    pub(super) file: File,
    pub(super) len: u64,
    pub(super) mark: Mark,
}

fn flags(write: bool) -> OpenFlags {
    OpenFlags::default().write(write)
}

/// The path of a job's file, and the number in its blocks.
fn path_of(job: u64, of: u64) -> (String, u64) {
    match of {
        1 => ("/job".to_owned(), 0),
        _ => (format!("/job-{job:02}"), 1 + job),
    }
}

impl Set {
    /// Makes the disk and both volumes. `bytes` is rounded so that 16 jobs have whole blocks.
    pub(super) fn make(params: &str, bytes: u64, counts: bool) -> Result<Set, Failure> {
        let bytes = bytes.next_multiple_of(JOBS * BLOCK).max(LEAST);
        let inner = (2 * bytes + bytes / 4 + 32 * MIB).next_multiple_of(MIB);
        // Room for one more file of the set's size.
        let outer = (inner + bytes + inner / 8 + 32 * MIB).next_multiple_of(MIB);
        let disk = SimDevice::new(SimOptions::parse(&format!("{outer},{params}"))?)?;
        disk.populate();
        let set = Set {
            label: format!("sim:{params}"),
            disk,
            bytes,
            counts,
            runs: AtomicU64::new(0),
        };
        nest::format(&set.device())?;
        let outer = Volume::open_device(set.device(), &OpenOptions::writable())?;
        let image = nest::zeros(&outer, IMAGE, inner)?;
        let device = nest::looped(&image);
        nest::format(&device)?;
        let inner = Volume::open_device(device, &OpenOptions::writable())?;
        for of in [1, JOBS] {
            for job in 0..of {
                let (path, file) = path_of(job, of);
                nest::marked(&inner, &path, set.bytes / of, Mark { file, run: 0 })?;
            }
        }
        inner.close()?;
        drop(image);
        outer.close()?;
        Ok(set)
    }

    pub(super) fn label(&self) -> &str {
        &self.label
    }

    pub(super) fn disk(&self) -> &SimDevice {
        &self.disk
    }

    fn device(&self) -> Arc<dyn Device> {
        Arc::new(self.disk.clone())
    }

    /// The number of the next run that writes.
    pub(super) fn next_run(&self) -> u64 {
        1 + self.runs.fetch_add(1, Relaxed)
    }

    /// The number of the last run that wrote.
    pub(super) fn last_run(&self) -> u64 {
        self.runs.load(Relaxed)
    }

    /// The outer volume alone.
    pub(super) fn outer(&self, mode: LoopMode, cache: &PageCache) -> Result<Volume, Failure> {
        let options = OpenOptions::writable()
            .page_cache(cache.clone())
            .policy(policy(mode));
        Ok(Volume::open_device(self.device(), &options)?)
    }

    /// Both volumes, cold.
    pub(super) fn open(&self, mode: LoopMode) -> Result<Open, Failure> {
        let cache = PageCache::new(self.bytes / 8);
        let outer = self.outer(mode, &cache)?;
        let image = outer.open_path(IMAGE, flags(true))?;
        let options = OpenOptions::writable().page_cache(cache.clone());
        let inner = Volume::open_device(nest::looped(&image), &options)?;
        Ok(Open {
            bytes: self.bytes,
            inner,
            outer,
            cache,
        })
    }

    /// Writes both images to a directory, as `outer.img` and `inner.img`.
    pub(super) fn keep(&self, dir: &Path) -> Result<(), Failure> {
        let size = self.disk.geometry().size;
        copy(&dir.join("outer.img"), size, |pos, bytes| {
            self.disk.read_at(pos, bytes);
            Ok(())
        })?;
        let outer = Volume::open_device(self.device(), &OpenOptions::default())?;
        let image = outer.open_path(IMAGE, flags(false))?;
        copy(&dir.join("inner.img"), image.size(), |pos, bytes| {
            let (buf, read) = image.read_buf(pos, Buf::zeroed(bytes.len()));
            read?;
            bytes.copy_from_slice(buf.as_slice());
            Ok(())
        })
    }
}

/// Writes a sparse file from what `get` reads.
fn copy(
    path: &Path,
    size: u64,
    get: impl Fn(u64, &mut [u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let failed = |e| Failure::host(format_args!("cannot write {}", path.display()), e);
    let mut file = std::fs::File::create(path).map_err(failed)?;
    file.set_len(size).map_err(failed)?;
    let mut chunk = vec![0; MIB as usize];
    for pos in (0..size).step_by(chunk.len()) {
        let len = (size - pos).min(MIB) as usize;
        get(pos, &mut chunk[..len])?;
        if chunk[..len].iter().any(|b| *b != 0) {
            file.seek(SeekFrom::Start(pos)).map_err(failed)?;
            file.write_all(&chunk[..len]).map_err(failed)?;
        }
    }
    Ok(())
}

/// Both volumes, open.
pub(super) struct Open {
    bytes: u64,
    pub(super) inner: Volume,
    outer: Volume,
    pub(super) cache: PageCache,
}

impl Open {
    /// The files of so many jobs: one, or [`JOBS`]. Their blocks say that they belong to the run, or to an earlier one.
    pub(super) fn parts(&self, of: u64, run: u64) -> Result<Vec<Part>, Failure> {
        let part = |job| {
            let (path, file) = path_of(job, of);
            Ok(Part {
                file: self.inner.open_path(&path, flags(true))?,
                len: self.bytes / of,
                mark: Mark { file, run },
            })
        };
        (0..of).map(part).collect()
    }

    pub(super) fn close(self) -> Result<(), Failure> {
        self.inner.close()?;
        Ok(self.outer.close()?)
    }
}
