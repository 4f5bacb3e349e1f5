//! A window beside an array of bytes: random requests, overlapping ones in flight together, over several queues.
//!
//! Input: seeds. Output: none. Invariants: after each round every 512 bytes hold what one of the round's writers put there; bytes
//! that no request of the round touched are as before. Limits: a request writes one byte value; a larger sector may have parts of
//! several, since a discard need not do all of its range.

use super::*;
use crate::rng::Rng;

const DISK: u64 = 256 << 10;
const CELL: u64 = 512;

struct World {
    device: Arc<WindowDevice>,
    sector: u64,
    /// For each 512 bytes what they may hold.
    model: Vec<Vec<u8>>,
    next: u8,
}

impl World {
    fn bio(&mut self, rng: &mut Rng, token: u64) -> Bio {
        let sectors = self.model.len() as u64 * CELL / self.sector;
        let at = rng.below(sectors);
        let len = 1 + rng.below((sectors - at).min(40));
        let (pos, bytes) = (at * self.sector, len * self.sector);
        self.next = self.next % 250 + 1;
        match rng.below(8) {
            0 => Bio::range(BioOp::WriteZeroes, pos, bytes, token),
            1 => Bio::range(BioOp::WriteZeroesUnmap, pos, bytes, token),
            2 => Bio::flush(token),
            3 | 4 => Bio::read(pos, filled(251, bytes as usize), token),
            5 => Bio::range(BioOp::Discard, pos, bytes, token),
            _ => {
                let mut bio = Bio::write(pos, filled(self.next, bytes as usize), token);
                bio.flags.fua = rng.below(2) == 0;
                bio
            }
        }
    }

    fn cells(&self, bio: &Bio) -> Range<usize> {
        let from = bio.pos / CELL;
        (from as usize)..(from + bio.len / CELL) as usize
    }

    /// What a sector may hold in and after a round in which these requests were in flight together.
    fn apply(&mut self, bios: &[(Range<usize>, BioOp, u8)]) {
        for (range, op, byte) in bios {
            for may in &mut self.model[range.clone()] {
                match op {
                    BioOp::Write => may.push(*byte),
                    BioOp::Read | BioOp::Flush => {}
                    _ => may.push(0),
                }
            }
        }
    }

    fn check(&mut self, seed: u64) {
        let got = bytes(&*self.device, 0, self.model.len() * CELL as usize);
        for (n, sector) in got.chunks(CELL as usize).enumerate() {
            let byte = sector[0];
            assert!(
                sector.iter().all(|b| *b == byte),
                "seed {seed}: sector {n} is torn"
            );
            assert!(
                self.model[n].contains(&byte),
                "seed {seed}: sector {n} holds {byte}, not one of {:?}",
                self.model[n]
            );
            self.model[n] = vec![byte];
        }
    }
}

fn world(rng: &mut Rng) -> (World, u64) {
    let block = 512 << rng.below(4);
    let sector = 512u32 << rng.below(4);
    let below = window(
        Arc::new(MemDevice::new(DISK)),
        &WindowOptions {
            sector: Some(block),
            ..WindowOptions::default()
        },
    );
    let options = WindowOptions {
        offset: rng.below(16) * 512,
        size: (rng.below(2) == 0).then(|| rng.below(DISK / 2)),
        sector: Some(sector),
        read_only: false,
    };
    let device = window(below, &options);
    let count = device.geometry().size / CELL;
    let world = World {
        device,
        sector: sector.into(),
        model: vec![vec![0]; count as usize],
        next: 0,
    };
    (world, count)
}

/// Runs a round: some bios on each queue, all in flight together as far as they have room.
fn round(world: &mut World, rng: &mut Rng, queues: &[(Box<dyn DeviceQueue>, Arc<Waker>)]) {
    let mut lists: Vec<BioList> = Vec::new();
    let mut expected = Vec::new();
    for _ in queues {
        let count = 1 + rng.below(12);
        let list: BioList = (0..count).map(|n| world.bio(rng, n)).collect();
        for bio in &list {
            // A discard may leave what it likes of the range: zeros or the old bytes.
            let byte = match bio.op {
                BioOp::Write => bio.buf.as_slice()[0],
                _ => 0,
            };
            expected.push((world.cells(bio), bio.op, byte));
        }
        lists.push(list);
    }
    world.apply(&expected);
    let mut left: usize = lists.iter().map(BioList::len).sum();
    while left > 0 {
        let n = rng.below(queues.len() as u64) as usize;
        let (queue, waker) = &queues[n];
        queue.submit(&mut lists[n]);
        let mut out = BioList::new();
        if queue.reap(&mut out) == 0 && rng.below(4) == 0 {
            queue.wait(1, Some(std::time::Duration::from_micros(50)));
            waker.clear();
        }
        left -= out.len();
        for bio in out {
            assert_eq!(bio.result, Ok(()), "{bio:?}");
            if bio.op != BioOp::Read {
                continue;
            }
            let range = world.cells(&bio);
            let sectors = bio.buf.as_slice().chunks(CELL as usize);
            for (may, sector) in world.model[range].iter().zip(sectors) {
                assert!(sector.iter().all(|b| *b == sector[0]), "a torn read");
                assert!(may.contains(&sector[0]), "{} of {may:?}", sector[0]);
            }
        }
    }
}

#[test]
fn a_window_is_an_array_of_sectors() {
    let first = std::env::var("DIORITE_SEED").ok();
    let first = first.and_then(|s| s.parse().ok()).unwrap_or(1u64);
    for seed in first..first + 60 {
        eprintln!("seed {seed}");
        let mut rng = Rng::new(seed);
        let (mut world, count) = world(&mut rng);
        if count == 0 {
            continue;
        }
        let depth = 1 + rng.below(16) as u32;
        let number = 1 + rng.below(3);
        let device = world.device.clone();
        let queues: Vec<_> = (0..number).map(|_| open(&*device, depth)).collect();
        for _ in 0..20 {
            round(&mut world, &mut rng, &queues);
            world.check(seed);
        }
    }
}
