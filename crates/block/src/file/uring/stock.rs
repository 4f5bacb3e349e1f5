//! Rings that are made ahead, for a process that may make none later: one in a sandbox.
//!
//! Input: a number. Output: rings for queues, and their return. Invariants: a ring of the stock takes only the operations that queues use
//! and is registered for nothing else, whoever has the process: such a ring reaches what the process's system calls reach, and no more;
//! a ring that comes back has nothing in flight and knows no file, no memory and no eventfd. Limits: queues of at most [`MOST_DEPTH`];
//! once there is a stock, a queue that finds no ring in it has to use another engine.

use super::ring::{OPERATIONS, Users, make};
use crate::sync::{DEVICE_SHARED, Mutex};
use io_uring::IoUring;
use io_uring::register::Restriction;
use io_uring::squeue::Flags;
use rustix::fd::{AsRawFd, BorrowedFd};
use std::fmt;
use std::io;
use std::ops::Deref;
use std::sync::OnceLock;

/// Entries of a ring's queues.
const SUBMITTED: u32 = 256;
const COMPLETED: u32 = 512;
/// A few completions are the waker's.
const MOST_DEPTH: u32 = COMPLETED - 8;

/// What queues register with their rings, by the numbers of `io_uring_register(2)`: buffers, files, an eventfd.
const REGISTERS: [u8; 6] = [1, 4, 5, 6, 15, 16];

struct Stock {
    made: usize,
    rings: Mutex<Vec<IoUring>>,
    /// Why there are no more of them.
    refused: Option<io::Error>,
}

/// The stock has no ring left for a queue. Others come back to it.
#[derive(Debug)]
struct Empty;

impl fmt::Display for Empty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("all rings that were made ahead are in use, or the queue is too deep for them")
    }
}

impl std::error::Error for Empty {}

/// Whether that is the reason.
pub(in crate::file) fn is_empty(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Empty>())
}

static STOCK: OnceLock<Stock> = OnceLock::new();

/// Makes the stock, of up to `count` rings: fewer if the host gives fewer. From now on no other rings are made. Returns how many there are.
pub(in crate::file) fn fill(count: usize) -> usize {
    let stock = STOCK.get_or_init(|| {
        let mut refused = None;
        let rings = std::iter::from_fn(|| restricted().map_err(|e| refused = Some(e)).ok());
        let rings: Vec<IoUring> = rings.take(count).collect();
        Stock {
            made: rings.len(),
            rings: Mutex::new(&DEVICE_SHARED, rings),
            refused,
        }
    });
    stock.made
}

/// Whether there is a stock, and why it has no rings at all, if so.
pub(super) fn probe() -> Option<io::Result<()>> {
    let stock = STOCK.get()?;
    let why = || match &stock.refused {
        Some(e) => e.raw_os_error().map_or_else(
            || io::Error::new(e.kind(), e.to_string()),
            io::Error::from_raw_os_error,
        ),
        None => io::Error::other(Empty),
    };
    Some((stock.made > 0).then_some(()).ok_or_else(why))
}

fn restricted() -> io::Result<IoUring> {
    let ring = make(
        SUBMITTED,
        COMPLETED,
        &[Users::Restricted, Users::PlainRestricted],
    )?
    .0;
    let flags = Flags::IO_LINK | Flags::ASYNC | Flags::FIXED_FILE;
    let mut all: Vec<Restriction> = OPERATIONS.into_iter().map(Restriction::sqe_op).collect();
    all.extend(REGISTERS.map(Restriction::register_op));
    all.push(Restriction::sqe_flags_allowed(flags.bits()));
    let submitter = ring.submitter();
    submitter.register_restrictions(&mut all)?;
    submitter.register_files(&[-1])?;
    submitter.register_enable_rings()?;
    Ok(ring)
}

/// A ring of one queue.
pub(super) struct Own {
    /// Some until it is dropped.
    ring: Option<IoUring>,
    from_stock: bool,
    /// It may go back.
    is_clean: bool,
}

impl Own {
    /// A ring that was made for the queue.
    pub(super) fn new(ring: IoUring) -> Own {
        Own {
            ring: Some(ring),
            from_stock: false,
            is_clean: false,
        }
    }

    /// A ring of the stock, for a queue of this depth on this file. None: there is no stock.
    ///
    /// # Errors
    /// The stock has none ([`is_empty`]), or the host's error.
    pub(super) fn take(depth: u32, file: BorrowedFd<'_>) -> Option<io::Result<Own>> {
        let stock = STOCK.get()?;
        let ring = match depth <= MOST_DEPTH {
            true => stock.rings.lock().pop(),
            false => None,
        };
        let Some(ring) = ring else {
            return Some(Err(io::Error::other(Empty)));
        };
        let own = Own {
            ring: Some(ring),
            from_stock: true,
            is_clean: true,
        };
        let registered = own
            .submitter()
            .register_files_update(0, &[file.as_raw_fd()]);
        Some(registered.map(|_| own))
    }

    /// Whether it goes back to the stock.
    pub(super) fn is_from_stock(&self) -> bool {
        self.from_stock
    }

    /// Something is in flight that is not known any more: the ring cannot be used again.
    pub(super) fn spoil(&mut self) {
        self.is_clean = false;
    }

    /// Has it forget what was registered.
    fn forget(&self, ring: &IoUring) -> io::Result<()> {
        let submitter = ring.submitter();
        submitter.register_files_update(0, &[-1])?;
        for unregistered in [
            submitter.unregister_eventfd(),
            submitter.unregister_buffers(),
        ] {
            match unregistered {
                Err(e) if e.raw_os_error() != Some(libc::ENXIO) => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Deref for Own {
    type Target = IoUring;

    fn deref(&self) -> &IoUring {
        self.ring.as_ref().expect("it is there until the drop")
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let Some(ring) = self.ring.take_if(|_| self.from_stock && self.is_clean) else {
            return;
        };
        if let (Ok(()), Some(stock)) = (self.forget(&ring), STOCK.get()) {
            stock.rings.lock().push(ring);
        }
    }
}
