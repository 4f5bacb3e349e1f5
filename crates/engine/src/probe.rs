//! Looking at a volume past its rooms: for tools that judge what is on a device, and believe nothing that reads it for users.
//!
//! Input: a locator, a device. Output: the device, bytes of it, its superblock. Invariants: nothing is written. Limits: the device is shown as it
//! is; one with its journal replayed in memory is that of a [`crate::Volume`] opened for reading.

pub use crate::disk::{FoundSuperblock, Zone, find_superblock, read_bytes};

use crate::error::Error;
use crate::locator;
use crate::options::OpenOptions;
use diorite_block::{Device, Locator};
use std::sync::Arc;

/// Opens what a locator names, through any number of volumes and the host's page cache. Blocks.
///
/// # Errors
/// The locator's; the device's.
pub fn open(locator: &Locator, options: &OpenOptions) -> Result<Arc<dyn Device>, Error> {
    locator::device_at(locator, options, true)
}
