//! The host's counters for this process: CPU time, context switches, memory, page cache; and which CPUs it may run on.
//!
//! Input: `/proc`, getrusage. Output: [`Sample`]s and differences of them. Invariant: nothing here changes the host, except the CPUs of
//! this process's own threads. Limits: as of [`CpuTime`].

mod cpu_time;

use super::failure::Failure;
pub(super) use cpu_time::CpuTime;
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use std::fs;

/// Counters of this process at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    cpu: CpuTime,
    voluntary: u64,
    involuntary: u64,
}

/// The differences between two samples, and the memory in use at the second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    pub(super) cpu: CpuTime,
    /// Context switches because a thread waited, and because it was made to yield.
    pub(super) voluntary: u64,
    pub(super) involuntary: u64,
    pub(super) resident: u64,
    /// See [`page_cache`].
    pub(super) page_cache: u64,
}

impl Sample {
    /// Takes a sample. The context switches of threads that have ended are missing, so sample while the threads live.
    pub(super) fn take() -> Sample {
        let (mut voluntary, mut involuntary) = (0, 0);
        for task in tasks() {
            let status =
                fs::read_to_string(format!("/proc/self/task/{task}/status")).unwrap_or_default();
            voluntary += field(&status, "voluntary_ctxt_switches:");
            involuntary += field(&status, "nonvoluntary_ctxt_switches:");
        }
        Sample {
            cpu: CpuTime::own(),
            voluntary,
            involuntary,
        }
    }

    pub(super) fn until(&self, later: &Sample) -> Usage {
        Usage {
            cpu: later.cpu.since(self.cpu),
            voluntary: later.voluntary.saturating_sub(self.voluntary),
            involuntary: later.involuntary.saturating_sub(self.involuntary),
            resident: own_status("VmRSS:"),
            page_cache: page_cache(),
        }
    }
}

/// A field of this process's status that is given in kB, in bytes.
pub(super) fn own_status(name: &str) -> u64 {
    status_of(std::process::id(), name)
}

/// The same field of another process; 0 if that has ended.
pub(super) fn status_of(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    field(&status, name) * 1024
}

/// The host's page cache without shared memory, in bytes. That of block devices is counted as buffers.
pub(super) fn page_cache() -> u64 {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let cached = field(&memory, "Cached:") + field(&memory, "Buffers:");
    cached.saturating_sub(field(&memory, "Shmem:")) * 1024
}

/// Bytes that new programs may use without swapping.
pub(super) fn available_memory() -> u64 {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    field(&memory, "MemAvailable:") * 1024
}

/// The host's load average over the last minute: other work on the host is noise in the results.
pub(super) fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace()
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or(0.0)
}

pub(super) fn kernel_version() -> String {
    rustix::system::uname()
        .release()
        .to_string_lossy()
        .into_owned()
}

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The number after `name` at the start of a line.
fn field(text: &str, name: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

fn tasks() -> Vec<i32> {
    let entries = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    entries
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect()
}

/// All threads of this process on one CPU, until this is dropped; new threads inherit it.
pub(super) struct OneCpu {
    before: CpuSet,
}

impl OneCpu {
    /// Moves every thread to the last CPU that the process may use: the first usually serves the host's interrupts.
    pub(super) fn pin() -> Result<OneCpu, Failure> {
        let before = sched_getaffinity(None)
            .map_err(|e| Failure::host("cannot ask for this process's CPUs", e))?;
        let last = (0..CpuSet::MAX_CPU)
            .rev()
            .find(|cpu| before.is_set(*cpu))
            .unwrap_or(0);
        let mut one = CpuSet::new();
        one.set(last);
        move_all(&one)?;
        Ok(OneCpu { before })
    }
}

impl Drop for OneCpu {
    fn drop(&mut self) {
        // Best effort: nothing can be done about a failure here, and later measurements would show it.
        let _ = move_all(&self.before);
    }
}

fn move_all(cpus: &CpuSet) -> Result<(), Failure> {
    for task in tasks() {
        match sched_setaffinity(Pid::from_raw(task), cpus) {
            // The thread has ended since the list was read.
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(e) => return Err(Failure::host("cannot choose the CPUs of this process", e)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_a_kernel() {
        assert!(own_status("VmRSS:") > 0 && available_memory() > 0);
        assert!(kernel_version().contains('.'));
        let sample = Sample::take();
        assert!(sample.until(&Sample::take()).resident > 0);
    }
}
