//! Tests of the ranges without data: against a model of the file, against hosts that answer anything, and at the edges.

use super::*;
use crate::device::Device;
use crate::file::{FileDevice, FileOptions};
use crate::rng::Rng;
use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const BLOCK: u64 = 4096;

fn device(path: &Path, change: impl FnOnce(&mut FileOptions)) -> FileDevice {
    let mut options = FileOptions {
        path: path.to_owned(),
        read_only: true,
        ..FileOptions::default()
    };
    change(&mut options);
    FileDevice::open(&options).expect("the test's own file")
}

/// All runs of the device, asked for a few at a time.
fn runs(device: &dyn Device, most: usize) -> Vec<Run> {
    let (mut at, size, mut all) = (0, device.geometry().size, Vec::new());
    while at < size {
        let some = device.stored(at..size, most).expect("a range inside");
        assert!((1..=most).contains(&some.len()), "{some:?}");
        for run in some {
            assert!(run.len > 0 && run.len <= size - at, "{run:?} at {at}");
            at += run.len;
            all.push(run);
        }
    }
    all
}

/// The folders of the test that can be used: on tmpfs and on the disk.
fn folders() -> Vec<tempfile::TempDir> {
    let at = |folder| {
        tempfile::Builder::new()
            .prefix("diorite-")
            .tempdir_in(folder)
    };
    ["/dev/shm", "/var/tmp"]
        .into_iter()
        .filter_map(|f| at(f).ok())
        .collect()
}

/// Random data, holes and preallocated ranges: every written byte is in a run of data, and what was never written is a hole where the host
/// has holes of a block.
#[test]
fn written_bytes_are_data_and_the_rest_is_holes() {
    let seed = std::env::var("DIORITE_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(7);
    let mut rng = Rng::new(seed);
    for folder in folders() {
        for round in 0..8u64 {
            let path = folder.path().join(format!("{round}"));
            let file = File::create(&path).expect("a scratch file");
            let blocks = 64 + rng.next() % 64;
            file.set_len(blocks * BLOCK + rng.next() % BLOCK)
                .expect("a sparse file");
            let mut written = vec![false; blocks as usize];
            for _ in 0..rng.next() % 24 {
                let at = rng.next() % blocks;
                file.write_all_at(&[1], at * BLOCK + rng.next() % BLOCK)
                    .expect("room");
                written[at as usize] = true;
            }
            let device = device(&path, |_| ());
            for most in [1, 3, 1000] {
                let mut at = 0;
                for run in runs(&device, most) {
                    let blocks = (at / BLOCK)..(at + run.len).div_ceil(BLOCK);
                    let some = blocks
                        .clone()
                        .any(|b| written.get(b as usize) == Some(&true));
                    match run.stored {
                        Stored::Data => {}
                        _ => assert!(
                            !some,
                            "DIORITE_SEED={seed}: data in the {run:?} at {at} of {}",
                            path.display()
                        ),
                    }
                    at += run.len;
                }
                let holes = runs(&device, most)
                    .iter()
                    .filter(|r| r.stored == Stored::Hole)
                    .count();
                assert!(
                    holes > 0,
                    "DIORITE_SEED={seed}: {}: nothing is a hole",
                    path.display()
                );
            }
        }
    }
}

/// Offset, size and an end that is no multiple of the block: positions are the device's, and bounds are multiples of the block.
#[test]
fn a_part_of_a_file_has_its_own_positions() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("image");
    let file = File::create(&path).expect("a scratch file");
    file.set_len(1 << 20).expect("a sparse file");
    file.write_all_at(&[1; 4096], 256 << 10).expect("room");
    for offset in [0, 512, 100 << 10, 256 << 10, (256 << 10) + 4095, 300 << 10] {
        let device = device(&path, |o| {
            o.offset = offset;
            o.size = Some(400 << 10);
        });
        let logical = u64::from(device.geometry().logical);
        let mut at = 0;
        for run in runs(&device, 2) {
            let end = at + run.len;
            assert!(
                at.is_multiple_of(logical) && end.is_multiple_of(logical),
                "{offset}: {at}+{}",
                run.len
            );
            let data = (256u64 << 10).saturating_sub(offset)..(260u64 << 10).saturating_sub(offset);
            let meets = data.start < end && at < data.end;
            assert!(
                run.stored == Stored::Data || !meets,
                "{offset}: {run:?} at {at}"
            );
            at = end;
        }
    }
}

#[test]
fn what_is_behind_the_end_is_no_hole() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("image");
    let file = File::create(&path).expect("a scratch file");
    file.set_len(64 << 10).expect("a sparse file");
    let device = device(&path, |_| ());
    let whole = |stored| Run {
        len: 64 << 10,
        stored,
    };
    assert_eq!(runs(&device, 9), [whole(Stored::Hole)]);
    // The file shrinks: a read behind its end is an error, and must not be taken for zeros.
    file.set_len(8 << 10).expect("a shorter file");
    let (kept, lost) = ((8 << 10, Stored::Hole), (56 << 10, Stored::Data));
    let seen: Vec<(u64, Stored)> = runs(&device, 9).iter().map(|r| (r.len, r.stored)).collect();
    assert_eq!(seen, [kept, lost]);
}

#[test]
fn ranges_outside_are_refused() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("image");
    File::create(&path)
        .and_then(|f| f.set_len(8192))
        .expect("a scratch file");
    let device = device(&path, |_| ());
    #[expect(clippy::reversed_empty_ranges, reason = "what a caller may get wrong")]
    for bad in [0..8193, 8193..8193, u64::MAX - 1..u64::MAX, 4096..0] {
        device.stored(bad, 1).expect_err("outside");
    }
    assert_eq!(device.stored(8192..8192, 5).expect("inside"), []);
    assert_eq!(device.stored(0..8192, 0).expect("inside"), []);
}

/// A host that gives the next of these answers, whatever the question is.
struct Any(RefCell<Rng>);

impl Seeker for Any {
    fn data(&self, _from: u64) -> Result<Option<u64>, Errno> {
        let answer = self.0.borrow_mut().next();
        Ok(
            (!answer.is_multiple_of(5)).then_some(match answer.is_multiple_of(3) {
                true => answer,
                false => answer % 65536,
            }),
        )
    }

    fn hole(&self, _from: u64) -> Result<u64, Errno> {
        let answer = self.0.borrow_mut().next();
        Ok(if answer.is_multiple_of(3) {
            answer
        } else {
            answer % 65536
        })
    }
}

/// Any answers end: every step moves on, and stays in the range.
#[test]
fn answers_of_any_kind_move_on() {
    let host = Any(RefCell::new(Rng::new(3)));
    for base in [0, 4096, u64::MAX - (1 << 20)] {
        let mut at = 0;
        while at < 1 << 18 {
            let (until, _) = next(&host, base, (at, 1 << 18), 512).expect("an answer");
            assert!(until > at && until <= 1 << 18, "{at} to {until}");
            assert_eq!(until % 512, 0);
            at = until;
        }
    }
}

/// A hole that is made between the two questions costs one block of data, not an endless loop.
#[test]
fn a_hole_made_meanwhile_is_data_for_one_block() {
    struct Gone;
    impl Seeker for Gone {
        fn data(&self, from: u64) -> Result<Option<u64>, Errno> {
            Ok(Some(from))
        }
        fn hole(&self, from: u64) -> Result<u64, Errno> {
            Ok(from)
        }
    }
    assert_eq!(
        next(&Gone, 0, (4096, 1 << 20), 512),
        Ok((4608, Stored::Data))
    );
}

/// A host with small blocks, or a part of a file that begins within one: a block with a byte of data is data, from its start to its end.
#[test]
fn a_block_with_any_data_is_data() {
    struct OneByte;
    impl Seeker for OneByte {
        fn data(&self, from: u64) -> Result<Option<u64>, Errno> {
            Ok((from <= 5000).then_some(from.max(5000)))
        }
        fn hole(&self, from: u64) -> Result<u64, Errno> {
            Ok(if from == 5000 { 5001 } else { from })
        }
    }
    let step = |at| next(&OneByte, 0, (at, 1 << 20), 4096);
    assert_eq!(step(0), Ok((4096, Stored::Hole)));
    assert_eq!(step(4096), Ok((8192, Stored::Data)));
    assert_eq!(step(8192), Ok((1 << 20, Stored::Hole)));
}
