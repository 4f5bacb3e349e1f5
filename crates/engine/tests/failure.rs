//! A volume after a failure: an aborted journal, damage found while metadata is changed, a full host; who gets an error, what still
//! works, and what the next open and e2fsck find (man 8 tune2fs, `-e`).
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "failure/bomb.rs"]
mod bomb;
mod common;
#[path = "failure/lost_bios.rs"]
mod lost_bios;
#[path = "failure/panics.rs"]
mod panics;
#[path = "failure/queues.rs"]
mod queues;
#[path = "failure/threads.rs"]
mod threads;
#[path = "failure/unwinding.rs"]
mod unwinding;

use common::fixture::writable;
use common::stage::{Stage, faulty};
use common::{image, run, scratch};
use diorite::{Completion, Error, LoopDevice, OpenFlags, OpenOptions, Queue, Request, Volume};
use diorite_block::{Bio, BioErrorKind, BioOp, Buf, Fault, When};
use diorite_format::Ino;
use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A volume with this setting of `errors=`, a file of 64 KiB and an empty one.
fn make(dir: &Path, errors: &str, more: &[&str]) -> PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::write(tree.join("even"), vec![0x11; 65536]).unwrap();
    std::fs::write(tree.join("empty"), b"").unwrap();
    let args = [&["-t", "ext4", "-b", "4096", "-e", errors], more].concat();
    image(dir, "64M", &args, &tree)
}

/// The byte range of the device that holds the journal.
fn journal_at(stage: &Stage) -> Range<u64> {
    let volume = stage.open(&OpenOptions::default()).unwrap();
    let file = volume.open_ino(Ino::new(8), OpenFlags::default()).unwrap();
    let mappings = file.mappings(0, file.size()).unwrap();
    let diorite::MappingState::Written(at) = mappings[0].state else {
        panic!("{mappings:?}")
    };
    at.get() * 4096..(at.get() + mappings[0].len) * 4096
}

fn one(queue: &Queue, request: Request) -> Completion {
    let (mut batch, mut done) = (VecDeque::from([request]), Vec::new());
    while done.is_empty() {
        queue.submit(&mut batch);
        queue.reap(&mut done, 1, None);
    }
    done.pop().unwrap()
}

fn dumpe2fs(image: &Path) -> String {
    run("dumpe2fs", &["-h", image.to_str().unwrap()])
}

/// Asserts that opening for writing is refused because of the recorded error, and that e2fsck repairs the image and then finds
/// nothing.
fn judge(stage: &Stage, code: &str) {
    stage.save();
    let again = stage.open(&OpenOptions::writable());
    let refused = matches!(&again, Err(e) if matches!(e.root(), Error::Refused(_)));
    assert!(refused, "{again:?}");
    let seen = dumpe2fs(&stage.image);
    assert!(
        seen.contains("Last error err:") && seen.contains(code),
        "{seen}"
    );
    assert!(seen.contains("with errors"), "{seen}");
    let image = stage.image.to_str().unwrap();
    let status = xtask::run::tool("e2fsck")
        .args(["-fy", image])
        .status()
        .unwrap();
    assert!(status.code().is_some_and(|c| c < 4), "{status}");
    common::fsck(&stage.image);
}

/// Opens a volume, the second write to whose journal fails with `kind`, and calls `test` after that failure.
fn with_broken_journal(
    errors: &str,
    kind: BioErrorKind,
    test: impl FnOnce(&Queue, &Volume, Error),
) -> Stage {
    let dir = scratch();
    let stage = Stage::mem(&make(dir.path(), errors, &[]));
    let fault = Fault::new(kind, When::nth(2))
        .on(BioOp::Write)
        .within(journal_at(&stage));
    let device = faulty(stage.device.clone(), vec![fault]);
    let volume = Volume::open_device(device, &OpenOptions::writable()).unwrap();
    let queue = volume.queue(8).unwrap();
    let empty = volume.open_path("/empty", writable()).unwrap();
    assert!(empty.write_buf(0, Buf::zeroed(4096)).1.is_ok());
    let error = empty.sync().unwrap_err();
    test(&queue, &volume, error);
    drop((queue, empty));
    assert!(volume.close().is_err());
    let dir = dir.keep();
    judge(
        &stage,
        if kind == BioErrorKind::NoSpace {
            "ENOSPC"
        } else {
            "EIO"
        },
    );
    std::fs::remove_dir_all(dir).unwrap();
    stage
}

/// After a write to the journal has failed the volume is read-only at once, also for files opened before, whatever `errors=` says
/// other than panic. Reads still work.
#[test]
fn an_aborted_journal_makes_the_volume_read_only() {
    for errors in ["continue", "remount-ro"] {
        with_broken_journal(errors, BioErrorKind::Io, |queue, volume, error| {
            assert!(matches!(error.root(), Error::Device { .. }), "{error}");
            let even = volume.open_path("/even", OpenFlags::default()).unwrap();
            let reader = queue.attach(&even).unwrap();
            let read = one(queue, Request::read(reader, 0, Buf::zeroed(4096), 0));
            assert!(read.result.is_ok() && read.buf.as_slice()[0] == 0x11);
            let refused = volume.open_path("/even", writable()).unwrap_err();
            assert!(matches!(refused, Error::Aborted(_)), "{refused}");
            assert!(matches!(even.sync().unwrap_err(), Error::Aborted(_)));
        });
    }
}

/// As above, for a file that was attached, and used on the fast path, before the failure.
#[test]
fn writes_through_old_handles_are_refused() {
    let dir = scratch();
    let stage = Stage::mem(&make(dir.path(), "remount-ro", &[]));
    let fault = Fault::new(BioErrorKind::Io, When::nth(2))
        .on(BioOp::Write)
        .within(journal_at(&stage));
    let device = faulty(stage.device.clone(), vec![fault]);
    let volume = Volume::open_device(device, &OpenOptions::writable()).unwrap();
    let queue = volume.queue(8).unwrap();
    let even = volume.open_path("/even", writable()).unwrap();
    let id = queue.attach(&even).unwrap();
    for len in [4096, 512] {
        assert!(
            one(&queue, Request::write(id, 0, Buf::zeroed(len), 0))
                .result
                .is_ok()
        );
    }
    let empty = volume.open_path("/empty", writable()).unwrap();
    assert!(empty.write_buf(0, Buf::zeroed(4096)).1.is_ok());
    assert!(empty.sync().is_err());
    for len in [4096, 512] {
        let done = one(&queue, Request::write(id, 4096, Buf::zeroed(len), 0));
        assert!(matches!(done.result, Err(Error::Aborted(_))), "{done:?}");
    }
    let read = one(&queue, Request::read(id, 4096, Buf::zeroed(4096), 0));
    assert!(read.result.is_ok() && read.buf.as_slice()[0] == 0x11);
    drop((queue, even, empty));
    assert!(volume.close().is_err());
    judge(&stage, "EIO");
}

/// `errors=panic`: the volume is closed.
#[test]
fn panic_closes_the_volume() {
    with_broken_journal("panic", BioErrorKind::Io, |queue, volume, _| {
        assert!(matches!(volume.queue(1), Err(Error::ShutDown)));
        let even = volume.open_path("/even", OpenFlags::default()).unwrap();
        let id = queue.attach(&even).unwrap();
        let read = one(queue, Request::read(id, 0, Buf::zeroed(4096), 0));
        assert!(matches!(read.result, Err(Error::ShutDown)), "{read:?}");
    });
}

/// If the host has no space for the journal, the journal aborts; the error names the device and differs from that of a full volume.
#[test]
fn a_full_host_is_told_apart_from_a_full_volume() {
    with_broken_journal("remount-ro", BioErrorKind::NoSpace, |_, _, error| {
        let Error::DeviceFull(full) = error.root() else {
            panic!("{error}")
        };
        assert!(error.to_string().contains(&full.device), "{error}");
    });
}

/// Flips a bit in every block bitmap.
fn damage_bitmaps(stage: &Stage) {
    let volume = stage.open(&OpenOptions::default()).unwrap();
    let places: Vec<u64> = volume
        .groups()
        .iter()
        .map(|g| g.block_bitmap.get())
        .collect();
    drop(volume);
    let blocking = diorite_block::Blocking::new(Arc::clone(&stage.device));
    for at in places {
        let mut block = blocking.read(at * 4096, Buf::zeroed(4096)).unwrap();
        block.as_mut_slice()[4000 / 8] ^= 1;
        blocking.write_durably(at * 4096, block).unwrap();
    }
}

/// Damage is found while a block is claimed. With `continue` that write fails, others succeed, and the error is recorded with the
/// next commit; otherwise the volume becomes read-only.
#[test]
fn damage_met_by_a_change_is_written_down() {
    for errors in ["continue", "remount-ro"] {
        let dir = scratch();
        let stage = Stage::mem(&make(
            dir.path(),
            errors,
            &["-O", "^uninit_bg,metadata_csum"],
        ));
        damage_bitmaps(&stage);
        let volume = stage.open(&OpenOptions::writable()).unwrap();
        let empty = volume.open_path("/empty", writable()).unwrap();
        let even = volume.open_path("/even", writable()).unwrap();
        let error = empty.write_buf(0, Buf::zeroed(4096)).1.unwrap_err();
        assert!(error.is_corrupt(), "{error}");
        let over = even.write_buf(0, Buf::zeroed(4096)).1;
        if errors == "continue" {
            over.unwrap();
            even.sync().unwrap();
        } else {
            assert!(matches!(over, Err(Error::Aborted(_))), "{over:?}");
        }
        drop((even, empty));
        assert_eq!(volume.close().is_ok(), errors == "continue");
        judge(&stage, "EFSCORRUPTED");
    }
}

/// Rule L6: if the device below answers EAGAIN to a bio of a loop device without NOWAIT, the bio is retried, once; a bio with
/// NOWAIT gets the error.
#[test]
fn a_loop_device_does_again_what_would_have_waited() {
    let dir = scratch();
    let stage = Stage::mem(&make(dir.path(), "continue", &[]));
    let probe = stage.open(&OpenOptions::default()).unwrap();
    let file = probe.open_path("/even", OpenFlags::default()).unwrap();
    let diorite::MappingState::Written(at) = file.mappings(0, 4096).unwrap()[0].state else {
        panic!()
    };
    drop((file, probe));
    let at = at.get() * 4096;
    for (times, write, nowait, fails) in [
        (1, false, false, false),
        (1, true, false, false),
        (2, false, false, true),
        (1, false, true, true),
    ] {
        let when = When::Span {
            first: 1,
            count: times,
        };
        let fault = Fault::new(BioErrorKind::WouldBlock, when).within(at..at + 4096);
        let device = faulty(stage.device.clone(), vec![fault]);
        let volume = Volume::open_device(device, &OpenOptions::writable()).unwrap();
        let file = volume.open_path("/even", writable()).unwrap();
        let looped = Arc::new(LoopDevice::new(file, "loop".into()));
        let blocking = diorite_block::Blocking::new(looped);
        let mut bio = if write {
            Bio::write(0, Buf::zeroed(4096), 7)
        } else {
            Bio::read(0, Buf::zeroed(4096), 7)
        };
        bio.flags.nowait = nowait;
        let done = blocking.run(bio);
        let kind = done.result.err().map(|e| e.kind);
        let told = fails.then_some(BioErrorKind::WouldBlock);
        assert_eq!(kind, told, "{times}, {write}, {nowait}");
        // The queue works as before.
        assert!(
            blocking
                .run(Bio::read(0, Buf::zeroed(4096), 7))
                .result
                .is_ok()
        );
    }
}
