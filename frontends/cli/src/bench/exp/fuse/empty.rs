//! A FUSE server without a volume: one file, whose reads are zeros and whose writes are forgotten. Its rate is the most that the kernel's
//! client permits.
//!
//! Input: a mount point, a file's size. Output: a mount. Invariants: it has as many threads as a mount of diorite, and receives and replies
//! in the same way. Limits: one file, `bench`.

use super::super::super::bed::FILE;
use super::super::super::failure::Failure;
use super::mounts::unmount;
use diorite_fuse::session::{default_threads, settle};
use diorite_fuse::transport::{Channel, Incoming, Reply};
use diorite_fuse::wire::input::{Body, HEADER, Header};
use diorite_fuse::wire::output::{Put, put_open};
use diorite_fuse::wire::{MOST_DATA, ROOT, can, op, opened};
use diorite_fuse::{MountOptions, mount};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// The file's node.
const NODE: u64 = 2;

/// A running server.
pub(super) struct Served {
    at: PathBuf,
    threads: Vec<JoinHandle<()>>,
}

impl Served {
    /// Unmounts; the threads end with that.
    pub(super) fn end(self) -> Result<(), Failure> {
        unmount(&self.at)?;
        for thread in self.threads {
            thread
                .join()
                .map_err(|_| Failure::failed("the empty server panicked"))?;
        }
        Ok(())
    }
}

/// Mounts it. The first request is answered when this returns.
pub(super) fn serve(at: &Path, size: u64) -> Result<Served, Failure> {
    let options = MountOptions {
        source: b"empty".to_vec(),
        ..MountOptions::default()
    };
    let point = rustix::fs::open(at, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| Failure::failed(format!("{}: {e}", at.display())))?;
    let fuse = mount(at, &point, &options).map_err(|e| Failure::unavailable(e.to_string()))?;
    let first = Channel::new(fuse, true);
    let lane = |n| {
        let channel = if n == 0 {
            first.clone()
        } else {
            first.another()
        };
        let request = Incoming::try_new().ok_or_else(|| Failure::failed("no memory"))?;
        Ok((channel, request))
    };
    let mut lanes: Vec<(Channel, Incoming)> = (0..default_threads())
        .map(lane)
        .collect::<Result<_, Failure>>()?;
    begin(&mut lanes[0]).map_err(|e| Failure::failed(format!("the empty server: {e}")))?;
    let start = |(channel, request)| std::thread::spawn(move || run(&channel, request, size));
    Ok(Served {
        at: at.to_owned(),
        threads: lanes.into_iter().map(start).collect(),
    })
}

fn begin((channel, request): &mut (Channel, Incoming)) -> Result<(), Errno> {
    channel.receive(request)?;
    let bytes = request.whole();
    let header = Header::parse(bytes)?;
    let wanted = can::ASYNC_READ
        | can::BIG_WRITES
        | can::ASYNC_DIO
        | can::PARALLEL_DIROPS
        | can::MAX_PAGES
        | can::HANDLE_KILLPRIV_V2
        | can::INIT_EXT;
    let mut out = Vec::new();
    settle(&bytes[HEADER..], wanted, &mut out).map_err(|_| Errno::PROTO)?;
    channel.reply(header.unique, request, Reply::Out(&out))
}

fn run(channel: &Channel, mut request: Incoming, size: u64) {
    let mut out = Vec::new();
    while let Ok(true) = channel.receive(&mut request) {
        let Ok(header) = Header::parse(request.before()) else {
            return;
        };
        out.clear();
        let sent = match header.op {
            op::READ => {
                let len = read_len(request.before(), size);
                channel.reply(header.unique, &request, Reply::Data(len))
            }
            op::FORGET | op::BATCH_FORGET | op::INTERRUPT => Ok(()),
            _ => {
                let done = answer(&header, &mut request, size, &mut out);
                let reply = match done {
                    Ok(()) => Reply::Out(&out),
                    Err(error) => Reply::Failed(error),
                };
                channel.reply(header.unique, &request, reply)
            }
        };
        // A caller that was interrupted does not wait any more.
        let _ = sent;
    }
}

fn read_len(bytes: &[u8], size: u64) -> usize {
    let mut body = Body::new(bytes.get(HEADER + 8..).unwrap_or_default());
    let (pos, len) = (body.u64().unwrap_or(0), body.u32().unwrap_or(0));
    let left = size
        .saturating_sub(pos)
        .min(u64::from(len))
        .min(MOST_DATA as u64);
    usize::try_from(left).unwrap_or(0)
}

fn answer(
    header: &Header,
    request: &mut Incoming,
    size: u64,
    out: &mut Vec<u8>,
) -> Result<(), Errno> {
    match header.op {
        op::LOOKUP => {
            let name = Body::new(&request.whole()[HEADER..]).name()?;
            if name != FILE.trim_start_matches('/').as_bytes() {
                return Err(Errno::NOENT);
            }
            out.u64(NODE);
            out.u64(0);
            out.u64(1 << 30);
            out.u64(1 << 30);
            out.zeros(8);
            attr(NODE, size, out);
        }
        op::GETATTR | op::SETATTR => {
            out.u64(1 << 30);
            out.zeros(8);
            attr(header.node, size, out);
        }
        op::OPEN => put_open(0, opened::DIRECT_IO | opened::PARALLEL_DIRECT_WRITES, out),
        op::WRITE => {
            out.u32(u32::try_from(request.data_len()).unwrap_or(0));
            out.u32(0);
        }
        op::RELEASE | op::FSYNC | op::STATFS => {}
        _ => return Err(Errno::NOSYS),
    }
    Ok(())
}

/// `fuse_attr` of the root or the file.
fn attr(node: u64, size: u64, out: &mut Vec<u8>) {
    let is_root = node == ROOT;
    out.u64(node);
    out.u64(if is_root { 4096 } else { size });
    out.u64(size / 512);
    out.zeros(36);
    out.u32(if is_root { 0o040_755 } else { 0o100_644 });
    out.u32(1);
    out.zeros(12);
    out.u32(4096);
    out.u32(0);
}
