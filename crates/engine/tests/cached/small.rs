//! Small files: no request of a single file waits for the device, many files leave in few requests, and each has its own result.

use crate::common::names::empty;
use crate::common::scratch;
use crate::common::stage::Stage;
use diorite::{File, MappingState, OpenFlags, OpenOptions, PageCache, Volume};
use diorite_block::record::{Event, RecordDevice};
use diorite_block::{BioErrorKind, BioOp, Fault, FaultDevice, FaultPlan, When};
use std::sync::Arc;
use std::time::Duration;

const FILES: u64 = 2000;
const LEN: usize = 8192;

/// The contents of a file: different in every block.
fn contents(n: u64) -> Vec<u8> {
    let word = |m: u64| (n << 16 | m).to_le_bytes();
    (0..LEN as u64 / 8).flat_map(word).collect()
}

/// Flushes are few however many files there are, and what the sync writes is in pieces of many files.
#[test]
fn no_file_waits_for_the_device() {
    let dir = scratch();
    let args = ["-t", "ext4", "-b", "4096", "-J", "size=32"];
    let image = empty(dir.path(), "256M", &args);
    let stage = Stage::mem(&image);
    let record = RecordDevice::with_volatile_cache(stage.device.clone());
    let options = OpenOptions::writable()
        .page_cache(PageCache::new(64 << 20))
        .commit_interval(Duration::from_secs(3600))
        .write_back_age(Duration::from_secs(3600));
    let volume = Volume::open_device(Arc::new(record.clone()), &options).unwrap();
    let opened = record.log().len();
    for n in 0..FILES {
        let file = volume.create(&format!("/{n}"), 0o644).unwrap();
        file.write_bytes(0, &contents(n)).unwrap();
    }
    let closed = record.log().len();
    let is_flush = |event: &&Event| match event {
        Event::Flush { .. } => true,
        Event::Write { fua, .. } => *fua,
        _ => false,
    };
    // The keeper commits, in its own thread, whenever times of a thousand inodes are noted; no caller waits for that.
    let flushes = record.log()[opened..closed].iter().filter(is_flush).count();
    let most = 6 * FILES.div_ceil(1000) as usize;
    assert!(
        flushes <= most,
        "{flushes} flushes while {FILES} files were written"
    );
    volume.sync().unwrap();
    let log = record.log();
    let written = log[opened..].iter().filter_map(|event| match event {
        Event::Write { data, .. } => Some(data.len()),
        _ => None,
    });
    let (count, sum) = written.fold((0, 0), |(count, sum), len| (count + 1, sum + len));
    assert!(sum >= FILES as usize * LEN, "{sum} bytes");
    assert!(count <= FILES / 8, "{count} writes of {FILES} files");
    let flushes = log[closed..].iter().filter(is_flush).count();
    assert!(flushes <= 6, "{flushes} flushes of one sync");
    volume.close().unwrap();

    stage.fsck();
    let volume = stage.open(&OpenOptions::default()).unwrap();
    for n in 0..FILES {
        let path = format!("/{n}");
        let file = volume.open_path(&path, OpenFlags::default()).unwrap();
        let mut found = vec![0; LEN + 1];
        assert_eq!(file.read_bytes(0, &mut found).unwrap(), LEN, "{path}");
        assert!(found[..LEN] == contents(n), "{path}");
    }
}

/// Writes 400 files of one block on a device that fails every write to the first sector of a block, if there is one. Returns how many files
/// report an error, how many have lost their contents, and the block of the file in the middle.
fn with_bad_block(stage: &Stage, bad: Option<u64>) -> (usize, usize, u64) {
    let faults = bad.map(|block| {
        let always = When::parse("every-1").unwrap();
        let place = block * 4096..block * 4096 + 512;
        Fault::new(BioErrorKind::Io, always)
            .on(BioOp::Write)
            .within(place)
    });
    let plan = FaultPlan::new(faults.into_iter().collect(), 0);
    let device = Arc::new(FaultDevice::new(stage.device.clone(), plan));
    let options = OpenOptions::writable()
        .page_cache(PageCache::new(64 << 20))
        .commit_interval(Duration::from_secs(3600))
        .write_back_age(Duration::from_secs(3600));
    let volume = Volume::open_device(device, &options).unwrap();
    let new = |n: u64| {
        let file = volume.create(&format!("/{n}"), 0o644).unwrap();
        file.write_bytes(0, &contents(n)[..4096]).unwrap();
        file
    };
    let files: Vec<File> = (0..400).map(new).collect();
    // Each failure is reported by a sync of its file.
    volume.write_back(&files.iter().collect::<Vec<_>>());
    let failed = files.iter().filter(|file| file.sync().is_err()).count();
    let lost = files.iter().zip(0..).filter(|(file, n)| {
        let mut found = [0; 4096];
        // It may be shorter, too.
        file.read_bytes(0, &mut found).unwrap();
        found != contents(*n)[..4096]
    });
    let lost = lost.count();
    let block = match files[200].mappings(0, 4096).unwrap()[0].state {
        MappingState::Written(block) => block.get(),
        other => panic!("{other:?}"),
    };
    (failed, lost, block)
}

/// What cannot be written of one file is no error of those whose blocks lie beside it.
#[test]
fn a_bad_block_is_its_files_alone() {
    let dir = scratch();
    let image = empty(dir.path(), "64M", &["-t", "ext4", "-b", "4096"]);
    let (failed, lost, block) = with_bad_block(&Stage::mem(&image), None);
    assert_eq!((failed, lost), (0, 0));
    let (failed, lost, _) = with_bad_block(&Stage::mem(&image), Some(block + 1));
    // The block is free again, and another file may get it.
    assert!((1..=8).contains(&failed), "{failed} files report an error");
    assert_eq!(lost, failed);
}
