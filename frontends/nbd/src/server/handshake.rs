//! The handshake on a socket, in limited time.
//!
//! Input: a client's socket. Output: the socket and what was agreed on; nothing if the client wants nothing. Invariants: the time
//! is for the whole handshake, whatever the client sends; TLS begins when the client asks for it. Limits: the memory is that of
//! one option.

use crate::connection::Control;
use crate::export::Export;
use crate::negotiate::{Hangup, Outcome, Security, Session, Talk, negotiate, resume};
use crate::transport::{Moved, Transport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, IoSlice};
use rustls::ServerConfig;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// See the module.
pub(super) fn run(
    transport: Transport,
    exports: &[Arc<Export>],
    control: &Control,
    tls: Option<Arc<ServerConfig>>,
    time: Duration,
) -> Result<Option<(Transport, Session)>, Hangup> {
    let mut peer = Peer {
        transport,
        control,
        end: Instant::now() + time,
    };
    let security = match tls {
        Some(_) => Security::Required,
        None => Security::Plain,
    };
    let mut outcome = negotiate(&mut peer, exports, security)?;
    if let (Outcome::StartTls, Some(config)) = (&outcome, tls) {
        peer.transport = peer.transport.secured(config)?;
        outcome = resume(&mut peer, exports)?;
    }
    match outcome {
        Outcome::Begin(session) => Ok(Some((peer.transport, session))),
        Outcome::Ended | Outcome::StartTls => {
            peer.transport.close_best_effort();
            Ok(None)
        }
    }
}

struct Peer<'a> {
    transport: Transport,
    control: &'a Control,
    end: Instant,
}

impl Peer<'_> {
    fn wait(&self, wanted: PollFlags) -> Result<(), Hangup> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Hangup::Late);
        }
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let more = if self.transport.wants_write() {
            PollFlags::OUT
        } else {
            wanted
        };
        let mut fds = [
            PollFd::new(&self.transport, wanted | more),
            PollFd::new(&*self.control.waker, PollFlags::IN),
        ];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(Hangup::Host(e.into())),
        }
        match self.control.draining.load(Ordering::Acquire) {
            true => Err(Hangup::Draining),
            false => Ok(()),
        }
    }
}

impl Talk for Peer<'_> {
    fn read(&mut self, mut bytes: &mut [u8]) -> Result<(), Hangup> {
        while !bytes.is_empty() {
            match self.transport.recv(bytes, &mut [])? {
                Moved::Bytes(n) => bytes = &mut bytes[n..],
                Moved::Later => {
                    self.transport.push()?;
                    self.wait(PollFlags::IN)?;
                }
            }
            // A client that sends one byte at a time never makes the call above wait.
            if Instant::now() >= self.end {
                return Err(Hangup::Late);
            }
        }
        Ok(())
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), Hangup> {
        while !bytes.is_empty() || self.transport.wants_write() {
            let moved = match bytes.is_empty() {
                true => self.transport.push().map(|()| Moved::Later),
                false => self.transport.send(&[IoSlice::new(bytes)]),
            };
            match moved? {
                Moved::Bytes(n) => bytes = &bytes[n..],
                Moved::Later if bytes.is_empty() && !self.transport.wants_write() => {}
                Moved::Later => self.wait(PollFlags::OUT)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Budget;
    use diorite_block::{MemDevice, Waker};
    use rustix::fd::OwnedFd;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::AtomicBool;

    /// A client whose bytes are always there never makes the server wait; its time is over nevertheless.
    #[test]
    fn the_time_is_for_those_who_are_quick_too() {
        let exports = [Arc::new(Export::new("a", Arc::new(MemDevice::new(512))))];
        let control = Control {
            waker: Arc::new(Waker::new().expect("an eventfd")),
            draining: AtomicBool::new(false),
            budget: Arc::new(Budget::new(1 << 20, 1)),
        };
        for (time, late) in [(Duration::ZERO, true), (Duration::from_secs(60), false)] {
            let (mut client, server) = UnixStream::pair().expect("a pair of sockets");
            let go = [
                &[0, 0, 0, 3][..],
                b"IHAVEOPT",
                &[0, 0, 0, 7, 0, 0, 0, 6],
                &[0; 6],
            ];
            client.write_all(&go.concat()).expect("there is room");
            let transport = Transport::Plain(OwnedFd::from(server));
            let ended = run(transport, &exports, &control, None, time);
            match late {
                true => assert!(matches!(ended, Err(Hangup::Late))),
                false => assert!(matches!(ended, Ok(Some(_)))),
            }
        }
    }
}
