//! `/dev/fuse`: requests in, replies out.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `mount` | a mount point and options -> a descriptor of `/dev/fuse` that serves it; a mount point -> nothing mounted there |
//! | `mod` | the descriptor -> requests; replies -> the kernel |
//! | `incoming` | a request's bytes -> its parts; its memory for what a reply brings |
//! | `ring` | the descriptor -> requests and replies through io_uring, for one processor |
//! | `place` | memory that the kernel puts a request into -> its parts; a reply -> that memory |
//! | `nearby` | the requests of all processors -> where a ring's thread runs |
//! | `instead` | the descriptor of a mount whose server is dead, but not gone -> errors for all callers |
//! | `awake` | whether requests follow each other closely -> processors that stay awake meanwhile |
//! | `spinners` | whether processors are to stay awake -> threads that run where nothing else does |
//! | `watch` | the threads of a mount, and what they have received -> which of them waits for the next request |
//!
//! Input: the kernel's requests. Output: the kernel's replies. Invariants: the data of a write comes in at the start of a buf, so that it
//! goes to the device without a copy, and so does that of a read; a reply is one call. Limits: the `unsafe` blocks of this crate are in
//! this module. Source: man 4 fuse.

mod awake;
mod incoming;
mod instead;
mod mount;
mod nearby;
mod place;
mod ring;
mod spinners;
mod watch;

pub use awake::LATENCY;
pub use incoming::Incoming;
pub use instead::Instead;
pub use nearby::Crowd;
pub(crate) use ring::each as rings_of_each;
pub use ring::{MOST_PLACES, MOST_PROCESSORS, Ring, Slot, processors, stock_rings};

pub use mount::{
    Entry, MountError, find_mounted, mount, mount_number, mounted_at, mounts_of, receive, remount,
    send, unmount,
};

use crate::wire::input::Header;
use crate::wire::output;
use crate::wire::{NOTIFY_INVAL_INODE, op};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, IoSlice, readv, writev};
use std::ops::Range;
use std::sync::Arc;
use watch::{Source, Watch};

/// The path of the device.
const DEVICE: &str = "/dev/fuse";

/// One way to the kernel. Several of them serve one mount.
#[derive(Clone, Debug)]
pub struct Channel {
    /// Returns at once if there is no request.
    fd: Arc<OwnedFd>,
    /// That of the mount.
    watch: Arc<Watch>,
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What a reply has behind its header.
#[derive(Clone, Copy, Debug)]
pub enum Reply<'a> {
    /// These bytes.
    Out(&'a [u8]),
    /// So many bytes of the request's memory.
    Data(usize),
    /// Nothing: it failed.
    Failed(Errno),
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

/// Makes all threads of this process the user nobody's, who owns no file that matters: what is open stays open.
///
/// # Errors
/// EPERM: it is not root's process.
pub fn become_nobody() -> Result<(), Errno> {
    /// The user and the group that the kernel shows for those that it cannot show.
    const NOBODY: u32 = 65534;
    let done = |result: i32| match result {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::PERM)),
    };
    // SAFETY: the three calls take numbers only, and an empty list. The C library has all threads change together.
    unsafe {
        done(libc::setgroups(0, std::ptr::null()))?;
        done(libc::setresgid(NOBODY, NOBODY, NOBODY))?;
        done(libc::setresuid(NOBODY, NOBODY, NOBODY))
    }
}

/// Closes all descriptors but the first three and those with the numbers `kept`: a process that goes on for long must not hold what
/// somebody else has left open for it. Call it before anything is opened but `kept`.
pub fn close_others(mut kept: Vec<u32>) {
    kept.sort_unstable();
    let mut first = 3;
    for next in kept.into_iter().chain([u32::MAX]) {
        if first < next {
            let last = if next == u32::MAX { next } else { next - 1 };
            // SAFETY: the call takes numbers only. By the function's rule nobody in this process owns one of the descriptors that it
            // closes. A kernel without it (before 5.9) leaves them open.
            let _ = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
        first = next.saturating_add(1).max(first);
    }
}

fn set_nonblocking(fd: &OwnedFd) -> Result<(), Errno> {
    rustix::fs::fcntl_setfl(fd, OFlags::RDWR | OFlags::NONBLOCK)
}

impl Channel {
    /// The way that this descriptor is. `looks`: a thread that has replied looks for the next request for a moment before it sleeps.
    #[must_use]
    pub fn new(fd: OwnedFd, looks: bool) -> Channel {
        // Of a descriptor that cannot be set, nothing can be received either.
        let _ = set_nonblocking(&fd);
        Channel {
            fd: Arc::new(fd),
            watch: Arc::new(Watch::new(looks)),
        }
    }

    /// A further descriptor of the same mount, with a list of its own of requests under way. The same one, if the process may not open
    /// the device: then somebody else has opened it on its behalf.
    #[must_use]
    pub fn another(&self) -> Channel {
        match self.cloned() {
            Ok(fd) => Channel {
                fd: Arc::new(fd),
                watch: self.watch.clone(),
            },
            Err(_) => self.clone(),
        }
    }

    fn cloned(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let fd = rustix::fs::open(DEVICE, flags, Mode::empty())?;
        /// FUSE_DEV_IOC_CLONE, `_IOR(229, 0, uint32_t)`.
        const CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);
        let number = self.fd.as_raw_fd().cast_unsigned();
        // SAFETY: the operation reads one u32, the number of a descriptor of the mount, which is open during the call. It keeps no pointer.
        unsafe {
            rustix::ioctl::ioctl(&fd, rustix::ioctl::Setter::<CLONE, u32>::new(number))?;
        }
        set_nonblocking(&fd)?;
        Ok(fd)
    }

    /// Waits for a request. False: the mount is gone.
    ///
    /// # Errors
    /// Those of readv(2) that mean neither, and of poll(2).
    pub fn receive(&self, request: &mut Incoming) -> Result<bool, Errno> {
        let mut receiving = Receiving {
            channel: self,
            request,
        };
        self.watch.receive(&mut receiving)
    }

    /// Whether there is a request, or the mount is gone. `waits`: until that is so, or a signal has come.
    fn is_readable(&self, waits: bool) -> Result<bool, Errno> {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        let at_once = rustix::event::Timespec::default();
        match poll(&mut fds, (!waits).then_some(&at_once)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(waits),
            Err(error) => Err(error),
        }
    }

    /// The request that was received may block: another thread waits for the next one from now on, if one has nothing to do.
    pub fn hand_over(&self) {
        self.watch.hand_over();
    }

    /// Whether a thread that has replied looks for the next request for a moment.
    fn looks(&self) -> bool {
        self.watch.may_look()
    }

    /// A request came while a thread of a ring looked for it.
    fn came_soon(&self) {
        self.watch.came_soon();
    }

    /// None came while a thread of a ring looked for it.
    fn rest(&self) {
        self.watch.rest();
    }

    /// Requests come through rings: who waits here for the rest sleeps at once.
    pub fn has_rings(&self) {
        self.watch.sleeps_at_once();
    }

    /// None: there is no request now.
    fn receive_once(&self, request: &mut Incoming) -> Result<Option<bool>, Errno> {
        let mut parts = request.parts().ok_or(Errno::NOMEM)?;
        match readv(&self.fd, &mut parts) {
            Ok(len) => {
                request.came(len);
                Ok(Some(true))
            }
            // ENOENT: the request was taken back while it was handed over.
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => Ok(None),
            Err(Errno::NODEV | Errno::CONNABORTED) => Ok(Some(false)),
            Err(error) => Err(error),
        }
    }

    /// Replies to `request`.
    ///
    /// # Errors
    /// ENOENT: the caller was interrupted and does not wait for the reply any more.
    pub fn reply(&self, unique: u64, request: &Incoming, reply: Reply<'_>) -> Result<(), Errno> {
        let (body, error) = match reply {
            Reply::Out(bytes) => (bytes, 0),
            Reply::Data(len) => (&request.memory()[..len], 0),
            Reply::Failed(error) => (&[][..], -error.raw_os_error()),
        };
        let header = output::header(body.len(), error, unique);
        let parts = [IoSlice::new(&header), IoSlice::new(body)];
        let sent = writev(&self.fd, &parts).map(drop);
        self.watch.replied();
        sent
    }

    /// Has the kernel forget the attributes of a node. Waits for nobody. An error is that it does not know the node, and so has nothing of
    /// it.
    pub fn forget_attributes(&self, node: u64) {
        self.notify(node, -1, 0);
    }

    /// Has the kernel forget the attributes of a node, and its pages in `bytes`; it hands over those that were changed. Blocks until that
    /// is written, and until whoever has one of these pages locked has got a reply, by other threads. An error is that it does not know the
    /// node, as above, or that what it handed over was refused.
    pub fn forget_pages(&self, node: u64, bytes: Range<u64>) {
        self.hand_over();
        let len = bytes.end - bytes.start;
        self.notify(node, bytes.start.cast_signed(), len.cast_signed());
    }

    /// `fuse_notify_inval_inode_out`.
    fn notify(&self, node: u64, from: i64, len: i64) {
        let mut body = [0; 24];
        body[..8].copy_from_slice(&node.to_ne_bytes());
        body[8..16].copy_from_slice(&from.to_ne_bytes());
        body[16..].copy_from_slice(&len.to_ne_bytes());
        let header = output::header(body.len(), NOTIFY_INVAL_INODE, 0);
        let _refused = writev(&self.fd, &[IoSlice::new(&header), IoSlice::new(&body)]);
    }
}

/// A thread that waits for a request.
struct Receiving<'r> {
    channel: &'r Channel,
    request: &'r mut Incoming,
}

impl Source for Receiving<'_> {
    type Error = Errno;

    fn take(&mut self) -> Result<Option<bool>, Errno> {
        self.channel.receive_once(self.request)
    }

    fn is_ready(&self, waits: bool) -> Result<bool, Errno> {
        self.channel.is_readable(waits)
    }

    fn is_brief(&self) -> bool {
        let header = Header::parse(self.request.before());
        header.is_ok_and(|header| matches!(header.op, op::FORGET | op::BATCH_FORGET | op::RELEASE))
    }
}

/// One way of requests and replies.
#[derive(Debug)]
pub enum Line {
    /// `/dev/fuse` itself.
    Device(Channel),
    /// io_uring.
    Ring(Box<Ring>),
}

impl Line {
    /// Prepares the thread that will use it. Does not wait.
    ///
    /// # Errors
    /// The kernel refuses io_uring.
    pub fn start(&mut self) -> Result<(), Errno> {
        match self {
            Line::Device(_) => Ok(()),
            Line::Ring(ring) => ring.start(),
        }
    }

    /// Another one like this, for one more thread. None without memory.
    #[must_use]
    pub fn another(&self) -> Option<(Line, Incoming)> {
        match self {
            Line::Device(channel) => {
                let request = Incoming::try_new()?;
                Some((Line::Device(channel.another()), request))
            }
            Line::Ring(ring) => {
                let (ring, request) = ring.another()?;
                Some((Line::Ring(Box::new(ring)), request))
            }
        }
    }

    /// A ring without places, for a thread that borrows them: see [`Line::lend`]. None: the host has no further ring.
    #[must_use]
    pub fn borrower(&self) -> Option<Line> {
        match self {
            Line::Device(_) => None,
            Line::Ring(ring) => ring.without_places().map(Box::new).map(Line::Ring),
        }
    }

    /// Whether requests may be here that wait for the one that the thread has. If not, there are none until it receives the next one.
    #[must_use]
    pub fn has_others(&mut self) -> bool {
        match self {
            Line::Device(_) => false,
            Line::Ring(ring) => ring.has_others(),
        }
    }

    /// The place of the request that was received, with that, for another thread. None: there is no such place.
    pub fn lend(&mut self, request: &mut Incoming) -> Option<Slot> {
        match self {
            Line::Device(_) => None,
            Line::Ring(ring) => ring.lend(request),
        }
    }

    /// Takes a place that was lent, with its request. False: this line takes none.
    pub fn adopt(&mut self, slot: Slot, request: &mut Incoming) -> bool {
        match self {
            Line::Device(_) => false,
            Line::Ring(ring) => ring.adopt(slot, request),
        }
    }

    /// Gives a place that was lent back, with the request that it has by now, if the thread that it belongs to is awake. False: it is still
    /// here.
    pub fn give_back(&mut self, request: &mut Incoming) -> bool {
        match self {
            Line::Device(_) => false,
            Line::Ring(ring) => ring.give_back(request),
        }
    }

    /// Waits for a request. False: the mount is gone. A request that was received before must have got its reply.
    ///
    /// # Errors
    /// The kernel refuses to give any.
    pub fn receive(&mut self, request: &mut Incoming) -> Result<bool, Errno> {
        match self {
            Line::Device(channel) => channel.receive(request),
            Line::Ring(ring) => ring.receive(request),
        }
    }

    /// The request that was received may block: another thread waits for the next one meanwhile.
    pub fn hand_over(&self) {
        match self {
            Line::Device(channel) => channel.hand_over(),
            // A ring's requests wait for its own thread.
            Line::Ring(_) => {}
        }
    }

    /// Replies to `request`, at the latest when the next one is waited for.
    ///
    /// # Errors
    /// As of [`Channel::reply`]; io_uring reports none.
    pub fn reply(
        &mut self,
        unique: u64,
        request: &mut Incoming,
        reply: Reply<'_>,
    ) -> Result<(), Errno> {
        match self {
            Line::Device(channel) => channel.reply(unique, request, reply),
            Line::Ring(ring) => {
                ring.reply(unique, request, reply);
                Ok(())
            }
        }
    }
}
