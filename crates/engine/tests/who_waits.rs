//! Waiting: several threads on one queue, owners that only poll or only look, stacks of volumes (rule G14).
//!
//! Input: images on devices that report which thread is about to sleep, and hold requests back. Output: none. Invariants:
//! everything runs under a watchdog, since the defect looked for is a wait that never ends. Limits: no time is asserted.
#![allow(clippy::unwrap_used)]

mod common;

use common::fixture::{LIMIT, filled, made, sim, writable};
use common::nest::nested;
use common::scratch;
use common::stage::{Below, Stage, faulty, one_worker};
use common::valve::Valve;
use common::watch::Watchdog;
use diorite::policy::Unaligned;
use diorite::{
    Completion, FileId, LoopDevice, OpenFlags, OpenOptions, Policy, Queue, Request, Volume,
};
use diorite_block::{
    Bio, BioList, BioOp, Blocking, Buf, Device, DeviceError, DeviceQueue, DeviceReport, Geometry,
    QueueOptions, RecordDevice,
};
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A device that can keep completions back, and that tells the test when a thread is about to wait on it without a timeout.
/// Releasing completions wakes nobody: to a waiting thread it looks as if they had ended at the moment when another thread reaps
/// them.
#[derive(Clone)]
struct Bedside {
    below: Arc<dyn Device>,
    shared: Arc<Shared>,
}

/// Selects which completions are kept back.
type Keeps = fn(&Bio) -> bool;

#[derive(Default)]
struct Shared {
    keeps: Mutex<Option<Keeps>>,
    /// The number of bios that were reaped.
    given: AtomicUsize,
    /// Used once, by the first thread that waits without a timeout: it sends on the one channel, and sleeps once it receives on the
    /// other.
    bed: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl Bedside {
    fn new(below: Arc<dyn Device>) -> Bedside {
        Bedside {
            below,
            shared: Arc::default(),
        }
    }

    /// From now on nothing is reaped. Returns the ends of the channels: to learn that a thread is about to sleep, and to let it.
    fn keep(&self) -> (Receiver<()>, Sender<()>) {
        let ((about, told), (go, gone)) = (channel(), channel());
        self.keep_only(|_| true);
        *self.shared.bed.lock().unwrap() = Some((about, gone));
        (told, go)
    }

    fn keep_only(&self, keeps: Keeps) {
        *self.shared.keeps.lock().unwrap() = Some(keeps);
    }

    fn let_go(&self) {
        *self.shared.keeps.lock().unwrap() = None;
    }

    fn given(&self) -> usize {
        self.shared.given.load(Ordering::SeqCst)
    }
}

impl Device for Bedside {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn name(&self) -> String {
        self.below.name()
    }

    fn report(&self) -> DeviceReport {
        self.below.report()
    }

    fn level(&self) -> u8 {
        self.below.level()
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        Ok(Box::new(BedsideQueue {
            below: self.below.open_queue(options)?,
            shared: self.shared.clone(),
            kept: Mutex::default(),
        }))
    }
}

struct BedsideQueue {
    below: Box<dyn DeviceQueue>,
    shared: Arc<Shared>,
    /// Bios that have ended and are kept back.
    kept: Mutex<BioList>,
}

impl DeviceQueue for BedsideQueue {
    fn submit(&self, bios: &mut BioList) {
        self.below.submit(bios);
    }

    fn reap(&self, out: &mut BioList) -> usize {
        let mut kept = self.kept.lock().unwrap();
        self.below.reap(&mut kept);
        let keeps = *self.shared.keeps.lock().unwrap();
        let is_kept = |bio: &Bio| keeps.is_some_and(|keeps| keeps(bio));
        let (stay, mut go): (BioList, BioList) = kept.drain(..).partition(is_kept);
        *kept = stay;
        let count = go.len();
        out.append(&mut go);
        self.shared.given.fetch_add(count, Ordering::SeqCst);
        count
    }

    fn wait(&self, min: u32, timeout: Option<Duration>) {
        let bed = self
            .shared
            .bed
            .lock()
            .unwrap()
            .take_if(|_| timeout.is_none());
        if let Some((about, gone)) = bed {
            about.send(()).unwrap();
            gone.recv().unwrap();
        }
        self.below.wait(min, timeout);
    }

    fn in_flight(&self) -> u32 {
        self.below.in_flight() + u32::try_from(self.kept.lock().unwrap().len()).unwrap()
    }

    fn signal_waker(&self) {
        self.below.signal_waker();
    }
}

fn read(id: FileId, token: u64) -> Request {
    Request::read(id, token % 16 * 4096, Buf::zeroed(4096), token)
}

/// A volume on a `Bedside` device over memory.
fn beside_memory() -> (tempfile::TempDir, Bedside, Volume) {
    let (dir, image, _) = made(0);
    let device = Bedside::new(Stage::mem(&image).device);
    let volume = Volume::open_device(Arc::new(device.clone()), &one_worker(Policy::DIORITE));
    (dir, device, volume.unwrap())
}

/// The defect: a thread went to sleep for a request that another thread took out meanwhile; as nothing was left in use, nobody woke
/// it.
#[test]
fn who_takes_the_last_request_wakes_the_others() {
    let _watchdog = Watchdog::new(LIMIT, "the last one");
    let (_dir, device, volume) = beside_memory();
    let file = volume.open_path("/even", writable()).unwrap();
    let queue = volume.queue(4).unwrap();
    let id = queue.attach(&file).unwrap();
    // By reap, by reap_one, and by reap_one followed by a second call that finds nothing and consumes the wake-up.
    for way in 0..3 {
        let (told, go) = device.keep();
        queue.push(read(id, 0)).unwrap();
        std::thread::scope(|s| {
            let sleeper = s.spawn(|| queue.reap_one(None));
            told.recv().unwrap();
            device.let_go();
            let mut out = Vec::new();
            match way {
                0 => drop(queue.reap(&mut out, 1, Some(Duration::ZERO))),
                _ => out.extend(queue.reap_one(Some(Duration::ZERO))),
            }
            assert_eq!((out.len(), queue.in_use()), (1, 0));
            if way == 2 {
                assert!(queue.reap_one(None).is_none());
            }
            go.send(()).unwrap();
            assert!(sleeper.join().unwrap().is_none());
        });
    }
}

/// A thread that drains other owners' queues reaps what an owner is about to sleep for, and wakes the owner.
#[test]
fn who_drains_for_others_wakes_the_owner() {
    let _watchdog = Watchdog::new(LIMIT, "drained by others");
    let (_dir, device, volume) = beside_memory();
    let file = volume.open_path("/even", writable()).unwrap();
    // Loads the map, so that only the device is waited for.
    file.mappings(0, file.size()).unwrap();
    let queue = volume.queue(4).unwrap();
    let id = queue.attach(&file).unwrap();
    let (told, go) = device.keep();
    queue.push(read(id, 7)).unwrap();
    std::thread::scope(|s| {
        let sleeper = s.spawn(|| queue.reap_one(None));
        told.recv().unwrap();
        device.let_go();
        drop(file.quiesce());
        go.send(()).unwrap();
        assert_eq!(sleeper.join().unwrap().unwrap().token, 7);
    });
}

/// So does a thread that waits to detach a file, for requests of other files, although it continues to wait.
#[test]
fn who_detaches_wakes_an_owner_that_sleeps() {
    let _watchdog = Watchdog::new(LIMIT, "detach beside a sleeper");
    let (_dir, device, volume) = beside_memory();
    let [held, other] = ["/even", "/pieces"].map(|path| {
        let file = volume.open_path(path, writable()).unwrap();
        file.mappings(0, file.size()).unwrap();
        file
    });
    let queue = volume.queue(4).unwrap();
    let [held_id, other_id] = [&held, &other].map(|file| queue.attach(file).unwrap());
    let (told, go) = device.keep();
    let write = Request::write(held_id, 0, filled(7, 4096), 1);
    queue.push(write).unwrap();
    queue.push(read(other_id, 7)).unwrap();
    let given = device.given();
    std::thread::scope(|s| {
        let sleeper = s.spawn(|| queue.reap_one(None));
        told.recv().unwrap();
        device.keep_only(|bio| bio.op == BioOp::Write);
        let detaches = s.spawn(|| queue.detach(held_id));
        while device.given() == given {
            std::thread::yield_now();
        }
        go.send(()).unwrap();
        assert_eq!(sleeper.join().unwrap().unwrap().token, 7);
        assert!(!detaches.is_finished());
        device.let_go();
    });
    assert_eq!(queue.reap_one(None).unwrap().token, 1);
}

/// Once everything is reaped, the descriptor is not readable, however the owner looks for completions, and also after it has waited
/// in the queue: otherwise an event loop would spin.
#[test]
fn an_owner_who_has_all_is_left_in_peace() {
    let (_dir, image, _) = made(0);
    for (name, look) in LOOKS {
        let _watchdog = Watchdog::new(LIMIT, name);
        let valve = Valve::new(Stage::mem(&image).device);
        let volume = Volume::open_device(Arc::new(valve.clone()), &one_worker(Policy::DIORITE));
        let volume = volume.unwrap();
        let file = volume.open_path("/even", writable()).unwrap();
        file.mappings(0, file.size()).unwrap();
        let queue = volume.queue(4).unwrap();
        let id = queue.attach(&file).unwrap();
        let _ = queue.eventfd();
        valve.hold(&[7]);
        let write = Request::write(id, 0, filled(7, 4096), 1);
        queue.push(write).unwrap();
        let (mut out, short) = (Vec::new(), Some(Duration::from_millis(20)));
        assert_eq!(queue.reap(&mut out, 1, short), 0);
        assert!(queue.reap_one(short).is_none());
        queue.wait(1, short);
        valve.hold(&[]);
        while out.is_empty() {
            look(&queue, &mut out);
        }
        let mut looks = 0;
        while readable(&queue, 50) {
            look(&queue, &mut out);
            looks += 1;
            assert!(
                looks < 100,
                "{name}: it stays readable with nothing to reap"
            );
        }
        assert_eq!((out.len(), queue.in_use()), (1, 0));
    }
}

/// An owner that polls a queue at the top of a stack is notified of completions of the device at its bottom.
#[test]
fn who_polls_the_top_of_a_stack_is_told() {
    let _watchdog = Watchdog::new(LIMIT, "polling a stack");
    let dir = scratch();
    let nest = nested(dir.path());
    let outermost = Path::new(nest.split('!').next().unwrap());
    let lower = Stage::mem(outermost)
        .open(&one_worker(Policy::DIORITE))
        .unwrap();
    let inner = lower.open_path("/inner", writable()).unwrap();
    inner.mappings(0, inner.size()).unwrap();
    let device = Arc::new(LoopDevice::new(inner, "loop".into()));
    let upper = Volume::open_device(device, &OpenOptions::default()).unwrap();
    let file = upper.open_path("/inner", OpenFlags::default()).unwrap();
    file.mappings(0, file.size()).unwrap();
    let queue = upper.queue(4).unwrap();
    let id = queue.attach(&file).unwrap();
    let _ = queue.eventfd();
    for token in 0..4 {
        queue.push(read(id, token)).unwrap();
        let mut out = Vec::new();
        while out.is_empty() {
            assert!(readable(&queue, 20_000), "nobody was told of {token}");
            queue.reap(&mut out, 0, None);
        }
        assert_eq!(out[0].token, token);
    }
}

/// A device that runs bios in the calling thread, and records the first byte of each write that it ran there.
struct InCallers {
    below: Arc<dyn Device>,
    ran: Mutex<Vec<u8>>,
}

impl Device for InCallers {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn name(&self) -> String {
        self.below.name()
    }

    fn report(&self) -> DeviceReport {
        self.below.report()
    }

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
}

/// A blocking call runs its only bio in its own thread, without a handover; but not one with FUA, which costs less through a queue.
/// The next call does so again.
#[test]
fn a_blocking_call_runs_its_own_bio() {
    let _watchdog = Watchdog::new(LIMIT, "its own bio");
    let (_dir, image, _) = made(0);
    let stage = sim(&image, "cache=volatile,fua=yes");
    let device = Arc::new(InCallers {
        below: stage.device.clone(),
        ran: Mutex::default(),
    });
    let volume = Volume::open_device(device.clone(), &one_worker(Policy::DIORITE)).unwrap();
    let file = volume.open_path("/even", writable()).unwrap();
    let dsync = OpenFlags {
        dsync: true,
        ..writable()
    };
    let durable = volume.open_path("/even", dsync).unwrap();
    file.mappings(0, file.size()).unwrap();
    for (file, byte) in [(&file, 0xA1), (&durable, 0xA2), (&file, 0xA3)] {
        file.write_at(0, filled(byte, 4096)).1.unwrap();
    }
    let mine = |byte: &u8| matches!(byte, 0xA1..=0xA3);
    let ran: Vec<u8> = device
        .ran
        .lock()
        .unwrap()
        .iter()
        .copied()
        .filter(mine)
        .collect();
    assert_eq!(ran, [0xA1, 0xA3]);
    drop((file, durable));
    volume.close().unwrap();
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
        let volume = stage.open(&one_worker(Policy::DIORITE)).unwrap();
        let file = volume.open_path("/even", writable()).unwrap();
        let queue = volume.queue(16).unwrap();
        let id = queue.attach(&file).unwrap();
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

/// The defect: a thread that detached a file reaped completions of other files, and notified their owner only when its own wait was
/// over. The owner polls, or sleeps.
#[test]
fn who_detaches_tells_the_owner_of_other_requests_at_once() {
    let _watchdog = Watchdog::new(LIMIT, "detach");
    let (_dir, image, _) = made(0);
    for polled in [true, false] {
        let valve = Valve::new(Stage::mem(&image).device);
        let volume = Volume::open_device(Arc::new(valve.clone()), &one_worker(Policy::DIORITE));
        let volume = volume.unwrap();
        let [held, other] =
            ["/even", "/pieces"].map(|path| volume.open_path(path, writable()).unwrap());
        let queue = volume.queue(4).unwrap();
        let (held_id, other_id) = (queue.attach(&held).unwrap(), queue.attach(&other).unwrap());
        if polled {
            let _ = queue.eventfd();
        }
        valve.hold(&[7]);
        let write = Request::write(held_id, 0, filled(7, 4096), 1);
        queue.push(write).unwrap();
        while valve.holding() == 0 {
            queue.reap(&mut Vec::new(), 0, None);
        }
        std::thread::scope(|s| {
            let detaches = s.spawn(|| queue.detach(held_id));
            // Long enough, mostly, for the detaching thread to wait when the next request is submitted, and to reap it.
            for token in 10..40 {
                std::thread::sleep(Duration::from_millis(1));
                queue.push(read(other_id, token)).unwrap();
                if polled {
                    std::thread::sleep(Duration::from_millis(2));
                    assert!(readable(&queue, 5_000), "the detaching thread told nobody");
                } else {
                    queue.wait(1, None);
                }
                let done = queue.reap_one(None).unwrap();
                assert_eq!(done.token, token);
            }
            assert!(!detaches.is_finished());
            valve.hold(&[]);
        });
        assert_eq!(queue.reap_one(None).unwrap().token, 1);
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

/// A way for an owner to look for completions without ever waiting in its queue.
type Look = fn(&Queue, &mut Vec<Completion>);

const LOOKS: [(&str, Look); 3] = [
    ("reap of 0", |queue, out| {
        queue.reap(out, 0, None);
        std::thread::yield_now();
    }),
    ("reap_one of no time", |queue, out| {
        out.extend(queue.reap_one(Some(Duration::ZERO)));
    }),
    // As the documentation of the queue recommends if a volume has several queues.
    ("poll", |queue, out| {
        readable(queue, 5);
        queue.reap(out, 0, None);
    }),
];

/// The defect: owners that never wait did not drain other queues, and their requests waited for ever for those of an owner that was
/// gone: for the exclusive turn, and for the size that an earlier append moves.
#[test]
fn who_never_waits_gets_past_an_absent_owner() {
    let (_dir, image, _) = made(0);
    let exclusive = Policy {
        unaligned: Unaligned::Exclusive,
        ..Policy::DIORITE
    };
    for (name, look) in LOOKS {
        for appends in [false, true] {
            let _watchdog = Watchdog::new(LIMIT, format!("{name}, appends: {appends}"));
            let stage = Stage::mem(&image);
            let policy = if appends { Policy::DIORITE } else { exclusive };
            let volume = stage.open(&one_worker(policy)).unwrap();
            let file = volume.open_path("/even", writable()).unwrap();
            let (gone, mine) = (volume.queue(4).unwrap(), volume.queue(4).unwrap());
            for (queue, token) in [(&gone, 0), (&mine, 1)] {
                let id = queue.attach(&file).unwrap();
                let request = if appends {
                    Request::append(id, filled(1, 4096), token)
                } else {
                    Request::write(id, 512 + 512 * token, filled(1, 512), token)
                };
                queue.push(request).unwrap();
            }
            let mut out = Vec::new();
            while out.is_empty() {
                look(&mine, &mut out);
            }
            assert!(out[0].result.is_ok());
            assert!(gone.reap_one(None).unwrap().result.is_ok());
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

fn readable(queue: &Queue, millis: i64) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let fd = queue.eventfd();
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: millis / 1000,
        tv_nsec: millis % 1000 * 1_000_000,
    };
    poll(&mut fds, Some(&timeout)).unwrap() > 0
}
