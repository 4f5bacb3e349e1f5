//! An export: a device under a name, and what clients are told about it.
//!
//! Input: a device, a name, whether writes are refused. Output: size, flags and block sizes, from the device's geometry at the
//! time of the question; counters. Invariants: the device is the only way to the data; what is announced can be requested.
//! Limits: names and descriptions of at most [`MAX_NAME`] bytes.

use crate::aside::Aside;
use crate::wire::{InfoExport, MAX_NAME, MAX_PAYLOAD, Mode, export_flag};
use diorite_block::{Device, Geometry, Shared};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The preferred size of requests is at least a page.
const PREFERRED: u32 = 4096;

/// The zeros that are written to a device that cannot write zeros by itself.
const ZEROS: usize = 1 << 20;

/// A device under a name. Send and Sync.
///
/// ```
/// use diorite_block::MemDevice;
/// use diorite_nbd::Export;
/// use std::sync::Arc;
///
/// let export = Export::new("disk", Arc::new(MemDevice::new(1 << 20))).read_only(true).described("a scratch disk");
/// assert_eq!((export.name(), export.geometry().size), ("disk", 1 << 20));
/// ```
pub struct Export {
    name: String,
    description: String,
    device: Arc<dyn Device>,
    read_only: bool,
    block_device: bool,
    pub(crate) aside: Aside,
    pub(crate) counters: Counters,
    zeros: OnceLock<Option<Shared>>,
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export")
            .field("name", &self.name)
            .field("device", &self.device.name())
            .finish_non_exhaustive()
    }
}

impl Export {
    /// An export of a device; read-only if the device is. A name that is too long is cut.
    #[must_use]
    pub fn new(name: impl Into<String>, device: Arc<dyn Device>) -> Export {
        Export {
            name: cut(name.into()),
            description: cut(device.name()),
            aside: Aside::new(device.clone()),
            block_device: device.report().block_device,
            device,
            read_only: false,
            counters: Counters::default(),
            zeros: OnceLock::new(),
        }
    }

    /// Refuses writes, whatever the device permits.
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Export {
        self.read_only = read_only;
        self
    }

    /// Sets the description that clients can ask for. By default it is the device's name.
    #[must_use]
    pub fn described(mut self, description: impl Into<String>) -> Export {
        self.description = cut(description.into());
        self
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The description.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The device's geometry now, read-only if the export is.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        let geometry = self.device.geometry();
        Geometry {
            read_only: geometry.read_only || self.read_only,
            ..geometry
        }
    }

    /// Whether it is a block device of the host.
    pub(crate) fn is_block_device(&self) -> bool {
        self.block_device
    }

    /// Looks at the device's size again, for a client that begins: what it is on may have grown. Blocks.
    pub(crate) fn look_again(&self) {
        // If that fails, the size stays as it was.
        let _kept = self.device.refresh();
    }

    /// Size and flags for a client that uses this form of replies.
    #[must_use]
    pub fn info(&self, mode: Mode) -> InfoExport {
        use export_flag::*;
        let geometry = self.geometry();
        let mut flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN | SEND_CACHE;
        if mode != Mode::Simple {
            flags |= SEND_DF;
        }
        if geometry.read_only {
            flags |= READ_ONLY;
        } else {
            flags |= SEND_WRITE_ZEROES | SEND_FAST_ZERO;
            if geometry.discard {
                flags |= SEND_TRIM;
            }
        }
        InfoExport {
            size: geometry.size,
            flags,
        }
    }

    /// The least, the preferred and the largest size of requests.
    #[must_use]
    pub fn block_sizes(&self) -> [u32; 3] {
        let geometry = self.geometry();
        let preferred = geometry.physical.max(geometry.logical).max(PREFERRED);
        [
            geometry.logical,
            preferred.next_power_of_two().min(MAX_PAYLOAD),
            MAX_PAYLOAD,
        ]
    }

    /// Zeros to write. None if there is no memory for them.
    pub(crate) fn zeros(&self) -> Option<&Shared> {
        self.zeros
            .get_or_init(|| Shared::try_zeroed(ZEROS))
            .as_ref()
    }

    /// What has been counted.
    #[must_use]
    pub fn stats(&self) -> ExportStats {
        self.counters.read()
    }
}

fn cut(mut text: String) -> String {
    let mut end = text.len().min(MAX_NAME);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

/// Declares the counters once, as atomics that are added to and as numbers that are read.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What an export has done since the server began.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct ExportStats { $($(#[$doc])* pub $name: u64,)* }

        /// The counters of an export, shared by its connections.
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $($name: AtomicU64,)* }

        impl Counters {
            /// Adds what a connection has counted by itself.
            pub(crate) fn add(&self, more: &ExportStats) {
                $(if more.$name != 0 { self.$name.fetch_add(more.$name, Ordering::Relaxed); })*
            }

            fn read(&self) -> ExportStats {
                ExportStats { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Clients that began to use it.
    clients,
    /// Reads.
    reads,
    /// Bytes read.
    read_bytes,
    /// Writes.
    writes,
    /// Bytes written.
    written_bytes,
    /// Flushes that clients requested.
    flushes,
    /// Trims.
    trims,
    /// Requests to write zeros.
    zeroes,
    /// Requests for the status of blocks.
    statuses,
    /// Requests that were refused: they make no sense, or the export is read-only.
    refused,
    /// Requests that the device failed.
    failed,
}
