//! The threads of a check: each takes the next piece of work until none is left.
//!
//! Input: the number of pieces, and a function for one piece. Output: the results of each thread. Invariants: the first error
//! stops the other threads; progress is reported as pieces are done. Limits: threads live for one pass.

use diorite::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::Builder;

/// The progress of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The current stage.
    pub stage: &'static str,
    /// Pieces of the stage that are done.
    pub done: u64,
    /// All pieces of the stage.
    pub total: u64,
}

/// Called with the progress, from any thread.
pub type Watch<'a> = &'a (dyn Fn(Progress) + Sync);

/// The number of threads, and the progress function.
#[derive(Clone, Copy)]
pub(super) struct Threads<'a> {
    pub(super) threads: usize,
    pub(super) watch: Watch<'a>,
}

impl Threads<'_> {
    /// Calls `work` for every number below `count`, with a value that `begin` makes for each thread.
    pub(super) fn each<S: Send>(
        &self,
        stage: &'static str,
        count: usize,
        begin: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, usize) -> Result<(), Error> + Sync,
    ) -> Result<Vec<S>, Error> {
        let (next, failed, done) = (
            AtomicUsize::new(0),
            AtomicBool::new(false),
            AtomicU64::new(0),
        );
        let total = count as u64;
        let tell = |done| {
            (self.watch)(Progress { stage, done, total });
        };
        tell(0);
        let run = || {
            let mut state = begin();
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= count || failed.load(Ordering::Relaxed) {
                    return Ok(state);
                }
                if let Err(e) = work(&mut state, n) {
                    failed.store(true, Ordering::Relaxed);
                    return Err(e);
                }
                tell(done.fetch_add(1, Ordering::Relaxed) + 1);
            }
        };
        let threads = self.threads.min(count).max(1);
        std::thread::scope(|scope| {
            // Those that the host does not give leave their work to the others; this thread is one of them.
            let others: Vec<_> = (1..threads)
                .map_while(|_| Builder::new().spawn_scoped(scope, run).ok())
                .collect();
            let mine = run();
            let ended = others.into_iter().map(|t| match t.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            std::iter::once(mine).chain(ended).collect()
        })
    }
}
