//! fio as the peer of the raw row: its io_uring engine on the same range, with the same batches, fixed buffers, registered
//! file.
//!
//! Input: a device or file, a range, a job. Output: IOPS. Invariant: fio is run as a program; it measures nothing per request
//! (gtod_reduce), so its rate is the highest possible. Limits: fio must be installed.

use super::failure::Failure;
use super::job::Job;
use super::tool;
use std::path::Path;

/// Runs fio; its IOPS.
pub(super) fn run(path: &Path, base: u64, len: u64, job: &Job) -> Result<f64, Failure> {
    let text = tool::run("fio", arguments(path, base, len, job))?;
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

fn arguments(path: &Path, base: u64, len: u64, job: &Job) -> Vec<String> {
    let seconds = |t: std::time::Duration| format!("{}ms", t.as_millis());
    [
        "--name=row".into(),
        format!("--filename={}", path.display()),
        "--ioengine=io_uring".into(),
        "--fixedbufs=1".into(),
        "--registerfiles=1".into(),
        "--direct=1".into(),
        "--thread".into(),
        "--norandommap=1".into(),
        "--gtod_reduce=1".into(),
        "--group_reporting".into(),
        "--time_based".into(),
        "--allow_file_create=0".into(),
        format!("--rw={}", job.rw.word()),
        format!("--bs={}", job.bs),
        format!("--iodepth={}", job.iodepth),
        format!("--iodepth_batch_submit={}", job.batch_submit),
        format!("--iodepth_batch_complete_min={}", job.batch_complete),
        format!("--iodepth_batch_complete_max={}", job.iodepth),
        format!("--numjobs={}", job.numjobs),
        format!("--runtime={}", seconds(job.runtime)),
        format!("--ramp_time={}", seconds(job.ramp_time)),
        format!("--offset={base}"),
        format!("--size={len}"),
        "--output-format=json".into(),
    ]
    .to_vec()
}
