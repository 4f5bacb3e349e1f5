//! Devices, for users of this crate: memory, files of the host, models of disks, and the traits for devices of one's own.
//!
//! Input: locators; types that implement [`Device`]. Output: what [`crate::Volume::open_device`] takes. Invariant: every type that the
//! signatures of [`Device`] and [`DeviceQueue`] name is re-exported here. Limits: none of its own; the code is in `diorite-block`.
//!
//! ```
//! # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/example.rs"));
//! use diorite::device::{BioErrorKind, BioOp, Fault, FaultDevice, FaultPlan, When};
//! use diorite::{Buf, OpenOptions, Volume};
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), diorite::Error> {
//! // Every write from the fifth on fails: what does a program make of that?
//! let from_fifth = When::Span { first: 5, count: u64::MAX };
//! let fault = Fault::new(BioErrorKind::Io, from_fifth).on(BioOp::Write);
//! let device = FaultDevice::new(example_volume(), FaultPlan::new(vec![fault], 1));
//! let volume = Volume::open_device(Arc::new(device), &OpenOptions::writable())?;
//! let file = volume.create("/file", 0o644)?;
//! let fails = (0..100).any(|n| file.write_buf(n * 4096, Buf::zeroed(4096)).1.is_err());
//! assert!(fails);
//! # Ok(())
//! # }
//! ```

pub use diorite_block::buf::{BUF_ALIGN, Buf, BufPool, Foreign, Split};
pub use diorite_block::device::{
    Device, DeviceError, DeviceErrorKind, DeviceQueue, DeviceReport, Geometry, NotPolled,
    PolledStats, PolledWaits, PolledWay, QueueOptions, Run, Stored, Waker,
};
pub use diorite_block::fault::{Fault, FaultDevice, FaultPlan, When};
pub use diorite_block::file::{FileDevice, FileOptions, IoEngine};
pub use diorite_block::locator::{FileLocator, Locator, OpenOptions, Part, open};
pub use diorite_block::mem::MemDevice;
pub use diorite_block::record::RecordDevice;
pub use diorite_block::sim::{SimClock, SimCounters, SimDevice, SimLatency, SimOptions};
pub use diorite_block::sync::LockStats;
pub use diorite_block::{Bio, BioError, BioErrorKind, BioFlags, BioList, BioOp, Blocking};
