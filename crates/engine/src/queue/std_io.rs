//! [`File`] as the standard library's readers and writers.
//!
//! Input: slices. Output: bytes, counts, `std::io` errors whose source is an [`Error`]. Invariants: reads and writes without a position
//! move that of the open file by what they have done; several slices are written as if they were one; a read into several slices sees
//! each atomic write whole or not at all. Limits: threads that share a position share it as threads that share a file descriptor do; slices
//! are gathered in pieces of at most 1 MiB, those of a direct write all together.

use super::File;
use crate::alloc::MOST_UNIT;
use crate::error::Error;
use crate::pages::Watched;
use diorite_block::DeviceError;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of several slices that are read or written together, at most.
const MOST_GATHERED: usize = 1 << 20;

impl File {
    /// As [`File::read_bytes`], into one slice behind the other; atomic writes are seen as by one read of all.
    ///
    /// # Errors
    /// Those of [`File::read_bytes`], if nothing was read before.
    pub fn read_vectored_at(&self, out: &mut [IoSliceMut<'_>], pos: u64) -> Result<usize, Error> {
        if let [one] = out {
            return self.read_bytes(pos, one);
        }
        let no_atomic_write = || self.inode().untorn_begun() == 0;
        if no_atomic_write() {
            let done = self.read_slices(pos, out);
            if no_atomic_write() {
                return done;
            }
        }
        self.read_gathered(pos, out)
    }

    /// Reads slice by slice.
    fn read_slices(&self, pos: u64, out: &mut [IoSliceMut<'_>]) -> Result<usize, Error> {
        let mut done = 0;
        for slice in out {
            match self.read_bytes(pos.saturating_add(done as u64), slice) {
                Ok(count) => {
                    done += count;
                    if count < slice.len() {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Reads through one buffer, so that no atomic write is read in two parts.
    fn read_gathered(&self, pos: u64, out: &mut [IoSliceMut<'_>]) -> Result<usize, Error> {
        let all = out
            .iter()
            .fold(0, |sum: usize, s| sum.saturating_add(s.len()));
        let (mut done, mut gathered) = (0, Vec::new());
        while done < all {
            let at = pos.saturating_add(done as u64);
            // Up to where an atomic write may begin.
            let end = at.saturating_add(MOST_GATHERED as u64) / MOST_UNIT * MOST_UNIT;
            let most = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX);
            let want = most.clamp(1, all - done);
            let room = gathered.try_reserve(want.saturating_sub(gathered.len()));
            room.map_err(|_| Error::NoMemory { asked: want as u64 })?;
            gathered.resize(want, 0);
            let got = match self.read_bytes(at, &mut gathered) {
                Err(_) if done > 0 => break,
                got => got?,
            };
            scatter(out, done, &gathered[..got]);
            done += got;
            if got < want {
                break;
            }
        }
        Ok(done)
    }

    /// As [`File::write_bytes`], from one slice behind the other.
    ///
    /// # Errors
    /// Those of [`File::write_bytes`], if nothing was written before.
    pub fn write_vectored_at(&self, data: &[IoSlice<'_>], pos: u64) -> Result<usize, Error> {
        let (is_direct, watched) = (self.open_file().is_direct(), self.watch());
        let (mut done, mut gathered) = (0, Vec::new());
        let fits = |gathered: &Vec<u8>, more: usize| gathered.len() + more <= MOST_GATHERED;
        for slice in data {
            // A direct write is aligned as a whole, whatever its slices are.
            if is_direct || fits(&gathered, slice.len()) {
                let asked = slice.len() as u64;
                let room = gathered.try_reserve(slice.len());
                room.map_err(|_| Error::NoMemory { asked })?;
                gathered.extend_from_slice(slice);
                continue;
            }
            for part in [&gathered[..], slice].into_iter().filter(|p| !p.is_empty()) {
                if !self.write_part(pos, part, &mut done, watched.as_ref())? {
                    self.make_written_durable(watched)?;
                    return Ok(done);
                }
            }
            gathered.clear();
        }
        if done == 0 || !gathered.is_empty() {
            self.write_part(pos, &gathered, &mut done, watched.as_ref())?;
        }
        // Once, and reported whatever was written: it is told only once.
        self.make_written_durable(watched)?;
        Ok(done)
    }

    /// Writes what follows the first `done` bytes. False if it was not written whole.
    fn write_part(
        &self,
        pos: u64,
        part: &[u8],
        done: &mut usize,
        watched: Option<&Watched<'_>>,
    ) -> Result<bool, Error> {
        match self.write_lazily(pos.saturating_add(*done as u64), part, watched) {
            Ok(count) => {
                *done += count;
                Ok(count == part.len())
            }
            Err(_) if *done > 0 => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn moved(&self, pos: u64, done: Result<usize, Error>) -> io::Result<usize> {
        let done = done?;
        let position = &self.reading.position;
        position.store(pos + done as u64, Relaxed);
        Ok(done)
    }
}

/// Copies bytes into slices, behind the first `skip` bytes of those.
fn scatter(out: &mut [IoSliceMut<'_>], mut skip: usize, mut bytes: &[u8]) {
    for slice in out {
        let from = skip.min(slice.len());
        skip -= from;
        let room = &mut slice[from..];
        let (now, later) = bytes.split_at(room.len().min(bytes.len()));
        room[..now.len()].copy_from_slice(now);
        bytes = later;
    }
}

impl io::Read for &File {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let pos = self.reading.position.load(Relaxed);
        self.moved(pos, self.read_bytes(pos, out))
    }

    fn read_vectored(&mut self, out: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let pos = self.reading.position.load(Relaxed);
        self.moved(pos, self.read_vectored_at(out, pos))
    }
}

impl io::Write for &File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let pos = self.reading.position.load(Relaxed);
        self.moved(pos, self.write_bytes(pos, data))
    }

    fn write_vectored(&mut self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        let pos = self.reading.position.load(Relaxed);
        self.moved(pos, self.write_vectored_at(data, pos))
    }

    /// Does nothing: nothing is kept outside the page cache. [`File::sync`] makes data durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl io::Seek for &File {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let position = match to {
            io::SeekFrom::Start(pos) => Some(pos),
            io::SeekFrom::End(by) => self.size().checked_add_signed(by),
            io::SeekFrom::Current(by) => {
                let now = self.reading.position.load(Relaxed);
                now.checked_add_signed(by)
            }
        };
        let position = in_range(position.unwrap_or(u64::MAX))?;
        self.reading.position.store(position, Relaxed);
        Ok(position)
    }
}

impl io::Read for File {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        (&*self).read(out)
    }

    fn read_vectored(&mut self, out: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(out)
    }
}

impl io::Write for File {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        (&*self).write(data)
    }

    fn write_vectored(&mut self, data: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

impl io::Seek for File {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}

/// [`File::read_bytes`] and [`File::write_bytes`] under the names of the standard library: `read_exact_at` and `write_all_at` come with
/// them. What a file of the host does with an offset, and returns, this does.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/example.rs"));
/// use diorite::{OpenOptions, Volume};
/// use std::os::unix::fs::FileExt;
///
/// # fn main() -> std::io::Result<()> {
/// # let volume = Volume::open_device(example_volume(), &OpenOptions::writable())?;
/// let file = volume.create("/file", 0o644)?;
/// file.write_all_at(b"here", 5_000)?;
/// let mut out = [7; 8];
/// assert_eq!(file.read_at(&mut out, 5_002)?, 2); // the file ends
/// assert_eq!(file.read_at(&mut out, 9_000)?, 0);
/// # Ok(())
/// # }
/// ```
impl FileExt for File {
    fn read_at(&self, out: &mut [u8], offset: u64) -> io::Result<usize> {
        in_range(offset.saturating_add(out.len() as u64))?;
        Ok(self.read_bytes(offset, out)?)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        in_range(offset.saturating_add(data.len() as u64))?;
        // No bytes fit everywhere, also where no file can have one.
        let offset = if data.is_empty() { 0 } else { offset };
        Ok(self.write_bytes(offset, data)?)
    }
}

/// Positions of the standard library are those of the host: below 2^63.
fn in_range(position: u64) -> io::Result<u64> {
    let what = "a position before the start of the file, or behind 2^63 - 1";
    let below = i64::try_from(position).map(|_| position);
    below.map_err(|_| io::Error::new(ErrorKind::InvalidInput, what))
}

/// The error becomes the source; its kind is [`Error::kind`].
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        io::Error::new(error.kind(), error)
    }
}

/// An error that was one of the engine's is that again; another one is [`Error::Open`], as the host's.
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        match error.downcast::<Error>() {
            Ok(error) => error,
            Err(error) => Error::from(DeviceError::from(error)),
        }
    }
}
