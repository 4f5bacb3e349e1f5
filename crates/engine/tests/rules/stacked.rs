//! Bios to a loop device, from one queue or several, while its file is used in other ways, too (rules L1, L6, L8).
//!
//! Input: loop devices over a device that holds writes back. Output: none. Invariants: counts are asserted, times never; e2fsck
//! judges the end. Limits: one layer.

use crate::common::fixture::{LIMIT, NOWAIT, filled, made, run_all, writable};
use crate::common::nest::nested;
use crate::common::recipe::RECIPES;
use crate::common::scratch;
use crate::common::stage::{Stage, faulty, one_worker};
use crate::common::watch::Watchdog;
use crate::rules::bed::Bed;
use diorite::{
    Error, Fallocate, File, LoopDevice, Mapping, MappingState, OpenOptions, Policy, Request,
    Volume, Wait,
};
use diorite_block::{
    Bio, BioErrorKind, BioList, BioOp, Buf, Device, DeviceQueue, Fault, QueueOptions, When,
};
use diorite_format::InodeFlags;
use std::sync::atomic::{AtomicBool, Ordering};

fn looped(bed: &Bed, path: &str, depth: u32) -> Box<dyn DeviceQueue> {
    looped_with(bed, path, QueueOptions::new(depth).unwrap())
}

fn looped_with(bed: &Bed, path: &str, options: QueueOptions) -> Box<dyn DeviceQueue> {
    let (file, ..) = bed.open(path);
    // So that no part of the map has to be read first.
    file.mappings(0, file.size()).unwrap();
    let device = LoopDevice::new(file, "loop".into());
    device.open_queue(options).unwrap()
}

/// Asserts that each bio ends exactly once, without an error.
fn reap(queue: &dyn DeviceQueue, count: usize) {
    let mut out = BioList::new();
    while out.len() < count {
        queue.reap(&mut out);
        queue.wait(1, Some(std::time::Duration::from_millis(10)));
    }
    assert_eq!((out.len(), queue.in_flight()), (count, 0));
    assert!(out.iter().all(|b| b.result.is_ok()));
    let mut tokens: Vec<u64> = out.iter().map(|b| b.token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, (0..count as u64).collect::<Vec<_>>());
}

/// Rule L1. Aligned bios are passed down at once and directly, however many are in flight: none waits for another's end. Rule L8:
/// bios for which there is no room stay with the submitter, and are accepted when there is room.
#[test]
fn a_loop_device_passes_all_on_at_once() {
    let _watchdog = Watchdog::new(LIMIT, "all at once");
    let bed = Bed::new(&RECIPES[0], &one_worker(Policy::DIORITE));
    let queue = looped(&bed, "/odd", 8);
    bed.valve.hold(&[1]);
    let write = |n: u64| Bio::write(n * 4096 + 512 * (n % 2), filled(1, 1024), n);
    let mut bios: BioList = (0..12).map(write).collect();
    let sent = [(); 2].map(|()| {
        queue.submit(&mut bios);
        (bed.valve.in_flight(), bios.len())
    });
    bed.valve.hold(&[]);
    assert_eq!(sent, [(8, 4); 2]);
    let mut out = BioList::new();
    while out.len() < 12 {
        queue.submit(&mut bios);
        queue.reap(&mut out);
    }
    assert!(out.iter().all(|b| b.result.is_ok()));
    assert_eq!(bed.volume.counters().fallback_buffered, 0);
    drop(queue);
    bed.judge();
}

/// Rules L6, L8. If the lower device answers EAGAIN to a bio without NOWAIT, the thread that reaps retries it: that needs no
/// further submit.
#[test]
fn what_is_done_again_waits_for_no_submitter() {
    let _watchdog = Watchdog::new(LIMIT, "again");
    let (_dir, image, _) = made(0);
    let stage = Stage::mem(&image);
    let fault = Fault::new(BioErrorKind::WouldBlock, When::nth(1)).on(BioOp::Write);
    let device = faulty(stage.device.clone(), vec![fault]);
    let volume = Volume::open_device(device.clone(), &one_worker(Policy::DIORITE)).unwrap();
    let file = volume.open_path("/even", writable()).unwrap();
    let looped = LoopDevice::new(file, "loop".into());
    let options = QueueOptions::new(2).unwrap();
    let queue = looped.open_queue(options).unwrap();
    let write = |n| Bio::write(n * 4096, filled(1, 4096), n);
    queue.submit(&mut [write(0), write(1)].into());
    reap(&*queue, 2);
    assert_eq!(device.plan().failed(), 1, "it was told to wait once");
}

/// Rule L1. The file of a loop device begins to have its data journalled, and later stops. Each time, bios in flight end first, new
/// ones wait, and of two bios for the same bytes the last one wins, in the file and after the volume was closed.
#[test]
fn changing_the_path_waits_for_what_is_in_flight() {
    let _watchdog = Watchdog::new(LIMIT, "changing the path");
    let bed = Bed::new(&RECIPES[0], &one_worker(Policy::DIORITE));
    let queue = looped(&bed, "/odd", 8);
    let (file, direct, id) = bed.open("/odd");
    let data = InodeFlags::JOURNAL_DATA;
    for journalled in [true, false, true, false] {
        let flags = file.metadata().flags;
        let wanted = match journalled {
            true => flags.with(data),
            false => flags.without(data),
        };
        // Data that goes through the journal is not held.
        bed.valve.hold(&[1]);
        queue.submit(&mut [Bio::write(4096, filled(1, 8192), 0)].into());
        let (early, changed) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let change = scope.spawn(|| {
                file.set_flags(wanted).unwrap();
                changed.store(true, Ordering::SeqCst);
            });
            let is_closed = || {
                let read = Request::read(id, 0, Buf::zeroed(512), 0).with_flags(NOWAIT);
                let result = &run_all(&direct, vec![read])[0].result;
                matches!(result, Err(Error::WouldBlock(Wait::Gate)))
            };
            while journalled && !is_closed() && !changed.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            early.store(
                journalled && changed.load(Ordering::SeqCst),
                Ordering::SeqCst,
            );
            queue.submit(&mut [Bio::write(8192, filled(2, 8192), 1)].into());
            bed.valve.hold(&[]);
            reap(&*queue, 2);
            change.join().unwrap();
        });
        assert!(!early.into_inner(), "changed while a write was in flight");
        let mut bytes = vec![0xEE; 12_288];
        file.read_bytes(4096, &mut bytes).unwrap();
        assert!(bytes[..4096].iter().all(|b| *b == 1));
        if journalled {
            assert!(bytes[4096..].iter().all(|b| *b == 2));
        }
    }
    assert!(bed.volume.counters().fallback_buffered > 0);
    drop((file, direct, queue));
    bed.finish();
}

/// Rule L1. Bios that cannot use direct I/O are executed one after the other, whoever sends them: appends from two queues get
/// different places, and writes of parts of one block lose none of each other's sectors.
#[test]
fn what_is_not_direct_goes_one_by_one() {
    let _watchdog = Watchdog::new(LIMIT, "one by one");
    let bed = Bed::new(&RECIPES[0], &OpenOptions::writable());
    let (file, one, one_id) = bed.open("/empty");
    let flags = file.metadata().flags;
    file.set_flags(flags.with(InodeFlags::JOURNAL_DATA))
        .unwrap();
    let (_, two, two_id) = bed.open("/empty");
    let append = |id| move |n| Request::append(id, filled(n as u8 + 1, 1536), n);
    for _ in 0..8 {
        one.submit(&mut (0..64).map(append(one_id)).collect());
        two.submit(&mut (64..128).map(append(two_id)).collect());
        let mut done = Vec::new();
        for (queue, count) in [(&one, 64), (&two, 128)] {
            while done.len() < count {
                queue.reap(&mut done, 1, None);
            }
        }
        done.sort_by_key(|d| d.pos);
        let from = file.size().saturating_sub(128 * 1536);
        let mut bytes = vec![0xEE; 128 * 1536];
        assert_eq!(file.read_bytes(from, &mut bytes).unwrap(), bytes.len());
        for (n, (done, bytes)) in (0..).zip(done.iter().zip(bytes.chunks(1536))) {
            assert_eq!((done.pos, done.result.is_ok()), (from + n * 1536, true));
            assert!(bytes.iter().all(|b| u64::from(*b) == done.token + 1));
        }
    }
    assert_eq!(file.size(), 8 * 128 * 1536);
    drop((file, one, two));
    bed.finish();
}

/// If the layer below completes a bio at once, as a read of a hole, the thread that sleeps above is woken, whichever thread
/// submitted it.
#[test]
fn what_ends_at_once_below_wakes_who_waits() {
    let _watchdog = Watchdog::new(LIMIT, "at once below");
    let bed = Bed::new(&RECIPES[0], &one_worker(Policy::DIORITE));
    let (file, ..) = bed.open("/odd");
    file.fallocate(Fallocate::PunchHole, 0, 4096).unwrap();
    drop(file);
    let options = QueueOptions::new(8).unwrap();
    let waker = options.waker.clone();
    let queue = looped_with(&bed, "/odd", options);
    let read = |pos| Bio::read(pos, Buf::zeroed(512), 0);
    // One read that the file serves at once, and one that the loop device refuses.
    for (pos, ended) in [(0, Ok(())), (1 << 40, Err(BioErrorKind::Invalid))] {
        for _ in 0..20 {
            let mut out = BioList::new();
            std::thread::scope(|scope| {
                waker.clear();
                scope.spawn(|| {
                    while queue.reap(&mut out) == 0 {
                        queue.wait(1, None);
                        // As every owner of a waker does: while a kick is pending, no wait would sleep.
                        waker.clear();
                    }
                });
                // Long enough, mostly, for the thread to fall asleep.
                std::thread::sleep(std::time::Duration::from_millis(2));
                queue.submit(&mut [read(pos)].into());
            });
            let result = out[0].result.as_ref().map_err(|e| e.kind);
            assert_eq!((out.len(), result.copied()), (1, ended));
        }
    }
}

/// As above, for the parts of one read: its caller has loaded the map and submitted them when it falls asleep, and none of them
/// reaches a device.
#[test]
fn parts_that_all_end_at_once_below() {
    let _watchdog = Watchdog::new(LIMIT, "parts at once below");
    let dir = scratch();
    let nest = nested(dir.path());
    let (outer, inner) = nest.rsplit_once("!/").unwrap();
    let open = |locator| Volume::open(locator, &OpenOptions::writable()).unwrap();
    let punch = |file: &File, pos, len| file.fallocate(Fallocate::PunchHole, pos, len).unwrap();
    let upper = open(&nest);
    let file = upper.open_path("/data", writable()).unwrap();
    // More extents than fit into an inode.
    (0..16).for_each(|n| punch(&file, n * 8192, 4096));
    let parts = file.mappings(0, 16 * 8192).unwrap();
    let at = |part: &Mapping| match part.state {
        MappingState::Written(block) => Some(block.get() * 4096),
        _ => None,
    };
    let at: Vec<u64> = parts.iter().filter_map(at).collect();
    assert_eq!(at.len(), 16, "{parts:?}");
    drop(file);
    upper.close().unwrap();
    let lower = open(outer);
    let file = lower.open_path(inner, writable()).unwrap();
    at.into_iter().for_each(|at| punch(&file, at, 4096));
    drop(file);
    lower.close().unwrap();
    let upper = open(&nest);
    let file = upper.open_path("/data", writable()).unwrap();
    let mut bytes = vec![0xEE; 16 * 8192];
    assert_eq!(file.read_bytes(0, &mut bytes).unwrap(), bytes.len());
    assert!(bytes.iter().all(|b| *b == 0));
    assert_eq!(upper.counters().map_loads, 1);
}

/// Bios that the loop device itself refuses count as in flight until they are reaped, together with those of its file. `reap`
/// returns the number that it has added, whatever is in the list already.
#[test]
fn what_is_refused_is_counted_until_it_is_reaped() {
    let _watchdog = Watchdog::new(LIMIT, "refused");
    let bed = Bed::new(&RECIPES[0], &one_worker(Policy::DIORITE));
    let options = QueueOptions::new(8).unwrap();
    let waker = options.waker.clone();
    let queue = looped_with(&bed, "/odd", options);
    bed.valve.hold(&[1]);
    let mut out = BioList::from([Bio::flush(9)]);
    for token in 0..2 {
        waker.clear();
        queue.submit(&mut [Bio::read(1 << 40, Buf::zeroed(512), token)].into());
        assert!(waker.is_kicked(), "nobody was told of {token}");
        assert_eq!(u64::from(queue.in_flight()), token + 1);
    }
    queue.submit(&mut [Bio::write(0, filled(1, 4096), 2)].into());
    let before = queue.in_flight();
    let reaped = (queue.reap(&mut out), out.len());
    let after = queue.in_flight();
    bed.valve.hold(&[]);
    assert_eq!((before, reaped, after), (3, (2, 3), 1));
    while queue.in_flight() > 0 {
        queue.reap(&mut out);
    }
    let tokens: Vec<u64> = out.iter().map(|b| b.token).collect();
    assert_eq!(tokens, [9, 0, 1, 2]);
    drop(queue);
    bed.judge();
}
