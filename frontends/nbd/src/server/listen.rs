//! Sockets that wait for clients.
//!
//! Input: addresses. Output: sockets of clients, which do not block. Invariants: a Unix socket is accessible to its owner alone from the
//! moment at which it has a name; the socket of a server that is gone is replaced, one that answers never; the name goes away with the
//! listener, unless somebody else has put something there. Limits: Unix and TCP; TCP without TLS on loopback addresses only, unless it is
//! permitted.

use super::{Options, ServerError};
use diorite_block::Waker;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, Stat, fchmod, lstat, rename};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, shutdown, socket_with, sockopt,
};
use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Clients that may wait to be accepted.
const BACKLOG: i32 = 128;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A Unix socket with this name, for its owner alone.
    Unix(PathBuf),
    /// A TCP address. Port 0: any free one.
    Tcp(SocketAddr),
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP address, and whether clients have to begin TLS.
    Tcp(SocketAddr, bool),
}

impl Address {
    /// The URI of an export at this address.
    #[must_use]
    pub fn uri(&self, export: &str) -> String {
        let export = escaped(export.as_bytes());
        match self {
            Address::Unix(path) => {
                let path = escaped(path.as_os_str().as_encoded_bytes());
                format!("nbd+unix:///{export}?socket={path}")
            }
            Address::Tcp(at, true) => format!("nbds://{at}/{export}"),
            Address::Tcp(at, false) => format!("nbd://{at}/{export}"),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "{}", path.display()),
            Address::Tcp(at, _) => write!(f, "{at}"),
        }
    }
}

fn escaped(bytes: &[u8]) -> String {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || b"-._~/".contains(b);
    bytes
        .iter()
        .map(|b| match plain(b) {
            true => char::from(*b).to_string(),
            false => format!("%{b:02X}"),
        })
        .collect()
}

/// The socket of a client.
pub(super) type Client = OwnedFd;

/// A socket that waits for clients.
pub(super) struct Listener {
    fd: OwnedFd,
    address: Address,
    /// What the name of a Unix socket led to when it was made.
    made: Option<Stat>,
    stop: Waker,
}

impl Listener {
    pub(super) fn open(address: &Listen, options: &Options) -> Result<Listener, ServerError> {
        let stop =
            Waker::new().map_err(|e| host("cannot start a listener", std::io::Error::other(e)))?;
        stop.watch();
        match address {
            Listen::Unix(path) => {
                let fd = listen_unix(path)?;
                Ok(Listener {
                    fd,
                    address: Address::Unix(path.clone()),
                    made: lstat(path).ok(),
                    stop,
                })
            }
            Listen::Tcp(at) => {
                let (fd, at) = listen_tcp(*at, options)?;
                Ok(Listener {
                    fd,
                    address: Address::Tcp(at, options.tls.is_some()),
                    made: None,
                    stop,
                })
            }
        }
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    pub(super) fn is_tcp(&self) -> bool {
        matches!(self.address, Address::Tcp(..))
    }

    /// No more clients.
    pub(super) fn stop(&self) {
        self.stop.kick();
    }

    /// Nobody can connect any more. Clients that wait to be accepted would wait for ever, so they are closed.
    fn refuse_all(&self) {
        // If the host refuses that, clients are refused when the socket is closed.
        let _ = shutdown(&self.fd, Shutdown::Both);
        while accept_with(&self.fd, SocketFlags::CLOEXEC).is_ok() {}
    }

    /// The next client; none after [`Listener::stop`]. Blocks.
    pub(super) fn accept(&self) -> Option<Client> {
        loop {
            let mut fds = [
                PollFd::new(&self.fd, PollFlags::IN),
                PollFd::new(&self.stop, PollFlags::IN),
            ];
            let polled = poll(&mut fds, None);
            if self.stop.is_kicked() {
                self.refuse_all();
                return None;
            }
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match polled.and_then(|_| accept_with(&self.fd, flags)) {
                Ok(client) => {
                    if self.is_tcp() {
                        // Small replies would wait for each other. Without it, they do; that is no reason to refuse the client.
                        let _ = sockopt::set_tcp_nodelay(&client, true);
                    }
                    return Some(client);
                }
                // The client is gone, or another event came first.
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
                // Out of descriptors or memory: the client waits until others have ended.
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let (Address::Unix(path), Some(made)) = (&self.address, &self.made) else {
            return;
        };
        let same = |now: Stat| (now.st_dev, now.st_ino) == (made.st_dev, made.st_ino);
        if lstat(path).is_ok_and(same) {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn host(what: impl Into<String>, source: impl Into<std::io::Error>) -> ServerError {
    ServerError::Host {
        what: what.into(),
        source: source.into(),
    }
}

fn listen_tcp(at: SocketAddr, options: &Options) -> Result<(OwnedFd, SocketAddr), ServerError> {
    if !at.ip().is_loopback() && options.tls.is_none() && !options.insecure_tcp {
        return Err(ServerError::Insecure(at));
    }
    let failed = |e: std::io::Error| host(format!("cannot listen at {at}"), e);
    // It sets SO_REUSEADDR, so that a server that was restarted gets its port back.
    let socket = TcpListener::bind(at).map_err(failed)?;
    socket.set_nonblocking(true).map_err(failed)?;
    let bound = socket.local_addr().map_err(failed)?;
    Ok((socket.into(), bound))
}

fn unix_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

fn listen_unix(path: &Path) -> Result<OwnedFd, ServerError> {
    let failed = |e: Errno| host(format!("cannot listen at {}", path.display()), e);
    let name = SocketAddrUnix::new(path).map_err(failed)?;
    let fd = unix_socket().map_err(failed)?;
    // Before it has a name: the name gets the mode of the socket, less the umask, so nobody else can connect at any moment.
    fchmod(&fd, Mode::RUSR | Mode::WUSR).map_err(failed)?;
    match bind(&fd, &name) {
        Err(Errno::ADDRINUSE) => {
            remove_stale(path)?;
            bind(&fd, &name).map_err(failed)?;
        }
        bound => bound.map_err(failed)?,
    }
    listen(&fd, BACKLOG).map_err(failed)?;
    Ok(fd)
}

/// Whether a server answers at this socket.
fn answers(path: &Path) -> Result<bool, Errno> {
    let fd = unix_socket()?;
    match connect(fd.as_fd(), &SocketAddrUnix::new(path)?) {
        // AGAIN: its backlog is full.
        Ok(()) | Err(Errno::AGAIN) => Ok(true),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Removes the socket of a server that is gone. It is moved aside first and asked again there: between a question and a removal another
/// server may have replaced it.
fn remove_stale(path: &Path) -> Result<(), ServerError> {
    let failed = |e: Errno| host(format!("cannot replace {}", path.display()), e);
    let found = lstat(path).map_err(failed)?;
    if rustix::fs::FileType::from_raw_mode(found.st_mode) != rustix::fs::FileType::Socket {
        return Err(ServerError::InTheWay(path.to_owned()));
    }
    if answers(path).map_err(failed)? {
        return Err(ServerError::Answered(path.to_owned()));
    }
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".{}", std::process::id()));
    let aside = PathBuf::from(aside);
    rename(path, &aside).map_err(failed)?;
    if answers(&aside).map_err(failed)? {
        rename(&aside, path).map_err(failed)?;
        return Err(ServerError::Answered(path.to_owned()));
    }
    std::fs::remove_file(&aside).map_err(|e| host(format!("cannot remove {}", aside.display()), e))
}
