//! Notifications: an owner that polls its queue's descriptor, or waits, learns of every completion, whoever reaped it.
//!
//! Input: a volume on each device that signals. Output: none. Invariants: everything runs under a watchdog. Limits: the simulated disk is
//! left out: it completes requests by the clock, when it is reaped, so nothing would signal the descriptor.

use crate::common::fixture::{LIMIT, attached, even, made, readable};
use crate::common::stage::{Below, Stage};
use crate::common::watch::Watchdog;
use crate::who_reaps::{leave, policies};
use diorite::{Policy, Queue, Request};
use diorite_block::Buf;

/// An owner polls the queue's descriptor, as an event loop does, and never calls a blocking reap. Every completion makes the
/// descriptor readable, also one that another thread reaped from the device; once all are reaped it stops being readable.
#[test]
fn a_poll_loop_gets_every_completion_and_then_sleeps() {
    let (_dir, image, _) = made(0);
    for below in Below::ALL.into_iter().filter(|b| *b != Below::Sim) {
        for policy in policies() {
            for foreign in [false, true] {
                let what = format!("{below:?}, {policy}, foreign drains: {foreign}");
                let _watchdog = Watchdog::new(LIMIT, &what);
                let Some(stage) = Stage::new(&image, below) else {
                    continue;
                };
                let (volume, file) = even(&stage, policy);
                let (queue, id) = attached(&volume, &file, 64);
                let _ = queue.eventfd();
                for _ in 0..4 {
                    leave(&queue, id, 64);
                    if foreign {
                        std::thread::scope(|s| s.spawn(|| drop(file.quiesce())).join().unwrap());
                    }
                    let mut done = Vec::new();
                    while done.len() < 64 {
                        assert!(
                            readable(&queue, 20_000),
                            "{what}: {} of 64, then silence",
                            done.len()
                        );
                        queue.reap(&mut done, 0, None);
                    }
                }
                // A few late kicks are allowed; a descriptor that stays readable would make an event loop spin.
                let mut looks = 0;
                while readable(&queue, 50) {
                    queue.reap(&mut Vec::new(), 0, None);
                    looks += 1;
                    assert!(
                        looks < 100,
                        "{what}: the descriptor stays readable with nothing to reap"
                    );
                }
            }
        }
    }
}

/// A request that needs no device I/O has ended once it is submitted, and `detach` leaves other requests that have ended in the
/// queue: a thread that waits, or polls the descriptor, is notified of both as of any other completion.
#[test]
fn what_ends_at_once_is_told() {
    let (_dir, image, _) = made(0);
    for below in Below::ALL.into_iter().filter(|b| *b != Below::Sim) {
        let _watchdog = Watchdog::new(LIMIT, format!("{below:?}"));
        let Some(stage) = Stage::new(&image, below) else {
            continue;
        };
        let (volume, file) = even(&stage, Policy::DIORITE);
        let of_another_queue = volume.queue(4).unwrap().attach(&file).unwrap();
        for polled in [false, true] {
            let queue = volume.queue(4).unwrap();
            let (id, other) = (queue.attach(&file).unwrap(), queue.attach(&file).unwrap());
            let behind_the_end = Request::read(id, 1 << 40, Buf::zeroed(4096), 0);
            let of_no_file = Request::read(of_another_queue, 0, Buf::zeroed(4096), 0);
            for request in [behind_the_end, of_no_file] {
                queue.push(request).unwrap();
                // An owner that was notified but did not reap is notified again.
                if !polled {
                    (0..2).for_each(|_| queue.wait(1, None));
                }
                told(&queue, polled, &format!("{below:?}, at once"));
            }
            // Requests that `detach` finds ended: on its first look, or on a later one.
            for detached in [other, id] {
                let read = |n| Request::read(id, n * 4096, Buf::zeroed(4096), n);
                queue.submit(&mut (0..4).map(read).collect());
                queue.detach(detached);
                told(
                    &queue,
                    polled,
                    &format!("{below:?}, after a file was detached"),
                );
            }
        }
        let queues = [false, true].map(|polled| (polled, volume.queue(4).unwrap()));
        drop(file);
        volume.close().unwrap();
        for (polled, queue) in queues {
            let request = Request::read(of_another_queue, 0, Buf::zeroed(4096), 0);
            queue.push(request).unwrap();
            told(
                &queue,
                polled,
                &format!("{below:?}, after the volume was closed"),
            );
        }
    }
}

/// Reaps all requests, but only after a notification.
fn told(queue: &Queue, polled: bool, what: &str) {
    let mut done = Vec::new();
    while queue.in_use() > 0 {
        if polled {
            let count = queue.in_use();
            assert!(
                readable(queue, 20_000),
                "{what}: {count} in use, then silence"
            );
        } else {
            queue.wait(1, None);
        }
        queue.reap(&mut done, 0, None);
    }
    assert!(!done.is_empty(), "{what}");
}
