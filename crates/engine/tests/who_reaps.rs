//! No request's accounting depends on its submitter coming back to reap (ARCHITECTURE: fast, slow, parked; rule G14).
//!
//! Everything here runs under a watchdog: the defect that these tests look for is a wait that never ends.
#![allow(clippy::unwrap_used)]

mod common;

use common::fixture::{LIMIT, made, writable};
use common::nest::{nested, unnest};
use common::recipe::{self, RECIPES};
use common::stage::{Below, Stage, one_worker};
use common::watch::{Watchdog, within};
use common::{Rng, image, scratch};
use diorite::policy::{CompletionPolicy, ReadLock, Unaligned};
use diorite::{
    AccessTimes, Error, File, FileId, Ino, OpenFlags, OpenOptions, Policy, Queue, Request,
    RequestFlags, Volume, Wait,
};
use diorite_block::{Buf, IoEngine, SimOptions};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Policies under which different requests have to wait for others.
fn policies() -> Vec<Policy> {
    let mut policies: Vec<Policy> = ["diorite", "linux-6.5", "linux-5.10", "linux-2.6.31"]
        .iter()
        .map(|n| n.parse().unwrap())
        .collect();
    policies.push(Policy {
        read_lock: ReadLock::Exclusive,
        completion: CompletionPolicy::Deferred,
        unaligned: Unaligned::Exclusive,
        ..Policy::DIORITE
    });
    policies
}

/// Submits reads and writes, aligned and not, some with DSYNC, and reaps none. Aligned requests go first.
fn leave(queue: &Queue, id: FileId, count: u64) {
    let mut batch: VecDeque<Request> = (0..count)
        .map(|n| {
            let (pos, len) = if n % 4 == 3 {
                (n * 2048, 2048)
            } else {
                (n / 2 * 4096, 4096)
            };
            let buf = Buf::zeroed(len);
            let request = if n % 8 == 0 {
                Request::read(id, pos, buf, n)
            } else {
                Request::write(id, pos, buf, n)
            };
            request.with_flags(RequestFlags {
                dsync: n % 16 == 7,
                ..RequestFlags::default()
            })
        })
        .collect();
    assert_eq!(queue.submit(&mut batch), count as usize);
}

/// Reaps `count` completions, each once, all without an error.
fn collect(queue: &Queue, count: u64) {
    let mut done = Vec::new();
    while done.len() < count as usize {
        assert!(queue.reap(&mut done, 1, None) > 0);
    }
    let tokens: HashSet<u64> = done.iter().map(|d| d.token).collect();
    assert_eq!((tokens.len(), done.len()), (count as usize, count as usize));
    for done in &done {
        assert!(
            matches!(done.result, Ok(n) if n == done.buf.len()),
            "{done:?}"
        );
    }
    assert_eq!(queue.in_use(), 0);
}

/// Runs it in this thread or in another.
fn maybe_elsewhere(elsewhere: bool, what: impl FnOnce() + Send) {
    if elsewhere {
        std::thread::scope(|s| s.spawn(what).join().unwrap());
    } else {
        what();
    }
}

/// Rules G13, G14. 64 requests are never reaped. Then the gate is closed, the file is synced and dropped, the volume closed, by the
/// same thread and by another: each call returns, and the completions are still there.
#[test]
fn nobody_has_to_come_back() {
    let mut rng = Rng::from_env("nobody-has-to-come-back");
    let dir = scratch();
    let (image, _) = recipe::make(dir.path(), &RECIPES[0], &mut rng);
    for below in Below::ALL {
        for policy in policies() {
            for elsewhere in [false, true] {
                let what = format!("{below:?}, {policy}, elsewhere: {elsewhere}");
                let watchdog = Watchdog::new(LIMIT, &what);
                let Some(stage) = Stage::new(&image, below) else {
                    continue;
                };
                let options = one_worker(policy);
                let volume = stage.open(&options).unwrap();
                let file = volume.open_path("/even", writable()).unwrap();
                let queue = volume.queue(64).unwrap();
                let id = queue.attach(&file).unwrap();
                watchdog.feed(format!("{what}: quiesce"));
                leave(&queue, id, 64);
                maybe_elsewhere(elsewhere, || drop(file.quiesce()));
                collect(&queue, 64);
                watchdog.feed(format!("{what}: sync"));
                leave(&queue, id, 64);
                maybe_elsewhere(elsewhere, || file.sync().unwrap());
                watchdog.feed(format!("{what}: blocking calls"));
                maybe_elsewhere(elsewhere, || {
                    for len in [512, 4096] {
                        assert_eq!(file.write_at(0, Buf::zeroed(len)).1.unwrap(), len);
                        assert_eq!(file.read_at(0, Buf::zeroed(len)).1.unwrap(), len);
                    }
                });
                collect(&queue, 64);
                watchdog.feed(format!("{what}: detach"));
                leave(&queue, id, 64);
                maybe_elsewhere(elsewhere, || queue.detach(id));
                collect(&queue, 64);
                watchdog.feed(format!("{what}: close"));
                let id = queue.attach(&file).unwrap();
                leave(&queue, id, 64);
                drop(file);
                maybe_elsewhere(elsewhere, || volume.close().unwrap());
                collect(&queue, 64);
                watchdog.feed(format!("{what}: dropped unreaped"));
                drop(queue);
                drop(stage);
            }
        }
    }
}

/// A queue with unreaped requests is dropped, by its thread and by another, before the volume or after it.
#[test]
fn a_queue_is_dropped_with_requests_in_flight() {
    let mut rng = Rng::from_env("dropped");
    let dir = scratch();
    let (image, _) = recipe::make(dir.path(), &RECIPES[0], &mut rng);
    for below in Below::ALL {
        for policy in policies() {
            for elsewhere in [false, true] {
                let _watchdog = Watchdog::new(LIMIT, format!("{below:?}, {policy}, {elsewhere}"));
                let Some(stage) = Stage::new(&image, below) else {
                    continue;
                };
                let options = one_worker(policy);
                let volume = stage.open(&options).unwrap();
                let file = volume.open_path("/even", writable()).unwrap();
                let queues: Vec<Queue> = (0..3).map(|_| volume.queue(64).unwrap()).collect();
                for queue in &queues {
                    let id = queue.attach(&file).unwrap();
                    leave(queue, id, 64);
                }
                drop(file);
                let outlives = elsewhere.then(|| volume.clone());
                drop(volume);
                for queue in queues {
                    maybe_elsewhere(elsewhere, || drop(queue));
                }
                drop(outlives);
                is_released(stage, &format!("{below:?}, {policy}"));
            }
        }
    }
}

/// Nothing holds the device any more, so that the image can be opened again at once.
fn is_released(stage: Stage, what: &str) {
    let device = Arc::downgrade(&stage.device);
    drop(stage);
    assert_eq!(device.strong_count(), 0, "{what}: the device is held");
}

/// The device is released with the last file or queue that outlives the volume. The defect: the times of a write behind the volume's end
/// kept it held until the next periodic commit.
#[test]
fn who_outlives_the_volume_releases_the_device() {
    let mut rng = Rng::from_env("outlives");
    let dir = scratch();
    let (image, _) = recipe::make(dir.path(), &RECIPES[0], &mut rng);
    for below in Below::ALL {
        for by_queue in [false, true] {
            let Some(stage) = Stage::new(&image, below) else {
                continue;
            };
            let volume = stage.open(&one_worker(Policy::DIORITE)).unwrap();
            let file = volume.open_path("/even", writable()).unwrap();
            let queue = volume.queue(8).unwrap();
            let id = queue.attach(&file).unwrap();
            drop(volume);
            if by_queue {
                drop(file);
                leave(&queue, id, 8);
                drop(queue);
            } else {
                drop(queue);
                file.write_at(0, Buf::zeroed(4096)).1.unwrap();
                drop(file);
            }
            is_released(stage, &format!("{below:?}, by a queue: {by_queue}"));
        }
    }
}

/// A listing that goes on behind the volume's end does not hold the device longer than it lasts: that the directory is read is not noted
/// any more. The defect: the noted time kept the device until the next periodic commit.
#[test]
fn a_listing_that_outlives_the_volume_releases_the_device() {
    let (_dir, image, _) = made(0);
    let stage = Stage::mem(&image);
    let options = OpenOptions {
        access_times: AccessTimes::Relative,
        ..OpenOptions::writable()
    };
    let volume = stage.open(&options).unwrap();
    // Makes the root's times such that the next read moves its atime.
    volume.mkdir("/new", 0o755).unwrap();
    let listing = volume.read_dir(Ino::ROOT).unwrap();
    drop(volume);
    assert!(listing.map(Result::unwrap).any(|e| e.name == b"new"));
    is_released(stage, "a listing");
}

/// Rules B3, G14 under the exclusive presets: two queues alternate on one file, and the owner of the first never comes back.
#[test]
fn a_turn_passes_through_a_queue_whose_owner_is_gone() {
    let mut rng = Rng::from_env("gone-owner");
    let dir = scratch();
    let (image, _) = recipe::make(dir.path(), &RECIPES[0], &mut rng);
    for below in Below::ALL {
        for policy in policies() {
            let _watchdog = Watchdog::new(LIMIT, format!("{below:?}, {policy}"));
            let Some(stage) = Stage::new(&image, below) else {
                continue;
            };
            let options = one_worker(policy);
            let volume = stage.open(&options).unwrap();
            let file = volume.open_path("/even", writable()).unwrap();
            let (gone, mine) = (volume.queue(64).unwrap(), volume.queue(64).unwrap());
            let (gone_id, my_id) = (gone.attach(&file).unwrap(), mine.attach(&file).unwrap());
            for _ in 0..4 {
                let mut one = VecDeque::from([Request::write(gone_id, 512, Buf::zeroed(512), 0)]);
                gone.submit(&mut one);
                let mut two = VecDeque::from([Request::write(my_id, 1024, Buf::zeroed(512), 1)]);
                mine.submit(&mut two);
            }
            collect_some(&mine, 4);
            leave(&mine, my_id, 64);
            collect(&mine, 64);
            collect_some(&gone, 4);
        }
    }
}

fn collect_some(queue: &Queue, count: usize) {
    let mut done = Vec::new();
    while done.len() < count {
        queue.reap(&mut done, 1, None);
    }
    assert!(done.iter().all(|d| d.result.is_ok()));
}

/// The same for an owner that polls the queue's descriptor, as an event loop does, and never calls a blocking reap. Every
/// completion makes the descriptor readable, also one that another thread reaped from the device; once all are reaped it stops
/// being readable.
#[test]
fn a_poll_loop_gets_every_completion_and_then_sleeps() {
    let mut rng = Rng::from_env("poll-loop");
    let dir = scratch();
    let (image, _) = recipe::make(dir.path(), &RECIPES[0], &mut rng);
    // The simulated disk completes requests by the clock, when it is reaped: nothing would signal the descriptor.
    for below in Below::ALL.into_iter().filter(|b| *b != Below::Sim) {
        for policy in policies() {
            for foreign in [false, true] {
                let what = format!("{below:?}, {policy}, foreign drains: {foreign}");
                let _watchdog = Watchdog::new(LIMIT, &what);
                let Some(stage) = Stage::new(&image, below) else {
                    continue;
                };
                let options = one_worker(policy);
                let volume = stage.open(&options).unwrap();
                let file = volume.open_path("/even", writable()).unwrap();
                let queue = volume.queue(64).unwrap();
                let id = queue.attach(&file).unwrap();
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
    let mut rng = Rng::from_env("ends-at-once");
    let dir = scratch();
    let (image, _) = recipe::make(dir.path(), &RECIPES[0], &mut rng);
    for below in Below::ALL.into_iter().filter(|b| *b != Below::Sim) {
        let _watchdog = Watchdog::new(LIMIT, format!("{below:?}"));
        let Some(stage) = Stage::new(&image, below) else {
            continue;
        };
        let volume = stage.open(&one_worker(Policy::DIORITE)).unwrap();
        let file = volume.open_path("/even", writable()).unwrap();
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

/// Rule G13: a closed gate keeps requests out; NOWAIT requests get EAGAIN at once (rule G12), others run when it opens. Any thread
/// may drop the guard.
#[test]
fn a_closed_gate_parks_and_opens() {
    let mut rng = Rng::from_env("closed-gate");
    let dir = scratch();
    let (image, _) = recipe::make(dir.path(), &RECIPES[0], &mut rng);
    for policy in policies() {
        let _watchdog = Watchdog::new(LIMIT, format!("{policy}"));
        let stage = Stage::mem(&image);
        let options = one_worker(policy);
        let volume = stage.open(&options).unwrap();
        let file = volume.open_path("/even", writable()).unwrap();
        let queue = volume.queue(256).unwrap();
        let id = queue.attach(&file).unwrap();
        let guard = file.quiesce();
        leave(&queue, id, 64);
        let mut done = Vec::new();
        assert_eq!(queue.reap(&mut done, 1, Some(Duration::from_millis(30))), 0);
        assert_eq!((queue.in_use(), queue.counters().parked), (64, 64));
        let nowait = RequestFlags {
            nowait: true,
            ..RequestFlags::default()
        };
        let mut batch: VecDeque<Request> = [
            Request::read(id, 0, Buf::zeroed(4096), 100),
            Request::write(id, 0, Buf::zeroed(4096), 101),
            Request::write(id, 0, Buf::zeroed(512), 102),
        ]
        .into_iter()
        .map(|r| r.with_flags(nowait))
        .collect();
        queue.submit(&mut batch);
        queue.reap(&mut done, 3, Some(Duration::from_secs(10)));
        assert_eq!(done.len(), 3);
        for done in &done {
            let eagain = matches!(
                done.result,
                Err(Error::WouldBlock(Wait::Gate | Wait::Exclusive))
            );
            assert!(eagain, "{done:?}");
        }
        // A sync waits for acknowledged writes only, and none was acknowledged.
        file.sync().unwrap();
        let second = std::thread::scope(|s| {
            let waits = s.spawn(|| drop(file.quiesce()));
            std::thread::sleep(Duration::from_millis(10));
            drop(guard);
            waits.join()
        });
        second.unwrap();
        collect(&queue, 64);
        assert!(file.quiesce_then_reads());
    }
}

trait Probe {
    fn quiesce_then_reads(&self) -> bool;
}

impl Probe for File {
    /// Quiesces the file and reads afterwards: the gate is open again.
    fn quiesce_then_reads(&self) -> bool {
        drop(self.quiesce());
        self.read_at(0, Buf::zeroed(512)).1.is_ok()
    }
}

/// Rules C4, G14: deferred completions that owe a flush, on a queue that only other threads drain, under every completion policy.
#[test]
fn foreign_drains_hand_deferred_work_over() {
    let mut rng = Rng::from_env("foreign-deferred");
    let dir = scratch();
    let (image, _) = recipe::make(dir.path(), &RECIPES[0], &mut rng);
    let _watchdog = Watchdog::new(LIMIT, "deferred");
    for policy in policies() {
        let options = SimOptions::parse("0,latency=50us,cache=volatile,fua=no").unwrap();
        let stage = Stage::sim(&image, options);
        let options = one_worker(policy);
        let volume = stage.open(&options).unwrap();
        let flags = OpenFlags {
            dsync: true,
            ..writable()
        };
        let file = volume.open_path("/even", flags).unwrap();
        let queue = volume.queue(64).unwrap();
        let id = queue.attach(&file).unwrap();
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    for n in 0..20 {
                        let len = if n % 2 == 0 { 512 } else { 4096 };
                        assert_eq!(file.write_at(0, Buf::zeroed(len)).1.unwrap(), len);
                        drop(file.quiesce());
                    }
                });
            }
            for _ in 0..20 {
                leave(&queue, id, 64);
                drop(file.quiesce());
                collect(&queue, 64);
            }
        });
    }
}

/// Three nested volumes with one worker per class: 2,048 unaligned exclusive writes are parked at every level, completions are
/// deferred, and nobody reaps. Quiesce, sync and the other calls return. Then e2fsck judges each image.
#[test]
fn three_volumes_deep_with_one_worker() {
    let dir = scratch();
    let nest = nested(dir.path());
    for engine in IoEngine::ALL {
        for policy in policies() {
            let what = format!("{engine}, {policy}");
            let watchdog = Watchdog::new(LIMIT, &what);
            let options = OpenOptions {
                policy,
                workers: 1,
                // Not forced, as in [`Stage::new`]: the next engine is used if there is no lockable memory for rings.
                io_engine: (engine != IoEngine::Uring).then_some(engine),
                metadata_cache: 64 << 10,
                map_cache: 0,
                ..OpenOptions::writable()
            };
            let outermost = std::path::Path::new(nest.split('!').next().unwrap());
            // Also waits until the workers of the previous round have released the image.
            if Stage::new(outermost, Below::File(engine)).is_none() {
                continue;
            }
            let volume = Volume::open(&nest, &options).unwrap();
            let file = volume.open_path("/data", writable()).unwrap();
            let queue = volume.queue(2048).unwrap();
            let id = queue.attach(&file).unwrap();
            let fill = |queue: &Queue, count: u64| {
                let mut batch: VecDeque<Request> = (0..count)
                    .map(|n| {
                        let mut buf = Buf::zeroed(512);
                        buf.as_mut_slice().fill(n as u8);
                        Request::write(id, n * 512, buf, n)
                    })
                    .collect();
                assert_eq!(queue.submit(&mut batch), count as usize);
            };
            // Passing the exclusive turn through drains by other threads only takes some milliseconds each: all 2,048 once, fewer
            // elsewhere.
            let alone = policy.unaligned == Unaligned::Exclusive;
            let first =
                engine == IoEngine::Uring && policy.completion == CompletionPolicy::Deferred;
            let many = if first || !alone { 2048 } else { 64 };
            fill(&queue, many);
            watchdog.feed(format!("{what}: quiesce elsewhere"));
            maybe_elsewhere(true, || drop(file.quiesce()));
            collect(&queue, many);
            fill(&queue, 64);
            watchdog.feed(format!("{what}: sync and a blocking write here"));
            file.sync().unwrap();
            assert_eq!(file.write_at(1 << 20, Buf::zeroed(512)).1.unwrap(), 512);
            collect(&queue, 64);
            watchdog.feed(format!("{what}: close"));
            fill(&queue, 64);
            drop(file);
            volume.close().unwrap();
            collect(&queue, 64);
            drop(queue);
        }
    }
    let volume = Volume::open(&nest, &OpenOptions::default()).unwrap();
    let file = volume.open_path("/data", OpenFlags::default()).unwrap();
    let mut out = vec![0; 1 << 20];
    assert_eq!(file.read_bytes(0, &mut out).unwrap(), 1 << 20);
    assert!(
        out.chunks(512)
            .enumerate()
            .all(|(n, c)| c.iter().all(|b| *b == n as u8))
    );
    drop((file, volume));
    unnest(dir.path(), &nest);
}

/// Volumes, files and queues are dropped in every order, with requests in flight, by several threads at once.
#[test]
fn dropping_in_any_order() {
    let mut rng = Rng::from_env("drop-order");
    let dir = scratch();
    let (image, _) = recipe::make(dir.path(), &RECIPES[0], &mut rng);
    for round in 0..60 {
        within(&format!("round {round}"), || {
            let below = Below::ALL[round % 5];
            let Some(stage) = Stage::new(&image, below) else {
                return;
            };
            let policy = policies()[round % 5];
            let options = OpenOptions {
                policy,
                workers: 1,
                // If a file outlives the last handle of its volume, uncommitted times keep the volume and its device until the next
                // commit.
                commit_interval: Duration::from_millis(20),
                ..OpenOptions::writable()
            };
            let volume = stage.open(&options).unwrap();
            let file = volume.open_path("/pieces", writable()).unwrap();
            let mut things: Vec<Box<dyn Send>> = Vec::new();
            for _ in 0..2 {
                let queue = volume.queue(64).unwrap();
                let id = queue.attach(&file).unwrap();
                leave(&queue, id, 64);
                things.push(Box::new(queue));
            }
            things.push(Box::new(file.clone()));
            things.push(Box::new(file));
            things.push(Box::new(volume.clone()));
            things.push(Box::new(volume));
            things.push(Box::new(stage));
            for n in (1..things.len()).rev() {
                things.swap(n, rng.below(n as u64 + 1) as usize);
            }
            std::thread::scope(|s| {
                for thing in things {
                    s.spawn(move || drop(thing));
                }
            });
        });
    }
}

/// An append whose size has to wait for an append in another queue, whose owner never comes back. The defect: the waiting owner
/// slept for ever, because only parked requests made it drain other queues.
#[test]
fn an_append_behind_one_that_nobody_reaps() {
    within("an append behind another queue's", || {
        let dir = scratch();
        let tree = dir.path().join("tree");
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join("file"), b"").unwrap();
        let image = image(dir.path(), "16M", &["-t", "ext4", "-b", "4096"], &tree);
        let stage = Stage::mem(&image);
        let volume = Volume::open_device(stage.device.clone(), &OpenOptions::writable()).unwrap();
        let file = volume.open_path("/file", writable()).unwrap();
        let (first, second) = (volume.queue(4).unwrap(), volume.queue(4).unwrap());
        let append = |queue: &Queue| {
            let id = queue.attach(&file).unwrap();
            let mut batch = VecDeque::from([Request::append(id, Buf::zeroed(4096), 1)]);
            assert_eq!(queue.submit(&mut batch), 1);
        };
        append(&first);
        append(&second);
        collect(&second, 1);
        assert_eq!(file.size(), 8192);
        collect(&first, 1);
        drop((first, second, file));
        volume.close().unwrap();
    });
}
