//! What flush and FUA promise, over all connections; devices that fail; the end of a server.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use diorite_block::record::Event;
use diorite_block::{
    BioErrorKind, BioOp, Device, Fault, FaultDevice, FaultPlan, MemDevice, RecordDevice, SimDevice,
    SimOptions, When,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use xtask::rng::{Rng, seed};

const SIZE: u64 = 1 << 20;

fn disk(fua: bool, seed: u64) -> Arc<SimDevice> {
    let fua = if fua { "yes" } else { "no" };
    let text = format!("1M,jitter=100us,cache=volatile,fua={fua},crash=yes,seed={seed}");
    Arc::new(SimDevice::new(SimOptions::parse(&text).unwrap()).unwrap())
}

/// Rule D1: what was acknowledged on one connection, and then flushed on another, and what was written with FUA, is there after
/// the power is cut at once; other writes go on meanwhile.
#[test]
fn what_is_promised_survives_a_power_cut() {
    let seed = seed("power cuts");
    for fua in [false, true] {
        for round in 0..12 {
            let disk = disk(fua, seed ^ round);
            let bed = serve(vec![disk.clone()]);
            let mut random = Rng::new(seed ^ round);
            let (mut one, mut two) = (bed.client("a", How::Simple), bed.client("a", How::Extended));
            let mut promised: Vec<(u64, u8)> = Vec::new();
            let mut acknowledged: Vec<(u64, u8)> = Vec::new();
            for n in 0..40u64 {
                let (at, value) = (n * 8192, 1 + random.below(255) as u8);
                // Others are under way while promises are made.
                two.send(WRITE, 0, at + 4096, 4096, &[7; 4096]);
                let flags = if random.below(3) == 0 { FUA } else { 0 };
                assert_eq!(one.write(flags, at, &[value; 4096]), 0);
                match flags {
                    FUA => promised.push((at, value)),
                    _ => acknowledged.push((at, value)),
                }
                assert_eq!(two.recv().errno, 0);
                if random.below(4) == 0 {
                    assert_eq!(two.ask(FLUSH, 0, 0, 0).errno, 0);
                    promised.append(&mut acknowledged);
                }
            }
            let left = disk.crash(random.next()).unwrap();
            for (at, value) in promised {
                let mut bytes = [0; 4096];
                left.read_at(at, &mut bytes);
                assert_eq!(bytes, [value; 4096], "fua {fua}, byte {at}");
            }
        }
    }
}

/// Whether the last that the device did was a flush that succeeded.
fn ends_flushed(record: &RecordDevice) -> bool {
    match &record.log()[..] {
        [.., Event::Flush { id: begun }, Event::Ended { id }] => begun == id,
        _ => false,
    }
}

/// Rule D1 for requests that change a range: with FUA they are followed by a flush before their reply.
#[test]
fn zeros_and_trims_with_fua_are_flushed() {
    let record = Arc::new(RecordDevice::with_volatile_cache(Arc::new(MemDevice::new(
        SIZE,
    ))));
    let bed = serve(vec![record.clone()]);
    let mut client = bed.client("a", How::Simple);
    for kind in [ZERO, TRIM] {
        let before = record.log().len();
        assert_eq!(client.ask(kind, 0, 0, 4096).errno, 0);
        let flushes = |from: usize| {
            let log = record.log();
            let since = log[from..].iter();
            since.filter(|e| matches!(e, Event::Flush { .. })).count()
        };
        assert_eq!(flushes(before), 0);
        let before = record.log().len();
        assert_eq!(client.ask(kind, FUA, 0, 4096).errno, 0);
        assert_eq!(flushes(before), 1);
        assert!(ends_flushed(&record), "the flush comes last");
    }
}

/// A flush that fails may have lost data of every connection: each is told once.
#[test]
fn a_failed_flush_is_told_to_every_connection_once() {
    let disk = disk(false, 1);
    let fault = Fault::new(BioErrorKind::Io, When::nth(1)).on(BioOp::Flush);
    let device = Arc::new(FaultDevice::new(disk, FaultPlan::new(vec![fault], 1)));
    let bed = serve(vec![device]);
    let mut clients: Vec<Client> = HOWS.iter().map(|how| bed.client("a", *how)).collect();
    for client in &mut clients {
        assert_eq!(client.write(0, 0, &[1; 512]), 0);
    }
    let mut late = Vec::new();
    for client in &mut clients {
        assert_eq!(client.ask(FLUSH, 0, 0, 0).errno, 5);
        assert_eq!(client.ask(FLUSH, 0, 0, 0).errno, 0);
        late.push(bed.client("a", How::Simple));
    }
    for client in &mut late {
        assert_eq!(
            client.ask(FLUSH, 0, 0, 0).errno,
            0,
            "it had written nothing then"
        );
    }
}

/// A device that fails fails its own requests, with the error that belongs to it; the other export is served.
#[test]
fn a_device_that_fails() {
    for (kind, errno) in [
        (BioErrorKind::Io, 5),
        (BioErrorKind::NoSpace, 28),
        (BioErrorKind::ReadOnly, 1),
        (BioErrorKind::Gone, 108),
    ] {
        let fault = Fault::new(kind, When::Every(1)).within(4096..8192);
        let below = Arc::new(MemDevice::new(SIZE));
        let bad = Arc::new(FaultDevice::new(below, FaultPlan::new(vec![fault], 1)));
        let bed = serve(vec![bad, Arc::new(MemDevice::new(SIZE))]);
        for how in HOWS {
            let (mut bad, mut good) = (bed.client("a", how), bed.client("b", how));
            for _ in 0..20 {
                assert_eq!(bad.ask(READ, 0, 0, 8192).errno, errno);
                assert_eq!(bad.write(0, 4096, &[1; 4096]), errno);
                assert_eq!(bad.ask(ZERO, 0, 4096, 512).errno, errno);
                assert_eq!(bad.ask(READ, 0, 0, 4096).errno, 0);
                assert_eq!(good.write(0, 4096, &[1; 4096]), 0);
                assert_eq!(good.ask(READ, 0, 0, 8192).errno, 0);
            }
        }
        bed.all_is_back();
        let [(_, bad), (_, good)] = &bed.server.stats().exports[..] else {
            panic!("two exports");
        };
        assert_eq!((bad.failed, good.failed), (180, 0));
    }
}

/// Of a request that is divided, one part fails: the whole request does, and the memory of all parts is back.
#[test]
fn a_part_that_fails() {
    let fault = Fault::new(BioErrorKind::Io, When::Every(3));
    let below = Arc::new(FaultDevice::new(
        Arc::new(MemDevice::new(SIZE)),
        FaultPlan::new(vec![fault], 1),
    ));
    let bed = serve(vec![Arc::new(Limited {
        below,
        logical: 512,
    })]);
    for how in HOWS {
        let mut client = bed.client("a", how);
        for _ in 0..30 {
            assert_eq!(client.ask(READ, 0, 0, 65536).errno, 5);
            assert_eq!(client.write(0, 0, &[1; 65536]), 5);
            assert_eq!(client.ask(ZERO, 0, 0, 65536).errno, 5);
        }
    }
    bed.all_is_back();
}

/// The end of a server: requests under way end, later ones are refused, the device is flushed, nobody can connect.
#[test]
fn drained() {
    let record = Arc::new(RecordDevice::with_volatile_cache(Arc::new(MemDevice::new(
        SIZE,
    ))));
    let device = Arc::new(FaultDevice::new(record.clone(), FaultPlan::default()));
    let bed = serve(vec![device.clone()]);
    let mut clients: Vec<Client> = HOWS.iter().map(|how| bed.client("a", *how)).collect();
    let idle = bed.client("a", How::Simple);
    device.hold(true);
    for client in &mut clients {
        client.send(WRITE, 0, 0, 4096, &[5; 4096]);
        client.send(READ, 0, 65536, 4096, &[]);
    }
    // All of them have been started when their counters are there.
    while bed.server.stats().exports[0].1.reads < 3 {
        std::thread::yield_now();
    }
    let drained = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let drain = scope.spawn(|| {
            let failed = bed.server.drain();
            drained.store(true, Ordering::SeqCst);
            failed
        });
        while Client::try_connect(&bed.path, "a", How::Simple).is_ok() {
            std::thread::yield_now();
        }
        for client in &mut clients {
            let late = client.send(READ, 0, 0, 512, &[]);
            let reply = client.recv();
            assert_eq!((reply.cookie, reply.errno), (late, 108));
        }
        assert!(!drained.load(Ordering::SeqCst), "requests are under way");
        device.hold(false);
        for client in &mut clients {
            assert_eq!((client.recv().errno, client.recv().errno), (0, 0));
            assert!(client.is_closed());
        }
        assert!(drain.join().unwrap().is_empty());
    });
    drop(idle);
    assert!(ends_flushed(&record));
    bed.all_is_back();
    drop(bed.server);
    assert!(!bed.path.exists(), "the socket's name is removed");
}

/// A client that takes no replies does not keep a server from its end, nor does one that goes away after its last word.
#[test]
fn drained_though_a_client_stalls() {
    let device = Arc::new(FaultDevice::new(
        Arc::new(MemDevice::new(SIZE)),
        FaultPlan::default(),
    ));
    let bed = serve(vec![device.clone()]);
    let mut stalls = bed.client("a", How::Simple);
    for _ in 0..64 {
        stalls.send(READ, 0, 0, SIZE, &[]);
    }
    while bed.server.stats().exports[0].1.reads == 0 {
        std::thread::yield_now();
    }
    device.hold(true);
    let mut leaves = bed.client("a", How::Simple);
    leaves.send(READ, 0, 0, SIZE, &[]);
    leaves.send(DISC, 0, 0, 0, &[]);
    drop(leaves);
    device.hold(false);
    assert!(bed.server.drain().is_empty());
    bed.all_is_back();
    drop(stalls);
}

/// Nor does one that has sent half a write: its request was waited for once.
#[test]
fn drained_though_half_a_write_has_come() {
    let bed = serve(vec![Arc::new(MemDevice::new(SIZE))]);
    let mut half = bed.client("a", How::Simple);
    assert_eq!(half.write(0, 0, &[1; 512]), 0);
    half.send(WRITE, 0, 0, 65_536, &[2; 100]);
    assert!(bed.server.drain().is_empty());
    bed.all_is_back();
    drop(half);
}

/// A flush that fails at the end is reported.
#[test]
fn a_flush_that_fails_at_the_end() {
    let fault = Fault::new(BioErrorKind::Io, When::nth(1)).on(BioOp::Flush);
    let device: Arc<dyn Device> = Arc::new(FaultDevice::new(
        disk(false, 1),
        FaultPlan::new(vec![fault], 1),
    ));
    let bed = serve(vec![device]);
    assert_eq!(bed.client("a", How::Simple).write(0, 0, &[1; 512]), 0);
    let failed = bed.server.drain();
    assert_eq!((failed.len(), failed[0].0.as_str()), (1, "a"));
}
