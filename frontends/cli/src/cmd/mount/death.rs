//! Describes how a server has ended: for a process that unmounts, for the keeper's exit code, for the system's log.
//!
//! Input: the exit status of a server; how many processes the kernel had ended for lack of memory before. Output: answers, a verdict, a
//! line of the log. Invariant: lack of memory is named only if the kernel has killed a process for it meanwhile. Limits: only the kernel's
//! log says which process that was.

use super::control;
use crate::host::process::count_oom_kills;
use crate::output::report::{Reason, Report};
use std::io::Write;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// What the host was like before a server began.
#[derive(Debug)]
pub(super) struct Before {
    oom_kills: Option<u64>,
}

impl Before {
    pub(super) fn now() -> Before {
        Before {
            oom_kills: count_oom_kills(),
        }
    }

    /// What has ended a server that did not end by itself, as a part of a sentence.
    fn killed(&self, status: ExitStatus) -> Option<String> {
        let signal = status.signal()?;
        let guess = match (signal, self.oom_kills, count_oom_kills()) {
            (libc::SIGKILL, Some(before), Some(now)) if now > before => {
                ", probably by the kernel for lack of memory (OOM killer)"
            }
            (libc::SIGKILL, None, _) => ", perhaps by the kernel for lack of memory (OOM killer)",
            _ => "",
        };
        Some(format!(
            "was killed by signal {signal}{guess}; the next mount recovers by the journal"
        ))
    }

    /// Answers those who wait for the end.
    pub(super) fn tell(&self, status: ExitStatus, waiting: Vec<UnixStream>) {
        let answer = match (status.code(), self.killed(status)) {
            (Some(0), _) => vec![control::DONE],
            (_, Some(why)) => [&[control::KILLED], why.as_bytes()].concat(),
            _ => vec![control::FAILED],
        };
        for mut client in waiting {
            // Who has gone does not need it.
            let _ = client.write_all(&answer);
        }
    }

    /// The keeper's verdict. A server that ended by itself has said why.
    pub(super) fn judge(&self, status: ExitStatus, report: &mut Report) -> Result<(), Reason> {
        match (status.code(), self.killed(status)) {
            (Some(0), _) => Ok(()),
            (_, Some(why)) => Err(Reason::new(format!("its server {why}"))),
            _ => {
                report.failed(1);
                Ok(())
            }
        }
    }

    /// A line for the system's log, where there is one, if the server was killed: a detached keeper has no other place. Best effort.
    pub(super) fn log(&self, status: ExitStatus, mount: &str) {
        /// Facility `daemon`, severity `err`: syslog(3).
        const PRIORITY: u32 = 3 << 3 | 3;
        let (Some(why), Ok(socket)) = (self.killed(status), UnixDatagram::unbound()) else {
            return;
        };
        let pid = std::process::id();
        let line =
            format!("<{PRIORITY}>diorite[{pid}]: diorite mount: the server of {mount} {why}");
        // A log that is full must not keep the mount.
        let _ = socket.set_nonblocking(true);
        let _ = socket.send_to(line.as_bytes(), "/dev/log");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_named() {
        let of = |raw, oom_kills| Before { oom_kills }.killed(ExitStatus::from_raw(raw));
        assert_eq!(of(0, None), None);
        assert_eq!(of(1 << 8, None), None);
        let aborted = of(libc::SIGABRT, None).expect("killed");
        assert!(aborted.starts_with("was killed by signal 6;"), "{aborted}");
        let killed = of(libc::SIGKILL, None).expect("killed");
        assert!(killed.contains("signal 9, perhaps"), "{killed}");
        if count_oom_kills().is_some() {
            let killed = of(libc::SIGKILL, Some(u64::MAX)).expect("killed");
            assert!(killed.contains("signal 9;"), "{killed}");
        }
    }
}
