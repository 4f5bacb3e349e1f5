//! The server: listeners, a thread per connection, the end of all.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `listen` | addresses -> sockets that wait for clients |
//! | `handshake` | a socket of a client -> a session, in limited time |
//!
//! Input: exports, addresses, limits. Output: connections that are served until they or the server end. Invariants: a
//! connection's failure ends that connection only; connections beyond the limit are closed at once; after [`Server::drain`] no
//! thread is left and devices are flushed. Limits: one thread per listener and per connection.

mod handshake;
mod listen;

use crate::connection::{Budget, Connection, Control};
use crate::export::{Export, ExportStats};
use crate::negotiate::Hangup;
use crate::transport::Transport;
use diorite_block::sync::{Condvar, LockClass, Mutex};
use diorite_block::{BioError, Waker};
pub use listen::{Address, Listen};
use listen::{Client, Listener};
use rustls::ServerConfig;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// The connections of a server.
static NBD_SERVER: LockClass = LockClass::new("nbd-server", 60);

/// The classes of locks of this crate, for printing statistics.
pub static CLASSES: [&LockClass; 3] = [
    &NBD_SERVER,
    &crate::aside::NBD_ASIDE,
    &crate::aside::NBD_INBOX,
];

/// Limits, and TLS.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Connections at once; more are closed as soon as they come.
    pub connections: usize,
    /// How long a handshake may take.
    pub handshake: Duration,
    /// For TCP: clients have to begin TLS.
    pub tls: Option<Arc<ServerConfig>>,
    /// Permits TCP without TLS on addresses that are not loopback.
    pub insecure_tcp: bool,
    /// Bytes of memory for all connections together. Each has up to 1 MiB of its own, which is put aside from this, up to a half; the rest
    /// is for the contents of requests.
    pub memory: u64,
}

diorite_block::setters! {
    Options {
        connections: usize,
        handshake: Duration,
        insecure_tcp: bool,
        memory: u64,
    } option {
        tls: Arc<ServerConfig>,
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            connections: 128,
            handshake: Duration::from_secs(10),
            tls: None,
            insecure_tcp: false,
            memory: 1 << 30,
        }
    }
}

/// Why a server cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Nothing to serve.
    #[error("there is no export to serve")]
    NoExport,
    /// Two exports have the same name.
    #[error("two exports have the name {0:?}: give one of them another name")]
    SameName(String),
    /// TCP without TLS.
    #[error(
        "{0} is not a loopback address, and there is no TLS: give a certificate and a key, or permit it explicitly"
    )]
    Insecure(SocketAddr),
    /// Somebody listens there already.
    #[error("{}: another server answers at this socket", .0.display())]
    Answered(PathBuf),
    /// Something else is in the place of the socket.
    #[error("{}: it exists and is not a socket", .0.display())]
    InTheWay(PathBuf),
    /// The host refused.
    #[error("{what}: {source}")]
    Host {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
}

/// The error becomes the source; its kind is that of the host's error if there is one.
impl From<ServerError> for std::io::Error {
    fn from(error: ServerError) -> std::io::Error {
        use std::io::ErrorKind;
        let kind = match &error {
            ServerError::NoExport | ServerError::SameName(_) => ErrorKind::InvalidInput,
            ServerError::Insecure(_) => ErrorKind::PermissionDenied,
            ServerError::Answered(_) => ErrorKind::AddrInUse,
            ServerError::InTheWay(_) => ErrorKind::AlreadyExists,
            ServerError::Host { source, .. } => source.kind(),
        };
        std::io::Error::new(kind, error)
    }
}

/// What a server has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// For each export: its name, and what it has done.
    pub exports: Vec<(String, ExportStats)>,
    /// Clients that are connected now.
    pub connected: usize,
    /// Clients that were turned away because there were too many.
    pub turned_away: u64,
    /// Connections that ended because of something that the client did wrong.
    pub broken: u64,
    /// Bytes of memory for contents that are in use now.
    pub in_use: u64,
}

struct Shared {
    exports: Vec<Arc<Export>>,
    options: Options,
    connected: Mutex<Connected>,
    /// A connection has ended.
    fewer: Condvar,
    draining: AtomicBool,
    turned_away: AtomicU64,
    broken: AtomicU64,
    budget: Arc<Budget>,
}

#[derive(Default)]
struct Connected {
    next: u64,
    all: Vec<(u64, Arc<Control>)>,
}

/// A running server. Dropping it drains it.
///
/// ```
/// use diorite_block::MemDevice;
/// use diorite_nbd::{Export, Listen, Options, Server};
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), diorite_nbd::ServerError> {
/// # let dir = tempfile::tempdir().expect("a scratch directory");
/// let socket = dir.path().join("disk.sock");
/// let export = Export::new("disk", Arc::new(MemDevice::new(1 << 20)));
/// let server = Server::start(vec![export], &[Listen::Unix(socket.clone())], Options::default())?;
/// assert!(socket.exists()); // nbd+unix:///disk?socket=...
/// for (export, error) in server.drain() {
///     eprintln!("{export}: not everything is durable: {error}");
/// }
/// # Ok(())
/// # }
/// ```
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<(Arc<Listener>, JoinHandle<()>)>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("addresses", &self.addresses())
            .finish_non_exhaustive()
    }
}

/// Addresses that are listened at. Clients that connect wait until they are served. Dropping it gives the addresses up.
pub struct Listeners {
    all: Vec<Arc<Listener>>,
    options: Options,
}

impl std::fmt::Debug for Listeners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listeners").finish_non_exhaustive()
    }
}

impl Listeners {
    /// Begins to listen, for a process that has to do so before it opens what it serves.
    ///
    /// # Errors
    /// An address cannot be used.
    pub fn open(addresses: &[Listen], options: Options) -> Result<Listeners, ServerError> {
        let all = addresses
            .iter()
            .map(|address| Listener::open(address, &options).map(Arc::new));
        Ok(Listeners {
            all: all.collect::<Result<_, _>>()?,
            options,
        })
    }

    /// Begins to serve `exports`: see [`Server::start`].
    ///
    /// # Errors
    /// No exports, or two of one name; the host has no threads.
    pub fn serve(self, exports: Vec<Export>) -> Result<Server, ServerError> {
        check(&exports)?;
        Server::begin(exports, self.all, self.options)
    }
}

fn check(exports: &[Export]) -> Result<(), ServerError> {
    if exports.is_empty() {
        return Err(ServerError::NoExport);
    }
    for (index, export) in exports.iter().enumerate() {
        if exports[..index].iter().any(|e| e.name() == export.name()) {
            return Err(ServerError::SameName(export.name().to_owned()));
        }
    }
    Ok(())
}

impl Server {
    /// Begins to serve `exports` at the addresses. The first export is also the default one, which has no name.
    ///
    /// # Errors
    /// No exports, or two of one name; an address cannot be used.
    pub fn start(
        exports: Vec<Export>,
        addresses: &[Listen],
        options: Options,
    ) -> Result<Server, ServerError> {
        check(&exports)?;
        Listeners::open(addresses, options)?.serve(exports)
    }

    fn begin(
        exports: Vec<Export>,
        listeners: Vec<Arc<Listener>>,
        options: Options,
    ) -> Result<Server, ServerError> {
        let budget = Budget::new(options.memory, options.connections);
        let shared = Arc::new(Shared {
            exports: exports.into_iter().map(Arc::new).collect(),
            options,
            connected: Mutex::new(&NBD_SERVER, Connected::default()),
            fewer: Condvar::new(),
            draining: AtomicBool::new(false),
            turned_away: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            budget: Arc::new(budget),
        });
        let mut server = Server {
            shared,
            listeners: Vec::new(),
        };
        for listener in listeners {
            let (shared, waits) = (server.shared.clone(), listener.clone());
            let run = move || accept_all(&shared, &waits);
            let thread = Builder::new().name("nbd-accept".to_owned()).spawn(run);
            let thread = thread.map_err(|source| ServerError::Host {
                what: "cannot start a thread".to_owned(),
                source,
            })?;
            server.listeners.push((listener, thread));
        }
        Ok(server)
    }

    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> Vec<Address> {
        let each = self.listeners.iter();
        each.map(|(listener, _)| listener.address().clone())
            .collect()
    }

    /// The exports.
    #[must_use]
    pub fn exports(&self) -> &[Arc<Export>] {
        &self.shared.exports
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        let shared = &*self.shared;
        ServerStats {
            exports: shared
                .exports
                .iter()
                .map(|e| (e.name().to_owned(), e.stats()))
                .collect(),
            connected: shared.connected.lock().all.len(),
            turned_away: shared.turned_away.load(Ordering::Relaxed),
            broken: shared.broken.load(Ordering::Relaxed),
            in_use: shared.budget.used(),
        }
    }

    /// Ends: no more clients; requests under way end; later ones are answered that the server ends; devices are flushed. Returns for each
    /// export whose flush failed its name and the error. Blocks.
    #[must_use = "a failed flush is reported here alone"]
    pub fn drain(&self) -> Vec<(String, BioError)> {
        let shared = &*self.shared;
        shared.draining.store(true, Ordering::SeqCst);
        let mut connected = shared.connected.lock();
        for (_, control) in &connected.all {
            control.draining.store(true, Ordering::Release);
            control.waker.kick();
        }
        // Afterwards: whoever sees that nobody can connect gets no request served either.
        for (listener, _) in &self.listeners {
            listener.stop();
        }
        while !connected.all.is_empty() {
            connected = shared.fewer.wait(connected);
        }
        drop(connected);
        let flushed = shared.exports.iter().filter(|e| !e.geometry().read_only);
        flushed
            .filter_map(|e| {
                let error = e.aside.flush_here().err()?;
                Some((e.name().to_owned(), error))
            })
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nobody is there to be told: who wants to know calls it before.
        let _ = self.drain();
        for (listener, thread) in self.listeners.drain(..) {
            // A panic there has been printed, and there is nobody to tell.
            let _ = thread.join();
            drop(listener);
        }
    }
}

fn accept_all(shared: &Arc<Shared>, listener: &Arc<Listener>) {
    while let Some(client) = listener.accept() {
        // Without an eventfd or a thread the client is turned away: dropping its socket closes it.
        if admit(shared, listener, client).is_none() {
            shared.turned_away.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn admit(shared: &Arc<Shared>, listener: &Arc<Listener>, client: Client) -> Option<()> {
    let waker = Arc::new(Waker::new().ok()?);
    // Threads poll its descriptor.
    waker.watch();
    let control = Arc::new(Control {
        waker,
        draining: AtomicBool::new(false),
        budget: shared.budget.clone(),
    });
    let mut connected = shared.connected.lock();
    if connected.all.len() >= shared.options.connections || shared.draining.load(Ordering::SeqCst) {
        return None;
    }
    connected.next += 1;
    let number = connected.next;
    connected.all.push((number, control.clone()));
    drop(connected);
    let place = Place {
        shared: shared.clone(),
        number,
    };
    let secure = listener.is_tcp().then(|| shared.options.tls.clone());
    let run = move || {
        let shared = &*place.shared;
        if let Err(error) = serve(shared, &control, client, secure.flatten()) {
            let broken = !matches!(error, Hangup::Closed | Hangup::Draining);
            shared
                .broken
                .fetch_add(u64::from(broken), Ordering::Relaxed);
        }
    };
    // The place is dropped with the closure if there is no thread.
    Builder::new().name("nbd".to_owned()).spawn(run).ok()?;
    Some(())
}

/// A connection's place among those that are connected.
struct Place {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut connected = self.shared.connected.lock();
        connected.all.retain(|(number, _)| *number != self.number);
        drop(connected);
        self.shared.fewer.notify_all();
    }
}

/// Serves one client from its first byte to its last.
fn serve(
    shared: &Shared,
    control: &Arc<Control>,
    client: Client,
    tls: Option<Arc<ServerConfig>>,
) -> Result<(), Hangup> {
    let transport = Transport::Plain(client);
    let time = shared.options.handshake;
    let agreed = handshake::run(transport, &shared.exports, control, tls, time)?;
    let Some((transport, session)) = agreed else {
        return Ok(());
    };
    let opened = Connection::open(transport, session, control.clone());
    let mut connection = opened.map_err(|e| Hangup::Host(std::io::Error::other(e.to_string())))?;
    connection.run()
}
