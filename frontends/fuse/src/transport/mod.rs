//! `/dev/fuse`: requests in, replies out.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `mount` | a mount point and options -> a descriptor of `/dev/fuse` that serves it; a mount point -> nothing mounted there |
//! | `mod` | the descriptor -> requests; replies -> the kernel |
//!
//! Input: the kernel's requests. Output: the kernel's replies. Invariants: the data of a write comes in at the start of a buf, so that it
//! goes to the device without a copy; a reply is one call. Limits: the `unsafe` blocks of this crate are here: the ioctl that clones
//! a descriptor, and the loan of one by its number. Source: man 4 fuse.

mod mount;

pub use mount::{MountError, is_mounted_from, mount, receive, remount, send, source_of, unmount};

use crate::wire::input::HEADER;
use crate::wire::{MOST_DATA, output};
use diorite_block::{Buf, Shared};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, IoSlice, IoSliceMut, readv, writev};
use std::sync::Arc;

/// The path of the device.
const DEVICE: &str = "/dev/fuse";

/// What precedes the data of a write: the header, and `fuse_write_in`.
const BEFORE_DATA: usize = HEADER + 40;

/// The kernel refuses to give requests to who has room for less than the largest write, its header and a page.
const ROOM: usize = MOST_DATA + 4096;

/// One way to the kernel. Several of them serve one mount.
#[derive(Clone, Debug)]
pub struct Channel(Arc<OwnedFd>);

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// One request. Its memory is reused for the next.
#[derive(Debug)]
pub struct Incoming {
    before: [u8; BEFORE_DATA],
    data: Shared,
    len: usize,
    /// Both parts of a request that is not a write.
    whole: Vec<u8>,
}

impl Incoming {
    /// Memory for requests. None if the host gives none.
    #[must_use]
    pub fn try_new() -> Option<Incoming> {
        let mut data = Shared::try_zeroed(ROOM)?;
        // Touched now: later there may be no memory to be had.
        data.bytes_mut()?.fill(0);
        Some(Incoming {
            before: [0; BEFORE_DATA],
            data,
            len: 0,
            whole: Vec::with_capacity(MOST_DATA / 8),
        })
    }

    /// The bytes in front of the data of a write: all of them, if the request is as long.
    #[must_use]
    pub fn before(&self) -> &[u8] {
        &self.before[..self.len.min(BEFORE_DATA)]
    }

    /// All bytes of the request, in one piece.
    pub fn whole(&mut self) -> &[u8] {
        let behind = self.len.saturating_sub(BEFORE_DATA);
        self.whole.clear();
        self.whole
            .extend_from_slice(&self.before[..self.len.min(BEFORE_DATA)]);
        self.whole.extend_from_slice(&self.data.bytes()[..behind]);
        &self.whole
    }

    /// How many bytes of data a write has brought.
    #[must_use]
    pub fn data_len(&self) -> usize {
        self.len.saturating_sub(BEFORE_DATA)
    }

    /// The data of a write.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data.bytes()[..self.data_len()]
    }

    /// The first `len` bytes of the data, for a device to write. The next request needs them back.
    #[must_use]
    pub fn lend(&self, len: usize) -> Buf {
        self.data.lend(0..len)
    }
}

/// A descriptor that this process was started with, by its number: a second one for what the number names. Programs that this process
/// starts get neither.
///
/// # Errors
/// EBADF.
pub fn inherited(number: u32) -> Result<OwnedFd, Errno> {
    let number = i32::try_from(number).map_err(|_| Errno::BADF)?;
    // SAFETY: the number is borrowed for one call, which checks it; nothing is closed. Whoever gives the number has opened it for this.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)?;
    rustix::io::fcntl_dupfd_cloexec(borrowed, 3)
}

impl Channel {
    /// The way that this descriptor is.
    #[must_use]
    pub fn new(fd: OwnedFd) -> Channel {
        Channel(Arc::new(fd))
    }

    /// A further descriptor of the same mount, with a list of its own of requests under way. The same one, if the process may not open
    /// the device: then somebody else has opened it on its behalf.
    #[must_use]
    pub fn another(&self) -> Channel {
        match self.cloned() {
            Ok(fd) => Channel::new(fd),
            Err(_) => self.clone(),
        }
    }

    fn cloned(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let fd = rustix::fs::open(DEVICE, flags, Mode::empty())?;
        /// FUSE_DEV_IOC_CLONE, `_IOR(229, 0, uint32_t)`.
        const CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);
        let number = self.0.as_raw_fd().cast_unsigned();
        // SAFETY: the operation reads one u32, the number of a descriptor of the mount, which is open during the call. It keeps no pointer.
        unsafe {
            rustix::ioctl::ioctl(&fd, rustix::ioctl::Setter::<CLONE, u32>::new(number))?;
        }
        Ok(fd)
    }

    /// Waits for a request. False: the mount is gone.
    ///
    /// # Errors
    /// Those of readv(2) that mean neither.
    pub fn receive(&self, request: &mut Incoming) -> Result<bool, Errno> {
        loop {
            let data = request.data.bytes_mut().ok_or(Errno::NOMEM)?;
            let mut parts = [IoSliceMut::new(&mut request.before), IoSliceMut::new(data)];
            match readv(&self.0, &mut parts) {
                Ok(len) => {
                    request.len = len;
                    return Ok(true);
                }
                // ENOENT: the request was taken back while it was handed over.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Replies with the bytes, or with an error.
    ///
    /// # Errors
    /// ENOENT: the caller was interrupted and does not wait for the reply any more.
    pub fn reply(&self, unique: u64, body: Result<&[u8], Errno>) -> Result<(), Errno> {
        let error = body.err().map_or(0, |e| -e.raw_os_error());
        let body = body.unwrap_or_default();
        let header = output::header(body.len(), error, unique);
        let parts = [IoSlice::new(&header), IoSlice::new(body)];
        writev(&self.0, &parts).map(drop)
    }
}
