//! tokio: a driver as a task, and its traits for streams.
//!
//! Input: a runtime with its reactor and its clock (`enable_all`). Output: a driver for `tokio::spawn`. Invariants and limits: those of
//! `driver` and `stream`.

use crate::driver::{LOOK_AGAIN, Ready};
use crate::stream::AsyncStream;
use diorite::Queue;
use std::future::Future;
use std::io::{self, SeekFrom};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncSeek, AsyncWrite, Interest, ReadBuf};
use tokio::time::{Sleep, sleep};

struct Reactor {
    fd: AsyncFd<OwnedFd>,
    look: Pin<Box<Sleep>>,
}

impl Ready for Reactor {
    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut guard = ready!(self.fd.poll_read_ready(cx))?;
        guard.clear_ready();
        Poll::Ready(Ok(()))
    }

    fn poll_look_again(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        ready!(self.look.as_mut().poll(cx));
        self.look.set(sleep(LOOK_AGAIN));
        Poll::Ready(())
    }
}

/// The reactor of the runtime in which this is called, and its clock.
pub(crate) fn reactor(queue: &Queue) -> io::Result<Box<dyn Ready>> {
    let fd = queue.eventfd().try_clone_to_owned()?;
    // What newer versions of tokio fear of this function is a type whose descriptor changes. An OwnedFd's does not.
    #[allow(deprecated)]
    let fd = AsyncFd::with_interest(fd, Interest::READABLE)?;
    Ok(Box::new(Reactor {
        fd,
        look: Box::pin(sleep(LOOK_AGAIN)),
    }))
}

impl AsyncRead for AsyncStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if into.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let bytes = ready!(self.poll_bytes(cx))?;
        let count = bytes.len().min(into.remaining());
        into.put_slice(&bytes[..count]);
        self.consume(count);
        Poll::Ready(Ok(()))
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

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_clean(cx)
    }
}

impl AsyncSeek for AsyncStream {
    fn start_seek(mut self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
        self.plan_seek(to)
    }

    fn poll_complete(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        self.poll_seek_planned(cx)
    }
}
