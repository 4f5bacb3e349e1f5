//! A file as a stream of bytes: reads, writes and seeks at any position, through the page cache.
//!
//! Input: bytes of tasks. Output: calls of the pool's threads. Invariants: bytes that were written before are seen by a read behind them;
//! a flush ends when the page cache has them, and is durable only after [`crate::AsyncFile::sync`]. Limits: one operation at a time, as the
//! traits demand; [`CHUNK`] bytes are held in memory.

use crate::file::AsyncFile;
use crate::pool::Called;
use diorite::Error;
use std::fmt;
use std::future::Future;
use std::io::{self, SeekFrom};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Bytes that are read ahead, or collected before they are written.
const CHUNK: usize = 128 << 10;

/// A call that is under way, with the chunk that it works on.
type Under = Called<(Vec<u8>, Result<usize, Error>)>;

#[derive(Default)]
enum State {
    /// Nothing is held.
    #[default]
    Empty,
    /// Bytes that were read, and how many of them were given away.
    Read(Vec<u8>, usize),
    /// Bytes to be written at the position minus their count.
    Dirty(Vec<u8>),
    Reads(Under),
    Writes(Under),
}

/// A stream of a file's bytes: with tokio's traits (feature `tokio`) and those of futures-io (feature `smol`).
///
/// What was written and not flushed is lost when the stream is dropped, as it is with every buffered writer of these traits. What could
/// not be written stays with the stream: writes that need its room, reads, seeks and flushes try it again first, and fail as long as that
/// does.
pub struct AsyncStream {
    file: AsyncFile,
    /// Where the next byte is read or written.
    pos: u64,
    state: State,
    /// Where a seek of tokio's trait goes, which comes in two calls. A read or a write in between says that it was cancelled.
    #[cfg(feature = "tokio")]
    planned: Option<SeekFrom>,
}

impl fmt::Debug for AsyncStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncStream")
            .field("pos", &self.pos)
            .finish_non_exhaustive()
    }
}

impl AsyncStream {
    /// The bytes of a file, from its first one on.
    #[must_use]
    pub fn new(file: &AsyncFile) -> AsyncStream {
        AsyncStream {
            file: file.clone(),
            pos: 0,
            state: State::Empty,
            #[cfg(feature = "tokio")]
            planned: None,
        }
    }

    /// The file below.
    #[must_use]
    pub fn file(&self) -> &AsyncFile {
        &self.file
    }

    /// The bytes at the position, at least one unless the file ends there.
    pub(crate) fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.forget_seek();
        loop {
            match &mut self.state {
                State::Read(bytes, given) if *given < bytes.len() => break,
                State::Empty | State::Read(..) => {
                    let mut bytes = self.spare();
                    bytes.resize(CHUNK, 0);
                    let (file, pos) = (self.file.blocking().clone(), self.pos);
                    self.state = State::Reads(self.file.pool.run(move || {
                        let read = file.read_bytes(pos, &mut bytes);
                        (bytes, read)
                    }));
                }
                State::Reads(under) => {
                    let (mut bytes, read) = ready!(Pin::new(under).poll(cx));
                    self.state = State::Empty;
                    bytes.truncate(read?);
                    if bytes.is_empty() {
                        return Poll::Ready(Ok(&[]));
                    }
                    self.state = State::Read(bytes, 0);
                }
                State::Dirty(_) | State::Writes(_) => ready!(self.poll_clean(cx))?,
            }
        }
        match &self.state {
            State::Read(bytes, given) => Poll::Ready(Ok(&bytes[*given..])),
            _ => unreachable!("the loop ends with bytes"),
        }
    }

    /// `count` of the bytes were taken.
    pub(crate) fn consume(&mut self, count: usize) {
        if let State::Read(bytes, given) = &mut self.state {
            let count = count.min(bytes.len() - *given);
            *given += count;
            self.pos += count as u64;
        }
    }

    /// Takes bytes to be written; returns how many.
    pub(crate) fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.forget_seek();
        loop {
            match &mut self.state {
                State::Dirty(bytes) if bytes.len() < CHUNK => {
                    let count = from.len().min(CHUNK - bytes.len());
                    bytes.extend_from_slice(&from[..count]);
                    self.pos += count as u64;
                    return Poll::Ready(Ok(count));
                }
                State::Empty | State::Read(..) => {
                    let mut bytes = self.spare();
                    bytes.clear();
                    self.state = State::Dirty(bytes);
                }
                // A read under way changes nothing, and what it finds is older than these bytes.
                State::Reads(_) => self.state = State::Empty,
                State::Dirty(_) | State::Writes(_) => ready!(self.poll_clean(cx))?,
            }
        }
    }

    /// Writes what was taken. What cannot be written is kept, and the next call tries it again.
    pub(crate) fn poll_clean(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match &mut self.state {
                State::Dirty(bytes) => {
                    let bytes = std::mem::take(bytes);
                    let (file, pos) = (self.file.blocking().clone(), self.pos - bytes.len() as u64);
                    self.state = State::Writes(self.file.pool.run(move || {
                        let written = file.write_bytes(pos, &bytes);
                        (bytes, written)
                    }));
                }
                State::Writes(under) => {
                    let (mut bytes, written) = ready!(Pin::new(under).poll(cx));
                    let (count, failed) = match written {
                        Ok(0) if !bytes.is_empty() => (0, Some(io::ErrorKind::WriteZero.into())),
                        Ok(count) => (count, None),
                        Err(error) => (0, Some(error.into())),
                    };
                    bytes.drain(..count);
                    self.state = match bytes.is_empty() {
                        true => State::Empty,
                        false => State::Dirty(bytes),
                    };
                    if let Some(failed) = failed {
                        return Poll::Ready(Err(failed));
                    }
                }
                State::Empty | State::Read(..) | State::Reads(_) => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Moves the position. What was taken has been written before.
    pub(crate) fn seek_to(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, by) = match to {
            SeekFrom::Start(pos) => (pos, 0),
            SeekFrom::End(by) => (self.file.size(), by),
            SeekFrom::Current(by) => (self.pos, by),
        };
        let pos = base
            .checked_add_signed(by)
            .filter(|pos| i64::try_from(*pos).is_ok());
        let before = || {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "a seek to before the start, or past any file's end",
            )
        };
        self.pos = pos.ok_or_else(before)?;
        self.state = State::Empty;
        Ok(self.pos)
    }

    /// A planned seek was cancelled, or it would have ended.
    fn forget_seek(&mut self) {
        #[cfg(feature = "tokio")]
        {
            self.planned = None;
        }
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn plan_seek(&mut self, to: SeekFrom) -> io::Result<()> {
        match self.planned.replace(to) {
            None => Ok(()),
            Some(_) => Err(io::Error::other("a seek is under way")),
        }
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn poll_seek_planned(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        if self.planned.is_none() {
            return Poll::Ready(Ok(self.pos));
        }
        let cleaned = ready!(self.poll_clean(cx));
        let to = self.planned.take();
        cleaned?;
        Poll::Ready(to.map_or(Ok(self.pos), |to| self.seek_to(to)))
    }

    fn spare(&mut self) -> Vec<u8> {
        match std::mem::take(&mut self.state) {
            State::Read(bytes, _) => bytes,
            _ => Vec::new(),
        }
    }
}
