//! smol, and every executor beside async-io's reactor: a driver as a task, and futures-io's traits for streams.
//!
//! Input: nothing; async-io starts its reactor by itself. Output: a driver to be spawned. Invariants and limits: those of `driver` and
//! `stream`.

use crate::driver::{LOOK_AGAIN, Ready};
use crate::stream::AsyncStream;
use async_io::{Async, Timer};
use diorite::Queue;
use futures_io::{AsyncBufRead, AsyncRead, AsyncSeek, AsyncWrite};
use std::future::Future;
use std::io::{self, SeekFrom};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

struct Reactor {
    fd: Async<OwnedFd>,
    look: Timer,
}

impl Ready for Reactor {
    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.fd.poll_readable(cx)
    }

    fn poll_look_again(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        ready!(Pin::new(&mut self.look).poll(cx));
        self.look = Timer::after(LOOK_AGAIN);
        Poll::Ready(())
    }
}

/// The reactor of async-io, which starts by itself.
pub(crate) fn reactor(queue: &Queue) -> io::Result<Box<dyn Ready>> {
    Ok(Box::new(Reactor {
        fd: Async::new(queue.eventfd().try_clone_to_owned()?)?,
        look: Timer::after(LOOK_AGAIN),
    }))
}

impl AsyncRead for AsyncStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if into.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let bytes = ready!(self.poll_bytes(cx))?;
        let count = bytes.len().min(into.len());
        into[..count].copy_from_slice(&bytes[..count]);
        AsyncStream::consume(&mut self, count);
        Poll::Ready(Ok(count))
    }
}

impl AsyncBufRead for AsyncStream {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        self.get_mut().poll_bytes(cx)
    }

    fn consume(self: Pin<&mut Self>, count: usize) {
        AsyncStream::consume(self.get_mut(), count);
    }
}

impl AsyncWrite for AsyncStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_take(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_clean(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_clean(cx)
    }
}

impl AsyncSeek for AsyncStream {
    fn poll_seek(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: SeekFrom,
    ) -> Poll<io::Result<u64>> {
        ready!(self.poll_clean(cx))?;
        Poll::Ready(self.seek_to(to))
    }
}
