//! Compresses a stream by zstd.
//!
//! Input: a stream. Output: one frame. Invariant: the first error of either side is the result. Limits: the compressor of `ruzstd` takes no
//! errors, so it is told that the stream ends, and what it writes behind an error is dropped.

use ruzstd::encoding::{CompressionLevel, FrameCompressor};
use std::io::{self, Read, Write};

/// See the module.
pub(crate) fn compress(from: impl Read, out: impl Write) -> io::Result<()> {
    let mut source = Source { from, failed: None };
    let mut drain = Drain { out, failed: None };
    let mut compressor = FrameCompressor::new(CompressionLevel::Fastest);
    compressor.set_source(&mut source);
    compressor.set_drain(&mut drain);
    compressor.compress();
    drop(compressor);
    let failed = drain.failed.or(source.failed);
    failed.map_or_else(|| drain.out.flush(), Err)
}

/// A stream that ends at its first error.
struct Source<R> {
    from: R,
    failed: Option<io::Error>,
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.failed.is_some() {
            return Ok(0);
        }
        match self.from.read(out) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.read(out),
            Err(error) => {
                self.failed = Some(error);
                Ok(0)
            }
            done => done,
        }
    }
}

/// After the first error, nothing is written any more.
struct Drain<W> {
    out: W,
    failed: Option<io::Error>,
}

impl<W: Write> Write for Drain<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.failed.is_none() {
            self.failed = self.out.write_all(bytes).err();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
