//! How an archive or an image is packed.
//!
//! Input: its first bytes, or a stream. Output: a kind of packing, or what the stream holds. Invariants: a stream that is cut off or
//! damaged is an error; memory is bounded, whatever size a stream declares. Limits: what is packed twice is unpacked once.

use crate::error::Error;
use crate::frames::ZstdFrames;
use crate::members::Members;
use crate::tail;
use crate::warnings::Warnings;
use crate::zip::ZipFile;
use diorite_block::uncached;
use lz4_flex::frame::FrameDecoder;
use lzma_rust2::XzReader;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

/// KiB of memory that the decoder of xz gets: streams of `xz -9` need 65.
const XZ_MEMORY: u32 = 192 << 10;
/// Bytes that say how something is packed.
const FIRST: usize = 6;
/// Bytes of a buffer between two.
const BUFFER: usize = 1 << 18;

/// How something is packed.
///
/// ```
/// use diorite_image::Packing;
///
/// assert_eq!(Packing::of(b"\x1f\x8b\x08\0\0\0"), Packing::Gzip);
/// assert_eq!(Packing::of(b"plain text"), Packing::None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// Its bytes are there as they are.
    None,
    /// By gzip.
    Gzip,
    /// By zstd.
    Zstd,
    /// By xz.
    Xz,
    /// By bzip2.
    Bzip2,
    /// By lz4.
    Lz4,
    /// As the one file of a zip archive.
    Zip,
}

impl Packing {
    /// What begins with these bytes is packed by.
    #[must_use]
    pub fn of(first: &[u8]) -> Packing {
        match first {
            [0x1f, 0x8b, ..] => Packing::Gzip,
            // A frame, or one that is to be skipped, which those of lz4 begin with, too.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Packing::Zstd,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Packing::Xz,
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Packing::Bzip2,
            [0x04, 0x22, 0x4d, 0x18, ..] | [0x02, 0x21, 0x4c, 0x18, ..] => Packing::Lz4,
            [b'P', b'K', 3, 4, ..] => Packing::Zip,
            _ => Packing::None,
        }
    }

    /// What a stream that is packed in this way holds. What is odd and no error is told.
    pub fn unpack<'r>(self, from: impl BufRead + 'r, warnings: &Warnings) -> Box<dyn Read + 'r> {
        match self {
            Packing::None => Box::new(from),
            Packing::Gzip => Box::new(Members::gzip(from, warnings)),
            Packing::Bzip2 => Box::new(Members::bzip2(from, warnings)),
            Packing::Zstd => Box::new(ZstdFrames::new(from, warnings)),
            Packing::Xz => Box::new(Said("xz", XzReader::new_mem_limit(from, true, XZ_MEMORY))),
            Packing::Lz4 => Box::new(Said("lz4", Lz4Frames::new(from, warnings))),
            Packing::Zip => Box::new(ZipFile::new(from)),
        }
    }
}

/// A decoder whose errors are told with the name of its program.
struct Said<R>(&'static str, R);

impl<R: Read> Read for Said<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.1.read(out).map_err(|error| {
            let why = match error.kind() {
                io::ErrorKind::UnexpectedEof => "it is cut off".to_owned(),
                io::ErrorKind::OutOfMemory => {
                    format!("it needs more than {XZ_MEMORY} KiB of memory")
                }
                _ => error.to_string(),
            };
            io::Error::new(error.kind(), format!("{}: {why}", self.0))
        })
    }
}

/// Frames of lz4, one after the other.
struct Lz4Frames<R: BufRead> {
    decoder: Option<FrameDecoder<R>>,
    warnings: Warnings,
    /// Before the first frame nothing may be behind an end.
    is_first: bool,
}

impl<R: BufRead> Lz4Frames<R> {
    fn new(from: R, warnings: &Warnings) -> Lz4Frames<R> {
        Lz4Frames {
            decoder: Some(FrameDecoder::new(from)),
            warnings: warnings.clone(),
            is_first: true,
        }
    }
}

impl<R: BufRead> Read for Lz4Frames<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while let Some(mut decoder) = self.decoder.take().filter(|_| !out.is_empty()) {
            let count = decoder.read(out)?;
            if count > 0 {
                self.is_first = false;
                self.decoder = Some(decoder);
                return Ok(count);
            }
            let mut from = decoder.into_inner();
            match from.fill_buf()? {
                [] if self.is_first => return Err(io::ErrorKind::UnexpectedEof.into()),
                [] => {}
                [0x04 | 0x02 | 0x50..=0x5f, ..] => self.decoder = Some(FrameDecoder::new(from)),
                _ => tail::told(&mut from, "lz4", &self.warnings)?,
            }
            self.is_first = false;
        }
        Ok(0)
    }
}

/// Whether an archive is a file whose bytes can be read where they are.
pub(crate) fn is_plain_file(file: &File) -> Result<bool, Error> {
    let mut first = [0; FIRST];
    if !file.metadata()?.is_file() {
        return Ok(false);
    }
    let seen = uncached::read_at(file, &mut first, 0)?;
    Ok(Packing::of(&first[..seen]) == Packing::None)
}

/// What a stream holds, whether it is packed or not.
pub(crate) fn unpacked<'r>(
    mut from: impl Read + 'r,
    warnings: &Warnings,
) -> Result<Box<dyn Read + 'r>, Error> {
    let mut first = Vec::new();
    from.by_ref().take(FIRST as u64).read_to_end(&mut first)?;
    let packing = Packing::of(&first);
    let whole = BufReader::with_capacity(BUFFER, io::Cursor::new(first).chain(from));
    Ok(match packing {
        Packing::None => Box::new(whole),
        packing => Box::new(BufReader::with_capacity(
            BUFFER,
            packing.unpack(whole, warnings),
        )),
    })
}
