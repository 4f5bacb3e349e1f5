//! Queues whose waits look for completions before they sleep.
//!
//! Input: random requests on memory, on simulated disks and on a file in a volume. Output: the bytes of a model. Invariant: requests end
//! once, with the results of other queues, however long the look is. Limits: how long a wait takes is for the benchmark.

use crate::common::fixture::writable;
use crate::common::{Rng, fsck, image, scratch};
use diorite::device::{
    BioList, BioOp, DeviceError, DeviceQueue, NotPolled, PolledWaits, PolledWay, QueueOptions,
    SimDevice, SimOptions,
};
use diorite::{Buf, Device, LoopDevice, OpenOptions, Request, RequestFlags, Volume};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const UNIT: usize = 4096;
const UNITS: u64 = 64;
const DEPTH: u32 = 16;

/// Random writes and reads of units, several in flight but one for each unit, beside a model. What was in memory has perhaps ended before
/// a wait, so whether there were waits is for the caller.
fn storm(volume: &Volume, longest: Duration, rng: &mut Rng) -> PolledWaits {
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
    if longest.is_zero() {
        assert_eq!(waits.spun, 0);
    }
    waits
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
            let waits = storm(&volume, longest, &mut rng);
            assert!(waits.spun + waits.slept > 0, "{waits:?}");
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

/// A device that calls itself polled, and notes which bios could be polled for: operation, position, whether it is marked.
struct Marks {
    below: SimDevice,
    seen: Arc<Mutex<Vec<(BioOp, u64, bool)>>>,
}

struct MarksQueue {
    below: Box<dyn DeviceQueue>,
    seen: Arc<Mutex<Vec<(BioOp, u64, bool)>>>,
}

impl Device for Marks {
    fn below(&self) -> Option<&dyn Device> {
        Some(&self.below)
    }

    fn geometry(&self) -> diorite::device::Geometry {
        self.below.geometry()
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        if let Some(stats) = &options.polled {
            stats.set_way(PolledWay::Device);
        }
        Ok(Box::new(MarksQueue {
            below: self.below.open_queue(options)?,
            seen: self.seen.clone(),
        }))
    }
}

impl DeviceQueue for MarksQueue {
    diorite_block::forward_queue! { below => below, reap, wait, in_flight }

    fn submit(&self, bios: &mut BioList) {
        let before: Vec<_> = bios
            .iter()
            .map(|bio| (bio.op, bio.len, bio.flags.polled))
            .collect();
        self.below.submit(bios);
        let taken = before.len() - bios.len();
        self.seen.lock().unwrap().extend(&before[..taken]);
    }
}

/// Rule C12: only requests that complete inline (C1) and are one request of the device may be polled for.
#[test]
fn only_what_owes_nothing_is_polled() {
    let dir = scratch();
    let path = image(dir.path(), "16M", &[], scratch().path());
    let sim = SimDevice::new(SimOptions::parse("16M,cache=volatile").unwrap()).unwrap();
    sim.write_at(0, &std::fs::read(&path).unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let device: Arc<dyn Device> = Arc::new(Marks {
        below: sim,
        seen: seen.clone(),
    });
    let volume = Volume::open_device(device, &OpenOptions::writable()).unwrap();
    let file = volume.create("/file", 0o644).unwrap();
    let full = || Buf::zeroed(16 * UNIT);
    file.write_buf(0, full()).1.unwrap();
    // A hole between two runs.
    file.write_buf(32 * UNIT as u64, full()).1.unwrap();
    volume.sync().unwrap();
    // Requests of one data bio each, told apart by their lengths in blocks.
    let queue = volume.polled_queue(DEPTH, Duration::ZERO).unwrap();
    let id = queue.attach(&file).unwrap();
    let durable = RequestFlags::default().dsync(true);
    let (at, len) = (
        |block: u64| block * UNIT as u64,
        |blocks: usize| blocks * UNIT,
    );
    let write = |block, blocks| Request::write(id, at(block), Buf::zeroed(len(blocks)), 0);
    let read = |block, blocks| Request::read(id, at(block), Buf::zeroed(len(blocks)), 0);
    let cases = [
        ("an overwrite", write(1, 2), 2, true),
        ("a read", read(3, 3), 3, true),
        (
            "a durable overwrite",
            write(2, 4).with_flags(durable),
            4,
            false,
        ),
        ("a write into a hole", write(17, 5), 5, false),
        ("an extending write", write(64, 6), 6, false),
        ("a read of two runs", read(14, 4), 2, false),
        ("a sync", Request::sync(id, false, 0), 0, false),
    ];
    for (what, request, blocks, expected) in cases {
        seen.lock().unwrap().clear();
        queue.push(request).unwrap();
        queue.reap_one(None).expect("it ends").result.unwrap();
        let seen = seen.lock().unwrap();
        let length = len(blocks) as u64;
        let own: Vec<_> = seen.iter().filter(|(_, len, _)| *len == length).collect();
        let marked = seen.iter().filter(|(_, _, marked)| *marked).count();
        assert!(!own.is_empty(), "{what}: {seen:?}");
        assert_eq!(marked, usize::from(expected), "{what}: {seen:?}");
        assert!(
            own.iter().any(|(_, _, marked)| *marked == expected),
            "{what}"
        );
    }
    assert_eq!(queue.polled_waits().way, PolledWay::Device);
    // A queue that is not polled marks nothing.
    let plain = volume.queue(DEPTH).unwrap();
    let id = plain.attach(&file).unwrap();
    seen.lock().unwrap().clear();
    let request = Request::write(id, at(1), Buf::zeroed(len(2)), 0);
    plain.push(request).unwrap();
    plain.reap_one(None).expect("it ends").result.unwrap();
    assert!(seen.lock().unwrap().iter().all(|(_, _, marked)| !*marked));
    let waits = plain.polled_waits();
    assert_eq!(waits.way, PolledWay::Looks(NotPolled::Device));
}
