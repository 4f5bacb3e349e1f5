//! Recognises a disk whose bytes are a disk in another format.
//!
//! Input: the first and the last bytes. Output: a warning that says how to read what is in them; their form, if they are asked for it.
//! Invariant: unless the user asks for it, only a warning follows from the bytes: a program that writes to a disk could imitate any format.
//! Limits: formats with a mark of their own.

use crate::args::Encoding;
use crate::images::device::Opened;
use diorite_block::{Blocking, Buf};
use diorite_image::Packing;

/// Bytes at the beginning that are looked at.
pub(crate) const FIRST: usize = 512;
/// The footer of a VHD.
const FOOTER: u64 = 512;
const OF_VHD: &[u8] = b"conectix";
/// What is to be done with a form that is not read.
const CONVERT: &str = "'qemu-img convert' makes a raw image of it";

/// What is said of bytes that are taken as they are.
pub(crate) fn warning(first: &[u8], last: &[u8]) -> Option<String> {
    let (what, word) = known(first, last)?;
    let hint = match word {
        Some(encoding) => format!("with -f {} what is in them is read", encoding.word()),
        None => CONVERT.to_owned(),
    };
    Some(format!(
        "its bytes are those of {what}, and are taken as those of a disk: {hint}"
    ))
}

/// The form of what begins and ends with these bytes.
///
/// # Errors
/// One that is not read.
pub(crate) fn form(first: &[u8], last: &[u8]) -> Result<Encoding, String> {
    match known(first, last) {
        None => Ok(Encoding::Raw),
        Some((_, Some(encoding))) => Ok(encoding),
        Some((what, None)) => Err(format!("it is {what}, which is not read: {CONVERT}")),
    }
}

/// A name, and how it is read.
fn known(first: &[u8], last: &[u8]) -> Option<(&'static str, Option<Encoding>)> {
    let of_packing = match Packing::of(first) {
        Packing::None => None,
        Packing::Gzip => Some(("a gzip stream", Some(Encoding::Gzip))),
        Packing::Zstd => Some(("a zstd stream", Some(Encoding::Zstd))),
        Packing::Xz => Some(("an xz stream", Some(Encoding::Xz))),
        Packing::Bzip2 => Some(("a bzip2 stream", Some(Encoding::Bzip2))),
        Packing::Lz4 => Some(("an lz4 stream", Some(Encoding::Lz4))),
        Packing::Zip => Some(("a zip archive", Some(Encoding::Zip))),
    };
    of_packing.or(match first {
        [b'Q', b'F', b'I', 0xfb, ..] => Some(("a qcow2 image", Some(Encoding::Qcow2))),
        [0x3a, 0xff, 0x26, 0xed, ..] => {
            Some(("an Android sparse image", Some(Encoding::AndroidSparse)))
        }
        [b'K', b'D', b'M', b'V', ..] => Some(("a VMDK image", None)),
        _ if first.starts_with(b"vhdxfile") => Some(("a VHDX image", None)),
        _ if first.get(64..68) == Some(&[0x7f, 0x10, 0xda, 0xbe]) => Some(("a VDI image", None)),
        _ if first.starts_with(OF_VHD) || last.starts_with(OF_VHD) => Some(("a VHD image", None)),
        _ => None,
    })
}

/// The warning for a device. What cannot be read is told by whoever reads it.
pub(crate) fn of_device(opened: &Opened) -> Option<String> {
    let (first, last) = ends(opened)?;
    warning(&first, &last)
}

/// The form of what is on a device.
///
/// # Errors
/// As of [`form`].
pub(crate) fn form_of_device(opened: &Opened) -> Result<Encoding, String> {
    let (first, last) = ends(opened).unwrap_or_default();
    form(&first, &last)
}

/// The first and the last bytes.
fn ends(opened: &Opened) -> Option<(Vec<u8>, Vec<u8>)> {
    let sector = u64::from(opened.device.geometry().logical);
    let blocking = Blocking::new(opened.device.clone());
    let read = |at: u64, len: u64| -> Option<Vec<u8>> {
        let start = at / sector * sector;
        let end = (at + len).next_multiple_of(sector);
        let buf = Buf::zeroed(usize::try_from(end - start).ok()?);
        let buf = blocking.read(start, buf).ok()?;
        let from = (at - start) as usize;
        Some(buf.as_slice()[from..from + len as usize].to_vec())
    };
    let first = read(0, opened.size.min(FIRST as u64))?;
    let last = opened.size.checked_sub(FOOTER);
    let last = last.and_then(|at| read(at, FOOTER)).unwrap_or_default();
    Some((first, last))
}

/// Whether an encoding has been chosen by nothing but a name that says nothing.
pub(crate) fn is_assumed(asked: Option<Encoding>, is: Encoding) -> bool {
    asked.is_none() && is == Encoding::Raw
}
