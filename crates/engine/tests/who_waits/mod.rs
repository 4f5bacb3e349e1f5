//! Waiting: several threads on one queue, owners that only poll or only look, stacks of volumes (rule G14).
//!
//! Input: images on devices that report which thread is about to sleep, and hold requests back. Output: none. Invariants:
//! everything runs under a watchdog, since the defect looked for is a wait that never ends. Limits: no time is asserted. Here are the
//! tests of blocking calls, of several consumers and of stacks.
//!
//! | file | tests |
//! |---|---|
//! | `sleepers` | a thread about to sleep for what another thread reaps is woken |
//! | `polls` | owners that poll, or look without waiting |

mod polls;
mod sleepers;

use crate::common::answers_as_below;
use crate::common::fixture::{LIMIT, attached, even, filled, made, sim, writable};
use crate::common::nest::nested;
use crate::common::scratch;
use crate::common::stage::{Below, Stage, faulty, one_worker};
use crate::common::valve::Valve;
use crate::common::watch::Watchdog;
use diorite::{FileId, LoopDevice, OpenFlags, OpenOptions, Policy, Request, Volume};
use diorite_block::{
    Bio, BioOp, Blocking, Buf, Device, DeviceError, DeviceQueue, QueueOptions, RecordDevice,
};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn read(id: FileId, token: u64) -> Request {
    Request::read(id, token % 16 * 4096, Buf::zeroed(4096), token)
}

/// A device that runs bios in the calling thread, and records the first byte of each write that it ran there.
struct InCallers {
    below: Arc<dyn Device>,
    is_memory: bool,
    ran: Mutex<Vec<u8>>,
}

impl InCallers {
    fn over(stage: &Stage, is_memory: bool) -> Arc<InCallers> {
        Arc::new(InCallers {
            below: stage.device.clone(),
            is_memory,
            ran: Mutex::default(),
        })
    }

    /// The writes that began with one of these bytes.
    fn ran(&self, bytes: std::ops::RangeInclusive<u8>) -> Vec<u8> {
        let all = self.ran.lock().unwrap();
        all.iter()
            .copied()
            .filter(|byte| bytes.contains(byte))
            .collect()
    }
}

impl Device for InCallers {
    answers_as_below!();

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        self.below.open_queue(options)
    }

    fn run_here(&self, bio: Bio) -> Result<Bio, Bio> {
        if bio.flags.fua {
            return Err(bio);
        }
        if bio.op == BioOp::Write {
            let first = bio.buf.parts().next().unwrap()[0];
            self.ran.lock().unwrap().push(first);
        }
        Ok(Blocking::new(self.below.clone()).run(bio))
    }

    fn is_memory(&self) -> bool {
        self.is_memory
    }
}

/// A blocking call runs its only bio in its own thread, without a handover; but not one with FUA, which costs less through a queue.
/// The next call does so again.
#[test]
fn a_blocking_call_runs_its_own_bio() {
    let _watchdog = Watchdog::new(LIMIT, "its own bio");
    let (_dir, image, _) = made(0);
    let stage = sim(&image, "cache=volatile,fua=yes");
    let device = InCallers::over(&stage, false);
    let volume = Volume::open_device(device.clone(), &one_worker(Policy::DIORITE)).unwrap();
    let file = volume.open_path("/even", writable()).unwrap();
    let dsync = writable().dsync(true);
    let durable = volume.open_path("/even", dsync).unwrap();
    file.mappings(0, file.size()).unwrap();
    for (file, byte) in [(&file, 0xA1), (&durable, 0xA2), (&file, 0xA3)] {
        file.write_buf(0, filled(byte, 4096)).1.unwrap();
    }
    assert_eq!(device.ran(0xA1..=0xA3), [0xA1, 0xA3]);
    drop((file, durable));
    volume.close().unwrap();
}

/// A part of a new block is written with zeros around it. Where the device is memory the caller copies all of that itself; elsewhere the
/// bios go down together.
#[test]
fn a_blocking_call_copies_its_bios_into_memory() {
    let _watchdog = Watchdog::new(LIMIT, "its own bios");
    for is_memory in [true, false] {
        let (_dir, image, _) = made(0);
        let stage = sim(&image, "cache=volatile");
        let device = InCallers::over(&stage, is_memory);
        let volume = Volume::open_device(device.clone(), &one_worker(Policy::DIORITE)).unwrap();
        let file = volume.open_path("/even", writable()).unwrap();
        let end = file.size().next_multiple_of(4096);
        file.write_buf(end + 1024, filled(0xA1, 512)).1.unwrap();
        assert_eq!(device.ran(0xA1..=0xA1).is_empty(), !is_memory);
        let (back, count) = file.read_buf(end, Buf::zeroed(2048));
        assert_eq!(count.unwrap(), 1536);
        assert!(back.as_slice()[..1024].iter().all(|byte| *byte == 0));
        assert!(back.as_slice()[1024..1536].iter().all(|byte| *byte == 0xA1));
        drop(file);
        volume.close().unwrap();
    }
}

/// Several threads reap from one queue until it is empty: each of them notices that.
#[test]
fn each_of_several_consumers_ends() {
    let (_dir, image, _) = made(0);
    for below in Below::ALL {
        let watchdog = Watchdog::new(LIMIT, format!("{below:?}"));
        let Some(stage) = Stage::new(&image, below) else {
            continue;
        };
        let (volume, file) = even(&stage, Policy::DIORITE);
        let (queue, id) = attached(&volume, &file, 16);
        for round in 0..400 {
            watchdog.feed(format!("{below:?}, round {round}"));
            let count = 1 + round % 16;
            let mut batch: VecDeque<Request> = (0..count).map(|n| read(id, n)).collect();
            queue.submit(&mut batch);
            let by_one = || {
                let mut taken = 0;
                while let Some(done) = queue.reap_one(None) {
                    assert!(done.result.is_ok());
                    taken += 1;
                }
                taken
            };
            let by_list = || queue.reap(&mut Vec::new(), 3, None) + by_one();
            let by_waiting = || {
                queue.wait(1, Some(Duration::from_millis(1)));
                by_one()
            };
            let taken: usize = std::thread::scope(|s| {
                let threads = [
                    s.spawn(by_one),
                    s.spawn(by_one),
                    s.spawn(by_list),
                    s.spawn(by_waiting),
                ];
                threads.into_iter().map(|t| t.join().unwrap()).sum()
            });
            assert_eq!((taken as u64, queue.in_use()), (count, 0));
        }
    }
}

/// The defect: a thread that drained the queues of a volume for their owners did not drain other queues of the volume below; there,
/// the owner of the request that kept the gate closed never came back.
#[test]
fn an_absent_owner_below_holds_up_nobody_above() {
    let dir = scratch();
    let nest = nested(dir.path());
    let outermost = Path::new(nest.split('!').next().unwrap());
    let _watchdog = Watchdog::new(LIMIT, "an absent owner below");
    for closes in [false, true] {
        let lower = Stage::mem(outermost)
            .open(&one_worker(Policy::DIORITE))
            .unwrap();
        let inner = lower.open_path("/inner", writable()).unwrap();
        let device = Arc::new(LoopDevice::new(inner.clone(), "loop".into()));
        // Opened for reading: no commits of its journal reach the volume below.
        let upper = Volume::open_device(device, &OpenOptions::default()).unwrap();
        let file = upper.open_path("/inner", OpenFlags::default()).unwrap();
        file.mappings(0, file.size()).unwrap();
        inner.mappings(0, inner.size()).unwrap();
        let (absent, queue) = (lower.queue(4).unwrap(), upper.queue(4).unwrap());
        let (inner_id, id) = (absent.attach(&inner).unwrap(), queue.attach(&file).unwrap());
        absent.push(read(inner_id, 0)).unwrap();
        let truncate = Request::truncate(inner_id, inner.size(), 1);
        absent.push(truncate).unwrap();
        queue.push(read(id, 0)).unwrap();
        if closes {
            drop(file);
            upper.close().unwrap();
        } else {
            drop(file.quiesce());
        }
        assert!(queue.reap_one(None).unwrap().result.is_ok());
        for _ in 0..2 {
            assert!(absent.reap_one(None).unwrap().result.is_ok());
        }
    }
}

/// The defect: a fault-injecting device was at the lowest level of the lock order, whatever it was stacked on.
#[test]
fn what_stands_between_passes_the_level_on() {
    let (_dir, image, _) = made(0);
    let volume = Stage::mem(&image)
        .open(&one_worker(Policy::DIORITE))
        .unwrap();
    let file = volume.open_path("/even", writable()).unwrap();
    let looped: Arc<dyn Device> = Arc::new(LoopDevice::new(file, "loop".into()));
    let between: [Arc<dyn Device>; 4] = [
        faulty(looped.clone(), Vec::new()),
        Arc::new(RecordDevice::new(looped.clone())),
        Arc::new(Valve::new(looped.clone())),
        faulty(Arc::new(RecordDevice::new(looped.clone())), Vec::new()),
    ];
    assert_eq!(looped.level(), 1);
    for device in between {
        assert_eq!(device.level(), 1);
    }
}
