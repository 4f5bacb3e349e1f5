//! Reads and writes of files of the host that leave its page cache as it was: bytes that are used once evict nothing else from it.
//!
//! Input: an open file. Output: as of `pread` and `pwrite`. Invariant: pages that were in the cache before stay there. Limits: a host whose
//! kernel or file system has no RWF_DONTCACHE (Linux before 6.14, tmpfs, FUSE, NFS) reads and writes through the cache as usual. Source:
//! the constant is libc's; preadv2(2).

use rustix::fd::AsFd;
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

/// From this size on a file that is written once is kept out of the host's cache. A smaller one is probably read again soon, and each
/// uncached write starts I/O of its own.
pub const LARGE_FILE: u64 = 1 << 20;

/// Hosts read ahead, and drop, about so much at a time.
const SMALL_PART: usize = 128 << 10;

/// Bytes pass once. The number is small and positive.
const ONCE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(libc::RWF_DONTCACHE as _);

/// The position of the descriptor itself, to preadv2(2) and pwritev2(2).
const IN_ORDER: u64 = u64::MAX;

/// Whether the host, its file system or this kind of file does not know the flag. What else is wrong is told by the call without it.
fn is_unknown(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS | Errno::PERM | Errno::SPIPE
    )
}

/// Reads at `pos` of a file into `out`; how many bytes. 0 is the end of the file. Blocks.
///
/// # Errors
/// As of `pread`.
pub fn pread(file: impl AsFd, out: &mut [u8], pos: u64) -> Result<usize, Errno> {
    match preadv2(&file, &mut [IoSliceMut::new(out)], pos, ONCE) {
        Err(errno) if is_unknown(errno) => rustix::io::pread(file, out, pos),
        read => read,
    }
}

/// Reads at the position of a descriptor, which moves on; how many bytes. 0 is the end. Blocks.
///
/// # Errors
/// As of `read`.
pub fn read(file: impl AsFd, out: &mut [u8]) -> Result<usize, Errno> {
    match preadv2(&file, &mut [IoSliceMut::new(out)], IN_ORDER, ONCE) {
        Err(errno) if is_unknown(errno) => rustix::io::read(file, out),
        read => read,
    }
}

/// Writes at `pos` of a file; how many bytes. The host begins to write them to its device at once. Blocks.
///
/// # Errors
/// As of `pwrite`.
pub fn pwrite(file: impl AsFd, bytes: &[u8], pos: u64) -> Result<usize, Errno> {
    match pwritev2(&file, &[IoSlice::new(bytes)], pos, ONCE) {
        Err(errno) if is_unknown(errno) => rustix::io::pwrite(file, bytes, pos),
        written => written,
    }
}

/// As [`pread`], in the error type of the standard library.
///
/// # Errors
/// As of `pread`.
pub fn read_at(file: impl AsFd, out: &mut [u8], pos: u64) -> io::Result<usize> {
    Ok(pread(file, out, pos)?)
}

/// Fills `out` with the bytes at `pos` of a file. Blocks.
///
/// # Errors
/// As of `pread`; `UnexpectedEof` if the file ends before.
pub fn read_exact_at(file: impl AsFd, mut out: &mut [u8], mut pos: u64) -> io::Result<()> {
    while !out.is_empty() {
        match pread(&file, out, pos) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                out = &mut out[count..];
                pos += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// As [`read_at`], of a file whose neighbouring bytes are read, too, by other calls. A small part goes through the cache: the host would
/// read the pages around it again for each of its neighbours.
///
/// # Errors
/// As of `pread`.
pub fn read_part_at(file: impl AsFd, out: &mut [u8], pos: u64) -> io::Result<usize> {
    match out.len() < SMALL_PART {
        true => Ok(rustix::io::pread(file, out, pos)?),
        false => read_at(file, out, pos),
    }
}

/// As [`read_exact_at`], of a file whose neighbouring bytes are read, too: see [`read_part_at`].
///
/// # Errors
/// As of [`read_exact_at`].
pub fn read_exact_part_at(file: &File, out: &mut [u8], pos: u64) -> io::Result<()> {
    match out.len() < SMALL_PART {
        true => file.read_exact_at(out, pos),
        false => read_exact_at(file, out, pos),
    }
}

/// Writes all of `bytes` at `pos` of a file, as [`pwrite`] does. Blocks.
///
/// # Errors
/// As of `pwrite`.
pub fn write_all_at(file: impl AsFd, mut bytes: &[u8], mut pos: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match pwrite(&file, bytes, pos) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                bytes = &bytes[count..];
                pos += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// An open file that is read or written in order, from the position of its descriptor on.
#[derive(Debug)]
pub struct InOrder<F>(pub F);

impl<F: AsFd> Read for InOrder<F> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        Ok(read(&self.0, out)?)
    }
}

impl<F: AsFd> Write for InOrder<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match pwritev2(&self.0, &[IoSlice::new(bytes)], IN_ORDER, ONCE) {
            Err(errno) if is_unknown(errno) => Ok(rustix::io::write(&self.0, bytes)?),
            written => Ok(written?),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<F: AsFd> Seek for InOrder<F> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        Ok(rustix::fs::seek(
            &self.0,
            match to {
                SeekFrom::Start(at) => rustix::fs::SeekFrom::Start(at),
                SeekFrom::End(by) => rustix::fs::SeekFrom::End(by),
                SeekFrom::Current(by) => rustix::fs::SeekFrom::Current(by),
            },
        )?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::pipe;

    /// On a file system with the flag, on one without it (tmpfs), and on a pipe.
    #[test]
    fn bytes_are_those_of_the_file() {
        for dir in [std::env::temp_dir(), "/dev/shm".into()] {
            let mut file = tempfile::tempfile_in(&dir).expect("a file");
            write_all_at(&file, b"012345", 3).expect("written");
            let mut all = [1; 9];
            read_exact_at(&file, &mut all, 0).expect("read");
            assert_eq!(&all, b"\x00\x00\x00012345", "{}", dir.display());
            let ended = read_exact_at(&file, &mut all, 1).expect_err("one byte is missing");
            assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
            assert_eq!(pread(&file, &mut all, 9), Ok(0));
            read_exact_part_at(&file, &mut all[..3], 5).expect("read");
            assert_eq!(&all[..3], b"234");
            assert_eq!(read_part_at(&file, &mut all, 7).expect("read"), 2);

            let mut in_order = InOrder(&mut file);
            in_order.seek(SeekFrom::Start(4)).expect("a file seeks");
            in_order.write_all(b"ab").expect("written");
            in_order.seek(SeekFrom::Current(-3)).expect("a file seeks");
            let mut rest = Vec::new();
            in_order.read_to_end(&mut rest).expect("read");
            assert_eq!(rest, b"0ab345");
            assert_eq!(in_order.seek(SeekFrom::End(0)).expect("a file seeks"), 9);
        }
        let (from, to) = pipe().expect("a pipe");
        InOrder(to).write_all(b"piped").expect("written");
        let mut all = String::new();
        InOrder(from).read_to_string(&mut all).expect("read");
        assert_eq!(all, "piped");
    }

    #[test]
    fn what_fails_says_so() {
        let read_only = File::open("/dev/null").expect("there is one");
        assert_eq!(pwrite(&read_only, b"x", 0), Err(Errno::BADF));
        let folder = File::open("/").expect("there is one");
        assert_eq!(pread(&folder, &mut [0], 0), Err(Errno::ISDIR));
        let full = File::options()
            .write(true)
            .open("/dev/full")
            .expect("there is one");
        let error = InOrder(full).write_all(b"x").expect_err("it is full");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
