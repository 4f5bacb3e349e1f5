//! Atomic (untorn) writes: what they refuse, contents against an array on every kind of volume, power cuts, readers, full volumes.
//!
//! Input: images by mke2fs, on memory and on simulated disks. Output: none. Invariants: e2fsck and diorite's own check judge each image
//! in the end. Limits: the longer runs are by `DIORITE_UNTORN_READS` and `DIORITE_UNTORN_CUTS`.

mod cuts;
mod full;
mod held;
mod pressure;
mod readers;

use crate::common::fixture::{NOWAIT, filled, run_all, sim, writable};
use crate::common::stage::Stage;
use crate::common::{Rng, image, scratch};
use diorite::{Error, Fallocate, File, Op, OpenFlags, OpenOptions, Request, Volume};
use std::path::{Path, PathBuf};

/// A kind of volume: its name, the words of mke2fs, the bytes of a block, and of the smallest atomic write.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    args: &'static [&'static str],
    block: u64,
    unit: u64,
}

const fn kind(name: &'static str, args: &'static [&'static str], block: u64, unit: u64) -> Kind {
    Kind {
        name,
        args,
        block,
        unit,
    }
}

const ONE_K: Kind = kind("1 KiB blocks", &["-t", "ext4", "-b", "1024"], 1024, 1024);
const FOUR_K: Kind = kind("4 KiB blocks", &["-t", "ext4", "-b", "4096"], 4096, 4096);

const KINDS: [Kind; 7] = [
    ONE_K,
    kind("2 KiB blocks", &["-t", "ext4", "-b", "2048"], 2048, 2048),
    FOUR_K,
    kind(
        "64 KiB blocks",
        &["-t", "ext4", "-b", "65536", "-J", "size=64"],
        65536,
        65536,
    ),
    kind(
        "clusters of 16 KiB",
        &["-t", "ext4", "-O", "bigalloc", "-b", "4096", "-C", "16384"],
        4096,
        16384,
    ),
    kind(
        "clusters of 64 KiB",
        &["-t", "ext4", "-O", "bigalloc", "-b", "1024", "-C", "65536"],
        1024,
        65536,
    ),
    kind("ext3", &["-t", "ext3", "-b", "1024"], 1024, 1024),
];

const MOST: u64 = 64 << 10;

/// An image with `/file`, which has 300,000 bytes of 0x55, and an empty `/filler`.
fn made(dir: &Path, kind: &Kind, size: &str) -> PathBuf {
    let tree = dir.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::write(tree.join("file"), vec![0x55; 300_000]).unwrap();
    std::fs::write(tree.join("filler"), b"").unwrap();
    image(dir, size, kind.args, &tree)
}

fn opened(stage: &Stage) -> (Volume, File) {
    let volume = stage.open(&OpenOptions::writable()).unwrap();
    let file = volume.open_path("/file", writable()).unwrap();
    (volume, file)
}

fn size_of(kind: &Kind) -> &'static str {
    match kind.block {
        65536 => "160M",
        _ => "32M",
    }
}

fn atomic(file: &File, pos: u64, byte: u8, len: u64) -> Result<usize, Error> {
    file.write_atomic(pos, filled(byte, len as usize)).1
}

fn read_direct(file: &File) -> Vec<u8> {
    let size = file.size() as usize;
    let (buf, got) = file.read_buf(0, filled(0x77, size.next_multiple_of(4096)));
    assert_eq!(got.unwrap(), size);
    buf.as_slice()[..size].to_vec()
}

fn same(what: &str, found: &[u8], model: &[u8]) {
    assert_eq!(found.len(), model.len(), "{what}: size");
    if let Some(at) = (0..found.len()).find(|i| found[*i] != model[*i]) {
        panic!("{what}: byte {at} is {}, not {}", found[at], model[at]);
    }
}

/// The lengths and positions of RWF_ATOMIC; files whose data goes through the journal; requests that are no write of a whole buffer.
#[test]
fn what_cannot_be_atomic_is_refused_by_name() {
    let dir = scratch();
    let stage = Stage::mem(&made(dir.path(), &FOUR_K, "32M"));
    let (volume, file) = opened(&stage);
    let limits = volume.atomic_limits().unwrap();
    assert_eq!(
        (limits.unit_min, limits.unit_max, limits.segments_max),
        (4096, 65536, 1)
    );
    for (pos, len) in [
        (0, 2048),
        (0, 12288),
        (4096, 8192),
        (0, 131_072),
        (512, 4096),
        (0, 0),
    ] {
        let error = atomic(&file, pos, 1, len).unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{pos} {len}: {error}");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    }
    let queue = volume.queue(8).unwrap();
    let id = queue.attach(&file).unwrap();
    let requests = vec![
        Request::append(id, filled(1, 4096), 0).atomic(),
        Request::read(id, 0, filled(1, 4096), 1).atomic(),
        Request::write_last(id, 0, filled(1, 4096), 4000, 2).atomic(),
        Request::sync(id, true, 3).atomic(),
    ];
    for done in run_all(&queue, requests) {
        assert!(matches!(done.result, Err(Error::Invalid(_))), "{done:?}");
    }
    same("nothing was written", &read_direct(&file), &[0x55; 300_000]);
    let twice = Request::write(id, 0, filled(0x55, 4096), 4);
    let done = run_all(&queue, vec![twice.atomic().atomic()]);
    assert_eq!(*done[0].result.as_ref().unwrap(), 4096);
    drop((queue, file));
    volume.close().unwrap();
    let options = OpenOptions::writable().data_journal(true);
    let volume = stage.open(&options).unwrap();
    let file = volume.open_path("/file", writable()).unwrap();
    let error = atomic(&file, 0, 1, 4096).unwrap_err();
    assert!(matches!(error, Error::NotSupported(_)), "{error}");
    drop(file);
    volume.close().unwrap();
    stage.fsck();
}

/// Clusters larger than the largest write, and no journal: by name.
#[test]
fn a_volume_that_cannot_says_so() {
    let wide: &[&str] = &["-t", "ext4", "-O", "bigalloc", "-b", "4096", "-C", "131072"];
    let bare: &[&str] = &["-t", "ext4", "-b", "4096", "-O", "^has_journal"];
    for args in [wide, bare] {
        let dir = scratch();
        let stage = Stage::mem(&made(dir.path(), &kind("", args, 4096, 0), "32M"));
        let (volume, file) = opened(&stage);
        assert_eq!(volume.atomic_limits(), None);
        let error = atomic(&file, 0, 1, 4096).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::Unsupported, "{error}");
        drop(file);
        volume.close().unwrap();
    }
}

/// Every kind of range on every kind of volume, by direct and cached readers, against an array.
#[test]
fn contents_are_those_of_an_array() {
    let mut rng = Rng::from_env("untorn");
    for kind in &KINDS {
        let dir = scratch();
        let stage = Stage::mem(&made(dir.path(), kind, size_of(kind)));
        against_an_array(&stage, kind, &mut rng);
        stage.fsck();
    }
}

/// As above, on a device that writes atomically by itself.
#[test]
fn a_device_with_atomic_writes_is_used() {
    let mut rng = Rng::from_env("untorn-device");
    let dir = scratch();
    let stage = sim(&made(dir.path(), &FOUR_K, "32M"), "atomic=16K");
    against_an_array(&stage, &FOUR_K, &mut rng);
    stage.fsck();
    let (volume, file) = opened(&stage);
    file.truncate(0).unwrap();
    file.fallocate(Fallocate::WriteZeroes { keep_size: false }, 0, 1 << 20)
        .unwrap();
    let places = file.mappings(0, 1 << 20).unwrap();
    for n in 0..16 {
        assert_eq!(atomic(&file, n * 4096, 7, 4096).unwrap(), 4096);
        assert_eq!(file.mappings(0, 1 << 20).unwrap(), places);
    }
    // Longer than the device can: new blocks.
    assert_eq!(atomic(&file, 0, 8, MOST).unwrap(), 65536);
    assert_ne!(file.mappings(0, 1 << 20).unwrap(), places);
    drop(file);
    volume.close().unwrap();
    stage.fsck();
}

/// Without a journal the device's atomic writes are all that there is.
#[test]
fn without_a_journal_the_device_must_do_it() {
    let dir = scratch();
    let args: &[&str] = &["-t", "ext4", "-b", "4096", "-O", "^has_journal"];
    let stage = sim(
        &made(dir.path(), &kind("", args, 4096, 4096), "32M"),
        "atomic=16K",
    );
    let (volume, file) = opened(&stage);
    assert_eq!(volume.atomic_limits().unwrap().unit_max, 16384);
    assert_eq!(atomic(&file, 4096, 9, 4096).unwrap(), 4096);
    let error = atomic(&file, 1 << 20, 9, 4096).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::Unsupported, "{error}");
    assert_eq!(file.size(), 300_000);
    drop(file);
    volume.close().unwrap();
    stage.fsck();
}

fn against_an_array(stage: &Stage, kind: &Kind, rng: &mut Rng) {
    let (volume, file) = opened(stage);
    let direct = OpenFlags::default().direct(true);
    let reader = volume.open_path("/file", direct).unwrap();
    let mut model = vec![0x55; 300_000];
    let span = (1 << 20) / MOST;
    for round in 0..60u64 {
        let what = format!("{}, round {round}", kind.name);
        let mut len = kind.unit << rng.below(7);
        while len > MOST {
            len /= 2;
        }
        let pos = rng.below(span * MOST / len) * len;
        let byte = 1 + rng.below(250) as u8;
        match rng.below(10) {
            0 => {
                let size = rng.below(span * MOST);
                file.truncate(size).unwrap();
                model.resize(size as usize, 0);
            }
            1 => {
                file.fallocate(Fallocate::PunchHole, pos, len).unwrap();
                let end = ((pos + len) as usize).min(model.len());
                if (pos as usize) < end {
                    model[pos as usize..end].fill(0);
                }
            }
            2 if kind.name != "ext3" => {
                file.fallocate(Fallocate::Allocate { keep_size: true }, pos, 3 * len)
                    .unwrap();
            }
            3 => {
                file.write_bytes(pos + 7, &vec![byte; len as usize])
                    .unwrap();
                write(&mut model, pos + 7, byte, len);
            }
            4 => file.sync().unwrap(),
            _ => {
                assert_eq!(atomic(&file, pos, byte, len).unwrap() as u64, len, "{what}");
                write(&mut model, pos, byte, len);
            }
        }
        let mut cached = vec![0x77; file.size() as usize];
        assert_eq!(file.read_bytes(0, &mut cached).unwrap(), cached.len());
        same(&what, &cached, &model);
        if round % 7 == 0 {
            let mut bytes = vec![0x77; file.size() as usize];
            assert_eq!(reader.read_bytes(0, &mut bytes).unwrap(), bytes.len());
            same(&what, &bytes, &model);
        }
    }
    many_in_flight(&volume, &file, kind, &mut model, rng);
    drop((file, reader));
    volume.close().unwrap();
}

fn write(model: &mut Vec<u8>, pos: u64, byte: u8, len: u64) {
    let end = (pos + len) as usize;
    if model.len() < end {
        model.resize(end, 0);
    }
    model[pos as usize..end].fill(byte);
}

/// Units in flight together share commits; those of one range end in some order, each whole.
fn many_in_flight(volume: &Volume, file: &File, kind: &Kind, model: &mut Vec<u8>, rng: &mut Rng) {
    let queue = volume.queue(64).unwrap();
    let id = queue.attach(file).unwrap();
    let len = kind.unit;
    let request = |n: u64, byte: u64| {
        Request::write(id, n * len, filled(byte as u8, len as usize), n).atomic()
    };
    let requests = (0..64).map(|n| request(n, 1 + n)).collect();
    for done in run_all(&queue, requests) {
        assert_eq!(done.op, Op::WriteAtomic);
        assert_eq!(done.result.unwrap() as u64, len);
        write(model, done.pos, 1 + done.token as u8, len);
    }
    same(kind.name, &read_direct(file), model);
    let at = rng.below(8) * len;
    let requests = (0..32)
        .map(|n| Request::write(id, at, filled(100 + n as u8, len as usize), n).atomic())
        .collect();
    for done in run_all(&queue, requests) {
        assert_eq!(done.result.unwrap() as u64, len);
    }
    let found = read_direct(file);
    let one = found[at as usize];
    assert!((100..132).contains(&one));
    write(model, at, one, len);
    same(kind.name, &found, model);
}

/// NOWAIT: done, or EAGAIN with nothing changed (rule B10).
#[test]
fn nowait_never_waits_and_changes_nothing_then() {
    let dir = scratch();
    let stage = Stage::mem(&made(dir.path(), &ONE_K, "32M"));
    let (volume, file) = opened(&stage);
    let (mut done, mut refused) = (0, 0);
    for n in 0..40 {
        let before = read_direct(&file);
        let pos = n % 4 * 16384;
        let buf = filled(n as u8, 16384);
        match file.call(Op::WriteAtomic, pos, buf, NOWAIT).1 {
            Ok(len) => {
                assert_eq!(len, 16384);
                done += 1;
            }
            Err(Error::WouldBlock(_)) => {
                refused += 1;
                same("refused", &read_direct(&file), &before);
                assert_eq!(atomic(&file, pos, n as u8, 16384).unwrap(), 16384);
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(done > 20, "{done} done, {refused} refused");
    drop(file);
    volume.close().unwrap();
    stage.fsck();
}
