//! Errors at the border: an error number and a message for each call that fails, and no panic that leaves this library.
//!
//! Input: what a call's body returns, or its panic. Output: the negative error number, and the message, which the calling thread can ask
//! for. Invariants: every exported function with a result runs in `border`; a message lives until the next call of the same thread that
//! fails. Limits: a panic prints its own message on standard error, as Rust does.

use crate::errno;
use crate::sink::{self, Level, c_text};
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a call fails.
#[derive(Debug)]
pub(crate) struct Fault {
    /// Positive.
    pub(crate) errno: c_int,
    pub(crate) message: Cow<'static, str>,
}

impl Fault {
    pub(crate) fn new(errno: c_int, message: impl Into<Cow<'static, str>>) -> Fault {
        Fault {
            errno,
            message: message.into(),
        }
    }

    /// An argument that makes no sense.
    pub(crate) fn invalid(message: impl Into<Cow<'static, str>>) -> Fault {
        Fault::new(libc::EINVAL, message)
    }

    /// The same, with where it was met.
    pub(crate) fn at(self, place: &str) -> Fault {
        Fault::new(self.errno, format!("{place}: {}", self.message))
    }
}

impl From<diorite::Error> for Fault {
    fn from(error: diorite::Error) -> Fault {
        Fault::new(errno::of_engine(&error), error.to_string())
    }
}

impl From<diorite::mkfs::Error> for Fault {
    fn from(error: diorite::mkfs::Error) -> Fault {
        Fault::from(diorite::Error::from(error))
    }
}

impl From<diorite_image::Error> for Fault {
    fn from(error: diorite_image::Error) -> Fault {
        Fault::new(errno::of_image(&error), error.to_string())
    }
}

impl From<diorite_block::DeviceError> for Fault {
    fn from(error: diorite_block::DeviceError) -> Fault {
        Fault::new(errno::of_device(&error), error.to_string())
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Fault {
        Fault::new(errno::of_host(&error), error.to_string())
    }
}

/// The latest error of a thread.
struct Latest {
    errno: c_int,
    message: CString,
}

thread_local! {
    static LATEST: RefCell<Option<Latest>> = const { RefCell::new(None) };
}

/// Notes the error of a call, and gives its negative number.
#[cold]
fn failed(fault: Fault) -> c_int {
    sink::write(Level::Debug, &fault.message);
    let latest = Latest {
        errno: fault.errno,
        message: c_text(&fault.message),
    };
    // A thread that is ending has no place for it any more.
    let _noted = LATEST.try_with(|place| place.replace(Some(latest)));
    -fault.errno
}

/// What a function gives C: a number, where negative ones are errors.
pub(crate) trait Answer {
    fn failed(errno: c_int) -> Self;
}

impl Answer for c_int {
    fn failed(errno: c_int) -> c_int {
        errno
    }
}

impl Answer for i64 {
    fn failed(errno: c_int) -> i64 {
        i64::from(errno)
    }
}

/// Runs the body of an exported function.
#[inline]
pub(crate) fn border<A: Answer>(body: impl FnOnce() -> Result<A, Fault>) -> A {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(answer)) => answer,
        Ok(Err(fault)) => A::failed(failed(fault)),
        Err(_) => A::failed(panicked()),
    }
}

#[cold]
fn panicked() -> c_int {
    let message =
        "a part of diorite panicked: a defect, to be reported with the message of the panic";
    sink::write(Level::Error, message);
    failed(Fault::new(libc::ENOTRECOVERABLE, message))
}

/// The message of the latest call of this thread that has failed, as NUL-terminated text; empty if none has. It is valid until the next
/// call of this thread that fails, and belongs to the library. Does not block.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_error_message() -> *const c_char {
    let none = c"".as_ptr();
    let message = |place: &RefCell<Option<Latest>>| match &*place.borrow() {
        Some(latest) => latest.message.as_ptr(),
        None => none,
    };
    LATEST.try_with(message).unwrap_or(none)
}

/// The error number of the same call, positive; 0 if none has failed. Does not block.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_error_number() -> c_int {
    let number = |place: &RefCell<Option<Latest>>| place.borrow().as_ref().map_or(0, |l| l.errno);
    LATEST.try_with(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn message() -> String {
        // SAFETY: the message is read before the next call that fails.
        let text = unsafe { CStr::from_ptr(diorite_error_message()) };
        text.to_string_lossy().into_owned()
    }

    #[test]
    fn a_call_that_fails_leaves_number_and_message() {
        assert_eq!((diorite_error_number(), message().as_str()), (0, ""));
        let failed: i64 = border(|| Err(Fault::invalid("no\0 such thing")));
        assert_eq!((failed, diorite_error_number()), (-22, 22));
        assert_eq!(message(), "no");
        let well: c_int = border(|| Ok(7));
        assert_eq!(
            (well, diorite_error_number()),
            (7, 22),
            "a success leaves it"
        );
    }

    #[test]
    fn no_panic_crosses_the_border() {
        let panicked: c_int = border(|| panic!("on purpose"));
        assert_eq!(panicked, -libc::ENOTRECOVERABLE);
        assert!(message().contains("panicked"), "{}", message());
    }
}
