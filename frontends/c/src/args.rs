//! Arguments of C as values of Rust: texts, memory, structures that may grow.
//!
//! Input: pointers, lengths, flags. Output: what they stand for, or EFAULT for NULL, EINVAL, E2BIG. Invariants: nothing is read through
//! NULL; a structure of an older or newer header is understood as far as both know it. Limits: a pointer that is not NULL is believed.

use crate::error::Fault;
use diorite::dir::At;
use diorite::{Ino, Volume};
use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The directory argument of calls that take a whole path.
pub const DIORITE_AT_ROOT: u64 = 0;

/// Bytes of the largest structure that a newer header may have.
const LARGEST: usize = 4096;

/// A C string's bytes.
///
/// # Safety
/// `text` is NULL or NUL-terminated, and lives as long as the result.
pub(crate) unsafe fn bytes<'a>(text: *const c_char, what: &str) -> Result<&'a [u8], Fault> {
    if text.is_null() {
        return Err(null(what));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// A C string that has to be UTF-8.
///
/// # Safety
/// As of [`bytes`].
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Fault> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { bytes(text, what) }?;
    std::str::from_utf8(bytes).map_err(|_| Fault::invalid(format!("{what} is not UTF-8")))
}

/// As [`text`]; None for NULL.
///
/// # Safety
/// As of [`bytes`].
pub(crate) unsafe fn text_or_none<'a>(
    pointer: *const c_char,
    what: &str,
) -> Result<Option<&'a str>, Fault> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { text(pointer, what) }.map(Some)
}

/// A path of the host.
pub(crate) fn host_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

#[cold]
pub(crate) fn null(what: &str) -> Fault {
    Fault::new(libc::EFAULT, format!("{what} is NULL"))
}

/// A result's place.
///
/// # Safety
/// The pointer is NULL or points to a value that this may write.
pub(crate) unsafe fn out<'a, T>(place: *mut T, what: &str) -> Result<&'a mut T, Fault> {
    // SAFETY: the caller's promise.
    unsafe { place.as_mut() }.ok_or_else(|| null(what))
}

/// As `out`, for calls that give a handle: it is 0 until they succeed.
///
/// # Safety
/// As of [`out`].
pub(crate) unsafe fn handle<'a>(place: *mut u64, what: &str) -> Result<&'a mut u64, Fault> {
    // SAFETY: the caller's promise.
    let place = unsafe { out(place, what) }?;
    *place = 0;
    Ok(place)
}

/// What these locks guard is whole at every moment.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A buffer of the caller's to be read.
///
/// # Safety
/// `start` is NULL or `len` bytes there can be read as long as the result lives.
pub(crate) unsafe fn memory<'a>(start: *const u8, len: usize) -> Result<&'a [u8], Fault> {
    match NonNull::new(start.cast_mut()) {
        _ if len == 0 => Ok(&[]),
        Some(start) if len <= isize::MAX as usize => {
            // SAFETY: the caller's promise; the length was checked.
            Ok(unsafe { std::slice::from_raw_parts(start.as_ptr(), len) })
        }
        Some(_) => Err(Fault::invalid("more bytes than memory has")),
        None => Err(null("the buffer")),
    }
}

/// A buffer of the caller's to be written.
///
/// # Safety
/// `start` is NULL or `len` bytes there can be written, and are touched by nobody else, as long as the result lives.
pub(crate) unsafe fn memory_mut<'a>(start: *mut u8, len: usize) -> Result<&'a mut [u8], Fault> {
    match NonNull::new(start) {
        _ if len == 0 => Ok(&mut []),
        Some(start) if len <= isize::MAX as usize => {
            // SAFETY: the caller's promise; the length was checked.
            Ok(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) })
        }
        Some(_) => Err(Fault::invalid("more bytes than memory has")),
        None => Err(null("the buffer")),
    }
}

/// A structure that begins with its size in bytes, a `uint32_t`, and all of whose bytes may be zero.
///
/// # Safety
/// The type is as said: `repr(C)`, a `u32` first, and zeros are a value of it.
pub(crate) unsafe trait Grows: Copy {
    /// The size that the first version had.
    const LEAST: usize = size_of::<Self>();
}

/// A caller's structure, of this header's version, an older or a newer one. NULL stands for one of zeros. Bytes that this version does not
/// know have to be zero.
///
/// # Safety
/// The pointer is NULL, or as many bytes as the structure's first field says can be read.
pub(crate) unsafe fn sized<T: Grows>(from: *const T, what: &str) -> Result<T, Fault> {
    // SAFETY: zeros are a value of the type.
    let mut known: T = unsafe { std::mem::zeroed() };
    if from.is_null() {
        return Ok(known);
    }
    // SAFETY: the type begins with a u32, which can be read.
    let size = unsafe { from.cast::<u32>().read_unaligned() } as usize;
    if size < T::LEAST || size > LARGEST {
        let least = T::LEAST;
        return Err(Fault::invalid(format!(
            "{what}: its size field is {size}, which has to be from {least} to {LARGEST}: see DIORITE_INIT"
        )));
    }
    let common = size.min(size_of::<T>());
    // SAFETY: so many bytes can be read, by the caller's promise, and are in `known`.
    unsafe {
        from.cast::<u8>()
            .copy_to_nonoverlapping((&raw mut known).cast(), common)
    };
    // SAFETY: the caller's promise.
    let more = unsafe { std::slice::from_raw_parts(from.cast::<u8>().add(common), size - common) };
    if more.iter().any(|byte| *byte != 0) {
        let message = format!("{what}: a field that this version does not know is not zero");
        return Err(Fault::new(libc::E2BIG, message));
    }
    Ok(known)
}

/// Refuses flags that are not among `known`.
pub(crate) fn check_flags(flags: u32, known: u32, what: &str) -> Result<(), Fault> {
    match flags & !known {
        0 => Ok(()),
        odd => Err(Fault::invalid(format!(
            "{what}: {odd:#x} are no flags of it"
        ))),
    }
}

/// An inode's number.
pub(crate) fn ino(number: u64) -> Result<Ino, Fault> {
    let number = u32::try_from(number).ok().filter(|n| *n > 0);
    let none = || Fault::invalid("an inode number is from 1 to 2^32 - 1");
    number.map(Ino::new).ok_or_else(none)
}

/// Where a name is: a path from the root, or a name in a directory.
pub(crate) fn at(dir: u64, name: &[u8]) -> Result<At<'_>, Fault> {
    Ok(match dir {
        DIORITE_AT_ROOT => At::Path(name),
        dir => At::In(ino(dir)?, name),
    })
}

/// The inode at a path or name. In a directory by number the last name is all there is, and a symbolic link is not followed.
pub(crate) fn find(volume: &Volume, dir: u64, name: &[u8], follow: bool) -> Result<Ino, Fault> {
    let missing = |name: &[u8]| {
        let path = String::from_utf8_lossy(name).into_owned();
        Fault::from(diorite::Error::NotFound { path })
    };
    match dir {
        DIORITE_AT_ROOT if name.is_empty() => Err(missing(name)),
        DIORITE_AT_ROOT => Ok(volume.resolve(name, follow)?),
        dir => volume.lookup(ino(dir)?, name)?.ok_or_else(|| missing(name)),
    }
}

/// A time limit in nanoseconds; None for -1, which is never.
pub(crate) fn timeout(nanoseconds: i64) -> Result<Option<Duration>, Fault> {
    match nanoseconds {
        -1 => Ok(None),
        limit => {
            let limit = u64::try_from(limit).map_err(|_| Fault::invalid("a negative timeout"))?;
            Ok(Some(Duration::from_nanos(limit)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(C)]
    struct Options {
        size: u32,
        flags: u32,
        more: u64,
    }

    // SAFETY: repr(C), a u32 first, and any bytes are a value.
    unsafe impl Grows for Options {
        const LEAST: usize = 8;
    }

    fn read(words: &[u32]) -> Result<Options, i32> {
        // SAFETY: `sized` reads as many bytes as the first word says; the tests give that many, or are refused.
        unsafe { sized(words.as_ptr().cast::<Options>(), "options") }.map_err(|e| e.errno)
    }

    #[test]
    fn structures_of_other_versions_are_understood() {
        let of = |size, flags, more| Options { size, flags, more };
        assert_eq!(read(&[8, 5]), Ok(of(8, 5, 0)));
        assert_eq!(read(&[16, 5, 7, 0]), Ok(of(16, 5, 7)));
        assert_eq!(read(&[24, 5, 7, 0, 0, 0]), Ok(of(24, 5, 7)));
        assert_eq!(read(&[24, 5, 7, 0, 0, 1]), Err(libc::E2BIG));
        for size in [0, 7, 4097, u32::MAX] {
            assert_eq!(read(&[size, 5]), Err(libc::EINVAL), "{size}");
        }
        // SAFETY: NULL is permitted.
        let none = unsafe { sized::<Options>(std::ptr::null(), "options") };
        assert_eq!(none.ok(), Some(of(0, 0, 0)));
    }
}
