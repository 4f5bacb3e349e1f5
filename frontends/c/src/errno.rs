//! The error number of each error.
//!
//! Input: errors of the engine, of images, devices and the host. Output: positive error numbers. Invariant: the numbers are those of the
//! kernel's ext4 in the same case; damage is EUCLEAN, as there. Limits: what a number cannot tell is in the message.

use diorite::Error;
use diorite::device::DeviceErrorKind;
use diorite_block::{BioError, BioErrorKind, DeviceError};
use libc::c_int;
use std::io;

/// Of an error of the engine.
pub(crate) fn of_engine(error: &Error) -> c_int {
    if error.is_corrupt() {
        return libc::EUCLEAN;
    }
    match error.root() {
        Error::Device { error, .. } => of_bio(error),
        Error::Open(error) => of_device(error),
        Error::DeviceFull(_)
        | Error::NoSpace { .. }
        | Error::NoInodes { .. }
        | Error::DirectoryFull { .. }
        | Error::AttributesFull { .. }
        | Error::AtomicTooLarge { .. } => libc::ENOSPC,
        Error::Unaligned { .. } | Error::Invalid(_) => libc::EINVAL,
        Error::NotAttached => libc::EBADF,
        Error::WouldBlock(_) => libc::EAGAIN,
        Error::NoMemory { .. } => libc::ENOMEM,
        Error::Format(_) | Error::NotYet(_) | Error::NotSupported(_) | Error::Refused(_) => {
            libc::EOPNOTSUPP
        }
        Error::Mkfs(error) => of_kind(error.kind()),
        Error::TooBig { .. } => libc::EFBIG,
        Error::ReadOnly(_) | Error::Aborted(_) => libc::EROFS,
        Error::NotPermitted { .. } => libc::EPERM,
        Error::InAtomic | Error::CutInAtomic { .. } | Error::WrittenInAtomic { .. } => libc::EBUSY,
        Error::AttributeName { .. } => libc::ERANGE,
        Error::AttributeTooBig { .. } => libc::E2BIG,
        Error::AttributeExists { .. } | Error::Exists { .. } => libc::EEXIST,
        Error::NoAttribute { .. } => libc::ENODATA,
        Error::NotFound { .. } => libc::ENOENT,
        Error::NotInUse { .. } => libc::ESTALE,
        Error::NotADirectory { .. } => libc::ENOTDIR,
        Error::IsADirectory { .. } => libc::EISDIR,
        Error::NotEmpty { .. } => libc::ENOTEMPTY,
        Error::Busy { .. } => libc::EBUSY,
        Error::NameTooLong { .. } => libc::ENAMETOOLONG,
        Error::TooManyLinks { .. } => libc::EMLINK,
        Error::SymlinkLoop { .. } => libc::ELOOP,
        Error::ShutDown => libc::ESHUTDOWN,
        Error::Panicked => libc::ENOTRECOVERABLE,
        _ => libc::EIO,
    }
}

/// Of an error of images: of the engine, of the host, or of a source.
pub(crate) fn of_image(error: &diorite_image::Error) -> c_int {
    match error.root() {
        diorite_image::Error::Engine(error) => of_engine(error),
        diorite_image::Error::Io(error) => of_host(error),
        _ => libc::EINVAL,
    }
}

/// Of a device that cannot be opened.
pub(crate) fn of_device(error: &DeviceError) -> c_int {
    if let Some(errno) = error.source.as_ref().and_then(io::Error::raw_os_error) {
        return errno;
    }
    match error.kind {
        DeviceErrorKind::Locator => libc::EINVAL,
        DeviceErrorKind::NotFound => libc::ENOENT,
        DeviceErrorKind::Denied => libc::EACCES,
        DeviceErrorKind::Held => libc::EBUSY,
        DeviceErrorKind::Unsupported => libc::EOPNOTSUPP,
        _ => libc::EIO,
    }
}

/// Of a request that a device has failed: whatever the host said, a file system has no space, may not be written, or fails.
fn of_bio(error: &BioError) -> c_int {
    match error.kind {
        BioErrorKind::NoSpace => libc::ENOSPC,
        BioErrorKind::ReadOnly => libc::EROFS,
        BioErrorKind::Unsupported => libc::EOPNOTSUPP,
        _ => libc::EIO,
    }
}

/// Of a call of the host.
pub(crate) fn of_host(error: &io::Error) -> c_int {
    error
        .raw_os_error()
        .unwrap_or_else(|| of_kind(error.kind()))
}

fn of_kind(kind: io::ErrorKind) -> c_int {
    match kind {
        io::ErrorKind::NotFound => libc::ENOENT,
        io::ErrorKind::AlreadyExists => libc::EEXIST,
        io::ErrorKind::PermissionDenied => libc::EACCES,
        io::ErrorKind::StorageFull => libc::ENOSPC,
        io::ErrorKind::InvalidInput => libc::EINVAL,
        io::ErrorKind::InvalidData => libc::EUCLEAN,
        io::ErrorKind::OutOfMemory => libc::ENOMEM,
        io::ErrorKind::Unsupported => libc::EOPNOTSUPP,
        io::ErrorKind::ReadOnlyFilesystem => libc::EROFS,
        io::ErrorKind::FileTooLarge => libc::EFBIG,
        io::ErrorKind::ResourceBusy => libc::EBUSY,
        _ => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_numbers_of_the_kernel() {
        let path = || "/x".to_owned();
        let inner = Error::NotFound { path: path() };
        for (error, errno) in [
            (inner.at("there"), libc::ENOENT),
            (Error::Exists { path: path() }, libc::EEXIST),
            (Error::Damaged("x".into()), libc::EUCLEAN),
            (Error::ShutDown, libc::ESHUTDOWN),
            (Error::NotAttached, libc::EBADF),
            (Error::NoSpace { asked: 1, free: 0 }, libc::ENOSPC),
        ] {
            assert_eq!(of_engine(&error), errno, "{error}");
        }
        let full = io::Error::from_raw_os_error(libc::EDQUOT);
        assert_eq!(of_host(&full), libc::EDQUOT);
    }
}
