//! Compresses a stream by zstd.
//!
//! Input: a stream. Output: one frame, with a checksum as `zstd` writes it. Invariant: the bytes are the same for every number of
//! threads. Limits: at most [`MOST_THREADS`] threads, each with some 20 MiB; one where the host has no threads or memory for more; where it
//! has none for that one the caller compresses, and the frame has other bytes.

use super::Level;
use crate::copying::ranges::LARGE;
use std::io::{self, Read, Write};
use std::num::NonZero;
use std::thread::available_parallelism;
use zstd::stream::write::Encoder;

/// Threads that compress beside the one that reads.
const MOST_THREADS: usize = 4;

/// Address space for a thread, and for what all share.
const OF_THREAD: usize = 40 << 20;
const OF_ALL: usize = 48 << 20;

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

/// Tries with this many threads, then with one, then with none, until the library has got what it needs. It asks for that with the first
/// bytes.
fn compress_by(
    threads: u32,
    mut from: impl Read,
    out: impl Write,
    level: Level,
    size: Option<u64>,
) -> io::Result<()> {
    let mut out = Noted {
        out,
        is_written: false,
    };
    let mut piece = vec![0; LARGE];
    let first = read_some(&mut from, &mut piece)?;
    let mut tries: Vec<u32> = [threads, 1].into_iter().filter(|n| has_room(*n)).collect();
    tries.push(0);
    tries.dedup();
    let last = tries.len() - 1;
    for threads in &tries[..last] {
        let done = frame(
            (*threads, level, size),
            &mut out,
            &mut piece,
            first,
            &mut from,
        );
        match done {
            Err(Failed::Begin(_)) if !out.is_written => {}
            Err(Failed::Begin(error) | Failed::Later(error)) => return Err(error),
            Ok(()) => return Ok(()),
        }
    }
    let done = frame(
        (tries[last], level, size),
        &mut out,
        &mut piece,
        first,
        &mut from,
    );
    done.map_err(|(Failed::Begin(error) | Failed::Later(error))| error)
}

/// Whether there is address space for what this many threads will take. They ask for most of it when it is too late to do without them.
fn has_room(threads: u32) -> bool {
    let mut room: Vec<u8> = Vec::new();
    room.try_reserve_exact(OF_ALL + threads as usize * OF_THREAD)
        .is_ok()
}

/// When a frame failed.
enum Failed {
    /// Nothing but the first piece had been read.
    Begin(io::Error),
    Later(io::Error),
}

/// Writes the frame of a piece, of which so many bytes are the first of the stream, and of what follows.
fn frame(
    (threads, level, size): (u32, Level, Option<u64>),
    out: impl Write,
    piece: &mut [u8],
    first: usize,
    from: &mut impl Read,
) -> Result<(), Failed> {
    let begin = || {
        let mut encoder = Encoder::new(out, level.of_zstd())?;
        encoder.include_checksum(true)?;
        encoder.set_pledged_src_size(size)?;
        encoder.multithread(threads)?;
        encoder.write_all(&piece[..first])?;
        Ok(encoder)
    };
    let mut encoder = begin().map_err(Failed::Begin)?;
    let mut follow = || {
        loop {
            match read_some(from, piece)? {
                0 => break,
                count => encoder.write_all(&piece[..count])?,
            }
        }
        encoder.do_finish()?;
        encoder.get_mut().flush()
    };
    follow().map_err(Failed::Later)
}

fn read_some(from: &mut impl Read, piece: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Notes whether anything was written.
struct Noted<W> {
    out: W,
    is_written: bool,
}

impl<W: Write> Write for Noted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.is_written |= !bytes.is_empty();
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
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
