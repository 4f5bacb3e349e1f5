//! The kernel after a power cut while the size changes. It counts groups and reads their descriptors before it replays a log, so a log may
//! hold no superblock of another size than the one on the volume.

use super::{MIB, check_files, extend, kind, made, open};
use crate::common::stage::mem_of;
use crate::common::{Rng, kernel, scaled, scratch};
use diorite::{OpenOptions, Volume};
use diorite_block::RecordDevice;
use diorite_block::record::{PowerCuts, plan};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

/// Sizes in MiB. Groups of 1 MiB, and 16 descriptors in a block: new descriptors take blocks that were kept for them, and give them back.
const CHANGES: [(&str, u64, u64); 4] = [
    ("-t ext4 -b 1024 -g 1024 -N 4000", 10, 40),
    (
        "-t ext4 -b 1024 -g 1024 -N 4000 -O ^metadata_csum,uninit_bg,^flex_bg",
        9,
        40,
    ),
    ("-t ext4 -b 1024 -g 1024 -N 4000", 40, 10),
    ("-t ext3 -b 1024 -g 1024 -N 4000", 40, 10),
];

#[test]
fn the_kernel_may_come_first_after_a_power_cut() {
    let states = scaled("DIORITE_CUTS", 40) as usize;
    for (words, from, to) in CHANGES {
        let mut rng = Rng::from_env(words);
        let dir = scratch();
        // What shrinks has grown: its journal need not move, which may leave blocks that nobody uses.
        let (path, files) = made(dir.path(), &kind(words, from.min(to), to));
        if to < from {
            extend(&path, from * MIB);
            let volume = open(&path);
            volume.grow(from * MIB).unwrap();
            volume.close().unwrap();
        }
        let mut base = std::fs::read(&path).unwrap();
        base.resize((from.max(to) * MIB) as usize, 0xEE);
        let device = RecordDevice::with_volatile_cache(Arc::new(mem_of(&base)));
        let volume =
            Volume::open_device(Arc::new(device.clone()), &OpenOptions::writable()).unwrap();
        match from < to {
            true => {
                volume.grow(to * MIB).unwrap();
                volume.close().unwrap();
            }
            false => drop(volume.shrink(to * MIB, &mut |_| true).unwrap()),
        }
        let log = device.log();
        let mut walk = PowerCuts::new(base, &log);
        let (mut old, mut new) = (0, 0);
        for cut in plan(&log, states, rng.below(u64::MAX), 512) {
            let cut_at = dir.path().join("cut");
            walk.with_image(cut, |bytes| std::fs::write(&cut_at, bytes).unwrap());
            let torn = xtask::run::tool("dumpe2fs").arg("-h").arg(&cut_at).output();
            if !torn.unwrap().status.success() {
                // The kernel mounts no volume whose superblock has a wrong checksum.
                continue;
            }
            if !kernel::mounted(&cut_at, "rw", fill) {
                return;
            }
            let said = clean(&cut_at);
            assert!(said.is_empty(), "{words}: {cut:?}\n{said}");
            let volume = open(&cut_at);
            check_files(&volume, &files);
            match volume.superblock().geometry().volume_bytes() == to * MIB {
                true => new += 1,
                false => old += 1,
            }
            volume.close().unwrap();
        }
        eprintln!("{words}: {old} old, {new} new");
        assert!(old > 0 && new > 0);
    }
}

/// Files of all sizes until there is no space.
fn fill(at: &Path) {
    let mut count = 0;
    loop {
        let bytes = vec![count as u8; 1000 + count * 997 % 300_000];
        let file = std::fs::File::create(at.join(format!("filler{count}")));
        match file.and_then(|mut file| file.write_all(&bytes)) {
            Ok(()) => count += 1,
            Err(error) if error.raw_os_error() == Some(28) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

/// What e2fsck finds wrong. The kernel leaves trees of extents that could be shorter, where the space ends while it writes.
fn clean(path: &Path) -> String {
    let done = xtask::run::tool("e2fsck")
        .args(["-fn", "-E", "no_optimize_extents"])
        .arg(path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    match done.status.success() && !said.contains("? no") {
        true => String::new(),
        false => said,
    }
}
