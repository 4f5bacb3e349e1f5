//! Buffers, bios, devices and rings: asynchronous direct I/O on files, block devices and models of them.
//!
//! Knows nothing of ext4. Everything above talks to a device through four values, in the order in which a request
//! meets them:
//!
//! | module | gives |
//! |---|---|
//! | [`sync`] | the locks, atomics and counters of the whole project: std, loom or shuttle, with classes and statistics |
//! | [`buf`] | owned, aligned, splittable memory, and pools of it |
//! | [`bio`] | one request to a device, owned by whoever has it in hand |
//! | [`device`] | the seam: [`Device`], [`DeviceQueue`], geometry, the waker |
//! | [`blocking`] | a blocking helper over any device, for metadata |
//! | [`mem`], [`sim`] | devices in memory: plain, and behind a model of a disk with a cache, faults and two clocks |
//! | [`fault`] | faults on purpose, over any device |
//! | [`flushes`] | moments at which data ended, flushes -> which data is durable, and one flush for all who may share it |
//! | [`record`] | what a device was asked to change, and every image that a power cut may leave of it |
//! | [`mod@file`] | files and block devices of the host: io_uring, Linux AIO, threads |
//! | [`locator`] | the text that names a device, and opening it |
//! | `size` | sizes in words |
//! | `hold`, `partition` | exclusive opening; MBR and GPT: what opening a file goes through |

pub mod bio;
pub mod blocking;
pub mod buf;
pub mod device;
pub mod fault;
pub mod file;
pub mod flushes;
mod hold;
pub mod locator;
pub mod mem;
mod partition;
pub mod record;
mod rng;
pub mod sim;
mod size;
pub mod sync;

pub use bio::{Bio, BioError, BioErrorKind, BioFlags, BioList, BioOp, forget_moved};
pub use blocking::Blocking;
pub use buf::{Buf, BufPool, Split};
pub use device::{Device, DeviceError, DeviceQueue, DeviceReport, Geometry, QueueOptions, Waker};
pub use fault::{Fault, FaultDevice, FaultPlan, When};
pub use file::{FileDevice, FileOptions, IoEngine};
pub use flushes::{Epoch, Flushes, Told};
pub use hold::{WRITER_PRESENT, held_as};
pub use locator::{Locator, OpenOptions};
pub use mem::MemDevice;
pub use partition::{Partition, PartitionKind, PartitionTable};
pub use record::RecordDevice;
pub use sim::{SimDevice, SimOptions};
