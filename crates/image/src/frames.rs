//! A stream of zstd frames, one after the other.
//!
//! Input: compressed bytes. Output: what they hold. Invariants: the stream ends only between frames; frames that are to be skipped are; a
//! frame that has a checksum, or says its length, holds what they say; what is behind the last frame is told. Limits: windows of at most
//! 2^[`WINDOW`] bytes. Source: RFC 8878, section 3.1.

use crate::tail;
use crate::warnings::Warnings;
use std::fmt;
use std::io::{self, BufRead, Chain, Cursor, Read};
use zstd::stream::read::Decoder;

/// Of bytes that a frame may need to be remembered, as of `zstd -d` without --long: the decoder keeps them in memory.
const WINDOW: u32 = 27;

/// What frames begin with.
const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

type Source<R> = Chain<Cursor<[u8; 4]>, R>;

/// What a stream of zstd frames holds, as a stream.
pub struct ZstdFrames<R: BufRead> {
    frames: Frames<R>,
    warnings: Warnings,
}

impl<R: BufRead> fmt::Debug for ZstdFrames<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZstdFrames").finish_non_exhaustive()
    }
}

impl<R: BufRead> ZstdFrames<R> {
    /// Nothing is read yet.
    pub fn new(from: R, warnings: &Warnings) -> ZstdFrames<R> {
        ZstdFrames {
            frames: Frames::Between(from, true),
            warnings: warnings.clone(),
        }
    }
}

enum Frames<R: BufRead> {
    /// Before a frame, which is the first one or not.
    Between(R, bool),
    Inside(Box<Decoder<'static, Source<R>>>),
    /// After an error, or at the end.
    Ended,
}

/// The stream ends where it must not.
fn cut_off() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "zstd: it is cut off")
}

/// What a stream or the decoder says.
fn said(error: io::Error) -> io::Error {
    let text = error.to_string();
    match error.kind() {
        io::ErrorKind::UnexpectedEof => cut_off(),
        _ if text.contains("too much memory") => broken(format_args!(
            "it needs more than {} MiB of memory; 'zstd -d --long=31' unpacks it",
            1 << (WINDOW - 20)
        )),
        io::ErrorKind::Other => broken(text),
        _ => error,
    }
}

fn broken(why: impl fmt::Display) -> io::Error {
    io::Error::other(format!("zstd: {why}"))
}

/// Whether the bytes are those of a frame, or of one that is skipped, as far as there are any.
fn may_begin(bytes: &[u8]) -> bool {
    let is_skipped = |bytes: &[u8]| {
        let [first, rest @ ..] = bytes else {
            return true;
        };
        (0x50..=0x5F).contains(first) && [0x2A, 0x4D, 0x18].starts_with(rest)
    };
    MAGIC.starts_with(bytes) || is_skipped(bytes)
}

impl<R: BufRead> ZstdFrames<R> {
    /// Begins the next frame; None at the end, which is not before the first frame.
    fn begin(&self, mut from: R, mut is_first: bool) -> io::Result<Option<Frames<R>>> {
        loop {
            let mut magic = [0; 4];
            let mut have = 0;
            while have < magic.len() {
                match from.read(&mut magic[have..])? {
                    0 => break,
                    count => have += count,
                }
            }
            match (have, is_first) {
                (0, false) => return Ok(None),
                _ if may_begin(&magic[..have]) && have < magic.len() => return Err(cut_off()),
                _ if may_begin(&magic[..have]) => {}
                (_, true) => return Err(broken("it is not compressed by zstd")),
                (_, false) => {
                    tail::told(&mut from, "zstd", &self.warnings)?;
                    return Ok(None);
                }
            }
            if magic == MAGIC {
                let mut decoder = Decoder::with_buffer(Cursor::new(magic).chain(from))?;
                decoder.window_log_max(WINDOW)?;
                return Ok(Some(Frames::Inside(Box::new(decoder.single_frame()))));
            }
            is_first = false;
            let mut len = [0; 4];
            from.read_exact(&mut len).map_err(said)?;
            let len = u64::from(u32::from_le_bytes(len));
            let skipped = io::copy(&mut from.by_ref().take(len), &mut io::sink())?;
            if skipped < len {
                return Err(cut_off());
            }
        }
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            match std::mem::replace(&mut self.frames, Frames::Ended) {
                Frames::Ended => return Ok(0),
                Frames::Between(from, is_first) => match self.begin(from, is_first)? {
                    None => return Ok(0),
                    Some(frame) => self.frames = frame,
                },
                Frames::Inside(mut decoder) => match decoder.read(out).map_err(said)? {
                    0 => self.frames = Frames::Between(decoder.finish().into_inner().1, false),
                    count => {
                        self.frames = Frames::Inside(decoder);
                        return Ok(count);
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
        let mut raw = MAGIC.to_vec();
        raw.push(0x20 | if sum.is_some() { 4 } else { 0 });
        raw.push(says);
        let block = 1 | (contents.len() as u32) << 3;
        raw.extend_from_slice(&block.to_le_bytes()[..3]);
        raw.extend_from_slice(contents);
        raw.extend(sum.into_iter().flat_map(u32::to_le_bytes));
        raw
    }

    fn unpacked(stream: &[u8]) -> Result<(Vec<u8>, usize), String> {
        let (mut out, warnings) = (Vec::new(), Warnings::default());
        let read = ZstdFrames::new(stream, &warnings).read_to_end(&mut out);
        read.map(|_| (out, warnings.take("").len()))
            .map_err(|e| e.to_string())
    }

    #[test]
    fn a_frame_holds_what_it_says() {
        let two = [frame(b"abc", 3, None), frame(b"de", 2, None)].concat();
        assert_eq!(unpacked(&two).unwrap(), (b"abcde".to_vec(), 0));
        unpacked(&frame(b"abc", 4, None)).unwrap_err();
        let damaged = unpacked(&frame(b"abc", 3, Some(1))).unwrap_err();
        assert!(damaged.contains("checksum"), "{damaged}");
    }

    /// The defects: a stream without a frame was taken for one of no bytes, and where another one was cut off was said in words of the
    /// decoder; images with something behind the stream were refused.
    #[test]
    fn a_stream_is_whole() {
        let two = [frame(b"abc", 3, None), frame(b"de", 2, Some(1))].concat();
        let between = frame(b"abc", 3, None).len();
        for len in (0..two.len()).filter(|len| *len != between) {
            let short = unpacked(&two[..len]).unwrap_err();
            assert_eq!(short, "zstd: it is cut off", "{len}");
        }
        let skipped = [0x50, 0x2A, 0x4D, 0x18, 1, 0, 0, 0, 9];
        assert_eq!(unpacked(&skipped).unwrap().0, b"");
        assert_eq!(unpacked(&skipped[..8]).unwrap_err(), "zstd: it is cut off");
        let other = unpacked(b"other").unwrap_err();
        assert_eq!(other, "zstd: it is not compressed by zstd");
        for more in [&b"other"[..], b"x", b"\0\0\0\0\0"] {
            let all = unpacked(&[&two[..between], more].concat()).unwrap();
            assert_eq!(all, (b"abc".to_vec(), 1));
        }
    }

    #[test]
    fn memory_is_given_to_a_window_only_up_to_a_limit() {
        let mut raw = [&MAGIC[..], &[0, 0xF0]].concat();
        raw.extend_from_slice(&[1, 0, 0]);
        let refused = unpacked(&raw).unwrap_err();
        assert!(
            refused.contains("128 MiB of memory") && refused.contains("--long"),
            "{refused}"
        );
    }
}
