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

pub mod bio;
pub mod blocking;
pub mod buf;
pub mod device;
pub mod sync;

pub use bio::{Bio, BioError, BioErrorKind, BioFlags, BioList, BioOp};
pub use blocking::Blocking;
pub use buf::{Buf, BufPool, Split};
pub use device::{Device, DeviceError, DeviceQueue, DeviceReport, Geometry, QueueOptions, Waker};
