//! States of the superblock and the journal, and power cuts during recovery.

use crate::common::log::Log;
use crate::common::stage::{Stage, mem_of};
use crate::common::{fsck, scratch};
use crate::whole::{crashed, written_by_debugfs};
use crate::{all_of, by_e2fsck, in_memory, on_disk, same};
use diorite::{OpenOptions, Volume};
use diorite_block::record::{PowerCuts, plan};
use diorite_block::{RecordDevice, SimOptions};
use std::sync::Arc;

/// A power cut at any write of recovery leaves an image that recovers to the same content.
#[test]
fn power_cuts_during_recovery() {
    let dir = scratch();
    let image = written_by_debugfs(dir.path(), 1024, "metadata_csum,64bit", "jo -c -v 3");
    let log = Log::of(dir.path(), &image);
    let want = on_disk(&image).unwrap();
    let path = dir.path().join("disk");
    std::fs::write(&path, &image).unwrap();
    let disk = SimOptions::parse("0,cache=volatile,fua=no").unwrap();
    let device = Arc::new(RecordDevice::new(Stage::sim(&path, disk).device));
    Volume::open_device(device.clone(), &OpenOptions::writable()).unwrap();
    let events = device.log();
    let mut cuts = PowerCuts::new(image, &events);
    for cut in plan(&events, 150, 7, 512) {
        cuts.with_image(cut, |image| {
            let label = format!("{cut:?}");
            let memory = in_memory(image).unwrap_or_else(|e| panic!("{label}: {e}"));
            same(&log, &memory.bytes, &want.bytes, &label);
            let disk = on_disk(image).unwrap_or_else(|e| panic!("{label}: {e}"));
            same(&log, &disk.bytes, &want.bytes, &label);
            assert_eq!(
                disk.bytes[1024..2048],
                want.bytes[1024..2048],
                "{label}: the superblock"
            );
        });
    }
}

/// A superblock with a wrong checksum: a backup copy is used, the log is replayed, and the primary is written again.
#[test]
fn a_torn_superblock() {
    let dir = scratch();
    let Some(mut image) = crashed(dir.path(), &["-b", "1024"], "data=ordered") else {
        return;
    };
    let want = on_disk(&image).unwrap();
    let log = Log::of(dir.path(), &image);
    image[1024 + 0x180] ^= 1;
    let memory = in_memory(&image).unwrap();
    assert!(memory.said.contains("stands in for it") && memory.said.contains("replayed in memory"));
    same(&log, &memory.bytes, &want.bytes, "torn");
    let disk = on_disk(&image).unwrap();
    same(&log, &disk.bytes, &want.bytes, "torn");
    let mine = dir.path().join("mine");
    std::fs::write(&mine, &disk.bytes).unwrap();
    fsck(&mine);
}

/// An error recorded in the journal is recorded in the volume, and cleared in the journal.
#[test]
fn an_aborted_journal() {
    let dir = scratch();
    let mut image = written_by_debugfs(dir.path(), 1024, "^metadata_csum", "jo");
    let log = Log::of(dir.path(), &image);
    let errno = log.byte_of(0) + 0x20;
    image[errno..errno + 4].copy_from_slice(&(-5i32).to_be_bytes());
    let said = in_memory(&image).unwrap().said;
    assert!(said.contains("aborted by error -5"), "{said}");
    let device = Arc::new(mem_of(&image));
    let refused = Volume::open_device(device.clone(), &OpenOptions::writable()).unwrap_err();
    assert!(
        refused.to_string().contains("errors are recorded"),
        "{refused}"
    );
    let after = all_of(&device, image.len());
    assert_eq!(after[errno..errno + 4], [0; 4]);
    assert_eq!(after[1024 + 0x3A] & 2, 2);
    same(
        &log,
        &after,
        &by_e2fsck(dir.path(), &image).bytes,
        "aborted",
    );
}
