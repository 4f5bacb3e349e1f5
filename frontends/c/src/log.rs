//! Messages to the host program: what is worth a line in its log.
//!
//! Input: lines of text with a level. Output: calls of the host's function. Invariants: after [`diorite_set_log`] has returned the function
//! that was there before is not running and will not be called. Limits: one function for the process.

use crate::error::{Fault, border, c_text};
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock};

/// A part of diorite failed in a way that is a defect.
pub const DIORITE_LOG_ERROR: u32 = 1;
/// Something was odd and no error: of a source of an import.
pub const DIORITE_LOG_WARNING: u32 = 2;
/// How a volume was opened: a journal that was replayed, an I/O engine that the host does not have.
pub const DIORITE_LOG_INFO: u32 = 3;
/// Each call that fails, with its message.
pub const DIORITE_LOG_DEBUG: u32 = 4;

/// How important a message is.
#[derive(Clone, Copy)]
pub(crate) enum Level {
    Error = DIORITE_LOG_ERROR as isize,
    Warning = DIORITE_LOG_WARNING as isize,
    Info = DIORITE_LOG_INFO as isize,
    Debug = DIORITE_LOG_DEBUG as isize,
}

type Function = unsafe extern "C" fn(context: *mut c_void, level: u32, message: *const c_char);

struct Sink {
    function: Function,
    context: *mut c_void,
}

// SAFETY: the caller of `diorite_set_log` promises that any thread may call the function with the context.
unsafe impl Send for Sink {}
// SAFETY: as above.
unsafe impl Sync for Sink {}

static SINK: RwLock<Option<Sink>> = RwLock::new(None);

/// The least important level that is told; 0 for none. Read without the lock, so that a program without a log pays one load.
static LEAST: AtomicU32 = AtomicU32::new(0);

/// Tells the host a line.
pub(crate) fn write(level: Level, message: &str) {
    let level = level as u32;
    if level > LEAST.load(Ordering::Relaxed) {
        return;
    }
    let sink = SINK.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(sink) = &*sink {
        let message = c_text(message);
        // SAFETY: the host's function takes these, and is not replaced while the lock is held.
        unsafe { (sink.function)(sink.context, level, message.as_ptr()) };
    }
}

/// Sets the function that is told messages up to a level (DIORITE_LOG_...), in place of the one before; NULL for none.
///
/// @context is passed through. The function is called by any thread, also by several at once, and must not call the library. The message is
/// one line of UTF-8 and valid during the call. When this returns the function before is not running any more. Blocks for that.
///
/// Errors: EINVAL for an unknown level.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_set_log(
    function: Option<
        unsafe extern "C" fn(context: *mut c_void, level: u32, message: *const c_char),
    >,
    context: *mut c_void,
    level: u32,
) -> c_int {
    border(|| {
        if !(DIORITE_LOG_ERROR..=DIORITE_LOG_DEBUG).contains(&level) {
            return Err(Fault::invalid(format!("there is no log level {level}")));
        }
        let mut sink = SINK.write().unwrap_or_else(PoisonError::into_inner);
        let told = function.is_some();
        *sink = function.map(|function| Sink { function, context });
        LEAST.store(if told { level } else { 0 }, Ordering::Relaxed);
        Ok(0)
    })
}
