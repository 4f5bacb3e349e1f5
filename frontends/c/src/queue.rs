//! Queues: many requests in flight from one thread, with the caller's memory.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `request` | a caller's request -> the engine's, or why it makes no sense |
//! | `completion` | the engine's completions -> a caller's, with the messages of those that failed |
//!
//! Input: requests of C. Output: completions. Invariants: a request that was accepted is completed exactly once; until then its memory is
//! the library's; submitting and reaping allocate nothing, but for vectors and failures. Limits: threads that share a queue wait for each
//! other's short calls.

pub mod completion;
pub mod request;

pub use completion::Completion;
pub use request::Request;

use crate::args::{self, Grows, handle, lock, null, out, sized};
use crate::error::{Fault, border};
use crate::file::{self, FileHandle};
use crate::handle::{Held, Table};
use crate::volume::{self, VolumeHandle};
use completion::Completed;
use diorite::device::Foreign;
use diorite::{FileId, Queue};
use request::Batch;
use std::collections::BTreeSet;
use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A queue of requests to the files of one volume. 0 is none.
pub type QueueHandle = u64;

/// Requests of a queue that nobody gave a depth.
const USUAL_DEPTH: u32 = 128;

/// A queue, and what its callers' requests become.
struct OpenQueue {
    /// First, so that it is dropped first: it waits for requests, whose buffers are of the regions.
    queue: Queue,
    batch: Mutex<Batch>,
    completed: Completed,
    /// The files that are attached, by the numbers that the callers have.
    attached: Mutex<BTreeSet<u64>>,
}

static QUEUES: Table<OpenQueue> = Table::new(3, "queue");

fn hold(queue: QueueHandle) -> Result<Held<OpenQueue>, Fault> {
    QUEUES.hold(queue)
}

/// How to make a queue. Set @size by DIORITE_INIT; zeros are the defaults.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct QueueOptions {
    /// sizeof(struct diorite_queue_options).
    pub size: u32,
    /// Requests that may be in flight at once, at most 32,768; 0: 128.
    pub depth: u32,
    /// Not 0: diorite_reap looks for completions for up to so many nanoseconds before it sleeps, and polls the device's driver if it can.
    pub poll_ns: u64,
}

// SAFETY: repr(C), a u32 first, and zeros are numbers.
unsafe impl Grows for QueueOptions {}

/// Makes a queue. @options may be NULL. @queue gets the handle; it is 0 after an error. Blocks for a moment.
///
/// Errors: EBADF, EINVAL (a depth above 32,768), ESHUTDOWN, EMFILE, ENOMEM and others of the host.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_queue_create(
    volume: VolumeHandle,
    options: *const QueueOptions,
    queue: *mut QueueHandle,
) -> c_int {
    border(|| {
        let volume = volume::hold(volume)?;
        // SAFETY: the caller's promises.
        let (queue, options) = unsafe {
            let queue = handle(queue, "queue")?;
            (queue, sized(options, "diorite_queue_options")?)
        };
        let depth = match options.depth {
            0 => USUAL_DEPTH,
            depth if depth <= diorite::queue::MAX_DEPTH => depth,
            _ => return Err(Fault::invalid("a queue has a depth of at most 32768")),
        };
        let opened = match options.poll_ns {
            0 => volume.queue(depth)?,
            longest => volume.polled_queue(depth, Duration::from_nanos(longest))?,
        };
        *queue = QUEUES.insert(OpenQueue {
            queue: opened,
            batch: Mutex::new(Batch::new(volume.device().geometry().logical)),
            completed: Completed::default(),
            attached: Mutex::default(),
        })?;
        Ok(0)
    })
}

/// Ends a queue: waits for its requests in flight, and discards completions that were not reaped. The handle is invalid afterwards. Blocks.
/// If another thread is in a call with the queue, that call ends first, and it does the waiting.
///
/// Errors: EBADF.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_queue_destroy(queue: QueueHandle) -> c_int {
    border(|| {
        drop(QUEUES.close(queue)?);
        Ok(0)
    })
}

/// Makes an open file known to a queue. @attached gets a number for `file` of requests: it is valid in this queue only, until
/// diorite_queue_detach. The file may be closed then: the queue keeps it open.
///
/// Errors: EBADF; EINVAL: the file is of another volume; EOPNOTSUPP: it is encrypted or protected by verity.
///
/// @attached points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_queue_attach(
    queue: QueueHandle,
    file: FileHandle,
    attached: *mut u64,
) -> c_int {
    border(|| {
        let queue = hold(queue)?;
        let file = file::hold(file)?;
        // SAFETY: the caller's promise.
        let attached = unsafe { out(attached, "attached") }?;
        let id = queue.queue.attach(&file.file)?.to_bits();
        lock(&queue.attached).insert(id);
        *attached = id;
        Ok(0)
    })
}

/// Takes a file from a queue. Blocks until its requests in this queue have ended; their completions can still be reaped.
///
/// Errors: EBADF: also for a number that names no file of this queue.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_queue_detach(queue: QueueHandle, attached: u64) -> c_int {
    border(|| {
        let queue = hold(queue)?;
        if !lock(&queue.attached).remove(&attached) {
            return Err(Fault::new(
                libc::EBADF,
                "no such file is attached to the queue",
            ));
        }
        queue.queue.detach(FileId::from_bits(attached));
        Ok(0)
    })
}

/// Registers memory that requests will use again and again: the kernel maps it once, and not for each request. Returns its number, 1 or
/// more, for `region` of requests of this queue. If the host does not permit it (RLIMIT_MEMLOCK), requests work without.
///
/// The memory stays the caller's and must stay mapped until diorite_queue_unregister or diorite_queue_destroy has returned.
///
/// Errors: EBADF, EFAULT, EINVAL (no bytes, or more than memory has), ENOSPC (1,024 regions of one queue).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_queue_register(
    queue: QueueHandle,
    start: *mut c_void,
    size: usize,
) -> c_int {
    border(|| {
        let queue = hold(queue)?;
        let start = NonNull::new(start.cast()).ok_or_else(|| null("the region"))?;
        let end = start.addr().checked_add(size);
        if size == 0 || size > isize::MAX as usize || end.is_none() {
            return Err(Fault::invalid(
                "a region has at least one byte, and fits into memory",
            ));
        }
        // SAFETY: the caller's promise: it stays mapped as long as requests may use it.
        let region = unsafe { Foreign::piece(start, size, Arc::new(())) };
        lock(&queue.batch).register(region)
    })
}

/// Forgets a region. Requests in flight go on to use it: the caller waits for them before the memory is unmapped.
///
/// Errors: EBADF; EINVAL: no such region.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_queue_unregister(queue: QueueHandle, region: u32) -> c_int {
    border(|| {
        let queue = hold(queue)?;
        lock(&queue.batch).unregister(region)?;
        queue.queue.forget_memory();
        Ok(0)
    })
}

/// Starts requests, in order. Returns how many were accepted: fewer than @count if the queue is full, or if the next one makes no sense;
/// that one is refused with an error if it is the first. Each accepted request is completed once, by diorite_reap. Does not block on I/O;
/// may wait for locks, but not for those of inodes with DIORITE_REQUEST_NOWAIT.
///
/// The array is the caller's again when this returns. The memory that a request names is the library's until its completion was reaped:
/// it is not touched, and not used by another request unless both only write from it.
///
/// Errors: EBADF, EFAULT, EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_submit(
    queue: QueueHandle,
    requests: *const Request,
    count: u32,
) -> c_int {
    border(|| {
        let queue = hold(queue)?;
        if count == 0 {
            return Ok(0);
        }
        if requests.is_null() {
            return Err(null("the array of requests"));
        }
        let count = count.min(diorite::queue::MAX_DEPTH) as usize;
        // SAFETY: the caller's promise.
        let requests = unsafe { std::slice::from_raw_parts(requests, count) };
        // SAFETY: the caller's promise for the memory that they name.
        unsafe { lock(&queue.batch).submit(&queue.queue, requests) }
    })
}

/// Takes up to @max completions. Returns their number. Blocks until at least @min were taken, @timeout_ns nanoseconds have passed (-1: no
/// limit), or no request is in flight; with a @min of 0 it never blocks. Meanwhile it does work that its requests owe.
///
/// More may be there if it returns @max: take those before you poll the queue's descriptor. A call takes all from the queue that have
/// ended, and what it has no room for is the next call's: of several threads that reap one queue another may sleep meanwhile.
///
/// Errors: EBADF, EFAULT, EINVAL (@min is more than @max, a negative timeout).
///
/// @completions has room for @max.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_reap(
    queue: QueueHandle,
    completions: *mut Completion,
    max: u32,
    min: u32,
    timeout_ns: i64,
) -> c_int {
    border(|| {
        let queue = hold(queue)?;
        let timeout = args::timeout(timeout_ns)?;
        let max = max.min(i32::MAX as u32);
        if min > max {
            return Err(Fault::invalid("at least more completions than at most"));
        }
        if max == 0 {
            return Ok(0);
        }
        if completions.is_null() {
            return Err(null("the array of completions"));
        }
        let place = completions.cast::<MaybeUninit<Completion>>();
        // SAFETY: the caller's promise.
        let place = unsafe { std::slice::from_raw_parts_mut(place, max as usize) };
        let got = queue
            .completed
            .reap(&queue.queue, place, min as usize, timeout);
        Ok(got as c_int)
    })
}

/// Requests that were accepted and whose completions were not reaped; or a negative error number: EBADF.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_queue_in_flight(queue: QueueHandle) -> c_int {
    border(|| {
        let queue = hold(queue)?;
        Ok((queue.queue.in_use() + queue.completed.left()) as c_int)
    })
}

/// A descriptor for poll(2) and epoll(7): it becomes readable when diorite_reap may have something to do. It belongs to the queue: do not
/// read from it or close it. If several queues of a volume share a file, poll with a timeout of some milliseconds while requests are in
/// flight, and reap after it: a request may wait for one of another queue.
///
/// Errors: EBADF.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_queue_eventfd(queue: QueueHandle) -> c_int {
    border(|| Ok(hold(queue)?.queue.eventfd().as_raw_fd()))
}

/// The message of a failed completion: @error is its field. Copies at most @size bytes with a NUL behind them; returns the length of the
/// whole message without the NUL. The messages of the latest 256 failures of a queue are kept.
///
/// Errors: EBADF, EFAULT; ENOENT: no message has this number any more.
///
/// @size bytes at @text can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_completion_message(
    queue: QueueHandle,
    error: u64,
    text: *mut c_char,
    size: usize,
) -> i64 {
    border(|| {
        let queue = hold(queue)?;
        // SAFETY: the caller's promise.
        let place = unsafe { args::memory_mut(text.cast(), size) }?;
        let message = queue.completed.message(error);
        let none = || Fault::new(libc::ENOENT, "no message has this number any more");
        let message = message.ok_or_else(none)?;
        if let Some((end, room)) = place.split_last_mut() {
            let count = message.len().min(room.len());
            room[..count].copy_from_slice(&message.as_bytes()[..count]);
            *room.get_mut(count).unwrap_or(end) = 0;
        }
        Ok(message.len() as i64)
    })
}

/// The queue's counters, for `statistics`.
pub(crate) fn counters(queue: QueueHandle) -> Result<diorite::Counters, Fault> {
    Ok(hold(queue)?.queue.counters())
}
