//! fio's loads on one file of a mount.
//!
//! Input: a mount, a job. Output: a rate. Invariant: the same command on each mount. Limits: fio must be installed; new files have
//! [`NEW_BYTES`] at most, as fuse2fs fills them slowly.

use super::super::super::args::Options;
use super::super::super::bed::FILE;
use super::super::super::drive::Run;
use super::super::super::failure::Failure;
use super::super::super::fio;
use super::super::super::job::{Job, Rw};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The bytes of a file that is filled, and of those of all threads that sync.
const NEW_BYTES: u64 = 256 << 20;

/// A load.
pub(super) struct Load {
    pub(super) id: &'static str,
    pub(super) heading: &'static str,
    pub(super) job: Job,
    /// The mount, the bytes of the file, the job.
    pub(super) run: fn(&Path, u64, &Job) -> Result<Run, Failure>,
}

pub(super) fn all(options: &Options) -> [Load; 9] {
    let load = |id, heading, job, run| Load {
        id,
        heading,
        job,
        run,
    };
    let job = |rw, bs, depth| options.job(rw, bs, depth);
    [
        load(
            "fuse-read",
            "4k random direct read, depth 64, 2 jobs",
            job(Rw::Randread, 4096, 64).jobs(2),
            on_file,
        ),
        load(
            "fuse-write",
            "4k random direct overwrite, depth 64",
            job(Rw::Randwrite, 4096, 64),
            on_file,
        ),
        load(
            "fuse-unaligned",
            "2k random direct overwrite, 8 jobs, depth 256",
            job(Rw::Randwrite, 2048, 256).jobs(8),
            on_file,
        ),
        load(
            "fuse-append",
            "4k direct append, depth 64",
            job(Rw::Write, 4096, 64),
            append,
        ),
        load(
            "fuse-holes",
            "4k random direct write into holes, depth 64",
            job(Rw::Randwrite, 4096, 64),
            holes,
        ),
        load(
            "fuse-seqread",
            "1 MiB sequential direct read, depth 8",
            job(Rw::Read, 1 << 20, 8),
            on_file,
        ),
        load(
            "fuse-seqwrite",
            "1 MiB sequential direct write, depth 8",
            job(Rw::Write, 1 << 20, 8),
            on_file,
        ),
        load(
            "fuse-fsync",
            "4k random write and fsync, 4 threads, a file each",
            job(Rw::Randwrite, 4096, 1).jobs(4),
            fsync,
        ),
        load(
            "fuse-fsync-one",
            "4k random write and fsync, 4 threads, one file: the kernel's FUSE client sends one fsync of a file at a time",
            job(Rw::Randwrite, 4096, 1).jobs(4),
            fsync_one,
        ),
    ]
}

fn file(at: &Path) -> PathBuf {
    at.join(FILE.trim_start_matches('/'))
}

fn on_file(at: &Path, len: u64, job: &Job) -> Result<Run, Failure> {
    Ok(Run::of_rate(fio::run(&file(at), 0, len, job)?, job))
}

/// Written files, one to a thread, which are removed afterwards.
fn fsync(at: &Path, len: u64, job: &Job) -> Result<Run, Failure> {
    let len = len.min(NEW_BYTES) / u64::from(job.numjobs);
    let all: Vec<PathBuf> = fio::files_of_threads(at, job).collect();
    for path in &all {
        let context = |e| Failure::host(format_args!("cannot write {}", path.display()), e);
        let mut new = File::create(path).map_err(context)?;
        std::io::copy(&mut std::io::repeat(0x5a).take(len), &mut new).map_err(context)?;
        new.sync_all().map_err(context)?;
    }
    let rate = fio::run_fsync(at, len, job);
    for path in &all {
        let context = |e| Failure::host(format_args!("cannot remove {}", path.display()), e);
        fs::remove_file(path).map_err(context)?;
    }
    Ok(Run::of_rate(rate?, job))
}

fn fsync_one(at: &Path, len: u64, job: &Job) -> Result<Run, Failure> {
    Ok(Run::of_rate(fio::run_fsync(&file(at), len, job)?, job))
}

/// A new file, which is removed afterwards.
fn on_new(at: &Path, len: u64, size: u64, job: &Job) -> Result<Run, Failure> {
    let path = at.join("new");
    let context = |e| Failure::host(format_args!("cannot make {}", path.display()), e);
    let new = File::create(&path).map_err(context)?;
    new.set_len(size).map_err(context)?;
    drop(new);
    let rate = fio::run_once(&path, len, job);
    fs::remove_file(&path).map_err(context)?;
    Ok(Run::of_rate(rate?, job))
}

fn append(at: &Path, len: u64, job: &Job) -> Result<Run, Failure> {
    on_new(at, len.min(NEW_BYTES), 0, job)
}

fn holes(at: &Path, len: u64, job: &Job) -> Result<Run, Failure> {
    let len = len.min(NEW_BYTES);
    on_new(at, len, len, job)
}
