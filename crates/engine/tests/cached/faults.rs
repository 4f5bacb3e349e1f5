//! One request to the device fails while files are written through the cache and beside it: every request in turn.

use crate::common::fixture::{filled, writable};
use crate::common::names::empty;
use crate::common::stage::{Stage, faulty};
use crate::common::watch::Watchdog;
use crate::common::{fsck, scratch};
use diorite::{Error, Fallocate, File, OpenFlags, OpenOptions, PageCache, Volume};
use diorite_block::{BioErrorKind, BioOp, Fault, SimOptions, When};
use diorite_format::features::Compat;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Arguments of mke2fs.
const KINDS: [&[&str]; 4] = [
    &["-t", "ext4", "-b", "4096"],
    &["-t", "ext4", "-b", "1024", "-O", "^has_journal"],
    &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "4096"],
    &["-t", "ext3", "-b", "1024"],
];

/// The bytes of blocks that no file has written.
const POISON: u8 = 0xee;

/// What `/old` has before the fault: so many bytes of this value.
const OLD: u8 = 30;
const OLD_LEN: usize = 65_536;

/// The farthest byte.
const MOST: usize = 300_000;

/// One byte of a file: the values that it may have, a bit each, and the one that it has if nothing has failed.
#[derive(Clone, Copy)]
struct Byte {
    may: u32,
    now: u8,
}

/// What is known of a file's contents.
struct Model {
    bytes: Vec<Byte>,
    /// The sizes that it may have, and the one that it has if nothing has failed.
    sizes: RangeInclusive<usize>,
    size: usize,
}

struct Known {
    path: &'static str,
    file: File,
    /// The same file, opened a second time; it is synced only in the end.
    second: File,
    model: Model,
    /// How many failed write-backs syncs of `file` have reported, and of `second`.
    told: u32,
    told_second: u32,
}

/// A workload under way.
struct Run<'a> {
    volume: &'a Volume,
    files: Vec<Known>,
    what: &'a str,
    /// How many calls have failed.
    failed: u32,
    value: u8,
}

impl Model {
    /// `size` bytes of this value.
    fn new(size: usize, value: u8) -> Model {
        let byte = |now| Byte {
            may: 1u32 << now,
            now,
        };
        let mut bytes = vec![byte(value); size];
        bytes.resize(MOST, byte(0));
        Model {
            bytes,
            sizes: size..=size,
            size,
        }
    }

    /// Notes that bytes have this value now, or may have it.
    fn put(&mut self, pos: usize, len: usize, value: u8, is_sure: bool) {
        for byte in &mut self.bytes[pos..pos + len] {
            byte.may |= 1 << value;
            if is_sure {
                byte.now = value;
            }
        }
    }

    /// Notes that the size is this one now, or may be.
    fn put_size(&mut self, size: usize, is_sure: bool) {
        self.sizes = size.min(*self.sizes.start())..=size.max(*self.sizes.end());
        if is_sure {
            self.size = size;
        }
    }

    fn truncate(&mut self, size: usize, is_sure: bool) {
        let (from, to) = (size.min(self.size), size.max(self.size));
        self.put(from, to - from, 0, is_sure);
        self.put_size(size, is_sure);
    }

    /// Everything that was acknowledged is on the device.
    fn is_durable(&mut self) {
        for byte in &mut self.bytes {
            byte.may = 1 << byte.now;
        }
        self.sizes = self.size..=self.size;
    }

    /// Any part of it may be gone.
    fn is_damaged(&mut self) {
        for byte in &mut self.bytes {
            byte.may |= 1;
        }
        self.sizes = 0..=*self.sizes.end();
    }

    /// Asserts that every byte has a value that it may have; with `exact`, the one that it has if nothing has failed. Takes over what is
    /// there.
    fn judge(&mut self, file: &File, exact: bool, what: &str) {
        let size = usize::try_from(file.size()).unwrap();
        let known = self.sizes.contains(&size) && (!exact || size == self.size);
        assert!(
            known,
            "{what}: size {size}, not {} or {:?}",
            self.size, self.sizes
        );
        let mut found = vec![POISON; size];
        assert_eq!(file.read_bytes(0, &mut found).unwrap(), size, "{what}");
        for (n, (found, byte)) in found.iter().zip(&mut self.bytes).enumerate() {
            let known = byte.allows(*found) && (!exact || *found == byte.now);
            assert!(
                known,
                "{what}, byte {n}: {found:#x}, not {}; may be {:#b}",
                byte.now, byte.may
            );
            byte.now = *found;
        }
        self.bytes[size..].iter_mut().for_each(|byte| byte.now = 0);
        self.size = size;
    }
}

impl Byte {
    fn allows(self, value: u8) -> bool {
        value < 32 && self.may >> value & 1 == 1
    }
}

impl Known {
    fn open(volume: &Volume, path: &'static str, model: Model) -> Result<Known, Error> {
        let file = volume.open_path(path, writable())?;
        Ok(Known {
            path,
            second: volume.open_ino(file.ino(), writable())?,
            file,
            model,
            told: 0,
            told_second: 0,
        })
    }

    /// Does the result report a failed write-back of this file?
    fn is_told(&self, result: &Result<(), Error>) -> bool {
        let of = format!("write-back of inode {}", self.file.ino());
        result.as_ref().is_err_and(|e| e.to_string().contains(&of))
    }
}

impl Run<'_> {
    fn model(&mut self, n: usize) -> &mut Model {
        &mut self.files[n].model
    }

    /// Notes whether a call has failed.
    fn note<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                let is_short =
                    matches!(error.root(), Error::NoSpace { .. } | Error::NoMemory { .. });
                assert!(!is_short, "{}: {error}", self.what);
                self.failed += 1;
                None
            }
        }
    }

    fn next_value(&mut self) -> u8 {
        self.value += 1;
        assert!(self.value < OLD);
        self.value
    }

    fn write(&mut self, n: usize, pos: usize, len: usize) {
        let value = self.next_value();
        let file = &self.files[n].file;
        let done = file.write_bytes(pos as u64, &vec![value; len]);
        self.written(n, (pos, len), value, done);
    }

    fn write_direct(&mut self, n: usize, pos: usize, len: usize) {
        let value = self.next_value();
        let done = self.files[n]
            .file
            .write_buf(pos as u64, filled(value, len))
            .1;
        self.written(n, (pos, len), value, done);
    }

    fn append(&mut self, n: usize, len: usize) {
        let value = self.next_value();
        let at = self.files[n].file.append_bytes(&vec![value; len]);
        let pos = at.as_ref().map_or(self.model(n).size, |at| *at as usize);
        let known = self.model(n).sizes.contains(&pos);
        assert!(known, "{}: an append at {pos}", self.what);
        self.written(n, (pos, len), value, at.map(|_| len));
    }

    fn written(
        &mut self,
        n: usize,
        (pos, len): (usize, usize),
        value: u8,
        done: Result<usize, Error>,
    ) {
        let done = self.note(done).unwrap_or(0);
        let model = self.model(n);
        model.put(pos, done, value, true);
        model.put(pos + done, len - done, value, false);
        model.put_size(model.size.max(pos + done), done > 0);
        model.put_size(model.size.max(pos + len), false);
    }

    fn truncate(&mut self, n: usize, size: usize) {
        let done = self.files[n].file.truncate(size as u64);
        let is_sure = self.note(done).is_some();
        self.model(n).truncate(size, is_sure);
    }

    fn punch(&mut self, n: usize, pos: usize, len: usize) {
        let file = &self.files[n].file;
        let done = file.fallocate(Fallocate::PunchHole, pos as u64, len as u64);
        let is_sure = self.note(done).is_some();
        self.model(n).put(pos, len, 0, is_sure);
    }

    fn sync(&mut self, n: usize) {
        let done = self.files[n].file.sync();
        let known = &mut self.files[n];
        known.told += u32::from(known.is_told(&done));
        if self.note(done).is_some() && self.failed == 0 {
            self.model(n).is_durable();
        }
    }

    /// Reads some bytes of each file.
    fn read(&mut self) {
        for n in 0..self.files.len() {
            let mut out = [POISON; 5000];
            let done = self.files[n].file.read_bytes(9000, &mut out);
            let count = self.note(done).unwrap_or(0);
            for (found, byte) in out[..count].iter().zip(&self.files[n].model.bytes[9000..]) {
                assert!(byte.allows(*found), "{}: {found:#x}", self.what);
            }
        }
    }

    fn workload(&mut self) {
        let (new, old) = (0, 1);
        self.write(new, 0, 50_000);
        self.append(new, 10_000);
        self.sync(new);
        // In the middle of blocks whose rest has to be read.
        self.write(old, 100, 3000);
        self.write(new, 5000, 4001);
        self.write_direct(new, 8192, 4096);
        self.write_direct(old, 512, 1024);
        self.read();
        self.sync(old);
        // Behind a hole, and into space that was preallocated.
        self.write(new, 200_000, 30_001);
        self.write(old, 70_000, 20_000);
        self.truncate(new, 102_400);
        self.write_direct(new, 102_400, 8192);
        self.append(new, 5000);
        self.sync(new);
        self.punch(old, 10_000, 30_000);
        self.write(old, 20_001, 9000);
        self.read();
        self.write(new, 0, 3);
        self.truncate(new, 60_000);
        self.append(new, 1000);
        self.write_direct(old, 65_536, 4096);
        self.sync(old);
        self.append(old, 100_000);
        self.sync(new);
        self.sync(old);
    }

    /// Syncs until everything is reported; asserts that each open file was told as often as the other, and what the files have. Returns
    /// whether the volume takes changes.
    fn settle(&mut self) -> bool {
        for round in 0.. {
            let before = self.failed;
            for n in 0..self.files.len() {
                self.sync(n);
                let done = self.files[n].second.sync();
                let known = &mut self.files[n];
                known.told_second += u32::from(known.is_told(&done));
                self.note(done);
            }
            let done = self.volume.sync();
            self.note(done);
            let done = self.volume.create(&format!("/{round}"), 0o600);
            if self.note(done).is_none() && self.is_latched() {
                return false;
            }
            if self.failed == before {
                break;
            }
            assert!(round < 4, "{}: told again and again", self.what);
        }
        let exact = self.failed == 0;
        for known in &mut self.files {
            let what = format!("{}, {}", self.what, known.path);
            assert_eq!(known.told, known.told_second, "{what}");
            assert!(known.told <= 1, "{what}");
            known.model.judge(&known.file, exact, &what);
        }
        true
    }

    fn is_latched(&self) -> bool {
        let again = self.volume.create("/again", 0o600);
        let is_aborted = |e: &Error| matches!(e.root(), Error::Aborted(_));
        let known = again.as_ref().map_or_else(is_aborted, |_| true);
        assert!(known, "{}: {again:?}", self.what);
        again.is_err()
    }
}

/// An image whose free blocks are poison, with an empty file, and one that has old bytes and a preallocated part.
fn make(dir: &Path, args: &[&str]) -> PathBuf {
    std::fs::write(dir.join("image"), vec![POISON; 8 << 20]).unwrap();
    let image = empty(dir, "8M", &[args, &["-E", "nodiscard"]].concat());
    let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap();
    drop(volume.create("/new", 0o644).unwrap());
    let old = volume.create("/old", 0o644).unwrap();
    old.write_bytes(0, &[OLD; OLD_LEN]).unwrap();
    let mode = Fallocate::Allocate { keep_size: true };
    // A file without extents has holes there.
    let _preallocated = old.fallocate(mode, OLD_LEN as u64, OLD_LEN as u64);
    drop(old);
    volume.close().unwrap();
    fsck(&image);
    image
}

/// Runs the workload with the nth request of one kind failing. False if no request has failed.
fn with_fault(stage: &Stage, what: &str, op: BioOp, nth: u64) -> bool {
    let fault = Fault::new(BioErrorKind::Io, When::nth(nth)).on(op);
    let device = faulty(stage.device.clone(), vec![fault]);
    let cache = PageCache::new(8 << 20);
    let options = OpenOptions::writable().page_cache(cache.clone());
    let opened = Volume::open_device(device.clone(), &options).and_then(|volume| {
        let new = Known::open(&volume, "/new", Model::new(0, 0))?;
        let old = Known::open(&volume, "/old", Model::new(OLD_LEN, OLD))?;
        Ok((volume, vec![new, old]))
    });
    let Ok((volume, files)) = opened else {
        assert_eq!(device.plan().failed(), 1, "{what}");
        return true;
    };
    let mut run = Run {
        volume: &volume,
        files,
        what,
        failed: 0,
        value: 0,
    };
    run.workload();
    let takes_changes = run.settle();
    let failed = device.plan().failed();
    assert!(failed > 0 || run.failed == 0, "{what}");
    let left = run.files.into_iter().map(|known| (known.path, known.model));
    let left: Vec<_> = left.collect();
    let closed = volume.close();
    let failed_in_close = device.plan().failed() > failed;
    let is_clean = takes_changes && !failed_in_close;
    assert!(closed.is_ok() || !is_clean, "{what}: {closed:?}");
    while (cache.used_bytes(), cache.dirty_bytes()) != (0, 0) {
        // The last handle may be the flusher's.
        std::thread::yield_now();
    }
    after(stage, left, is_clean, what);
    device.plan().failed() > 0
}

/// What another open finds.
fn after(stage: &Stage, left: Vec<(&str, Model)>, is_clean: bool, what: &str) {
    stage.save();
    let image = stage.image.to_str().unwrap();
    if !is_clean {
        let mended = xtask::run::tool("e2fsck").args(["-fy", image]).output();
        let code = mended.unwrap().status.code();
        assert!(code.is_some_and(|c| c < 4), "{what}");
    }
    fsck(&stage.image);
    let volume = Volume::open(image, &OpenOptions::default()).unwrap();
    let has_journal = volume
        .superblock()
        .features()
        .compat
        .has(Compat::HAS_JOURNAL);
    for (path, mut model) in left {
        if !is_clean && !has_journal {
            // Then e2fsck may clear what a metadata block was to show that could not be written.
            model.is_damaged();
        }
        let file = volume.open_path(path, OpenFlags::default()).unwrap();
        let what = format!("{what}, {path}, opened again");
        model.judge(&file, is_clean, &what);
    }
}

/// Rules G7 to G10, U1, U2, U10, D9, D11: a call fails or has done what it says; a failed write-back is reported once through each open
/// file; every byte is one that was written there, and none is that of a free block; afterwards the volume takes changes and is whole, or
/// its journal is aborted.
#[test]
fn any_request_may_fail() {
    for args in KINDS {
        let watchdog = Watchdog::new(Duration::from_secs(60), "cached faults");
        let dir = scratch();
        let image = make(dir.path(), args);
        let fresh = std::fs::read(&image).unwrap();
        for op in [BioOp::Write, BioOp::Read, BioOp::Flush] {
            for nth in 1.. {
                let what = format!("{args:?}, {op:?} {nth}");
                watchdog.feed(what.clone());
                std::fs::write(&image, &fresh).unwrap();
                let options = SimOptions::parse("0,cache=volatile,fua=no").unwrap();
                let stage = Stage::sim(&image, options);
                if !with_fault(&stage, &what, op, nth) {
                    eprintln!("{args:?}: {nth} requests of {op:?}");
                    assert!(nth > 5, "{what}: nothing has failed");
                    break;
                }
            }
        }
    }
}
