//! Power cuts, failures, truncations and holes while several queues append to one file: the size covers only what was written, and what
//! was acknowledged as durable stays (rules C5, U1, U9, U10).
//!
//! Input: a small volume with poison in its free space, on a recording device with a volatile cache, whose writes are held at random, so
//! that appends of one queue are held for those of another. Output: none. Invariant: in every state that a cut may leave, each byte below
//! the size is of a request that had this place, or zero where one failed or a hole was made. Limits: blocks are not torn; `DIORITE_GROWN`
//! volumes with `DIORITE_CUTS` states each.

use crate::common::fixture::{LIMIT, filled, writable};
use crate::common::recipe::{RECIPES, Recipe, bare};
use crate::common::stage::mem_of;
use crate::common::valve::Valve;
use crate::common::watch::Watchdog;
use crate::common::{Rng, scaled, scratch};
use diorite::{Fallocate, File, OpenFlags, OpenOptions, Request, Volume};
use diorite_block::record::{PowerCuts, RecordDevice, plan};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const UNIT: u64 = 1024;
const SMALL: Recipe = Recipe {
    name: "journal",
    args: &["-t", "ext4", "-b", "1024", "-J", "size=1", "-m", "0"],
    size: "8M",
    ..RECIPES[1]
};
const THREADS: u8 = 3;
const ROUNDS: u64 = 12;
/// Bytes that a thread's requests are filled with.
const LABELS: u8 = 80;

/// An append that has ended.
struct Appended {
    place: Range<u64>,
    byte: u8,
    written: bool,
    /// Its data survives a cut behind this event of the log.
    durable: Option<usize>,
}

/// What has happened to the file.
#[derive(Default)]
struct History {
    appends: Vec<Appended>,
    /// What appends are filled with of which nobody knows the place.
    unseen: Vec<u8>,
    /// Bytes that were removed, or may be.
    removed: Vec<Range<u64>>,
}

struct Scene {
    record: RecordDevice,
    file: File,
    volume: Volume,
    history: Mutex<History>,
    removes: bool,
}

impl Scene {
    /// A queue that appends, and at times truncates the file or makes a hole in it.
    fn append(&self, thread: u8, mut rng: Rng) {
        let queue = self.volume.queue(16).unwrap();
        let id = queue.attach(&self.file).unwrap();
        let mut label = 0;
        for _ in 0..ROUNDS {
            let count = 1 + rng.below(12);
            let mut batch: VecDeque<Request> = (0..count)
                .map(|_| {
                    label = 1 + label % (LABELS - 1);
                    let byte = 1 + thread * LABELS + label;
                    let len = UNIT * (1 + rng.below(3));
                    let token = u64::from(byte) << 32 | len;
                    let mut append = Request::append(id, filled(byte, len as usize), token);
                    append.flags.dsync = rng.below(5) == 0;
                    append.flags.nowait = rng.below(6) == 0;
                    append
                })
                .collect();
            let durable: Vec<u64> = batch
                .iter()
                .filter(|r| r.flags.dsync)
                .map(|r| r.token)
                .collect();
            let mut left = batch.len();
            queue.submit(&mut batch);
            assert!(batch.is_empty());
            // Now and then nobody reaps for a while, so that others have to do it.
            if rng.below(4) == 0 {
                std::thread::sleep(Duration::from_micros(300));
            }
            let mut done = Vec::new();
            while left > 0 {
                let min = 1 + rng.below(left as u64) as usize;
                left -= queue.reap(&mut done, min, None);
                for done in done.drain(..) {
                    let (byte, len) = ((done.token >> 32) as u8, done.token & 0xFFFF_FFFF);
                    let written = done.result.is_ok();
                    let owed = written && durable.contains(&done.token);
                    let append = Appended {
                        place: done.pos..done.pos + len,
                        byte,
                        written,
                        durable: owed.then(|| self.record.mark(0)),
                    };
                    self.history.lock().unwrap().appends.push(append);
                }
            }
            match rng.below(8) {
                0 | 1 if !self.removes => {}
                0 => {
                    let to = (self.file.size() * 3 / 4).next_multiple_of(UNIT);
                    self.history.lock().unwrap().removed.push(to..u64::MAX);
                    self.file.truncate(to).unwrap();
                }
                1 => {
                    let at = rng.below(1 + self.file.size() / UNIT) * UNIT;
                    let hole = at..at + 2 * UNIT;
                    self.history.lock().unwrap().removed.push(hole.clone());
                    let made = self.file.fallocate(Fallocate::PunchHole, at, 2 * UNIT);
                    made.unwrap();
                }
                2 => self.file.sync_data().unwrap(),
                _ => {}
            }
        }
        let byte = 1 + thread * LABELS;
        let last = |n| Request::append(id, filled(byte, UNIT as usize), n);
        self.history.lock().unwrap().unseen.push(byte);
        queue.submit(&mut (0..4).map(last).collect());
    }
}

/// Asserts that each byte of the file was written to this place, and that what is durable is there.
fn judge(bytes: &[u8], history: &History, cut: usize, what: &str) {
    let is_removed = |at: u64| history.removed.iter().any(|r| r.contains(&at));
    for (n, block) in bytes.chunks(UNIT as usize).enumerate() {
        let at = n as u64 * UNIT;
        let byte = block[0];
        assert!(block.iter().all(|b| *b == byte), "{what}: torn at {at}");
        let mut of_here = history.appends.iter().filter(|a| a.place.contains(&at));
        let known = match byte {
            0 => is_removed(at) || of_here.any(|a| !a.written),
            _ => history.unseen.contains(&byte) || of_here.any(|a| a.byte == byte),
        };
        assert!(known, "{what}: byte {byte} at {at}");
    }
    let kept = |a: &&Appended| !is_removed(a.place.start) && !is_removed(a.place.end - 1);
    for append in history.appends.iter().filter(kept) {
        if append.durable.is_some_and(|mark| mark < cut) {
            let place = append.place.start as usize..append.place.end as usize;
            let there = bytes.get(place.clone());
            let there = there.is_some_and(|b| b.iter().all(|b| *b == append.byte));
            assert!(there, "{what}: lost {} at {place:?}", append.byte);
        }
    }
}

/// Rules C5, U1, U9, U10. Three queues with a thread each; in every other volume some appends fail, and in the second two of four the file
/// is truncated and gets holes. At its end a queue is dropped with appends that nobody reaps.
#[test]
fn what_several_queues_append_survives_cuts() {
    let mut rng = Rng::from_env("grown");
    for round in 0..scaled("DIORITE_GROWN", 4) {
        let watchdog = Watchdog::new(LIMIT, "grown");
        let dir = scratch();
        let base = std::fs::read(bare(dir.path(), &SMALL)).unwrap();
        let record = RecordDevice::with_volatile_cache(Arc::new(mem_of(&base)));
        let valve = Valve::new(Arc::new(record.clone()));
        if round % 2 == 1 {
            valve.fail(&[5, 44, 90, 131, 170, 215]);
        }
        let options = OpenOptions::writable().commit_interval(Duration::from_secs(3600));
        let volume = Volume::open_device(Arc::new(valve.clone()), &options).unwrap();
        let file = volume.open_path("/empty", writable()).unwrap();
        let scene = Scene {
            record: record.clone(),
            file,
            volume: volume.clone(),
            history: Mutex::default(),
            removes: round % 4 >= 2,
        };
        let ended = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (scene, ended) = (&scene, &ended);
                let rng = Rng::new(rng.below(u64::MAX));
                scope.spawn(move || {
                    scene.append(thread, rng);
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            }
            while ended.load(Ordering::SeqCst) < THREADS.into() {
                let held: Vec<u8> = (0..rng.below(60)).map(|_| rng.below(256) as u8).collect();
                valve.hold(&held);
                std::thread::sleep(Duration::from_micros(rng.below(600)));
                valve.hold(&[]);
                std::thread::sleep(Duration::from_micros(rng.below(200)));
            }
        });
        let Scene { file, history, .. } = scene;
        let history = history.into_inner().unwrap();
        watchdog.feed("its end");
        let mut bytes = vec![0xEE; file.size() as usize];
        file.read_bytes(0, &mut bytes).unwrap();
        judge(&bytes, &history, usize::MAX, "the end");
        file.sync().unwrap();
        drop(file);
        volume.close().unwrap();
        let log = record.log();
        let cuts = scaled("DIORITE_CUTS", 120) as usize;
        let mut walk = PowerCuts::new(base, &log);
        for cut in plan(&log, cuts, rng.below(u64::MAX), UNIT as usize) {
            let image = walk.with_image(cut, |image| image.to_vec());
            let volume =
                Volume::open_device(Arc::new(mem_of(&image)), &OpenOptions::default()).unwrap();
            let file = volume.open_path("/empty", OpenFlags::default()).unwrap();
            let mut bytes = vec![0xEE; file.size() as usize];
            file.read_bytes(0, &mut bytes).unwrap();
            judge(&bytes, &history, cut.at, &format!("{cut:?}"));
        }
    }
}
