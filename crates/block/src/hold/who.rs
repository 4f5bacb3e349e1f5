//! Which processes, mounts and loop devices use a file: from /proc and /sys, for messages.
//!
//! Input: a file's identity. Output: names of processes, mounts and loop devices. Invariant: best effort; what cannot be read
//! is left out, and nothing here fails. Limits: sees only this user's processes, or all as root; names at most [`MOST`]
//! holders.

use rustix::fd::RawFd;
use rustix::fs::{Stat, major, minor};
use std::fs::{read_dir, read_to_string};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The most holders that a message names.
const MOST: usize = 4;

/// The processes that lock `byte` of the file, without the descriptor `own`.
pub(super) fn lock_holders(file: &Stat, byte: i64, own: RawFd) -> String {
    let locks = |info: &str| info.lines().any(|l| lock_covers(l, byte));
    list(find(file, own, locks)).unwrap_or_else(|| "a process that we may not see".to_owned())
}

/// The processes that have the file open.
pub(super) fn openers(file: &Stat) -> String {
    match list(find(file, -1, |_| true)) {
        Some(who) => format!("in use by {who}"),
        None => "in use by the host".to_owned(),
    }
}

/// `lock: 1: OFDLCK ADVISORY READ -1 fe:00:10010659 100 101`
fn lock_covers(line: &str, byte: i64) -> bool {
    let mut words = line.split_whitespace().rev();
    let (end, start) = (words.next(), words.next());
    let number = |w: Option<&str>| w.and_then(|w| w.parse::<i64>().ok());
    line.starts_with("lock:")
        && number(start).is_some_and(|s| s <= byte)
        && (end == Some("EOF") || number(end).is_some_and(|e| byte <= e))
}

fn list(mut found: Vec<String>) -> Option<String> {
    found.sort();
    found.dedup();
    let more = found.len().saturating_sub(MOST);
    found.truncate(MOST);
    let names = found.join(", ");
    match (found.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(names),
        (false, _) => Some(format!("{names} and {more} more")),
    }
}

/// The processes with a descriptor on the file whose fdinfo satisfies `wanted`.
fn find(file: &Stat, own: RawFd, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let me = std::process::id();
    let mut found = Vec::new();
    for process in read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().and_then(|n| n.parse::<u32>().ok()) else {
            continue;
        };
        for fd in read_dir(process.path().join("fd"))
            .into_iter()
            .flatten()
            .flatten()
        {
            let number = fd.file_name();
            let ours = pid == me && number.to_str() == Some(&own.to_string());
            if ours || !is_file(&fd.path(), file) {
                continue;
            }
            let info = process.path().join("fdinfo").join(&number);
            if wanted(&read_to_string(info).unwrap_or_default()) {
                found.push(describe(pid, me, &process.path()));
            }
        }
    }
    found
}

fn is_file(path: &Path, file: &Stat) -> bool {
    std::fs::metadata(path).is_ok_and(|m| {
        (m.dev(), m.ino()) == (file.st_dev, file.st_ino)
            || (file.st_rdev != 0 && m.rdev() == file.st_rdev)
    })
}

fn describe(pid: u32, me: u32, process: &Path) -> String {
    if pid == me {
        return format!("this process (pid {pid})");
    }
    let name = read_to_string(process.join("comm")).unwrap_or_default();
    format!("{} (pid {pid})", name.trim())
}

/// Where the block device is mounted, or which device is stacked on it.
pub(super) fn mounted(device: &Stat) -> Option<String> {
    let number = format!("{}:{}", major(device.st_rdev), minor(device.st_rdev));
    let mounts = read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let place = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(2);
        (words.next() == Some(&number))
            .then(|| words.nth(1))
            .flatten()
    });
    if let Some(place) = place {
        return Some(format!("mounted by the host at {place}"));
    }
    let holders = read_dir(format!("/sys/dev/block/{number}/holders")).ok()?;
    let names: Vec<String> = holders
        .flatten()
        .map(|h| h.file_name().to_string_lossy().into_owned())
        .collect();
    (!names.is_empty()).then(|| format!("part of /dev/{}", names.join(", /dev/")))
}

/// The kernel's loop device over the file; with `writing`, only one that may write it.
pub(super) fn loop_device(file: &Stat, writing: bool) -> Option<String> {
    for device in read_dir("/sys/block").ok()?.flatten() {
        let Ok(backing) = read_to_string(device.path().join("loop/backing_file")) else {
            continue;
        };
        let read_only = read_to_string(device.path().join("ro")).is_ok_and(|ro| ro.trim() == "1");
        if writing && read_only {
            continue;
        }
        if is_file(Path::new(backing.trim_end_matches('\n')), file) {
            return Some(format!("/dev/{}", device.file_name().to_string_lossy()));
        }
    }
    None
}
