//! Rule M4: who is told of a write through the page cache that is lost. A call that was refused is told by that call, and nobody else is;
//! bytes of calls that have returned are told to syncs. No write is acknowledged whose space is not reserved, in any data mode.

use crate::common::fixture::{LIMIT, every_block, writable};
use crate::common::names::{empty, empty_bytes};
use crate::common::stage::{Stage, mem_of};
use crate::common::valve::Valve;
use crate::common::watch::Watchdog;
use crate::common::{scaled, scratch, words};
use diorite::{Error, File, MappingState, OpenFlags, PageCache, RenameFlags, Volume};
use diorite_format::InodeFlags;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Arguments of mke2fs: extents, pointers, clusters, and files that begin inside their inodes.
const KINDS: [&str; 4] = [
    "-t ext4 -b 4096 -J size=4 -m 0",
    "-t ext3 -b 4096 -J size=4 -m 0",
    "-t ext4 -b 4096 -J size=4 -m 0 -O bigalloc -C 16384",
    "-t ext4 -b 4096 -J size=4 -m 0 -O inline_data -I 256",
];

/// How the data of a file comes to go through the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Flag,
    Option,
}

fn stage(args: &str) -> (tempfile::TempDir, Stage) {
    let dir = scratch();
    let stage = Stage::mem(&empty(dir.path(), "16M", &words(args)));
    (dir, stage)
}

fn opened(stage: &Stage, by: By) -> Volume {
    let options = every_block()
        .data_journal((by == By::Option).then_some(true))
        .page_cache(PageCache::new(8 << 20));
    stage.open(&options).unwrap()
}

/// A new file whose data goes through the journal, with a few bytes.
fn journalled(volume: &Volume, by: By) -> File {
    let file = volume.create("/a", 0o644).unwrap();
    file.write_bytes(0, b"few").unwrap();
    if by == By::Flag {
        let flags = file.metadata().flags.with(InodeFlags::JOURNAL_DATA);
        file.set_flags(flags).unwrap();
    }
    file
}

/// Takes all free blocks.
fn fill(volume: &Volume) {
    let file = volume.create("/fill", 0o644).unwrap();
    let mut buf = diorite_block::Buf::zeroed(1 << 20);
    loop {
        let (back, wrote) = file.append_buf(buf);
        buf = back;
        match wrote {
            Ok(_) => {}
            Err(Error::NoSpace { .. }) if buf.len() > 4096 => {
                buf = diorite_block::Buf::zeroed(buf.len() / 2);
            }
            Err(Error::NoSpace { .. }) => break,
            Err(other) => panic!("{other}"),
        }
    }
    volume.sync().unwrap();
    assert_eq!(volume.space().free, 0);
}

fn is_full(error: &Error) -> bool {
    matches!(error.root(), Error::NoSpace { .. })
}

fn is_too_large(error: &Error) -> bool {
    matches!(error.root(), Error::AtomicTooLarge { .. })
}

/// Has the file so many of this byte there?
fn has(file: &File, pos: u64, byte: u8, len: usize) -> bool {
    let mut back = vec![!byte; len];
    file.read_bytes(pos, &mut back).unwrap() == len && back.iter().all(|b| *b == byte)
}

/// Defect: dirty pages of a file with journalled data reserved no space. If another thread wrote them back, that failed and dropped them;
/// the writer found nothing left to write back, and its write was acknowledged.
#[test]
fn what_a_full_volume_acknowledges_is_there() {
    for args in KINDS {
        for by in [By::Flag, By::Option] {
            let what = format!("{args}, {by:?}");
            let _watchdog = Watchdog::new(4 * LIMIT, what.clone());
            let (_dir, stage) = stage(args);
            let volume = opened(&stage, by);
            let file = journalled(&volume, by);
            fill(&volume);
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        volume
                            .sync()
                            .expect("nothing that was acknowledged is lost");
                    }
                });
                for n in 0..scaled("DIORITE_STEPS", 300) {
                    // Across a border of the steps of a write.
                    let pos = (1 + n) * (512 << 10) - 2000;
                    match file.write_bytes(pos, &[7; 4000]) {
                        Ok(count) => assert!(has(&file, pos, 7, count), "{what}: {count} at {pos}"),
                        Err(error) => assert!(is_full(&error), "{what}: {error}"),
                    }
                    // There is space for what the file has.
                    file.write_bytes(0, b"more").unwrap();
                }
                stop.store(true, Ordering::Relaxed);
            });
            file.sync().unwrap();
            drop(file);
            volume.close().unwrap();
            stage.fsck();
        }
    }
}

/// Defect: a write that was refused for lack of space was reported again, as lost data, by syncs of other open files and of the volume, and
/// by the close.
#[test]
fn a_refusal_is_told_once() {
    for args in KINDS {
        for by in [By::Flag, By::Option] {
            let what = format!("{args}, {by:?}");
            let (_dir, stage) = stage(args);
            let volume = opened(&stage, by);
            let file = journalled(&volume, by);
            let other = volume.open_path("/a", OpenFlags::default()).unwrap();
            fill(&volume);
            for _ in 0..2 {
                let refused = file.write_bytes(100_000, &[7; 3000]).unwrap_err();
                assert!(is_full(&refused), "{what}: {refused}");
                file.sync().expect(&what);
                other.sync().expect(&what);
                volume.sync().expect(&what);
            }
            let later = volume.open_path("/a", writable()).unwrap();
            later.sync().expect(&what);
            drop((file, other, later));
            volume.close().expect(&what);
            stage.fsck();
        }
    }
}

/// A write that has to be durable tells the failure of its own bytes, and nobody else is told. What was acknowledged before and lost by the
/// same failure is told to syncs of each open file, too.
#[test]
fn a_durable_write_tells_its_own_failure() {
    let bytes = empty_bytes("16M", &words("-t ext4 -b 4096 -O ^has_journal"));
    for acknowledged in [false, true] {
        let valve = Arc::new(Valve::new(Arc::new(mem_of(&bytes))));
        let volume = Volume::open_device(valve.clone(), &every_block()).unwrap();
        let plain = volume.create("/file", 0o644).unwrap();
        plain.sync().unwrap();
        let flags = writable().dsync(true);
        let durable = volume.open_ino(plain.ino(), flags).unwrap();
        if acknowledged {
            plain.write_bytes(4096, &[0xd1; 4096]).unwrap();
        }
        valve.fail(&[0xd0, 0xd1]);
        durable.write_bytes(0, &[0xd0; 4096]).unwrap_err();
        if acknowledged {
            plain.write_back().unwrap_err();
        }
        valve.fail(&[]);
        assert_eq!(volume.sync().is_err(), acknowledged);
        durable.sync().ok();
        assert!(durable.sync().is_ok() && plain.sync().is_ok() && volume.sync().is_ok());
        durable.write_bytes(0, &[0xd0; 4096]).unwrap();
        assert!(has(&plain, 0, 0xd0, 4096));
        drop((plain, durable));
        volume.close().unwrap();
    }
}

/// Defect: a write that was refused marked all earlier failures of its open file as told, so what these had lost was told to nobody.
#[test]
fn a_refusal_hides_no_earlier_failure() {
    let (_dir, stage) = stage("-t ext4 -b 1024 -J size=1 -m 0");
    let valve = Arc::new(Valve::new(stage.device.clone()));
    let volume = Volume::open_device(valve.clone(), &every_block()).unwrap();
    let file = volume.create("/a", 0o644).unwrap();
    let other = volume.open_path("/a", writable()).unwrap();
    volume.sync().unwrap();
    other.write_bytes(0, &[0xd0; 1024]).unwrap();
    valve.fail(&[0xd0]);
    other.write_back().unwrap_err();
    valve.fail(&[]);
    volume.sync().unwrap_err();
    let flags = file.metadata().flags.with(InodeFlags::JOURNAL_DATA);
    file.set_flags(flags).unwrap();
    let atomic = volume.atomic().unwrap();
    let refused = file.write_bytes(4096, &[7; 900_000]);
    assert!(refused.as_ref().is_err_and(is_too_large), "{refused:?}");
    atomic.commit().unwrap();
    file.sync()
        .expect_err("the earlier failure was not told through this file");
    file.sync().unwrap();
    other.sync().unwrap();
    drop((file, other));
    volume.close().unwrap();
    stage.fsck();
}

/// Defect: the commit of an atomic change returned an error, although all of it was durable, after a write that it had no room for; that
/// error was told to the write already.
#[test]
fn a_commit_fails_only_if_it_has_failed() {
    let (_dir, stage) = stage("-t ext4 -b 1024 -J size=1 -m 0");
    let volume = opened(&stage, By::Flag);
    let file = journalled(&volume, By::Flag);
    volume.sync().unwrap();
    let atomic = volume.atomic().unwrap();
    volume.mkdir("/d", 0o755).unwrap();
    let refused = file.write_bytes(4096, &[7; 900_000]);
    assert!(refused.as_ref().is_err_and(is_too_large), "{refused:?}");
    atomic.commit().unwrap();
    volume.mkdir("/e", 0o755).unwrap();
    volume.sync().unwrap();
    let crashed = Arc::new(mem_of(&stage.bytes()));
    let after = Volume::open_device(crashed, &every_block()).unwrap();
    after.resolve("/d", false).unwrap();
    after.close().unwrap();
    drop(file);
    volume.close().unwrap();
    stage.fsck();
}

/// Defect: a write of which the first steps were on the device returned the error that a later one had met, although it had a count to
/// return; an append did not say how much of it is there.
#[test]
fn a_refused_step_leaves_those_before_it() {
    const ASKED: usize = 900_000;
    for how in ["write", "append", "slices"] {
        let (_dir, stage) = stage("-t ext4 -b 1024 -J size=1 -m 0");
        let options = every_block().page_cache(PageCache::new(1 << 20));
        let volume = stage.open(&options).unwrap();
        let file = journalled(&volume, By::Flag);
        file.truncate(0).unwrap();
        volume.sync().unwrap();
        let atomic = volume.atomic().unwrap();
        let data = [7; ASKED];
        let count = match how {
            "write" => file.write_bytes(0, &data).expect("a part was written"),
            "slices" => {
                let slices = data.chunks(100_000).map(IoSlice::new);
                let slices: Vec<IoSlice<'_>> = slices.collect();
                let count = file.write_vectored_at(&slices, 0);
                count.expect("a part was written")
            }
            _ => {
                let refused = file.append_bytes(&data).unwrap_err();
                assert!(is_too_large(&refused), "{refused}");
                let said = refused.to_string();
                let count = said.split_once("only ").and_then(|(_, rest)| {
                    let (count, rest) = rest.split_once(' ')?;
                    rest.contains("were appended at 0").then_some(count)
                });
                count.expect(&said).parse().unwrap()
            }
        };
        assert!(count > 0 && count < ASKED, "{how}: {count}");
        assert!(has(&file, 0, 7, count), "{how}");
        atomic.commit().unwrap();
        drop(file);
        volume.close().unwrap();
        let volume = stage.open(&options).unwrap();
        let file = volume.open_path("/a", OpenFlags::default()).unwrap();
        assert!(has(&file, 0, 7, count), "{how}");
        drop(file);
        volume.close().unwrap();
        stage.fsck();
    }
}

fn until(what: &str, is: impl Fn() -> bool) {
    let _watchdog = Watchdog::new(LIMIT, what.to_owned());
    while !is() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Defect: a durable write failed, although its own bytes were written, if older bytes of its blocks were lost: while it waited before it
/// changed them; or if they were on their way to the device when it did.
#[test]
fn older_bytes_fail_no_durable_write() {
    let (_dir, stage) = stage("-t ext4 -b 4096 -O ^has_journal");
    let volume = stage.open(&every_block()).unwrap();
    let file = volume.create("/a", 0o644).unwrap();
    file.write_bytes(0, &[1; 8192]).unwrap();
    drop(file);
    volume.close().unwrap();
    for waits in [true, false] {
        let valve = Arc::new(Valve::new(stage.device.clone()));
        let volume = Volume::open_device(valve.clone(), &every_block()).unwrap();
        let durable = writable().dsync(true);
        let [older, newer] = [0, 1].map(|_| volume.open_path("/a", durable).unwrap());
        let second = newer.mappings(4096, 1).unwrap();
        let MappingState::Written(second) = second[0].state else {
            panic!("{second:?}");
        };
        let at = second.get() * 4096;
        valve.hold(&[0xd1]);
        // A part of the second block needs its old bytes.
        let len = if waits { 4196 } else { 4096 };
        valve.hold_reads(at..at + 4096);
        std::thread::scope(|scope| {
            let older = scope.spawn(|| older.write_bytes(0, &[0xd1; 4096]));
            until("the older bytes are on their way", || valve.holding() == 1);
            let writer = scope.spawn(|| newer.write_bytes(0, &vec![0xd0; len]));
            until("the write is where it should be", || match waits {
                true => valve.holding() == 2,
                false => has(&newer, 0, 0xd0, 4096),
            });
            valve.lie(&[0xd1]);
            valve.hold(&[]);
            older.join().unwrap().unwrap_err();
            valve.hold_reads(0..0);
            let wrote = writer.join().unwrap();
            assert_eq!(wrote.expect("its own bytes are there"), len, "{waits}");
        });
        assert!(has(&newer, 0, 0xd0, len));
        volume.sync().expect("whoever lost bytes was told");
        drop((older, newer));
        volume.close().unwrap();
        let volume = stage.open(&every_block()).unwrap();
        let file = volume.open_path("/a", OpenFlags::default()).unwrap();
        assert!(has(&file, 0, 0xd0, len), "{waits}");
        drop(file);
        volume.close().unwrap();
    }
    stage.fsck();
}

/// Defect: after data of a file was lost, every attempt to put the file in the place of another one failed with that, also when all of it
/// had been written again, until somebody synced the file.
#[test]
fn a_loss_is_told_once_by_who_replaces_a_name() {
    for renames in [false, true] {
        let (_dir, stage) = stage("-t ext4 -b 4096 -J size=4 -m 0");
        let valve = Valve::new(stage.device.clone());
        let options = every_block().page_cache(PageCache::new(8 << 20));
        let volume = Volume::open_device(Arc::new(valve.clone()), &options).unwrap();
        volume.create("/to", 0o644).unwrap();
        let file = volume.create("/from", 0o644).unwrap();
        let other = volume.open_path("/from", OpenFlags::default()).unwrap();
        let replace = || match renames {
            true => volume.rename("/from", "/to", RenameFlags::default()),
            false => volume.replace_file(&file, "/to"),
        };
        file.write_bytes(0, &[9; 8192]).unwrap();
        valve.fail(&[9]);
        replace().unwrap_err();
        assert!(
            volume
                .open_path("/to", OpenFlags::default())
                .unwrap()
                .metadata()
                .size
                == 0
        );
        valve.fail(&[]);
        file.write_bytes(0, &[9; 8192]).unwrap();
        replace().unwrap_or_else(|e| panic!("renames: {renames}: {e}"));
        let to = volume.open_path("/to", OpenFlags::default()).unwrap();
        assert!(has(&to, 0, 9, 8192));
        // Who was told is not told again; the other open file is.
        assert_eq!(file.sync().is_err(), renames);
        other.sync().unwrap_err();
        other.sync().unwrap();
        to.sync().unwrap();
        drop((file, other, to));
        volume.sync().expect("whoever wrote it was told");
        volume.close().unwrap();
        stage.fsck();
    }
}

/// Defect: what fsync had told its caller was told again by the next sync of the volume, and by the close. The volume is told unless each
/// open file that may have written the bytes was told: so nobody who relies on syncs of the volume misses a loss.
#[test]
fn a_volume_is_told_what_no_writer_was_told() {
    #[derive(Debug)]
    enum Who {
        Writer,
        OneOfTwo,
        Both,
        Reader,
        ClosedUntold,
        ClosedWhileDirty,
    }
    use Who::*;
    let cases = [
        (Writer, true),
        (OneOfTwo, false),
        (Both, true),
        (Reader, false),
        (ClosedUntold, false),
        (ClosedWhileDirty, false),
    ];
    for (who, is_settled) in cases {
        let (_dir, stage) = stage("-t ext4 -b 4096 -J size=4 -m 0");
        let valve = Valve::new(stage.device.clone());
        let options = every_block().page_cache(PageCache::new(8 << 20));
        let volume = Volume::open_device(Arc::new(valve.clone()), &options).unwrap();
        let file = volume.create("/a", 0o644).unwrap();
        let reader = volume.open_path("/a", OpenFlags::default()).unwrap();
        volume.sync().unwrap();
        for n in 0..2 {
            let mut second = Some(volume.open_path("/a", writable()).unwrap());
            if !matches!(who, OneOfTwo | Both | ClosedUntold | ClosedWhileDirty) {
                second = None;
            }
            file.write_bytes(0, &[9; 8192]).unwrap();
            if matches!(who, ClosedWhileDirty) {
                second = None;
            }
            valve.fail(&[9]);
            volume.write_back(&[&reader]);
            valve.fail(&[]);
            match who {
                Reader => reader.sync().unwrap_err(),
                _ => file.sync().unwrap_err(),
            };
            if matches!(who, Both) {
                second.as_ref().unwrap().sync().unwrap_err();
            }
            if matches!(who, ClosedUntold) {
                second = None;
            }
            let synced = volume.sync();
            assert_eq!(synced.is_ok(), is_settled, "{who:?}, {n}: {synced:?}");
            volume.sync().unwrap();
            drop(second);
        }
        drop((file, reader));
        volume.close().unwrap();
        stage.fsck();
    }
}
