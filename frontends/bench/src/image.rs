//! The rows of diorite itself: the load on a file of a volume, through the engine's queues or its blocking calls.
//!
//! Input: requests of a region of a file. Output: the engine's requests. Invariant: if it is compared with a raw row, the
//! region is one written, physically contiguous run of the file, so that both touch the same blocks. Limits: the file's
//! contents are what the load writes.

use super::failure::Failure;
use super::job::{Call, Job};
use super::lane::{Ended, Io, Lane, Target};
use super::polled::counters_of;
use diorite::{Completion, File, FileId, MappingState, Op, Queue, Request, RequestFlags, Volume};
use diorite_block::Buf;
use std::collections::VecDeque;

impl From<diorite::Error> for Failure {
    fn from(error: diorite::Error) -> Failure {
        Failure::failed(error.to_string())
    }
}

/// A range of a file that is contiguous on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) file_pos: u64,
    pub(super) device_pos: u64,
    pub(super) len: u64,
}

/// Bytes of the longest atomic write.
const UNIT: u64 = 64 << 10;

impl Region {
    /// The longest written run of the file, without what lies before a multiple of [`UNIT`] in a longer one.
    pub(super) fn longest(volume: &Volume, file: &File) -> Result<Region, Failure> {
        let block = u64::from(volume.superblock().block_size());
        let whole = file.size() - file.size() % block;
        let mut runs: Vec<Region> = Vec::new();
        for mapping in file.mappings(0, whole)? {
            let MappingState::Written(first) = mapping.state else {
                continue;
            };
            let run = Region {
                file_pos: mapping.start * block,
                device_pos: first.get() * block,
                len: (mapping.len * block).min(whole.saturating_sub(mapping.start * block)),
            };
            match runs.last_mut() {
                Some(last) if last.is_followed_by(&run) => last.len += run.len,
                _ => runs.push(run),
            }
        }
        runs.into_iter()
            .map(Region::aligned)
            .max_by_key(|run| run.len)
            .filter(|run| run.len > 0)
            .ok_or_else(|| Failure::usage("the file has no written blocks: fill it first"))
    }

    /// The part from a multiple of [`UNIT`] in the file on: an atomic write may begin there.
    fn aligned(self) -> Region {
        let before = self.file_pos.next_multiple_of(UNIT) - self.file_pos;
        match before < self.len {
            true => Region {
                file_pos: self.file_pos + before,
                device_pos: self.device_pos + before,
                len: self.len - before,
            },
            false => self,
        }
    }

    fn is_followed_by(&self, next: &Region) -> bool {
        self.file_pos + self.len == next.file_pos && self.device_pos + self.len == next.device_pos
    }
}

/// A region of a file in a volume.
pub(super) struct FileTarget {
    pub(super) volume: Volume,
    pub(super) file: File,
    pub(super) base: u64,
    pub(super) len: u64,
}

impl Target for FileTarget {
    type Lane = FileLane;

    fn lane(&self, job: &Job) -> Result<FileLane, Failure> {
        let how = match job.call {
            Call::Queue => {
                let queue = match job.polled {
                    Some(longest) => self.volume.polled_queue(job.iodepth, longest)?,
                    None => self.volume.queue(job.iodepth)?,
                };
                let file = queue.attach(&self.file)?;
                How::Queue(queue, file)
            }
            Call::Blocking => How::Blocking(self.file.clone(), VecDeque::new()),
        };
        Ok(FileLane {
            how,
            base: self.base,
            polled: job.polled.is_some(),
            flags: RequestFlags::default().dsync(job.dsync).sync(job.sync),
            append: job.append,
            atomic: job.atomic,
            fsync: job.fsync,
            batch: VecDeque::with_capacity(job.iodepth as usize),
            reaped: Vec::with_capacity(job.iodepth as usize),
        })
    }

    fn len(&self) -> u64 {
        self.len
    }
}

enum How {
    Queue(Queue, FileId),
    /// The file and the requests that the next reap will make.
    Blocking(File, VecDeque<(Io, Buf)>),
}

/// See [`FileTarget`].
pub(super) struct FileLane {
    how: How,
    base: u64,
    polled: bool,
    flags: RequestFlags,
    append: bool,
    atomic: bool,
    fsync: bool,
    batch: VecDeque<Request>,
    reaped: Vec<Completion>,
}

impl Lane for FileLane {
    #[inline]
    fn push(&mut self, io: Io, buf: Buf) {
        match &mut self.how {
            How::Queue(_, file) => {
                let (pos, token) = (self.base + io.pos, u64::from(io.slot));
                let request = if self.append {
                    Request::append(*file, buf, token).with_flags(self.flags)
                } else if io.write {
                    let request = Request::write(*file, pos, buf, token).with_flags(self.flags);
                    if self.atomic {
                        request.atomic()
                    } else {
                        request
                    }
                } else {
                    Request::read(*file, pos, buf, token)
                };
                self.batch.push_back(request);
            }
            How::Blocking(_, waiting) => waiting.push_back((io, buf)),
        }
    }

    #[inline]
    fn submit(&mut self) {
        if let How::Queue(queue, _) = &self.how {
            queue.submit(&mut self.batch);
        }
    }

    #[inline]
    fn reap(&mut self, min: usize, ended: &mut Vec<Ended>) {
        match &mut self.how {
            How::Queue(queue, _) => {
                queue.reap(&mut self.reaped, min, None);
                ended.extend(self.reaped.drain(..).map(|c| Ended {
                    slot:
                        u32::try_from(c.token).expect("the token is the slot that push was given"),
                    error: error_of(c.result, c.buf.len()),
                    buf: c.buf,
                }));
            }
            How::Blocking(file, waiting) => {
                while let Some((io, buf)) = waiting.pop_front() {
                    let (op, pos) = match (self.append, io.write) {
                        (true, _) => (Op::Append, 0),
                        (false, true) if self.atomic => (Op::WriteAtomic, self.base + io.pos),
                        (false, true) => (Op::Write, self.base + io.pos),
                        (false, false) => (Op::Read, self.base + io.pos),
                    };
                    let len = buf.len();
                    let (buf, mut result) = file.call(op, pos, buf, self.flags);
                    if self.fsync {
                        result = result.and_then(|done| file.sync().map(|()| done));
                    }
                    ended.push(Ended {
                        slot: io.slot,
                        error: error_of(result, len),
                        buf,
                    });
                }
            }
        }
    }

    fn counters(&self) -> Vec<(String, u64)> {
        match &self.how {
            How::Queue(queue, _) => {
                let polled = self.polled.then(|| counters_of(queue.polled_waits()));
                let polled = polled.unwrap_or_default();
                queue.counters().named().chain(polled).collect()
            }
            How::Blocking(..) => Vec::new(),
        }
    }
}

#[inline]
fn error_of(result: Result<usize, diorite::Error>, len: usize) -> Option<String> {
    match result {
        Ok(done) if done == len => None,
        Ok(done) => Some(format!("{done} of {len} bytes")),
        Err(error) => Some(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_begin_where_atomic_writes_may() {
        let of = |file_pos, len| {
            let device_pos = file_pos + 4096;
            let run = Region {
                file_pos,
                device_pos,
                len,
            };
            let aligned = run.aligned();
            assert_eq!(aligned.device_pos, aligned.file_pos + 4096);
            (aligned.file_pos, aligned.len)
        };
        assert_eq!(of(0, 100), (0, 100));
        assert_eq!(of(4096, 1 << 20), (64 << 10, (1 << 20) - (60 << 10)));
        assert_eq!(of(4096, 60 << 10), (4096, 60 << 10));
    }
}
