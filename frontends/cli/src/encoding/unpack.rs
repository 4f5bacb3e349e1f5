//! Reads a disk in any encoding, and writes it as a raw file with holes.
//!
//! Input: a stream. Output: a file of the exact size; or the pieces. Invariants: zeros are holes; the file is never longer than what was
//! read says. Limits: the file is buffered, and written in order.

use super::contents::Hooks;
use crate::args::Encoding;
use crate::copying::ranges::LARGE;
use diorite_block::uncached;
use diorite_image::{SparsePieces, SparseReader, SparseStep as Step, Warnings, are_zeros};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::sync::atomic::Ordering;

/// The most bytes of a file: offsets are signed.
const MOST: u64 = i64::MAX as u64;

/// How much was unpacked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unpacked {
    /// Bytes of the image.
    pub(crate) size: u64,
    /// Bytes that were written; the others are holes.
    pub(crate) data: u64,
}

/// A stream, in steps.
pub(crate) enum Steps<'r> {
    Plain(Box<dyn Read + 'r>),
    Sparse(SparseReader<Buffered<'r>>),
    Pieces(SparsePieces<Buffered<'r>>),
}

type Buffered<'r> = BufReader<Box<dyn Read + 'r>>;

fn buffered(from: Box<dyn Read + '_>) -> Buffered<'_> {
    BufReader::with_capacity(1 << 18, from)
}

impl<'r> Steps<'r> {
    pub(crate) fn new(
        from: Box<dyn Read + 'r>,
        encoding: Encoding,
        warnings: &Warnings,
    ) -> io::Result<Steps<'r>> {
        Ok(match (encoding, encoding.packing()) {
            (_, Some(packing)) => Steps::Plain(packing.unpack(buffered(from), warnings)),
            (Encoding::AndroidSparse, _) => Steps::Sparse(SparseReader::new(buffered(from))?),
            (Encoding::Qcow2, _) => {
                return Err(io::Error::other("a qcow2 image is no stream"));
            }
            _ => Steps::Plain(from),
        })
    }

    /// Android sparse images that are pieces of one, with their names.
    pub(crate) fn pieces(from: Vec<(String, Box<dyn Read + 'r>)>) -> io::Result<Steps<'r>> {
        let pieces = from.into_iter().map(|(name, from)| {
            let reader = SparseReader::new(buffered(from));
            let reader = reader.map_err(|e| io::Error::new(e.kind(), format!("{name}: {e}")))?;
            Ok((name, reader))
        });
        let pieces: io::Result<Vec<_>> = pieces.collect();
        Ok(Steps::Pieces(SparsePieces::new(pieces?)?))
    }

    /// The size, if it is known before the end.
    fn size(&self) -> Option<u64> {
        match self {
            Steps::Plain(_) => None,
            Steps::Sparse(reader) => Some(reader.size()),
            Steps::Pieces(pieces) => Some(pieces.size()),
        }
    }

    pub(super) fn step(&mut self, out: &mut [u8]) -> io::Result<Step> {
        match self {
            Steps::Sparse(reader) => reader.step(out),
            Steps::Pieces(pieces) => pieces.step(out),
            Steps::Plain(from) => {
                let mut have = 0;
                while have < out.len() {
                    match from.read(&mut out[have..]) {
                        Ok(0) => break,
                        Ok(count) => have += count,
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(match have {
                    0 => Step::End,
                    _ => Step::Data(have),
                })
            }
        }
    }
}

/// Writes what a stream holds to a file that is empty. Zeros in pieces of `sparse` bytes become holes, if that is not 0.
pub(crate) fn unpack(
    mut steps: Steps<'_>,
    to: &File,
    sparse: u64,
    hooks: &Hooks<'_>,
) -> io::Result<Unpacked> {
    let said = steps.size();
    if let Some(size) = said {
        // A size that the host cannot have is an error before anything is read.
        to.set_len(size)?;
    }
    let mut buf = vec![0; LARGE];
    let (mut at, mut data) = (0_u64, 0);
    let piece = usize::try_from(sparse).unwrap_or(LARGE).clamp(0, LARGE);
    loop {
        if hooks.stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("interrupted"));
        }
        let len = match steps.step(&mut buf)? {
            Step::End => break,
            Step::Data(len) => {
                data += write(to, &buf[..len], at, piece)?;
                len as u64
            }
            Step::Zeros(len) if piece == 0 => {
                data += len;
                fill(to, at, len, hooks)?;
                len
            }
            Step::Zeros(len) => len,
        };
        at = at
            .checked_add(len)
            .filter(|at| *at <= MOST)
            .ok_or_else(too_large)?;
        (hooks.step)(at);
    }
    to.set_len(at)?;
    Ok(Unpacked { size: at, data })
}

fn too_large() -> io::Error {
    io::Error::other("it holds more than 8 EiB")
}

/// Writes what is not zeros; how many bytes that were.
fn write(to: &File, bytes: &[u8], at: u64, piece: usize) -> io::Result<u64> {
    if piece == 0 {
        uncached::write_all_at(to, bytes, at)?;
        return Ok(bytes.len() as u64);
    }
    let mut written = 0;
    let mut begin = None;
    let mut here = 0;
    // Neighbouring pieces of data are written together.
    for chunk in bytes.chunks(piece) {
        match (are_zeros(chunk), begin) {
            (false, None) => begin = Some(here),
            (true, Some(first)) => {
                uncached::write_all_at(to, &bytes[first..here], at + first as u64)?;
                written += here - first;
                begin = None;
            }
            _ => {}
        }
        here += chunk.len();
    }
    if let Some(first) = begin {
        uncached::write_all_at(to, &bytes[first..], at + first as u64)?;
        written += bytes.len() - first;
    }
    Ok(written as u64)
}

/// Writes zeros.
fn fill(to: &File, at: u64, len: u64, hooks: &Hooks<'_>) -> io::Result<()> {
    let zeros = vec![0; LARGE];
    let end = at
        .checked_add(len)
        .filter(|end| *end <= MOST)
        .ok_or_else(too_large)?;
    for from in (at..end).step_by(LARGE) {
        if hooks.stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("interrupted"));
        }
        let count = (end - from).min(LARGE as u64) as usize;
        uncached::write_all_at(to, &zeros[..count], from)?;
    }
    Ok(())
}
