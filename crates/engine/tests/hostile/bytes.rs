//! Truncated images, random bit flips, words with absurd values.

use crate::common::stage::mem_of;
use crate::common::walk::open_and_walk;
use crate::common::watch::{Watchdog, resident};
use crate::common::{Rng, scaled, scratch};
use crate::{KINDS, LIMIT, Patient, inode_at, survive, victim};
use std::sync::Arc;

#[test]
fn a_sound_image_is_walked_whole() {
    let dir = scratch();
    for (name, args) in KINDS {
        let image = victim(dir.path(), name, args);
        let walked = open_and_walk(Arc::new(mem_of(&std::fs::read(&image).unwrap())));
        assert!(
            walked.opened && walked.inodes > 320 && walked.bytes > 100_000,
            "{name}: {walked:?}"
        );
    }
}

#[test]
fn truncated_images() {
    let mut rng = Rng::from_env("truncated");
    let dir = scratch();
    let watchdog = Watchdog::new(LIMIT, "start");
    for (name, args) in KINDS {
        let bytes = std::fs::read(victim(dir.path(), name, args)).unwrap();
        let base = resident();
        let mut lengths: Vec<usize> = (0..24).map(|n| n * 512).collect();
        lengths.extend((0..40).map(|_| rng.below(bytes.len() as u64) as usize));
        lengths.extend([bytes.len() - 1, bytes.len() - 512, bytes.len() - 1024]);
        for len in lengths {
            let label = format!("{name} cut at {len}");
            let walked = survive(&watchdog, &label, base, || {
                open_and_walk(Arc::new(mem_of(&bytes[..len])))
            });
            assert!(
                !walked.opened || len + 511 >= bytes.len(),
                "{label}: it opened"
            );
            // The same length, but zeros at the end, as if the tail had been lost.
            survive(&watchdog, &format!("{name} zeros from {len}"), base, || {
                let mut cut = bytes.clone();
                cut[len..].fill(0);
                open_and_walk(Arc::new(mem_of(&cut)))
            });
        }
    }
}

fn mutate(patient: &Patient, rng: &mut Rng) -> Vec<(u64, Vec<u8>)> {
    (0..1 + rng.below(4))
        .map(|_| {
            // Half of the flips hit the first 300 KiB, where the structures are.
            let sector = if rng.below(2) == 0 {
                patient.busy[rng.below(patient.busy.len().min(400) as u64) as usize]
            } else {
                patient.busy[rng.below(patient.busy.len() as u64) as usize]
            };
            let at = sector * 512 + rng.below(508);
            let old = &patient.bytes[at as usize..][..4];
            let new = match rng.below(6) {
                0 | 1 => vec![old[0] ^ 1 << rng.below(8)],
                2 => vec![rng.next() as u8],
                3 => (at / 1024).to_le_bytes()[..4].to_vec(),
                4 => [[0; 4], [0xff; 4], [0, 0, 0, 0x80], [1, 0, 0, 0]][rng.below(4) as usize]
                    .to_vec(),
                _ => (rng.below(6000) as u32).to_le_bytes().to_vec(),
            };
            let at = if new.len() == 4 { at & !3 } else { at };
            (at, new)
        })
        .collect()
}

#[test]
fn flipped_bits() {
    let images = scaled("DIORITE_HOSTILE_IMAGES", 600);
    let first = Rng::from_env("flipped").next();
    let dir = scratch();
    let watchdog = Watchdog::new(LIMIT, "start");
    for (name, args) in KINDS {
        let patient = Patient::new(&victim(dir.path(), name, args));
        let (base, mut opened) = (resident(), 0);
        for n in 0..images {
            let seed = first.wrapping_add(n);
            let changes = mutate(&patient, &mut Rng::new(seed));
            let label = format!("{name}, image {n} ({changes:x?})");
            let walked = survive(&watchdog, &label, base, || patient.try_with(&changes));
            opened += u64::from(walked.opened);
        }
        eprintln!("{name}: {opened} of {images} opened");
    }
}

/// Absurd values: in every word of the superblock, of the group descriptors and of the inodes in use, one at a time.
#[test]
fn absurd_words() {
    let dir = scratch();
    let watchdog = Watchdog::new(LIMIT, "start");
    let stride = scaled("DIORITE_HOSTILE_STRIDE", 3);
    for (name, args) in &KINDS[1..] {
        let image = victim(dir.path(), name, args);
        let patient = Patient::new(&image);
        let base = resident();
        let mut words: Vec<u64> = (1024..1024 + 400).step_by(4).collect();
        words.extend((2048..2048 + 64).step_by(4));
        for ino in [2, 8, 11, 12, 13, 14, 20, 30] {
            let at = inode_at(&image, ino);
            words.extend((at..at + 160).step_by(4));
        }
        for (n, at) in words.into_iter().enumerate() {
            let values = [0, 1, 0x7fff_ffff, u32::MAX, 0x0001_0000, 0xffff];
            for (m, value) in values.iter().enumerate() {
                if !((n + m) as u64).is_multiple_of(stride) {
                    continue;
                }
                let change = [(at, value.to_le_bytes().to_vec())];
                let label = format!("{name}: {value:#x} at {at:#x}");
                survive(&watchdog, &label, base, || patient.try_with(&change));
            }
        }
    }
}
