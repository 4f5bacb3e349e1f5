//! Atomic changes: after the commit all parts of one are there; after it was abandoned, or a crash in its middle, none.

use crate::common::fixture::{LIMIT, writable};
use crate::common::stage::{Stage, mem_of};
use crate::common::valve::Valve;
use crate::common::watch::Watchdog;
use crate::common::{image, scratch};
use diorite::dir::RenameFlags;
use diorite::{Error, File, MappingState, OpenFlags, OpenOptions, SetAttr, Volume};
use diorite_block::{Buf, SimOptions};
use diorite_format::Superblock;
use diorite_format::features::RoCompat;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const KINDS: [&[&str]; 5] = [
    &["-t", "ext4", "-b", "4096"],
    &["-t", "ext4", "-b", "1024", "-O", "orphan_file"],
    &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "16384"],
    &["-t", "ext4", "-b", "4096", "-O", "^has_journal"],
    &["-t", "ext3", "-b", "1024"],
];

fn make(dir: &Path, args: &[&str]) -> PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(tree.join("sub/deeper")).unwrap();
    for n in 0..40 {
        std::fs::write(tree.join(format!("f{n}")), vec![n; 3_000 * usize::from(n)]).unwrap();
    }
    std::fs::write(tree.join("sub/inner"), vec![1; 70_001]).unwrap();
    std::fs::hard_link(tree.join("f7"), tree.join("sub/seven")).unwrap();
    image(dir, "48M", args, &tree)
}

fn contents(file: &File) -> Vec<u8> {
    let mut bytes = vec![0xaa; usize::try_from(file.size()).unwrap()];
    file.read_bytes(0, &mut bytes).unwrap();
    bytes
}

/// Everything below the root: kinds, modes and contents.
fn tree_of(volume: &Volume) -> BTreeMap<Vec<u8>, (u16, u16, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut todo = vec![(b"".to_vec(), diorite_format::Ino::ROOT)];
    while let Some((path, ino)) = todo.pop() {
        for entry in volume.read_dir(ino).unwrap() {
            let entry = entry.unwrap();
            if entry.name == b"." || entry.name == b".." {
                continue;
            }
            let path = [&path[..], b"/", &entry.name].concat();
            let file = volume.open_ino(entry.ino, OpenFlags::default()).unwrap();
            let inode = file.metadata();
            let bytes = match inode.is_file() {
                true => contents(&file),
                false => Vec::new(),
            };
            if inode.is_dir() {
                todo.push((path.clone(), entry.ino));
            }
            all.insert(path, (inode.mode, inode.links, bytes));
        }
    }
    all
}

fn fill(file: &File, byte: u8, len: usize) {
    let mut buf = Buf::zeroed(len);
    buf.as_mut_slice().fill(byte);
    assert_eq!(file.write_buf(0, buf).1.unwrap(), len);
}

/// Some of every kind of change of names, inodes and maps.
fn change(volume: &Volume, mark: &str) {
    volume.mkdir(&format!("/{mark}"), 0o755).unwrap();
    for n in 0..30 {
        let file = volume.create(&format!("/{mark}/n{n}"), 0o600).unwrap();
        fill(&file, 0x77, 8192);
    }
    volume.symlink("target", &format!("/{mark}/link")).unwrap();
    let flags = RenameFlags::default();
    volume
        .rename("/f3", &format!("/{mark}/three"), flags)
        .unwrap();
    volume.rename("/f4", "/f5", flags).unwrap();
    volume.unlink("/f7").unwrap();
    volume.unlink("/f39").unwrap();
    let file = volume.open_path("/f38", writable()).unwrap();
    file.truncate(100).unwrap();
    assert_eq!(contents(&file), vec![38; 100]);
    let file = volume.open_path("/f37", writable()).unwrap();
    file.truncate(1 << 20).unwrap();
    let ino = volume.resolve(b"/sub", true).unwrap();
    let set = SetAttr::default().permissions(0o700);
    volume.set_attr(ino, &set).unwrap();
    let file = volume.temporary("/", 0o644).unwrap();
    fill(&file, 0x55, 65536);
    volume.replace_file(&file, "/sub/inner").unwrap();
}

fn check(stage: &Stage, want: &BTreeMap<Vec<u8>, (u16, u16, Vec<u8>)>) {
    stage.fsck();
    let volume = stage.open(&OpenOptions::default()).unwrap();
    assert!(volume.superblock().last_orphan().is_none());
    assert!(
        !volume.notes().iter().any(|n| n.contains("orphan")),
        "{:?}",
        volume.notes()
    );
    let found = tree_of(&volume);
    let names = |t: &BTreeMap<Vec<u8>, _>| t.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&found), names(want));
    assert!(found == *want);
}

#[test]
fn all_or_nothing() {
    for args in KINDS {
        let dir = scratch();
        let stage = Stage::mem(&make(dir.path(), args));
        let before = tree_of(&stage.open(&OpenOptions::default()).unwrap());
        for (given_up, first) in [(true, false), (false, false), (true, true)] {
            let volume = stage.open(&OpenOptions::writable()).unwrap();
            if first {
                // What was committed before the atomic change stays.
                volume.mkdir("/first", 0o755).unwrap();
            }
            let was = tree_of(&volume);
            let atomic = volume.atomic().unwrap();
            assert!(matches!(
                volume.atomic(),
                Err(Error::Invalid(_) | Error::InAtomic)
            ));
            if given_up && !first {
                change(&volume, "given up");
                atomic.abandon().unwrap();
                assert!(matches!(volume.mkdir("/x", 0o755), Err(Error::ShutDown)));
                drop(volume);
                check(&stage, &before);
            } else if given_up {
                volume.unlink("/f20").unwrap();
                // Dropping the atomic change abandons it.
                drop(atomic);
                drop(volume);
                check(&stage, &was);
            } else {
                change(&volume, "kept");
                let want = tree_of(&volume);
                atomic.commit().unwrap();
                // Past the new end of a truncated file there are zeros, although the atomic change did not write them.
                let file = volume.open_path("/f38", writable()).unwrap();
                file.truncate(4000).unwrap();
                let mut bytes = vec![38; 100];
                bytes.resize(4000, 0);
                assert_eq!(contents(&file), bytes);
                file.truncate(100).unwrap();
                drop(file);
                volume.close().unwrap();
                check(&stage, &want);
            }
        }
    }
}

/// A crash in the middle of an atomic change, and after its commit: the next open finds all of it or nothing.
#[test]
fn stopped_in_the_middle() {
    for args in KINDS {
        let has_journal = !args.contains(&"^has_journal");
        let dir = scratch();
        let stage = Stage::mem(&make(dir.path(), args));
        let volume = stage.open(&OpenOptions::writable()).unwrap();
        let before = tree_of(&volume);
        let atomic = volume.atomic().unwrap();
        change(&volume, "new");
        let middle = stage.bytes();
        let want = tree_of(&volume);
        atomic.commit().unwrap();
        let after = stage.bytes();
        drop(volume);
        for (bytes, want) in [(middle, &before), (after, &want)] {
            if !has_journal {
                continue;
            }
            std::fs::write(&stage.image, bytes).unwrap();
            let stopped = Stage::mem(&stage.image);
            stopped
                .open(&OpenOptions::writable())
                .unwrap()
                .close()
                .unwrap();
            check(&stopped, want);
        }
    }
}

/// Several threads begin one atomic change after the other, on a disk with slow commits. A thread commits what came earlier before its
/// own atomic change begins. Between its check for another atomic change and that commit, one may begin: it must not be committed in its
/// middle.
#[test]
fn no_commit_of_others_cuts_it_in_two() {
    const CHANGES: usize = 60;
    let dir = scratch();
    let options = SimOptions::parse("0,latency=100us,cache=volatile,fua=yes").unwrap();
    let stage = Stage::sim(&make(dir.path(), KINDS[0]), options);
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    let commits = || volume.journal_stats().commits;
    let one = |name: &str| {
        let atomic = match volume.atomic() {
            Ok(atomic) => atomic,
            Err(Error::Invalid(_) | Error::InAtomic | Error::WouldBlock(_)) => return None,
            Err(error) => panic!("{error}"),
        };
        let before = commits();
        volume.mkdir(name, 0o755).unwrap();
        std::thread::sleep(Duration::from_micros(300));
        volume.mkdir(&format!("{name}/inside"), 0o755).unwrap();
        let after = commits();
        // Read before the commit: the next atomic change may begin before the sync that ends this one, after its owner has committed
        // this one.
        atomic.commit().unwrap();
        Some(after - before)
    };
    let cut: u64 = std::thread::scope(|scope| {
        let threads = [0, 1, 2, 3].map(|t| {
            let one = &one;
            scope.spawn(move || {
                let done = (0..CHANGES).map(|n| {
                    let tried = || one(&format!("/g{t}-{n}"));
                    std::iter::repeat_with(tried).flatten().next().unwrap()
                });
                done.sum::<u64>()
            })
        });
        threads.map(|thread| thread.join().unwrap()).iter().sum()
    });
    assert_eq!(cut, 0, "commits in the middle of atomic changes");
    volume.close().unwrap();
    stage.fsck();
}

/// What would need a commit in the middle of an atomic change fails; once the atomic change is abandoned, nothing of it is there.
#[test]
fn what_does_not_fit() {
    let dir = scratch();
    let args = ["-t", "ext4", "-b", "1024", "-J", "size=1", "-I", "1024"];
    let stage = Stage::mem(&make(dir.path(), &args));
    let before = tree_of(&stage.open(&OpenOptions::default()).unwrap());
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    let atomic = volume.atomic().unwrap();
    let many = |volume: &Volume| -> Result<(), Error> {
        for n in 0..2000 {
            volume.create(&format!("/sub/new {n}"), 0o600)?;
        }
        Ok(())
    };
    let error = many(&volume).unwrap_err();
    assert!(
        matches!(
            error,
            Error::AtomicTooLarge {
                most: 100..1000,
                ..
            }
        ),
        "{error}"
    );
    let Error::AtomicTooLarge {
        changed,
        needed,
        most,
    } = error
    else {
        unreachable!("as asked above");
    };
    assert!(changed <= most && changed + needed > most, "{error}");
    let fill = atomic.fill();
    assert_eq!(
        (fill.changed, fill.most, fill.is_full),
        (changed, most, true)
    );
    atomic.abandon().unwrap();
    drop(volume);
    check(&stage, &before);

    let volume = stage.open(&OpenOptions::writable()).unwrap();
    let atomic = volume.atomic().unwrap();
    let file = volume.open_path("/f30", writable()).unwrap();
    file.truncate(50).unwrap();
    assert!(!atomic.fill().is_full);
    let longer = file.truncate(5000);
    assert!(
        matches!(longer, Err(Error::CutInAtomic { .. })),
        "{longer:?}"
    );
    // A file without blocks has no bytes past its end that could have to be restored.
    file.truncate(0).unwrap();
    file.truncate(5000).unwrap();
    file.truncate(9000).unwrap();
    assert!(matches!(file.sync(), Err(Error::InAtomic)));
    assert!(matches!(volume.sync(), Err(Error::InAtomic)));
    drop(file);
    atomic.abandon().unwrap();
    drop(volume);
    check(&stage, &before);

    // Space that the atomic change has freed is not used again before its end.
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    let big = volume.create("/big", 0o600).unwrap();
    let free = volume.superblock().geometry().free_blocks_count();
    let most = usize::try_from(free).unwrap() * 1024 * 8 / 10;
    big.fallocate(
        diorite::Fallocate::Allocate { keep_size: false },
        0,
        most as u64,
    )
    .unwrap();
    drop(big);
    volume.sync().unwrap();
    let was = tree_of(&volume).len();
    let atomic = volume.atomic().unwrap();
    volume.unlink("/big").unwrap();
    let file = volume.temporary("/", 0o600).unwrap();
    let mode = diorite::Fallocate::Allocate { keep_size: false };
    let error = file.fallocate(mode, 0, most as u64).unwrap_err();
    assert!(
        matches!(error.root(), Error::NoSpace { .. } | Error::InAtomic),
        "{error}"
    );
    drop(file);
    atomic.commit().unwrap();
    let file = volume.temporary("/", 0o600).unwrap();
    file.fallocate(mode, 0, most as u64).unwrap();
    drop(file);
    assert_eq!(tree_of(&volume).len(), was - 1);
    volume.close().unwrap();
    stage.fsck();
}

/// A file is unlinked but open when an atomic change begins that is then abandoned. Its slot in the orphan file is on the device, but
/// others read the orphan file only if the superblock says that it has entries.
#[test]
fn orphans_from_before_a_group_are_found() {
    let dir = scratch();
    let stage = Stage::mem(&make(dir.path(), KINDS[1]));
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    let file = volume.open_path("/f20", writable()).unwrap();
    volume.unlink("/f20").unwrap();
    volume.sync().unwrap();
    let want = tree_of(&volume);
    let atomic = volume.atomic().unwrap();
    volume.mkdir("/new", 0o755).unwrap();
    atomic.abandon().unwrap();
    drop((file, volume));
    let bytes = stage.bytes();
    let found = Superblock::parse(bytes[1024..2048].try_into().unwrap()).unwrap();
    assert!(found.features().ro_compat.has(RoCompat::ORPHAN_PRESENT));
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    volume.close().unwrap();
    check(&stage, &want);
}

/// An atomic change that outlives its volume is committed or abandoned as any other, and the device is released with it.
#[test]
fn an_atomic_change_outlives_its_volume() {
    for args in KINDS {
        for commits in [false, true] {
            let dir = scratch();
            let stage = Stage::mem(&make(dir.path(), args));
            let users = Arc::strong_count(&stage.device);
            let volume = stage.open(&OpenOptions::writable()).unwrap();
            let atomic = volume.atomic().unwrap();
            let file = volume.create("/new", 0o644).unwrap();
            file.write_buf(0, Buf::zeroed(4096)).1.unwrap();
            let going = volume.open_path("/f3", OpenFlags::default()).unwrap();
            volume.unlink("/f3").unwrap();
            drop((volume, file, going));
            match commits {
                true => atomic.commit().unwrap(),
                false => atomic.abandon().unwrap(),
            }
            assert_eq!(Arc::strong_count(&stage.device), users, "{args:?}");
            stage.fsck();
            let volume = stage.open(&OpenOptions::default()).unwrap();
            let is_there = |path| volume.open_path(path, OpenFlags::default()).is_ok();
            assert_eq!((is_there("/new"), is_there("/f3")), (commits, !commits));
        }
    }
}

/// Defect: a write through the cache of several steps, during which an atomic change began, returned before its commit, and the bytes of
/// its later steps were not committed with it.
#[test]
fn a_write_that_it_interrupts_is_committed_with_it() {
    const LEN: usize = (2 << 20) + 100;
    let _watchdog = Watchdog::new(LIMIT, "a write, and an atomic change");
    let dir = scratch();
    let stage = Stage::mem(&make(dir.path(), KINDS[0]));
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    let file = volume.create("/file", 0o644).unwrap();
    file.write_bytes(0, &[1; (2 << 20) + 4096]).unwrap();
    drop(file);
    volume.close().unwrap();
    let valve = Arc::new(Valve::new(stage.device.clone()));
    let volume = Volume::open_device(valve.clone(), &OpenOptions::writable()).unwrap();
    let file = volume.open_path("/file", writable()).unwrap();
    let last = file.mappings(2 << 20, 1).unwrap();
    let MappingState::Written(block) = last[0].state else {
        panic!("{last:?}");
    };
    // The last step needs the old bytes of its block.
    let at = block.get() * 4096;
    valve.hold_reads(at..at + 4096);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| file.write_bytes(0, &[2; LEN]));
        while valve.holding() == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let atomic = volume.atomic().unwrap();
        valve.hold_reads(0..0);
        assert_eq!(writer.join().unwrap().unwrap(), LEN);
        let flags = RenameFlags::default();
        volume.rename("/file", "/done", flags).unwrap();
        atomic.commit().unwrap();
    });
    let crashed = Arc::new(mem_of(&stage.bytes()));
    let after = Volume::open_device(crashed, &OpenOptions::writable()).unwrap();
    let done = after.open_path("/done", OpenFlags::default()).unwrap();
    let lost = contents(&done)[..LEN].iter().position(|b| *b != 2);
    assert_eq!(lost, None, "bytes of a write that had returned");
    drop(done);
    after.close().unwrap();
    drop(file);
    volume.close().unwrap();
    stage.fsck();
}
