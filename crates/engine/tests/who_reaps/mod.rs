//! No request's accounting depends on its submitter coming back to reap (ARCHITECTURE: fast, slow, parked; rule G14).
//!
//! Everything here runs under a watchdog: the defect that these tests look for is a wait that never ends. Here are the tests of owners
//! that never come back.
//!
//! | file | tests |
//! |---|---|
//! | `gate` | a file that is quiesced keeps requests out (rule G13) |
//! | `told` | owners that poll or wait are notified of every completion |
//! | `drops` | volumes, files, queues and streams that are dropped release the device, in every order |

mod drops;
mod gate;
mod told;

use crate::common::fixture::{LIMIT, attached, even, made, writable};
use crate::common::nest::{nested, unnest};
use crate::common::stage::{Below, Stage, one_worker};
use crate::common::watch::{Watchdog, within};
use crate::common::{image, scratch};
use diorite::policy::{CompletionPolicy, ReadLock, Unaligned};
use diorite::{FileId, OpenFlags, OpenOptions, Policy, Queue, Request, RequestFlags, Volume};
use diorite_block::{Buf, IoEngine, SimOptions};
use std::collections::{HashSet, VecDeque};

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
            request.with_flags(RequestFlags::default().dsync(n % 16 == 7))
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
    let (_dir, image, _) = made(0);
    for below in Below::ALL {
        for policy in policies() {
            for elsewhere in [false, true] {
                let what = format!("{below:?}, {policy}, elsewhere: {elsewhere}");
                let watchdog = Watchdog::new(LIMIT, &what);
                let Some(stage) = Stage::new(&image, below) else {
                    continue;
                };
                let (volume, file) = even(&stage, policy);
                let (queue, id) = attached(&volume, &file, 64);
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
                        assert_eq!(file.write_buf(0, Buf::zeroed(len)).1.unwrap(), len);
                        assert_eq!(file.read_buf(0, Buf::zeroed(len)).1.unwrap(), len);
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

/// Rules B3, G14 under the exclusive presets: two queues alternate on one file, and the owner of the first never comes back.
#[test]
fn a_turn_passes_through_a_queue_whose_owner_is_gone() {
    let (_dir, image, _) = made(0);
    for below in Below::ALL {
        for policy in policies() {
            let _watchdog = Watchdog::new(LIMIT, format!("{below:?}, {policy}"));
            let Some(stage) = Stage::new(&image, below) else {
                continue;
            };
            let (volume, file) = even(&stage, policy);
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

/// Rules C4, G14: deferred completions that owe a flush, on a queue that only other threads drain, under every completion policy.
#[test]
fn foreign_drains_hand_deferred_work_over() {
    let (_dir, image, _) = made(0);
    let _watchdog = Watchdog::new(LIMIT, "deferred");
    for policy in policies() {
        let options = SimOptions::parse("0,latency=50us,cache=volatile,fua=no").unwrap();
        let stage = Stage::sim(&image, options);
        let options = one_worker(policy);
        let volume = stage.open(&options).unwrap();
        let flags = writable().dsync(true);
        let file = volume.open_path("/even", flags).unwrap();
        let (queue, id) = attached(&volume, &file, 64);
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    for n in 0..20 {
                        let len = if n % 2 == 0 { 512 } else { 4096 };
                        assert_eq!(file.write_buf(0, Buf::zeroed(len)).1.unwrap(), len);
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
            let options = OpenOptions::writable()
                .policy(policy)
                .workers(1)
                // Not forced, as in [`Stage::new`]: the next engine is used if there is no lockable memory for rings.
                .io_engine((engine != IoEngine::Uring).then_some(engine))
                .metadata_cache(64 << 10)
                .map_cache(0);
            let outermost = std::path::Path::new(nest.split('!').next().unwrap());
            // Also waits until the workers of the previous round have released the image.
            if Stage::new(outermost, Below::File(engine)).is_none() {
                continue;
            }
            let volume = Volume::open(&nest, &options).unwrap();
            let file = volume.open_path("/data", writable()).unwrap();
            let (queue, id) = attached(&volume, &file, 2048);
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
            assert_eq!(file.write_buf(1 << 20, Buf::zeroed(512)).1.unwrap(), 512);
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
