//! A stream of zstd frames, one after the other.
//!
//! Input: compressed bytes. Output: what they hold. Invariants: the stream ends only between frames; frames that are to be skipped are; a
//! frame that has a checksum, or says its length, holds what they say. Limits: windows of at most [`MOST_WINDOW`] bytes. Source: RFC 8878,
//! section 3.1.

use ruzstd::decoding::StreamingDecoder;
use std::fmt;
use std::io::{self, Chain, Cursor, Read};

/// Bytes that a frame may need to be remembered, as of `zstd -d` without --long: the decoder keeps them in memory.
const MOST_WINDOW: u64 = 128 << 20;

/// What frames begin with.
const MAGIC: u32 = 0xFD2F_B528;

type Source<R> = Chain<Cursor<Vec<u8>>, Noted<R>>;
type Decoder<R> = StreamingDecoder<Source<R>, ruzstd::decoding::FrameDecoder>;

/// What a stream of zstd frames holds, as a stream.
pub struct ZstdFrames<R: Read>(Frames<R>);

impl<R: Read> fmt::Debug for ZstdFrames<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZstdFrames").finish_non_exhaustive()
    }
}

impl<R: Read> ZstdFrames<R> {
    /// Nothing is read yet.
    pub fn new(from: R) -> ZstdFrames<R> {
        ZstdFrames(Frames::Between(from, true))
    }
}

impl<R: Read> Read for ZstdFrames<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }
}

enum Frames<R: Read> {
    /// Before a frame, which is the first one or not.
    Between(R, bool),
    /// A frame, with how many bytes it has given and says that it has.
    Inside(Box<Decoder<R>>, u64, Option<u64>),
    /// After an error, or at the end.
    Ended,
}

/// A stream that notes that somebody wanted more than it has.
struct Noted<R> {
    from: R,
    is_short: bool,
}

impl<R: Read> Read for Noted<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(out)?;
        self.is_short |= count == 0 && !out.is_empty();
        Ok(count)
    }
}

/// The stream ends where it must not.
fn cut_off() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "zstd: it is cut off")
}

/// What `read_exact` of a stream says.
fn ends(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => cut_off(),
        _ => error,
    }
}

fn broken(why: impl fmt::Display) -> io::Error {
    io::Error::other(format!("zstd: {why}"))
}

/// The header of a frame.
struct Header {
    bytes: Vec<u8>,
    /// The length that it says the contents have.
    len: Option<u64>,
}

impl Header {
    /// Reads the header behind its magic number.
    ///
    /// # Errors
    /// The stream ends; the frame needs more memory than is given to it.
    fn read(magic: &[u8; 4], from: &mut impl Read) -> io::Result<Header> {
        let mut bytes = magic.to_vec();
        let mut take = |count: usize| -> io::Result<u64> {
            let mut field = [0; 8];
            from.read_exact(&mut field[..count]).map_err(ends)?;
            bytes.extend_from_slice(&field[..count]);
            Ok(u64::from_le_bytes(field))
        };
        let descriptor = take(1)?;
        let is_single = descriptor & 0x20 != 0;
        let window = match is_single {
            true => None,
            false => {
                let byte = take(1)?;
                let base = 1u64 << (10 + (byte >> 3));
                Some(base + base / 8 * (byte & 7))
            }
        };
        take([0, 1, 2, 4][(descriptor & 3) as usize])?;
        let len = match (descriptor >> 6, is_single) {
            (0, false) => None,
            (0, true) => Some(take(1)?),
            (1, _) => Some(take(2)? + 256),
            (2, _) => Some(take(4)?),
            _ => Some(take(8)?),
        };
        let window = window.or(len).unwrap_or(0);
        if window > MOST_WINDOW {
            return Err(broken(format_args!(
                "it needs {window} bytes of memory, and gets {MOST_WINDOW} at most; 'zstd -d --long=31' unpacks it"
            )));
        }
        Ok(Header { bytes, len })
    }
}

/// Checks that a frame that has ended holds what it says.
fn check_whole(
    frame: &ruzstd::decoding::FrameDecoder,
    given: u64,
    len: Option<u64>,
) -> io::Result<()> {
    if let Some(len) = len.filter(|len| *len != given) {
        return Err(broken(format_args!(
            "a frame has {given} bytes, and says that it has {len}"
        )));
    }
    match (
        frame.get_checksum_from_data(),
        frame.get_calculated_checksum(),
    ) {
        (Some(said), found) if found != Some(said) => Err(broken(
            "the checksum of a frame is wrong: the data is damaged",
        )),
        _ => Ok(()),
    }
}

impl<R: Read> Frames<R> {
    /// Begins the next frame; None at the end, which is not before the first frame.
    fn begin(mut from: R, mut is_first: bool) -> io::Result<Option<Frames<R>>> {
        loop {
            let mut magic = [0; 4];
            let mut have = 0;
            while have < magic.len() {
                match from.read(&mut magic[have..])? {
                    0 if have == 0 && !is_first => return Ok(None),
                    0 => return Err(cut_off()),
                    count => have += count,
                }
            }
            let is_skipped = u32::from_le_bytes(magic) & !0xF == 0x184D_2A50;
            if !is_skipped && u32::from_le_bytes(magic) != MAGIC {
                return Err(broken(match is_first {
                    true => "it is not compressed by zstd",
                    false => "behind its end is no other frame",
                }));
            }
            if !is_skipped {
                let header = Header::read(&magic, &mut from)?;
                let from = Noted {
                    from,
                    is_short: false,
                };
                let source = Cursor::new(header.bytes).chain(from);
                let decoder = StreamingDecoder::new(source).map_err(broken)?;
                return Ok(Some(Frames::Inside(Box::new(decoder), 0, header.len)));
            }
            is_first = false;
            let mut len = [0; 4];
            from.read_exact(&mut len).map_err(ends)?;
            let len = u64::from(u32::from_le_bytes(len));
            let skipped = io::copy(&mut from.by_ref().take(len), &mut io::sink())?;
            if skipped < len {
                return Err(cut_off());
            }
        }
    }
}

impl<R: Read> Read for Frames<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            match std::mem::replace(self, Frames::Ended) {
                Frames::Ended => return Ok(0),
                Frames::Between(from, is_first) => match Frames::begin(from, is_first)? {
                    None => return Ok(0),
                    Some(frame) => *self = frame,
                },
                Frames::Inside(mut decoder, given, len) => match decoder.read(out) {
                    Ok(0) => {
                        check_whole(&decoder.decoder, given, len)?;
                        let from = decoder.into_inner().into_inner().1.from;
                        *self = Frames::Between(from, false);
                    }
                    Ok(count) => {
                        *self = Frames::Inside(decoder, given + count as u64, len);
                        return Ok(count);
                    }
                    Err(error) => {
                        return Err(match decoder.get_ref().get_ref().1.is_short {
                            true => cut_off(),
                            false => error,
                        });
                    }
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame with one raw block: its contents, the length that it says, and what stands where its checksum is.
    fn frame(contents: &[u8], says: u8, sum: Option<u32>) -> Vec<u8> {
        let mut raw = vec![0x28, 0xB5, 0x2F, 0xFD];
        raw.push(0x20 | if sum.is_some() { 4 } else { 0 });
        raw.push(says);
        let block = 1 | (contents.len() as u32) << 3;
        raw.extend_from_slice(&block.to_le_bytes()[..3]);
        raw.extend_from_slice(contents);
        raw.extend(sum.into_iter().flat_map(u32::to_le_bytes));
        raw
    }

    fn unpacked(stream: &[u8]) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        let read = ZstdFrames::new(stream).read_to_end(&mut out);
        read.map(|_| out).map_err(|e| e.to_string())
    }

    #[test]
    fn a_frame_holds_what_it_says() {
        let two = [frame(b"abc", 3, None), frame(b"de", 2, None)].concat();
        assert_eq!(unpacked(&two).unwrap(), b"abcde");
        let wrong = unpacked(&frame(b"abc", 4, None)).unwrap_err();
        assert!(
            wrong.contains("has 3 bytes, and says that it has 4"),
            "{wrong}"
        );
        let damaged = unpacked(&frame(b"abc", 3, Some(1))).unwrap_err();
        assert!(damaged.contains("checksum"), "{damaged}");
    }

    /// The defects: a stream without a frame was taken for one of no bytes, and where another one was cut off was said in words of the
    /// decoder.
    #[test]
    fn a_stream_is_whole() {
        let two = [frame(b"abc", 3, None), frame(b"de", 2, Some(1))].concat();
        let between = frame(b"abc", 3, None).len();
        for len in (0..two.len()).filter(|len| *len != between) {
            assert_eq!(unpacked(&two[..len]).unwrap_err(), "zstd: it is cut off");
        }
        let skipped = [0x50, 0x2A, 0x4D, 0x18, 1, 0, 0, 0, 9];
        assert_eq!(unpacked(&skipped).unwrap(), b"");
        assert_eq!(unpacked(&skipped[..8]).unwrap_err(), "zstd: it is cut off");
        let other = unpacked(b"other").unwrap_err();
        assert_eq!(other, "zstd: it is not compressed by zstd");
        let behind = unpacked(&[&two[..between], b"other"].concat()).unwrap_err();
        assert_eq!(behind, "zstd: behind its end is no other frame");
    }

    #[test]
    fn memory_is_given_to_a_window_only_up_to_a_limit() {
        let mut raw = vec![0x28, 0xB5, 0x2F, 0xFD, 0, 0xF0];
        raw.extend_from_slice(&[1, 0, 0]);
        let refused = unpacked(&raw).unwrap_err();
        assert!(
            refused.contains("bytes of memory") && refused.contains("--long"),
            "{refused}"
        );
    }
}
