//! Compresses a stream by zstd.
//!
//! Input: a stream. Output: one frame, with a checksum as `zstd` writes it. Invariant: the bytes are the same for every number of
//! threads. Limits: at most [`MOST_THREADS`] threads, each with some 20 MiB.

use super::Level;
use crate::copying::ranges::LARGE;
use std::io::{self, Read, Write};
use std::num::NonZero;
use std::thread::available_parallelism;
use zstd::stream::write::Encoder;

/// Threads that compress beside the one that reads.
const MOST_THREADS: usize = 4;

/// See the module. `size` is that of the stream, if it is known.
pub(crate) fn compress(
    from: impl Read,
    out: impl Write,
    level: Level,
    size: Option<u64>,
) -> io::Result<()> {
    let threads = available_parallelism().map_or(1, NonZero::get);
    compress_by(threads.min(MOST_THREADS) as u32, from, out, level, size)
}

/// `threads` is at least 1: without any, the calling thread would compress, and the frame had other bytes.
fn compress_by(
    threads: u32,
    mut from: impl Read,
    out: impl Write,
    level: Level,
    size: Option<u64>,
) -> io::Result<()> {
    let mut encoder = Encoder::new(out, level.of_zstd())?;
    encoder.include_checksum(true)?;
    encoder.set_pledged_src_size(size)?;
    encoder.multithread(threads)?;
    let mut piece = vec![0; LARGE];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return encoder.finish()?.flush(),
            Ok(count) => encoder.write_all(&piece[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_threads_changes_nothing() {
        // More than the 8 MiB of one job, of words that repeat now and then.
        let words = (0u64..3 << 20).map(|n| ((n * n) >> 9) % 5000);
        let data: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        let made = [1, 2, 4].map(|threads| {
            let mut out = Vec::new();
            let size = Some(data.len() as u64);
            compress_by(threads, &data[..], &mut out, Level::default(), size).unwrap();
            out
        });
        assert!(made[0].len() < data.len() / 2);
        assert!(made[0] == made[1] && made[0] == made[2]);
        assert!(zstd::decode_all(&made[0][..]).unwrap() == data);
    }
}
