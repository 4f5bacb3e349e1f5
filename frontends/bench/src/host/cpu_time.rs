//! CPU time of this process, and of its children that have ended.
//!
//! Input: getrusage. Output: user and system time, to the microsecond. Invariant: threads that have ended are counted, and so are the
//! workers of io_uring, which are threads of the process. Limits: what threads of the kernel do for a process (the loop driver's workers,
//! write-back) is not in its time; the last time slice of threads that run meanwhile may be missing.

use std::mem::MaybeUninit;
use std::time::Duration;

/// Time that processors spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct CpuTime {
    pub(in super::super) user: Duration,
    pub(in super::super) system: Duration,
}

impl CpuTime {
    /// Of all threads of this process.
    pub(in super::super) fn own() -> CpuTime {
        ask(libc::RUSAGE_SELF)
    }

    /// Of this process's children that have ended and were waited for.
    pub(in super::super) fn of_children() -> CpuTime {
        ask(libc::RUSAGE_CHILDREN)
    }

    /// The time since an earlier moment.
    pub(in super::super) fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
        }
    }

    /// User and system time together.
    pub(in super::super) fn total(self) -> Duration {
        self.user + self.system
    }
}

fn ask(whose: i32) -> CpuTime {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: getrusage writes one rusage, for which there is room, and keeps no pointer to it.
    let answer = unsafe { libc::getrusage(whose, usage.as_mut_ptr()) };
    debug_assert_eq!(answer, 0, "both values of `whose` are known to the kernel");
    // SAFETY: a rusage is made of integers only, and all of its bytes were set to zero above.
    let usage = unsafe { usage.assume_init() };
    let time = |t: libc::timeval| {
        let micros = t.tv_sec * 1_000_000 + t.tv_usec;
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    };
    CpuTime {
        user: time(usage.ru_utime),
        system: time(usage.ru_stime),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_and_sums() {
        let at = |user, system| CpuTime {
            user: Duration::from_micros(user),
            system: Duration::from_micros(system),
        };
        let spent = at(1_700, 900).since(at(1_000, 400));
        assert_eq!(spent, at(700, 500));
        assert_eq!(spent.total(), Duration::from_micros(1_200));
        // The kernel scales the two parts, so one of them may go back a little.
        assert_eq!(at(10, 90).since(at(20, 50)), at(0, 40));
    }

    /// Work in the program is its own time, and that of a child is known when it has been waited for.
    #[test]
    fn work_is_counted_for_who_did_it() {
        let before = CpuTime::own();
        let mut sum = 0_u64;
        while CpuTime::own().since(before).total().is_zero() {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let before = CpuTime::of_children();
        let ended = std::process::Command::new("true").status();
        assert!(ended.expect("true(1) is there").success());
        assert!(CpuTime::of_children().since(before).total() > Duration::ZERO);
    }
}
