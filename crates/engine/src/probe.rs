//! Raw access to a volume's device, for tools that judge its bytes and must not rely on the modules that read for users, or that try what a
//! change would do.
//!
//! Input: a locator, a device. Output: the device, bytes of it, its superblock. Invariants: nothing is written. Limits: the device is
//! shown as it is, without journal recovery; for a device with the journal replayed in memory open a [`crate::Volume`] for reading.

pub use crate::disk::{FoundSuperblock, Overlap, Zone, read_bytes};
pub use crate::mount::find_superblock;

use crate::error::Error;
use crate::journal::recovery::Scratch;
use crate::locator;
use crate::options::OpenOptions;
use diorite_block::{Device, Locator};
use std::sync::Arc;

/// Opens the device that a locator names, through any number of volumes and, for host files, through the host's page cache. Blocks.
///
/// # Errors
/// The locator is invalid, or a device or volume on the way cannot be opened.
pub fn open(locator: &Locator, options: &OpenOptions) -> Result<Arc<dyn Device>, Error> {
    locator::device_at(locator, options, true)
}

/// A device like this one, whose writes stay in memory: a volume on it can be changed, and this device stays as it is.
#[must_use]
pub fn scratch(device: Arc<dyn Device>) -> Arc<dyn Device> {
    let unit = device.geometry().logical;
    Arc::new(Scratch::new(device, unit))
}
