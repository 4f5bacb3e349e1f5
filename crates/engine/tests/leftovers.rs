//! Requests that have ended leave nothing behind. Rules D8, D11.
//!
//! Input: requests of one kind after the other, `DIORITE_STEPS` of each; the device fails about one in fifty. Output: nothing, or
//! what has grown. Invariants: memory, descriptors, slots, attached files, ranges, claims, pins and free space after all of them
//! are what they were after the first tenth. Limits: resident memory is noisy, so only a leak of several bytes per request is seen;
//! a longer run sees smaller ones.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::fixture::{filled, writable};
use common::recipe::{RECIPES, bare};
use common::stage::Stage;
use common::valve::Valve;
use common::watch::{Watchdog, resident};
use common::{Rng, scaled, scratch};
use diorite::device::{BioErrorKind, BioOp, Fault, FaultDevice, FaultPlan, When};
use diorite::{
    Buf, Error, Fallocate, File, FileId, MappingState, Op, OpenOptions, Queue, Request,
    RequestFlags, Usage, Volume,
};
use std::sync::Arc;
use std::time::Duration;

/// Writes that begin with this byte are failed: no metadata begins with it.
const BAD: u8 = 0xF9;
const DEPTH: u32 = 32;
/// Sizes of the file that is read and overwritten, and of the one that grows and shrinks.
const OLD: u64 = 4 << 20;
const NEW: u64 = 2 << 20;
/// Resident memory may vary by this much without a leak.
const NOISE: u64 = 3 << 20;

struct Bed {
    volume: Volume,
    queue: Queue,
    old: (File, FileId),
    new: (File, FileId),
    rng: Rng,
    failed: u64,
    batch: Vec<Request>,
    done: Vec<diorite::Completion>,
}

impl Bed {
    fn flags(&mut self) -> RequestFlags {
        RequestFlags::default().nowait(self.rng.below(50) == 0)
    }

    fn data(&mut self, len: usize) -> Buf {
        let byte = if self.rng.below(50) == 0 { BAD } else { 1 };
        match self.rng.below(4) {
            0 => Buf::from_parts(vec![filled(byte, len / 2), filled(2, len - len / 2)]),
            _ => filled(byte, len),
        }
    }

    /// A random position in the file for `len` bytes, a multiple of `len`.
    fn place(&mut self, size: u64, len: u64) -> u64 {
        self.rng.below(size / len) * len
    }

    fn push(&mut self, request: Request) {
        let flags = self.flags();
        let flags = flags.dsync(request.flags.dsync);
        self.batch.push(request.with_flags(flags));
        if self.batch.len() == DEPTH as usize {
            self.run();
        }
    }

    /// Runs the queued requests. Only the requested faults may occur.
    fn run(&mut self) {
        while !self.batch.is_empty() || self.queue.in_use() > 0 {
            self.queue.submit_from(&mut self.batch);
            self.queue.reap(&mut self.done, 1, None);
        }
        for done in self.done.drain(..) {
            match done.result {
                Ok(_) => {}
                Err(Error::Device { .. } | Error::WouldBlock(_) | Error::NotFound { .. }) => {
                    self.failed += 1
                }
                // Any other error was not requested.
                Err(error) => panic!("{:?}: {error}", done.op),
            }
        }
    }

    fn asked(&mut self, result: Result<(), Error>) {
        match result {
            Ok(()) => {}
            Err(error) if matches!(error.root(), Error::Device { .. }) => self.failed += 1,
            Err(error) => panic!("{error}"),
        }
    }
}

/// A kind of request: its name, the most that are made of it, and one pass, which returns how many it made.
type Kind = (&'static str, u64, fn(&mut Bed) -> u64);

const ALL: u64 = u64::MAX;
/// Kinds that commit, or change names, take longer: they make a tenth of the requests.
const SLOW: u64 = 10;

const KINDS: [Kind; 18] = [
    ("read", ALL, |bed| old(bed, Op::Read, 4096)),
    ("overwrite", ALL, |bed| old(bed, Op::Write, 4096)),
    ("sub-block overwrite", ALL, |bed| old(bed, Op::Write, 512)),
    ("durable overwrite", SLOW, |bed| durable(bed)),
    ("hole fill", ALL, |bed| fill(bed, 4096)),
    ("sub-block hole fill", ALL, |bed| fill(bed, 512)),
    ("unwritten fill", ALL, unwritten),
    ("append", ALL, append),
    ("extending write", ALL, extend),
    ("fsync", SLOW, |bed| sync(bed, Op::Sync)),
    ("fdatasync", SLOW, |bed| sync(bed, Op::DataSync)),
    ("volume sync", SLOW, |bed| sync(bed, Op::SyncVolume)),
    ("range operation", SLOW, ranges),
    ("blocking call", ALL, blocking),
    ("refused request", ALL, refused),
    ("name", SLOW, names),
    ("attribute", SLOW, attributes),
    ("queue and file", SLOW, queues),
];

fn old(bed: &mut Bed, op: Op, len: u64) -> u64 {
    for token in 0..DEPTH.into() {
        let pos = bed.place(OLD, len);
        let buf = bed.data(len as usize);
        let id = bed.old.1;
        bed.push(Request {
            op,
            ..Request::write(id, pos, buf, token)
        });
    }
    DEPTH.into()
}

fn durable(bed: &mut Bed) -> u64 {
    for token in 0..DEPTH.into() {
        let (pos, buf, id) = (bed.place(OLD, 4096), bed.data(4096), bed.old.1);
        let mut request = Request::write(id, pos, buf, token);
        request.flags.dsync = true;
        bed.push(request);
    }
    DEPTH.into()
}

/// Fills all holes of a file, with at most one request per block, and punches them again.
fn fill(bed: &mut Bed, len: u64) -> u64 {
    bed.new.0.truncate(0).unwrap();
    bed.new.0.truncate(NEW).unwrap();
    for block in 0..NEW / 4096 {
        let (within, buf, id) = (bed.place(4096, len), bed.data(len as usize), bed.new.1);
        bed.push(Request::write(id, block * 4096 + within, buf, block));
    }
    bed.run();
    NEW / 4096
}

fn unwritten(bed: &mut Bed) -> u64 {
    bed.new.0.truncate(0).unwrap();
    let mode = Fallocate::Allocate { keep_size: false };
    bed.new.0.fallocate(mode, 0, NEW).unwrap();
    for block in 0..NEW / 4096 {
        let len = if bed.rng.below(2) == 0 { 4096 } else { 512 };
        let (buf, id) = (bed.data(len), bed.new.1);
        bed.push(Request::write(id, block * 4096, buf, block));
    }
    bed.run();
    NEW / 4096
}

fn append(bed: &mut Bed) -> u64 {
    bed.new.0.truncate(0).unwrap();
    for token in 0..1000 {
        let len = if bed.rng.below(2) == 0 { 4096 } else { 512 };
        let (buf, id) = (bed.data(len), bed.new.1);
        bed.push(Request::append(id, buf, token));
    }
    bed.run();
    1000
}

fn extend(bed: &mut Bed) -> u64 {
    bed.new.0.truncate(0).unwrap();
    for token in 0..NEW / 2048 {
        let (gap, buf, id) = (bed.place(2048, 512), bed.data(512), bed.new.1);
        bed.push(Request::write(id, token * 2048 + gap, buf, token));
    }
    bed.run();
    NEW / 2048
}

/// A change and a sync of it, repeatedly.
fn sync(bed: &mut Bed, op: Op) -> u64 {
    for token in 0..16 {
        let (pos, buf, id) = (bed.place(OLD, 4096), bed.data(4096), bed.old.1);
        bed.push(Request::write(id, pos, buf, token));
        bed.push(Request {
            op,
            ..Request::sync(id, false, token)
        });
    }
    16
}

fn ranges(bed: &mut Bed) -> u64 {
    let (id, blocks) = (bed.new.1, NEW / 4096);
    bed.new.0.truncate(NEW).unwrap();
    for token in 0..32 {
        let (at, len) = (
            bed.rng.below(blocks / 2) * 4096,
            (1 + bed.rng.below(16)) * 4096,
        );
        let keep_size = true;
        let mode = match token % 6 {
            0 => Fallocate::Allocate { keep_size },
            1 => Fallocate::PunchHole,
            2 => Fallocate::ZeroRange { keep_size },
            3 => Fallocate::WriteZeroes { keep_size },
            4 => Fallocate::CollapseRange,
            _ => Fallocate::InsertRange,
        };
        let request = Request::fallocate(id, mode, at, len, token);
        bed.batch.push(request);
    }
    bed.run();
    32
}

fn blocking(bed: &mut Bed) -> u64 {
    let old = bed.old.0.clone();
    for _ in 0..32 {
        let (pos, buf) = (bed.place(OLD, 4096), bed.data(4096));
        let result = match bed.rng.below(2) {
            0 => old.read_buf(pos, buf).1,
            _ => old.write_buf(pos, buf).1,
        };
        bed.asked(result.map(drop));
    }
    // Uses the other file, so that one is attached and detached each time.
    let new = bed.new.0.clone();
    bed.asked(new.read_buf(0, Buf::zeroed(512)).1.map(drop));
    32
}

/// Requests that are refused before they begin. Rule D7.
fn refused(bed: &mut Bed) -> u64 {
    let id = bed.old.1;
    let requests = (0..8).flat_map(|token| {
        [
            Request::read(id, 1, Buf::zeroed(512), token),
            Request::write(id, 0, Buf::zeroed(511), token),
            Request::write(id, u64::MAX - 511, Buf::zeroed(512), token),
            Request::truncate(id, u64::MAX, token),
        ]
    });
    let mut batch: Vec<Request> = requests.collect();
    bed.queue.submit_from(&mut batch);
    bed.queue.reap(&mut bed.done, 32, None);
    assert!(bed.done.drain(..).all(|done| done.result.is_err()));
    32
}

fn names(bed: &mut Bed) -> u64 {
    let volume = &bed.volume;
    for n in 0..8 {
        let (a, b) = (format!("/name{n}"), format!("/other{n}"));
        drop(volume.create(&a, 0o644).unwrap());
        volume.link(&a, &b).unwrap();
        volume.unlink(&a).unwrap();
        volume.rename(&b, &a, Default::default()).unwrap();
        volume.symlink("target", &b).unwrap();
        volume.unlink(&b).unwrap();
        volume.mkdir(&b, 0o755).unwrap();
        volume.rmdir(&b).unwrap();
        drop(volume.temporary("/", 0o600).unwrap());
        // A file with blocks that is deleted with its last user.
        let file = volume.create(&b, 0o644).unwrap();
        file.write_buf(0, Buf::zeroed(8192)).1.unwrap();
        volume.unlink(&b).unwrap();
        volume.unlink(&a).unwrap();
    }
    8 * 11
}

fn attributes(bed: &mut Bed) -> u64 {
    let (volume, ino) = (&bed.volume, bed.old.0.ino());
    for n in 0..8 {
        let value = vec![n; 10 + 200 * usize::from(n)];
        volume.set_xattr(ino, "user.some", &value).unwrap();
        assert_eq!(volume.xattr(ino, "user.some").unwrap(), value);
        bed.old.0.set_attr(&diorite::SetAttr::default()).unwrap();
    }
    volume.remove_xattr(ino, "user.some").unwrap();
    8 * 3
}

fn queues(bed: &mut Bed) -> u64 {
    let queue = bed.volume.queue(4).unwrap();
    for token in 0..8 {
        let file = bed.volume.open_path("/old", writable()).unwrap();
        let id = queue.attach(&file).unwrap();
        let (pos, buf) = (bed.place(OLD, 4096), bed.data(4096));
        queue.push(Request::write(id, pos, buf, token)).unwrap();
        // Some files are detached with their completion still in the queue.
        match bed.rng.below(2) {
            0 => drop(queue.reap_one(None)),
            _ => queue.detach(id),
        }
        if queue.free() == 0 {
            queue.reap(&mut Vec::new(), 4, None);
        }
    }
    8
}

/// The resources in use while no request is in flight.
#[derive(Debug)]
struct Level {
    resident: u64,
    descriptors: usize,
    usage: Usage,
}

impl Level {
    fn of(bed: &mut Bed) -> Level {
        bed.run();
        bed.new.0.truncate(0).unwrap();
        // Blocking calls keep their last file attached, so this makes it the same file each time.
        bed.asked(bed.old.0.read_buf(0, Buf::zeroed(512)).1.map(drop));
        bed.volume.sync().unwrap();
        Level {
            resident: resident(),
            descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count(),
            usage: bed.volume.usage(),
        }
    }

    fn check(&self, before: &Level, kind: &str) {
        let (now, then) = (&self.usage, &before.usage);
        let said = || format!("{kind}: {before:?}, then {self:?}");
        assert_eq!(
            (now.requests, now.in_flight, now.pending, now.claimed()),
            (0, 0, 0, 0),
            "{}",
            said()
        );
        assert_eq!(now.waiting_requests, 0, "{}", said());
        assert_eq!(self.descriptors, before.descriptors, "{}", said());
        assert_eq!(
            (now.queues, now.attached),
            (then.queues, then.attached),
            "{}",
            said()
        );
        assert_eq!(
            (now.free_on_disk, now.free, now.free_inodes),
            (then.free_on_disk, then.free, then.free_inodes),
            "{}",
            said()
        );
        assert!(now.inodes <= then.inodes + 1, "{}", said());
        // Committed blocks that are not written home are pinned, at most 512 of them; the cache has its own limit.
        assert!(
            now.pinned_blocks <= 512 && now.cached_blocks <= 1024,
            "{}",
            said()
        );
        let grown = self.resident.saturating_sub(before.resident);
        assert!(grown <= NOISE, "{grown} bytes more: {}", said());
    }
}

fn bed(dir: &std::path::Path) -> (Stage, Bed) {
    let stage = Stage::mem(&bare(dir, &RECIPES[0]));
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    let old = volume.create("/old", 0o644).unwrap();
    old.write_buf(0, filled(1, OLD as usize)).1.unwrap();
    let mappings = old.mappings(0, OLD).unwrap();
    let places = mappings.iter().filter_map(|m| match m.state {
        MappingState::Written(at) => Some(at.get() * 4096..(at.get() + m.len) * 4096),
        _ => None,
    });
    let fail = |range| {
        Fault::new(BioErrorKind::Io, When::OneIn(50))
            .on(BioOp::Read)
            .within(range)
    };
    let faults: Vec<Fault> = places.map(fail).collect();
    drop(old);
    volume.close().unwrap();
    let valve = Valve::new(stage.device.clone());
    valve.fail(&[BAD]);
    let device = FaultDevice::new(Arc::new(valve), FaultPlan::new(faults, 1));
    let options = OpenOptions::writable()
        .metadata_cache(1 << 20)
        .map_cache(1 << 20)
        .workers(2);
    let volume = Volume::open_device(Arc::new(device), &options).unwrap();
    let queue = volume.queue(DEPTH).unwrap();
    let old = volume.open_path("/old", writable()).unwrap();
    let new = volume.create("/new", 0o644).unwrap();
    let (old_id, new_id) = (queue.attach(&old).unwrap(), queue.attach(&new).unwrap());
    let bed = Bed {
        queue,
        old: (old, old_id),
        new: (new, new_id),
        rng: Rng::from_env("leftovers"),
        failed: 0,
        batch: Vec::new(),
        done: Vec::new(),
        volume,
    };
    (stage, bed)
}

/// The defects: zeros for sub-block writes into new space were never freed, 16 KiB each; conversions that failed kept their claims.
#[test]
fn what_has_ended_holds_nothing() {
    let steps = scaled("DIORITE_STEPS", 100_000);
    let dir = scratch();
    let watchdog = Watchdog::new(Duration::from_secs(600), "making an image");
    let (stage, mut bed) = bed(dir.path());
    // One pass of every kind first, so that all threads, lists and memory that stay are there before measuring.
    for (_, _, pass) in KINDS {
        pass(&mut bed);
    }
    for (kind, share, pass) in KINDS {
        let steps = if share == SLOW { steps / SLOW } else { steps };
        let run = |bed: &mut Bed, count: u64| {
            let mut done = 0;
            while done < count {
                watchdog.feed(format!("{kind}: {done}"));
                done += pass(bed);
            }
        };
        run(&mut bed, steps / 10);
        let before = Level::of(&mut bed);
        run(&mut bed, steps - steps / 10);
        let after = Level::of(&mut bed);
        eprintln!(
            "{kind}: {} KiB grown, {} failed",
            after.resident.saturating_sub(before.resident) >> 10,
            bed.failed
        );
        after.check(&before, kind);
    }
    assert!(bed.failed > 0, "faults were met");
    let Bed {
        volume,
        queue,
        old,
        new,
        ..
    } = bed;
    drop((queue, old, new));
    volume.close().unwrap();
    stage.fsck();
}
