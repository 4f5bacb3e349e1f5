//! The volumes that calls are made on: files that the calls may change, and files that no call names.
//!
//! Input: a recipe and a seed. Output: a volume with targets and bystanders, a second volume with a file and a queue (the
//! strangers), queues on both. Invariants: at the end nothing is held, every bystander has its old contents, and e2fsck and
//! diorite's own check find nothing. Limits: one thread.

use crate::common::recipe::{self, Known, RECIPES};
use crate::common::stage::{Stage, faulty};
use crate::common::{Rng, scratch};
use crate::values;
use diorite::device::{BioErrorKind, BioOp, Fault, SimOptions, When};
use diorite::{Buf, Error, File, FileId, OpenFlags, OpenOptions, Queue, Volume};
use std::sync::Arc;

/// A queue, with the ids of files attached to it, and ids that are no longer valid.
pub struct Lane {
    pub queue: Queue,
    pub ids: Vec<FileId>,
    pub stale: Vec<FileId>,
}

pub struct World {
    _dir: tempfile::TempDir,
    pub stage: Stage,
    pub volume: Volume,
    bystanders: Vec<Known>,
    pub files: Vec<File>,
    pub lanes: Vec<Lane>,
    /// A second volume, one of its files, and a queue with that file.
    _other_dir: tempfile::TempDir,
    other: Volume,
    pub stranger: File,
    pub strangers: Lane,
    pub faults: bool,
}

impl World {
    pub fn new(seed: u64, rng: &mut Rng) -> World {
        let recipe = &RECIPES[(seed % RECIPES.len() as u64) as usize];
        let faults = seed % 4 == 3;
        let dir = scratch();
        let (image, bystanders) = recipe::make(dir.path(), recipe, rng);
        let stage = match seed / 2 % 2 {
            0 => Stage::mem(&image),
            _ => Stage::sim(
                &image,
                SimOptions::parse("0,cache=volatile,fua=yes").unwrap(),
            ),
        };
        let other_dir = scratch();
        let other_image = recipe::bare(other_dir.path(), &RECIPES[0]);
        let other = Stage::mem(&other_image)
            .open(&OpenOptions::writable())
            .unwrap();
        let stranger = other.create("/stranger", 0o600).unwrap();
        stranger.write_buf(0, Buf::zeroed(8192)).1.unwrap();
        let queue = other.queue(8).unwrap();
        let strangers = Lane {
            ids: vec![queue.attach(&stranger).unwrap()],
            queue,
            stale: Vec::new(),
        };
        let volume = open(&stage, faults, rng).expect("nothing has failed yet");
        World {
            _dir: dir,
            stage,
            volume,
            bystanders,
            files: Vec::new(),
            lanes: Vec::new(),
            _other_dir: other_dir,
            other,
            stranger,
            strangers,
            faults,
        }
    }

    /// After the volume was closed or has failed: opens a new one on the same device.
    pub fn reopen(&mut self, rng: &mut Rng) {
        self.let_go();
        expect(self.volume.clone().close());
        self.volume = self.other.clone();
        for _ in 0..3 {
            if let Some(volume) = open(&self.stage, self.faults, rng) {
                self.volume = volume;
                return;
            }
        }
        self.mend();
        self.volume = open(&self.stage, false, rng).expect("what is mended opens");
    }

    /// Repairs the image with e2fsck. Faults may have left damage that the open refuses.
    fn mend(&mut self) {
        assert!(self.faults, "nothing has failed here");
        self.stage.save();
        let image = self.stage.image.clone();
        let mut e2fsck = xtask::run::tool("e2fsck");
        let done = e2fsck.args(["-fy"]).arg(&image).output().unwrap();
        let code = done.status.code().unwrap();
        assert!(code < 4, "{}", String::from_utf8_lossy(&done.stdout));
        self.stage = Stage::mem(&image);
    }

    fn let_go(&mut self) {
        self.lanes.drain(..).for_each(|lane| drain(&lane.queue));
        self.files.clear();
    }

    /// Asserts that nothing is held, that only named files have changed, and that the image is consistent.
    pub fn judge(mut self, rng: &mut Rng) {
        self.let_go();
        drain(&self.strangers.queue);
        assert_eq!(self.stranger.size(), 8192, "nobody has named the stranger");
        self.read_another();
        let synced = self.volume.sync();
        let usage = self.volume.usage();
        let held = (usage.requests, usage.in_flight, usage.pending);
        assert_eq!(held, (0, 0, 0), "requests, in flight, pending");
        if synced.is_ok() {
            // Deferred deletions, and the commit after them, release the rest.
            let _again = self.volume.sync();
            let usage = self.volume.usage();
            assert_eq!(usage.claimed(), 0, "rule D11: {usage:?}");
        }
        if !self.faults {
            synced.unwrap();
            self.compare(&self.volume);
        }
        let closed = self.volume.clone().close();
        assert!(self.faults || closed.is_ok(), "{closed:?}");
        self.volume = self.other.clone();
        // Opening the volume again recovers what a fault has left.
        self.volume = match open(&self.stage, false, rng) {
            Some(volume) => volume,
            None => {
                self.mend();
                open(&self.stage, false, rng).expect("what is mended opens")
            }
        };
        self.compare(&self.volume);
        self.volume.clone().close().unwrap();
        self.stage.fsck();
    }

    /// Blocking calls keep their last file attached, with the blocks claimed ahead for it. Reading another file releases that one.
    fn read_another(&self) {
        let path = &self.bystanders[0].path;
        let other = expect(self.volume.open_path(path, OpenFlags::default()));
        other.map(|file| expect(file.read_buf(0, Buf::zeroed(4096)).1));
    }

    fn compare(&self, volume: &Volume) {
        for known in &self.bystanders {
            let file = volume.open_path(&known.path, OpenFlags::default()).unwrap();
            let mut bytes = vec![0; known.bytes.len() + 1];
            let got = file.read_bytes(0, &mut bytes);
            assert!(
                matches!(got, Ok(n) if n == known.bytes.len()),
                "{}: {got:?}",
                known.path
            );
            let same = bytes[..known.bytes.len()] == known.bytes;
            assert!(same, "{} has changed, and nobody has named it", known.path);
        }
    }
}

/// Reaps everything that is in the queue.
pub fn drain(queue: &Queue) {
    while let Some(done) = queue.reap_one(None) {
        expect(done.result);
    }
    assert_eq!(queue.in_use(), 0);
}

/// Accepts any result except a panic that was turned into an error. Formatting an error must work.
pub fn expect<T>(result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            assert!(!matches!(error.root(), Error::Panicked), "{error}");
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

fn open(stage: &Stage, faults: bool, rng: &mut Rng) -> Option<Volume> {
    let device = match faults {
        true => faulty(
            stage.device.clone(),
            vec![
                Fault::new(BioErrorKind::Io, When::OneIn(400)).on(BioOp::Write),
                Fault::new(BioErrorKind::Io, When::OneIn(400)).on(BioOp::Read),
                Fault::new(BioErrorKind::Io, When::OneIn(200)).on(BioOp::Flush),
            ],
        ),
        false => return expect(stage.open(&options(rng))),
    };
    let device: Arc<dyn diorite::Device> = device;
    expect(Volume::open_device(device, &options(rng)))
}

fn options(rng: &mut Rng) -> OpenOptions {
    OpenOptions::writable()
        .policy(values::policy(rng))
        .workers(1 + rng.below(3) as u32)
        .metadata_cache(1 << (16 + rng.below(6)))
        .map_cache(1 << (12 + rng.below(10)))
}
