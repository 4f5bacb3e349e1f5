//! Images and devices: how commands open them, what is on them, and whether two of them share bytes.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `image` | a locator, paths -> a volume, files |
//! | `device` | a locator -> a whole device, with the volumes that it is in |
//! | `location` | a locator -> where its bytes are on the host; whether two locators share bytes |
//! | `signatures` | a device -> the kind of file system or partition table on it |
//! | `other_formats` | a file without an ext4 superblock -> what it is |
//! | `undo_file` | `-z FILE` -> an undo file of the command's changes |
//!
//! Input: locators, the global options. Output: open volumes and devices. Invariant: only what a command opens for writing is written to.
//! Limits: each module has its own.

pub(crate) mod device;
pub(crate) mod image;
pub(crate) mod location;
mod other_formats;
pub(crate) mod signatures;
pub(crate) mod undo_file;
