//! Where messages to the host program go.
//!
//! Input: lines of text with a level; the host's function. Output: calls of that function. Invariants: after [`set`] has returned the
//! function that was there before is not running and will not be called. Limits: one function for the process.

use std::ffi::{CString, c_char, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock};

/// How important a message is.
#[derive(Clone, Copy)]
pub(crate) enum Level {
    Error = 1,
    Warning = 2,
    Info = 3,
    Debug = 4,
}

pub(crate) type Function =
    unsafe extern "C" fn(context: *mut c_void, level: u32, message: *const c_char);

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

/// The message as C has it: what is behind a NUL in it is lost.
pub(crate) fn c_text(message: &str) -> CString {
    let text = message.split('\0').next().unwrap_or_default();
    CString::new(text).unwrap_or_default()
}

/// Replaces the host's function. Blocks until the one before is not running any more.
pub(crate) fn set(function: Option<Function>, context: *mut c_void, level: u32) {
    let mut sink = SINK.write().unwrap_or_else(PoisonError::into_inner);
    let told = function.is_some();
    *sink = function.map(|function| Sink { function, context });
    LEAST.store(if told { level } else { 0 }, Ordering::Relaxed);
}
