//! Clients that send nonsense, half messages, floods, too much, or go away: their connection ends, or the request is refused; others are
//! served, and all memory is back (rule D8).
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use diorite_block::fault::{Fault, When};
use diorite_block::{BioErrorKind, BioOp, FaultDevice, FaultPlan, MemDevice};
use diorite_nbd::Options;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;
use xtask::rng::{Rng, seed};

const SIZE: u64 = 1 << 20;

fn bed() -> Bed {
    serve(vec![Arc::new(MemDevice::new(SIZE))])
}

/// A good client is served from beginning to end.
#[track_caller]
fn others_are_served(bed: &Bed) {
    for how in HOWS {
        let mut client = bed.client("a", how);
        assert_eq!(client.write(0, 4096, &[9; 4096]), 0);
        assert_eq!(client.ask(READ, 0, 4096, 4096).data, [9; 4096]);
        client.send(DISC, 0, 0, 0, &[]);
        assert!(client.is_closed());
    }
    bed.all_is_back();
}

/// A connection that has been greeted and is in the handshake.
fn greeted(bed: &Bed) -> UnixStream {
    let mut stream = UnixStream::connect(&bed.path).unwrap();
    greet(&mut stream).unwrap();
    stream
}

#[test]
fn random_bytes_in_the_handshake() {
    let seed = seed("hostile clients");
    let (mut random, bed) = (Rng::new(seed), bed());
    for _ in 0..300 {
        let mut stream = UnixStream::connect(&bed.path).unwrap();
        if random.below(2) == 0 {
            greet(&mut stream).unwrap();
        }
        for _ in 0..random.below(4) {
            let len = random.below(64) as usize;
            let bytes = random.bytes(len);
            // The server may have closed it by now.
            let sent = match random.below(2) {
                0 => stream.write_all(&bytes),
                _ => option(&mut stream, random.below(13) as u32, &bytes),
            };
            if sent.is_err() {
                break;
            }
        }
        let _ = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    others_are_served(&bed);
}

/// Valid headers with any numbers, and headers with a bit that is wrong.
#[test]
fn random_bytes_in_the_transmission() {
    let seed = seed("hostile clients");
    let (mut random, bed) = (Rng::new(seed), bed());
    for round in 0..150 {
        let mut stream = UnixStream::connect(&bed.path).unwrap();
        greet(&mut stream).unwrap();
        let reader = stream.try_clone().unwrap();
        let how = HOWS[round % 3];
        let client = Client::choose(Box::new(stream.try_clone().unwrap()), "a", how).unwrap();
        // Takes the replies, so that the server is never stopped by this client.
        let taker = std::thread::spawn(move || {
            let mut reader = reader;
            let _ = std::io::copy(&mut reader, &mut std::io::sink());
        });
        for _ in 0..random.below(40) {
            let kind = random.below(10) as u16;
            let kind = if kind == DISC { READ } else { kind };
            let at =
                [0, random.below(SIZE), u64::MAX - random.below(5000)][random.below(3) as usize];
            let len = [512, random.below(70_000), u64::MAX][random.below(3) as usize];
            let flags = random.below(64) as u16;
            let mut raw = Client::raw(how, kind, flags, random.next(), at, len);
            if random.below(30) == 0 {
                let bit = random.below(raw.len() as u64 * 8) as usize;
                raw[bit / 8] ^= 1 << (bit % 8);
            }
            if len < 100_000 && random.below(10) > 0 {
                raw.extend(random.bytes(len as usize * usize::from(kind == WRITE)));
            }
            if stream.write_all(&raw).is_err() {
                break;
            }
        }
        let _ = stream.shutdown(Shutdown::Both);
        taker.join().unwrap();
        drop(client);
    }
    others_are_served(&bed);
}

#[test]
fn half_messages() {
    let bed = bed();
    let go = [
        b"IHAVEOPT".to_vec(),
        vec![0, 0, 0, 7, 0, 0, 0, 6],
        vec![0; 6],
    ]
    .concat();
    for end in 0..go.len() {
        let mut stream = greeted(&bed);
        stream.write_all(&go[..end]).unwrap();
    }
    for how in HOWS {
        let mut raw = Client::raw(how, WRITE, 0, 1, 0, 65536);
        raw.extend([1; 65536]);
        for end in [
            1,
            20,
            27,
            28,
            31,
            32,
            100,
            4096,
            40_000,
            65_000,
            raw.len() - 1,
        ] {
            let mut client = bed.client("a", how);
            client.stream.write_all(&raw[..end]).unwrap();
        }
        // Nothing of a half write reaches the device.
        assert_eq!(bed.client("a", how).ask(READ, 0, 0, 4096).data, [0; 4096]);
    }
    others_are_served(&bed);
}

/// Bytes that come one by one are the same messages.
#[test]
fn slow_messages() {
    let bed = bed();
    for how in HOWS {
        let mut client = bed.client("a", how);
        let mut raw = Client::raw(how, WRITE, 0, 1, 0, 512);
        raw.extend([3; 512]);
        for byte in raw {
            client.stream.write_all(&[byte]).unwrap();
        }
        client.stream.read_exact(&mut [0; 16]).unwrap();
        let reply = bed.client("a", how).ask(READ, 0, 0, 512);
        assert_eq!(reply.data, [3; 512]);
    }
    others_are_served(&bed);
}

#[test]
fn lengths_that_are_too_large() {
    let bed = serve(vec![Arc::new(MemDevice::new(1 << 40))]);
    for how in HOWS {
        let mut client = bed.client("a", how);
        assert_eq!(client.ask(READ, 0, 0, u64::from(u32::MAX) & !511).errno, 22);
        assert_eq!(client.ask(READ, 0, 0, (32 << 20) + 512).errno, 22);
        // Its payload is skipped, and the stream stays in step.
        let large = vec![1; (32 << 20) + 512];
        assert_eq!(client.write(0, 0, &large), 22);
        assert_eq!(client.ask(READ, 0, 0, 512).data, [0; 512]);
        assert_eq!(client.write(0, 512, &large[..32 << 20]), 0);
        assert_eq!(client.ask(READ, 0, 512, 32 << 20).data, &large[..32 << 20]);
        if how != How::Simple {
            assert_eq!(client.ask(READ, DF, 0, (32 << 20) + 512).errno, 75);
        }
    }
    // More than any reply could skip: the connection ends.
    let mut client = bed.client("a", How::Extended);
    let raw = Client::raw(How::Extended, WRITE, 0, 1, 0, 1 << 40);
    client.stream.write_all(&raw).unwrap();
    assert!(client.is_closed());
    bed.all_is_back();
}

/// A client that sends options without end is heard as long as the handshake may take, and one that sends nothing no longer.
#[test]
fn handshakes_that_do_not_end() {
    let options = Options::default().handshake(Duration::from_millis(300));
    let bed = serve_with(vec![Arc::new(MemDevice::new(SIZE))], options);
    let mut silent = greeted(&bed);
    assert_eq!(silent.read(&mut [0; 1]).unwrap_or(0), 0);
    let mut talks = greeted(&bed);
    let mut hears = talks.try_clone().unwrap();
    let hearer = std::thread::spawn(move || std::io::copy(&mut hears, &mut std::io::sink()));
    while option(&mut talks, 77, &[1; 4096]).is_ok() {}
    let _ = hearer.join().unwrap();
    let mut large = greeted(&bed);
    let head = [b"IHAVEOPT".to_vec(), vec![0, 0, 0, 7, 255, 255, 255, 255]].concat();
    large.write_all(&head).unwrap();
    while large.write_all(&[0; 65536]).is_ok() {}
    others_are_served(&bed);
}

/// A client that requests without end and takes no reply is not read from any more; the memory for it is bounded.
#[test]
fn a_flood_without_an_ear() {
    let bed = bed();
    let mut floods = Vec::new();
    for (how, kind) in [
        (How::Simple, READ),
        (How::Extended, READ),
        (How::Structured, WRITE),
    ] {
        let mut stream = UnixStream::connect(&bed.path).unwrap();
        greet(&mut stream).unwrap();
        let writer = stream.try_clone().unwrap();
        let client = Client::choose(Box::new(stream), "a", how).unwrap();
        writer
            .set_write_timeout(Some(Duration::from_millis(200)))
            .unwrap();
        let mut raw = Client::raw(how, kind, 0, 1, 0, 65536);
        raw.extend(vec![5; if kind == WRITE { 65536 } else { 0 }]);
        let mut sent = 0u64;
        while (&writer).write_all(&raw).is_ok() && sent < 1_000_000 {
            sent += 1;
        }
        assert!(sent < 1_000_000, "the server went on reading");
        floods.push((client, writer));
    }
    let mut client = bed.client("a", How::Simple);
    assert_eq!(client.write(0, 0, &[9; 4096]), 0);
    drop(client);
    assert!(bed.server.stats().in_use <= 3 * (96 << 20));
    floods.clear();
    others_are_served(&bed);
}

/// Clients go away while hundreds of their requests are at the device, which ends them later.
#[test]
fn gone_with_hundreds_under_way() {
    let device = Arc::new(FaultDevice::new(
        Arc::new(MemDevice::new(SIZE)),
        FaultPlan::default(),
    ));
    let bed = serve(vec![device.clone(), Arc::new(MemDevice::new(SIZE))]);
    device.hold(true);
    for how in HOWS {
        let mut client = bed.client("a", how);
        for n in 0..220 {
            match n % 3 {
                0 => client.send(READ, 0, 0, 65536, &[]),
                1 => client.send(WRITE, FUA, 0, 4096, &[n as u8; 4096]),
                _ => client.send(ZERO, 0, 0, 4096, &[]),
            };
        }
        client.send(WRITE, 0, 0, 65536, &[1; 100]);
    }
    let mut other = bed.client("b", How::Simple);
    assert_eq!(other.write(0, 0, &[1; 512]), 0);
    drop(other);
    device.hold(false);
    others_are_served(&bed);
}

/// More requests than slots, all at once, are all answered.
#[test]
fn more_than_there_are_slots() {
    let bed = bed();
    for how in HOWS {
        let mut client = bed.client("a", how);
        // In one piece: the socket holds few small ones, and this client reads nothing before it has sent all.
        client.send_many(1500, READ, 0, 512);
        client.send(FLUSH, 0, 0, 0, &[]);
        let errors = (0..1501).filter(|_| client.recv().errno != 0).count();
        assert_eq!(errors, 0);
    }
    // More bytes than may be under way: 48 times 4 MiB.
    let bed = serve(vec![Arc::new(MemDevice::new(64 << 20))]);
    let mut client = bed.client("a", How::Simple);
    for n in 0..48u64 {
        client.send(READ, 0, (n % 15) << 22, 4 << 20, &[]);
    }
    for _ in 0..48 {
        assert_eq!(client.recv().data.len(), 4 << 20);
    }
    drop(client);
    bed.all_is_back();
}

#[test]
fn clients_beyond_the_limit_are_turned_away() {
    let options = Options::default().connections(2);
    let bed = serve_with(vec![Arc::new(MemDevice::new(SIZE))], options);
    let two = [bed.client("a", How::Simple), bed.client("a", How::Simple)];
    assert!(Client::try_connect(&bed.path, "a", How::Simple).is_err());
    while bed.server.stats().turned_away == 0 {
        std::thread::yield_now();
    }
    drop(two);
    others_are_served_one_by_one(&bed);
}

fn others_are_served_one_by_one(bed: &Bed) {
    bed.all_is_back();
    let mut client = bed.client("a", How::Structured);
    assert_eq!(client.ask(READ, 0, 0, 512).errno, 0);
}

/// A piece of a request that moves in pieces fails: the reply says so, unless it has begun in a form that cannot; other requests go on.
#[test]
fn a_piece_that_fails() {
    let bad = |op| {
        let fault = Fault::new(BioErrorKind::Io, When::Every(1)).on(op);
        fault.within(400 << 10..401 << 10)
    };
    let plan = FaultPlan::new(vec![bad(BioOp::Read), bad(BioOp::Write)], 1);
    let device = FaultDevice::new(Arc::new(MemDevice::new(8 << 20)), plan);
    let little = Options::default().memory(1 << 20);
    let bed = serve_with(vec![Arc::new(device)], little);
    for how in HOWS {
        let mut client = bed.client("a", how);
        assert_eq!(client.write(FUA, 0, &[1; 4 << 20]), 5);
        assert!(client.ask(READ, 0, 2 << 20, 1 << 20).data == [1; 1 << 20]);
        // In the first piece.
        assert_eq!(client.ask(READ, 0, 400 << 10, 1 << 20).errno, 5);
        if how == How::Simple {
            client.send(READ, 0, 0, 1 << 20, &[]);
        } else {
            assert_eq!(client.ask(READ, 0, 0, 1 << 20).errno, 5);
            assert!(client.ask(READ, 0, 2 << 20, 4096).data == [1; 4096]);
            client.send(READ, DF, 0, 1 << 20, &[]);
        }
        let mut rest = Vec::new();
        client.stream.read_to_end(&mut rest).unwrap();
        assert!(rest.len() < 1 << 20, "the connection ends half-way");
    }
    bed.all_is_back();
}

/// Rule D8: memory after many requests is what it was after few, of every kind and size.
#[test]
fn memory_does_not_grow() {
    let bed = bed();
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/statm").unwrap();
        status.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    let mut client = bed.client("a", How::Structured);
    let mut round = |count: u64| {
        for n in 0..count {
            let (at, len) = (
                n % 3 * 4096,
                [512, 4096, 40_960, 262_144, 524_288][n as usize % 5],
            );
            client.send(READ, 0, at, len, &[]);
            client.send(WRITE, FUA, at, len, &vec![n as u8; len as usize]);
            client.send(ZERO, 0, at, len, &[]);
            client.send(STATUS, 0, at, len, &[]);
            client.send(READ, 0, at, u64::from(u32::MAX), &[]);
            for _ in 0..5 {
                client.recv();
            }
        }
    };
    round(300);
    let before = resident();
    round(3000);
    let after = resident();
    assert!(after < before + (24 << 20), "{before} -> {after}");
    drop(client);
    bed.all_is_back();
}
