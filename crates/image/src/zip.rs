//! The one file in a zip archive.
//!
//! Input: the bytes of an archive, in order. Output: those of its file. Invariants: the file has the length and the sum that the archive
//! says; an archive with several files is an error, before the end. Limits: files that are stored or deflated and not encrypted; names of
//! directories, and what macOS puts beside a file, are no files. Source: PKWARE's APPNOTE.TXT, sections 4.3 and 4.5.

use crate::tail;
use flate2::Crc;
use flate2::bufread::DeflateDecoder;
use std::io::{self, BufRead, Read, Take};

const LOCAL: u32 = 0x0403_4b50;
const DESCRIPTOR: u32 = 0x0807_4b50;
/// What may be behind the files: the directory, or before it the record of its signature.
const BEHIND: [u32; 3] = [0x0201_4b50, 0x0806_4b50, 0x0605_4b50];
/// The number of the field with the lengths of large files.
const LARGE: u16 = 1;
/// Lengths in the descriptor, or of a large file in that field.
const LATER: u32 = u32::MAX;

/// See the module.
pub(crate) struct ZipFile<R: BufRead> {
    state: State<R>,
    /// Whether its file has been read.
    is_over: bool,
}

enum State<R: BufRead> {
    /// In front of a record, or behind its signature, which is that.
    Between(R, Option<u32>),
    Inside(Box<Inside<R>>),
    Ended,
}

/// A file that is being read.
struct Inside<R: BufRead> {
    bytes: Bytes<R>,
    header: Header,
    sum: Crc,
    /// Its bytes so far.
    len: u64,
}

enum Bytes<R: BufRead> {
    Stored(Take<R>),
    Deflated(DeflateDecoder<R>),
}

/// What the record before a file says.
struct Header {
    is_deflated: bool,
    /// Its sum and lengths are behind it.
    has_descriptor: bool,
    is_file: bool,
    sum: u32,
    /// Bytes in the archive, and of the file.
    lens: [u64; 2],
}

fn wrong(why: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("zip: {why}"))
}

fn cut_off(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "zip: it is cut off"),
        _ => error,
    }
}

fn word(from: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes).map_err(cut_off)?;
    Ok(u32::from_le_bytes(bytes))
}

fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

impl Header {
    /// Reads it behind its signature.
    fn read(from: &mut impl Read) -> io::Result<Header> {
        let mut fixed = [0; 26];
        from.read_exact(&mut fixed).map_err(cut_off)?;
        let (flags, method) = (le16(&fixed, 2), le16(&fixed, 4));
        // Two lengths of 16 bits.
        let mut more = vec![0; usize::from(le16(&fixed, 22)) + usize::from(le16(&fixed, 24))];
        from.read_exact(&mut more).map_err(cut_off)?;
        let (name, extra) = more.split_at(le16(&fixed, 22).into());
        if flags & 1 != 0 {
            return Err(wrong("it is encrypted"));
        }
        let has_descriptor = flags & 8 != 0;
        let is_deflated = match method {
            0 if !has_descriptor => false,
            8 => true,
            _ => return Err(wrong(format_args!("a file is packed by method {method}"))),
        };
        let narrow = [le32(&fixed, 14), le32(&fixed, 18)];
        Ok(Header {
            is_deflated,
            has_descriptor,
            is_file: !name.ends_with(b"/") && !name.starts_with(b"__MACOSX/"),
            sum: le32(&fixed, 10),
            lens: lens(narrow, extra),
        })
    }
}

/// The lengths, which of a large file are in a field: first that of the file.
fn lens(narrow: [u32; 2], mut extra: &[u8]) -> [u64; 2] {
    while extra.len() >= 4 {
        let (number, len) = (le16(extra, 0), usize::from(le16(extra, 2)));
        let field = extra[4..].get(..len).unwrap_or_default();
        if number == LARGE && field.len() >= 16 && narrow == [LATER; 2] {
            let wide =
                |at: usize| u64::from(le32(field, at)) | u64::from(le32(field, at + 4)) << 32;
            return [wide(8), wide(0)];
        }
        extra = extra.get(4 + len..).unwrap_or_default();
    }
    narrow.map(u64::from)
}

impl<R: BufRead> ZipFile<R> {
    pub(crate) fn new(from: R) -> ZipFile<R> {
        ZipFile {
            state: State::Between(from, None),
            is_over: false,
        }
    }

    /// Begins the next file; the end is behind the last one.
    fn next(&mut self, mut from: R, signature: Option<u32>) -> io::Result<State<R>> {
        let signature = signature.map_or_else(|| word(&mut from), Ok)?;
        if signature != LOCAL {
            return match (BEHIND.contains(&signature), self.is_over) {
                (true, true) => {
                    tail::read(&mut from)?;
                    Ok(State::Ended)
                }
                (true, false) => Err(wrong("no file is in it")),
                (false, _) => Err(wrong("it is damaged, or no zip archive")),
            };
        }
        let header = Header::read(&mut from)?;
        if header.is_file && self.is_over {
            return Err(wrong("it holds several files: 'unzip' unpacks it"));
        }
        self.is_over |= header.is_file;
        Ok(State::Inside(Box::new(Inside {
            bytes: match header.is_deflated {
                true => Bytes::Deflated(DeflateDecoder::new(from)),
                false => Bytes::Stored(from.take(header.lens[0])),
            },
            header,
            sum: Crc::new(),
            len: 0,
        })))
    }
}

impl<R: BufRead> Inside<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = match &mut self.bytes {
            Bytes::Stored(from) => from.read(out)?,
            Bytes::Deflated(decoder) => decoder.read(out).map_err(cut_off)?,
        };
        self.sum.update(&out[..count]);
        self.len += count as u64;
        Ok(count)
    }

    /// Checks a file that was read to its end; returns what is behind it, and a signature if that was read.
    fn end(self) -> io::Result<(R, Option<u32>)> {
        let mut from = match self.bytes {
            Bytes::Stored(from) => from.into_inner(),
            Bytes::Deflated(decoder) => decoder.into_inner(),
        };
        let (mut sum, mut len, mut next) = (self.header.sum, self.header.lens[1], None);
        if self.header.has_descriptor {
            sum = word(&mut from)?;
            if sum == DESCRIPTOR {
                sum = word(&mut from)?;
            }
            (len, next) = descriptor_len(&mut from, self.len)?;
        }
        match sum == self.sum.sum() && len == self.len {
            true => Ok((from, next)),
            false => Err(wrong("the sum or the length of its file is wrong")),
        }
    }
}

/// The length of the file in a descriptor. Nothing says whether lengths have 32 or 64 bits: those of 32 are the ones that fit, with a
/// signature behind them, which is returned.
fn descriptor_len(from: &mut impl Read, found: u64) -> io::Result<(u64, Option<u32>)> {
    let [_, second, third] = [word(from)?, word(from)?, word(from)?];
    let is_signature = third == LOCAL || BEHIND.contains(&third);
    if u64::from(second) == found && is_signature {
        return Ok((found, Some(third)));
    }
    Ok((u64::from(third) | u64::from(word(from)?) << 32, None))
}

impl<R: BufRead> Read for ZipFile<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            match std::mem::replace(&mut self.state, State::Ended) {
                State::Ended => return Ok(0),
                State::Between(from, signature) => self.state = self.next(from, signature)?,
                State::Inside(mut file) => match file.read(out)? {
                    0 => {
                        let (from, signature) = file.end()?;
                        self.state = State::Between(from, signature);
                    }
                    count => {
                        let is_file = file.header.is_file;
                        self.state = State::Inside(file);
                        if is_file {
                            return Ok(count);
                        }
                    }
                },
            }
        }
    }
}
