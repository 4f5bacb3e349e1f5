//! Rule M7: many hostile clients together stay inside the server's memory, and none delays a stranger for long. One test, because it
//! measures the process.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use diorite_block::{Device, DeviceError, DeviceQueue, DeviceReport, Geometry, MemDevice};
use diorite_block::{QueueOptions, Run, Stored};
use diorite_nbd::Options;
use std::io::Write;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const CLIENTS: usize = 100;
/// The server's memory: 100 MiB are each connection's own, the rest is for contents.
const MEMORY: u64 = 200 * MIB;
/// What is no memory for contents: stacks, the clients, what the C library keeps.
const ASIDE: u64 = 48 * MIB;

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn bed(device: Arc<dyn Device>) -> Bed {
    let options = Options::default().memory(MEMORY).connections(CLIENTS + 4);
    serve_with(vec![device], options)
}

/// A client whose socket can be written to without waiting for it.
fn hostile(bed: &Bed, how: How) -> (Client, UnixStream) {
    let mut stream = UnixStream::connect(&bed.path).unwrap();
    greet(&mut stream).unwrap();
    let writer = stream.try_clone().unwrap();
    let client = Client::choose(Box::new(stream), "a", how).unwrap();
    (client, writer)
}

/// Each of them does `act`; then a stranger gets everything right, and all memory is back.
#[track_caller]
fn bounded(what: &str, bed: &Bed, act: impl Fn(usize, How, &mut UnixStream)) {
    let before = resident();
    let mut clients = Vec::new();
    for n in 0..CLIENTS {
        let how = HOWS[n % 3];
        let (client, mut writer) = hostile(bed, how);
        act(n, how, &mut writer);
        clients.push((client, writer));
    }
    let mut most = 0;
    for _ in 0..40 {
        std::thread::sleep(Duration::from_millis(20));
        most = most.max(resident() - before);
    }
    assert!(most <= MEMORY + ASIDE, "{what}: {} MiB", most / MIB);
    for how in HOWS {
        let mut client = bed.client("a", how);
        let bytes: Vec<u8> = (0..3 * MIB + 4096).map(|n| (n / 4096) as u8 | 1).collect();
        assert_eq!(client.write(FUA, 4096, &bytes), 0, "{what}");
        assert!(
            client.ask(READ, 0, 4096, bytes.len() as u64).data == bytes,
            "{what}"
        );
        assert_eq!(client.ask(READ, 0, 0, 512).errno, 0);
    }
    eprintln!("{what}: {} MiB", most / MIB);
    drop(clients);
    bed.all_is_back();
}

/// A device with a run for each block, which takes its time to find one.
struct Ragged(MemDevice);

impl Device for Ragged {
    fn below(&self) -> Option<&dyn Device> {
        Some(&self.0)
    }

    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn name(&self) -> String {
        "ragged".to_owned()
    }

    fn report(&self) -> DeviceReport {
        self.0.report()
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        self.0.open_queue(options)
    }

    fn stored(&self, range: Range<u64>, most: usize) -> Result<Vec<Run>, DeviceError> {
        let blocks = (range.start / 512..range.end.div_ceil(512)).take(most);
        Ok(blocks
            .map(|block| {
                std::thread::sleep(Duration::from_micros(20));
                let (start, end) = (block * 512, (block + 1) * 512);
                Run {
                    len: end.min(range.end) - start.max(range.start),
                    stored: [Stored::Data, Stored::Hole][block as usize % 2],
                }
            })
            .collect())
    }
}

#[test]
fn hostile_clients_stay_inside_the_budget() {
    let plain = bed(Arc::new(MemDevice::new(64 * MIB)));
    bounded("announced, not sent", &plain, |_, how, socket| {
        let raw = Client::raw(how, WRITE, 0, 1, 0, 32 * MIB);
        socket.write_all(&[raw, vec![1; 1000]].concat()).unwrap();
    });
    bounded("announced, half sent", &plain, |n, how, socket| {
        let len = (1 + n as u64 % 32) * MIB;
        let raw = Client::raw(how, WRITE, 0, 1, 8 * MIB, len);
        socket
            .write_all(&[raw, vec![1; len as usize / 2]].concat())
            .unwrap();
    });
    // So that replies have contents.
    let mut client = plain.client("a", How::Simple);
    assert_eq!(client.write(0, 32 * MIB, &vec![7; 32 << 20]), 0);
    drop(client);
    bounded("replies that nobody takes", &plain, |_, how, socket| {
        for _ in 0..4 {
            let raw = Client::raw(how, READ, 0, 1, 32 * MIB, 32 * MIB);
            socket.write_all(&raw).unwrap();
        }
    });
    bounded("small ones of every size", &plain, |n, how, socket| {
        for m in 0..200 {
            let raw = Client::raw(how, READ, 0, 1, 32 * MIB, 4096 << ((n + m) % 10));
            socket.write_all(&raw).unwrap();
        }
    });
    drop(plain);
    let ragged = bed(Arc::new(Ragged(MemDevice::new(64 * MIB))));
    bounded("extents that nobody takes", &ragged, |n, _, socket| {
        for _ in 0..if n % 10 == 0 { 200 } else { 0 } {
            let raw = Client::raw(HOWS[n % 3], STATUS, 0, 1, 0, 32 * MIB);
            socket.write_all(&raw).unwrap();
        }
    });
    a_hog_delays_nobody(&ragged);
}

/// 200 questions of 20 ms each take four seconds, and a stranger's does not wait for them.
fn a_hog_delays_nobody(bed: &Bed) {
    let (hog, mut writer) = hostile(bed, How::Extended);
    for _ in 0..200 {
        let raw = Client::raw(How::Extended, STATUS, 0, 1, 0, 32 * MIB);
        writer.write_all(&raw).unwrap();
    }
    let mut reader = writer.try_clone().unwrap();
    let taker = std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    let mut client = bed.client("a", How::Structured);
    for _ in 0..5 {
        let began = Instant::now();
        assert_eq!(client.ask(STATUS, REQ_ONE, 0, 4096).extents.len(), 1);
        let took = began.elapsed();
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
    writer.shutdown(std::net::Shutdown::Both).unwrap();
    drop(hog);
    let _ = taker.join();
}
