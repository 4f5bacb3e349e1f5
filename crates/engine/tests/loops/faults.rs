//! Errors below a loop device and a window: the request's alone, with its kind; the buffer comes back, neighbours stay.
//!
//! Input: devices that fail. Output: none. Invariant: what succeeded is there. Limits: data only; the metadata of the volume does not
//! fail.

use super::{MODES, bytes_of, mode, run_bios};
use crate::common::fixture::{LIMIT, filled, known, made, writable};
use crate::common::stage::{Stage, one_worker};
use crate::common::valve::Valve;
use crate::common::watch::Watchdog;
use diorite::{LoopDevice, LoopMode, PageCache, Volume};
use diorite_block::{
    Bio, BioErrorKind, BioList, BioOp, Buf, Device, Stored, WindowDevice, WindowOptions,
};
use std::sync::Arc;
use std::time::Duration;

/// A writer's byte that the device below fails.
const BAD: u8 = 0xEE;

fn looped(valve: &Valve, loop_mode: LoopMode, path: &str) -> (Volume, Arc<LoopDevice>) {
    let below = Arc::new(valve.clone());
    let volume = Volume::open_device(below, &one_worker(mode(loop_mode))).unwrap();
    let file = volume.open_path(path, writable()).unwrap();
    (volume, Arc::new(LoopDevice::new(file, "loop".into())))
}

/// Rule L4. Every third write fails below: exactly those end with an error.
#[test]
fn a_failed_write_is_its_requests_alone() {
    let _watchdog = Watchdog::new(LIMIT, "failed writes");
    let (_dir, image, files) = made(0);
    let stage = Stage::mem(&image);
    let valve = Valve::new(stage.device.clone());
    let (volume, device) = looped(&valve, LoopMode::DirectAsync, "/even");
    valve.fail(&[BAD]);
    let mut model = known(&files, "/even").bytes.clone();
    let write = |n: u64| {
        let byte = if n.is_multiple_of(3) { BAD } else { 7 };
        Bio::write(n * 4096, filled(byte, 4096), n)
    };
    for _ in 0..20 {
        for bio in run_bios(&*device, (0..5).map(write).collect()) {
            let kind = bio.result.err().map(|e| e.kind);
            let want = bio.token.is_multiple_of(3).then_some(BioErrorKind::Io);
            assert_eq!((kind, bio.buf.len()), (want, 4096));
            if kind.is_none() {
                model[bio.pos as usize..][..4096].fill(7);
            }
        }
    }
    valve.fail(&[]);
    assert!(bytes_of(&*device, 0, model.len()) == model);
    drop(device);
    volume.close().unwrap();
    stage.fsck();
}

/// A window over blocks of 4 KiB on a loop device: a read or write that fails below fails its request, and leaves the other sectors.
#[test]
fn a_failed_rewrite_leaves_its_neighbours() {
    let _watchdog = Watchdog::new(LIMIT, "failed rewrites");
    let (_dir, image, files) = made(0);
    for loop_mode in MODES {
        let stage = Stage::mem(&image);
        let valve = Valve::new(stage.device.clone());
        let (volume, device) = looped(&valve, loop_mode, "/even");
        let part = |below, sector| {
            let options = WindowOptions::default().sector(sector);
            Arc::new(WindowDevice::new(below, &options, "window".into()).unwrap())
        };
        let device = part(part(device, 4096), 512);
        let mut model = known(&files, "/even").bytes.clone();
        let all = 0..stage.device.geometry().size;
        if loop_mode == LoopMode::DirectAsync {
            valve.fail_reads(all);
        }
        let fails = loop_mode == LoopMode::DirectAsync;
        let bios: Vec<Bio> = (0..8u64)
            .map(|n| match n % 2 {
                0 => Bio::write(n * 512, filled(9, 512), n),
                _ => Bio::range(BioOp::WriteZeroes, n * 512, 512, n),
            })
            .collect();
        for bio in run_bios(&*device, bios) {
            assert_eq!(bio.result.is_err(), fails, "{bio:?}");
            assert_eq!(bio.buf.len() as u64, (1 - bio.token % 2) * 512);
            if !fails {
                let byte = if bio.token.is_multiple_of(2) { 9 } else { 0 };
                model[bio.pos as usize..][..512].fill(byte);
            }
        }
        valve.fail_reads(0..0);
        assert!(bytes_of(&*device, 0, model.len()) == model);
        // The queue's device goes on.
        let done = run_bios(&*device, vec![Bio::write(512, filled(5, 512), 0)]);
        assert_eq!(done[0].result, Ok(()));
        model[512..1024].fill(5);
        assert!(bytes_of(&*device, 0, model.len()) == model);
        drop(device);
        volume.close().unwrap();
        stage.fsck();
    }
}

/// Mode `buffered-sync`: what the pages cannot be written to is reported by the flush, once; a bio that may not be durable is none, and
/// the flush behind it reports the failure too, which may have lost other bios' data.
#[test]
fn a_failed_write_back_is_reported_by_the_flush() {
    let _watchdog = Watchdog::new(LIMIT, "failed write-back");
    let (_dir, image, _) = made(0);
    let stage = Stage::mem(&image);
    let valve = Valve::new(stage.device.clone());
    let (_volume, device) = looped(&valve, LoopMode::BufferedSync, "/even");
    valve.fail(&[BAD]);
    let write = || Bio::write(0, filled(BAD, 4096), 0);
    assert_eq!(run_bios(&*device, vec![write()])[0].result, Ok(()));
    let flush = |device: &LoopDevice| {
        let done = run_bios(device, vec![Bio::flush(0)]);
        done[0].result.err().map(|e| e.kind)
    };
    assert_eq!(flush(&device), Some(BioErrorKind::Io));
    assert_eq!(flush(&device), None);
    let mut durable = write();
    durable.flags.fua = true;
    let done = run_bios(&*device, vec![durable]).remove(0);
    assert_eq!(done.result.map_err(|e| e.kind), Err(BioErrorKind::Io));
    assert_eq!(done.buf.len(), 4096);
    assert_eq!(flush(&device), Some(BioErrorKind::Io));
    assert_eq!(flush(&device), None);
}

/// Bios that are refused at once count as in flight until they are reaped: a queue takes no more of them than its depth.
#[test]
fn refused_bios_are_bounded() {
    let _watchdog = Watchdog::new(LIMIT, "refused");
    let (_dir, image, _) = made(0);
    for loop_mode in MODES {
        let stage = Stage::mem(&image);
        let valve = Valve::new(stage.device.clone());
        let (_volume, device) = looped(&valve, loop_mode, "/even");
        let (queue, _waker) = super::open(&*device, 8);
        let refused = |n| Bio::read(u64::MAX - 511, Buf::zeroed(512), n);
        let mut bios: BioList = (0..100).map(refused).collect();
        for _ in 0..3 {
            queue.submit(&mut bios);
        }
        assert_eq!((bios.len(), queue.in_flight()), (92, 8), "{loop_mode:?}");
        let mut out = BioList::new();
        while !bios.is_empty() || queue.in_flight() > 0 {
            queue.reap(&mut out);
            queue.submit(&mut bios);
        }
        let kinds = out.iter().map(|bio| bio.result.unwrap_err().kind);
        assert_eq!(kinds.filter(|k| *k == BioErrorKind::Invalid).count(), 100);
    }
}

/// Rule L2, in both modes: a file that shrank reads as zeros behind its end; reads wholly there fail, and are counted; after a refresh
/// they are refused.
#[test]
fn a_file_that_shrank() {
    let _watchdog = Watchdog::new(LIMIT, "shrank");
    let (_dir, image, files) = made(0);
    for loop_mode in MODES {
        let stage = Stage::mem(&image);
        let (volume, device) = looped(&Valve::new(stage.device.clone()), loop_mode, "/even");
        let file = volume.open_path("/even", writable()).unwrap();
        file.truncate(10_000).unwrap();
        let read = |pos, token| Bio::read(pos, filled(0xEE, 8192), token);
        let done = run_bios(&*device, vec![read(8192, 0), read(16_384, 1)]);
        assert_eq!(done[0].result, Ok(()));
        assert!(done[0].buf.as_slice()[..1808] == known(&files, "/even").bytes[8192..10_000]);
        assert!(done[0].buf.as_slice()[1808..].iter().all(|b| *b == 0));
        let kind = done[1].result.map_err(|e| e.kind);
        assert_eq!(kind, Err(BioErrorKind::Io));
        assert!(done[1].buf.as_slice().iter().all(|b| *b == 0));
        assert_eq!(device.reads_beyond_end(), 1, "{loop_mode:?}");
        let size = device.geometry().size;
        for start in [0, 12_288, 16_384] {
            let runs = device.stored(start..size, 100).unwrap();
            assert_eq!(runs.iter().map(|run| run.len).sum::<u64>(), size - start);
            // Nobody may take what cannot be read for zeros.
            let last = runs.last().unwrap();
            assert!(last.stored == Stored::Data && last.len >= size - 16_384.max(start));
        }
        device.refresh().unwrap();
        assert_eq!(device.geometry().size, 10_240);
        let done = run_bios(&*device, vec![read(16_384, 0)]);
        let kind = done[0].result.map_err(|e| e.kind);
        assert_eq!(kind, Err(BioErrorKind::Invalid));
        assert_eq!(device.reads_beyond_end(), 1);
        let done = run_bios(&*device, vec![Bio::read(9728, Buf::zeroed(512), 0)]);
        assert_eq!(done[0].result, Ok(()), "the last, partial sector");
    }
}

/// Rule L4: a full volume is that error, in both modes; what was written before stays, and the queue goes on.
#[test]
fn a_full_volume_is_no_other_error() {
    let _watchdog = Watchdog::new(LIMIT, "full");
    let dir = crate::common::scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let sparse = std::fs::File::create(tree.join("sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    let image = crate::common::image(dir.path(), "8M", &["-t", "ext4"], &tree);
    for loop_mode in MODES {
        let stage = Stage::mem(&image);
        let (volume, device) = looped(&Valve::new(stage.device.clone()), loop_mode, "/sparse");
        let write = |n: u64| Bio::write(n << 20, filled(7, 1 << 20), n);
        let done = run_bios(&*device, (0..16).map(write).collect());
        let full = done.iter().filter(|b| b.result.is_err());
        let kinds: Vec<_> = full.map(|b| b.result.unwrap_err().kind).collect();
        assert!(!kinds.is_empty() && kinds.len() < 16, "{loop_mode:?}");
        assert!(
            kinds.iter().all(|k| *k == BioErrorKind::NoSpace),
            "{kinds:?}"
        );
        for bio in done.iter().filter(|bio| bio.result.is_ok()) {
            let got = bytes_of(&*device, bio.pos, 1 << 20);
            assert!(got.iter().all(|b| *b == 7));
        }
        assert_eq!(run_bios(&*device, vec![Bio::flush(0)])[0].result, Ok(()));
        drop(device);
        volume.close().unwrap();
        stage.fsck();
    }
}

/// Rule L1. While a request of one mode is in flight, a queue takes none of the other mode; afterwards it does. Rule L9: what is dirty
/// is written back when direct requests follow.
#[test]
fn a_queue_drains_before_it_changes_its_mode() {
    let _watchdog = Watchdog::new(LIMIT, "change of mode");
    let (_dir, image, _) = made(0);
    let stage = Stage::mem(&image);
    let valve = Valve::new(stage.device.clone());
    let options = one_worker(mode(LoopMode::DirectAsync))
        .page_cache(PageCache::new(16 << 20))
        .write_back_age(Duration::from_secs(3600));
    let volume = Volume::open_device(Arc::new(valve.clone()), &options).unwrap();
    let file = volume.open_path("/even", writable()).unwrap();
    let device = LoopDevice::new(file, "loop".into());
    let (queue, waker) = super::open(&device, 8);
    valve.hold(&[BAD]);
    let mut first = BioList::from([Bio::write(0, filled(BAD, 4096), 0)]);
    queue.submit(&mut first);
    assert!(first.is_empty());
    volume.set_policy(mode(LoopMode::BufferedSync));
    let mut second = BioList::from([Bio::write(4096, filled(5, 4096), 1)]);
    for _ in 0..5 {
        queue.submit(&mut second);
        assert_eq!((second.len(), queue.in_flight()), (1, 1));
    }
    valve.hold(&[]);
    let mut out = BioList::new();
    while out.len() < 2 {
        queue.submit(&mut second);
        if queue.reap(&mut out) == 0 {
            queue.wait(1, None);
            waker.clear();
        }
    }
    assert!(out.iter().all(|bio| bio.result.is_ok()));
    let dirty = || volume.page_cache().dirty_bytes();
    assert!(dirty() > 0, "it is in the page cache only");
    volume.set_policy(mode(LoopMode::DirectAsync));
    let mut read = BioList::from([Bio::read(65_536, Buf::zeroed(512), 2)]);
    queue.submit(&mut read);
    assert!(read.is_empty());
    while dirty() > 0 {
        std::thread::yield_now();
    }
}
