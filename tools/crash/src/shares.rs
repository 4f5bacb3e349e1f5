//! Work in several threads, each of which has a share of it.
//!
//! Input: what one thread does, by its number. Output: nothing, or an error of one of them. Invariants: all have ended when the call
//! returns; a panic of one goes on in the caller. Limits: none.

use crate::error::Result;

/// Runs `work` on all processors: with the number of each thread, from 0 on, and with how many there are.
///
/// # Errors
/// The first one of the threads, in their order.
pub fn on_all(work: impl Fn(usize, usize) -> Result<()> + Sync) -> Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    in_threads(threads, |first| work(first, threads))
}

/// Runs `work` in so many threads: with the number of each, from 0 on.
///
/// # Errors
/// As [`on_all`].
pub fn in_threads(count: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let work = &work;
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..count)
            .map(|number| scope.spawn(move || work(number)))
            .collect();
        let ended = all.into_iter().map(|t| t.join());
        let ended: Vec<_> = ended
            .map(|r| r.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        ended.into_iter().collect()
    })
}
