//! The contract of a device queue (at the top of `device.rs`) as one suite, run over every device.
//!
//! Input: a way to make a device. Output: its behaviour compared with the contract. Invariant: a test with random numbers
//! prints its seed when it fails. Limits: no test measures time.

#[path = "contract/devices.rs"]
mod devices;
#[path = "contract/model.rs"]
mod model;

use devices::{Subject, subjects};
use diorite_block::{Bio, BioErrorKind, BioList, BioOp, Buf, DeviceQueue, QueueOptions};
use std::collections::HashSet;
use std::time::Duration;

fn open(subject: &Subject, depth: u32) -> Box<dyn DeviceQueue> {
    let options = QueueOptions::new(depth).expect("an eventfd");
    subject.device.open_queue(options).expect("a queue")
}

/// Reaps until nothing is in flight.
fn drain(queue: &dyn DeviceQueue) -> BioList {
    let mut out = BioList::new();
    while queue.in_flight() > 0 {
        if queue.reap(&mut out) == 0 {
            queue.wait(1, Some(Duration::from_secs(10)));
        }
    }
    out
}

fn over_all(test: impl Fn(&Subject)) {
    for subject in subjects() {
        eprintln!("over {}", subject.name);
        test(&subject);
    }
}

/// Submitting and waiting in one call is the same as one after the other: it returns when something can be reaped, and takes what fits.
#[test]
fn submit_and_wait_is_both() {
    over_all(|subject| {
        let queue = open(subject, 4);
        let block = subject.device.geometry().logical as usize;
        let filled = |byte| {
            let mut buf = Buf::zeroed(block);
            buf.as_mut_slice().fill(byte);
            buf
        };
        for count in [1, 3, 9] {
            let place = |n: u8| u64::from(n) * block as u64;
            let writes = (0..count).map(|n| Bio::write(place(n), filled(n + count), n.into()));
            let reads = (0..count).map(|n| Bio::read(place(n), filled(0), n.into()));
            for mut list in [writes.collect::<BioList>(), reads.collect()] {
                let mut out = BioList::new();
                while out.len() < usize::from(count) {
                    queue.submit_and_wait(&mut list);
                    queue.reap(&mut out);
                }
                assert!(list.is_empty() && queue.in_flight() == 0);
                let is_right = |bio: &Bio| {
                    let byte = bio.token as u8 + count;
                    bio.result.is_ok() && bio.buf.as_slice().iter().all(|b| *b == byte)
                };
                assert!(out.iter().all(is_right), "{}: {out:?}", subject.name);
            }
        }
    });
}

/// Rule G5, for bios: each ends exactly once.
#[test]
fn each_bio_ends_exactly_once_and_never_in_submit() {
    over_all(|subject| {
        let queue = open(subject, 16);
        let block = u64::from(subject.device.geometry().logical);
        let (mut next, mut seen) = (0u64, HashSet::new());
        let mut list = BioList::new();
        while seen.len() < 500 {
            while next < 500 && list.len() < 8 {
                list.push_back(Bio::read(next * block, Buf::zeroed(block as usize), next));
                next += 1;
            }
            let (before, flying) = (list.len(), queue.in_flight());
            queue.submit(&mut list);
            let taken = before - list.len();
            assert_eq!(
                queue.in_flight() as usize,
                flying as usize + taken,
                "taken, not ended"
            );
            let mut out = BioList::new();
            if queue.reap(&mut out) == 0 {
                queue.wait(1, Some(Duration::from_secs(10)));
            }
            for bio in out {
                assert!(seen.insert(bio.token), "{}: ended twice", bio.token);
                assert!(bio.result.is_ok());
            }
        }
        assert_eq!((queue.in_flight(), queue.reap(&mut BioList::new())), (0, 0));
    });
}

#[test]
fn a_full_queue_keeps_the_rest_in_order() {
    over_all(|subject| {
        let queue = open(subject, 4);
        let mut list: BioList = (0..10)
            .map(|n| Bio::read(0, Buf::zeroed(4096), n))
            .collect();
        let mut ended = Vec::new();
        while ended.len() < 10 {
            queue.submit(&mut list);
            assert!(queue.in_flight() <= 4);
            let rest: Vec<u64> = list.iter().map(|b| b.token).collect();
            assert!(
                rest.windows(2).all(|w| w[0] + 1 == w[1]),
                "the rest is in order: {rest:?}"
            );
            assert!(
                rest.last().is_none_or(|n| *n == 9),
                "the front was taken: {rest:?}"
            );
            ended.extend(drain(&*queue).into_iter().map(|b| b.token));
        }
        ended.sort_unstable();
        assert_eq!(ended, (0..10).collect::<Vec<_>>());
    });
}

/// The submitter need not return: another thread can drain the queue.
#[test]
fn a_foreign_thread_can_reap() {
    over_all(|subject| {
        let queue = open(subject, 64);
        let mut list: BioList = (0..64)
            .map(|n| Bio::read(0, Buf::zeroed(4096), n))
            .collect();
        while !list.is_empty() {
            queue.submit(&mut list);
        }
        let ended = std::thread::scope(|s| s.spawn(|| drain(&*queue)).join());
        assert_eq!(ended.expect("the thread ends well").len(), 64);
        assert_eq!(queue.reap(&mut BioList::new()), 0);
    });
}

/// Two threads reap what two others submit: every bio goes to exactly one of them.
#[test]
fn many_threads_share_a_queue() {
    const EACH: u64 = 400;
    over_all(|subject| {
        let queue = open(subject, 32);
        let seen = std::sync::Mutex::new(HashSet::new());
        let submitter = |base: u64| {
            let mut list: BioList = (base..base + EACH)
                .map(|n| Bio::read(0, Buf::zeroed(4096), n))
                .collect();
            while !list.is_empty() {
                queue.submit(&mut list);
                std::thread::yield_now();
            }
        };
        let reaper = || loop {
            let mut out = BioList::new();
            if queue.reap(&mut out) == 0 {
                queue.wait(1, Some(Duration::from_millis(1)));
            }
            let mut seen = seen.lock().expect("no thread panicked");
            for bio in out {
                assert!(seen.insert(bio.token), "ended twice");
            }
            if seen.len() as u64 == 2 * EACH {
                return;
            }
        };
        std::thread::scope(|s| {
            s.spawn(|| submitter(0));
            s.spawn(|| submitter(EACH));
            s.spawn(reaper);
            s.spawn(reaper);
        });
        assert_eq!(queue.in_flight(), 0);
    });
}

#[test]
fn a_kick_ends_a_wait() {
    over_all(|subject| {
        let options = QueueOptions::new(4).expect("an eventfd");
        let waker = options.waker.clone();
        let queue = subject.device.open_queue(options).expect("a queue");
        std::thread::scope(|s| {
            s.spawn(|| {
                std::thread::sleep(Duration::from_millis(2));
                waker.kick();
            });
            // A wait may end early for no reason, so the kick ends the loop.
            while !waker.is_kicked() {
                queue.wait(1, None);
            }
        });
        waker.clear();
        assert!(!waker.is_kicked());
    });
}

/// A thread that sleeps on an empty queue is woken by another thread's submission, or by its end.
#[test]
fn what_is_submitted_while_a_thread_sleeps_ends_there() {
    over_all(|subject| {
        let options = QueueOptions::new(4).expect("an eventfd");
        let waker = options.waker.clone();
        let queue = subject.device.open_queue(options).expect("a queue");
        for _ in 0..10 {
            let (ended, is_over) = std::sync::mpsc::channel();
            std::thread::scope(|s| {
                s.spawn(|| {
                    while queue.reap(&mut BioList::new()) == 0 {
                        queue.wait(1, None);
                        waker.clear();
                    }
                    ended.send(()).expect("somebody listens");
                });
                // Usually long enough for it to fall asleep.
                std::thread::sleep(Duration::from_millis(2));
                queue.submit(&mut [Bio::read(0, Buf::zeroed(4096), 0)].into());
                let woken = is_over.recv_timeout(Duration::from_secs(60)).is_ok();
                // So that the thread ends and the result is seen.
                waker.kick();
                assert!(woken, "{}: it sleeps for ever", subject.name);
            });
        }
    });
}

#[test]
fn what_is_wrong_fails_alone() {
    over_all(|subject| {
        let geometry = subject.device.geometry();
        let (block, size) = (u64::from(geometry.logical), geometry.size);
        let wrong = [
            Bio::read(block / 2, Buf::zeroed(block as usize), 1),
            Bio::write(0, Buf::zeroed(block as usize / 2), 2),
            Bio::read(size, Buf::zeroed(block as usize), 3),
            Bio::write(size - block, Buf::zeroed(2 * block as usize), 4),
            Bio::range(BioOp::Discard, size - block, 2 * block, 5),
            Bio::range(BioOp::WriteZeroes, u64::MAX - block + 1, block, 6),
        ];
        let queue = open(subject, 16);
        let mut list: BioList = wrong.into_iter().collect();
        list.push_back(Bio::read(size - block, Buf::zeroed(block as usize), 7));
        queue.submit(&mut list);
        assert!(list.is_empty());
        let ended = drain(&*queue);
        assert_eq!(ended.len(), 7);
        for bio in ended {
            match bio.result {
                Ok(()) => assert_eq!(bio.token, 7),
                Err(e) => assert!(
                    bio.token < 7 && e.kind == BioErrorKind::Invalid,
                    "{}: {e}",
                    bio.token
                ),
            }
        }
    });
}

/// Dropping a queue waits for the bios in flight: what was taken is on the device afterwards.
#[test]
fn a_dropped_queue_has_done_what_it_took() {
    over_all(|subject| {
        let queue = open(subject, 32);
        let mut list: BioList = (0..32u64)
            .map(|n| {
                let mut buf = Buf::zeroed(4096);
                buf.as_mut_slice().fill(n as u8 + 1);
                Bio::write(n * 4096, buf, n)
            })
            .collect();
        queue.submit(&mut list);
        let taken = 32 - list.len();
        drop(queue);
        let queue = open(subject, 32);
        for n in 0..taken as u64 {
            queue.submit(&mut BioList::from([Bio::read(
                n * 4096,
                Buf::zeroed(4096),
                n,
            )]));
        }
        for bio in drain(&*queue) {
            assert!(bio.buf.as_slice().iter().all(|b| *b == bio.token as u8 + 1));
        }
    });
}

#[test]
fn an_empty_submit_and_an_empty_reap_are_nothing() {
    over_all(|subject| {
        let queue = open(subject, 4);
        queue.submit(&mut BioList::new());
        assert_eq!((queue.in_flight(), queue.reap(&mut BioList::new())), (0, 0));
        queue.wait(1, Some(Duration::ZERO));
    });
}

/// A buffer may be a vector of parts of any size, as long as the whole is a multiple of the block (rule G2).
#[test]
fn vectored_bufs_travel_whole() {
    over_all(|subject| {
        let geometry = subject.device.geometry();
        let odd = geometry.dma_align == 1;
        let part = if odd { 100 } else { geometry.logical as usize };
        let rest = 8192 - 3 * part;
        let parts = || Buf::from_parts(Vec::from([part, rest, 2 * part].map(Buf::zeroed)));
        let bytes: Vec<u8> = (0..8192u32).map(|n| (n % 253) as u8).collect();
        let mut buf = parts();
        buf.copy_in(0, &bytes);
        let queue = open(subject, 4);
        queue.submit(&mut BioList::from([Bio::write(8192, buf, 0)]));
        assert!(drain(&*queue)[0].result.is_ok());
        queue.submit(&mut BioList::from([Bio::read(8192, parts(), 0)]));
        let back: Vec<u8> = drain(&*queue)[0].buf.parts().flatten().copied().collect();
        assert_eq!(back, bytes);
    });
}

/// Random reads, writes, flushes, discards and zeroes against a byte array.
#[test]
fn a_device_is_an_array_of_bytes() {
    for seed in [1, 2, 3] {
        over_all(|subject| {
            // Flushes of a real disk are slow.
            let requests = if subject._dir.is_some() { 400 } else { 1500 };
            model::compare(subject, seed, requests);
        });
    }
}
