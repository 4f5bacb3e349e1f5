//! A stream of zstd frames, one after the other.
//!
//! Input: compressed bytes. Output: what they hold. Invariants: the stream ends only between frames; frames that are to be skipped are.
//! Limits: those of the decoder. Source: RFC 8878, section 3.1.

use ruzstd::decoding::StreamingDecoder;
use std::fmt;
use std::io::{self, Chain, Cursor, Read};

type Source<R> = Chain<Cursor<[u8; 4]>, R>;
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
        ZstdFrames(Frames::Between(from))
    }
}

impl<R: Read> Read for ZstdFrames<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }
}

enum Frames<R: Read> {
    Between(R),
    Inside(Box<Decoder<R>>),
    /// After an error, or at the end.
    Ended,
}

impl<R: Read> Frames<R> {
    /// Begins the next frame; None at the end.
    fn begin(mut from: R) -> io::Result<Option<Decoder<R>>> {
        loop {
            let mut magic = [0; 4];
            let mut have = 0;
            while have < magic.len() {
                match from.read(&mut magic[have..])? {
                    0 if have == 0 => return Ok(None),
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    count => have += count,
                }
            }
            if u32::from_le_bytes(magic) & !0xF != 0x184D_2A50 {
                let source = Cursor::new(magic).chain(from);
                let decoder = StreamingDecoder::new(source);
                return decoder
                    .map(Some)
                    .map_err(|e| io::Error::other(format!("zstd: {e}")));
            }
            let mut len = [0; 4];
            from.read_exact(&mut len)?;
            let len = u64::from(u32::from_le_bytes(len));
            let skipped = io::copy(&mut from.by_ref().take(len), &mut io::sink())?;
            if skipped < len {
                return Err(io::ErrorKind::UnexpectedEof.into());
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
                Frames::Between(from) => match Frames::begin(from)? {
                    None => return Ok(0),
                    Some(decoder) => *self = Frames::Inside(Box::new(decoder)),
                },
                Frames::Inside(mut decoder) => match decoder.read(out)? {
                    0 => *self = Frames::Between(decoder.into_inner().into_inner().1),
                    count => {
                        *self = Frames::Inside(decoder);
                        return Ok(count);
                    }
                },
            }
        }
    }
}
