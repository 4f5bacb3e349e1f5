//! Rules D1, D2: what a flush, or FUA, of a device promised is there after a power cut, through windows and in both modes.
//!
//! Input: simulated disks with a volatile cache. Output: none. Invariant: the recovered volume is judged by e2fsck. Limits: one layer;
//! `tools/crash` cuts the power of deeper stacks.

use super::{MODES, bytes_of, mode, run_bios};
use crate::common::fixture::{LIMIT, filled, made, sim, writable};
use crate::common::stage::one_worker;
use crate::common::watch::Watchdog;
use crate::common::{Rng, fsck};
use diorite::{LoopDevice, OpenOptions, Volume};
use diorite_block::{Bio, Device, WindowDevice, WindowOptions};
use std::sync::Arc;

fn device_on(volume: &Volume, path: &str, windowed: bool) -> Arc<dyn Device> {
    let file = volume.open_path(path, writable()).unwrap();
    let looped = Arc::new(LoopDevice::new(file, "loop".into()));
    let part = |below, sector| {
        let options = WindowOptions::default().sector(sector);
        Arc::new(WindowDevice::new(below, &options, "window".into()).unwrap())
    };
    match windowed {
        false => looped,
        true => part(part(looped, 4096), 512),
    }
}

/// Every sector has one byte; what was promised last is the least that a cut leaves.
#[test]
fn what_was_promised_is_there() {
    let _watchdog = Watchdog::new(3 * LIMIT, "power cuts of a loop device");
    let mut rng = Rng::from_env("loop cuts");
    let (dir, image, _) = made(0);
    for params in [
        "cache=volatile,crash=yes,fua=yes",
        "cache=volatile,crash=yes,fua=no",
    ] {
        for (loop_mode, windowed) in MODES.into_iter().flat_map(|m| [(m, false), (m, true)]) {
            // In holes, and in what is written already.
            for path in ["/sparse", "/even"] {
                let stage = sim(&image, params);
                let options = one_worker(mode(loop_mode));
                let volume = stage.open(&options).unwrap();
                let device = device_on(&volume, path, windowed);
                let sectors = device.geometry().size / 512;
                let mut promised: Vec<(u64, u8)> = Vec::new();
                for step in 0..12u8 {
                    let at = rng.below(sectors.min(160));
                    promised.retain(|(sector, _)| *sector != at);
                    let mut bio = Bio::write(at * 512, filled(step + 1, 512), 0);
                    bio.flags.fua = step % 2 == 0;
                    assert_eq!(run_bios(&*device, vec![bio])[0].result, Ok(()));
                    if step % 2 == 1 {
                        assert_eq!(run_bios(&*device, vec![Bio::flush(0)])[0].result, Ok(()));
                    }
                    promised.push((at, step + 1));
                    let cut = Arc::new(stage.disk().crash(rng.next()).unwrap());
                    let after = Volume::open_device(cut.clone(), &OpenOptions::writable()).unwrap();
                    let left = device_on(&after, path, false);
                    for (sector, byte) in &promised {
                        let got = bytes_of(&*left, sector * 512, 512);
                        assert!(
                            got.iter().all(|b| b == byte),
                            "{params}, {loop_mode:?}, windowed {windowed}, {path}: sector {sector} after step {step}"
                        );
                    }
                    drop(left);
                    after.close().unwrap();
                    if step == 11 {
                        let mut bytes = vec![0; cut.geometry().size as usize];
                        cut.read_at(0, &mut bytes);
                        let file = dir.path().join("cut");
                        std::fs::write(&file, bytes).unwrap();
                        fsck(&file);
                    }
                }
            }
        }
    }
}
