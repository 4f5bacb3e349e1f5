//! A client's socket: bytes in and out without waiting, plain or encrypted.
//!
//! Input: a socket that does not block. Output: bytes, counts. Invariants: no call waits; plain bytes go from and to the caller's memory
//! without a copy; a client that is gone is an error, not a signal. Limits: encrypted bytes are copied.

use crate::negotiate::Hangup;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use rustls::{ServerConfig, ServerConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// This many bytes, at least one.
    Bytes(usize),
    /// The socket has to be waited for.
    Later,
}

/// See the module.
pub(crate) enum Transport {
    Plain(OwnedFd),
    Tls(Box<Secure>),
}

/// A socket with TLS on it.
pub(crate) struct Secure {
    fd: OwnedFd,
    tls: ServerConnection,
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Transport::Plain(fd) => fd.as_fd(),
            Transport::Tls(secure) => secure.fd.as_fd(),
        }
    }
}

impl Transport {
    /// Begins TLS on a plain socket.
    pub(crate) fn secured(self, config: Arc<ServerConfig>) -> Result<Transport, Hangup> {
        let tls = ServerConnection::new(config).map_err(|e| Hangup::Tls(e.to_string()))?;
        match self {
            Transport::Plain(fd) => Ok(Transport::Tls(Box::new(Secure { fd, tls }))),
            Transport::Tls(_) => Err(Hangup::Refused("TLS was begun twice")),
        }
    }

    /// Whether a receive that did not fill its memory has emptied the socket.
    pub(crate) fn short_is_empty(&self) -> bool {
        matches!(self, Transport::Plain(_))
    }

    /// Whether bytes wait for the socket that are not the caller's any more.
    pub(crate) fn wants_write(&self) -> bool {
        match self {
            Transport::Plain(_) => false,
            Transport::Tls(secure) => secure.tls.wants_write(),
        }
    }

    /// Receives into `first`, and if that is filled into `second`.
    pub(crate) fn recv(&mut self, first: &mut [u8], second: &mut [u8]) -> Result<Moved, Hangup> {
        let fd = match self {
            Transport::Tls(secure) => return secure.recv(first),
            Transport::Plain(fd) => fd,
        };
        loop {
            let received = match second.is_empty() {
                true => recv(&*fd, &mut *first, RecvFlags::DONTWAIT).map(|(n, _)| n),
                false => {
                    let mut both = [IoSliceMut::new(first), IoSliceMut::new(second)];
                    rustix::io::readv(&*fd, &mut both)
                }
            };
            return match received {
                Ok(0) => Err(Hangup::Closed),
                Ok(n) => Ok(Moved::Bytes(n)),
                Err(Errno::AGAIN) => Ok(Moved::Later),
                Err(Errno::INTR) => continue,
                Err(Errno::CONNRESET | Errno::PIPE) => Err(Hangup::Closed),
                Err(e) => Err(Hangup::Host(e.into())),
            };
        }
    }

    /// Sends the slices, as far as the socket takes them.
    pub(crate) fn send(&mut self, slices: &[IoSlice<'_>]) -> Result<Moved, Hangup> {
        let fd = match self {
            Transport::Tls(secure) => return secure.send(slices),
            Transport::Plain(fd) => fd,
        };
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            return match sendmsg(&*fd, slices, &mut SendAncillaryBuffer::default(), flags) {
                Ok(0) | Err(Errno::AGAIN) => Ok(Moved::Later),
                Ok(n) => Ok(Moved::Bytes(n)),
                Err(Errno::INTR) => continue,
                Err(Errno::CONNRESET | Errno::PIPE) => Err(Hangup::Closed),
                Err(e) => Err(Hangup::Host(e.into())),
            };
        }
    }

    /// Moves bytes that are not the caller's any more on to the socket.
    pub(crate) fn push(&mut self) -> Result<(), Hangup> {
        match self {
            Transport::Plain(_) => Ok(()),
            Transport::Tls(secure) => secure.push(),
        }
    }

    /// Tells the peer that nothing more comes, as far as that needs no waiting.
    pub(crate) fn close_best_effort(&mut self) {
        if let Transport::Tls(secure) = self {
            secure.tls.send_close_notify();
            let _ = secure.push();
        }
    }
}

/// The socket below TLS.
struct Raw<'a>(BorrowedFd<'a>);

impl Read for Raw<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self.0, bytes, RecvFlags::DONTWAIT)?.0)
    }
}

impl Write for Raw<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(rustix::net::send(self.0, bytes, flags)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Errors that mean that the peer is gone.
fn hangup(error: io::Error) -> Hangup {
    match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => {
            Hangup::Closed
        }
        _ => Hangup::Host(error),
    }
}

fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

impl Secure {
    fn recv(&mut self, bytes: &mut [u8]) -> Result<Moved, Hangup> {
        loop {
            match self.tls.reader().read(bytes) {
                Ok(0) => return Err(Hangup::Closed),
                Ok(n) => return Ok(Moved::Bytes(n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(hangup(e)),
            }
            match self.tls.read_tls(&mut Raw(self.fd.as_fd())) {
                Ok(0) => return Err(Hangup::Closed),
                Ok(_) => {}
                Err(e) if is_later(&e) => return Ok(Moved::Later),
                Err(e) => return Err(hangup(e)),
            }
            let processed = self.tls.process_new_packets();
            // Its part of the handshake, or the alert that says what is wrong.
            let pushed = self.push();
            processed.map_err(|e| Hangup::Tls(e.to_string()))?;
            pushed?;
        }
    }

    fn send(&mut self, slices: &[IoSlice<'_>]) -> Result<Moved, Hangup> {
        let mut taken = 0;
        for slice in slices {
            let n = self.tls.writer().write(slice).map_err(hangup)?;
            taken += n;
            if n < slice.len() {
                break;
            }
        }
        self.push()?;
        match taken {
            0 => Ok(Moved::Later),
            n => Ok(Moved::Bytes(n)),
        }
    }

    fn push(&mut self) -> Result<(), Hangup> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut Raw(self.fd.as_fd())) {
                Ok(_) => {}
                Err(e) if is_later(&e) => break,
                Err(e) => return Err(hangup(e)),
            }
        }
        Ok(())
    }
}
