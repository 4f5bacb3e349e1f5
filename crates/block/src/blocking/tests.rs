//! The queues that a blocking helper opens, and keeps for the next caller.

#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use super::*;
use crate::device::{DeviceError, Geometry};
use crate::{BioOp, MemDevice};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

/// Memory that counts its queues, each of which takes nothing before all of the first callers have one.
struct Counted {
    below: MemDevice,
    opened: AtomicU32,
    open: Arc<AtomicU32>,
    together: Arc<Barrier>,
    /// It runs bios in the caller.
    in_caller: bool,
    is_memory: bool,
}

impl Counted {
    /// The queues that were opened so far, and those that are open.
    fn queues(&self) -> (usize, usize) {
        let count = |of: &AtomicU32| of.load(Ordering::SeqCst) as usize;
        (count(&self.opened), count(&self.open))
    }
}

struct CountedQueue {
    below: Box<dyn DeviceQueue>,
    open: Arc<AtomicU32>,
    together: Mutex<Option<Arc<Barrier>>>,
}

impl Device for Counted {
    fn below(&self) -> Option<&dyn Device> {
        Some(&self.below)
    }

    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn open_queue(&self, options: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        self.opened.fetch_add(1, Ordering::SeqCst);
        self.open.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(CountedQueue {
            below: self.below.open_queue(options)?,
            open: self.open.clone(),
            together: Mutex::new(&BLOCKING_POOL, Some(self.together.clone())),
        }))
    }

    fn run_here(&self, bio: Bio) -> Result<Bio, Bio> {
        match self.in_caller && !bio.flags.fua {
            true => Ok(Blocking::new(Arc::new(self.below.clone())).run(bio)),
            false => Err(bio),
        }
    }

    fn is_memory(&self) -> bool {
        self.is_memory
    }
}

impl DeviceQueue for CountedQueue {
    crate::forward_queue! { below => below, reap, wait, in_flight }

    fn submit(&self, bios: &mut BioList) {
        let first = self.together.lock().take();
        if let Some(together) = first {
            together.wait();
        }
        self.below.submit(bios);
    }
}

impl Drop for CountedQueue {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }
}

fn counted(callers: usize, in_caller: bool, is_memory: bool) -> Arc<Counted> {
    Arc::new(Counted {
        below: MemDevice::new(1 << 20),
        opened: AtomicU32::new(0),
        open: Arc::default(),
        together: Arc::new(Barrier::new(callers)),
        in_caller,
        is_memory,
    })
}

/// Each caller has a queue to itself while it waits. Afterwards no more than `KEPT` stay open, and the next caller opens none.
#[test]
fn so_many_queues_are_kept_and_no_more() {
    let callers = KEPT + 1;
    let device = counted(callers, false, false);
    let blocking = Blocking::new(device.clone());
    assert_eq!(device.queues(), (0, 0));
    thread::scope(|scope| {
        for _ in 0..callers {
            scope.spawn(|| blocking.read(0, Buf::zeroed(512)).unwrap());
        }
    });
    assert_eq!(device.queues(), (callers, KEPT));
    blocking.read(0, Buf::zeroed(512)).unwrap();
    assert_eq!(device.queues(), (callers, KEPT));
}

/// Several writes into memory are copied by the caller, one after the other; another device gets them together through a queue, but not a
/// single one.
#[test]
fn several_writes_into_memory_need_no_queue() {
    for (is_memory, count, queues) in [(true, 3, 0), (false, 3, 1), (false, 1, 0)] {
        let device = counted(1, true, is_memory);
        let blocking = Blocking::new(device.clone());
        let filled = |byte| {
            let mut buf = Buf::zeroed(512);
            buf.as_mut_slice().fill(byte);
            buf
        };
        let writes = (0..count).map(|n| Bio::write(u64::from(n) * 512, filled(n + 1), n.into()));
        let done = blocking.run_all(writes.collect());
        let all_well = done.iter().all(|bio| bio.result.is_ok());
        assert!(
            done.len() == usize::from(count) && all_well,
            "{is_memory} {count}: {done:?}"
        );
        assert_eq!(
            device.queues(),
            (queues, queues),
            "memory {is_memory}, {count}"
        );
        let read = blocking.read(0, Buf::zeroed(usize::from(count) * 512));
        let all: Vec<u8> = (1..=count).flat_map(|byte| [byte; 512]).collect();
        assert!(read.unwrap().as_slice() == all, "memory {is_memory}");
    }
}

/// Memory with a volatile cache on a host that gives no queue, and what it did.
struct Scarce {
    below: MemDevice,
    done: Mutex<Vec<BioOp>>,
    in_caller: bool,
    /// The host follows a write with FUA by a flush.
    fua_flushes: bool,
    /// The first flush ends when this goes, with an error.
    holds_a_flush: AtomicBool,
    /// What happens behind each write.
    behind_writes: Mutex<Option<Box<dyn Fn() + Send>>>,
}

impl Scarce {
    fn new(in_caller: bool, holds_a_flush: bool) -> Arc<Scarce> {
        Arc::new(Scarce::of(in_caller, holds_a_flush))
    }

    fn of(in_caller: bool, holds_a_flush: bool) -> Scarce {
        Scarce {
            below: MemDevice::new(1 << 20),
            done: Mutex::new(&BLOCKING_POOL, Vec::new()),
            in_caller,
            holds_a_flush: AtomicBool::new(holds_a_flush),
            behind_writes: Mutex::new(&BLOCKING_POOL, None),
            fua_flushes: false,
        }
    }

    fn flushes(&self) -> usize {
        let done = self.done.lock();
        done.iter().filter(|op| **op == BioOp::Flush).count()
    }

    fn flush(&self, mut bio: Bio) -> Bio {
        if self.flushes() == 1 && self.holds_a_flush.load(Ordering::SeqCst) {
            while self.holds_a_flush.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            bio.result = Err(BioError::new(BioErrorKind::Io));
        }
        bio
    }
}

impl Device for Scarce {
    fn below(&self) -> Option<&dyn Device> {
        Some(&self.below)
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            volatile_cache: true,
            fua: true,
            fua_flushes: self.fua_flushes,
            ..self.below.geometry()
        }
    }

    fn open_queue(&self, _: QueueOptions) -> Result<Box<dyn DeviceQueue>, DeviceError> {
        let none = std::io::Error::from_raw_os_error(libc::EMFILE);
        Err(DeviceError::host("cannot open a queue", none))
    }

    fn run_here(&self, bio: Bio) -> Result<Bio, Bio> {
        if bio.flags.fua || !self.in_caller {
            return Err(bio);
        }
        self.done.lock().push(bio.op);
        Ok(match bio.op {
            BioOp::Flush => self.flush(bio),
            _ => {
                let bio = Blocking::new(Arc::new(self.below.clone())).run(bio);
                let behind = self.behind_writes.lock().take();
                behind.into_iter().for_each(|happens| happens());
                bio
            }
        })
    }
}

/// Defect: what needed a queue failed where the host gave none, and a journal was aborted by it. It is done in the caller's thread, durable
/// what has to be.
#[test]
fn what_needs_a_queue_is_done_without_one() {
    let device = Scarce::new(true, false);
    let blocking = Blocking::new(device.clone());
    let did = || std::mem::take(&mut *device.done.lock());
    let write = |pos| Bio::write(pos, Buf::zeroed(512), pos);
    let done = blocking.run_all(BioList::from([write(0), write(512)]));
    assert!(done.iter().all(|bio| bio.result.is_ok()), "{done:?}");
    assert_eq!(did(), [BioOp::Write, BioOp::Write]);
    blocking.write_durably(1024, Buf::zeroed(512)).unwrap();
    assert_eq!(did(), [BioOp::Write, BioOp::Flush]);
    let refused = blocking.write_durably(1 << 20, Buf::zeroed(512));
    assert!(refused.is_err(), "it is no part of the device");
    assert_eq!(did(), [BioOp::Write]);

    let blocking = Blocking::new(Scarce::new(false, false));
    let gone = blocking.write_durably(0, Buf::zeroed(512)).unwrap_err();
    assert_eq!(gone.kind, BioErrorKind::Gone);
}

/// Rule D1. A write with the flush behind it: in this order. If the write fails, alone as well, the failure is its caller's: the flush that
/// is tried after it succeeds.
#[test]
fn a_flush_follows_its_write() {
    let device = Arc::new(Scarce {
        fua_flushes: true,
        ..Scarce::of(true, false)
    });
    let blocking = Blocking::new(device.clone());
    let did = || std::mem::take(&mut *device.done.lock());
    let epoch = blocking.flushes().now();
    let done = blocking.write_and_flush(Bio::write(512, Buf::zeroed(512), 7));
    assert_eq!((done.result, done.token, done.buf.len()), (Ok(()), 7, 512));
    assert_eq!(did(), [BioOp::Write, BioOp::Flush]);
    assert!(blocking.flushes().covers(epoch));
    let epoch = blocking.flushes().now();
    let done = blocking.write_and_flush(Bio::write(1 << 20, Buf::zeroed(512), 8));
    assert!(done.result.is_err());
    assert_eq!(did(), [BioOp::Write, BioOp::Write, BioOp::Flush]);
    assert!(blocking.flushes().check(epoch).is_ok());
    // A device whose host does not flush behind it, and which gives no queue.
    let device = Scarce::new(true, false);
    let blocking = Blocking::new(device.clone());
    let done = blocking.write_and_flush(Bio::write(512, Buf::zeroed(512), 9));
    assert_eq!(done.result, Ok(()));
    assert_eq!(*device.done.lock(), [BioOp::Write, BioOp::Flush]);
}

/// Rule D1. A flush without a queue may report the failure of other threads' writes: a flush that begins after it counts only once
/// it has ended. The defect: it was entered in the account only when it had failed.
#[test]
fn a_flush_without_a_queue_is_in_the_account_from_its_beginning() {
    let device = Scarce::new(true, true);
    let blocking = Blocking::new(device.clone());
    let written = blocking.flushes().now();
    let wait_for = |count| {
        while device.flushes() < count {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| blocking.write_durably(0, Buf::zeroed(512)));
        wait_for(1);
        let second = scope.spawn(|| blocking.flush_since(written));
        wait_for(2);
        device.holds_a_flush.store(false, Ordering::SeqCst);
        let failed = Err(BioError::new(BioErrorKind::Io));
        assert_eq!(
            (first.join().unwrap(), second.join().unwrap()),
            (failed, failed)
        );
    });
}

/// Rule D1. The write stands for itself and a flush behind it, and a flush of others fails between the two: that may have taken the write
/// with it.
#[test]
fn a_flush_that_fails_between_a_write_and_its_flush_is_told() {
    let device = Scarce::new(true, false);
    let blocking = Arc::new(Blocking::new(device.clone()));
    let others = Arc::downgrade(&blocking);
    *device.behind_writes.lock() = Some(Box::new(move || {
        let failed = Err(BioError::new(BioErrorKind::Io));
        let blocking = others.upgrade().unwrap();
        blocking.flushes().run(|| (failed, ()));
    }));
    let done = blocking.write_durably(0, Buf::zeroed(512));
    assert_eq!(done, Err(BioError::new(BioErrorKind::Io)));
}
