//! The futures of requests.
//!
//! Input: a request of an attached file. Output: its completion. Invariants: nothing is asked for before the first poll; a future that is
//! dropped leaves nothing behind but what the device is doing. Limits: it must be polled again only after it was woken, as any future.

use crate::driver::Attached;
use diorite::{Buf, Completion, Error, Request};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

#[derive(Debug)]
enum State {
    New(Request),
    Under(u32),
    Over,
}

/// A request on its way.
#[derive(Debug)]
pub(crate) struct Call {
    file: Arc<Attached>,
    state: State,
}

impl Call {
    pub(crate) fn new(file: &Arc<Attached>, request: Request) -> Call {
        Call {
            file: file.clone(),
            state: State::New(request),
        }
    }

    pub(crate) fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<Completion> {
        let shared = self.file.shared();
        match std::mem::replace(&mut self.state, State::Over) {
            State::New(request) => {
                let number = shared.start(request, cx.waker().clone());
                self.state = State::Under(number);
                Poll::Pending
            }
            State::Under(number) => match shared.take(number, cx.waker()) {
                Some(done) => Poll::Ready(done),
                None => {
                    self.state = State::Under(number);
                    Poll::Pending
                }
            },
            State::Over => panic!("a future was polled after it had ended"),
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.state, State::Over) {
            State::New(request) => self.file.shared().give_back(request.buf),
            State::Under(number) => self.file.shared().abandon(number, &self.file),
            State::Over => {}
        }
    }
}

/// A read or a write: gives the buffer back, with the count of bytes. A read is short only where the file ends.
///
/// Dropping it: see [the crate](crate#cancellation).
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Io(pub(crate) Call);

impl Future for Io {
    type Output = (Buf, Result<usize, Error>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let done = ready!(self.0.poll_done(cx));
        Poll::Ready((done.buf, done.result))
    }
}

/// An append: gives the buffer back, with the byte position at which it was written.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Append(pub(crate) Call);

impl Future for Append {
    type Output = (Buf, Result<u64, Error>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let done = ready!(self.0.poll_done(cx));
        let pos = done.pos;
        Poll::Ready((done.buf, done.result.map(|_| pos)))
    }
}

/// A request without data, mostly a sync.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Sync(pub(crate) Call);

impl Future for Sync {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let done = ready!(self.0.poll_done(cx));
        Poll::Ready(done.result.map(|_| ()))
    }
}

/// A request with all that comes back: see [`crate::AsyncFile::request`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Whole(pub(crate) Call);

impl Future for Whole {
    type Output = Completion;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Completion> {
        self.0.poll_done(cx)
    }
}
