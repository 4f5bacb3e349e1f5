//! The mount room: from a device to a file system that can be used.
//!
//! Input: a device, and options. Output: [`Opened`]. Invariants: probing never writes; nothing is opened for writing that is not fully
//! understood, and recovered first if it has to be; every structure is checked before it is used. Limits: the group descriptors are read
//! whole, 512 KiB for a TiB.

mod fast;
mod journal;
mod log_places;
mod look;
mod recover;

pub(crate) use recover::open;

use crate::error::Error;
use crate::inode::Fs;
use diorite_block::Device;
use std::sync::Arc;

/// Opens the device of a journal at a locator, for a volume with blocks of this size.
pub(crate) type OpenLog<'a> = &'a dyn Fn(&str, u32) -> Result<Arc<dyn Device>, Error>;

/// A file system, opened.
pub(crate) struct Opened {
    pub(crate) fs: Arc<Fs>,
    /// What a person should know about how that went, one line each.
    pub(crate) notes: Vec<String>,
}
