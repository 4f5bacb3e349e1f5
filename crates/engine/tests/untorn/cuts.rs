//! Power cuts while atomic writes are under way: every unit is old or new, whole, and what was acknowledged as durable is there.
//!
//! Input: volumes on a recording device with a volatile cache, and on a simulated disk with atomic writes. Output: none. Invariants: the
//! judge is e2fsck, which replays the journal, and debugfs, which reads the file; neither knows the engine. Limits: `DIORITE_UNTORN_CUTS`
//! states per kind of volume; pieces of 1 KiB survive whole, as a torn superblock is another test's.

use super::{FOUR_K, Kind, ONE_K, atomic, kind, made, opened};
use crate::common::fixture::{filled, run_all, sim, writable};
use crate::common::recipe::debugfs;
use crate::common::stage::mem_of;
use crate::common::{Rng, run, scaled, scratch};
use diorite::{OpenOptions, Request, RequestFlags, Volume};
use diorite_block::record::{PowerCuts, RecordDevice, plan};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const UNITS: u64 = 8;

/// The file as e2fsck leaves it and debugfs reads it.
fn read_by_others(dir: &Path, image: &[u8]) -> Vec<u8> {
    let at = dir.join("cut");
    std::fs::write(&at, image).unwrap();
    let status = xtask::run::tool("e2fsck")
        .args(["-fy", at.to_str().unwrap()])
        .output()
        .unwrap();
    // 0: nothing to mend; 1: the journal was replayed, or orphans freed.
    assert!(
        matches!(status.status.code(), Some(0 | 1)),
        "{}",
        String::from_utf8_lossy(&status.stdout)
    );
    let said = String::from_utf8_lossy(&status.stdout).into_owned();
    for word in [
        "multiply-claimed",
        "Block bitmap differences",
        "lost+found",
        "i_blocks",
    ] {
        assert!(!said.contains(word), "{said}");
    }
    run("e2fsck", &["-fn", at.to_str().unwrap()]);
    let out = dir.join("out");
    debugfs(&at, dir, &format!("dump /file {}\n", out.display()));
    std::fs::read(out).unwrap()
}

/// The byte of each unit, which is in all of it.
fn units(bytes: &[u8], len: u64, what: &str) -> Vec<u8> {
    let whole = bytes.chunks(len as usize).enumerate().map(|(n, unit)| {
        let other = unit.iter().position(|b| *b != unit[0]);
        assert_eq!(other, None, "{what}: unit {n} is torn");
        unit[0]
    });
    whole.collect()
}

fn cut_everywhere(kind: &Kind, len: u64, rng: &mut Rng) {
    let dir = scratch();
    let path = made(dir.path(), kind, "16M");
    let memory = Arc::new(mem_of(&std::fs::read(&path).unwrap()));
    let start = |volume: &Volume| {
        let file = volume.open_path("/file", writable()).unwrap();
        file.truncate(0).unwrap();
        for n in 0..UNITS {
            assert_eq!(atomic(&file, n * len, 1, len).unwrap() as u64, len);
        }
    };
    let volume = Volume::open_device(memory.clone(), &OpenOptions::writable()).unwrap();
    start(&volume);
    volume.close().unwrap();
    let mut base = std::fs::read(&path).unwrap();
    memory.read_at(0, &mut base);
    let record = RecordDevice::with_volatile_cache(memory);
    let options = OpenOptions::writable().commit_interval(Duration::from_secs(3600));
    let volume = Volume::open_device(Arc::new(record.clone()), &options).unwrap();
    let file = volume.open_path("/file", writable()).unwrap();
    let queue = volume.queue(16).unwrap();
    let id = queue.attach(&file).unwrap();
    // What is durable from this place of the log on.
    let mut durable: Vec<(usize, u8)> = vec![(0, 1)];
    for round in 2..10u8 {
        let dsync = round % 3 == 0;
        let flags = RequestFlags::default().dsync(dsync);
        let grows = u64::from(round > 6);
        let requests = (0..UNITS + grows).map(|n| {
            let buf = filled(round, len as usize);
            Request::write(id, n * len, buf, n)
                .atomic()
                .with_flags(flags)
        });
        for done in run_all(&queue, requests.collect()) {
            assert_eq!(done.result.unwrap() as u64, len);
        }
        if dsync {
            durable.push((record.log().len(), round));
        } else if rng.below(2) == 0 {
            volume.sync().unwrap();
            durable.push((record.log().len(), round));
        }
    }
    drop((queue, file));
    let end = record.log().len();
    volume.close().unwrap();
    let log = record.log();
    let mut walk = PowerCuts::new(base, &log);
    let count = scaled("DIORITE_UNTORN_CUTS", 60) as usize;
    let mut cuts = plan(&log[..end], count, rng.below(u64::MAX), 1024);
    cuts.sort_by_key(|cut| cut.at);
    for cut in cuts {
        let what = format!("{} {len}, {cut:?}", kind.name);
        let image = walk.with_image(cut, |image| image.to_vec());
        let found = units(&read_by_others(dir.path(), &image), len, &what);
        let known = durable.iter().rev().find(|(at, _)| *at <= cut.at);
        let least = known.map_or(1, |(_, round)| *round);
        assert!(found.len() as u64 >= UNITS, "{what}: {found:?}");
        assert!(
            found[..UNITS as usize].iter().all(|b| *b >= least),
            "{what}: {found:?}, and {least} was durable"
        );
    }
}

/// Rule B10. The power is cut anywhere, and any of the unflushed pieces of 1 KiB are lost.
#[test]
fn no_cut_tears_a_unit() {
    let mut rng = Rng::from_env("untorn-cuts");
    let clusters: &[&str] = &["-t", "ext4", "-O", "bigalloc", "-b", "1024", "-C", "16384"];
    cut_everywhere(&ONE_K, 8192, &mut rng);
    cut_everywhere(&FOUR_K, 16384, &mut rng);
    cut_everywhere(&kind("clusters", clusters, 1024, 16384), 16384, &mut rng);
}

/// Rule B10, where the device writes atomically: also without a journal. Plain writes are torn there, so the test would see it.
#[test]
fn a_device_with_atomic_writes_tears_none() {
    let mut rng = Rng::from_env("untorn-device-cuts");
    for args in [
        &["-t", "ext4", "-b", "4096"][..],
        &["-t", "ext4", "-b", "4096", "-O", "^has_journal"],
    ] {
        let dir = scratch();
        let path = made(dir.path(), &kind("", args, 4096, 4096), "16M");
        let mut torn = [0, 0];
        for round in 0..scaled("DIORITE_UNTORN_CUTS", 30) {
            let stage = sim(&path, "atomic=64K,cache=volatile,crash=yes");
            let (volume, file) = opened(&stage);
            let queue = volume.queue(16).unwrap();
            let id = queue.attach(&file).unwrap();
            let is_atomic = round % 2;
            let requests = (0..16).map(|n| {
                let plain = Request::write(id, n * 16384, filled(0x66, 16384), n);
                match is_atomic {
                    0 => plain,
                    _ => plain.atomic(),
                }
            });
            for done in run_all(&queue, requests.collect()) {
                match done.result {
                    Ok(len) => assert_eq!(len, 16384),
                    // Its place on the device is no multiple of its length, and there is no journal.
                    Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::Unsupported),
                }
            }
            let image = stage.disk().crash(rng.below(u64::MAX)).unwrap();
            let mut bytes = vec![0; std::fs::metadata(&path).unwrap().len() as usize];
            image.read_at(0, &mut bytes);
            let found = read_by_others(dir.path(), &bytes);
            let is_torn = |unit: &&[u8]| unit.iter().any(|b| *b != unit[0]);
            torn[is_atomic as usize] += found.chunks_exact(16384).filter(is_torn).count();
            drop((queue, file));
            volume.close().unwrap();
        }
        assert!(torn[0] > 0 && torn[1] == 0, "{torn:?}, {args:?}");
    }
}
