//! Threads that run where nothing else does, so that no processor sleeps.
//!
//! Input: whether processors are to stay awake. Output: they do. Invariants: the threads have the policy SCHED_IDLE (man 7 sched), so
//! whatever else is to run on a processor runs there at once; they sleep while nobody asks, and [`MOST`] after they were asked. Limits: a
//! host with more than [`MOST_PROCESSORS`], or one that refuses the policy, goes without; so does a process whose control group may use
//! less time than its processors have, as these threads would use it up, and the group with all who work would be stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::thread::{Builder, Thread};
use std::time::{Duration, Instant};

/// With more processors it would take much power to keep all of them awake, and who calls sleeps on one of them only.
const MOST_PROCESSORS: usize = 8;
/// Who wants more asks again: a request that takes long keeps no processor awake.
const MOST: Duration = Duration::from_millis(100);

/// What the threads share.
#[derive(Debug, Default)]
struct Shared {
    is_asked: AtomicBool,
    is_over: AtomicBool,
    /// Threads that run now.
    running: AtomicUsize,
}

/// A thread for each processor. They end some time after this is dropped.
#[derive(Debug)]
pub(super) struct Spinners {
    shared: Arc<Shared>,
    threads: Vec<Thread>,
}

impl Spinners {
    /// Threads for the processors that this process may use. None: there are too many of these, or no threads.
    pub(super) fn start() -> Option<Spinners> {
        let mine = rustix::thread::sched_getaffinity(None).ok()?;
        let all = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| mine.is_set(*cpu));
        let all: Vec<usize> = all.take(MOST_PROCESSORS + 1).collect();
        let of_group = std::thread::available_parallelism().ok()?;
        if !may_be_awake(all.len(), of_group.get()) {
            return None;
        }
        let mut spinners = Spinners {
            shared: Arc::default(),
            threads: Vec::new(),
        };
        for processor in all {
            let shared = spinners.shared.clone();
            let work = move || {
                if is_idle_on(processor) {
                    shared.run();
                }
            };
            let thread = Builder::new().name("fuse-awake".to_owned()).spawn(work);
            spinners.threads.push(thread.ok()?.thread().clone());
        }
        Some(spinners)
    }

    /// Whether processors are kept awake.
    pub(super) fn are_asked(&self) -> bool {
        self.shared.is_asked.load(Relaxed)
    }

    /// Processors stay awake from now on, for [`MOST`], or need not any more. Does not wait.
    pub(super) fn ask(&self, stay: bool) {
        self.shared.is_asked.store(stay, SeqCst);
        if stay {
            self.threads.iter().for_each(Thread::unpark);
        }
    }
}

/// Whether so many processors may be kept awake by a process whose control group may use the time of `of_group`.
fn may_be_awake(processors: usize, of_group: usize) -> bool {
    processors <= MOST_PROCESSORS && processors <= of_group
}

impl Drop for Spinners {
    fn drop(&mut self) {
        self.shared.is_over.store(true, SeqCst);
        self.shared.is_asked.store(false, SeqCst);
        self.threads.iter().for_each(Thread::unpark);
    }
}

impl Shared {
    fn run(&self) {
        while !self.is_over.load(SeqCst) {
            match self.is_asked.load(SeqCst) {
                true => self.spin(),
                false => std::thread::park(),
            }
        }
    }

    fn spin(&self) {
        self.running.fetch_add(1, Relaxed);
        let until = Instant::now() + MOST;
        while self.is_asked.load(Relaxed) {
            std::hint::spin_loop();
            if Instant::now() >= until {
                self.is_asked.store(false, SeqCst);
            }
        }
        self.running.fetch_sub(1, Relaxed);
    }
}

/// This thread runs on one processor, and only where nothing else does. False: the host refuses.
fn is_idle_on(processor: usize) -> bool {
    let mut set = rustix::thread::CpuSet::new();
    set.set(processor);
    let pinned = rustix::thread::sched_setaffinity(None, &set);
    // `struct sched_param`, whose only field has to be 0 for this policy.
    let parameters = libc::c_int::default();
    // SAFETY: the call reads one int, and changes the calling thread only. The C library's own function fails in some libraries.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            0,
            libc::SCHED_IDLE,
            &raw const parameters,
        )
    };
    pinned.is_ok() && result == 0
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by it")]

    use super::*;

    fn until(what: impl Fn() -> bool) {
        while !what() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn they_run_while_they_are_asked_and_not_for_ever() {
        let Some(spinners) = Spinners::start() else {
            return xtask::skip::skipped("this host has too many processors, or too little time");
        };
        let running = || spinners.shared.running.load(Relaxed);
        assert_eq!(running(), 0);
        spinners.ask(true);
        until(|| running() > 0);
        spinners.ask(false);
        until(|| running() == 0);
        spinners.ask(true);
        // Nobody takes it back.
        until(|| !spinners.are_asked() && running() == 0);
        let shared = spinners.shared.clone();
        drop(spinners);
        until(|| Arc::strong_count(&shared) == 1);
    }

    /// The defect: in a control group with less time than its processors have, the threads used that up, and the group was stopped.
    #[test]
    fn time_that_others_need_is_not_used_up() {
        assert!(may_be_awake(2, 2) && may_be_awake(MOST_PROCESSORS, MOST_PROCESSORS));
        assert!(!may_be_awake(2, 1) && !may_be_awake(MOST_PROCESSORS + 1, 64));
    }

    #[test]
    fn whatever_else_is_to_run_runs_at_once() {
        let first = rustix::thread::sched_getaffinity(None).unwrap();
        let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|cpu| first.is_set(*cpu));
        let policy = std::thread::spawn(move || {
            assert!(is_idle_on(first.unwrap()));
            // SAFETY: the call takes a number only.
            unsafe { libc::syscall(libc::SYS_sched_getscheduler, 0) }
        });
        assert_eq!(policy.join().unwrap(), i64::from(libc::SCHED_IDLE));
    }
}
