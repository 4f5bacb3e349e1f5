//! A server that was killed and whose process does not end: how the sweeper recognises it, and ends its mount.
//!
//! The kernel ends a server that was killed thread by thread. One of them may wait in the kernel for a reply of those that have gone, and
//! would do so for ever. Its process is one whose first thread is dead, or that is being dumped, and whose descriptors are still open.
//!
//! Input: the keeper's socket to the server; a descriptor of the process and of the mount. Output: the mount has ended. Invariants: a
//! process that still runs, or is stopped, is not touched; the mount's descriptor is closed as soon as the server has gone, so that the
//! kernel ends the mount. Limits: those of [`Instead`]; without /proc, or before Linux 5.3, nothing is seen.

use diorite_fuse::Instead;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};

/// How long callers of a server that is stuck may go without an error, at most.
const PERIOD: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 500_000_000,
};

/// Waits until the server has gone, and helps it if it cannot go. `process`: its pidfd.
pub(super) fn until_gone(
    socket: &OwnedFd,
    process: &OwnedFd,
    mount: &Instead,
    device: Option<&str>,
) {
    while !has_gone(socket) {
        if is_dead(process) {
            // Where the host does not permit it now, it may do so later.
            let _ = mount.end(device, socket);
        }
    }
}

/// Whether all threads of the server have ended, after a while: then nobody has the other end of the socket.
fn has_gone(socket: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(socket, PollFlags::empty())];
    match poll(&mut fds, Some(&PERIOD)) {
        Ok(ready) => ready > 0,
        Err(Errno::INTR) => false,
        // It cannot be watched.
        Err(_) => true,
    }
}

/// Whether a process executes nothing of its program any more.
fn is_dead(process: &OwnedFd) -> bool {
    let pid = || {
        let info = format!("/proc/self/fdinfo/{}", process.as_raw_fd());
        let info = std::fs::read_to_string(info).ok()?;
        field(&info, "Pid")?.parse::<u32>().ok()
    };
    let (status, then) = match pid() {
        Some(pid) => (std::fs::read_to_string(format!("/proc/{pid}/status")), pid),
        None => return false,
    };
    // The number is its own until it has gone.
    status.is_ok_and(|status| says_dead(&status)) && pid() == Some(then)
}

/// The same, by its `status` of proc(5).
fn says_dead(status: &str) -> bool {
    let is_zombie = field(status, "State").is_some_and(|state| state.starts_with(['Z', 'X']));
    is_zombie || field(status, "CoreDumping") == Some("1")
}

/// The value of a line of proc(5).
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let mut values = text
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    values.next().map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, PidfdFlags, pidfd_open};
    use std::process::{Command, Stdio};

    #[test]
    fn lines_of_status() {
        for (status, is_dead) in [
            (
                "Name:\tdiorite\nState:\tS (sleeping)\nCoreDumping:\t0\n",
                false,
            ),
            ("Name:\tdiorite\nState:\tT (stopped)\n", false),
            ("Name:\tState:\\nZ\nState:\tD (disk sleep)\n", false),
            ("Name:\tdiorite\nState:\tZ (zombie)\nThreads:\t2\n", true),
            (
                "Name:\tdiorite\nState:\tD (disk sleep)\nCoreDumping:\t1\n",
                true,
            ),
            ("", false),
        ] {
            assert_eq!(says_dead(status), is_dead, "{status}");
        }
    }

    #[test]
    fn a_process_is_dead_after_its_end_and_not_before() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .spawn()
            .expect("a process");
        let pid = Pid::from_child(&child);
        let process = pidfd_open(pid, PidfdFlags::empty()).expect("its descriptor");
        assert!(!is_dead(&process));
        drop(child.stdin.take());
        while !is_dead(&process) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        child.wait().expect("ended");
        assert!(!is_dead(&process), "nobody has its number any more");
        assert!(!is_dead(&OwnedFd::from(
            std::fs::File::open("/dev/null").expect("opened")
        )));
    }
}
