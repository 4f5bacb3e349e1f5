//! Files whose data is journalled: by the volume's option, the file's flag, or the caller's option. Compared with an array; after a
//! crash; with blocks that other files get afterwards. e2fsck judges the image, and the kernel reads the same bytes.

use crate::common::bytes::same;
use crate::common::fixture::{LIMIT, every_block, filled, writable};
use crate::common::recipe::debugfs;
use crate::common::stage::{Stage, mem_of};
use crate::common::valve::Valve;
use crate::common::watch::Watchdog;
use crate::common::{Rng, bytes, fsck, image, kernel, run, scaled, scratch};
use diorite::{Error, Fallocate, File, Op, OpenOptions, Request, RequestFlags, Volume, Wait};
use diorite_block::Buf;
use diorite_format::InodeFlags;
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const KINDS: [&[&str]; 6] = [
    &["-t", "ext4", "-b", "4096"],
    &["-t", "ext4", "-b", "1024", "-J", "size=1"],
    &["-t", "ext3", "-b", "1024", "-J", "size=1"],
    &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "16384"],
    &["-t", "ext4", "-b", "4096", "-O", "inline_data", "-I", "256"],
    &["-t", "ext4", "-b", "4096", "-O", "^has_journal"],
];

/// The magic number at the start of a block of the log.
const MAGIC: [u8; 4] = [0xc0, 0x3b, 0x39, 0x98];

fn make(dir: &Path, args: &[&str], default: bool) -> PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::write(tree.join("file"), vec![0x55; 100_001]).unwrap();
    std::fs::write(tree.join("small"), [0x66; 30]).unwrap();
    std::fs::write(tree.join("plain"), b"").unwrap();
    let image = image(dir, "32M", args, &tree);
    if default {
        run("tune2fs", &["-o", "journal_data", image.to_str().unwrap()]);
    }
    image
}

fn open(image: &Path) -> Volume {
    Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap()
}

fn file(volume: &Volume, name: &str) -> File {
    volume.open_path(&format!("/{name}"), writable()).unwrap()
}

fn read_all(file: &File) -> Vec<u8> {
    let mut bytes = vec![0x77; file.size() as usize];
    assert_eq!(file.read_bytes(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn resize(file: &File, model: &mut Vec<u8>, size: u64) {
    file.truncate(size).unwrap();
    model.resize(size as usize, 0);
}

/// Writes and appends in flight together, with reads; completions of appends tell their places.
fn round(volume: &Volume, file: &File, model: &mut Vec<u8>, rng: &mut Rng) {
    let queue = volume.queue(32).unwrap();
    let id = queue.attach(file).unwrap();
    let (mut batch, mut sent) = (VecDeque::new(), HashMap::new());
    let appends = rng.below(3) == 0;
    if appends {
        let size = (model.len() as u64).next_multiple_of(512);
        resize(file, model, size);
    }
    let mut at = 512 * rng.below(500);
    for token in 0..1 + rng.below(8) {
        let mut data = vec![0; 512 * (1 + rng.below(60)) as usize];
        rng.fill(&mut data);
        if rng.below(2) == 0 {
            data.chunks_mut(1024)
                .for_each(|c| c[..4].copy_from_slice(&MAGIC));
        }
        let mut buf = Buf::zeroed(data.len());
        buf.copy_in(0, &data);
        let flags = RequestFlags::default().dsync(rng.below(4) == 0);
        let request = match appends {
            true => Request::append(id, buf, token),
            false => Request::write(id, at, buf, token),
        };
        batch.push_back(request.with_flags(flags));
        batch.push_back(Request::read(id, at, Buf::zeroed(4096), 1 << 40));
        at += data.len() as u64 + 512 * rng.below(60);
        sent.insert(token, data);
    }
    let (count, mut done) = (batch.len(), Vec::new());
    assert_eq!(queue.submit(&mut batch), count);
    while done.len() < count {
        queue.reap(&mut done, 1, None);
    }
    for done in done.into_iter().filter(|d| d.op != Op::Read) {
        let data = &sent[&done.token];
        assert_eq!(done.result.unwrap(), data.len());
        bytes::write(model, done.pos as usize, data);
    }
    queue.detach(id);
}

fn operate(file: &File, model: &mut Vec<u8>, rng: &mut Rng, extents: bool) {
    let (pos, len) = (rng.below(400_000), 1 + rng.below(100_000));
    let (mode, keep) = match rng.below(if extents { 4 } else { 2 }) {
        0 => return resize(file, model, rng.below(500_000)),
        1 => (Fallocate::PunchHole, true),
        2 => (Fallocate::ZeroRange { keep_size: false }, false),
        _ => (Fallocate::WriteZeroes { keep_size: false }, false),
    };
    file.fallocate(mode, pos, len).unwrap();
    let end = (pos + len) as usize;
    if !keep && model.len() < end {
        model.resize(end, 0);
    }
    let end = end.min(model.len());
    if (pos as usize) < end {
        model[pos as usize..end].fill(0);
    }
}

#[test]
fn every_kind_against_an_array() {
    let mut rng = Rng::from_env("journalled data");
    for args in KINDS {
        let dir = scratch();
        let image = make(dir.path(), args, true);
        let mut models = [vec![0x55; 100_001], vec![0x66; 30]];
        for part in 0..2 {
            let volume = open(&image);
            let files = ["file", "small"].map(|name| file(&volume, name));
            for n in 0..scaled("DIORITE_ROUNDS", 30) {
                let which = rng.below(2) as usize;
                let (file, model) = (&files[which], &mut models[which]);
                match rng.below(3) {
                    0 => operate(file, model, &mut rng, args[1] == "ext4"),
                    _ => round(&volume, file, model, &mut rng),
                }
                let what = format!("{args:?}, part {part}, round {n}");
                same(&what, &read_all(file), model);
            }
            let journal = !args.contains(&"^has_journal");
            assert_eq!(volume.counters().fallback_buffered > 10, journal);
            drop(files);
            volume.close().unwrap();
            fsck(&image);
            kernel::mounted(&image, "ro", |at| {
                for (name, model) in ["file", "small"].iter().zip(&models) {
                    same("the kernel", &std::fs::read(at.join(name)).unwrap(), model);
                }
            });
        }
        let volume = open(&image);
        for name in ["file", "small"] {
            volume.unlink(&format!("/{name}")).unwrap();
        }
        volume.close().unwrap();
        fsck(&image);
    }
}

/// Recovers copies of the image after a crash with diorite, e2fsck and the kernel, and calls `look` on each.
fn crashed(image: &Path, dir: &Path, look: impl Fn(&str, &dyn Fn(&str) -> Vec<u8>)) {
    let copy = |name: &str| {
        let to = dir.join(name);
        std::fs::copy(image, &to).unwrap();
        to
    };
    let ours = copy("ours");
    let volume = open(&ours);
    look("diorite", &|name| read_all(&file(&volume, name)));
    volume.close().unwrap();
    fsck(&ours);
    let checked = copy("e2fsck");
    let out = xtask::run::tool("e2fsck")
        .args(["-fy", "-E", "journal_only", checked.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(matches!(out.status.code(), Some(0 | 1)), "{out:?}");
    look("e2fsck", &|name| {
        let to = dir.join("dumped");
        let dump = format!("dump /{name} {}", to.to_str().unwrap());
        run("debugfs", &["-R", &dump, checked.to_str().unwrap()]);
        std::fs::read(&to).unwrap()
    });
    kernel::mounted(&copy("kernel"), "rw", |at| {
        look("the kernel", &|name| std::fs::read(at.join(name)).unwrap());
    });
}

/// Data acknowledged as durable is there after a crash, even if it looks like a block of the log; later writes overlap it in part.
#[test]
fn a_crash_keeps_what_was_acknowledged() {
    for args in &KINDS[..5] {
        let dir = scratch();
        let image = make(dir.path(), args, true);
        let volume = open(&image);
        let file = file(&volume, "file");
        let dsync = RequestFlags::default().dsync(true);
        let mut model = vec![0x55; 100_001];
        for n in 0..40u8 {
            let mut data = vec![n; 512 * (1 + usize::from(n))];
            data.chunks_mut(1024)
                .for_each(|c| c[..4].copy_from_slice(&MAGIC));
            let pos = 3072 * usize::from(n);
            let mut buf = Buf::zeroed(data.len());
            buf.copy_in(0, &data);
            let done = file.call(Op::Write, pos as u64, buf, dsync).1;
            assert_eq!(done.unwrap(), data.len());
            bytes::write(&mut model, pos, &data);
        }
        crashed(&image, dir.path(), |who, read| {
            same(&format!("{who}, {args:?}"), &read("file"), &model);
        });
        drop(file);
        volume.close().unwrap();
    }
}

/// After a crash, blocks of a journalled file that another file got hold the other file's data: the log does not overwrite them.
#[test]
fn what_was_freed_does_not_come_back() {
    for (n, unlinked) in [(0, false), (1, true), (2, false)] {
        let dir = scratch();
        let image = make(dir.path(), KINDS[n], false);
        let flags = if n == 2 { "0x4000" } else { "0x84000" };
        debugfs(
            &image,
            dir.path(),
            &format!("set_inode_field /file flags {flags}\n"),
        );
        let volume = open(&image);
        let (journalled, plain) = (file(&volume, "file"), file(&volume, "plain"));
        let fill = |file: &File, byte: u8| {
            let mut pos = 0;
            loop {
                let mut buf = Buf::zeroed(64 << 10);
                buf.as_mut_slice().fill(byte);
                match file.write_buf(pos, buf).1 {
                    Ok(len) => pos += len as u64,
                    Err(Error::NoSpace { .. }) => return pos,
                    other => panic!("{other:?}"),
                }
            }
        };
        assert!(fill(&journalled, 0x11) > 8 << 20);
        assert!(volume.counters().fallback_buffered > 100);
        file(&volume, "plain").sync().unwrap();
        if unlinked {
            drop(journalled);
            volume.unlink("/file").unwrap();
        } else {
            journalled.truncate(0).unwrap();
        }
        volume.sync().unwrap();
        let before = volume.counters().fallback_buffered;
        let size = fill(&plain, 0x22);
        assert!(size > 8 << 20);
        assert_eq!(volume.counters().fallback_buffered, before);
        plain.sync().unwrap();
        crashed(&image, dir.path(), |who, read| {
            same(who, &read("plain"), &vec![0x22; size as usize]);
        });
        drop(plain);
        volume.close().unwrap();
        fsck(&image);
    }
}

/// The caller's option takes precedence over the superblock's; a NOWAIT request gets EAGAIN.
#[test]
fn options_and_nowait() {
    let dir = scratch();
    let image = make(dir.path(), KINDS[0], true);
    for (wish, buffered) in [(None, true), (Some(false), false), (Some(true), true)] {
        let options = OpenOptions::writable().data_journal(wish);
        let volume = Volume::open(image.to_str().unwrap(), &options).unwrap();
        let file = file(&volume, "file");
        let nowait = RequestFlags::default().nowait(true);
        for op in [Op::Read, Op::Write] {
            let done = file.call(op, 0, Buf::zeroed(4096), nowait).1;
            match buffered {
                true => assert!(matches!(
                    done,
                    Err(Error::WouldBlock(Wait::Metadata | Wait::Exclusive))
                )),
                false => assert_eq!(done.unwrap(), 4096),
            }
        }
        drop(file);
        volume.close().unwrap();
    }
    fsck(&image);
}

/// The defect: a file without a name, unlinked or temporary, was taken for the value inode of an attribute: its data was not
/// checkpointed before its ranges changed, and reads returned the old bytes.
#[test]
fn files_without_names() {
    let dir = scratch();
    let volume = open(&make(dir.path(), KINDS[1], false));
    let temporary = volume.temporary("/", 0o600).unwrap();
    let unlinked = file(&volume, "file");
    volume.unlink("/file").unwrap();
    for file in [temporary, unlinked] {
        let mut model = vec![0x5A; 40_960];
        file.truncate(0).unwrap();
        let flags = file.metadata().flags.with(InodeFlags::JOURNAL_DATA);
        file.set_flags(flags).unwrap();
        let buf = crate::common::fixture::filled(0x5A, model.len());
        file.write_buf(0, buf).1.unwrap();
        same("written", &read_all(&file), &model);
        for mode in [
            Fallocate::WriteZeroes { keep_size: true },
            Fallocate::ZeroRange { keep_size: true },
            Fallocate::PunchHole,
        ] {
            let (pos, len) = (21_780, 5000);
            file.fallocate(mode, pos as u64, len as u64).unwrap();
            bytes::fallocate(&mut model, mode, pos, len);
            same("changed", &read_all(&file), &model);
            let buf = crate::common::fixture::filled(0x3C, 8192);
            bytes::write(&mut model, 20_480, buf.as_slice());
            file.write_buf(20_480, buf).1.unwrap();
            same("written again", &read_all(&file), &model);
        }
    }
    volume.close().unwrap();
}

/// Truncating a journalled file needs its data to be committed. In an atomic change that holds unless it has written some of the
/// data: that would need a commit in its middle, so the truncation fails.
#[test]
fn in_a_group() {
    let dir = scratch();
    let image = make(dir.path(), KINDS[1], true);
    let volume = open(&image);
    let (file, plain) = (file(&volume, "file"), file(&volume, "plain"));
    plain.write_buf(0, filled(0x11, 8192)).1.unwrap();
    let atomic = volume.atomic().unwrap();
    plain.truncate(1000).unwrap();
    file.write_buf(0, filled(0x22, 4096)).1.unwrap();
    let cut = file.truncate(2000);
    assert!(matches!(cut, Err(Error::WrittenInAtomic { .. })), "{cut:?}");
    atomic.commit().unwrap();
    file.truncate(2000).unwrap();
    same("written", &read_all(&file), &[0x22; 2000]);
    same("cut", &read_all(&plain), &[0x11; 1000]);
    drop((file, plain));
    volume.close().unwrap();
    fsck(&image);
}

/// A file whose data is only in the log is deleted while the map of another file is read, after that file's own data was
/// checkpointed. The other file then gets the blocks, zeroed by the device: the deleted data reappears neither in reads nor after a
/// crash.
#[test]
fn what_is_deleted_meanwhile_does_not_come_back() {
    let _watchdog = Watchdog::new(LIMIT, "deleted meanwhile");
    let dir = scratch();
    let args = ["-t", "ext4", "-b", "1024", "-J", "size=1", "-m", "0"];
    let stage = Stage::mem(&make(dir.path(), &args, false));
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    for n in 0..8 {
        let write = file(&volume, "plain").write_buf(n * 4096, filled(0x22, 1024));
        write.1.unwrap();
    }
    volume.close().unwrap();
    let valve = Valve::new(stage.device.clone());
    let options = every_block()
        .data_journal(true)
        .commit_interval(Duration::from_secs(3600));
    let volume = Volume::open_device(Arc::new(valve.clone()), &options).unwrap();
    let (plain, filler) = (file(&volume, "plain"), file(&volume, "file"));
    let (from, len) = (65_536, 240 << 10);
    let left = volume.usage().free - 320;
    let allocate = Fallocate::Allocate { keep_size: false };
    filler.fallocate(allocate, 1 << 20, left * 1024).unwrap();
    let root = plain.metadata().i_block;
    let leaf = u64::from(u32::from_le_bytes(root[16..20].try_into().unwrap())) * 1024;
    valve.hold_reads(leaf..leaf + 1024);
    std::thread::scope(|scope| {
        let zeros = scope.spawn(|| {
            let mode = Fallocate::WriteZeroes { keep_size: false };
            plain.fallocate(mode, from, len)
        });
        while valve.holding() == 0 {
            std::thread::yield_now();
        }
        let deleted = volume.create("/deleted", 0o600).unwrap();
        deleted.write_buf(0, filled(0x77, 256 << 10)).1.unwrap();
        volume.sync().unwrap();
        drop(deleted);
        volume.unlink("/deleted").unwrap();
        volume.sync().unwrap();
        valve.hold_reads(0..0);
        zeros.join().unwrap().unwrap();
    });
    plain.sync().unwrap();
    let crashed = Arc::new(mem_of(&stage.bytes()));
    let crashed = Volume::open_device(crashed, &OpenOptions::default()).unwrap();
    let after = crashed.open_path("/plain", Default::default()).unwrap();
    for (who, file) in [("now", &plain), ("after a crash", &after)] {
        let zeros = read_all(file).split_off(from as usize);
        same(who, &zeros, &vec![0; len as usize]);
    }
    drop((plain, filler));
    volume.close().unwrap();
    stage.fsck();
}
