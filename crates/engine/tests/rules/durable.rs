//! What was acknowledged as durable survives power cuts (rules C5 to C7, C9, C13, L5); and how many commits that takes.
//!
//! Input: small volumes on a recording device with a volatile cache. Output: none. Invariant: a promise holds in every state that a
//! cut after its acknowledgement may leave. Limits: blocks are not torn, as these images have few copies of the superblock;
//! `DIORITE_CUTS` states per volume, spread over the whole log.

use crate::common::fixture::{DSYNC, LIMIT, filled, run_all, writable};
use crate::common::recipe::{RECIPES, Recipe, bare};
use crate::common::stage::{Stage, mem_of};
use crate::common::valve::Valve;
use crate::common::watch::Watchdog;
use crate::common::{scaled, scratch};
use crate::rules::looped::bios;
use diorite::{File, LoopDevice, OpenFlags, OpenOptions, Request, RequestFlags, Volume};
use diorite_block::record::{Event, PowerCuts, RecordDevice, plan};
use diorite_block::{Bio, BioFlags, Buf};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

const NO_JOURNAL: Recipe = Recipe {
    name: "no journal",
    args: &["-t", "ext4", "-b", "4096", "-O", "^has_journal"],
    ..RECIPES[0]
};

/// A time that nothing in the image has otherwise.
const NOW: Duration = Duration::from_secs(2_000_000_000);

/// From this position of the log on, the file holds these bytes.
struct Promise {
    from: usize,
    what: &'static str,
    path: &'static str,
    pos: u64,
    byte: u8,
    len: usize,
}

struct Session {
    record: RecordDevice,
    volume: Volume,
    promises: Vec<Promise>,
}

impl Session {
    fn write(
        &mut self,
        what: &'static str,
        path: &'static str,
        at: (u64, u8, usize),
        flags: RequestFlags,
    ) {
        let (pos, byte, len) = at;
        let file = self.open(path);
        let mut buf = Buf::zeroed(len);
        buf.as_mut_slice().fill(byte);
        assert_eq!(
            file.call(diorite::Op::Write, pos, buf, flags).1.unwrap(),
            len
        );
        if flags.dsync || flags.sync {
            self.promise(what, path, at);
        }
    }

    fn promise(
        &mut self,
        what: &'static str,
        path: &'static str,
        (pos, byte, len): (u64, u8, usize),
    ) {
        let from = self.record.mark(self.promises.len() as u64);
        self.promises.push(Promise {
            from,
            what,
            path,
            pos,
            byte,
            len,
        });
    }

    fn open(&self, path: &str) -> File {
        self.volume.open_path(path, writable()).unwrap()
    }
}

const LAZY: RequestFlags = RequestFlags::none();

/// Rules C5, C6, C9, C13, and fsync: whatever made the space new, the acknowledgement covers the mapping and the size.
#[test]
fn what_is_acknowledged_in_new_space_survives_every_cut() {
    for recipe in [&RECIPES[0], &RECIPES[3], &NO_JOURNAL] {
        let _watchdog = Watchdog::new(LIMIT, recipe.name);
        let (base, mut s, _dir) = session(recipe);
        promises(&mut s);
        every_cut(base, s, recipe);
    }
}

/// Makes the image, and opens the volume on a recording device.
fn session(recipe: &Recipe) -> (Vec<u8>, Session, tempfile::TempDir) {
    let dir = scratch();
    let base = std::fs::read(bare(dir.path(), recipe)).unwrap();
    let record = RecordDevice::with_volatile_cache(Arc::new(mem_of(&base)));
    let options = OpenOptions::writable()
        .commit_interval(Duration::from_secs(3600))
        .clock(|| NOW);
    let volume = Volume::open_device(Arc::new(record.clone()), &options).unwrap();
    let promises = Vec::new();
    let session = Session {
        record,
        volume,
        promises,
    };
    (base, session, dir)
}

/// Asserts that the promises hold wherever the power is cut after them.
fn every_cut(base: Vec<u8>, session: Session, recipe: &Recipe) {
    let Session {
        record,
        promises,
        volume,
    } = session;
    let log = record.log();
    let cuts = scaled("DIORITE_CUTS", 150) as usize;
    let mut walk = PowerCuts::new(base, &log);
    for cut in plan(&log, cuts, 1, 4096) {
        walk.with_image(cut, |image| judge(image, cut.at, &promises, recipe));
    }
    assert!(log.iter().filter(|e| matches!(e, Event::Mark(_))).count() == promises.len());
    drop(volume);
}

fn promises(s: &mut Session) {
    // First of all, so that no other commit includes the file's times.
    s.write(
        "C7: O_SYNC over what was there",
        "/odd",
        (4096, 13, 512),
        LAZY.sync(true),
    );
    s.write("C5: a hole", "/sparse", (0, 1, 4096), DSYNC);
    s.write("C5: past the end", "/empty", (0, 2, 8192), DSYNC);
    s.write("not synced", "/empty", (8192, 3, 4096), LAZY);
    s.write(
        "C13: over what is not committed",
        "/empty",
        (8192, 4, 4096),
        DSYNC,
    );
    s.write("not synced", "/sparse", (65536, 5, 512), LAZY);
    s.write(
        "C13: sectors beside it",
        "/sparse",
        (65536 + 512, 6, 512),
        DSYNC,
    );
    s.write("C6: old and new", "/sparse", (0, 7, 16384), DSYNC);
    s.write(
        "C9: O_SYNC past the end",
        "/odd",
        (102_400, 8, 1024),
        LAZY.sync(true),
    );
    s.write("not synced", "/odd", (1 << 20, 9, 4096), LAZY);
    s.open("/odd").sync().unwrap();
    s.promise("fsync after an append", "/odd", (1 << 20, 9, 4096));
    s.promise("U11: zeros before it", "/odd", (512 << 10, 0, 4096));
    s.write("C13: again", "/odd", (1 << 20, 10, 4096), DSYNC);
    // No block is mapped: only the size moves, inside a block that is written and committed.
    let end = (1 << 20) + 4096;
    s.write(
        "a block that the file ends in",
        "/odd",
        (end, 11, 512),
        DSYNC,
    );
    s.write("C9: the size alone", "/odd", (end + 512, 12, 512), DSYNC);
}

/// Rules C13, L5, on a loop device: FUA over uncommitted changes of its file, and a flush after a write into new space, make the
/// file below durable.
#[test]
fn a_loop_device_keeps_its_promises() {
    for recipe in [&RECIPES[0], &NO_JOURNAL] {
        let _watchdog = Watchdog::new(LIMIT, recipe.name);
        let (base, mut s, _dir) = session(recipe);
        let device = LoopDevice::new(s.open("/sparse"), "loop".into());
        let write = |s: &mut Session, what, (pos, byte, len): (u64, u8, usize), fua| {
            let flags = BioFlags::default().fua(fua);
            let bio = Bio {
                flags,
                ..Bio::write(pos, filled(byte, len), 0)
            };
            assert_eq!(bios(&device, 2, vec![bio])[0].result, Ok(()), "{what}");
            if fua {
                s.promise(what, "/sparse", (pos, byte, len));
            }
        };
        write(&mut s, "not synced", (8192, 1, 4096), false);
        write(&mut s, "FUA over that", (8192, 2, 4096), true);
        write(&mut s, "not synced", (40960, 3, 512), false);
        write(&mut s, "FUA of its neighbour", (40960 + 512, 4, 512), true);
        write(&mut s, "FUA into a hole", (1 << 19, 5, 8192), true);
        write(
            &mut s,
            "FUA over what is committed",
            (1 << 19, 6, 4096),
            true,
        );
        write(&mut s, "not synced", (65536, 7, 16384), false);
        assert_eq!(bios(&device, 2, vec![Bio::flush(0)])[0].result, Ok(()));
        s.promise("flush", "/sparse", (65536, 7, 16384));
        write(&mut s, "not synced", (0, 8, 4096), false);
        write(&mut s, "FUA elsewhere", (131_072, 9, 512), true);
        drop(device);
        every_cut(base, s, recipe);
    }
}

fn judge(image: &[u8], at: usize, promises: &[Promise], recipe: &Recipe) {
    let volume = Volume::open_device(Arc::new(mem_of(image)), &OpenOptions::default()).unwrap();
    // Later writes may be there or not: of several promises for the same bytes the last counts, or the write that was in flight.
    for (n, p) in promises.iter().enumerate().filter(|(_, p)| p.from < at) {
        let what = format!("{}: {} (cut at {at})", recipe.name, p.what);
        let file = volume.open_path(p.path, OpenFlags::default()).unwrap();
        let mut bytes = vec![0xEE; p.len];
        let got = file.read_bytes(p.pos, &mut bytes).unwrap();
        assert_eq!(got, p.len, "{what}: the size");
        let later = promises[n + 1..].iter().filter(|l| {
            l.path == p.path && l.pos < p.pos + p.len as u64 && p.pos < l.pos + l.len as u64
        });
        let allowed: Vec<u8> = later.map(|l| l.byte).chain([p.byte]).collect();
        let wrong = bytes.iter().position(|b| !allowed.contains(b));
        assert_eq!(wrong, None, "{what}: {:?}", wrong.map(|w| bytes[w]));
        if p.what.contains("O_SYNC") {
            assert_eq!(
                file.metadata().mtime.secs,
                NOW.as_secs() as i64,
                "{what}: rule C7"
            );
        }
    }
}

/// One commit serves every request that had ended when it began: 64 synchronous appends in flight need few commits.
#[test]
fn many_requests_share_a_commit() {
    let _watchdog = Watchdog::new(LIMIT, "group commit");
    for recipe in [&RECIPES[0], &NO_JOURNAL] {
        let dir = scratch();
        let stage = Stage::mem(&bare(dir.path(), recipe));
        let valve = Valve::new(stage.device.clone());
        let volume =
            Volume::open_device(Arc::new(valve.clone()), &OpenOptions::writable()).unwrap();
        let file = volume.open_path("/empty", writable()).unwrap();
        let queue = volume.queue(64).unwrap();
        let id = queue.attach(&file).unwrap();
        let append = |n: u64| {
            let mut buf = Buf::zeroed(4096);
            buf.as_mut_slice().fill(0xD0);
            Request::append(id, buf, n).with_flags(DSYNC)
        };
        assert!(run_all(&queue, vec![append(0)])[0].result.is_ok());
        let before = volume.journal_stats();
        valve.hold(&[0xD0]);
        queue.submit(&mut (0..64).map(append).collect::<VecDeque<_>>());
        valve.hold(&[]);
        let mut done = Vec::new();
        while done.len() < 64 {
            queue.reap(&mut done, 1, None);
        }
        assert!(done.iter().all(|d| d.result.is_ok()));
        let after = volume.journal_stats();
        let (commits, handles) = (
            after.commits - before.commits,
            after.handles - before.handles,
        );
        assert!(
            (1..=16).contains(&commits) && handles <= 32,
            "{commits} commits, {handles} handles"
        );
        assert!(after.blocks > before.blocks);
        drop((file, queue));
        volume.close().unwrap();
    }
}
