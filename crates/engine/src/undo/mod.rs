//! Undo files, in the form of e2fsprogs: what a device had in its blocks before they were overwritten.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `form` | bytes of an undo file -> its header and keys, and back |
//! | `log` | blocks that are going to be overwritten -> an undo file that has their contents |
//! | `writer` | groups of pieces -> an undo file on its host |
//! | `kept` | ranges of a device -> what of them is not kept yet |
//! | `guard` | a device -> the same, whose writes wait for that |
//! | `file` | an undo file and its device -> what the device had before |
//! | `length` | the same -> what speaks against the length that the device has then |
//!
//! Input: a device and a path of the host. Output: a file that `diorite undo` and e2undo(8) take. Invariants: before a block is
//! overwritten, its old contents are in the undo file, durably; an undo file belongs to one device. Limits: blocks of another device (an
//! external journal) are not in it. An undo file whose writer was killed, or lost its power, says that it is not finished; it has the old
//! contents of everything that was overwritten until then.

mod file;
mod form;
mod guard;
mod kept;
mod length;
mod log;
#[cfg(test)]
mod tests;
mod writer;

pub use file::{Piece, Restored, UndoFile};
pub use log::Undo;

use crate::error::Error;
use diorite_block::device::DeviceErrorKind;
use diorite_block::{Blocking, Buf, Device, DeviceError, Locator};
use diorite_format::csum::crc32c;
use std::io;
use std::path::Path;

/// Bytes of a superblock, and where it is.
const SUPER: usize = 1024;
/// The magic number is inverted in the copy, so that nobody takes the undo file for a volume.
const SUPER_MAGIC: std::ops::Range<usize> = 0x38..0x3a;

/// The superblock's bytes on a device, as an undo file has them. Zeros on a device that is too small for one.
fn super_copy(device: &Blocking) -> Result<[u8; SUPER], Error> {
    let mut copy = [0; SUPER];
    let size = device.device().geometry().size;
    if size >= 8192 {
        let bytes = device.read(0, Buf::zeroed(4096));
        let bytes = bytes.map_err(|error| unreadable(device, (0, 4096), &error))?;
        copy.copy_from_slice(&bytes.as_slice()[SUPER..2 * SUPER]);
        invert_magic(&mut copy);
    }
    Ok(copy)
}

fn invert_magic(copy: &mut [u8; SUPER]) {
    copy[SUPER_MAGIC].iter_mut().for_each(|byte| *byte = !*byte);
}

/// The checksum of a copied superblock, with the magic number that it has on its device.
fn super_crc(copy: &[u8; SUPER]) -> u32 {
    let mut on_device = *copy;
    invert_magic(&mut on_device);
    crc32c(!0, &on_device)
}

/// The size of a block by the copy of a superblock, if that can be.
fn block_size_in(copy: &[u8; SUPER]) -> Option<u32> {
    let is_super = copy[SUPER_MAGIC] == [!0x53, !0xef];
    let shift = u32::from(copy[0x18]);
    (is_super && shift <= 6 && copy[0x19..0x1c] == [0; 3]).then(|| 1024 << shift)
}

fn unreadable(device: &Blocking, (pos, len): (u64, u64), error: &dyn std::fmt::Display) -> Error {
    failed(format!(
        "{}: {len} bytes at {pos} cannot be read, which are to be kept before they are overwritten: {error}",
        device.device().name()
    ))
}

/// An error of the undo file on its host.
fn host(path: &Path, what: &str, error: &io::Error) -> Error {
    failed(format!(
        "the undo file {} cannot be {what}: {error}",
        path.display()
    ))
}

fn failed(what: String) -> Error {
    DeviceError::new(DeviceErrorKind::Io, what).into()
}

/// An undo file that cannot be used.
fn bad(path: &Path, what: impl std::fmt::Display) -> Error {
    let what = format!("the undo file {}: {what}", path.display());
    DeviceError::new(DeviceErrorKind::Unsupported, what).into()
}

/// The size in bytes of the device at a locator: of what is all of a file of the host, or begins in it and goes to its end, that of the
/// file; of anything else it is the device's. A device's is a multiple of its sectors.
#[must_use]
pub fn exact_size(locator: &Locator, device: &dyn Device) -> u64 {
    let geometry = device.geometry();
    let whole = match locator {
        Locator::File(file) if file.part.is_none() && file.size.is_none() && !file.is_qcow2() => {
            let meta = file.path.metadata().ok().filter(|meta| meta.is_file());
            meta.map(|meta| meta.len().saturating_sub(file.offset))
        }
        _ => None,
    };
    let padded = |len: &u64| len.next_multiple_of(u64::from(geometry.logical)) == geometry.size;
    whole.filter(padded).unwrap_or(geometry.size)
}
