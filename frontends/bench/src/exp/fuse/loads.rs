//! fio's loads on one file of a mount.
//!
//! Input: a mount, a job. Output: a rate. Invariant: the same command on each mount. Limits: fio must be installed. The loads of the five
//! techniques of direct I/O (T1 to T5) are those by which the kernel's were published: libaio, or blocking calls through the page cache.

use super::super::super::args::Options;
use super::super::super::bed::FILE;
use super::super::super::drive::Run;
use super::super::super::failure::Failure;
use super::super::super::fio;
use super::super::super::job::{Job, Rw};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A load.
pub(super) struct Load {
    pub(super) id: &'static str,
    pub(super) heading: &'static str,
    pub(super) job: Job,
    /// The mount, the bytes of the file, the job.
    pub(super) run: fn(&Path, u64, &Job) -> Result<Run, Failure>,
    /// Of the five techniques: beside the kernel and the server that does nothing only.
    pub(super) is_seed: bool,
}

/// The longest measurement of a run: there are many of them.
const MOST: Duration = Duration::from_millis(400);

/// The most bytes of files that a run makes. Each of their blocks is written once, which some programs take twenty times as long for as
/// others.
const NEW: u64 = 128 << 20;

pub(super) fn all(options: &Options) -> Vec<Load> {
    let load = |id, heading, job, run| Load {
        id,
        heading,
        job,
        run,
        is_seed: false,
    };
    let job = |rw, bs, depth| Job {
        runtime: options.runtime.min(MOST),
        ..options.job(rw, bs, depth)
    };
    let mut all = vec![
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
    ];
    let seeds = [
        load(
            "fuse-seeds-write",
            "T1: 4k random direct overwrite, depth 64, libaio",
            job(Rw::Randwrite, 4096, 64),
            aio,
        ),
        load(
            "fuse-seeds-one-cpu",
            "T2: the same, depth 128, fio on one processor",
            job(Rw::Randwrite, 4096, 128).on_one_cpu(),
            aio,
        ),
        load(
            "fuse-seeds-readers",
            "T3: 4k random direct read of one file, depth 64, 4 threads, libaio",
            job(Rw::Randread, 4096, 64).jobs(4),
            aio,
        ),
        load(
            "fuse-seeds-unaligned",
            "T4: 2k random direct overwrite, 8 jobs, depth 256, libaio",
            job(Rw::Randwrite, 2048, 256).jobs(8),
            aio,
        ),
        load(
            "fuse-seeds-buffered",
            "T5: 4k random write through the page cache, 16 jobs",
            job(Rw::Randwrite, 4096, 1).jobs(16),
            buffered,
        ),
    ];
    all.extend(seeds.map(|load| Load {
        is_seed: true,
        ..load
    }));
    all
}

fn file(at: &Path) -> PathBuf {
    at.join(FILE.trim_start_matches('/'))
}

fn on_file(at: &Path, len: u64, job: &Job) -> Result<Run, Failure> {
    Ok(Run::of_rate(fio::run(&file(at), 0, len, job)?, job))
}

fn aio(at: &Path, len: u64, job: &Job) -> Result<Run, Failure> {
    Ok(Run::of_rate(fio::run_aio(&file(at), len, job)?, job))
}

fn buffered(at: &Path, len: u64, job: &Job) -> Result<Run, Failure> {
    Ok(Run::of_rate(fio::run_buffered(&file(at), len, job)?, job))
}

/// Written files, one to a thread, which are removed afterwards.
fn fsync(at: &Path, len: u64, job: &Job) -> Result<Run, Failure> {
    let len = len.min(NEW) / u64::from(job.numjobs);
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
    on_new(at, len.min(NEW), 0, job)
}

fn holes(at: &Path, len: u64, job: &Job) -> Result<Run, Failure> {
    let len = len.min(NEW);
    on_new(at, len, len, job)
}
