//! What a transaction makes visible has to be on the device: data that a failed flush may have dropped never becomes visible (rules
//! U1, U11, G9, D1).
//!
//! Input: volumes with poison in their free space on a simulated disk with a volatile cache, behind a valve that holds writes and
//! fails flushes. Output: none. Invariant: no map and no size becomes durable that shows data which was in flight when a flush
//! failed. Limits: as in `lost`.

use crate::common::fixture::{DSYNC, LIMIT, filled};
use crate::common::recipe::{RECIPES, Recipe, bare, debugfs};
use crate::common::watch::Watchdog;
use crate::common::{fsck, scratch};
use crate::rules::lost::{Bed, DISKS, assert_failed};
use diorite::{
    Error, Fallocate, File, MappingState, Op, OpenFlags, OpenOptions, Request, RequestFlags, Volume,
};
use std::thread;

/// A volume with a journal, and one without.
const VOLUMES: [usize; 2] = [0, 2];

const PLAIN: RequestFlags = RequestFlags::none();

fn is_written(file: &File, pos: u64) -> bool {
    let mappings = file.mappings(pos, 1).unwrap();
    let written = |m: &diorite::Mapping| matches!(m.state, MappingState::Written(_));
    mappings.iter().any(written)
}

/// Runs `call` in another thread, makes a flush of `other` fail while the writes of `call` are held, and releases them.
fn lost_meanwhile<T: Send + 'static>(
    bed: &Bed,
    (byte, other): (u8, &File),
    call: impl FnOnce() -> T + Send + 'static,
) -> T {
    bed.valve.hold(&[byte]);
    let called = thread::spawn(call);
    bed.wait_for_held();
    bed.lose(other);
    bed.valve.hold(&[]);
    called.join().unwrap()
}

/// Asserts that the volume is still usable, and consistent.
fn finish(bed: Bed, file: File, pos: u64) {
    assert_eq!(file.write_buf(pos, filled(9, 4096)).1.unwrap(), 4096);
    file.sync().unwrap();
    drop(file);
    bed.volume.close().unwrap();
    bed.stage.fsck();
}

/// The defect: the write was converted and committed, and an O_DSYNC write got its error only after that; a block showed its
/// previous contents.
#[test]
fn a_write_is_not_mapped_whose_data_may_be_lost() {
    for (recipe, flags) in VOLUMES.into_iter().flat_map(|r| [(r, PLAIN), (r, DSYNC)]) {
        let _watchdog = Watchdog::new(LIMIT, format!("{}, {flags:?}", RECIPES[recipe].name));
        let bed = Bed::of(&RECIPES[recipe], DISKS[0]);
        let (file, other) = (bed.open("/sparse"), bed.open("/odd"));
        for (pos, op) in [(65_536, Op::Write), (1 << 20, Op::Write), (0, Op::Append)] {
            let writer = file.clone();
            let call = move || writer.call(op, pos, filled(7, 4096), flags).1;
            let done = lost_meanwhile(&bed, (7, &other), call);
            assert_failed(done.map(drop), "whose data may be lost");
            assert!(!is_written(&file, pos) && file.size() == 1 << 20);
        }
        // The file and the volume report the failures, and nothing else has happened.
        assert_failed(file.sync(), "its file");
        assert_failed(bed.volume.sync(), "the volume");
        finish(bed, file, 1 << 20);
    }
}

/// Of writes that are mapped together, exactly those fail whose data may be lost.
#[test]
fn a_write_behind_the_failure_is_mapped() {
    let _watchdog = Watchdog::new(LIMIT, "behind the failure");
    let bed = Bed::of(&RECIPES[0], DISKS[0]);
    let (file, other) = (bed.open("/sparse"), bed.open("/odd"));
    let queue = bed.volume.queue(2).unwrap();
    let id = queue.attach(&file).unwrap();
    bed.valve.hold(&[7, 8]);
    let at = |n: u8| u64::from(n) * 65_536;
    let push = |n| {
        let write = Request::write(id, at(n), filled(n, 4096), u64::from(n));
        queue.push(write).unwrap();
        while bed.valve.holding() != usize::from(n) - 6 {
            assert_eq!(queue.reap(&mut Vec::new(), 0, None), 0);
            thread::yield_now();
        }
    };
    push(7);
    bed.lose(&other);
    push(8);
    bed.valve.hold(&[]);
    let mut done = Vec::new();
    queue.reap(&mut done, 2, None);
    done.sort_by_key(|d| d.token);
    let well: Vec<bool> = done.iter().map(|d| d.result.is_ok()).collect();
    assert_eq!(well, [false, true], "{done:?}");
    let written = [7, 8].map(|n| is_written(&file, at(n)));
    assert_eq!(written, [false, true]);
    drop(queue);
    assert_failed(file.sync(), "its file");
    assert_failed(bed.volume.sync(), "the volume");
    finish(bed, file, 0);
}

/// A change that the next commit makes visible.
fn shows(what: usize, file: &File) {
    match what {
        0 => {
            let (_, done) = file.write_buf(65_536, filled(7, 4096));
            assert_eq!(done.unwrap(), 4096);
        }
        1 => {
            let keep_size = false;
            let zeros = Fallocate::WriteZeroes { keep_size };
            file.fallocate(zeros, 65_536, 4096).unwrap();
        }
        _ => {
            file.truncate(70_001).unwrap();
            file.sync().unwrap();
            file.truncate(1 << 20).unwrap();
        }
    }
}

/// The defect: the commit considered only its own flush. Cases: a write, zeros in place of new blocks, zeros past the end of a file
/// that grows.
#[test]
fn a_commit_does_not_show_what_may_be_lost() {
    for (recipe, what) in VOLUMES.into_iter().flat_map(|r| [(r, 0), (r, 1), (r, 2)]) {
        let recipe = &RECIPES[recipe];
        if what == 1 && !recipe.extents {
            continue;
        }
        let _watchdog = Watchdog::new(LIMIT, format!("{}, {what}", recipe.name));
        let bed = Bed::of(recipe, DISKS[1]);
        let (file, other) = (bed.open("/sparse"), bed.open("/odd"));
        if what == 2 {
            file.write_buf(65_536, filled(7, 8192)).1.unwrap();
        }
        // Everything older is durable.
        bed.volume.sync().unwrap();
        shows(what, &file);
        bed.lose(&other);
        bed.volume.sync().unwrap_err();
        let refused = other.write_buf(0, filled(7, 512)).1;
        assert!(matches!(refused, Err(Error::Aborted(_))), "{refused:?}");
        drop((file, other));
        bed.volume.close().unwrap_err();
        bed.stage.save();
        // e2fsck replays the log and clears the recorded error.
        let mended = xtask::run::tool("e2fsck")
            .arg("-fy")
            .arg(&bed.path)
            .output();
        let code = mended.unwrap().status.code();
        assert!(code.is_some_and(|code| code <= 1), "{code:?}");
        fsck(&bed.path);
        let path = bed.path.to_str().unwrap();
        let again = Volume::open(path, &OpenOptions::default()).unwrap();
        let file = again.open_path("/sparse", OpenFlags::default()).unwrap();
        match what {
            2 => assert_eq!(file.size(), 70_001),
            _ => assert!(!is_written(&file, 65_536)),
        }
    }
}

/// Without a log, data is written before metadata. While the flush for the data is under way, no metadata has been written home.
#[test]
fn without_a_log_nothing_goes_home_before_the_data_is_flushed() {
    for params in DISKS {
        let _watchdog = Watchdog::new(LIMIT, params);
        let bed = Bed::of(&RECIPES[2], params);
        let file = bed.open("/sparse");
        file.write_buf(65_536, filled(7, 4096)).1.unwrap();
        let before = bed.stage.bytes();
        bed.valve.hold_flushes(true);
        let syncer = file.clone();
        let syncer = thread::spawn(move || syncer.sync());
        bed.wait_for_held();
        let meanwhile = bed.stage.bytes();
        bed.valve.hold_flushes(false);
        syncer.join().unwrap().unwrap();
        assert!(meanwhile == before, "{params}");
        assert!(bed.stage.bytes() != before);
        finish(bed, file, 65_536);
    }
}

/// That zeros were written past a file's end is remembered only until a flush fails: they may be lost, and are written again.
#[test]
fn zeros_behind_the_end_are_written_again_behind_a_failed_flush() {
    let _watchdog = Watchdog::new(LIMIT, "zeros behind the end");
    let bed = Bed::of(&RECIPES[0], DISKS[1]);
    let (file, other) = (bed.open("/sparse"), bed.open("/odd"));
    file.write_buf(65_536, filled(7, 8192)).1.unwrap();
    file.truncate(70_001).unwrap();
    bed.volume.sync().unwrap();
    let at = file.mappings(69_632, 4096).unwrap()[0].state;
    let MappingState::Written(block) = at else {
        panic!("{at:?}");
    };
    let tail = block.get() * 4096..(block.get() + 1) * 4096;
    // Without a failure, nothing is written there.
    bed.valve.fail_at(tail.clone());
    file.truncate(80_000).unwrap();
    file.truncate(73_728).unwrap();
    bed.valve.fail_at(0..0);
    file.truncate(70_001).unwrap();
    bed.volume.sync().unwrap();
    bed.lose(&other);
    bed.valve.fail_at(tail);
    assert!(file.truncate(80_000).is_err());
    assert_eq!(file.size(), 70_001);
    bed.valve.fail_at(0..0);
    file.truncate(80_000).unwrap();
    assert_failed(file.sync(), "its file");
    assert_failed(bed.volume.sync(), "the volume");
    finish(bed, file, 81_920);
}

/// The defect: durable inline data was moved out of the inode to a block that no flush had covered, and the write that had moved it
/// was acknowledged.
#[test]
fn data_stays_in_its_inode_if_its_block_may_be_lost() {
    let recipe = Recipe {
        args: &["-t", "ext4", "-b", "4096", "-I", "256", "-O", "inline_data"],
        ..RECIPES[0]
    };
    let _watchdog = Watchdog::new(LIMIT, "inline");
    let dir = scratch();
    let (path, text) = (bare(dir.path(), &recipe), [0x77; 100]);
    let small = dir.path().join("small");
    std::fs::write(&small, text).unwrap();
    let script = format!("write {} small\n", small.display());
    debugfs(&path, dir.path(), &script);
    let bed = Bed::on(dir, path, DISKS[0]);
    let (file, other) = (bed.open("/small"), bed.open("/odd"));
    let writer = file.clone();
    let call = move || writer.call(Op::Write, 4096, filled(7, 4096), DSYNC).1;
    let done = lost_meanwhile(&bed, (0x77, &other), call);
    assert_failed(done.map(drop), "whose data may be lost");
    let mut bytes = [0; 200];
    assert_eq!(file.read_bytes(0, &mut bytes).unwrap(), 100);
    assert_eq!(bytes[..100], text);
    assert!(!is_written(&file, 0));
    assert_failed(file.sync(), "its file");
    assert_failed(bed.volume.sync(), "the volume");
    finish(bed, file, 4096);
}
