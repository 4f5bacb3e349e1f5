//! Android sparse images: a header, and chunks that are data, a repeated word, or nothing.
//!
//! Input: the bytes of an image in order; a stream. Output: a sparse image; what it holds. Invariants: blocks of one repeated word, zeros
//! too, are chunks that say so, and whoever writes the image to a device writes them there: what is not stored is not left to the device;
//! the chunks that are read are exactly the blocks that the header says, and have the sums that chunks of sums say. Limits: the sum in the
//! header is not looked at, which libsparse leaves empty; 2^32 blocks. Source: the Android project's sparse_format.h (Apache-2.0).

use diorite_block::uncached::InOrder;
use flate2::Crc;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};

mod pieces;

pub use pieces::SparsePieces;

const MAGIC: u32 = 0xed26_ff3a;
const HEADER: u16 = 28;
const CHUNK: u16 = 12;
const RAW: u16 = 0xcac1;
const FILL: u16 = 0xcac2;
const DONT_CARE: u16 = 0xcac3;
const CRC32: u16 = 0xcac4;
/// Bytes of the largest chunk of data that is written: its length has 32 bits.
const MOST: u64 = 64 << 20;
/// Bytes of blocks that are written, the largest first.
const BLOCKS: [u64; 4] = [4096, 2048, 1024, 512];

/// The chunk that is being written.
#[derive(Debug)]
struct Open {
    kind: u16,
    /// What is repeated in a chunk of one word.
    word: [u8; 4],
    /// Where its header is.
    at: u64,
    blocks: u64,
}

/// Writes a sparse image.
#[derive(Debug)]
pub struct SparseWriter {
    out: BufWriter<InOrder<File>>,
    /// Bytes written.
    at: u64,
    block: u64,
    size: u64,
    chunks: u32,
    open: Option<Open>,
    /// Bytes of a block that is not complete.
    part: Vec<u8>,
}

impl SparseWriter {
    /// For an image of `size` bytes.
    ///
    /// # Errors
    /// It has no whole number of blocks, or too many.
    pub fn new(out: File, size: u64) -> io::Result<SparseWriter> {
        let fits = |block: &&u64| size.is_multiple_of(**block);
        let block = BLOCKS.iter().find(fits).copied();
        let block = block.filter(|block| size / block <= u32::MAX.into());
        let block = block.ok_or_else(|| {
            io::Error::other(format!(
                "{size} bytes cannot be an Android sparse image: they are no multiple of 512, or more than 2^32 blocks"
            ))
        })?;
        let mut writer = SparseWriter {
            out: BufWriter::with_capacity(1 << 20, InOrder(out)),
            at: 0,
            block,
            size,
            chunks: 0,
            open: None,
            part: Vec::new(),
        };
        writer.put(&[0; HEADER as usize])?;
        Ok(writer)
    }

    /// The next bytes of the image.
    ///
    /// # Errors
    /// Of the file.
    pub fn data(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let block = self.block as usize;
        if !self.part.is_empty() {
            let (now, rest) = bytes.split_at((block - self.part.len()).min(bytes.len()));
            self.part.extend(now);
            bytes = rest;
            if self.part.len() == block {
                let part = std::mem::take(&mut self.part);
                self.one(&part)?;
            }
        }
        let mut blocks = bytes.chunks_exact(block);
        blocks.by_ref().try_for_each(|block| self.one(block))?;
        self.part.extend(blocks.remainder());
        Ok(())
    }

    /// So many zeros are next.
    ///
    /// # Errors
    /// Of the file.
    pub fn zeros(&mut self, len: u64) -> io::Result<()> {
        let lead = match self.part.len() as u64 {
            0 => 0,
            have => (self.block - have).min(len),
        };
        self.data(&vec![0; lead as usize])?;
        let (whole, rest) = ((len - lead) / self.block, (len - lead) % self.block);
        if whole > 0 {
            self.begin(FILL, [0; 4])?.blocks += whole;
        }
        self.data(&vec![0; rest as usize])
    }

    fn one(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(word) = repeated(bytes) {
            self.begin(FILL, word)?.blocks += 1;
            return Ok(());
        }
        self.begin(RAW, [0; 4])?.blocks += 1;
        self.put(bytes)
    }

    /// The chunk of this kind: the one that is open, or a new one.
    fn begin(&mut self, kind: u16, word: [u8; 4]) -> io::Result<&mut Open> {
        let most = MOST / self.block;
        let is_same = |open: &Open| (open.kind, open.word) == (kind, word);
        let goes_on = |open: &Open| is_same(open) && (kind == FILL || open.blocks < most);
        if !self.open.as_ref().is_some_and(goes_on) {
            self.close()?;
            let at = self.at;
            self.put(&[0; CHUNK as usize])?;
            if kind == FILL {
                self.put(&word)?;
            }
            self.chunks += 1;
            self.open = Some(Open {
                kind,
                word,
                at,
                blocks: 0,
            });
        }
        Ok(self.open.as_mut().expect("it was made"))
    }

    /// Writes the header of the chunk that ends.
    fn close(&mut self) -> io::Result<()> {
        let Some(Open {
            kind, at, blocks, ..
        }) = self.open.take()
        else {
            return Ok(());
        };
        let body = match kind {
            FILL => 4,
            _ => blocks * self.block,
        };
        let words = [kind.to_le_bytes(), [0; 2]].concat();
        // An image has at most 2^32 - 1 blocks, and a chunk of data MOST bytes.
        let counts = [blocks as u32, (u64::from(CHUNK) + body) as u32].map(u32::to_le_bytes);
        let header = [words, counts.concat()].concat();
        self.patch(at, &header)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    fn patch(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.out.seek(SeekFrom::Start(at))?;
        self.out.write_all(bytes)?;
        self.out.seek(SeekFrom::Start(self.at)).map(drop)
    }

    /// The image is complete.
    ///
    /// # Errors
    /// Of the file.
    pub fn finish(mut self) -> io::Result<()> {
        self.close()?;
        let sizes = [1, 0, HEADER, CHUNK].map(u16::to_le_bytes).concat();
        let blocks = (self.size / self.block) as u32;
        let counts = [self.block as u32, blocks, self.chunks, 0].map(u32::to_le_bytes);
        let header = [MAGIC.to_le_bytes().to_vec(), sizes, counts.concat()].concat();
        self.patch(0, &header)?;
        self.out.flush()
    }
}

/// The word that a block repeats, if it does.
fn repeated(block: &[u8]) -> Option<[u8; 4]> {
    let word = [block[0], block[1], block[2], block[3]];
    // A block is the same as itself a word later, which is compared in wide steps.
    (block[4..] == block[..block.len() - 4]).then_some(word)
}

/// What is left of the chunk that is being read.
#[derive(Clone, Copy, Debug)]
enum Left {
    Raw(u64),
    Word([u8; 4], u64),
    Zeros(u64),
    /// What the image says nothing about; if it is alone, zeros.
    Nothing(u64),
}

/// The next bytes of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SparseStep {
    /// So many bytes were read.
    Data(usize),
    /// So many zeros follow.
    Zeros(u64),
    /// There is no more.
    End,
}

/// Reads a sparse image.
#[derive(Debug)]
pub struct SparseReader<R> {
    from: R,
    block: u64,
    /// Bytes of the whole image.
    size: u64,
    chunks: u32,
    /// Bytes that a header of a chunk has beyond those that are known.
    more: u64,
    /// Blocks of the chunks so far.
    blocks: u64,
    left: Left,
    /// Of all bytes so far.
    sum: Crc,
}

fn wrong(why: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("it is no valid Android sparse image: {why}"))
}

/// Bytes that have to be there.
fn fixed<const N: usize>(from: &mut impl Read, what: &str) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes).map_err(|e| ended(e, what))?;
    Ok(bytes)
}

/// What is said of an end where none should be.
fn ended(error: io::Error, what: &str) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => wrong(format_args!("it ends in {what}")),
        _ => error,
    }
}

fn skip(from: &mut impl Read, count: u64, what: &str) -> io::Result<()> {
    match io::copy(&mut from.take(count), &mut io::sink())? == count {
        true => Ok(()),
        false => Err(wrong(format_args!("it ends in {what}"))),
    }
}

/// Adds so many zeros to a sum, in as many steps as the number has bits.
fn add_zeros(sum: &mut Crc, mut len: u64) {
    let mut some = Crc::new();
    some.update(&[0]);
    while len > 0 {
        if len & 1 == 1 {
            sum.combine(&some);
        }
        let mut twice = Crc::new();
        twice.combine(&some);
        twice.combine(&some);
        (some, len) = (twice, len >> 1);
    }
}

fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

impl<R: Read> SparseReader<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// It is none; of the stream.
    pub fn new(mut from: R) -> io::Result<SparseReader<R>> {
        let header: [u8; HEADER as usize] = fixed(&mut from, "its header")?;
        if le32(&header, 0) != MAGIC {
            return Err(wrong("its magic number is another"));
        }
        let (major, sizes) = (le16(&header, 4), [le16(&header, 8), le16(&header, 10)]);
        if major != 1 || sizes[0] < HEADER || sizes[1] < CHUNK {
            let [file, chunk] = sizes;
            return Err(wrong(format_args!(
                "version {major} with headers of {file} and {chunk} bytes"
            )));
        }
        let block = le32(&header, 12);
        if block == 0 || !block.is_multiple_of(4) {
            return Err(wrong(format_args!("blocks of {block} bytes")));
        }
        skip(&mut from, (sizes[0] - HEADER).into(), "its header")?;
        Ok(SparseReader {
            from,
            block: block.into(),
            // A product of 32-bit numbers.
            size: u64::from(block) * u64::from(le32(&header, 16)),
            chunks: le32(&header, 20),
            more: (sizes[1] - CHUNK).into(),
            blocks: 0,
            left: Left::Zeros(0),
            sum: Crc::new(),
        })
    }

    /// Bytes of the whole image, as the header says.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The next bytes, in `out` if they are data: room for four bytes at least.
    ///
    /// # Errors
    /// The chunks are damaged, or not as many blocks as the header says; of the stream.
    pub fn step(&mut self, out: &mut [u8]) -> io::Result<SparseStep> {
        loop {
            match self.left {
                Left::Raw(0) | Left::Word(_, 0) | Left::Zeros(0) | Left::Nothing(0) => {
                    if !self.next()? {
                        return Ok(SparseStep::End);
                    }
                }
                Left::Zeros(len) | Left::Nothing(len) => {
                    self.left = Left::Zeros(0);
                    add_zeros(&mut self.sum, len);
                    return Ok(SparseStep::Zeros(len));
                }
                Left::Raw(len) | Left::Word(_, len) => {
                    let count = out.len().min(usize::try_from(len).unwrap_or(usize::MAX));
                    // Blocks are whole words.
                    let count = count / 4 * 4;
                    self.take(&mut out[..count])?;
                    return Ok(SparseStep::Data(count));
                }
            }
        }
    }

    /// Begins the next chunk; false behind the last.
    fn next(&mut self) -> io::Result<bool> {
        let whole = self.size / self.block;
        if self.chunks == 0 {
            return match self.blocks == whole {
                true => Ok(false),
                false => Err(wrong(format_args!(
                    "its chunks are {} blocks, and its header says {whole}",
                    self.blocks
                ))),
            };
        }
        self.chunks -= 1;
        let header: [u8; CHUNK as usize] = fixed(&mut self.from, "the header of a chunk")?;
        skip(&mut self.from, self.more, "the header of a chunk")?;
        let (kind, blocks, total) = (le16(&header, 0), le32(&header, 4), le32(&header, 8));
        let bytes = u64::from(blocks) * self.block;
        let body = match kind {
            RAW => bytes,
            FILL | CRC32 => 4,
            DONT_CARE => 0,
            _ => {
                return Err(wrong(format_args!(
                    "a chunk of the unknown kind {kind:#06x}"
                )));
            }
        };
        if u64::from(total) != u64::from(CHUNK) + self.more + body {
            return Err(wrong(format_args!(
                "a chunk of the kind {kind:#06x} with {blocks} blocks is said to have {total} bytes"
            )));
        }
        self.left = match kind {
            RAW => Left::Raw(bytes),
            DONT_CARE => Left::Nothing(bytes),
            FILL => match fixed(&mut self.from, "a chunk")? {
                [0, 0, 0, 0] => Left::Zeros(bytes),
                word => Left::Word(word, bytes),
            },
            _ => {
                let said = u32::from_le_bytes(fixed(&mut self.from, "a chunk")?);
                return match said == self.sum.sum() {
                    true => Ok(true),
                    false => Err(wrong("the sum of its blocks is another: it is damaged")),
                };
            }
        };
        self.blocks += u64::from(blocks);
        match self.blocks <= whole {
            true => Ok(true),
            false => Err(wrong(format_args!(
                "its chunks are more than the {whole} blocks that its header says"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_zeros_are_those_of_their_bytes() {
        for len in [0, 1, 3, 4096, 100_001] {
            let (mut fast, mut slow) = (Crc::new(), Crc::new());
            fast.update(b"before");
            slow.update(b"before");
            add_zeros(&mut fast, len);
            slow.update(&vec![0; len as usize]);
            assert_eq!(fast.sum(), slow.sum(), "{len}");
        }
        assert_eq!(repeated(b"abcdabcdabcd"), Some(*b"abcd"));
        assert_eq!(repeated(b"abcdabcdabce"), None);
    }
}
