//! Queues whose waits look for completions before they sleep.
//!
//! Input: random requests on memory, on simulated disks and on a file in a volume. Output: the bytes of a model. Invariant: requests end
//! once, with the results of other queues, however long the look is. Limits: how long a wait takes is for the benchmark.

use crate::common::fixture::writable;
use crate::common::{Rng, fsck, image, scratch};
use diorite::device::{SimDevice, SimOptions};
use diorite::{Buf, Device, LoopDevice, OpenOptions, Request, Volume};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

const UNIT: usize = 4096;
const UNITS: u64 = 64;
const DEPTH: u32 = 16;

/// Random writes and reads of units, several in flight but one for each unit, beside a model.
fn storm(volume: &Volume, longest: Duration, rng: &mut Rng) {
    let file = volume.create("/polled", 0o644).unwrap();
    let queue = volume.polled_queue(DEPTH, longest).unwrap();
    let id = queue.attach(&file).unwrap();
    let mut model: HashMap<u64, u8> = HashMap::new();
    let mut flying: HashMap<u64, (u64, Option<u8>)> = HashMap::new();
    let mut done = Vec::new();
    for token in 0..600 {
        let unit = rng.below(UNITS);
        if flying.len() < DEPTH as usize / 2 && flying.values().all(|(other, _)| *other != unit) {
            let byte = rng.below(255) as u8 + 1;
            let mut buf = Buf::zeroed(UNIT);
            let pos = unit * UNIT as u64;
            let is_write = rng.below(2) == 0;
            let request = if is_write {
                buf.as_mut_slice().fill(byte);
                Request::write(id, pos, buf, token)
            } else {
                Request::read(id, pos, buf, token)
            };
            flying.insert(token, (unit, is_write.then_some(byte)));
            if queue.push(request).is_err() {
                flying.remove(&token);
            }
        }
        if token % 7 == 0 {
            // A queue that is full takes none.
            drop(queue.push(Request::sync(id, false, 10_000 + token)));
        }
        let min = match rng.below(4) {
            0 => flying.len() / 2,
            _ => usize::from(flying.len() > DEPTH as usize / 2),
        };
        queue.reap(&mut done, min, None);
        for completion in done.drain(..) {
            let Some((unit, written)) = flying.remove(&completion.token) else {
                completion.result.expect("a sync ends well");
                continue;
            };
            let len = completion.result.expect("it ends well");
            match written {
                Some(byte) => {
                    assert_eq!(len, UNIT);
                    model.insert(unit, byte);
                }
                None => {
                    let expected = model.get(&unit).copied().unwrap_or(0);
                    let read = &completion.buf.as_slice()[..len];
                    assert!(read.iter().all(|b| *b == expected), "unit {unit}");
                }
            }
        }
    }
    // What is in flight ends with the queue's wait for it.
    queue.detach(id);
    let waits = queue.polled_waits();
    match longest {
        Duration::ZERO => assert_eq!(waits.spun, 0),
        _ => assert!(waits.spun + waits.slept > 0, "{waits:?}"),
    }
}

#[test]
fn requests_end_as_in_other_queues() {
    let dir = scratch();
    let (empty, mut rng) = (scratch(), Rng::from_env("polled"));
    let looks = [
        Duration::ZERO,
        Duration::from_micros(30),
        Duration::from_secs(1),
    ];
    for longest in looks {
        let path = image(dir.path(), "16M", &[], empty.path());
        let plain = Volume::open(path.to_str().unwrap(), &OpenOptions::writable()).unwrap();
        storm(&plain, longest, &mut rng);
        plain.close().unwrap();
        fsck(&path);
    }
    for params in [
        "16M,latency=20us,jitter=50us",
        "16M,latency=100us,interrupts=yes,cache=volatile,fua=no",
    ] {
        let sim = SimDevice::new(SimOptions::parse(params).unwrap()).unwrap();
        let path = image(dir.path(), "16M", &[], empty.path());
        sim.write_at(0, &std::fs::read(&path).unwrap());
        let device: Arc<dyn Device> = Arc::new(sim);
        let volume = Volume::open_device(device, &OpenOptions::writable()).unwrap();
        for longest in looks {
            storm(&volume, longest, &mut rng);
            volume.unlink("/polled").unwrap();
        }
        volume.close().unwrap();
    }
}

/// The queue of a volume in a file of another one: waits look through both.
#[test]
fn a_volume_in_a_volume_is_polled() {
    let dir = scratch();
    let inner = std::fs::read(image(dir.path(), "8M", &[], dir.path())).unwrap();
    let path = image(dir.path(), "32M", &[], &{
        let source = dir.path().join("source");
        std::fs::create_dir(&source).unwrap();
        std::fs::write(source.join("held"), &inner).unwrap();
        source
    });
    let outer = Volume::open(path.to_str().unwrap(), &OpenOptions::writable()).unwrap();
    let file = outer.open_path("/held", writable()).unwrap();
    let device: Arc<dyn Device> = Arc::new(LoopDevice::new(file, "held".into()));
    let volume = Volume::open_device(device, &OpenOptions::writable()).unwrap();
    storm(
        &volume,
        Duration::from_millis(1),
        &mut Rng::from_env("polled-nested"),
    );
    volume.close().unwrap();
    outer.close().unwrap();
    fsck(&path);
}
