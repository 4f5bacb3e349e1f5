//! Several connections against an array of bytes: reads, writes, trims and zeros, many under way, in every form of replies, on devices of
//! several kinds.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use diorite_block::{
    Device, DeviceError, FileDevice, FileOptions, IoEngine, MemDevice, QueueOptions, SimDevice,
    SimOptions,
};
use diorite_nbd::Options;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use xtask::rng::{Rng, seed};

const SIZE: u64 = 2 << 20;

/// A request under way, and what its reply has to be.
struct Expected {
    kind: u16,
    at: usize,
    len: usize,
    payload: Vec<u8>,
}

/// One batch of requests whose ranges do not overlap, over all clients.
fn batch(random: &mut Rng, clients: &mut [Client], model: &mut [u8], known: &mut [bool]) {
    let mut open: Vec<HashMap<u64, Expected>> = clients.iter().map(|_| HashMap::new()).collect();
    let mut at = random.below(8) as usize * 512;
    while at < model.len() {
        let len = match random.below(6) {
            0 => 512 * (1 + random.below(400) as usize),
            1 => 4096,
            _ => 512 * (1 + random.below(20) as usize),
        };
        let len = len.min(model.len() - at);
        let kind = [READ, WRITE, WRITE, READ, ZERO, TRIM][random.below(6) as usize];
        let who = random.below(clients.len() as u64) as usize;
        let flags = match (kind, random.below(4)) {
            (WRITE, 0) => FUA,
            (ZERO, 0) => NO_HOLE | FUA,
            (ZERO, 1) => NO_HOLE,
            (READ, 0) if clients[who].how != How::Simple => DF,
            _ => 0,
        };
        let payload = match kind {
            WRITE if random.below(5) == 0 => vec![0; len],
            WRITE => random.bytes(len),
            _ => Vec::new(),
        };
        let cookie = clients[who].send(kind, flags, at as u64, len as u64, &payload);
        open[who].insert(
            cookie,
            Expected {
                kind,
                at,
                len,
                payload,
            },
        );
        at += len + 512 * random.below(120) as usize;
    }
    if random.below(4) == 0 {
        let who = random.below(clients.len() as u64) as usize;
        let cookie = clients[who].send(FLUSH, 0, 0, 0, &[]);
        let none = Expected {
            kind: FLUSH,
            at: 0,
            len: 0,
            payload: Vec::new(),
        };
        open[who].insert(cookie, none);
    }
    for (client, mut open) in clients.iter_mut().zip(open) {
        while !open.is_empty() {
            let reply = client.recv();
            let was = open.remove(&reply.cookie).unwrap();
            assert_eq!(reply.errno, 0, "kind {}", was.kind);
            settle(was, &reply, model, known);
        }
    }
}

fn settle(was: Expected, reply: &Reply, model: &mut [u8], known: &mut [bool]) {
    let range = was.at..was.at + was.len;
    match was.kind {
        READ => {
            for at in range.clone() {
                let same = reply.data[at - was.at] == model[at];
                assert!(same || !known[at], "byte {at} of {range:?}");
            }
        }
        WRITE => {
            model[range.clone()].copy_from_slice(&was.payload);
            known[range].fill(true);
        }
        ZERO => {
            model[range.clone()].fill(0);
            known[range].fill(true);
        }
        // What a trimmed range reads as is not defined.
        TRIM => known[range].fill(false),
        _ => {}
    }
}

fn compare(device: Arc<dyn Device>) {
    compare_with(device, Options::default());
}

fn compare_with(device: Arc<dyn Device>, options: Options) {
    let seed = seed("a model");
    let mut random = Rng::new(seed);
    let bed = serve_with(vec![device], options);
    let mut clients: Vec<Client> = HOWS
        .iter()
        .chain(&[How::Structured])
        .map(|how| bed.client("a", *how))
        .collect();
    assert_eq!(clients[0].size, SIZE);
    let (mut model, mut known) = (vec![0; SIZE as usize], vec![true; SIZE as usize]);
    for _ in 0..40 {
        batch(&mut random, &mut clients, &mut model, &mut known);
    }
    drop(clients);
    bed.all_is_back();
    let stats = bed.server.stats().exports[0].1;
    assert!(stats.reads > 0 && stats.writes > 0 && stats.zeroes > 0 && stats.trims > 0);
    assert_eq!(
        (stats.failed, stats.refused, bed.server.stats().broken),
        (0, 0, 0)
    );
}

#[test]
fn memory() {
    compare(Arc::new(MemDevice::new(SIZE)));
}

#[test]
fn a_disk_with_latency() {
    let options = SimOptions::parse("2M,latency=20us,jitter=200us,cache=volatile,fua=no").unwrap();
    compare(Arc::new(SimDevice::new(options).unwrap()));
}

#[test]
fn a_disk_with_fua() {
    let options = SimOptions::parse("2M,jitter=50us,cache=volatile,fua=yes").unwrap();
    compare(Arc::new(SimDevice::new(options).unwrap()));
}

/// Without zeros of its own, and with transfers that are shorter than requests.
#[test]
fn a_device_that_can_do_little() {
    let below = Arc::new(MemDevice::new(SIZE));
    compare(Arc::new(Limited {
        below,
        logical: 512,
    }));
}

/// Rule M7: what does not fit into the server's memory moves in pieces.
#[test]
fn with_little_memory() {
    let little = || Options::default().memory(1 << 20);
    let sim = SimOptions::parse("2M,latency=20us,jitter=200us,cache=volatile,fua=yes").unwrap();
    compare_with(Arc::new(SimDevice::new(sim).unwrap()), little());
    compare_with(Arc::new(MemDevice::new(SIZE)), little());
    let limited = Limited {
        below: Arc::new(MemDevice::new(SIZE)),
        logical: 512,
    };
    compare_with(Arc::new(limited), little());
}

/// Held while a device has queues whose rings are locked memory, of which a user has little: tests beside each other take it from
/// connections that are about to begin.
static RINGS: Mutex<()> = Mutex::new(());

fn file(dir: &str, engine: Option<IoEngine>) {
    let _alone = RINGS.lock().unwrap_or_else(PoisonError::into_inner);
    let file = tempfile::NamedTempFile::new_in(dir).unwrap();
    file.as_file().set_len(SIZE).unwrap();
    let options = FileOptions::new(file.path().to_owned())
        .engine(engine)
        .buffered(true);
    let device = match FileDevice::open(&options) {
        Ok(device) => device,
        Err(why) => return xtask::skip::skipped(why),
    };
    // Rings count as locked memory. Where no other engine may be used instead, the connections need theirs at once.
    let queue = |_| device.open_queue(QueueOptions::new(256)?);
    let queues: Result<Vec<_>, DeviceError> = (0..8).map(queue).collect();
    match (engine, queues) {
        (Some(_), Err(why)) => xtask::skip::skipped(why),
        (_, queues) => {
            drop(queues);
            compare(Arc::new(device));
        }
    }
}

/// With the best engine that there is for each connection: where only a few rings may be had the others do without.
#[test]
fn a_file_on_a_disk() {
    file(env!("CARGO_TARGET_TMPDIR"), None);
}

/// Its bytes are in memory: bios run in the connection's thread.
#[test]
fn a_file_in_memory() {
    if std::path::Path::new("/dev/shm").is_dir() {
        file("/dev/shm", None);
    } else {
        xtask::skip::skipped("there is no /dev/shm");
    }
}

#[test]
fn a_file_through_io_uring() {
    file(env!("CARGO_TARGET_TMPDIR"), Some(IoEngine::Uring));
}

#[test]
fn a_file_through_threads() {
    file(env!("CARGO_TARGET_TMPDIR"), Some(IoEngine::Threads));
}

/// Data that are zeros come as zeros, in few chunks; a read that may not be divided has one.
#[test]
fn sparse_reads() {
    let bed = serve(vec![Arc::new(MemDevice::new(SIZE))]);
    for how in [How::Structured, How::Extended] {
        let mut client = bed.client("a", how);
        assert_eq!(client.write(0, 65536, &[7; 4096]), 0);
        let reply = client.ask(READ, 0, 0, 131_072);
        assert_eq!((reply.chunks, reply.errno), ((1, 2), 0));
        assert!(reply.data[65536..69632].iter().all(|b| *b == 7));
        assert_eq!(client.ask(READ, DF, 0, 131_072).chunks, (1, 0));
        assert_eq!(client.ask(READ, DF, 0, 4096).chunks, (0, 1));
        // A hole is the last chunk, and data the first, and the other way round.
        assert_eq!(client.ask(READ, 0, 65536, 8192).chunks, (1, 1));
        assert_eq!(client.ask(READ, 0, 61440, 8192).chunks, (1, 1));
        assert_eq!(client.ask(READ, 0, 0, 0).errno, 0);
    }
    let mut client = bed.client("a", How::Simple);
    assert_eq!(client.ask(READ, 0, 0, 131_072).data.len(), 131_072);
    assert_eq!(client.ask(READ, 0, 0, 0).errno, 0);
    drop(client);
    bed.all_is_back();
}

/// The runs of the device, joined, with the flags of `base:allocation`; one if one is asked for; those of a request of 64 bits.
#[test]
fn how_blocks_are_stored() {
    let below = Arc::new(MemDevice::new(1 << 40));
    let bed = serve(vec![Arc::new(Limited {
        below,
        logical: 512,
    })]);
    for how in [How::Structured, How::Extended] {
        let mut client = bed.client("a", how);
        let reply = client.ask(STATUS, 0, 4096, 196_608);
        let expected = [(61440, 3), (65536, 2), (65536, 0), (4096, 3)];
        assert_eq!(reply.extents, expected);
        assert_eq!(
            client.ask(STATUS, REQ_ONE, 0, 196_608).extents,
            [(32768, 3)]
        );
        assert_eq!(client.ask(STATUS, 0, 0, 0).errno, 22);
        assert_eq!(client.ask(STATUS, 0, 1 << 40, 512).errno, 22);
    }
    let mut client = bed.client("a", How::Extended);
    let reply = client.ask(STATUS, 0, 0, 1 << 40);
    assert_eq!(
        reply.extents.len(),
        512,
        "1024 runs of the device, two of each kind joined"
    );
    let mut client = bed.client("a", How::Simple);
    assert_eq!(
        client.ask(STATUS, 0, 0, 512).errno,
        22,
        "no context was chosen"
    );
}

/// Zeros where the device has none of its own: written, unless they would have to be fast.
#[test]
fn zeros_are_written_or_refused() {
    let below = Arc::new(MemDevice::new(64 << 20));
    let bed = serve(vec![
        Arc::new(Limited {
            below,
            logical: 512,
        }),
        Arc::new(MemDevice::new(64 << 20)),
    ]);
    for how in HOWS {
        let mut client = bed.client("a", how);
        assert_eq!(client.write(0, 1 << 20, &[1; 65536]), 0);
        assert_eq!(client.ask(ZERO, FAST, 0, 32 << 20).errno, 95);
        assert_eq!(client.ask(READ, 0, 1 << 20, 512).data, [1; 512]);
        assert_eq!(client.ask(ZERO, NO_HOLE, 0, 64 << 20).errno, 0);
        assert_eq!(client.ask(READ, 0, 1 << 20, 65536).data, [0; 65536]);
        assert_eq!(
            client.ask(TRIM, 0, 0, 4096).errno,
            0,
            "a hint without effect"
        );
        assert_eq!(client.ask(CACHE, 0, 0, 64 << 20).errno, 0);
        assert_eq!(client.flags & 1 << 5, 0, "trim is not announced");
        let mut client = bed.client("b", how);
        assert_eq!(client.ask(ZERO, FAST, 0, 64 << 20).errno, 0);
    }
    bed.all_is_back();
}

/// The host may write zeros where its block device has no better way: that is not fast, unless the space may go.
#[test]
fn fast_zeros_of_a_block_device() {
    let bed = serve(vec![disk()]);
    for how in HOWS {
        let mut client = bed.client("a", how);
        assert_eq!(client.write(0, 0, &[1; 4096]), 0);
        assert_eq!(client.ask(ZERO, FAST | NO_HOLE, 0, 4096).errno, 95);
        assert_eq!(client.ask(READ, 0, 0, 4096).data, [1; 4096]);
        assert_eq!(client.ask(ZERO, FAST, 0, 4096).errno, 0);
        assert_eq!(client.ask(READ, 0, 0, 4096).data, [0; 4096]);
        assert_eq!(client.ask(ZERO, NO_HOLE, 0, 4096).errno, 0);
    }
}

fn disk() -> Arc<Disk> {
    Arc::new(Disk {
        below: Arc::new(MemDevice::new(64 << 20)),
        size: (1 << 20).into(),
    })
}

/// Whoever begins sees the size that the device has then; those who began before may use it too.
#[test]
fn a_device_that_grows() {
    let disk = disk();
    let bed = serve(vec![disk.clone()]);
    let mut first = bed.client("a", HOWS[0]);
    let size = disk.geometry().size;
    assert!(size > 1 << 20, "it was looked at");
    assert_eq!(first.ask(READ, 0, size, 512).errno, 22);
    let mut second = bed.client("a", HOWS[1]);
    assert_eq!(second.ask(READ, 0, size, 512).errno, 0);
    assert_eq!(first.ask(READ, 0, size, 512).errno, 0);
}

/// Requests that are no multiples of the device's block are refused, and the stream stays in step.
#[test]
fn the_block_of_the_device_holds() {
    let below = Arc::new(MemDevice::new(1 << 20));
    let bed = serve(vec![Arc::new(Limited {
        below,
        logical: 4096,
    })]);
    for how in HOWS {
        let mut client = bed.client("a", how);
        for (at, len) in [(0, 512), (512, 4096), (4095, 1)] {
            assert_eq!(client.ask(READ, 0, at, len).errno, 22);
            assert_eq!(client.write(0, at, &vec![1; len as usize]), 22);
            assert_eq!(client.ask(ZERO, 0, at, len).errno, 22);
        }
        assert_eq!(client.write(0, 4096, &[1; 4096]), 0);
        assert_eq!(client.ask(READ, 0, 4096, 4096).errno, 0);
    }
}

/// A read-only export refuses changes and says so beforehand.
#[test]
fn read_only() {
    let device: Arc<dyn Device> = Arc::new(MemDevice::new(1 << 20));
    let export = diorite_nbd::Export::new("a", device).read_only(true);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let at = [diorite_nbd::Listen::Unix(path.clone())];
    let _server = diorite_nbd::Server::start(vec![export], &at, Default::default()).unwrap();
    for how in HOWS {
        let mut client = Client::connect(&path, "a", how);
        assert_eq!(client.flags & 2, 2);
        assert_eq!(client.flags & (1 << 5 | 1 << 6), 0);
        assert_eq!(client.write(0, 0, &[1; 512]), 1);
        assert_eq!(client.ask(ZERO, 0, 0, 512).errno, 1);
        assert_eq!(client.ask(TRIM, 0, 0, 512).errno, 1);
        assert_eq!(client.ask(FLUSH, 0, 0, 0).errno, 0);
        assert_eq!(client.ask(READ, 0, 0, 512).data, [0; 512]);
    }
}
