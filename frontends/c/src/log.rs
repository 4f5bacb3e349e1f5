//! The log of the host program: what is worth a line there.
//!
//! Input: the host's function, and up to which level it is told. Output: none. Invariants, limits: those of `sink`.

use crate::error::{Fault, border};
use crate::sink::{self, Level};
use std::ffi::{c_char, c_int, c_void};

/// A part of diorite failed in a way that is a defect.
pub const DIORITE_LOG_ERROR: u32 = 1;
/// Something was odd and no error: of a source of an import.
pub const DIORITE_LOG_WARNING: u32 = 2;
/// How a volume was opened: a journal that was replayed, an I/O engine that the host does not have.
pub const DIORITE_LOG_INFO: u32 = 3;
/// Each call that fails, with its message.
pub const DIORITE_LOG_DEBUG: u32 = 4;

const _: () = {
    assert!(Level::Error as u32 == DIORITE_LOG_ERROR);
    assert!(Level::Warning as u32 == DIORITE_LOG_WARNING);
    assert!(Level::Info as u32 == DIORITE_LOG_INFO);
    assert!(Level::Debug as u32 == DIORITE_LOG_DEBUG);
};

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
        sink::set(function, context, level);
        Ok(0)
    })
}
