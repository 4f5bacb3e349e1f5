//! A small NBD client for tests, written from the protocol alone; servers in scratch directories; a device that can do little.
#![allow(dead_code, clippy::unwrap_used, missing_docs, unreachable_pub)]

use diorite_block::{
    Device, DeviceError, DeviceQueue, DeviceReport, Geometry, QueueOptions, Run, Stored,
};
use diorite_nbd::{Export, Listen, Options, Server};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISC: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const CACHE: u16 = 5;
pub const ZERO: u16 = 6;
pub const STATUS: u16 = 7;

pub const FUA: u16 = 1;
pub const NO_HOLE: u16 = 2;
pub const DF: u16 = 4;
pub const REQ_ONE: u16 = 8;
pub const FAST: u16 = 16;

/// A server on a socket in a scratch directory.
pub struct Bed {
    pub server: Server,
    pub path: PathBuf,
    pub dir: tempfile::TempDir,
}

/// Serves devices under the names `a`, `b`, ...
pub fn serve(devices: Vec<Arc<dyn Device>>) -> Bed {
    serve_with(devices, Options::default())
}

pub fn serve_with(devices: Vec<Arc<dyn Device>>, options: Options) -> Bed {
    let exports = (b'a'..).zip(devices);
    let exports = exports
        .map(|(name, device)| Export::new(char::from(name), device))
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nbd.sock");
    let server = Server::start(exports, &[Listen::Unix(path.clone())], options).unwrap();
    Bed { server, path, dir }
}

impl Bed {
    pub fn client(&self, export: &str, how: How) -> Client {
        Client::connect(&self.path, export, how)
    }

    /// Waits until all clients are gone, and asserts that all memory is back (rule D8).
    #[track_caller]
    pub fn all_is_back(&self) {
        while self.server.stats().connected > 0 {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        assert_eq!(self.server.stats().in_use, 0, "memory that is not back");
    }
}

/// The form of replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Simple,
    Structured,
    Extended,
}

pub const HOWS: [How; 3] = [How::Simple, How::Structured, How::Extended];

pub trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

pub struct Client {
    pub stream: Box<dyn Stream>,
    pub how: How,
    pub size: u64,
    pub flags: u16,
    next: u64,
    open: HashMap<u64, (u16, u64, usize)>,
}

/// The whole reply to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    pub cookie: u64,
    pub errno: u32,
    /// The contents of a read, with all chunks in place.
    pub data: Vec<u8>,
    /// Chunks of data and of zeros.
    pub chunks: (usize, usize),
    /// Lengths and flags of extents.
    pub extents: Vec<(u64, u64)>,
}

fn be(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b))
}

pub fn option(stream: &mut dyn Stream, kind: u32, data: &[u8]) -> io::Result<()> {
    let mut raw = b"IHAVEOPT".to_vec();
    raw.extend(kind.to_be_bytes());
    raw.extend((data.len() as u32).to_be_bytes());
    raw.extend(data);
    stream.write_all(&raw)
}

/// The kind and data of a reply to an option.
pub fn option_reply(stream: &mut dyn Stream) -> io::Result<(u32, Vec<u8>)> {
    let mut head = [0; 20];
    stream.read_exact(&mut head)?;
    let mut data = vec![0; be(&head[16..]) as usize];
    stream.read_exact(&mut data)?;
    Ok((be(&head[12..16]) as u32, data))
}

pub fn greet(stream: &mut dyn Stream) -> io::Result<()> {
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting)?;
    assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
    stream.write_all(&3u32.to_be_bytes())
}

pub fn name_and(name: &str, rest: &[u8]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend(rest);
    data
}

impl Client {
    pub fn connect(path: &Path, export: &str, how: How) -> Client {
        Client::try_connect(path, export, how).unwrap()
    }

    pub fn try_connect(path: &Path, export: &str, how: How) -> io::Result<Client> {
        let mut stream: Box<dyn Stream> = Box::new(UnixStream::connect(path)?);
        greet(&mut stream)?;
        Client::choose(stream, export, how)
    }

    /// Chooses an export after the greeting.
    pub fn choose(mut stream: Box<dyn Stream>, export: &str, how: How) -> io::Result<Client> {
        let ack = |stream: &mut dyn Stream| loop {
            let (kind, data) = option_reply(stream)?;
            match kind {
                1 => return Ok::<_, io::Error>(()),
                _ if kind >> 31 == 1 => return Err(io::Error::other(format!("{kind:#x}"))),
                _ => drop(data),
            }
        };
        if how != How::Simple {
            let kind = if how == How::Extended { 11 } else { 8 };
            option(&mut stream, kind, &[])?;
            ack(&mut stream)?;
            let mut query = 1u32.to_be_bytes().to_vec();
            query.extend(name_and("base:allocation", &[]));
            option(&mut stream, 10, &name_and(export, &query))?;
            ack(&mut stream)?;
        }
        option(&mut stream, 7, &name_and(export, &[0, 0]))?;
        let (kind, data) = option_reply(&mut stream)?;
        if kind != 3 {
            return Err(io::Error::other(format!("{kind:#x}")));
        }
        ack(&mut stream)?;
        Ok(Client {
            stream,
            how,
            size: be(&data[2..10]),
            flags: be(&data[10..12]) as u16,
            next: 1,
            open: HashMap::new(),
        })
    }

    /// The bytes of a request.
    pub fn raw(how: How, kind: u16, flags: u16, cookie: u64, at: u64, len: u64) -> Vec<u8> {
        let extended = how == How::Extended;
        let magic: u32 = if extended { 0x21e4_1c71 } else { 0x2560_9513 };
        let flags = if extended && kind == WRITE {
            flags | 32
        } else {
            flags
        };
        let mut raw = magic.to_be_bytes().to_vec();
        raw.extend(flags.to_be_bytes());
        raw.extend(kind.to_be_bytes());
        raw.extend(cookie.to_be_bytes());
        raw.extend(at.to_be_bytes());
        match extended {
            true => raw.extend(len.to_be_bytes()),
            false => raw.extend((len as u32).to_be_bytes()),
        }
        raw
    }

    /// Sends a request; its cookie.
    pub fn send(&mut self, kind: u16, flags: u16, at: u64, len: u64, payload: &[u8]) -> u64 {
        let cookie = self.next;
        self.next += 1;
        let mut raw = Client::raw(self.how, kind, flags, cookie, at, len);
        raw.extend(payload);
        self.open.insert(cookie, (kind, at, len as usize));
        self.stream.write_all(&raw).unwrap();
        cookie
    }

    /// Sends the same request many times.
    pub fn send_many(&mut self, count: u64, kind: u16, at: u64, len: u64) {
        let mut raw = Vec::new();
        for cookie in self.next..self.next + count {
            raw.extend(Client::raw(self.how, kind, 0, cookie, at, len));
            self.open.insert(cookie, (kind, at, len as usize));
        }
        self.next += count;
        self.stream.write_all(&raw).unwrap();
    }

    fn read(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// The next reply, whole. Chunks of different replies are not mixed.
    pub fn recv(&mut self) -> Reply {
        let mut reply = Reply::default();
        loop {
            let magic = be(&self.read(4)) as u32;
            if magic == 0x6744_6698 {
                let rest = self.read(12);
                (reply.errno, reply.cookie) = (be(&rest[..4]) as u32, be(&rest[4..]));
                let (kind, _, len) = self.open.remove(&reply.cookie).expect("a known cookie");
                assert!(self.how != How::Extended);
                assert!(kind != READ || self.how == How::Simple);
                if kind == READ && reply.errno == 0 {
                    reply.data = self.read(len);
                    reply.chunks.0 = 1;
                }
                return reply;
            }
            if self.chunk(magic, &mut reply) {
                let (kind, _, len) = self.open.remove(&reply.cookie).unwrap();
                if kind == READ && reply.errno == 0 {
                    assert_eq!(reply.data.len(), len, "chunks cover the request");
                }
                return reply;
            }
        }
    }

    /// Takes a chunk; whether it was the last.
    fn chunk(&mut self, magic: u32, reply: &mut Reply) -> bool {
        let extended = self.how == How::Extended;
        assert_eq!(magic, if extended { 0x6e8a_278c } else { 0x668e_33ef });
        let head = self.read(if extended { 28 } else { 16 });
        let (flags, kind, cookie) = (be(&head[..2]), be(&head[2..4]), be(&head[4..12]));
        let (_, at, len) = *self.open.get(&cookie).expect("a known cookie");
        assert!(reply.cookie == 0 || reply.cookie == cookie);
        reply.cookie = cookie;
        let size = if extended {
            assert_eq!(be(&head[12..20]), at);
            be(&head[20..])
        } else {
            be(&head[12..])
        };
        let body = self.read(size as usize);
        let done = reply.data.len() as u64;
        match kind {
            0 => assert!(body.is_empty()),
            1 => {
                assert_eq!(be(&body[..8]), at + done, "chunks come in order");
                reply.data.extend(&body[8..]);
                reply.chunks.0 += 1;
            }
            2 => {
                assert_eq!(be(&body[..8]), at + done);
                let zeros = be(&body[8..12]) as usize;
                assert!(zeros > 0 && reply.data.len() + zeros <= len);
                reply.data.resize(reply.data.len() + zeros, 0);
                reply.chunks.1 += 1;
            }
            5 => {
                assert!(!extended && be(&body[..4]) == 1);
                let pairs = body[4..].chunks(8);
                reply.extents = pairs.map(|p| (be(&p[..4]), be(&p[4..]))).collect();
            }
            6 => {
                assert!(extended && be(&body[..4]) == 1);
                let pairs = body[8..].chunks(16);
                reply.extents = pairs.map(|p| (be(&p[..8]), be(&p[8..]))).collect();
                assert_eq!(be(&body[4..8]) as usize, reply.extents.len());
            }
            0x8001 => {
                reply.errno = be(&body[..4]) as u32;
                assert!(reply.errno != 0);
            }
            other => panic!("a chunk of kind {other}"),
        }
        flags == 1
    }

    /// Sends a request and waits for its reply.
    pub fn ask(&mut self, kind: u16, flags: u16, at: u64, len: u64) -> Reply {
        let cookie = self.send(kind, flags, at, len, &[]);
        let reply = self.recv();
        assert_eq!(reply.cookie, cookie);
        reply
    }

    /// Writes; the error number.
    pub fn write(&mut self, flags: u16, at: u64, bytes: &[u8]) -> u32 {
        self.send(WRITE, flags, at, bytes.len() as u64, bytes);
        self.recv().errno
    }

    /// Whether the server has closed the connection.
    pub fn is_closed(&mut self) -> bool {
        !matches!(self.stream.read(&mut [0; 1]), Ok(1..))
    }
}

/// A device that can do less than the one below: no discard, no zeros, small transfers.
pub struct Limited {
    pub below: Arc<dyn Device>,
    pub logical: u32,
}

impl Device for Limited {
    fn below(&self) -> Option<&dyn Device> {
        Some(&*self.below)
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            discard: false,
            write_zeroes: false,
            max_transfer: 8192,
            logical: self.logical,
            ..self.below.geometry()
        }
    }

    fn name(&self) -> String {
        format!("limited {}", self.below.name())
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        self.below.open_queue(options)
    }

    fn refresh(&self) -> Result<(), DeviceError> {
        self.below.refresh()
    }

    /// Every third 64 KiB is a hole, the next one zeros.
    fn stored(&self, range: Range<u64>, most: usize) -> Result<Vec<Run>, DeviceError> {
        self.all_data(range.clone(), 1)?;
        let (mut at, mut runs) = (range.start, Vec::new());
        while at < range.end && runs.len() < most {
            // In pieces, of which two are of one kind.
            let end = ((at / 32768 + 1) * 32768).min(range.end);
            let stored = [Stored::Hole, Stored::Zero, Stored::Data][(at / 65536 % 3) as usize];
            runs.push(Run {
                len: end - at,
                stored,
            });
            at = end;
        }
        Ok(runs)
    }
}

/// A device that calls itself a block device of the host, and grows by itself when it is looked at again.
pub struct Disk {
    pub below: Arc<dyn Device>,
    pub size: AtomicU64,
}

impl Device for Disk {
    fn below(&self) -> Option<&dyn Device> {
        Some(&*self.below)
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            size: self.size.load(Ordering::SeqCst),
            ..self.below.geometry()
        }
    }

    fn name(&self) -> String {
        "disk".to_owned()
    }

    fn report(&self) -> DeviceReport {
        DeviceReport {
            block_device: true,
            ..self.below.report()
        }
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        self.below.open_queue(options)
    }

    fn refresh(&self) -> Result<(), DeviceError> {
        self.size.fetch_add(1 << 20, Ordering::SeqCst);
        Ok(())
    }
}
