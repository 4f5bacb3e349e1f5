//! Owners that poll the descriptor of their queue, or look for completions without ever waiting in it.
//!
//! Input: volumes in memory, on a device that holds requests back. Output: none. Invariants: everything runs under a watchdog. Limits:
//! no time is asserted.

use crate::common::fixture::{LIMIT, attached, even, filled, made, readable, sim, writable};
use crate::common::nest::nested;
use crate::common::scratch;
use crate::common::stage::{Stage, one_worker};
use crate::common::valve::Valve;
use crate::common::watch::Watchdog;
use crate::who_waits::read;
use diorite::device::{SimClock, SimOptions};
use diorite::policy::Unaligned;
use diorite::{Completion, LoopDevice, OpenFlags, OpenOptions, Policy, Queue, Request, Volume};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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
        let (queue, id) = attached(&volume, &file, 4);
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

/// The defect: on a simulated disk with a latency nothing made the descriptor readable when that was over.
#[test]
fn who_polls_a_simulated_disk_is_told() {
    let (_dir, image, _) = made(0);
    for params in [
        "latency=0us",
        "latency=3ms",
        "latency=200us,jitter=5ms",
        "latency=2ms,parallel=1",
        "clock=auto",
        "latency=1ms,clock=auto,cache=volatile",
    ] {
        let _watchdog = Watchdog::new(LIMIT, params);
        let stage = sim(&image, params);
        let (volume, file) = even(&stage, Policy::DIORITE);
        file.mappings(0, file.size()).unwrap();
        let (queue, id) = attached(&volume, &file, 8);
        for first_poll in [true, false] {
            if first_poll {
                let _ = queue.eventfd();
            }
            for token in 0..8 {
                let write = Request::write(id, token * 4096, filled(7, 4096), token);
                queue.push(write).unwrap();
            }
            let mut out = Vec::new();
            while out.len() < 8 {
                assert!(readable(&queue, 20_000), "{params}: nobody was told");
                queue.reap(&mut out, 0, None);
            }
            assert!(out.iter().all(|done| done.result.is_ok()), "{params}");
        }
        // What was held back is told of as well.
        stage.disk().hold(true);
        queue.push(read(id, 9)).unwrap();
        std::thread::sleep(Duration::from_millis(10));
        stage.disk().hold(false);
        let mut out = Vec::new();
        while out.is_empty() {
            assert!(readable(&queue, 20_000), "{params}: nobody was told");
            queue.reap(&mut out, 0, None);
        }
        let mut looks = 0;
        while readable(&queue, 20) {
            queue.reap(&mut out, 0, None);
            looks += 1;
            assert!(
                looks < 100,
                "{params}: it stays readable with nothing to reap"
            );
        }
    }
}

/// The same with a clock that only the test moves.
#[test]
fn who_polls_a_stepped_disk_is_told_of_a_step() {
    let (_dir, image, _) = made(0);
    let _watchdog = Watchdog::new(LIMIT, "stepped");
    let stage = sim(&image, "clock=auto");
    let options = SimOptions::default()
        .clock(SimClock::Stepped)
        .size(stage.disk().options().size);
    let stage = Stage::sim(&image, options);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ended = stage.disk().step();
                std::thread::yield_now();
            }
        });
        let (volume, file) = even(&stage, Policy::DIORITE);
        let (queue, id) = attached(&volume, &file, 8);
        let _ = queue.eventfd();
        for token in 0..20 {
            queue.push(read(id, token)).unwrap();
            let mut out = Vec::new();
            while out.is_empty() {
                assert!(readable(&queue, 20_000), "nobody was told of {token}");
                queue.reap(&mut out, 0, None);
            }
        }
        drop((queue, file));
        volume.close().unwrap();
        stop.store(true, Ordering::Relaxed);
    });
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
    let (queue, id) = attached(&upper, &file, 4);
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
            let (volume, file) = even(&stage, policy);
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
