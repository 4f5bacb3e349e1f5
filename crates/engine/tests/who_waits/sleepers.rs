//! A thread that is about to sleep in a queue, while another thread reaps what it would wait for.
//!
//! Input: a device that keeps completions back, and tells when a thread is about to wait on it. Output: none. Invariants: everything runs
//! under a watchdog. Limits: one sleeper at a time.

use crate::common::answers_as_below;
use crate::common::fixture::{LIMIT, attached, filled, made, writable};
use crate::common::stage::{Stage, one_worker};
use crate::common::watch::Watchdog;
use crate::who_waits::read;
use diorite::{Policy, Request, Volume};
use diorite_block::{Bio, BioList, BioOp, Device, DeviceError, DeviceQueue, QueueOptions};
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
    answers_as_below!();

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
    diorite_block::forward_queue! { below => below, submit }

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
    let (queue, id) = attached(&volume, &file, 4);
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
    let (queue, id) = attached(&volume, &file, 4);
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
