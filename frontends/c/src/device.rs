//! Devices of the host program: its own storage below a volume, with asynchronous completion.
//!
//! Input: functions of the host program. Output: a device. Invariants: each request is given to the host once, and its end is taken once; a
//! second end finds nothing; a queue waits for all of its requests before it goes. Limits: a fixed size.

use crate::args::{self, Grows, check_flags, handle, lock, sized, text};
use crate::error::{Fault, border};
use crate::handle::{Held, Table};
use diorite::device::{
    Bio, BioError, BioList, BioOp, Device, DeviceError, DeviceQueue, DeviceReport, Geometry,
    QueueOptions, Waker,
};
use libc::iovec;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A device of the host program. 0 is none.
pub type DeviceHandle = u64;

/// Fill the parts from `offset`.
pub const DIORITE_IO_READ: u32 = 1;
/// Write the parts at `offset`.
pub const DIORITE_IO_WRITE: u32 = 2;
/// Make durable all writes that have ended.
pub const DIORITE_IO_FLUSH: u32 = 3;
/// What is in the range is not needed any more.
pub const DIORITE_IO_DISCARD: u32 = 4;
/// The range reads as zeros afterwards.
pub const DIORITE_IO_WRITE_ZEROES: u32 = 5;

/// Of a write: it is durable when it ends.
pub const DIORITE_IO_FUA: u32 = 1;

/// The device has a volatile cache: writes are durable only after a flush.
pub const DIORITE_DEVICE_VOLATILE_CACHE: u32 = 1;
/// Writes are refused.
pub const DIORITE_DEVICE_READ_ONLY: u32 = 2;
/// It takes DIORITE_IO_DISCARD.
pub const DIORITE_DEVICE_DISCARD: u32 = 4;
/// It takes DIORITE_IO_WRITE_ZEROES.
pub const DIORITE_DEVICE_WRITE_ZEROES: u32 = 8;
/// It takes DIORITE_IO_FUA; without it a flush follows instead.
pub const DIORITE_DEVICE_FUA: u32 = 16;

/// A request to a device of the host program.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Io {
    /// For diorite_io_end.
    pub id: u64,
    /// In bytes: multiples of the logical block, inside the device.
    pub offset: u64,
    pub length: u64,
    /// The memory, `length` bytes in all: it may be used, and the array read, until diorite_io_end is called.
    pub iov: *const iovec,
    pub iov_count: u32,
    /// DIORITE_IO_...
    pub op: u32,
    /// DIORITE_IO_FUA or 0.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
}

/// What a device is, and how it works. Set @size by DIORITE_INIT.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DeviceOperations {
    /// sizeof(struct diorite_device_operations).
    pub size: u32,
    /// DIORITE_DEVICE_...
    pub flags: u32,
    /// Bytes of the device, a multiple of the logical block.
    pub bytes: u64,
    /// What positions and lengths are multiples of: a power of two, 512 to 65,536; 0: 512.
    pub logical: u32,
    /// What addresses are multiples of: a power of two, at most 4,096; 0: 1.
    pub memory_align: u32,
    /// Bytes of one request, at most; 0: 1 MiB.
    pub max_transfer: u32,
    /// Zero.
    pub reserved: u32,
    /// Starts a request. Returns 0: diorite_io_end is called for it, by any thread, once, during this call or later; or a negative error
    /// number: it has ended with that. *@io is valid during the call only. Does not wait for the I/O. It is called by any thread, also by
    /// several at once, under locks of the library: of its functions it may call diorite_io_end only.
    pub submit: Option<unsafe extern "C" fn(context: *mut c_void, io: *const Io) -> c_int>,
    /// Called once, when nothing uses the device any more; NULL: nobody is told.
    pub release: Option<unsafe extern "C" fn(context: *mut c_void)>,
}

// SAFETY: repr(C), a u32 first, and zeros are numbers and NULLs.
unsafe impl Grows for DeviceOperations {}

type Submit = unsafe extern "C" fn(context: *mut c_void, io: *const Io) -> c_int;

/// The host's functions.
struct Host {
    name: String,
    geometry: Geometry,
    submit: Submit,
    release: Option<unsafe extern "C" fn(context: *mut c_void)>,
    context: *mut c_void,
}

// SAFETY: the caller of `diorite_device_create` promises that any thread may call the functions with the context.
unsafe impl Send for Host {}
// SAFETY: as above.
unsafe impl Sync for Host {}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the host's function; this is the last use of the context.
            unsafe { release(self.context) };
        }
    }
}

struct HostDevice(Arc<Host>);

static DEVICES: Table<Arc<dyn Device>> = Table::new(5, "device");

/// Devices that are in use by a call.
pub(crate) fn hold(device: DeviceHandle) -> Result<Held<Arc<dyn Device>>, Fault> {
    DEVICES.hold(device)
}

/// Makes a device of functions of this program. @name is for messages. @context is passed through. @device gets the handle; it is 0 after
/// an error, and `release` is not called then. Does not block.
///
/// Errors: EFAULT, EINVAL, EMFILE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_device_create(
    name: *const c_char,
    operations: *const DeviceOperations,
    context: *mut c_void,
    device: *mut DeviceHandle,
) -> c_int {
    border(|| {
        // SAFETY: the caller's promises.
        let (device, name, of) = unsafe {
            let device = handle(device, "device")?;
            let operations = sized(operations, "diorite_device_operations")?;
            (device, text(name, "the name")?, operations)
        };
        let submit = of.submit.ok_or_else(|| args::null("submit"))?;
        let mut host = Host {
            name: name.to_owned(),
            geometry: geometry(&of)?,
            submit,
            release: None,
            context,
        };
        // From here on nothing fails but for lack of handles.
        host.release = of.release;
        let host = Arc::new(host);
        match DEVICES.insert(Arc::new(HostDevice(host.clone()))) {
            Ok(handle) => *device = handle,
            Err(fault) => {
                if let Some(mut host) = Arc::into_inner(host) {
                    host.release = None;
                }
                return Err(fault);
            }
        }
        Ok(0)
    })
}

fn geometry(of: &DeviceOperations) -> Result<Geometry, Fault> {
    check_flags(of.flags, 31, "diorite_device_operations.flags")?;
    let or = |value: u32, usual: u32| if value == 0 { usual } else { value };
    let (logical, memory) = (or(of.logical, 512), or(of.memory_align, 1));
    let most = or(of.max_transfer, 1 << 20);
    let power = |value: u32, least: u32, most: u32| {
        value.is_power_of_two() && (least..=most).contains(&value)
    };
    let sound = power(logical, 512, 1 << 16)
        && power(memory, 1, 4096)
        && most.is_multiple_of(logical)
        && most >= 1 << 16
        && of.bytes.is_multiple_of(u64::from(logical))
        && i64::try_from(of.bytes).is_ok()
        && of.reserved == 0;
    if !sound {
        return Err(Fault::invalid(
            "a device's bytes and its largest transfer (64 KiB or more) are multiples of its logical block, which is a power of two from \
             512 to 65536; its memory alignment is a power of two up to 4096",
        ));
    }
    let has = |flag| of.flags & flag != 0;
    Ok(Geometry {
        logical,
        physical: logical,
        dma_align: memory,
        max_transfer: most.min(1 << 30),
        discard: has(DIORITE_DEVICE_DISCARD),
        write_zeroes: has(DIORITE_DEVICE_WRITE_ZEROES),
        fua: has(DIORITE_DEVICE_FUA),
        volatile_cache: has(DIORITE_DEVICE_VOLATILE_CACHE),
        read_only: has(DIORITE_DEVICE_READ_ONLY),
        ..Geometry::plain(of.bytes)
    })
}

/// Closes the handle of a device. A volume on it keeps it; `release` is called when nothing uses it any more, perhaps by this call.
///
/// Errors: EBADF.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_device_close(device: DeviceHandle) -> c_int {
    border(|| {
        drop(DEVICES.close(device)?);
        Ok(0)
    })
}

/// Ends a request that `submit` was given: @status is 0, or the negative error number with which it failed (-ENOSPC: the storage below is
/// full). Called once for each, by any thread; from then on the request's memory is not touched. Does not block.
///
/// Errors: EBADF: there is no such request, or it has ended; EINVAL: a positive status.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_io_end(id: u64, status: c_int) -> c_int {
    border(|| {
        if status > 0 {
            return Err(Fault::invalid("a status is 0 or a negative error number"));
        }
        let pending = PENDING.close(id)?;
        pending.end(status);
        Ok(0)
    })
}

/// A request that the host has.
struct Pending {
    bio: Mutex<Option<Bio>>,
    _parts: Parts,
    ended: Arc<Ended>,
}

/// The memory of a request, as the host is told.
struct Parts(
    #[expect(
        dead_code,
        reason = "the host reads it through the pointer that it was given"
    )]
    Box<[iovec]>,
);

// SAFETY: the pointers are those of the request's buffer, which may be sent.
unsafe impl Send for Parts {}
// SAFETY: nobody reads them here.
unsafe impl Sync for Parts {}

static PENDING: Table<Pending> = Table::new(6, "request of a device");

impl Pending {
    fn end(&self, status: c_int) {
        if let Some(mut bio) = lock(&self.bio).take() {
            bio.result = match status {
                0 => Ok(()),
                failed => Err(BioError::from_errno(
                    failed.checked_neg().unwrap_or(libc::EIO),
                )),
            };
            self.ended.add(bio);
        }
    }
}

/// What a queue's requests come back to.
struct Ended {
    bios: Mutex<BioList>,
    /// Taken and not yet reaped.
    in_flight: AtomicU32,
    waker: Arc<Waker>,
}

impl Ended {
    fn add(&self, bio: Bio) {
        lock(&self.bios).push_back(bio);
        self.waker.kick();
    }

    fn take(&self, out: &mut BioList) -> usize {
        let mut ended = lock(&self.bios);
        let count = ended.len();
        out.extend(ended.drain(..));
        self.in_flight.fetch_sub(count as u32, Ordering::AcqRel);
        count
    }
}

struct HostQueue {
    host: Arc<Host>,
    ended: Arc<Ended>,
    depth: u32,
}

impl HostQueue {
    fn start(&self, mut bio: Bio) {
        if let Err(error) = self.host.geometry.check(&bio) {
            bio.result = Err(error);
            return self.ended.add(bio);
        }
        let op = match bio.op {
            BioOp::Read => DIORITE_IO_READ,
            BioOp::Write => DIORITE_IO_WRITE,
            BioOp::Flush => DIORITE_IO_FLUSH,
            BioOp::Discard => DIORITE_IO_DISCARD,
            BioOp::WriteZeroes | BioOp::WriteZeroesUnmap => DIORITE_IO_WRITE_ZEROES,
        };
        let parts = bio.buf.parts().filter(|part| !part.is_empty());
        let parts: Box<[iovec]> = parts
            .map(|part| iovec {
                iov_base: part.as_ptr().cast_mut().cast(),
                iov_len: part.len(),
            })
            .collect();
        let mut io = Io {
            id: 0,
            offset: bio.pos,
            length: bio.len,
            iov: parts.as_ptr(),
            iov_count: parts.len() as u32,
            op,
            flags: if bio.flags.fua { DIORITE_IO_FUA } else { 0 },
            reserved: 0,
        };
        let pending = Pending {
            bio: Mutex::new(Some(bio)),
            _parts: Parts(parts),
            ended: self.ended.clone(),
        };
        match PENDING.insert(pending) {
            Ok(id) => io.id = id,
            // No place for another request: the bio went with it, and is given back as failed.
            Err(_) => return,
        }
        // SAFETY: the host's function takes these; the request's memory is its own until it ends.
        let started = unsafe { (self.host.submit)(self.host.context, &raw const io) };
        if started < 0
            && let Ok(pending) = PENDING.close(io.id)
        {
            pending.end(started);
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // It never began.
        self.end(-libc::ENOMEM);
    }
}

impl DeviceQueue for HostQueue {
    fn below(&self) -> Option<&dyn DeviceQueue> {
        None
    }

    fn submit(&self, bios: &mut BioList) {
        while !bios.is_empty() {
            let room = |n: u32| (n < self.depth).then_some(n + 1);
            let (order, in_flight) = (Ordering::AcqRel, &self.ended.in_flight);
            if in_flight
                .fetch_update(order, Ordering::Relaxed, room)
                .is_err()
            {
                break;
            }
            if let Some(bio) = bios.pop_front() {
                self.start(bio);
            }
        }
    }

    fn reap(&self, out: &mut BioList) -> usize {
        self.ended.take(out)
    }

    fn wait(&self, min: u32, timeout: Option<Duration>) {
        let enough = lock(&self.ended.bios).len() >= min.max(1) as usize;
        let nothing = self.in_flight() == 0 && timeout.is_some_and(|t| t.is_zero());
        if !enough && !nothing {
            self.ended.waker.wait(timeout);
        }
    }

    fn in_flight(&self) -> u32 {
        self.ended.in_flight.load(Ordering::Acquire)
    }
}

impl Drop for HostQueue {
    fn drop(&mut self) {
        while self.in_flight() > 0 {
            if self.ended.take(&mut BioList::new()) == 0 {
                self.ended.waker.wait(Some(Duration::from_millis(100)));
            }
        }
    }
}

impl Device for HostDevice {
    fn below(&self) -> Option<&dyn Device> {
        None
    }

    fn geometry(&self) -> Geometry {
        self.0.geometry
    }

    fn name(&self) -> String {
        self.0.name.clone()
    }

    fn report(&self) -> DeviceReport {
        DeviceReport {
            engine: "host".to_owned(),
            direct: true,
            ..DeviceReport::default()
        }
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        Ok(Box::new(HostQueue {
            host: self.0.clone(),
            ended: Arc::new(Ended {
                bios: Mutex::default(),
                in_flight: AtomicU32::new(0),
                waker: options.waker,
            }),
            depth: options.depth,
        }))
    }
}
