//! Numbers of volumes and queues, by name.
//!
//! Input: handles. Output: calls of the host's function. Invariants: a name keeps its meaning; others are added. Limits: not of one
//! instant.

use crate::args::null;
use crate::error::{Fault, border};
use crate::queue::{self, QueueHandle};
use crate::sink::c_text;
use crate::volume::{self, VolumeHandle};
use std::ffi::{c_char, c_int, c_void};

type Visit = unsafe extern "C" fn(context: *mut c_void, name: *const c_char, value: u64);

/// # Safety
/// The host's function takes the context.
unsafe fn each(
    visit: Option<Visit>,
    context: *mut c_void,
    numbers: impl Iterator<Item = (String, u64)>,
) -> Result<c_int, Fault> {
    let visit = visit.ok_or_else(|| null("visit"))?;
    for (name, value) in numbers {
        let name = c_text(&name);
        // SAFETY: the caller's promise.
        unsafe { visit(context, name.as_ptr(), value) };
    }
    Ok(0)
}

/// Calls @visit with each number of a volume: "queue." counters of all its queues, "journal.", "pages." and "usage." (what it holds now).
/// The name is valid during the call. Blocks while a commit is under way.
///
/// Errors: EBADF, EFAULT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_volume_statistics(
    volume: VolumeHandle,
    visit: Option<unsafe extern "C" fn(context: *mut c_void, name: *const c_char, value: u64)>,
    context: *mut c_void,
) -> c_int {
    border(|| {
        let volume = volume::hold(volume)?;
        let (journal, usage) = (volume.journal_stats(), volume.usage());
        let counters = volume.counters();
        let queues = counters
            .named()
            .map(|(name, n)| (format!("queue.{name}"), n));
        let pages = volume.page_cache().stats();
        let pages = pages.named().map(|(name, n)| (format!("pages.{name}"), n));
        let others = [
            ("journal.handles", journal.handles),
            ("journal.commits", journal.commits),
            ("journal.blocks", journal.blocks),
            ("journal.checkpoints", journal.checkpoints),
            ("usage.free-blocks", usage.free),
            ("usage.free-inodes", usage.free_inodes),
            ("usage.queues", usage.queues),
            ("usage.requests", usage.requests),
            ("usage.inodes", usage.inodes),
            ("usage.cached-blocks", usage.cached_blocks),
        ];
        let others = others.into_iter().map(|(name, n)| (name.to_owned(), n));
        // SAFETY: the caller's promise.
        unsafe { each(visit, context, queues.chain(pages).chain(others)) }
    })
}

/// Calls @visit with each counter of a queue: how requests completed, and why some did not go the fast way.
///
/// Errors: EBADF, EFAULT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_queue_statistics(
    queue: QueueHandle,
    visit: Option<unsafe extern "C" fn(context: *mut c_void, name: *const c_char, value: u64)>,
    context: *mut c_void,
) -> c_int {
    border(|| {
        let counters = queue::counters(queue)?;
        // SAFETY: the caller's promise.
        unsafe { each(visit, context, counters.named()) }
    })
}
