//! Which processes, mounts and loop devices use a file: from /proc and /sys, for messages.
//!
//! Input: a file's identity. Output: names of processes, mounts and loop devices. Invariant: best effort; what cannot be read
//! is left out, and nothing here fails. Limits: sees only this user's processes, or all as root; names at most [`MOST`]
//! holders.

use rustix::fd::{AsRawFd, RawFd};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, StatxFlags, major, makedev, minor, statx,
};
use std::fs::{read_dir, read_link, read_to_string};
use std::path::Path;

/// The most holders that a message names.
const MOST: usize = 4;

/// Start of the line with an inode's number in fdinfo.
const NUMBER: &str = "ino:";

/// In place of a name.
pub(super) const UNSEEN: &str = "a process that we may not see";

/// A process that has a file open.
pub(super) struct Process {
    pub(super) pid: u32,
    name: String,
}

impl Process {
    pub(super) fn name(&self) -> String {
        match self.pid == std::process::id() {
            true => format!("this process (pid {})", self.pid),
            false => format!("{} (pid {})", self.name, self.pid),
        }
    }
}

/// The processes that lock `byte` of the file, without the descriptor `own`.
pub(super) fn lock_holders(file: &Stat, byte: i64, own: RawFd) -> String {
    let locks = |info: &str| info.lines().any(|l| lock_covers(l, byte));
    named(file, own, locks).unwrap_or_else(|| UNSEEN.to_owned())
}

/// The processes that have the file open.
pub(super) fn openers(file: &Stat) -> String {
    match named(file, -1, |_| true) {
        Some(who) => format!("in use by {who}"),
        None => "in use by the host".to_owned(),
    }
}

fn named(file: &Stat, own: RawFd, wanted: impl Fn(&str) -> bool) -> Option<String> {
    list(
        find_but(file, (own, number_of(own)), wanted)
            .iter()
            .map(Process::name)
            .collect(),
    )
}

/// This process and those that started it, the nearest first.
pub(super) fn ours() -> Vec<u32> {
    line_of(std::process::id())
}

/// A process and those that started it, the nearest first, as far as we may see.
pub(super) fn line_of(pid: u32) -> Vec<u32> {
    let mut line = vec![pid];
    while let Some(parent) = parent(line[line.len() - 1]).filter(|pid| !line.contains(pid)) {
        line.push(parent);
    }
    line
}

/// Whether it is a child of this process that has not yet reached its exec, or does without one: what it has open it has from us.
pub(super) fn is_fork(pid: u32, line: &[u32]) -> bool {
    let me = std::process::id();
    pid != me && line.contains(&me) && has_program_of(pid, me)
}

/// Whether a process that has a file open may have it no more a moment later: it has ended, or is a child of ours that may just have
/// reached its exec, or another child of the program that started us that has not reached its exec yet.
pub(super) fn may_pass(pid: u32) -> bool {
    let me = std::process::id();
    let line = line_of(pid);
    let has_ended = line.len() == 1;
    let is_sibling = || {
        line.get(1)
            .is_some_and(|starter| parent(me) == Some(*starter))
    };
    has_ended || (pid != me && (line.contains(&me) || is_sibling() && has_program_of(pid, line[1])))
}

/// Whether two processes run the same program, as after a fork and before an exec.
fn has_program_of(pid: u32, other: u32) -> bool {
    let program = |of: u32| read_link(format!("/proc/{of}/exe")).ok();
    program(pid).is_some_and(|one| program(other) == Some(one))
}

/// `233 (a name) S 1 ...`
fn parent(pid: u32) -> Option<u32> {
    let stat = read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let parent = rest.split(' ').nth(1)?.parse().ok()?;
    (parent != 0).then_some(parent)
}

/// Whether this process is in a PID namespace of its own, as in a container. The first one has the same number on every host.
pub(super) fn is_in_namespace() -> bool {
    const FIRST: &str = "pid:[4026531836]";
    read_link("/proc/self/ns/pid").is_ok_and(|name| name.as_os_str() != FIRST)
}

/// Whether we may see what the process that started this one has open: if not, a file that nobody has may be its own.
pub(super) fn sees_parent() -> bool {
    let fds = parent(std::process::id()).map(|pid| read_dir(format!("/proc/{pid}/fd")));
    let mut fds = fds.into_iter().flatten().flatten().flatten();
    fds.any(|fd| read_link(fd.path()).is_ok())
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

pub(super) fn list(mut found: Vec<String>) -> Option<String> {
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

/// The processes with a descriptor on the file, which this path names, whose fdinfo satisfies `wanted`.
pub(super) fn find(path: &Path, file: &Stat, wanted: impl Fn(&str) -> bool) -> Vec<Process> {
    let there = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let number = there.ok().and_then(|fd| number_of(fd.as_raw_fd()));
    find_but(file, (-1, number), wanted)
}

/// The number of a descriptor's file as the kernel says it beside descriptors: on layers of file systems it may be another than `stat`
/// says.
fn number_of(fd: RawFd) -> Option<String> {
    let info = read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    let line = info.lines().find(|line| line.starts_with(NUMBER));
    line.map(str::to_owned)
}

/// As [`find`], without a descriptor of our own. What the kernel says of a descriptor is looked at first: to look at a file of a server
/// that does not answer takes forever.
fn find_but(
    file: &Stat,
    (own, number): (RawFd, Option<String>),
    wanted: impl Fn(&str) -> bool,
) -> Vec<Process> {
    let number = number.unwrap_or_else(|| format!("{NUMBER}\t{}", file.st_ino));
    let has_number = |info: &str| {
        let mut numbers = info.lines().filter(|line| line.starts_with(NUMBER));
        numbers.all(|line| line == number)
    };
    let is_block = FileType::from_raw_mode(file.st_mode) == FileType::BlockDevice;
    let may_be = |fd: &Path, info: &str| match is_block {
        true => read_link(fd).is_ok_and(|path| path.starts_with("/dev")),
        false => has_number(info),
    };
    scan(file, own, |fd, info| wanted(info) && may_be(fd, info))
}

fn scan(file: &Stat, own: RawFd, wanted: impl Fn(&Path, &str) -> bool) -> Vec<Process> {
    let me = std::process::id();
    let mut found = Vec::new();
    for process in read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().and_then(|n| n.parse::<u32>().ok()) else {
            continue;
        };
        let fds = read_dir(process.path().join("fd"));
        let mut fds = fds.into_iter().flatten().flatten();
        let has = fds.any(|fd| {
            let number = fd.file_name();
            let is_own = pid == me && number.to_str() == Some(&own.to_string());
            let info = process.path().join("fdinfo").join(&number);
            let info = read_to_string(info).unwrap_or_default();
            !is_own && wanted(&fd.path(), &info) && is_file(&fd.path(), file)
        });
        if has {
            let name = read_to_string(process.path().join("comm")).unwrap_or_default();
            found.push(Process {
                pid,
                name: name.trim().to_owned(),
            });
        }
    }
    found
}

/// Whether the path leads to the file. Its server, if it has one, is not asked.
fn is_file(path: &Path, file: &Stat) -> bool {
    // The constant has no name for musl.
    const DONT_SYNC: AtFlags = AtFlags::from_bits_retain(0x4000);
    statx(CWD, path, DONT_SYNC, StatxFlags::BASIC_STATS).is_ok_and(|there| {
        let dev = makedev(there.stx_dev_major, there.stx_dev_minor);
        let rdev = makedev(there.stx_rdev_major, there.stx_rdev_minor);
        (dev, there.stx_ino) == (file.st_dev, file.st_ino)
            || (file.st_rdev != 0 && rdev == file.st_rdev)
    })
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
    let devices = read_dir("/sys/block").ok()?.flatten();
    for device in
        devices.filter(|device| device.file_name().as_encoded_bytes().starts_with(b"loop"))
    {
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
