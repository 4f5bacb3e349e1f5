//! Bytes that can be read but once are set aside in a temporary file.
//!
//! Input: a stream. Output: where its data is. Invariants: blocks of zeros take no space; the file has no name, so it goes with the
//! process. Limits: the space of the directory.

use crate::origin::Span;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// What is looked at for zeros.
const BLOCK: usize = 4096;
const PIECE: usize = 1 << 20;

/// See the module.
#[derive(Debug)]
pub(crate) struct Spool {
    file: Arc<File>,
    len: u64,
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
        })
    }

    pub(crate) fn file(&self) -> Arc<File> {
        self.file.clone()
    }

    /// Takes exactly `len` bytes from a stream.
    pub(crate) fn take(&mut self, from: &mut impl Read, len: u64) -> io::Result<Vec<Span>> {
        let mut spans: Vec<Span> = Vec::new();
        let mut buf = vec![0; PIECE.min(usize::try_from(len).unwrap_or(PIECE))];
        let mut pos = 0;
        while pos < len {
            let step = (len - pos).min(buf.len() as u64) as usize;
            from.read_exact(&mut buf[..step])?;
            for (n, block) in buf[..step].chunks(BLOCK).enumerate() {
                let here = pos + (n * BLOCK) as u64;
                if block.iter().all(|byte| *byte == 0) {
                    continue;
                }
                let size = block.len() as u64;
                match spans.last_mut() {
                    Some(last) if last.pos + last.len == here => last.len += size,
                    _ => spans.push(Span {
                        pos: here,
                        at: self.len + (here - pos),
                        len: size,
                    }),
                }
            }
            // Zeros between data are written with it; a piece without data is not.
            let of_piece = spans.iter().any(|span| span.pos + span.len > pos);
            if of_piece {
                self.file.write_all_at(&buf[..step], self.len)?;
                self.len += step as u64;
            }
            pos += step as u64;
        }
        Ok(spans)
    }
}
