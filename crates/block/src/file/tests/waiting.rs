//! Waiting, kicks, other threads that reap, threads that exit, queues that are dropped.

use super::*;
use std::thread;

const LONG: Option<Duration> = Some(Duration::from_secs(60));

#[test]
fn a_kick_ends_a_wait_for_many() {
    every_engine(65536, |device, _| {
        let own = Own::new(device, 8);
        for _ in 0..20 {
            thread::scope(|scope| {
                scope.spawn(|| own.waker.kick());
                own.queue.wait(8, None);
            });
            own.waker.clear();
        }
        own.queue.wait(8, Some(Duration::ZERO));
        own.queue.wait(8, Some(Duration::from_millis(1)));
    });
}

/// A queue for which the host had no descriptor left works, and is no reason to change the device's engine. The defect: requests failed,
/// and every later queue was one of another engine.
#[test]
fn a_queue_without_a_descriptor_waits_and_wakes() {
    every_engine(1 << 20, |device, _| {
        let engine = device.engine();
        let waker = Arc::new(Waker::without_descriptor());
        let options = QueueOptions {
            depth: 8,
            waker: waker.clone(),
            owned_by_reaper: false,
            polled: None,
        };
        let own = Own {
            queue: device.open_queue(options).expect("a queue"),
            waker,
        };
        for _ in 0..20 {
            thread::scope(|scope| {
                scope.spawn(|| own.waker.kick());
                own.queue.wait(8, None);
            });
            own.waker.clear();
            let write = |i| Bio::write(i * 4096, filled(4096, i as u8), i);
            let mut bios: BioList = (0..8u64).map(write).collect();
            own.queue.submit(&mut bios);
            let mut done = BioList::new();
            while done.len() < 8 {
                own.queue.wait(8, LONG);
                own.waker.clear();
                own.queue.reap(&mut done);
            }
            assert!(done.iter().all(|bio| bio.result.is_ok()));
        }
        own.queue.wait(8, Some(Duration::from_millis(1)));
        assert!(own.waker.is_makeshift() && !own.waker.has_descriptor());
        assert_eq!(device.engine(), engine);
        assert!(!Own::new(device, 8).waker.is_makeshift());
    });
}

/// Rule G14, for bios: a waiter whose bios another thread reaps is kicked and does not stay asleep.
#[test]
fn a_waiter_whose_bios_a_foreigner_reaps_wakes() {
    every_engine(1 << 20, |device, _| {
        let own = Own::new(device, 32);
        for _ in 0..50 {
            let mut bios = (0..32u64)
                .map(|i| Bio::read(i * 4096, Buf::zeroed(4096), i))
                .collect();
            own.queue.submit(&mut bios);
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut out = BioList::new();
                    while out.len() < 32 && own.queue.in_flight() > 0 {
                        if own.queue.reap(&mut out) > 0 {
                            own.waker.kick();
                        }
                    }
                });
                while own.queue.in_flight() > 0 {
                    own.queue.wait(32, LONG);
                    own.waker.clear();
                }
            });
        }
    });
}

/// Requests of a thread that has exited are neither lost nor cancelled.
#[test]
fn a_submitter_may_exit() {
    every_engine(1 << 20, |device, image| {
        let own = Own::new(device, 64);
        for round in 0..10u8 {
            thread::scope(|scope| {
                scope.spawn(|| {
                    let write = |i| Bio::write(i * 4096, filled(4096, round ^ i as u8), i);
                    let mut bios: BioList = (0..40u64).map(write).collect();
                    bios.push_back(Bio::flush(40));
                    bios.push_back(Bio::range(BioOp::Discard, 1 << 19, 4096, 41));
                    own.queue.submit(&mut bios);
                    assert!(bios.is_empty());
                });
            });
            let mut done = BioList::new();
            while done.len() < 42 {
                own.queue.wait(42, LONG);
                own.waker.clear();
                own.queue.reap(&mut done);
            }
            assert!(done.iter().all(|b| b.result == Ok(())), "{done:?}");
            let bytes = std::fs::read(&image.path).expect("the test's own file");
            assert!((0..40).all(|i| bytes[i * 4096] == round ^ i as u8));
        }
    });
}

#[test]
fn a_polled_waker_is_signalled_when_bios_end() {
    every_engine(1 << 20, |device, _| {
        let own = Own::new(device, 16);
        own.queue.signal_waker();
        own.queue.signal_waker();
        for _ in 0..50 {
            own.waker.clear();
            let read = |i| Bio::read(i * 4096, Buf::zeroed(4096), i);
            let mut bios: BioList = (0..16u64).map(read).collect();
            own.queue.submit(&mut bios);
            let mut done = BioList::new();
            while done.len() < 16 {
                own.waker.wait(None);
                own.waker.clear();
                own.queue.reap(&mut done);
            }
        }
        thread::scope(|scope| {
            scope.spawn(|| own.waker.kick());
            own.queue.wait(1, None);
        });
    });
}

#[test]
fn a_dropped_queue_has_ended_all() {
    every_engine(1 << 20, |device, image| {
        for round in 1..10u8 {
            let own = Own::new(device, 64);
            let write = |i| Bio::write(i * 4096, filled(4096, round), i);
            own.queue.submit(&mut (0..64u64).map(write).collect());
            drop(own);
            let bytes = std::fs::read(&image.path).expect("the test's own file");
            assert!(bytes[..64 * 4096].iter().all(|b| *b == round));
        }
    });
}

#[test]
fn a_file_can_be_opened_again_at_once() {
    every_engine(65536, |device, image| {
        let (engine, path) = (device.engine(), image.path.with_extension("again"));
        std::fs::copy(&image.path, &path).expect("the test's own file");
        // Each round waits until the kernel has returned the memory of the ring before.
        let rounds = if short_of_lockable_memory() { 3 } else { 50 };
        for _ in 0..rounds {
            let device =
                patiently(|| FileDevice::open(&options(&path, engine))).expect("nobody has it");
            let own = Own::new(&device, 4);
            let bio = own.one(Bio::write(0, filled(512, 1), 0));
            assert_eq!(bio.result, Ok(()));
        }
    });
}

#[test]
fn depths_that_cannot_be_are_refused() {
    every_engine(65536, |device, _| {
        for depth in [0, 32_769] {
            let options = QueueOptions::new(depth).expect("an eventfd");
            device
                .open_queue(options)
                .map(drop)
                .expect_err("no such depth");
        }
        let own = Own::new(device, 32_768);
        let reads = (0..32_768u64).map(|i| Bio::read(i % 128 * 512, Buf::zeroed(512), i));
        assert!(own.run(reads).iter().all(|b| b.result == Ok(())));
    });
}

/// Many threads on one queue: every bio is reaped once, by any of them.
#[test]
fn a_queue_shared_by_many_threads() {
    every_engine(1 << 20, |device, _| {
        let own = Own::new(device, 16);
        let reaped = std::sync::atomic::AtomicU64::new(0);
        thread::scope(|scope| {
            for thread in 0..4u64 {
                let (own, reaped) = (&own, &reaped);
                scope.spawn(move || {
                    let read = |i| Bio::read(i % 256 * 4096, Buf::zeroed(4096), thread << 32 | i);
                    let mut todo: BioList = (0..500).map(read).collect();
                    while reaped.load(Ordering::Relaxed) < 2000 {
                        own.queue.submit(&mut todo);
                        let mut done = BioList::new();
                        if own.queue.reap(&mut done) == 0 {
                            own.queue.wait(4, Some(Duration::from_millis(5)));
                            own.waker.clear();
                        }
                        for bio in &done {
                            let at = (bio.token as u32 % 256) as usize * 4096;
                            assert_eq!(bio.result, Ok(()));
                            assert_eq!(bio.buf.as_slice()[11], pattern(at + 11));
                        }
                        reaped.fetch_add(done.len() as u64, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!((own.queue.in_flight(), reaped.into_inner()), (0, 2000));
    });
}

/// Opened by one thread, owned by another; kicked by a third.
#[test]
fn a_queue_owned_by_its_reaper() {
    every_engine(1 << 20, |device, _| {
        let options = QueueOptions {
            owned_by_reaper: true,
            ..QueueOptions::new(16).expect("an eventfd")
        };
        let waker = options.waker.clone();
        let queue = device.open_queue(options).expect("a queue");
        let own = Own { queue, waker };
        thread::scope(|scope| {
            scope.spawn(|| {
                for bio in
                    own.run((0..200u64).map(|i| Bio::write(i % 64 * 4096, filled(4096, 3), i)))
                {
                    assert_eq!(bio.result, Ok(()));
                }
                for _ in 0..20 {
                    thread::scope(|scope| {
                        scope.spawn(|| own.waker.kick());
                        own.queue.wait(8, None);
                    });
                    own.waker.clear();
                    own.queue.reap(&mut BioList::new());
                }
                let mut bios = (0..16u64)
                    .map(|i| Bio::read(i * 4096, Buf::zeroed(4096), i))
                    .collect();
                own.queue.submit(&mut bios);
                // Without a wait, like a thread that polls.
                let mut done = BioList::new();
                while done.len() < 16 {
                    own.queue.reap(&mut done);
                }
            });
        });
        assert_eq!(own.queue.in_flight(), 0);
    });
}
