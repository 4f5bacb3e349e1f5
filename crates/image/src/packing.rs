//! How an archive is packed.
//!
//! Input: its first bytes, or a stream. Output: a kind of packing, or what the stream holds. Invariant: what is packed by a program whose
//! streams are not read is refused, by the name of the program. Limits: what is packed twice is unpacked once.

use crate::error::Error;
use crate::frames::ZstdFrames;
use crate::members::GzipMembers;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;

/// How an archive is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    None,
    Gzip,
    Zstd,
}

/// What an archive with these first bytes is packed by.
pub(crate) fn packing(first: &[u8]) -> Result<Packing, Error> {
    match first {
        [0x1f, 0x8b, ..] => Ok(Packing::Gzip),
        // A frame, or one that is to be skipped.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Ok(Packing::Zstd),
        [0xfd, b'7', b'z', b'X', b'Z', ..] => Err(Error::new(
            "it is compressed by xz: 'xz -dc' unpacks it to a pipe",
        )),
        [b'B', b'Z', b'h', ..] => Err(Error::new(
            "it is compressed by bzip2: 'bzip2 -dc' unpacks it to a pipe",
        )),
        _ => Ok(Packing::None),
    }
}

/// Whether an archive is a file whose bytes can be read where they are.
pub(crate) fn is_plain_file(file: &File) -> Result<bool, Error> {
    let mut first = [0; 6];
    if !file.metadata()?.is_file() {
        return Ok(false);
    }
    let seen = file.read_at(&mut first, 0)?;
    Ok(packing(&first[..seen])? == Packing::None)
}

/// What a stream holds, whether it is packed or not.
pub(crate) fn unpacked<'r>(mut from: impl Read + 'r) -> Result<Box<dyn Read + 'r>, Error> {
    let mut first = Vec::new();
    from.by_ref().take(6).read_to_end(&mut first)?;
    let packing = packing(&first)?;
    let whole = io::Cursor::new(first).chain(from);
    let whole = BufReader::with_capacity(1 << 18, whole);
    Ok(match packing {
        Packing::None => Box::new(whole),
        Packing::Gzip => Box::new(BufReader::with_capacity(1 << 18, GzipMembers::new(whole))),
        Packing::Zstd => Box::new(BufReader::with_capacity(1 << 18, ZstdFrames::new(whole))),
    })
}
