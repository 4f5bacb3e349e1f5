//! Mixed operations against an array of bytes.

use crate::common::fixture::writable;
use crate::common::names::empty;
use crate::common::stage::Stage;
use crate::common::watch::within;
use crate::common::{Rng, bytes, fsck, scaled, scratch};
use diorite::{
    Buf, Error, Fallocate, File, MappingState, OpenFlags, OpenOptions, PageCache, Seek, Volume,
};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem::take;

/// Block size and more for mke2fs, and the budget in KiB.
const KINDS: [(&[&str], u64); 7] = [
    (&["-t", "ext4", "-b", "4096"], 1024),
    (&["-t", "ext4", "-b", "1024"], 64),
    (&["-t", "ext4", "-b", "4096", "-O", "^has_journal"], 256),
    (
        &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384"],
        512,
    ),
    (&["-t", "ext4", "-b", "4096", "-O", "inline_data"], 512),
    (&["-t", "ext2", "-b", "1024"], 128),
    (&["-t", "ext4", "-b", "1024", "-O", "^has_journal"], 128),
];

/// The farthest byte.
const MOST: u64 = 300_000;

/// What ranges are inserted and collapsed in multiples of: every block and cluster divides it.
const UNIT: u64 = 16_384;

/// How many of the last operations are printed if a test fails.
const PRINTED: usize = 40;

pub(super) struct Both {
    pub(super) file: File,
    pub(super) model: Vec<u8>,
    block: u64,
    log: Log,
}

/// The last operations, printed on a panic.
#[derive(Default)]
struct Log(RefCell<VecDeque<String>>);

impl Log {
    fn note(&self, what: String) {
        let mut log = self.0.borrow_mut();
        if log.len() == PRINTED {
            log.pop_front();
        }
        log.push_back(what);
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.borrow().iter().for_each(|what| eprintln!("{what}"));
        }
    }
}

impl Both {
    pub(super) fn new(volume: &Volume, file: File, model: Vec<u8>) -> Both {
        Both {
            block: u64::from(volume.superblock().block_size()),
            file,
            model,
            log: Log::default(),
        }
    }

    pub(super) fn note(&self, what: &str) {
        let ino = self.file.ino();
        self.log
            .note(format!("{ino}, {} bytes: {what}", self.model.len()));
    }

    fn write(&mut self, rng: &mut Rng) {
        let pos = rng.below(MOST);
        let most = if rng.below(3) == 0 { 60_000 } else { 3000 };
        let mut data = vec![0; 1 + rng.below(most) as usize];
        rng.fill(&mut data);
        self.note(&format!("write {pos}+{}", data.len()));
        let done = self.file.write_bytes(pos, &data).unwrap();
        if done < data.len() {
            let rest = self.file.write_bytes(pos + done as u64, &data[done..]);
            panic!("{done} of {} bytes; then {rest:?}", data.len());
        }
        bytes::write(&mut self.model, pos as usize, &data);
    }

    fn append(&mut self, rng: &mut Rng) {
        let mut data = vec![0; 1 + rng.below(5000) as usize];
        rng.fill(&mut data);
        self.note(&format!("append {}", data.len()));
        assert_eq!(
            self.file.append_bytes(&data).unwrap(),
            self.model.len() as u64
        );
        self.model.extend(data);
    }

    fn write_direct(&mut self, rng: &mut Rng) {
        let pos = rng.below(MOST / 512) * 512;
        let mut buf = Buf::zeroed(512 * (1 + rng.below(20) as usize));
        rng.fill(buf.as_mut_slice());
        let data = buf.as_slice().to_vec();
        self.note(&format!("write directly {pos}+{}", data.len()));
        self.file.write_buf(pos, buf).1.unwrap();
        bytes::write(&mut self.model, pos as usize, &data);
    }

    fn read(&self, rng: &mut Rng) {
        let pos = rng.below(MOST) as usize;
        let mut out = vec![0x55; 1 + rng.below(40_000) as usize];
        self.note(&format!("read {pos}+{}", out.len()));
        let count = self.file.read_bytes(pos as u64, &mut out).unwrap();
        let there = self.model.get(pos..).unwrap_or_default();
        assert_eq!(count, there.len().min(out.len()), "at {pos}");
        assert!(
            out[..count] == there[..count],
            "at {pos}: {:?}",
            differs(&out, there)
        );
    }

    fn read_direct(&self, rng: &mut Rng) {
        let pos = (rng.below(MOST / 512) * 512) as usize;
        let len = 512 * (1 + rng.below(40) as usize);
        self.note(&format!("read directly {pos}+{len}"));
        let (buf, count) = self.file.read_buf(pos as u64, Buf::zeroed(len));
        let there = self.model.get(pos..).unwrap_or_default();
        let count = count.unwrap();
        assert_eq!(count, there.len().min(len), "at {pos}");
        let out = buf.as_slice();
        assert!(
            out[..count] == there[..count],
            "at {pos}: {:?}",
            differs(out, there)
        );
    }

    fn truncate(&mut self, rng: &mut Rng) {
        let size = rng.below(MOST);
        self.note(&format!("truncate to {size}"));
        self.file.truncate(size).unwrap();
        self.model.resize(size as usize, 0);
    }

    fn change_map(&mut self, rng: &mut Rng) {
        let (mut pos, mut len) = (rng.below(MOST), 1 + rng.below(30_000));
        let keep_size = rng.below(2) == 0;
        let mode = match rng.below(6) {
            0 => Fallocate::ZeroRange { keep_size },
            1 => Fallocate::Allocate { keep_size },
            2 => Fallocate::CollapseRange,
            3 => Fallocate::InsertRange,
            _ => Fallocate::PunchHole,
        };
        if matches!(mode, Fallocate::CollapseRange | Fallocate::InsertRange) {
            let size = self.model.len() as u64;
            let whole = size / UNIT;
            len = UNIT * (1 + rng.below(2));
            pos = UNIT * rng.below(whole.max(1));
            let collapses = mode == Fallocate::CollapseRange;
            if whole < 3 || collapses && pos + len >= size || !collapses && size > MOST {
                return;
            }
        }
        self.note(&format!("{mode:?} {pos}+{len}"));
        match self.file.fallocate(mode, pos, len) {
            Ok(()) => bytes::fallocate(&mut self.model, mode, pos as usize, len as usize),
            // A file without extents.
            Err(error) => assert!(matches!(error, Error::NotSupported(_)), "{error}"),
        }
    }

    /// Rule of SEEK_DATA and SEEK_HOLE: what the one passes over is zeros, and so is what the other finds; neither finds what the other
    /// has found.
    fn seek(&self, rng: &mut Rng) {
        let (from, size) = (rng.below(MOST), self.model.len() as u64);
        self.note(&format!("seek from {from}"));
        let seek = |from, what| self.file.seek_next(from, what).unwrap();
        let is_zero = |a: u64, b: u64| self.model[a as usize..b as usize].iter().all(|b| *b == 0);
        if from >= size {
            return assert_eq!(
                (seek(from, Seek::Data), seek(from, Seek::Hole)),
                (None, None)
            );
        }
        let data = seek(from, Seek::Data);
        assert!(is_zero(from, data.unwrap_or(size)), "data at {data:?}");
        if let Some(data) = data {
            assert!(
                seek(data, Seek::Hole) > Some(data),
                "data and hole at {data}"
            );
        }
        let hole = seek(from, Seek::Hole).expect("the end is a hole");
        let next = seek(hole.min(size - 1), Seek::Data);
        let end = if hole == size {
            size
        } else {
            next.unwrap_or(size)
        };
        assert!(
            hole >= from && hole <= end && is_zero(hole, end),
            "a hole at {hole}"
        );
    }

    /// The mappings cover the file; what is not written is zeros.
    fn map(&self) {
        self.note("mappings");
        let size = self.model.len() as u64;
        if size == 0 {
            return;
        }
        // A file inside its inode has none.
        let mappings = match self.file.mappings(0, size) {
            Ok(mappings) => mappings,
            Err(error) => return assert!(matches!(error, Error::NotSupported(_)), "{error}"),
        };
        let mut at = 0;
        for mapping in mappings {
            assert_eq!(mapping.start, at);
            at += mapping.len;
            let bytes = (mapping.start * self.block).min(size)..(at * self.block).min(size);
            let bytes = &self.model[bytes.start as usize..bytes.end as usize];
            let is_written = matches!(mapping.state, MappingState::Written(_));
            assert!(is_written || bytes.iter().all(|b| *b == 0), "{mapping:?}");
        }
        assert!(at * self.block >= size, "{at} blocks");
    }

    pub(super) fn step(&mut self, rng: &mut Rng) {
        match rng.below(23) {
            0..5 => self.write(rng),
            5..7 => self.append(rng),
            7..10 => self.write_direct(rng),
            10..13 => self.read(rng),
            13..16 => self.read_direct(rng),
            16 => self.truncate(rng),
            17..19 => self.change_map(rng),
            19 => {
                self.note("sync");
                self.file.sync_data().unwrap();
            }
            20 => self.seek(rng),
            21 => self.map(),
            _ => assert_eq!(self.file.size(), self.model.len() as u64),
        }
    }

    pub(super) fn check(&self) {
        let mut out = vec![0; self.model.len() + 1];
        let count = self.file.read_bytes(0, &mut out).unwrap();
        assert_eq!(count, self.model.len());
        assert!(
            out[..count] == self.model[..],
            "{:?}",
            differs(&out, &self.model)
        );
    }
}

fn differs(one: &[u8], other: &[u8]) -> Option<usize> {
    one.iter().zip(other).position(|(a, b)| a != b)
}

fn options(kib: u64) -> OpenOptions {
    OpenOptions::writable().page_cache(PageCache::new(kib << 10))
}

/// Each of several threads has a file of its own; all share the budget. At the end the volume is whole, and has what the model has.
#[test]
fn files_have_the_bytes_of_the_model() {
    for (n, (args, kib)) in KINDS.iter().enumerate() {
        let mut rng = Rng::from_env(&format!("cached model {n}"));
        let dir = scratch();
        let image = empty(dir.path(), "32M", args);
        let volume = Volume::open(image.to_str().unwrap(), &options(*kib)).unwrap();
        let steps = scaled("DIORITE_CACHED_STEPS", 400);
        let threads: Vec<_> = (0..3)
            .map(|n| {
                let file = volume.create(&format!("/{n}"), 0o644).unwrap();
                let (mut rng, mut both) = (rng.fork(), Both::new(&volume, file, Vec::new()));
                std::thread::spawn(move || {
                    for _ in 0..steps {
                        both.step(&mut rng);
                    }
                    both.check();
                    take(&mut both.model)
                })
            })
            .collect();
        let models: Vec<Vec<u8>> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        volume.close().unwrap();
        fsck(&image);
        let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::default()).unwrap();
        for (n, model) in models.into_iter().enumerate() {
            let file = volume
                .open_path(&format!("/{n}"), OpenFlags::default())
                .unwrap();
            Both::new(&volume, file, model).check();
        }
    }
}

/// One file for a long time: the volume is closed and opened again, and the budget becomes smaller and larger.
#[test]
fn a_file_has_the_bytes_of_the_model_for_a_long_time() {
    for (n, (args, kib)) in KINDS.iter().enumerate() {
        let mut rng = Rng::from_env(&format!("cached file {n}"));
        let dir = scratch();
        let stage = Stage::mem(&empty(dir.path(), "32M", args));
        let options = options(*kib);
        let mut volume = stage.open(&options).unwrap();
        let create = |path| Both::new(&volume, volume.create(path, 0o644).unwrap(), Vec::new());
        let mut gone = create("/gone");
        (0..200).for_each(|_| gone.step(&mut rng));
        drop(gone);
        volume.unlink("/gone").unwrap();
        // Rule D11. The flusher may have it for a moment.
        within("what a deleted file has claimed", || {
            while volume.usage().claimed() > 0 {
                volume.sync().unwrap();
            }
        });
        let mut both = create("/file");
        for _ in 0..scaled("DIORITE_FSX_STEPS", 1500) {
            match rng.below(60) {
                0 => {
                    both.note("close and open");
                    let (model, log) = (take(&mut both.model), take(&mut both.log));
                    drop(both);
                    volume.close().unwrap();
                    volume = stage.open(&options).unwrap();
                    let file = volume.open_path("/file", writable()).unwrap();
                    both = Both::new(&volume, file, model);
                    both.log = log;
                    both.check();
                }
                1 => {
                    let bytes = (*kib << 10) >> rng.below(3);
                    both.note(&format!("a budget of {bytes} bytes"));
                    options.page_cache.set_cache_bytes(bytes);
                }
                2 => {
                    both.note("sync of the volume");
                    volume.sync().unwrap();
                    assert_eq!(options.page_cache.dirty_bytes(), 0);
                }
                _ => both.step(&mut rng),
            }
        }
        both.check();
        let model = take(&mut both.model);
        drop(both);
        volume.close().unwrap();
        stage.fsck();
        let volume = stage.open(&OpenOptions::default()).unwrap();
        let file = volume.open_path("/file", OpenFlags::default()).unwrap();
        Both::new(&volume, file, model).check();
    }
}

/// Threads with a part each of one file, whose parts meet inside blocks: cached and direct writes, reads, syncs, and one that truncates
/// behind all of them. No byte of a part is ever another's.
#[test]
fn neighbours_do_not_disturb_each_other() {
    // Not a multiple of a block, but of a sector.
    const PART: u64 = 20_992;
    for (args, kib) in &KINDS[..4] {
        let mut rng = Rng::from_env("cached neighbours");
        let dir = scratch();
        let image = empty(dir.path(), "32M", args);
        let volume = Volume::open(image.to_str().unwrap(), &options(*kib)).unwrap();
        let file = volume.create("/file", 0o644).unwrap();
        file.write_bytes(0, &vec![0; 4 * PART as usize]).unwrap();
        let steps = scaled("DIORITE_CACHED_STEPS", 400);
        let threads: Vec<_> = (0..4u64)
            .map(|n| {
                let (file, mut rng) = (file.clone(), rng.fork());
                std::thread::spawn(move || {
                    let (base, mut model) = (n * PART, vec![0; PART as usize]);
                    for step in 0..steps {
                        let sectors = PART / 512;
                        let from = rng.below(sectors);
                        let len = 1 + rng.below((sectors - from).min(9));
                        let (from, len) = ((from * 512) as usize, (len * 512) as usize);
                        let pos = base + from as u64;
                        let mut data = vec![0; len];
                        rng.fill(&mut data);
                        match rng.below(6) {
                            0 | 1 => {
                                file.write_bytes(pos, &data).unwrap();
                                model[from..from + len].copy_from_slice(&data);
                            }
                            2 | 3 => {
                                let mut buf = Buf::zeroed(len);
                                buf.copy_in(0, &data);
                                file.write_buf(pos, buf).1.unwrap();
                                model[from..from + len].copy_from_slice(&data);
                            }
                            4 => file.sync_data().unwrap(),
                            _ => {}
                        }
                        let seen = match rng.below(2) {
                            0 => {
                                file.read_bytes(pos, &mut data).unwrap();
                                data
                            }
                            _ => file.read_buf(pos, Buf::zeroed(len)).0.as_slice().to_vec(),
                        };
                        let at = differs(&seen, &model[from..from + len]);
                        assert_eq!(at, None, "thread {n}, step {step}, {pos}+{len}");
                    }
                    model
                })
            })
            .collect();
        let expected: Vec<u8> = threads
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect();
        let mut seen = vec![0; expected.len()];
        file.read_bytes(0, &mut seen).unwrap();
        assert_eq!(differs(&seen, &expected), None);
        drop(file);
        volume.close().unwrap();
        fsck(&image);
    }
}
