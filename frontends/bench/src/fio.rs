//! fio: as the peer of the raw row (its io_uring engine on the same range, with the same batches, fixed buffers, registered
//! file), and as a client of NBD servers.
//!
//! Input: a device, file or URI, a range, a job. Output: IOPS. Invariant: fio is run as a program; it measures nothing per request
//! (gtod_reduce), so its rate is the highest possible. Limits: fio must be installed.

use super::failure::Failure;
use super::job::Job;
use super::tool;
use std::path::{Path, PathBuf};

/// Runs fio on a device or file; its IOPS.
pub(super) fn run(path: &Path, base: u64, len: u64, job: &Job) -> Result<f64, Failure> {
    let batch = job.batch_complete;
    let place = [
        format!("--filename={}", path.display()),
        "--ioengine=io_uring".into(),
        "--fixedbufs=1".into(),
        "--registerfiles=1".into(),
        "--direct=1".into(),
        "--allow_file_create=0".into(),
        format!("--iodepth_batch_submit={}", job.batch_submit),
        format!("--iodepth_batch_complete_min={batch}"),
        format!("--iodepth_batch_complete_max={}", job.iodepth),
        format!("--offset={base}"),
    ];
    measure(place.into_iter().chain(load(len, job)).chain(timed(job)))
}

/// Runs fio once over the first `len` bytes of a file that may end before them, with direct I/O. Its IOPS.
pub(super) fn run_once(path: &Path, len: u64, job: &Job) -> Result<f64, Failure> {
    let place = [
        format!("--filename={}", path.display()),
        "--ioengine=io_uring".into(),
        "--direct=1".into(),
        "--fallocate=none".into(),
        // Every block once.
        "--norandommap=0".into(),
        format!("--io_size={len}"),
    ];
    measure(load(len, job).chain(place))
}

/// The files of [`run_fsync`]'s threads in a directory.
pub(super) fn files_of_threads(dir: &Path, job: &Job) -> impl Iterator<Item = PathBuf> {
    (0..job.numjobs).map(move |n| dir.join(format!("of-thread.{n}")))
}

/// Runs fio's threads that write and sync through the page cache: on the first `len` bytes of a file, or of the file of each thread in a
/// directory. Its IOPS.
pub(super) fn run_fsync(path: &Path, len: u64, job: &Job) -> Result<f64, Failure> {
    let place = match path.is_dir() {
        true => vec![
            format!("--directory={}", path.display()),
            "--filename_format=of-thread.$jobnum".into(),
        ],
        false => vec![format!("--filename={}", path.display())],
    };
    let how = ["--ioengine=psync".into(), "--fsync=1".into()];
    measure(load(len, job).chain(timed(job)).chain(place).chain(how))
}

/// Runs fio on the first `len` bytes of a file with libaio and direct I/O, on the first processor alone if the job says so. Its IOPS.
pub(super) fn run_aio(path: &Path, len: u64, job: &Job) -> Result<f64, Failure> {
    let place = [
        format!("--filename={}", path.display()),
        "--ioengine=libaio".into(),
        "--direct=1".into(),
        "--allow_file_create=0".into(),
    ];
    let one = job.one_cpu.then(|| "--cpus_allowed=0".into());
    measure(
        place
            .into_iter()
            .chain(load(len, job))
            .chain(timed(job))
            .chain(one),
    )
}

/// Runs fio's threads on the first `len` bytes of a file through the page cache, one call at a time. Its IOPS.
pub(super) fn run_buffered(path: &Path, len: u64, job: &Job) -> Result<f64, Failure> {
    let place = [
        format!("--filename={}", path.display()),
        "--ioengine=psync".into(),
        "--allow_file_create=0".into(),
    ];
    measure(place.into_iter().chain(load(len, job)).chain(timed(job)))
}

/// Runs fio on the first `len` bytes of an NBD export. Its IOPS.
pub(super) fn run_nbd(uri: &str, len: u64, job: &Job) -> Result<f64, Failure> {
    measure(nbd(uri).chain(load(len, job)).chain(timed(job)))
}

/// The same with several threads, each of which has a connection of its own, for `bytes` bytes each instead of a time. The IOPS of all, by
/// the time from the first request to the end of the last thread: of a server that serves one connection after the other, a sum of the
/// threads' rates would be a multiple of what it does.
pub(super) fn run_nbd_many(uri: &str, len: u64, bytes: u64, job: &Job) -> Result<f64, Failure> {
    let amount = [format!("--io_size={bytes}")];
    let started = std::time::Instant::now();
    measure(nbd(uri).chain(load(len, job)).chain(amount))?;
    let all = bytes / u64::from(job.bs) * u64::from(job.numjobs);
    Ok(all as f64 / started.elapsed().as_secs_f64())
}

fn measure(arguments: impl Iterator<Item = String>) -> Result<f64, Failure> {
    let text = tool::run("fio", arguments)?;
    // Warnings come before the object.
    let start = text.find('{').unwrap_or(0);
    let report: serde_json::Value = serde_json::from_str(&text[start..])
        .map_err(|e| Failure::host("fio printed no JSON", e))?;
    let rate = |direction: &str| report["jobs"][0][direction]["iops"].as_f64().unwrap_or(0.0);
    let iops = rate("read") + rate("write");
    if iops > 0.0 {
        Ok(iops)
    } else {
        Err(Failure::failed("fio did no I/O"))
    }
}

/// An export of a server.
fn nbd(uri: &str) -> impl Iterator<Item = String> {
    ["--ioengine=nbd".into(), format!("--uri={uri}")].into_iter()
}

/// The options that every load has.
fn load(len: u64, job: &Job) -> impl Iterator<Item = String> {
    [
        "--name=row".into(),
        "--thread".into(),
        "--norandommap=1".into(),
        "--gtod_reduce=1".into(),
        "--group_reporting".into(),
        format!("--rw={}", job.rw.word()),
        format!("--bs={}", job.bs),
        format!("--iodepth={}", job.iodepth),
        format!("--numjobs={}", job.numjobs),
        format!("--size={len}"),
        "--output-format=json".into(),
    ]
    .into_iter()
}

/// How long a load runs that has no amount.
fn timed(job: &Job) -> impl Iterator<Item = String> {
    let ms = |t: std::time::Duration| format!("{}ms", t.as_millis());
    [
        "--time_based".into(),
        format!("--runtime={}", ms(job.runtime)),
        format!("--ramp_time={}", ms(job.ramp_time)),
    ]
    .into_iter()
}
