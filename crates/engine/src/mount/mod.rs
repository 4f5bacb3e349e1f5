//! The mount room: from a locator to a volume that can be used.
//!
//! Input: a locator or a device, and options. Output: a [`Volume`]. Invariants: probing never writes; nothing is opened for writing that
//! is not fully understood, and recovered first if it has to be; every structure is checked before it is used. Limits: the group
//! descriptors are read whole, 512 KiB for a TiB.

mod fast;
mod inode;
mod journal;
mod log_places;
mod mark;
mod open;
mod recover;
mod superblock;
mod zone;

pub(crate) use inode::{in_core, read_disk_inode, read_inode, read_orphan};
pub(crate) use open::{Mounted, open, open_device, read_bytes};
pub(crate) use superblock::find as find_superblock;
pub(crate) use zone::Zone;
