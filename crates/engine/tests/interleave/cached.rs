//! The page cache: buffered reads and writes, and their write-back, beside direct requests, operations on the map, and the end of a volume.
//!
//! Input: threads, as in `volumes`. Output: nothing, or the schedule in which a rule was broken. Invariants: those of `volumes`; what is
//! read through the cache in the end is what a direct request reads; no acknowledged byte is lost. Limits: files of a few blocks; pages are
//! written back by syncs, by direct requests, and by the flusher as soon as they are dirty.

use super::{
    Action, BLOCK, BLOCKS, Bed, FILE, OLD, OTHER, Sector, check, judge, race_on, sectors, some,
};
use crate::common::fixture::{DSYNC, filled};
use diorite::{Error, Fallocate, Op, OpenOptions};
use diorite_block::Buf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Half a block.
const SECTOR: u64 = 512;

impl Bed {
    /// A volume whose flusher writes back at once what is dirty, or not before a sync asks for it.
    fn cached(age: Duration) -> Arc<Bed> {
        Bed::with(OpenOptions::writable().workers(1).write_back_age(age))
    }

    /// Writes sectors of `/file` through the cache.
    fn write(&self, from: u64, count: usize, value: u8) {
        let bytes = vec![value; count * SECTOR as usize];
        let done = self.file.write_bytes(from * SECTOR, &bytes);
        assert_eq!(done.unwrap(), bytes.len());
    }

    fn write_directly(&self, from: u64, count: usize, value: u8) {
        let buf = filled(value, count * SECTOR as usize);
        self.file.write_buf(from * SECTOR, buf).1.unwrap();
    }

    /// As [`Bed::write`], and syncs: these sectors are durable.
    fn write_durably(&self, from: u64, count: usize, value: u8) {
        self.write(from, count, value);
        self.file.sync_data().unwrap();
        self.sectors_are_durable(from, count, value);
    }

    fn sectors_are_durable(&self, from: u64, count: usize, value: u8) {
        let sector = |number| Sector {
            other: false,
            number,
            value,
        };
        let from = usize::try_from(from).unwrap();
        self.keep((from..from + count).map(sector).collect());
    }

    /// Reads sectors of `/file` through the cache; none of them changes meanwhile.
    fn sees(&self, from: u64, count: usize, value: u8) {
        let mut out = vec![0xEE; count * SECTOR as usize];
        let done = self.file.read_bytes(from * SECTOR, &mut out).unwrap();
        assert_eq!(done, out.len());
        assert!(out.iter().all(|b| *b == value), "{value}, not {}", out[0]);
    }

    /// The sectors of `/file` as the cache has them; asserts that a direct request finds the same.
    fn settled(&self) -> Vec<u8> {
        let cached = judge(&self.file, &FILE);
        let len = (cached.len() * 512).next_multiple_of(BLOCK);
        let (buf, count) = self.file.read_buf(0, Buf::zeroed(len));
        let direct = &buf.as_slice()[..count.unwrap()];
        let firsts: Vec<u8> = direct.chunks(512).map(|s| s[0]).collect();
        assert_eq!(cached, firsts, "the cache, and the device");
        cached
    }
}

/// Runs the actions with each kind of flusher.
fn race(actions: &[Action], look: impl Fn(&Bed)) {
    for age in [Duration::ZERO, Duration::from_secs(30)] {
        race_on(Bed::cached(age), actions, &look);
    }
}

/// The sectors of blocks of which each has one value.
fn of_blocks(values: &[u8]) -> Vec<u8> {
    values.iter().flat_map(|v| [*v; 2]).collect()
}

/// Rules G13, G16: pages are written, and written back, while the file is truncated and others use what was freed. The write is before
/// the truncation or behind it, as a whole.
#[test]
fn write_back_meets_a_truncation() {
    check(|| {
        let actions: [Action; 4] = [
            |bed| {
                bed.write(8, 8, 11);
                bed.file.sync_data().unwrap();
            },
            |bed| {
                bed.file.truncate(5 * BLOCK as u64).unwrap();
                bed.reuse(4..7, 40);
            },
            |bed| bed.write_durably(2, 1, 12),
            |bed| bed.volume.sync().unwrap(),
        ];
        race(&actions, |bed| {
            let mut cut = of_blocks(&[1, 1, 1, 1, 11]);
            let mut grown = of_blocks(&[1, 1, 1, 1, 11, 11, 11, 11]);
            (cut[2], grown[2]) = (12, 12);
            let found = bed.settled();
            assert!(found == cut || found == grown, "{found:?}");
            judge(&bed.other, &OTHER);
        });
    });
}

/// Rules C11, U8, D1: sectors of one block are written through the cache and directly, and each is made durable in its way.
#[test]
fn write_back_meets_direct_writes() {
    check(|| {
        let actions: [Action; 4] = [
            |bed| {
                bed.write_durably(2, 1, 11);
                bed.write_durably(8, 1, 11);
            },
            |bed| {
                for sector in [3, 9] {
                    let half = filled(12, 512);
                    let done = bed.file.call(Op::Write, sector * SECTOR, half, DSYNC).1;
                    assert_eq!(done.unwrap(), 512);
                    bed.sectors_are_durable(sector, 1, 12);
                    bed.sees(sector, 1, 12);
                }
            },
            |bed| {
                bed.write(17, 2, 13);
                bed.write_directly(16, 1, 14);
                bed.sees(17, 2, 13);
            },
            |bed| bed.volume.sync().unwrap(),
        ];
        race(&actions, |bed| {
            let mut expected = of_blocks(&[OLD, OLD, OLD, OLD, 0, 0, 0, 0, 0, 0, 0, 0]);
            (expected[2], expected[8]) = (11, 11);
            (expected[3], expected[9]) = (12, 12);
            expected[16..19].copy_from_slice(&[14, 13, 13]);
            assert_eq!(bed.settled(), expected);
        });
    });
}

/// Rules B9, C11, G18: the same whole blocks are written through the cache and directly. In the end cache and device have the bytes of one
/// writer; the defect would be a write-back that ends before a direct write which claimed the block earlier.
#[test]
fn write_back_meets_direct_writes_of_the_same_blocks() {
    check(|| {
        let actions: [Action; 4] = [
            |bed| {
                bed.write(8, 2, 11);
                bed.file.sync_data().unwrap();
                bed.write(8, 2, 12);
            },
            |bed| {
                bed.write_directly(8, 2, 13);
                bed.write_directly(8, 4, 14);
            },
            |bed| {
                bed.write(8, 4, 15);
                bed.file.sync_data().unwrap();
            },
            |bed| bed.volume.sync().unwrap(),
        ];
        race(&actions, |bed| {
            let found = bed.settled();
            assert!(found[8] == found[9] && [12, 14, 15].contains(&found[8]));
            assert!(found[10] == found[11] && [14, 15].contains(&found[10]));
        });
    });
}

/// A write that was acknowledged has its space, also if the blocks that it was to overwrite are cut off and used by others meanwhile.
#[test]
fn acknowledged_writes_have_their_space() {
    check(|| {
        let actions: [Action; 2] = [
            |bed| {
                let done = bed.file.write_bytes(BLOCK as u64, &[11; 3 * BLOCK]);
                bed.other.sync().unwrap();
                let synced = bed.file.sync_data();
                match done {
                    Ok(_) => synced.unwrap(),
                    Err(error) => assert!(matches!(error, Error::NoSpace { .. }), "{error}"),
                }
            },
            |bed| {
                bed.file.truncate(BLOCK as u64).unwrap();
                bed.volume.sync().unwrap();
                bed.reuse(4..40, 40);
            },
        ];
        race(&actions, |bed| {
            judge(&bed.other, &OTHER);
            let found = bed.settled();
            assert!(found[2..].iter().all(|v| *v == 11), "{found:?}");
        });
    });
}

/// Rules U4, B4, C5: unwritten blocks are converted by direct writes and by write-back, which share blocks.
#[test]
fn write_back_meets_conversions() {
    check(|| {
        let actions: [Action; 4] = [
            |bed| bed.write_durably(8, 3, 11),
            |bed| {
                let done = bed
                    .file
                    .call(Op::Write, 11 * SECTOR, filled(12, 1024), DSYNC);
                assert_eq!(done.1.unwrap(), 1024);
                bed.sectors_are_durable(11, 2, 12);
            },
            |bed| {
                bed.write(13, 2, 13);
                bed.sees(13, 2, 13);
            },
            |bed| bed.volume.sync().unwrap(),
        ];
        race(&actions, |bed| {
            let found = bed.settled();
            assert_eq!(found[8..17], [11, 11, 11, 12, 12, 13, 13, 0, 0]);
        });
    });
}

/// Rule U9: appends through the cache and direct ones: no two get one place, there is no gap, and what was synced stays.
#[test]
fn appends_of_both_kinds_follow_each_other() {
    check(|| {
        let actions: [Action; 4] = [
            |bed| {
                let at = bed.file.append_bytes(&[11; 1024]).unwrap();
                bed.sees(at / SECTOR, 2, 11);
            },
            |bed| {
                let (_, at) = bed.file.append_buf(filled(12, 1024));
                bed.sees(at.unwrap() / SECTOR, 2, 12);
            },
            |bed| {
                let at = bed.file.append_bytes(&[13; 512]).unwrap();
                bed.file.sync_data().unwrap();
                bed.sectors_are_durable(at / SECTOR, 1, 13);
            },
            |bed| {
                let (_, at) = bed.file.append_buf(filled(14, 512));
                bed.file.sync_data().unwrap();
                bed.sectors_are_durable(at.unwrap() / SECTOR, 1, 14);
            },
        ];
        // Direct appends and the cache reserve more than they need, for a moment.
        let bed = Bed::new();
        let rest = bed
            .volume
            .open_path("/rest", crate::common::fixture::writable());
        rest.unwrap().truncate(900 * BLOCK as u64).unwrap();
        bed.volume.sync().unwrap();
        race_on(bed, &some(&actions, 3), |bed| {
            let found = bed.settled();
            let mut runs: Vec<(u8, usize)> = found[2 * BLOCKS as usize..]
                .chunk_by(|a, b| a == b)
                .map(|run| (run[0], run.len()))
                .collect();
            runs.sort_unstable();
            let all = [(11, 2), (12, 2), (13, 1), (14, 1)];
            assert!(
                runs.len() == 3 && runs.iter().all(|r| all.contains(r)),
                "{runs:?}"
            );
        });
    });
}

/// Rule D1: what was written to the cache before a sync began is durable when it has ended, also if it was on its way to the device and
/// changed meanwhile.
#[test]
fn syncs_meet_writes_to_the_cache() {
    check(|| {
        let actions: [Action; 4] = [
            |bed| {
                bed.write(8, 2, 11);
                bed.write_durably(8, 2, 12);
                bed.write_durably(9, 1, 13);
            },
            |bed| bed.write_durably(10, 2, 14),
            |bed| {
                bed.write(2, 1, 15);
                bed.volume.sync().unwrap();
                bed.sectors_are_durable(2, 1, 15);
            },
            |bed| bed.file.sync_data().unwrap(),
        ];
        race(&actions, |bed| {
            let found = bed.settled();
            assert_eq!((found[2], &found[8..12]), (15, &[12, 13, 14, 14][..]));
        });
    });
}

/// A write that was acknowledged beside the close of the volume is there afterwards, and survives a power cut; else it was refused.
#[test]
fn writes_meet_the_close_of_the_volume() {
    check(|| {
        for age in [Duration::ZERO, Duration::from_secs(30)] {
            let bed = Bed::cached(age);
            let acknowledged: Arc<Mutex<Vec<(u64, u8)>>> = Arc::default();
            let writers = [(4, 11), (9, 12)].map(|(first, value)| {
                let (bed, acknowledged) = (bed.clone(), acknowledged.clone());
                super::thread::spawn(move || {
                    for block in first..first + 2 {
                        let pos = block * BLOCK as u64;
                        match bed.file.write_bytes(pos, &[value; BLOCK]) {
                            Ok(_) => acknowledged.lock().unwrap().push((block, value)),
                            Err(error) => assert!(matches!(error, Error::ShutDown), "{error}"),
                        }
                    }
                })
            });
            bed.volume.with_owner(0, 0).close().unwrap();
            writers.into_iter().for_each(|t| t.join().unwrap());
            for (block, value) in acknowledged.lock().unwrap().iter() {
                bed.sectors_are_durable(2 * block, 2, *value);
            }
            // Judges the power cut, too.
            race_on(bed, &[], |_| {});
        }
    });
}

/// Rule C11: a reader has a window read ahead while blocks of it are written, directly and through the cache: what was written is seen.
#[test]
fn read_ahead_meets_writes() {
    check(|| {
        let actions: [Action; 4] = [
            |bed| {
                sectors(&bed.file);
                judge(&bed.file, &FILE);
            },
            |bed| {
                bed.write_directly(2, 1, 11);
                bed.sees(2, 1, 11);
                bed.write_directly(9, 2, 12);
                bed.sees(9, 2, 12);
            },
            |bed| {
                bed.write(4, 1, 13);
                bed.sees(4, 1, 13);
                bed.write_directly(4, 2, 14);
                bed.sees(4, 2, 14);
            },
            |bed| {
                let again = bed
                    .volume
                    .open_path("/file", crate::common::fixture::writable())
                    .unwrap();
                judge(&again, &FILE);
            },
        ];
        race(&actions, |bed| {
            let found = bed.settled();
            assert_eq!(found[..6], [1, 1, 11, 1, 14, 14]);
            assert_eq!(found[8..11], [0, 12, 12]);
        });
    });
}

/// Rules G13, G16: a reader has a window read ahead while the file is cut, punched and grows again: what was cut off is zeros, and the
/// bytes of the file that uses those blocks then are not seen.
#[test]
fn read_ahead_meets_truncations() {
    check(|| {
        let actions: [Action; 4] = [
            |bed| {
                judge(&bed.file, &FILE);
                judge(&bed.file, &FILE);
            },
            |bed| {
                bed.file.truncate(BLOCK as u64 + SECTOR).unwrap();
                bed.file.truncate(6 * BLOCK as u64).unwrap();
                bed.sees(3, 9, 0);
            },
            |bed| {
                bed.file.fallocate(Fallocate::PunchHole, 0, SECTOR).unwrap();
                bed.sees(0, 1, 0);
            },
            |bed| {
                bed.volume.sync().unwrap();
                bed.reuse(4..10, 40);
            },
        ];
        race(&actions, |bed| {
            let mut expected = of_blocks(&[OLD, 0, 0, 0, 0, 0]);
            (expected[0], expected[2]) = (0, OLD);
            assert_eq!(bed.settled(), expected);
            judge(&bed.other, &OTHER);
        });
    });
}
