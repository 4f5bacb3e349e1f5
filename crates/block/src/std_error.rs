//! Errors of bios and devices as errors of the standard library, and back.
//!
//! Input: errors of calls of the host, and of code above `std::io`. Output: the other kind, for `?`. Invariants: the error that it began
//! with is the source, and comes out again on the way back. Limits: the kinds of the standard library are fewer.

use crate::bio::{BioError, BioErrorKind};
use crate::device::DeviceError;
use std::io::{self, ErrorKind};

/// The error of a call that carried out a bio.
impl From<&io::Error> for BioError {
    fn from(error: &io::Error) -> BioError {
        match error.raw_os_error() {
            Some(errno) => BioError::from_errno(errno),
            None => BioError::new(match error.kind() {
                ErrorKind::StorageFull => BioErrorKind::NoSpace,
                ErrorKind::Unsupported => BioErrorKind::Unsupported,
                _ => BioErrorKind::Io,
            }),
        }
    }
}

/// The error becomes the source; its kind is [`BioError::io_kind`].
impl From<BioError> for io::Error {
    fn from(error: BioError) -> io::Error {
        io::Error::new(error.io_kind(), error)
    }
}

/// The error becomes the source; its kind is [`DeviceError::io_kind`].
impl From<DeviceError> for io::Error {
    fn from(error: DeviceError) -> io::Error {
        io::Error::new(error.io_kind(), error)
    }
}

/// An error that was one of a device is that again; another one is the host's.
impl From<io::Error> for DeviceError {
    fn from(error: io::Error) -> DeviceError {
        match error.downcast::<DeviceError>() {
            Ok(error) => error,
            Err(error) => {
                let mut host = DeviceError::host("", error);
                host.what = host.what.trim_start_matches(": ").to_owned();
                host
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceErrorKind;

    /// What `?` makes of an error keeps its kind, its text and the error itself.
    #[test]
    fn errors_go_through_the_standard_library_and_back() {
        let held = DeviceError::new(DeviceErrorKind::Held, "disk.img: in use");
        let through = io::Error::from(held);
        assert_eq!(through.kind(), ErrorKind::ResourceBusy);
        assert_eq!(through.to_string(), "disk.img: in use");
        let back = DeviceError::from(through);
        assert_eq!(
            (back.kind, &*back.what),
            (DeviceErrorKind::Held, "disk.img: in use")
        );
        let host = DeviceError::from(io::Error::from_raw_os_error(libc::ENOENT));
        assert_eq!(
            (host.kind, host.io_kind()),
            (DeviceErrorKind::NotFound, ErrorKind::NotFound)
        );
        assert!(host.what.starts_with("No such file"), "{}", host.what);
    }

    #[test]
    fn errors_of_bios_have_the_kinds_of_their_numbers() {
        let kinds = [
            (libc::ENOSPC, ErrorKind::StorageFull),
            (libc::EAGAIN, ErrorKind::WouldBlock),
            (libc::EINVAL, ErrorKind::InvalidInput),
            (libc::EOPNOTSUPP, ErrorKind::Unsupported),
            (libc::EROFS, ErrorKind::ReadOnlyFilesystem),
            (libc::ETIMEDOUT, ErrorKind::TimedOut),
        ];
        for (errno, kind) in kinds {
            let error = BioError::from_errno(errno);
            let through = io::Error::from(error);
            assert_eq!((through.kind(), error.io_kind()), (kind, kind));
            let back = through.downcast::<BioError>();
            assert_eq!(back.expect("it is the source"), error);
        }
        let ours = BioError::new(BioErrorKind::Io);
        assert_eq!(ours.io_kind(), ErrorKind::Other);
    }
}
