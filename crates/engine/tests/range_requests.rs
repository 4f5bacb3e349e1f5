//! Range operations as requests of a queue: done by workers, in order with other requests, and independent of whether the submitter
//! comes back.
//!
//! Everything here that could wait for ever runs under a watchdog.

use crate::common::fixture::{LIMIT, NOWAIT, run_all, writable};
use crate::common::nest::{nested, unnest};
use crate::common::stage::{Below, Stage};
use crate::common::watch::Watchdog;
use crate::common::{fsck, image, scratch};
use diorite::{
    Completion, Error, Fallocate, File, FileId, Mapping, MappingState, OpenFlags, OpenOptions,
    Queue, Reason, Request, RequestFlags, Volume, Wait,
};
use diorite_block::{Buf, IoEngine, SimOptions};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

const BLOCK: u64 = 4096;
const PUNCH: Fallocate = Fallocate::PunchHole;
const KINDS: [&str; 3] = ["ext4", "ext3", "ext2"];

fn made(dir: &Path, kind: &str, size: &str) -> PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::write(tree.join("file"), vec![0x55; 100_001]).unwrap();
    image(dir, size, &["-t", kind, "-b", "4096", "-m", "0"], &tree)
}

fn one_worker() -> OpenOptions {
    OpenOptions::writable().workers(1)
}

fn filled(len: u64, byte: u8) -> Buf {
    let mut buf = Buf::zeroed(len as usize);
    buf.as_mut_slice().fill(byte);
    buf
}

/// Writes with range operations among them, and the file's contents if all are done in order.
fn storm(id: FileId) -> (VecDeque<Request>, Vec<u8>) {
    let (mut batch, mut model, mut token) = (VecDeque::new(), vec![0x55; 100_001], 0);
    let mut writes = |batch: &mut VecDeque<Request>, model: &mut Vec<u8>, byte: u8| {
        // Sectors and blocks; inside the file, into holes, and past the end.
        for n in 0..100u64 {
            let (pos, len) = (n * 2 * BLOCK, if n % 3 == 0 { 512 } else { BLOCK });
            token += 1;
            batch.push_back(Request::write(id, pos, filled(len, byte), token));
            let end = (pos + len) as usize;
            model.resize(model.len().max(end), 0);
            model[pos as usize..end].fill(byte);
        }
    };
    writes(&mut batch, &mut model, 1);
    batch.push_back(Request::truncate(id, 300_001, 1000));
    model.resize(300_001, 0);
    writes(&mut batch, &mut model, 2);
    batch.push_back(Request::fallocate(id, PUNCH, 5000, 400_000, 1001));
    model[5000..405_000].fill(0);
    batch.push_back(Request::truncate(id, 500_000, 1002));
    model.resize(500_000, 0);
    writes(&mut batch, &mut model, 3);
    batch.push_back(Request::fallocate(id, PUNCH, 0, 4096, 1003));
    model[..4096].fill(0);
    (batch, model)
}

fn take(queue: &Queue, count: usize) -> Vec<Completion> {
    let mut done = Vec::new();
    while done.len() < count {
        assert!(queue.reap(&mut done, 1, None) > 0);
    }
    assert_eq!(queue.in_use(), 0);
    for completion in &done {
        assert!(completion.result.is_ok(), "{completion:?}");
    }
    done
}

fn same(what: &str, file: &File, model: &[u8]) {
    assert_eq!(file.size(), model.len() as u64, "{what}: size");
    let mut bytes = vec![0xee; model.len()];
    assert_eq!(file.read_bytes(0, &mut bytes).unwrap(), bytes.len());
    let wrong = (0..bytes.len()).find(|i| bytes[*i] != model[*i]);
    assert_eq!(wrong, None, "{what}");
}

/// Hundreds of writes with truncations and holes among them, one worker per class. Nobody reaps them before another thread has
/// quiesced the file, detached it, or closed the volume. Every byte is as if all were done in order.
#[test]
fn among_writes_and_never_reaped() {
    for kind in KINDS {
        for below in Below::ALL {
            for policy in ["diorite", "linux-5.10", "linux-2.6.31"] {
                let what = format!("{kind}, {below:?}, {policy}");
                let watchdog = Watchdog::new(LIMIT, &what);
                let dir = scratch();
                let image = made(dir.path(), kind, "32M");
                let Some(stage) = Stage::new(&image, below) else {
                    continue;
                };
                let options = one_worker().policy(policy.parse().unwrap());
                let volume = stage.open(&options).unwrap();
                let file = volume.open_path("/file", writable()).unwrap();
                let queue = volume.queue(512).unwrap();
                let id = queue.attach(&file).unwrap();
                let (mut batch, model) = storm(id);
                let count = batch.len();
                assert_eq!(queue.submit(&mut batch), count);
                watchdog.feed(format!("{what}: somebody else reads"));
                std::thread::scope(|s| {
                    s.spawn(|| file.read_buf(0, Buf::zeroed(512)).1.unwrap());
                    s.spawn(|| drop(file.quiesce()));
                });
                same(&what, &file, &model);
                assert_eq!(deferred(&queue), 4, "{what}");
                take(&queue, count);
                watchdog.feed(format!("{what}: detach"));
                file.truncate(0).unwrap();
                file.truncate(100_001).unwrap();
                let (mut batch, model) = storm(id);
                assert_eq!(queue.submit(&mut batch), count);
                queue.detach(id);
                watchdog.feed(format!("{what}: close"));
                let zeros = |b: &u8| if *b == 0x55 { 0 } else { *b };
                let model: Vec<u8> = model.iter().map(zeros).collect();
                same(&what, &file, &model);
                take(&queue, count);
                let id = queue.attach(&file).unwrap();
                let (mut batch, _) = storm(id);
                assert_eq!(queue.submit(&mut batch), count);
                drop(file);
                std::thread::scope(|s| s.spawn(|| volume.close().unwrap()).join().unwrap());
                take(&queue, count);
                drop(queue);
                stage.fsck();
            }
        }
    }
}

fn deferred(queue: &Queue) -> u64 {
    let all = queue.counters().deferred;
    let at = Reason::ALL.iter().position(|r| *r == Reason::Range);
    all[at.unwrap()]
}

/// A queue is dropped with range operations under way, in this thread and in another: the drop waits for them.
#[test]
fn a_dropped_queue_waits() {
    for elsewhere in [false, true] {
        let _watchdog = Watchdog::new(LIMIT, format!("elsewhere: {elsewhere}"));
        let dir = scratch();
        let image = made(dir.path(), "ext4", "32M");
        let options = SimOptions::parse("0,latency=60us,jitter=60us,cache=volatile").unwrap();
        let stage = Stage::sim(&image, options);
        let volume = stage.open(&one_worker()).unwrap();
        let file = volume.open_path("/file", writable()).unwrap();
        let queue = volume.queue(512).unwrap();
        let id = queue.attach(&file).unwrap();
        let (mut batch, model) = storm(id);
        queue.submit(&mut batch);
        if elsewhere {
            std::thread::scope(|s| s.spawn(|| drop(queue)).join().unwrap());
        } else {
            drop(queue);
        }
        same("dropped", &file, &model);
        drop(file);
        volume.close().unwrap();
        stage.fsck();
    }
}

/// Three nested volumes with one worker per class: nobody reaps at any level. Then e2fsck judges each image.
#[test]
fn three_volumes_deep_with_one_worker() {
    let dir = scratch();
    let nest = nested(dir.path());
    for policy in ["diorite", "linux-2.6.31"] {
        let watchdog = Watchdog::new(LIMIT, policy);
        let options = one_worker()
            .policy(policy.parse().unwrap())
            .metadata_cache(64 << 10)
            .map_cache(0);
        // Waits until no worker of the previous round holds the image any more.
        let bottom = Path::new(nest.split('!').next().unwrap());
        drop(Stage::new(bottom, Below::File(IoEngine::Uring)));
        let volume = Volume::open(&nest, &options).unwrap();
        let file = volume.open_path("/data", writable()).unwrap();
        file.truncate(0).unwrap();
        let old = filled(100_352, 0x55);
        assert_eq!(file.write_buf(0, old).1.unwrap(), 100_352);
        file.truncate(100_001).unwrap();
        let queue = volume.queue(512).unwrap();
        let id = queue.attach(&file).unwrap();
        let (mut batch, model) = storm(id);
        let count = batch.len();
        queue.submit(&mut batch);
        watchdog.feed(format!("{policy}: somebody else quiesces"));
        std::thread::scope(|s| s.spawn(|| drop(file.quiesce())).join().unwrap());
        same(policy, &file, &model);
        take(&queue, count);
        watchdog.feed(format!("{policy}: close"));
        let (mut batch, _) = storm(id);
        queue.submit(&mut batch);
        drop(file);
        volume.close().unwrap();
        take(&queue, count);
    }
    unnest(dir.path(), &nest);
}

/// A request that cannot be done is refused, has waited for nothing, and leaves everything as it was.
#[test]
fn refusals() {
    let dir = scratch();
    let image = made(dir.path(), "ext4", "16M");
    let stage = Stage::mem(&image);
    let volume = stage.open(&one_worker()).unwrap();
    let file = volume.open_path("/file", writable()).unwrap();
    let queue = volume.queue(16).unwrap();
    let id = queue.attach(&file).unwrap();
    let read_only = volume.open_path("/file", OpenFlags::default()).unwrap();
    let reading = queue.attach(&read_only).unwrap();
    let gate = file.quiesce();
    let allocate = Fallocate::Allocate { keep_size: false };
    let requests = vec![
        Request::truncate(id, u64::MAX, 0),
        Request::fallocate(id, PUNCH, 0, 0, 1),
        Request::fallocate(id, allocate, u64::MAX - 1, 5, 2),
        Request::truncate(id, 0, 3).with_flags(NOWAIT),
        Request::fallocate(id, PUNCH, 0, 4096, 4).with_flags(NOWAIT),
        Request::truncate(reading, 0, 5),
        Request::fallocate(reading, allocate, 0, 4096, 6),
    ];
    let done = run_all(&queue, requests);
    let errors: Vec<_> = done.into_iter().map(|d| d.result.unwrap_err()).collect();
    assert!(matches!(errors[0], Error::TooBig { .. }));
    assert!(matches!(errors[1], Error::Invalid(_)));
    assert!(matches!(errors[2], Error::TooBig { .. }));
    assert!(matches!(errors[3], Error::WouldBlock(Wait::Metadata)));
    assert!(matches!(errors[4], Error::WouldBlock(Wait::Metadata)));
    assert!(matches!(errors[5], Error::ReadOnly(_)));
    assert!(matches!(errors[6], Error::ReadOnly(_)));
    assert_eq!((deferred(&queue), queue.counters().parked), (0, 0));
    drop(gate);
    // That there is no space is known only when the request has the exclusive turn.
    let too_much = Request::fallocate(id, allocate, 0, 64 << 20, 0);
    let after = Request::write(id, 0, filled(4096, 7), 1);
    let done = run_all(&queue, vec![too_much, after]);
    let full = &done[0].result;
    assert!(matches!(full, Err(Error::NoSpace { .. })), "{full:?}");
    assert_eq!(*done[1].result.as_ref().unwrap(), 4096);
    let mut model = vec![0x55; 100_001];
    model[..4096].fill(7);
    same("no space", &file, &model);
    let done = run_all(&queue, vec![Request::truncate(id, 100_001, 0)]);
    assert!(done[0].result.is_ok());
    drop((file, read_only, queue));
    volume.close().unwrap();
    stage.fsck();
    // A volume that is open for reading only, and one that is closed.
    let volume = stage.open(&OpenOptions::default()).unwrap();
    let file = volume.open_path("/file", OpenFlags::default()).unwrap();
    let queue = volume.queue(4).unwrap();
    let id = queue.attach(&file).unwrap();
    let done = run_all(&queue, vec![Request::truncate(id, 0, 0)]);
    assert!(matches!(done[0].result, Err(Error::ReadOnly(_))));
    volume.close().unwrap();
    let done = run_all(&queue, vec![Request::truncate(id, 0, 0)]);
    assert!(matches!(done[0].result, Err(Error::ShutDown)));
}

/// Append-only and immutable files keep their bytes; space past the end may be allocated for append-only ones.
#[test]
fn append_only_files_keep_their_bytes() {
    let dir = scratch();
    let image = made(dir.path(), "ext4", "16M");
    let path = image.to_str().unwrap();
    let flags = |flags: &str| {
        crate::common::run(
            "debugfs",
            &["-wR", &format!("sif /file flags {flags}"), path],
        );
    };
    flags("0x80020");
    let stage = Stage::mem(&image);
    let volume = stage.open(&one_worker()).unwrap();
    let file = volume.open_path("/file", writable()).unwrap();
    let refused = |done| matches!(done, Err(Error::NotPermitted { .. }));
    assert!(refused(file.truncate(0)));
    assert!(refused(file.fallocate(PUNCH, 0, 4096)));
    let allocate = Fallocate::Allocate { keep_size: true };
    file.fallocate(allocate, 200_000, 4096).unwrap();
    drop(file);
    volume.close().unwrap();
    stage.fsck();
    flags("0x80010");
    let volume = Stage::mem(&image).open(&one_worker()).unwrap();
    let file = volume.open_path("/file", writable()).unwrap();
    assert!(refused(file.truncate(0)));
    assert!(refused(file.fallocate(allocate, 0, 4096)));
}

/// With `dsync` the change is durable when it is acknowledged: the disk then holds the new size.
#[test]
fn durable_when_acknowledged() {
    let dir = scratch();
    let image = made(dir.path(), "ext4", "16M");
    let options = SimOptions::parse("0,cache=volatile,fua=no").unwrap();
    let stage = Stage::sim(&image, options);
    let volume = stage.open(&one_worker()).unwrap();
    let file = volume.open_path("/file", writable()).unwrap();
    let queue = volume.queue(4).unwrap();
    let id = queue.attach(&file).unwrap();
    let commits = || volume.journal_stats().commits;
    for (n, flags) in [(1, (true, false)), (2, (false, true))] {
        let flags = RequestFlags::none().dsync(flags.0).sync(flags.1);
        let before = commits();
        let request = Request::truncate(id, 50_000 + n, n).with_flags(flags);
        assert!(run_all(&queue, vec![request])[0].result.is_ok());
        assert_eq!(commits(), before + 1);
        // After a power cut here, the image recovers to the new size.
        let other = dir.path().join("cut");
        std::fs::write(&other, stage.bytes()).unwrap();
        let cut = Volume::open(other.to_str().unwrap(), &OpenOptions::writable()).unwrap();
        let seen = cut.open_path("/file", OpenFlags::default()).unwrap();
        assert_eq!(seen.size(), 50_000 + n);
        drop(seen);
        cut.close().unwrap();
        fsck(&other);
    }
}

/// Zeros in written blocks are written by the device where it can do that, in one request per run and without data.
#[test]
fn zeros_are_made_by_the_device() {
    let dir = scratch();
    let image = made(dir.path(), "ext4", "16M");
    let stage = Stage::sim(&image, SimOptions::parse("0").unwrap());
    let volume = stage.open(&one_worker()).unwrap();
    let file = volume.open_path("/file", writable()).unwrap();
    let before = stage.disk().counters();
    let mode = Fallocate::WriteZeroes { keep_size: false };
    file.fallocate(mode, 0, 4 << 20).unwrap();
    let did = stage.disk().counters().since(&before);
    let mappings = file.mappings(0, 4 << 20).unwrap();
    let runs = mappings.len() as u64;
    let written = |m: &Mapping| matches!(m.state, MappingState::Written(_));
    assert!(mappings.iter().all(written));
    assert!((1..=runs).contains(&did.zeroes), "{did:?} for {runs} runs");
    // The superblock, once.
    assert!(did.write_bytes <= 64 << 10, "{did:?}");
    same("zeros", &file, &[0; 4 << 20]);
    drop(file);
    volume.close().unwrap();
    stage.fsck();
}

/// The times change with every change of contents, also if only a part of a block is zeroed, and, as with the kernel's ext4, when space is
/// allocated.
#[test]
fn times_of_contents() {
    let dir = scratch();
    let image = made(dir.path(), "ext4", "16M");
    let mtime = || {
        let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::default()).unwrap();
        let file = volume.open_path("/file", OpenFlags::default()).unwrap();
        file.metadata().mtime.secs
    };
    let change = |clock, mode, pos, len| {
        let options = one_worker().clock(clock);
        let volume = Volume::open(image.to_str().unwrap(), &options).unwrap();
        let file = volume.open_path("/file", writable()).unwrap();
        file.fallocate(mode, pos, len).unwrap();
        drop(file);
        volume.close().unwrap();
        fsck(&image);
    };
    let first: fn() -> Duration = || Duration::from_secs(1_000_000_000);
    change(
        first,
        Fallocate::Allocate { keep_size: true },
        200_000,
        4096,
    );
    assert_eq!(mtime(), 1_000_000_000);
    let second: fn() -> Duration = || Duration::from_secs(1_100_000_000);
    change(second, PUNCH, 5000, 10);
    assert_eq!(mtime(), 1_100_000_000);
}
