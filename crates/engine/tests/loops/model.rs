//! A loop device, mostly behind a window, beside an array of bytes.
//!
//! Input: seeds. Output: none. Invariants: requests of a round are in flight together, also over several queues; afterwards every 512
//! bytes hold what one of the round's writers put there, or what they held before; nothing else is changed. Between rounds the file
//! changes its size, and at any moment the volume its policy. Limits: a request writes one byte value.

use super::{mode, open};
use crate::common::fixture::{LIMIT, filled, made, writable};
use crate::common::nest::{nested, unnest};
use crate::common::stage::{Stage, one_worker};
use crate::common::watch::Watchdog;
use crate::common::{Rng, scaled, scratch};
use diorite::policy::PRESETS;
use diorite::{File, LoopDevice, LoopMode, OpenOptions, Policy, Volume};
use diorite_block::{Bio, BioList, BioOp, Device, DeviceQueue, Waker, WindowDevice, WindowOptions};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

const CELL: u64 = 512;

struct World {
    volume: Volume,
    file: File,
    device: Arc<dyn Device>,
    /// Where the device begins in the file.
    offset: u64,
    sector: u64,
    /// What each cell of the device may hold; the file has no more.
    model: Vec<Vec<u8>>,
    next: u8,
}

fn policies() -> Vec<Policy> {
    let presets = PRESETS.iter().map(|(_, policy)| *policy);
    presets.chain([mode(LoopMode::BufferedSync)]).collect()
}

impl World {
    /// Closes the volume.
    fn close(self) {
        drop((self.file, self.device));
        self.volume.close().unwrap();
    }

    /// A device on a file whose bytes are all known.
    fn new(volume: Volume, file: File, rng: &mut Rng) -> World {
        file.truncate(file.size().max(64 << 10)).unwrap();
        let looped: Arc<dyn Device> = Arc::new(LoopDevice::new(file.clone(), "loop".into()));
        let blocks = WindowOptions::default().sector(512 << rng.below(4));
        let options = WindowOptions::default()
            .offset(rng.below(20) * CELL)
            .sector(512 << rng.below(4));
        let part = |below, options| -> Arc<dyn Device> {
            Arc::new(WindowDevice::new(below, options, "window".into()).unwrap())
        };
        let (device, offset) = match rng.below(3) {
            0 => (looped, 0),
            // Sectors of any size in blocks of any other.
            _ => (part(part(looped, &blocks), &options), options.offset),
        };
        let mut world = World {
            sector: device.geometry().logical.into(),
            volume,
            file,
            device,
            offset,
            model: Vec::new(),
            next: 0,
        };
        world.take_in();
        world
    }

    /// Takes the file's bytes as they are.
    fn take_in(&mut self) {
        let cells = self.device.geometry().size / CELL;
        let mut bytes = vec![0; (cells * CELL) as usize];
        self.file.read_bytes(self.offset, &mut bytes).unwrap();
        // Cells with several values are made equal, so that a cell is one value.
        self.model = bytes
            .chunks_mut(CELL as usize)
            .map(|cell| vec![cell[0]])
            .collect();
        for (n, cell) in self.model.iter().enumerate() {
            let at = self.offset + n as u64 * CELL;
            let left = self.file.size().saturating_sub(at).min(CELL) as usize;
            let want = vec![cell[0]; left];
            if bytes[n * CELL as usize..][..left] != want {
                self.file.write_bytes(at, &want).unwrap();
            }
        }
    }

    /// The file becomes shorter or longer, and the device is told.
    fn resize(&mut self, rng: &mut Rng) {
        let before = self.file.size();
        // At least a sector, if whole blocks of 4 KiB are counted.
        let size = self.offset + self.sector + 4096 + rng.below(200 << 10) / CELL * CELL;
        // A rest behind the last sector is not in the model.
        let known = self.offset + self.model.len() as u64 * CELL;
        self.file.truncate(known).unwrap();
        self.file.truncate(size).unwrap();
        assert!(self.device.geometry().size <= before.next_multiple_of(CELL));
        self.device.refresh().unwrap();
        let room = (size - self.offset) / self.sector * self.sector;
        let cells = self.device.geometry().size / CELL;
        assert!(cells * CELL <= room, "{cells} cells in {room} bytes");
        self.model.resize(cells as usize, vec![0]);
    }

    fn bio(&mut self, rng: &mut Rng, token: u64) -> Bio {
        let per = self.sector / CELL;
        let sectors = self.model.len() as u64 / per;
        let at = rng.below(sectors);
        let len = 1 + rng.below((sectors - at).min(40));
        let (pos, bytes) = (at * self.sector, len * self.sector);
        self.next = self.next % 250 + 1;
        // A file without extents cannot be zeroed.
        let first = if self.device.geometry().write_zeroes {
            0
        } else {
            2
        };
        match first + rng.below(10 - first) {
            0 => Bio::range(BioOp::WriteZeroes, pos, bytes, token),
            1 => Bio::range(BioOp::WriteZeroesUnmap, pos, bytes, token),
            2 => Bio::range(BioOp::Discard, pos, bytes, token),
            3 => Bio::flush(token),
            4..6 => Bio::read(pos, filled(251, bytes as usize), token),
            _ => {
                let mut bio = Bio::write(pos, filled(self.next, bytes as usize), token);
                bio.flags.fua = rng.below(8) == 0;
                bio
            }
        }
    }

    fn cells(bio: &Bio) -> Range<usize> {
        (bio.pos / CELL) as usize..((bio.pos + bio.len) / CELL) as usize
    }

    fn check_read(&self, bio: &Bio) {
        let cells = bio.buf.as_slice().chunks(CELL as usize);
        for (n, cell) in World::cells(bio).zip(cells) {
            let may = &self.model[n];
            assert!(cell.iter().all(|b| *b == cell[0]), "cell {n} is torn");
            assert!(may.contains(&cell[0]), "cell {n}: {} of {may:?}", cell[0]);
        }
    }

    /// After a round: what is there is what is there.
    fn settle(&mut self) {
        for (at, cells) in (0u64..).step_by(64).zip(self.model.clone().chunks(64)) {
            let sector = self.sector;
            let from = at * CELL / sector * sector;
            let to = ((at + cells.len() as u64) * CELL).next_multiple_of(sector);
            let len = (to.min(self.model.len() as u64 * CELL) - from) as usize;
            let got = super::bytes_of(&*self.device, from, len);
            let read = Bio::read(from, filled(0, 0), 0);
            let mut buf = filled(0, len);
            buf.as_mut_slice().copy_from_slice(&got);
            let read = Bio {
                len: len as u64,
                buf,
                ..read
            };
            self.check_read(&read);
            for (n, cell) in World::cells(&read).zip(got.chunks(CELL as usize)) {
                self.model[n] = vec![cell[0]];
            }
        }
        // The same through the file, and what is in front of the device is not changed.
        let mut bytes = vec![0; self.model.len() * CELL as usize];
        self.file.read_bytes(self.offset, &mut bytes).unwrap();
        for (n, cell) in bytes.chunks(CELL as usize).enumerate() {
            assert!(cell.iter().all(|b| *b == self.model[n][0]), "cell {n}");
        }
    }

    fn round(&mut self, rng: &mut Rng, queues: &[(Box<dyn DeviceQueue>, Arc<Waker>)]) {
        let policies = policies();
        let mut lists: Vec<BioList> = Vec::new();
        for _ in queues {
            let count = 1 + rng.below(16);
            lists.push((0..count).map(|n| self.bio(rng, n)).collect());
        }
        for bio in lists.iter().flatten() {
            let byte = match bio.op {
                BioOp::Read | BioOp::Flush => continue,
                BioOp::Write => bio.buf.as_slice()[0],
                _ => 0,
            };
            for n in World::cells(bio) {
                self.model[n].push(byte);
            }
        }
        let mut left: usize = lists.iter().map(BioList::len).sum();
        while left > 0 {
            if rng.below(20) == 0 {
                let policy = policies[rng.below(policies.len() as u64) as usize];
                self.volume.set_policy(policy);
            }
            let n = rng.below(queues.len() as u64) as usize;
            let (queue, waker) = &queues[n];
            queue.submit(&mut lists[n]);
            let mut out = BioList::new();
            if queue.reap(&mut out) == 0 {
                queue.wait(1, Some(Duration::from_micros(200)));
                waker.clear();
            }
            left -= out.len();
            for bio in out {
                assert_eq!(bio.result, Ok(()), "{bio:?}");
                if bio.op == BioOp::Read {
                    self.check_read(&bio);
                }
            }
        }
    }

    fn rounds(&mut self, rng: &mut Rng, count: u64) {
        let depth = 1 + rng.below(24) as u32;
        let device = self.device.clone();
        let number = 1 + rng.below(3);
        let queues: Vec<_> = (0..number).map(|_| open(&*device, depth)).collect();
        for round in 0..count {
            if round % 4 == 3 {
                self.resize(rng);
            }
            self.round(rng, &queues);
            self.settle();
        }
    }
}

#[test]
fn a_loop_device_is_an_array_of_sectors() {
    let _watchdog = Watchdog::new(10 * LIMIT, "the model of a loop device");
    let mut seeds = Rng::from_env("loop model");
    for recipe in [0, 2] {
        let (_dir, image, _) = made(recipe);
        for policy in policies() {
            for _ in 0..scaled("DIORITE_LOOPS", 2) {
                let mut rng = seeds.fork();
                let stage = Stage::mem(&image);
                let volume = stage.open(&one_worker(policy)).unwrap();
                let file = volume.open_path("/even", writable()).unwrap();
                let mut world = World::new(volume, file, &mut rng);
                world.rounds(&mut rng, 10);
                world.close();
                stage.fsck();
            }
        }
    }
}

/// Three volumes inside each other, and a device on top of them: e2fsck judges each.
#[test]
fn so_it_is_three_volumes_deep() {
    let _watchdog = Watchdog::new(10 * LIMIT, "the model of a stack");
    let mut rng = Rng::from_env("loop stack");
    for loop_mode in super::MODES {
        let dir = scratch();
        let nest = nested(dir.path());
        let options = OpenOptions::writable().policy(mode(loop_mode));
        let volume = Volume::open(&nest, &options).unwrap();
        let file = volume.open_path("/data", writable()).unwrap();
        file.truncate(300 << 10).unwrap();
        let mut world = World::new(volume, file, &mut rng);
        world.rounds(&mut rng, 8);
        world.close();
        unnest(dir.path(), &nest);
    }
}

/// Mode `buffered-sync` does what comes in the order in which it comes: of overlapping requests the last one wins.
#[test]
fn one_worker_keeps_the_order() {
    let _watchdog = Watchdog::new(LIMIT, "order of the worker");
    let (_dir, image, _) = made(0);
    let stage = Stage::mem(&image);
    let volume = stage
        .open(&one_worker(mode(LoopMode::BufferedSync)))
        .unwrap();
    let file = volume.open_path("/even", writable()).unwrap();
    let device = LoopDevice::new(file, "loop".into());
    assert_eq!(device.report().mode, "buffered-sync");
    assert!(!device.report().direct);
    for round in 0..50u8 {
        let write = |n: u8| {
            let byte = round.wrapping_mul(5) ^ n;
            Bio::write(0, filled(byte, 4096), u64::from(n))
        };
        super::run_bios(&device, (0..16).map(write).collect());
        let last = round.wrapping_mul(5) ^ 15;
        assert!(super::bytes_of(&device, 0, 4096).iter().all(|b| *b == last));
    }
    volume.set_policy(Policy::DIORITE);
    assert_eq!(device.report().mode, "direct-async");
    assert!(device.report().direct);
}
