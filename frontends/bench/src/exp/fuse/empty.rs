//! A FUSE server without a volume: names, sizes and modes in memory; reads are zeros and writes are forgotten. Its rate is the most that
//! the kernel's client permits.
//!
//! Input: a mount point, the size of the file `bench`. Output: a mount. Invariants: it has as many threads as a mount of diorite, asks the
//! kernel for the same, and receives and replies in the same way: by `/dev/fuse`, or through io_uring. Limits: [`MOST_NODES`] files and
//! directories in all; files and directories are made and removed, but not moved or linked.

use super::super::super::bed::FILE;
use super::super::super::failure::Failure;
use super::super::super::peer::Peer;
use super::mounts::unmount;
use diorite_block::sync::{LockClass, Mutex};
use diorite_format::FileType;
use diorite_fuse::session::{default_threads, rings, settle};
use diorite_fuse::transport::{Channel, Incoming, Line, Reply};
use diorite_fuse::wire::input::{Body, HEADER, Header};
use diorite_fuse::wire::output::{Put, Record, put_no_entry, put_open};
use diorite_fuse::wire::{MOST_DATA, ROOT, can, op, opened, set};
use diorite_fuse::{MountOptions, mount};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread::JoinHandle;

/// How long the kernel may believe what it is told, in seconds.
const VALID: u64 = 1 << 30;

/// Twice what a source tree has.
const MOST_NODES: u64 = 1 << 16;

static NAMES: LockClass = LockClass::new("empty-names", 1);

/// The server as a peer, with one file of `size` bytes.
pub(super) struct Nothing<'a> {
    pub(super) at: &'a Path,
    pub(super) size: u64,
    /// Requests come through io_uring.
    pub(super) rings: bool,
}

impl Peer for Nothing<'_> {
    /// The server's threads.
    type Running = Vec<JoinHandle<()>>;

    fn name(&self) -> &'static str {
        match self.rings {
            true => "a server that does nothing, io_uring",
            false => "a server that does nothing",
        }
    }

    fn start(&self) -> Result<Vec<JoinHandle<()>>, Failure> {
        serve(self)
    }

    /// Unmounts; the threads end with that.
    fn stop(&self, threads: Vec<JoinHandle<()>>) -> Result<(), Failure> {
        unmount(self.at)?;
        for thread in threads {
            thread
                .join()
                .map_err(|_| Failure::failed("the empty server panicked"))?;
        }
        Ok(())
    }
}

/// Mounts it. The first request is answered when this returns.
fn serve(what: &Nothing<'_>) -> Result<Vec<JoinHandle<()>>, Failure> {
    let at = what.at;
    let options = MountOptions::default().source(b"empty".to_vec());
    let point = rustix::fs::open(at, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| Failure::failed(format!("{}: {e}", at.display())))?;
    let fuse = mount(at, &point, &options).map_err(|e| Failure::unavailable(e.to_string()))?;
    let first = Channel::new(fuse, true);
    let lane = |channel| -> Result<(Line, Incoming), Failure> {
        let request = Incoming::try_new().ok_or_else(|| Failure::failed("no memory"))?;
        Ok((Line::Device(channel), request))
    };
    let mut lanes = vec![lane(first.clone())?];
    let of_rings = match what.rings {
        true => rings(
            &first,
            default_threads(),
            diorite_fuse::transport::MOST_PLACES,
        ),
        false => Vec::new(),
    };
    let failed = |e: Errno| Failure::failed(format!("the empty server: {e}"));
    let both = begin(&mut lanes[0], what.rings).map_err(failed)?;
    match what.rings {
        true if of_rings.is_empty() || both & can::OVER_IO_URING == 0 => {
            return Err(Failure::unavailable("the kernel's FUSE has no io_uring"));
        }
        true => {
            let of_rings = of_rings.into_iter().flatten();
            lanes.extend(of_rings.map(|(ring, request)| (Line::Ring(Box::new(ring)), request)));
        }
        false => {
            for _ in 1..default_threads() {
                lanes.push(lane(first.another())?);
            }
        }
    }
    let tree = Arc::new(Tree::new(what.size).map_err(failed)?);
    let (tell, started) = mpsc::channel();
    let start = |(mut line, request): (Line, Incoming)| {
        let (tree, tell) = (tree.clone(), tell.clone());
        std::thread::spawn(move || {
            let ready = line.start();
            // Whoever waits for it has gone if another thread could not start.
            let _ = tell.send(ready);
            drop(tell);
            if ready.is_ok() {
                run(line, request, &tree);
            }
        })
    };
    let threads = lanes.into_iter().map(start).collect();
    drop(tell);
    started
        .iter()
        .collect::<Result<(), Errno>>()
        .map_err(failed)?;
    Ok(threads)
}

/// Answers the first request. Returns what was settled.
fn begin((line, request): &mut (Line, Incoming), has_rings: bool) -> Result<u64, Errno> {
    line.receive(request)?;
    let bytes = request.whole();
    let header = Header::parse(bytes)?;
    let mut wanted = can::ASYNC_READ
        | can::BIG_WRITES
        | can::DONT_MASK
        | can::DO_READDIRPLUS
        | can::READDIRPLUS_AUTO
        | can::ASYNC_DIO
        | can::PARALLEL_DIROPS
        | can::POSIX_ACL
        | can::MAX_PAGES
        | can::NO_OPENDIR_SUPPORT
        | can::EXPLICIT_INVAL_DATA
        | can::HANDLE_KILLPRIV_V2
        | can::INIT_EXT;
    if has_rings {
        wanted |= can::OVER_IO_URING;
    }
    let mut out = Vec::new();
    let both = settle(&bytes[HEADER..], (wanted, 1), &mut out).map_err(|_| Errno::PROTO)?;
    line.reply(header.unique, request, Reply::Out(&out))?;
    Ok(both.unwrap_or(0))
}

fn run(mut line: Line, mut request: Incoming, tree: &Tree) {
    let mut out = Vec::new();
    while let Ok(true) = line.receive(&mut request) {
        let Ok(header) = Header::parse(request.before()) else {
            return;
        };
        out.clear();
        let sent = match header.op {
            op::READ => {
                let len = tree.read_len(header.node, request.before());
                line.reply(header.unique, &mut request, Reply::Data(len))
            }
            op::FORGET | op::BATCH_FORGET | op::INTERRUPT => Ok(()),
            _ => {
                let done = tree.answer(&header, &mut request, &mut out);
                let reply = match done {
                    Ok(()) => Reply::Out(&out),
                    Err(error) => Reply::Failed(error),
                };
                line.reply(header.unique, &mut request, reply)
            }
        };
        // A caller that was interrupted does not wait any more.
        let _ = sent;
    }
}

#[derive(Default)]
struct Node {
    size: AtomicU64,
    mode: AtomicU32,
}

/// The names of a directory. Listings go by node, so that they can be continued after a change.
#[derive(Default)]
struct Directory {
    nodes: HashMap<Vec<u8>, u64>,
    names: BTreeMap<u64, Vec<u8>>,
}

struct Names {
    directories: HashMap<u64, Directory>,
    /// The number of the next node.
    next: u64,
}

impl Names {
    fn of(&mut self, directory: u64) -> Result<&mut Directory, Errno> {
        self.directories.get_mut(&directory).ok_or(Errno::NOTDIR)
    }

    /// Gives a new node a name.
    fn add(&mut self, directory: u64, name: &[u8]) -> Result<u64, Errno> {
        let node = self.next;
        let directory = self.of(directory)?;
        if node == MOST_NODES {
            return Err(Errno::NOSPC);
        }
        directory.nodes.insert(name.to_vec(), node);
        directory.names.insert(node, name.to_vec());
        self.next += 1;
        Ok(node)
    }
}

struct Tree {
    /// By number. Reads and writes find sizes without the lock.
    nodes: Box<[Node]>,
    names: Mutex<Names>,
}

impl Tree {
    /// A root that has the file, of this size.
    fn new(size: u64) -> Result<Tree, Errno> {
        let mut names = Names {
            directories: HashMap::from([(ROOT, Directory::default())]),
            next: ROOT + 1,
        };
        let file = names.add(ROOT, FILE.trim_start_matches('/').as_bytes())?;
        let tree = Tree {
            nodes: (0..MOST_NODES).map(|_| Node::default()).collect(),
            names: Mutex::at_level(&NAMES, 0, names),
        };
        tree.is_now(ROOT, 4096, FileType::Directory, 0o755)?;
        tree.is_now(file, size, FileType::Regular, 0o644)?;
        Ok(tree)
    }

    fn node(&self, node: u64) -> Result<&Node, Errno> {
        let at = usize::try_from(node).ok();
        at.and_then(|at| self.nodes.get(at)).ok_or(Errno::STALE)
    }

    fn is_now(&self, node: u64, size: u64, kind: FileType, permissions: u32) -> Result<(), Errno> {
        let node = self.node(node)?;
        node.size.store(size, Relaxed);
        let mode = u32::from(kind.to_mode()) | permissions & 0o7777;
        node.mode.store(mode, Relaxed);
        Ok(())
    }

    fn read_len(&self, node: u64, bytes: &[u8]) -> usize {
        let mut body = Body::new(bytes.get(HEADER + 8..).unwrap_or_default());
        let (pos, len) = (body.u64().unwrap_or(0), body.u32().unwrap_or(0));
        let size = self.node(node).map_or(0, |node| node.size.load(Relaxed));
        let left = size.saturating_sub(pos).min(u64::from(len));
        usize::try_from(left).map_or(0, |left| left.min(MOST_DATA))
    }

    fn answer(
        &self,
        header: &Header,
        request: &mut Incoming,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        if header.op == op::WRITE {
            let mut body = Body::new(request.before().get(HEADER + 8..).unwrap_or_default());
            let len = request.data_len();
            let end = body.u64()?.saturating_add(len as u64);
            self.node(header.node)?.size.fetch_max(end, Relaxed);
            out.u32(u32::try_from(len).unwrap_or(0));
            out.u32(0);
            return Ok(());
        }
        let mut body = Body::new(&request.whole()[HEADER..]);
        match header.op {
            op::LOOKUP => self.lookup(header.node, body.name()?, out),
            op::GETATTR => self.put_attr(header.node, out),
            op::SETATTR => self.set_attr(header.node, body, out),
            op::MKDIR => {
                let mode = body.u32()?;
                body.skip(4)?;
                let name = body.name()?;
                let node = self.make(header.node, name, FileType::Directory, mode, out)?;
                let mut names = self.names.lock();
                names.directories.insert(node, Directory::default());
                Ok(())
            }
            op::CREATE => {
                let (flags, mode) = (body.u32()?, body.u32()?);
                body.skip(8)?;
                self.make(header.node, body.name()?, FileType::Regular, mode, out)?;
                put_open(0, how(flags), out);
                Ok(())
            }
            op::OPEN => {
                put_open(0, how(body.u32()?), out);
                Ok(())
            }
            op::UNLINK | op::RMDIR => self.remove(header.node, body.name()?),
            op::READDIR | op::READDIRPLUS => self.list(header, body, out),
            op::GETXATTR => Err(Errno::NODATA),
            op::RELEASE | op::FSYNC => Ok(()),
            op::STATFS => {
                out.zeros(80);
                Ok(())
            }
            _ => Err(Errno::NOSYS),
        }
    }

    fn lookup(&self, directory: u64, name: &[u8], out: &mut Vec<u8>) -> Result<(), Errno> {
        let found = self.names.lock().of(directory)?.nodes.get(name).copied();
        match found {
            Some(node) => self.put_entry(node, out),
            None => {
                put_no_entry(out);
                Ok(())
            }
        }
    }

    fn make(
        &self,
        directory: u64,
        name: &[u8],
        kind: FileType,
        permissions: u32,
        out: &mut Vec<u8>,
    ) -> Result<u64, Errno> {
        let node = self.names.lock().add(directory, name)?;
        self.is_now(node, 0, kind, permissions)?;
        self.put_entry(node, out)?;
        Ok(node)
    }

    fn remove(&self, directory: u64, name: &[u8]) -> Result<(), Errno> {
        let mut names = self.names.lock();
        let directory = names.of(directory)?;
        let node = directory.nodes.remove(name).ok_or(Errno::NOENT)?;
        directory.names.remove(&node);
        names.directories.remove(&node);
        Ok(())
    }

    fn list(&self, header: &Header, mut body: Body<'_>, out: &mut Vec<u8>) -> Result<(), Errno> {
        let (_handle, position, room) = (body.u64()?, body.u64()?, body.u32()? as usize);
        let plus = header.op == op::READDIRPLUS;
        let mut names = self.names.lock();
        for (node, name) in names.of(header.node)?.names.range(position..) {
            let mode = self.node(*node)?.mode.load(Relaxed);
            let record = Record {
                ino: *node,
                position: node + 1,
                kind: u16::try_from(mode).ok().and_then(FileType::from_mode),
                name,
            };
            if out.len() + record.len(plus) > room {
                break;
            }
            if plus {
                self.put_entry(*node, out)?;
            }
            record.put(out);
        }
        Ok(())
    }

    fn set_attr(&self, node: u64, mut body: Body<'_>, out: &mut Vec<u8>) -> Result<(), Errno> {
        let valid = body.u32()?;
        body.skip(12)?;
        let size = body.u64()?;
        body.skip(44)?;
        let mode = body.u32()?;
        let place = self.node(node)?;
        if valid & set::SIZE != 0 {
            place.size.store(size, Relaxed);
        }
        if valid & set::MODE != 0 {
            place.mode.store(mode, Relaxed);
        }
        self.put_attr(node, out)
    }

    /// `fuse_entry_out`.
    fn put_entry(&self, node: u64, out: &mut Vec<u8>) -> Result<(), Errno> {
        out.u64(node);
        out.u64(0);
        out.u64(VALID);
        out.u64(VALID);
        out.zeros(8);
        self.put_fields(node, out)
    }

    /// `fuse_attr_out`.
    fn put_attr(&self, node: u64, out: &mut Vec<u8>) -> Result<(), Errno> {
        out.u64(VALID);
        out.zeros(8);
        self.put_fields(node, out)
    }

    /// `fuse_attr`.
    fn put_fields(&self, node: u64, out: &mut Vec<u8>) -> Result<(), Errno> {
        let is = self.node(node)?;
        let size = is.size.load(Relaxed);
        out.u64(node);
        out.u64(size);
        out.u64(size / 512);
        out.zeros(36);
        out.u32(is.mode.load(Relaxed));
        out.u32(1);
        out.zeros(12);
        out.u32(4096);
        out.u32(0);
        Ok(())
    }
}

/// How the kernel uses an open file: as a mount of diorite has it.
fn how(flags: u32) -> u32 {
    match flags.cast_signed() & libc::O_DIRECT {
        0 => opened::KEEP_CACHE,
        _ => opened::DIRECT_IO | opened::PARALLEL_DIRECT_WRITES,
    }
}
