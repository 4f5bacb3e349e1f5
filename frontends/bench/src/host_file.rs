//! A file of the host through blocking calls, as a program uses it that writes and then calls fsync.
//!
//! Input: requests of a region. Output: the same requests, ended, each of them durable if the job says so. Invariant: the
//! offset of an append comes from one counter for all threads, so appends leave no holes. Limits: blocking calls, one at a
//! time; O_DIRECT.

use super::failure::Failure;
use super::job::{Call, Job};
use super::lane::{Ended, Io, Lane, Target};
use diorite_block::Buf;
use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A region of a file.
pub(super) struct HostFile {
    path: PathBuf,
    base: u64,
    len: u64,
    /// The offset of the next append in the region.
    end: Arc<AtomicU64>,
}

impl HostFile {
    /// The first `len` bytes; appends begin at its start.
    pub(super) fn new(path: PathBuf, len: u64) -> HostFile {
        HostFile {
            path,
            base: 0,
            len,
            end: Arc::default(),
        }
    }

    /// A region of the same length at another offset.
    pub(super) fn from(self, base: u64) -> HostFile {
        HostFile { base, ..self }
    }
}

impl Target for HostFile {
    type Lane = HostLane;

    fn lane(&self, job: &Job) -> Result<HostLane, Failure> {
        if job.call != Call::Blocking {
            return Err(Failure::usage("a host's file is written by blocking calls"));
        }
        let direct =
            i32::try_from(rustix::fs::OFlags::DIRECT.bits()).expect("no open flag is the sign bit");
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(direct)
            .open(&self.path)
            .map_err(|e| Failure::host(format_args!("cannot open {}", self.path.display()), e))?;
        Ok(HostLane {
            file,
            base: self.base,
            end: job.append.then(|| self.end.clone()),
            fsync: job.fsync,
            waiting: VecDeque::new(),
        })
    }

    fn len(&self) -> u64 {
        self.len
    }
}

/// See [`HostFile`].
pub(super) struct HostLane {
    file: File,
    base: u64,
    end: Option<Arc<AtomicU64>>,
    fsync: bool,
    waiting: VecDeque<(Io, Buf)>,
}

impl HostLane {
    fn call(&self, io: Io, buf: &mut Buf) -> std::io::Result<()> {
        if !io.write {
            return self
                .file
                .read_exact_at(buf.as_mut_slice(), self.base + io.pos);
        }
        let pos = match &self.end {
            Some(end) => end.fetch_add(buf.len() as u64, Ordering::Relaxed),
            None => io.pos,
        };
        self.file.write_all_at(buf.as_slice(), self.base + pos)?;
        if self.fsync {
            self.file.sync_all()?;
        }
        Ok(())
    }
}

impl Lane for HostLane {
    fn push(&mut self, io: Io, buf: Buf) {
        self.waiting.push_back((io, buf));
    }

    fn submit(&mut self) {}

    fn reap(&mut self, _: usize, ended: &mut Vec<Ended>) {
        while let Some((io, mut buf)) = self.waiting.pop_front() {
            let result = self.call(io, &mut buf);
            ended.push(Ended {
                slot: io.slot,
                error: result.err().map(|e| e.to_string()),
                buf,
            });
        }
    }
}
