//! What the bytes of a disk are seen to be, if they are those of a disk in another form.
//!
//! Input: the first and the last bytes. Output: a warning that says how to read what is in them. Invariant: nothing but a warning follows
//! from the bytes: who writes to a disk could make it look like anything. Limits: formats with a mark of their own.

use crate::args::Encoding;
use crate::device::Opened;
use diorite_block::{Blocking, Buf};
use diorite_image::Packing;

/// Bytes at the beginning that are looked at.
pub(crate) const FIRST: usize = 512;
/// The footer of a VHD.
const FOOTER: u64 = 512;
const OF_VHD: &[u8] = b"conectix";

/// What is said of bytes that are taken as they are.
pub(crate) fn warning(first: &[u8], last: &[u8]) -> Option<String> {
    let (what, word) = known(first, last)?;
    let hint = match word {
        Some(word) => format!("with -f {word} what is in them is read"),
        None => "'qemu-img convert' makes a raw image of it".to_owned(),
    };
    Some(format!(
        "its bytes are those of {what}, and are taken as those of a disk: {hint}"
    ))
}

/// A name, and the word of the option.
fn known(first: &[u8], last: &[u8]) -> Option<(&'static str, Option<&'static str>)> {
    let of_packing = match Packing::of(first) {
        Packing::None => None,
        Packing::Gzip => Some(("a gzip stream", Some("gz"))),
        Packing::Zstd => Some(("a zstd stream", Some("zst"))),
        Packing::Xz => Some(("an xz stream", Some("xz"))),
        Packing::Bzip2 => Some(("a bzip2 stream", Some("bz2"))),
        Packing::Lz4 => Some(("an lz4 stream", Some("lz4"))),
        Packing::Zip => Some(("a zip archive", Some("zip"))),
    };
    of_packing.or(match first {
        [b'Q', b'F', b'I', 0xfb, ..] => Some(("a qcow2 image", Some("qcow2"))),
        [0x3a, 0xff, 0x26, 0xed, ..] => Some(("an Android sparse image", Some("android-sparse"))),
        [b'K', b'D', b'M', b'V', ..] => Some(("a VMDK image", None)),
        _ if first.starts_with(b"vhdxfile") => Some(("a VHDX image", None)),
        _ if first.get(64..68) == Some(&[0x7f, 0x10, 0xda, 0xbe]) => Some(("a VDI image", None)),
        _ if first.starts_with(OF_VHD) || last.starts_with(OF_VHD) => Some(("a VHD image", None)),
        _ => None,
    })
}

/// The same of a device. What cannot be read is told by whoever reads it.
pub(crate) fn of_device(opened: &Opened) -> Option<String> {
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
    warning(&first, &last)
}

/// Whether an encoding has been chosen by nothing but a name that says nothing.
pub(crate) fn is_assumed(asked: Option<Encoding>, is: Encoding) -> bool {
    asked.is_none() && is == Encoding::Raw
}
