//! Tests of `zero_free` and `look_at_free`: only what is durably free is written, beside writers too; a device that fails.

use crate::common::stage::{Stage, faulty, mem_of};
use crate::common::{image, scratch, words};
use diorite::{Error, FreeBlocks, OpenFlags, OpenOptions, Volume};
use diorite_block::{BioErrorKind, BioOp, Fault, When};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const LEN: usize = 1 << 20;

fn stage(dir: &Path, args: &[&str]) -> Stage {
    let tree = dir.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::write(tree.join("file"), vec![0x55; LEN]).unwrap();
    Stage::mem(&image(dir, "16M", args, &tree))
}

fn contents(volume: &Volume, path: &str) -> Vec<u8> {
    let file = volume.open_path(path, OpenFlags::default()).unwrap();
    let mut bytes = vec![0; file.size() as usize];
    assert_eq!(file.read_bytes(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

/// Rule G17: a file that is deleted in a transaction which is not durable is whole after a power cut.
#[test]
fn blocks_that_a_power_cut_brings_back_are_not_zeroed() {
    let dir = scratch();
    for args in [&["-t", "ext4"][..], &["-t", "ext4", "-b", "1024"]] {
        let stage = stage(dir.path(), args);
        let volume = stage.open(&OpenOptions::writable()).unwrap();
        let first = volume.zero_free(|_| ()).unwrap();
        volume.unlink("/file").unwrap();
        let again = volume.zero_free(|_| ()).unwrap();
        assert_eq!(again.nonzero, 0, "of {first:?}");
        let cut: Arc<_> = Arc::new(mem_of(&stage.bytes()));
        let other = Volume::open_device(cut, &OpenOptions::default()).unwrap();
        assert!(contents(&other, "/file") == vec![0x55; LEN]);
        other.close().unwrap();
        volume.sync().unwrap();
        let mut told = Vec::new();
        let freed = volume.zero_free(|at| told.push(at)).unwrap();
        let blocks = (LEN as u64).div_ceil(u64::from(volume.superblock().block_size()));
        assert!(freed.nonzero >= blocks, "{freed:?}");
        assert!(told.is_sorted() && *told.last().unwrap() <= 16 << 20);
        volume.close().unwrap();
        assert!(
            !stage
                .bytes()
                .windows(4096)
                .step_by(512)
                .any(|b| b == [0x55; 4096])
        );
        stage.fsck();
    }
}

#[test]
fn who_only_looks_writes_nothing() {
    let dir = scratch();
    let stage = stage(dir.path(), &["-t", "ext4"]);
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    volume.unlink("/file").unwrap();
    volume.close().unwrap();
    let before = stage.bytes();
    let reader = stage.open(&OpenOptions::default()).unwrap();
    let seen = reader.look_at_free(|_| ()).unwrap();
    assert_eq!(seen.free, reader.space().free);
    let refused = reader.zero_free(|_| ()).unwrap_err();
    assert!(matches!(refused, Error::ReadOnly(_)), "{refused}");
    reader.close().unwrap();
    assert!(stage.bytes() == before);
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    assert_eq!(volume.zero_free(|_| ()).unwrap(), seen);
    volume.close().unwrap();
    let reader = stage.open(&OpenOptions::default()).unwrap();
    let none = FreeBlocks { nonzero: 0, ..seen };
    assert_eq!(reader.look_at_free(|_| ()).unwrap(), none);
}

#[test]
fn a_device_that_fails_ends_it_and_nothing_stays_claimed() {
    let dir = scratch();
    // Without a journal nothing but data lies where the faults are.
    let stage = stage(dir.path(), &["-t", "ext4", "-O", "^has_journal"]);
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    volume.unlink("/file").unwrap();
    volume.close().unwrap();
    for op in [BioOp::Read, BioOp::Write] {
        let fault = Fault::new(BioErrorKind::Io, When::Every(1))
            .on(op)
            .within(2 << 20..16 << 20);
        let device = faulty(stage.device.clone(), vec![fault]);
        let volume = Volume::open_device(device, &OpenOptions::writable()).unwrap();
        let free = volume.usage().free;
        let error = volume.zero_free(|_| ()).unwrap_err();
        assert!(error.to_string().contains("input/output error"), "{error}");
        assert_eq!(volume.usage().free, free);
    }
}

/// Files that are written and deleted meanwhile have their contents.
#[test]
fn writers_and_zeros_do_not_meet() {
    let dir = scratch();
    let stage = stage(dir.path(), &["-t", "ext4", "-b", "1024"]);
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                volume.zero_free(|_| ()).unwrap();
            }
        });
        for round in 0..40u8 {
            let name = format!("/f{}", round % 8);
            let _ = volume.unlink(&name);
            let file = volume.create(&name, 0o644).unwrap();
            let bytes = vec![round | 0x80; 300_000];
            assert_eq!(file.write_bytes(0, &bytes).unwrap(), bytes.len());
            if round % 3 == 0 {
                volume.sync().unwrap();
            }
        }
        ends.store(true, Ordering::Relaxed);
    });
    volume.close().unwrap();
    let reader = stage.open(&OpenOptions::default()).unwrap();
    for round in 32..40u8 {
        let found = contents(&reader, &format!("/f{}", round % 8));
        assert!(found == vec![round | 0x80; 300_000], "{round}");
    }
    stage.fsck();
}

/// The defect: in a volume that had grown, bitmaps were compared with the descriptors of before, and damage was reported.
#[test]
fn who_looks_at_a_volume_in_use_sees_it_as_it_is() {
    let dir = scratch();
    let args = words("-t ext4 -b 1024 -J size=1 -E resize=100000");
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let path = image(dir.path(), "8M", &args, &empty);
    let mut bytes = std::fs::read(path).unwrap();
    bytes.resize(20 << 20, 0);
    // No bitmap stays in memory longer than it has to.
    let options = OpenOptions::writable().metadata_cache(0);
    let volume = Volume::open_device(Arc::new(mem_of(&bytes)), &options).unwrap();
    for (n, mib) in [10u64, 12, 14, 19].into_iter().enumerate() {
        volume.grow(mib << 20).unwrap();
        let file = volume.create(&format!("/{n}"), 0o644).unwrap();
        assert_eq!(file.write_bytes(0, &[7; 300_000]).unwrap(), 300_000);
        volume.unlink("/0").unwrap_or_default();
        drop(file);
        // What the last transaction has freed is free when it is committed.
        for _ in 0..2 {
            volume.sync().unwrap();
        }
        volume.give_back_claims();
        let seen = volume.look_at_free(|_| ()).unwrap();
        assert_eq!(seen.free, volume.space().free, "{mib} MiB");
    }
    let seen = volume.look_at_free(|_| ()).unwrap();
    assert_eq!(volume.zero_free(|_| ()).unwrap(), seen);
    volume.close().unwrap();
}
