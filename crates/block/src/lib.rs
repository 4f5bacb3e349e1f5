//! Buffers, bios, devices and rings: asynchronous direct I/O on files, block devices and models of them.
//!
//! Knows nothing of ext4. Everything above uses a device through four values, in the order in which a request meets them:
//!
//! | module | gives |
//! |---|---|
//! | [`sync`] | the locks, atomics and counters of the whole project: std, loom or shuttle, with classes and statistics |
//! | [`buf`] | owned, aligned, splittable memory, and pools of it |
//! | [`bio`] | one request to a device, owned by whoever has it in hand |
//! | [`device`] | the device interface: [`Device`], [`DeviceQueue`], geometry, the waker |
//! | [`blocking`] | a blocking helper over any device, for metadata |
//! | [`mem`], [`sim`] | devices in memory: a plain one, and a model of a disk with a cache, faults and two clocks |
//! | [`calls`] | a device of one's own, by blocking calls; queues over blocking calls |
//! | [`window`] | a part of another device, with sectors of another size |
//! | [`fault`] | fault injection over any device |
//! | [`flushes`] | which flush makes which data durable, and flushes shared among callers |
//! | [`record`] | a log of a device's changes, and every image that a power cut may leave of it |
//! | [`mod@file`] | files and block devices of the host: io_uring, Linux AIO, threads |
//! | [`locator`] | text that names a device, and opening it |
//! | `places` | how many bios a queue keeps until they are reaped |
//! | `size` | sizes as text |
//! | `late` | failures of writes that a host reports when a file is closed, or never |
//! | `std_error` | errors of bios and devices as those of `std::io`, and back |
//! | `storage` | a path -> an open regular file or block device; a FIFO is refused, not waited for |
//! | `hold`, `partition` | locks against other writers; MBR and GPT, used when a file is opened; new tables of both |
//!
//! No feature is for programs: `_loom` (all orders of atomic operations) and `_shuttle` (random schedules) are internal, for the tests of
//! this project.

pub mod bio;
pub mod blocking;
pub mod buf;
pub mod calls;
pub mod device;
pub mod fault;
pub mod file;
pub mod flushes;
#[macro_use]
mod forward;
mod hold;
mod late;
pub mod locator;
pub mod mem;
mod partition;
mod places;
pub mod polled;
pub mod record;
mod rng;
#[macro_use]
mod setters;
pub mod sim;
mod size;
mod std_error;
mod storage;
pub mod sync;
pub mod uncached;
pub mod window;

/// Compiles the examples in the README as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use bio::{Bio, BioError, BioErrorKind, BioFlags, BioList, BioOp, forget_moved};
pub use blocking::Blocking;
pub use buf::{Buf, BufPool, Foreign, Shared, Split};
pub use calls::{CallPool, CallQueue, Calls, CallsDevice, RunsBios};
pub use device::{
    AtomicWrites, Device, DeviceError, DeviceQueue, DeviceReport, Geometry, NotPolled, PolledStats,
    PolledWaits, PolledWay, QueueOptions, Run, Stored, Waker,
};
pub use fault::{Fault, FaultDevice, FaultPlan, When};
pub use file::{FileDevice, FileOptions, IoEngine};
pub use flushes::{Epoch, Flushes, Told};
pub use hold::{MARKED_CORRUPT, WRITER_PRESENT, held_as, look_for_writers, writer_of};
pub use late::{check_stdin, reported_at_close, stdout_was_closed};
pub use locator::{Locator, OpenOptions};
pub use mem::MemDevice;
pub use partition::{
    DiskSize, Layout, NewPartition, NewTable, PartSize, Partition, PartitionKind, PartitionTable,
    TableKind,
};
pub use polled::PolledQueue;
pub use record::RecordDevice;
pub use sim::{SimDevice, SimOptions};
pub use storage::open_storage;
pub use window::{WindowDevice, WindowOptions};
