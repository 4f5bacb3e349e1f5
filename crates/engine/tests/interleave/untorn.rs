//! Atomic writes beside each other, readers, operations on the map, write-back and syncs: no schedule tears a unit, for a reader or in a
//! power cut, and no block is used again while somebody may still read it.
//!
//! Input: threads, as in `volumes`. Output: nothing, or the schedule in which a rule was broken. Invariants: those of `volumes`; each unit
//! of four blocks has one value. Limits: what is not a multiple of a unit is written behind the units.

use super::{
    Action, BLOCK, BLOCKS, Bed, CUTS, FILE, OTHER, Wrote, check, check_all, image, judge,
    memory_of, some,
};
use crate::common::fixture::{DSYNC, filled};
use diorite::{Error, Fallocate, File, Op, OpenFlags, RequestFlags, Volume};
use diorite_block::record::{PowerCuts, plan};
use diorite_block::sync::thread;
use shuttle::rand::Rng as _;
use std::sync::Arc;

/// Blocks of a unit, and its bytes.
const UNIT: u64 = 4;
const LEN: u64 = UNIT * BLOCK as u64;

impl Bed {
    /// False if there was no space.
    fn put_unit(&self, unit: u64, value: u8, flags: RequestFlags) -> bool {
        let buf = filled(value, LEN as usize);
        match self.file.call(Op::WriteAtomic, unit * LEN, buf, flags).1 {
            Ok(len) => {
                assert_eq!(len as u64, LEN);
                true
            }
            Err(Error::NoSpace { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn put_units(&self, units: [u64; 2], value: u8) {
        for unit in units {
            self.put_unit(unit, value, RequestFlags::default());
        }
    }

    fn put_unit_durably(&self, unit: u64, value: u8) {
        if self.put_unit(unit, value, DSYNC) {
            let blocks = unit * UNIT..(unit + 1) * UNIT;
            let wrote: Vec<Wrote> = blocks.map(|block| Wrote::file(block, value)).collect();
            self.is_durable(&wrote);
        }
    }
}

/// Asserts that a unit is one value, as far as the file reaches.
fn is_whole(bytes: &[u8], what: &str) {
    let values: Vec<u8> = bytes.iter().step_by(512).copied().collect();
    let one = bytes.iter().all(|b| *b == bytes[0]);
    assert!(one, "{what}: {values:?}");
}

fn units_are_whole(file: &File) {
    for unit in 0..BLOCKS / UNIT {
        let (buf, got) = file.read_buf(unit * LEN, filled(0, LEN as usize));
        is_whole(&buf.as_slice()[..got.unwrap()], "direct");
        let mut bytes = vec![0; LEN as usize];
        let got = file.read_bytes(unit * LEN, &mut bytes).unwrap();
        is_whole(&bytes[..got], "through the cache");
    }
}

fn race(actions: &[Action]) {
    let bed = Bed::new();
    let threads: Vec<_> = actions
        .iter()
        .map(|action| {
            let (bed, action) = (bed.clone(), *action);
            thread::spawn(move || action(&bed))
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    units_are_whole(&bed.file);
    judge(&bed.file, &FILE);
    judge(&bed.other, &OTHER);
    let bed = Arc::into_inner(bed).expect("the threads have ended");
    drop((bed.file, bed.other));
    bed.volume.close().unwrap();
    check_all(bed.memory);
    let log = bed.device.log();
    super::cut(&log, &bed.durable.into_inner().unwrap());
    let seed = shuttle::rand::thread_rng().gen_range(0..u64::MAX);
    let mut walk = PowerCuts::new(image().to_vec(), &log);
    let mut cuts = plan(&log, 2 * CUTS, seed, BLOCK);
    cuts.sort_by_key(|cut| cut.at);
    for cut in cuts {
        let left = walk.with_image(cut, memory_of);
        let volume = Volume::open_device(left, &diorite::OpenOptions::default()).unwrap();
        units_are_whole(&volume.open_path("/file", OpenFlags::default()).unwrap());
    }
}

/// Rules B10, G13, G16, G17.
#[test]
fn atomic_writes_meet_all() {
    check(|| {
        let actions: [Action; 8] = [
            |bed| bed.put_units([0, 1], 11),
            |bed| bed.put_units([1, 2], 12),
            |bed| (0..2).for_each(|_| units_are_whole(&bed.file)),
            |bed| {
                bed.file.truncate(LEN).unwrap();
                bed.file.truncate(BLOCKS * BLOCK as u64).unwrap();
                bed.reuse(4..12, 40);
            },
            |bed| {
                bed.file.fallocate(Fallocate::PunchHole, LEN, LEN).unwrap();
                bed.volume.sync().unwrap();
                bed.reuse(12..20, 41);
            },
            |bed| {
                let behind = BLOCKS * BLOCK as u64 + 512;
                let wrote = bed.file.write_bytes(behind, &[14; 1024]);
                assert!(matches!(wrote, Ok(1024) | Err(Error::NoSpace { .. })));
                let synced = bed.file.sync();
                assert!(matches!(synced, Ok(()) | Err(Error::NoSpace { .. })));
            },
            |bed| {
                bed.volume.sync().unwrap();
                bed.reuse(20..28, 41);
            },
            |bed| bed.put_units([0, 2], 13),
        ];
        race(&some(&actions, 4));
    });
}

/// Rules B10, D1: a unit that is acknowledged as durable survives, beside a reader and others that take what is free.
#[test]
fn durable_atomic_writes_stay() {
    check(|| {
        let actions: [Action; 4] = [
            |bed| bed.put_unit_durably(0, 11),
            |bed| bed.put_units([1, 2], 12),
            |bed| units_are_whole(&bed.file),
            |bed| {
                bed.volume.sync().unwrap();
                bed.reuse(4..16, 40);
            },
        ];
        race(&actions);
    });
}
