//! Copies bytes that can be read only once to a temporary file.
//!
//! Input: a stream. Output: where its data is. Invariants: pieces of zeros take no space; the file has no name, so it goes with the
//! process. Limits: the space of the directory.

use crate::origin::Span;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PIECE: usize = 1 << 20;

/// See the module.
#[derive(Debug)]
pub(crate) struct Spool {
    file: Arc<File>,
    len: u64,
    folder: PathBuf,
}

impl Spool {
    pub(crate) fn new(folder: Option<&Path>) -> io::Result<Spool> {
        let folder = folder
            .map(Path::to_owned)
            .unwrap_or_else(std::env::temp_dir);
        let flags =
            rustix::fs::OFlags::RDWR | rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::CLOEXEC;
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let file = rustix::fs::open(&folder, flags, mode);
        let file = file.map_err(|errno| {
            let error = io::Error::from(errno);
            io::Error::new(
                error.kind(),
                format!("no temporary file in {}: {error}", folder.display()),
            )
        })?;
        Ok(Spool {
            file: Arc::new(File::from(file)),
            len: 0,
            folder,
        })
    }

    /// In memory that may be swapped out.
    pub(crate) fn in_memory() -> io::Result<Spool> {
        let name = "diorite-image";
        let file = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)?;
        Ok(Spool {
            file: Arc::new(File::from(file)),
            len: 0,
            folder: PathBuf::from("memory"),
        })
    }

    pub(crate) fn file(&self) -> Arc<File> {
        self.file.clone()
    }

    /// Takes a stream to its end, as the only one.
    pub(crate) fn all(mut self, mut from: impl Read) -> io::Result<Arc<File>> {
        let mut buf = Vec::with_capacity(PIECE);
        loop {
            buf.clear();
            from.by_ref().take(PIECE as u64).read_to_end(&mut buf)?;
            if buf.is_empty() {
                break;
            }
            self.keep(&buf)?;
        }
        self.file.set_len(self.len)?;
        Ok(self.file)
    }

    /// Zeros take no space.
    fn keep(&mut self, piece: &[u8]) -> io::Result<()> {
        if !are_zeros(piece) {
            let written = self.file.write_all_at(piece, self.len);
            written.map_err(|error| {
                let folder = self.folder.display();
                let why = format!("it is set aside in {folder}: {error}");
                io::Error::new(error.kind(), why)
            })?;
        }
        self.len += piece.len() as u64;
        Ok(())
    }

    /// Takes exactly `len` bytes from a stream. Zeros stay data, as in an archive that is a file; they only take no space meanwhile.
    pub(crate) fn take(&mut self, from: &mut impl Read, len: u64) -> io::Result<Vec<Span>> {
        let at = self.len;
        let mut buf = vec![0; PIECE.min(usize::try_from(len).unwrap_or(PIECE))];
        let mut left = len;
        while left > 0 {
            let step = left.min(buf.len() as u64) as usize;
            from.read_exact(&mut buf[..step])?;
            self.keep(&buf[..step])?;
            left -= step as u64;
        }
        if self.file.metadata()?.len() < self.len {
            self.file.set_len(self.len)?;
        }
        let some = (len > 0).then_some(Span { pos: 0, at, len });
        Ok(some.into_iter().collect())
    }
}

/// Whether all of the bytes are zeros: in lines, which the compiler turns into wide instructions.
pub fn are_zeros(bytes: &[u8]) -> bool {
    let lines = bytes.chunks_exact(64);
    let rest = lines.remainder();
    let any = |line: &[u8]| line.iter().fold(0, |any, byte| any | byte);
    lines.clone().all(|line| any(line) == 0) && any(rest) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_seen_wherever_a_line_ends() {
        for at in [0, 1, 63, 64, 100, 4095] {
            let mut bytes = vec![0; 4096];
            bytes[at] = 0x80;
            assert!(!are_zeros(&bytes), "{at}");
        }
        assert!(are_zeros(&[0; 130]) && are_zeros(&[]));
    }
}
