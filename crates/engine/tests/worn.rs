//! Aged and nearly full volumes: files are written, grown, punched, shifted and removed for a long time, mostly with no space left,
//! against arrays.
//!
//! An operation that fails for lack of space has changed nothing, or has been done up to some block. e2fsck judges each volume
//! after it is closed, and the kernel (debugfs, where it cannot mount) reads the same bytes. `DIORITE_WORN_ROUNDS` makes the runs
//! longer.

use crate::common::kernel::mounted;
use crate::common::stage::Stage;
use crate::common::watch::Watchdog;
use crate::common::{Rng, run, scaled, scratch, words};
use diorite::{Error, Fallocate, File, OpenFlags, OpenOptions, Volume};
use diorite_block::Buf;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

const KINDS: [(&str, &str, &str); 9] = [
    ("ext4-1k", "5M", "-t ext4 -b 1024"),
    ("ext4-2k", "6M", "-t ext4 -b 2048"),
    ("ext4-4k", "7M", "-t ext4 -b 4096"),
    ("ext4-64k", "6M", "-t ext4 -b 65536 -O ^has_journal"),
    ("bigalloc", "8M", "-t ext4 -b 4096 -O bigalloc -C 16384"),
    (
        "plain-sums",
        "5M",
        "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg,^64bit,^flex_bg",
    ),
    (
        "no-journal",
        "3M",
        "-t ext4 -b 1024 -O ^has_journal,inline_data -I 256",
    ),
    ("ext3", "3M", "-t ext3 -b 1024"),
    ("ext2", "2M", "-t ext2 -b 1024"),
];

/// Sizes and positions of shifted ranges are multiples of this.
const UNIT: u64 = 65_536;

/// The bytes that are free when a run begins.
const LITTLE: usize = 1 << 20;

struct Worn {
    volume: Volume,
    extents: bool,
    models: BTreeMap<String, Vec<u8>>,
    rng: Rng,
    refused: u64,
}

impl Worn {
    fn open(&self, name: &str) -> File {
        let flags = OpenFlags::writable();
        self.volume.open_path(&format!("/{name}"), flags).unwrap()
    }

    /// Makes one operation on a random file; one that fails for lack of space is counted.
    fn step(&mut self) {
        let name = format!("f{}", self.rng.below(16));
        let done = match self.models.contains_key(&name) {
            false => self.create(&name),
            true => self.change(&name),
        };
        match done {
            Ok(()) => {}
            Err(Error::NoSpace { .. }) => self.refused += 1,
            Err(other) => panic!("{name}: {other}"),
        }
    }

    /// Makes a file take all free space except a little.
    fn fill_up(&mut self) {
        const NAME: &str = "ballast";
        if !self.models.contains_key(NAME) && self.create(NAME).is_err() {
            return;
        }
        let file = self.open(NAME);
        while self.write(NAME, &file, true).is_ok() {}
        let left = self.models[NAME].len().saturating_sub(LITTLE);
        file.truncate(left as u64).unwrap();
        self.models.get_mut(NAME).unwrap().truncate(left);
    }

    fn create(&mut self, name: &str) -> Result<(), Error> {
        self.volume.create(&format!("/{name}"), 0o644)?;
        self.models.insert(name.into(), Vec::new());
        Ok(())
    }

    fn change(&mut self, name: &str) -> Result<(), Error> {
        let file = self.open(name);
        match self.rng.below(if self.extents { 12 } else { 8 }) {
            0..3 => self.write(name, &file, false),
            3..5 => self.write(name, &file, true),
            5 => self.punch(name, &file),
            6 => self.truncate(name, &file),
            7 => {
                self.volume.unlink(&format!("/{name}"))?;
                self.models.remove(name);
                Ok(())
            }
            8 | 9 => self.allocate(name, &file),
            10 => self.shift(name, &file, Fallocate::CollapseRange),
            _ => self.shift(name, &file, Fallocate::InsertRange),
        }
    }

    /// Rule G8: a write that does not fit leaves the file as it was.
    fn write(&mut self, name: &str, file: &File, at_end: bool) -> Result<(), Error> {
        let model = self.models.get_mut(name).unwrap();
        let len = 512 * (1 + self.rng.below(150)) as usize;
        let pos = match at_end {
            true => model.len().next_multiple_of(512),
            false => 512 * self.rng.below(3000) as usize,
        };
        let mut buf = Buf::zeroed(len);
        self.rng.fill(buf.as_mut_slice());
        let (buf, result) = file.write_buf(pos as u64, buf);
        if result? < len {
            panic!("{name}: a short write");
        }
        model.resize(model.len().max(pos + len), 0);
        model[pos..pos + len].copy_from_slice(buf.as_slice());
        Ok(())
    }

    fn punch(&mut self, name: &str, file: &File) -> Result<(), Error> {
        let (pos, len) = (self.rng.below(1_500_000), 1 + self.rng.below(150_000));
        let done = file.fallocate(Fallocate::PunchHole, pos, len);
        let model = self.models.get_mut(name).unwrap();
        let end = ((pos + len) as usize).min(model.len());
        let range = (pos as usize).min(end)..end;
        match done {
            Ok(()) => model[range].fill(0),
            Err(_) => {
                // Splitting an extent may need a block: what was punched before that failed is zeros.
                let now = read(file);
                let kept = |i: usize| now[i] == model[i] || now[i] == 0 && range.contains(&i);
                assert!((0..model.len()).all(kept), "{name}: a punch that failed");
                *model = now;
            }
        }
        done
    }

    fn truncate(&mut self, name: &str, file: &File) -> Result<(), Error> {
        let size = self.rng.below(1_500_000);
        file.truncate(size)?;
        self.models.get_mut(name).unwrap().resize(size as usize, 0);
        Ok(())
    }

    fn allocate(&mut self, name: &str, file: &File) -> Result<(), Error> {
        let keep_size = self.rng.below(2) == 0;
        let (pos, len) = (self.rng.below(1_500_000), 1 + self.rng.below(400_000));
        file.fallocate(Fallocate::Allocate { keep_size }, pos, len)?;
        let model = self.models.get_mut(name).unwrap();
        if !keep_size {
            model.resize(model.len().max((pos + len) as usize), 0);
        }
        Ok(())
    }

    fn shift(&mut self, name: &str, file: &File, mode: Fallocate) -> Result<(), Error> {
        let model = self.models.get_mut(name).unwrap();
        let size = model.len() as u64;
        let (pos, len) = (UNIT * self.rng.below(10), UNIT * (1 + self.rng.below(3)));
        let (insert, fits) = match mode {
            Fallocate::InsertRange => (true, pos < size),
            _ => (false, pos + len < size),
        };
        if !fits {
            return Ok(());
        }
        file.fallocate(mode, pos, len)?;
        let (from, to) = (pos as usize, (pos + len) as usize);
        if insert {
            model.splice(from..from, std::iter::repeat_n(0, to - from));
        } else {
            model.drain(from..to);
        }
        Ok(())
    }

    fn compare(&self, what: &str) {
        for (name, model) in &self.models {
            let found = read(&self.open(name));
            assert_eq!(found.len(), model.len(), "{what}, {name}: size");
            let differs = (0..model.len()).find(|i| found[*i] != model[*i]);
            assert_eq!(differs, None, "{what}, {name}: a byte differs");
        }
    }
}

fn read(file: &File) -> Vec<u8> {
    let mut bytes = vec![0xee; file.size() as usize];
    assert_eq!(file.read_bytes(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// An empty image with poison in its free space.
fn make(dir: &Path, size: &str, args: &str) -> PathBuf {
    let mib: usize = size.strip_suffix('M').unwrap().parse().unwrap();
    let path = dir.join("image");
    std::fs::write(&path, vec![0xa5; mib << 20]).unwrap();
    let mut all = vec!["-q", "-F", "-N", "64"];
    all.extend(words(args));
    all.extend([path.to_str().unwrap(), size]);
    run("mke2fs", &all);
    path
}

/// Compares with the kernel, or with debugfs where the kernel cannot mount.
fn by_others(what: &str, image: &Path, dir: &Path, models: &BTreeMap<String, Vec<u8>>) {
    let seen = |root: &Path| {
        for (name, model) in models {
            let found = std::fs::read(root.join(name)).unwrap();
            assert!(
                &found == model,
                "{what}, {name}: the kernel reads something else"
            );
        }
    };
    if !what.contains("64k") && mounted(image, "ro", seen) {
        return;
    }
    for (name, model) in models {
        let out = dir.join("dumped");
        let dump = format!("dump /{name} {}", out.display());
        run("debugfs", &["-R", &dump, image.to_str().unwrap()]);
        assert!(
            &std::fs::read(&out).unwrap() == model,
            "{what}, {name}: debugfs reads something else"
        );
    }
}

#[test]
fn little_room_for_long() {
    let mut rng = Rng::from_env("worn");
    let rounds = scaled("DIORITE_WORN_ROUNDS", 250);
    for (kind, size, args) in KINDS {
        let watchdog = Watchdog::new(Duration::from_secs(120), kind);
        let dir = scratch();
        let image = make(dir.path(), size, args);
        let (mut models, mut refused) = (BTreeMap::new(), 0);
        for session in 0..3 {
            let what = format!("{kind}, session {session}");
            watchdog.feed(what.clone());
            let stage = Stage::mem(&image);
            let mut worn = Worn {
                volume: stage.open(&OpenOptions::writable()).unwrap(),
                extents: !kind.starts_with("ext3") && !kind.starts_with("ext2"),
                models,
                rng: rng.fork(),
                refused: 0,
            };
            worn.compare(&what);
            worn.fill_up();
            for _ in 0..rounds {
                worn.step();
            }
            worn.compare(&what);
            refused += worn.refused;
            models = worn.models;
            worn.volume.close().unwrap();
            stage.fsck();
        }
        by_others(kind, &image, dir.path(), &models);
        assert!(refused > 0, "{kind}: there was always room");
    }
}
