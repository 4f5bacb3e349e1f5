//! Writes a device into a file in one of the encodings, and makes its block map.
//!
//! Input: a device that is open, a file that is empty. Output: the file; the text of the map; whether the file holds the device. Invariant:
//! file and map are made of the same bytes, each of which was read once. Limits: one thread; zstd has some of its own.

use super::contents::{Contents, Hooks, Piece};
use super::level::Level;
use super::needed::{Holes, Needed};
use super::unpack::Steps;
use super::zstd;
use crate::args::Encoding;
use crate::copying::ranges::LARGE;
use crate::images::device::Opened;
use diorite_block::uncached::InOrder;
use diorite_image::{SparseStep as Step, SparseWriter, Warnings};
use diorite_qcow2::FreshWriter;
use flate2::write::GzEncoder;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};

/// Writes all of `source` to `to`; returns the text of the block map, if one is asked for with what
/// holes of `source` say.
pub(crate) fn pack(
    source: &Opened,
    to: File,
    (encoding, level): (Encoding, Level),
    with_map: Option<Holes>,
    hooks: &Hooks<'_>,
) -> io::Result<Option<String>> {
    let mut map = with_map.map(|holes| Needed::new(source, holes));
    let mut contents = Contents::new(source, hooks, map.as_mut());
    match encoding {
        Encoding::Raw => {
            let mut out = BufWriter::with_capacity(LARGE, InOrder(&to));
            io::copy(&mut contents, &mut out)?;
            out.flush()?;
        }
        Encoding::Qcow2 => {
            let mut writer = FreshWriter::new(to, source.size)?;
            while let Some(piece) = contents.piece()? {
                match piece {
                    Piece::Data(buf, len) => writer.data(&buf.as_slice()[..len])?,
                    Piece::Zeros(len) => writer.zeros(len)?,
                }
            }
            writer.finish()?;
        }
        Encoding::Gzip => {
            let out = BufWriter::with_capacity(LARGE, InOrder(to));
            let mut out = GzEncoder::new(out, level.of_gzip());
            io::copy(&mut contents, &mut out)?;
            out.finish()?.flush()?;
        }
        Encoding::Zstd => {
            let out = BufWriter::with_capacity(LARGE, InOrder(to));
            zstd::compress(&mut contents, out, level, Some(source.size))?;
        }
        Encoding::AndroidSparse => {
            let mut writer = SparseWriter::new(to, source.size)?;
            while let Some(piece) = contents.piece()? {
                match piece {
                    Piece::Data(buf, len) => writer.data(&buf.as_slice()[..len])?,
                    Piece::Zeros(len) => writer.zeros(len)?,
                }
            }
            writer.finish()?;
        }
        Encoding::Xz | Encoding::Bzip2 | Encoding::Lz4 | Encoding::Zip | Encoding::Auto => {
            return Err(io::Error::other("it is only read, and not written"));
        }
    }
    Ok(map.map(Needed::finish))
}

/// The bytes of a device, as a stream.
pub(crate) fn stream<'a>(source: &Opened, hooks: &'a Hooks<'a>) -> impl Read + use<'a> {
    Contents::new(source, hooks, None)
}

/// The block map of a device.
pub(crate) fn map(source: &Opened, holes: Holes, hooks: &Hooks<'_>) -> io::Result<String> {
    let mut map = Needed::new(source, holes);
    let mut contents = Contents::new(source, hooks, Some(&mut map));
    while contents.piece()?.is_some() {}
    Ok(map.finish())
}

/// Reads a file back, and compares what it holds with the device.
///
/// # Errors
/// The first byte that differs; what cannot be read.
pub(crate) fn check_same(
    source: &Opened,
    file: &mut dyn Read,
    encoding: Encoding,
    hooks: &Hooks<'_>,
) -> io::Result<()> {
    let mut steps = Steps::new(Box::new(file), encoding, &Warnings::default())?;
    let mut contents = Contents::new(source, hooks, None);
    let (mut theirs, mut ours) = (vec![0; LARGE], vec![0; LARGE]);
    let mut at = 0;
    loop {
        let len = match steps.step(&mut theirs)? {
            Step::End => break,
            Step::Data(len) => len as u64,
            Step::Zeros(len) => {
                theirs.fill(0);
                len
            }
        };
        let mut left = len;
        while left > 0 {
            let count = left.min(LARGE as u64) as usize;
            contents.read_exact(&mut ours[..count])?;
            let same = ours
                .iter()
                .zip(&theirs[..count])
                .take_while(|(a, b)| a == b)
                .count();
            if same < count {
                return Err(io::Error::other(format!(
                    "byte {} read back is another",
                    at + same as u64
                )));
            }
            at += count as u64;
            left -= count as u64;
        }
    }
    match contents.piece()? {
        None => Ok(()),
        Some(Piece::Data(..) | Piece::Zeros(_)) => Err(io::Error::other(format!(
            "it ends at byte {at} when read back"
        ))),
    }
}
