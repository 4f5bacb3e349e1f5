//! Volumes that allocate in clusters (bigalloc): growth, holes, range operations and truncation against an array, with requests in
//! flight. e2fsck judges each run, and the kernel reads the same bytes and continues from there.

use crate::common::bytes::same;
use crate::common::fixture::writable;
use crate::common::recipe::debugfs;
use crate::common::stage::{Stage, faulty};
use crate::common::{Rng, fsck, image, kernel, run, scaled, scratch};
use diorite::{Completion, Error, Fallocate, File, OpenFlags, OpenOptions, Queue, Request, Volume};
use diorite_block::{BioErrorKind, Buf, Fault, When};
use diorite_check::{CheckOptions, check};
use std::collections::{HashMap, VecDeque};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Block size and cluster size.
const KINDS: [(u64, u64); 6] = [
    (1024, 8192),
    (1024, 16384),
    (1024, 65536),
    (4096, 8192),
    (4096, 16384),
    (4096, 65536),
];

/// Free blocks hold this byte, so that a read of a block that was never written shows.
const POISON: u8 = 0xee;

fn make(dir: &Path, (block, cluster): (u64, u64), more: &[&str]) -> PathBuf {
    std::fs::write(dir.join("image"), vec![POISON; 64 << 20]).unwrap();
    let tree = dir.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::write(tree.join("file"), vec![0x55; 100_001]).unwrap();
    std::fs::write(tree.join("other"), b"").unwrap();
    let (block, cluster) = (block.to_string(), cluster.to_string());
    let args = ["-t", "ext4", "-O", "bigalloc", "-b", &block, "-C", &cluster];
    let args: Vec<&str> = args.iter().chain(more).copied().collect();
    image(dir, "65536k", &args, &tree)
}

fn open(image: &Path) -> (Volume, File) {
    let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap();
    let file = volume.open_path("/file", writable()).unwrap();
    (volume, file)
}

fn read_all(file: &File) -> Vec<u8> {
    let mut bytes = vec![0x77; file.size() as usize];
    assert_eq!(file.read_bytes(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn put(model: &mut Vec<u8>, pos: usize, data: &[u8]) {
    if model.len() < pos + data.len() {
        model.resize(pos + data.len(), 0);
    }
    model[pos..pos + data.len()].copy_from_slice(data);
}

fn reap_all(queue: &Queue, mut batch: VecDeque<Request>) -> Vec<Completion> {
    let count = batch.len();
    assert_eq!(queue.submit(&mut batch), count);
    let mut done = Vec::new();
    while done.len() < count {
        queue.reap(&mut done, 1, None);
    }
    done
}

/// Writes that do not overlap, several to a cluster, all in flight together.
fn writes(queue: &Queue, file: &File, model: &mut Vec<u8>, rng: &mut Rng) {
    let id = queue.attach(file).unwrap();
    let (mut batch, mut sent) = (VecDeque::new(), HashMap::new());
    let mut at = 512 * rng.below(1200);
    for token in 0..1 + rng.below(12) {
        let mut data = vec![0; 512 * (1 + rng.below(30)) as usize];
        data.fill(1 + rng.below(100) as u8);
        let mut buf = Buf::zeroed(data.len());
        buf.copy_in(0, &data);
        batch.push_back(Request::write(id, at, buf, token));
        at += data.len() as u64 + 512 * rng.below(40);
        sent.insert(token, data);
    }
    for done in reap_all(queue, batch) {
        let data = &sent[&done.token];
        assert_eq!(done.result.unwrap(), data.len());
        put(model, done.pos as usize, data);
    }
    queue.detach(id);
}

fn appends(queue: &Queue, file: &File, model: &mut Vec<u8>, rng: &mut Rng) {
    let size = (model.len() as u64).next_multiple_of(512);
    file.truncate(size).unwrap();
    model.resize(size as usize, 0);
    let id = queue.attach(file).unwrap();
    let (mut batch, mut sent) = (VecDeque::new(), Vec::new());
    for token in 0..1 + rng.below(8) {
        let data = vec![1 + rng.below(100) as u8; 512 * (1 + rng.below(9)) as usize];
        let mut buf = Buf::zeroed(data.len());
        buf.copy_in(0, &data);
        batch.push_back(Request::append(id, buf, token));
        sent.push(data);
    }
    for done in reap_all(queue, batch) {
        let data = &sent[done.token as usize];
        assert_eq!(done.result.unwrap(), data.len());
        put(model, done.pos as usize, data);
    }
    queue.detach(id);
}

fn ranges(file: &File, model: &mut Vec<u8>, cluster: u64, rng: &mut Rng) {
    let (pos, len) = (rng.below(600_000), 1 + rng.below(100_000));
    let keep_size = rng.below(2) == 0;
    let size = model.len() as u64;
    let (mode, keeps) = match rng.below(6) {
        0 => return resize(file, model, rng.below(800_000)),
        1 => (Fallocate::PunchHole, true),
        2 => (Fallocate::Allocate { keep_size }, keep_size),
        3 => (Fallocate::ZeroRange { keep_size }, keep_size),
        4 => (Fallocate::WriteZeroes { keep_size }, keep_size),
        _ => return shift(file, model, (pos, len), cluster, rng),
    };
    file.fallocate(mode, pos, len).unwrap();
    if !keeps && size < pos + len {
        model.resize((pos + len) as usize, 0);
    }
    let end = (pos + len).min(model.len() as u64) as usize;
    if (pos as usize) < end && !matches!(mode, Fallocate::Allocate { .. }) {
        model[pos as usize..end].fill(0);
    }
}

fn resize(file: &File, model: &mut Vec<u8>, size: u64) {
    file.truncate(size).unwrap();
    model.resize(size as usize, 0);
}

fn shift(file: &File, model: &mut Vec<u8>, (pos, len): (u64, u64), cluster: u64, rng: &mut Rng) {
    let size = model.len() as u64;
    let (at, many) = (pos / cluster * cluster, len.next_multiple_of(cluster));
    let crooked = file.fallocate(Fallocate::CollapseRange, at + 512, many);
    assert!(matches!(crooked, Err(Error::Invalid(_))), "{crooked:?}");
    if rng.below(2) == 0 && at < size {
        file.fallocate(Fallocate::InsertRange, at, many).unwrap();
        let zeros = std::iter::repeat_n(0, many as usize);
        model.splice(at as usize..at as usize, zeros);
    } else if at + many < size {
        file.fallocate(Fallocate::CollapseRange, at, many).unwrap();
        model.drain(at as usize..(at + many) as usize);
    }
}

/// The kernel reads the same bytes, and diorite and the kernel can each continue from what the other left.
fn kernel_goes_on(image: &Path, model: &mut Vec<u8>, rng: &mut Rng) {
    let (pos, byte) = (512 * rng.below(1500), rng.below(200) as u8);
    let before = model.clone();
    let wrote = kernel::mounted(image, "rw", |at| {
        same(
            "the kernel",
            &std::fs::read(at.join("file")).unwrap(),
            &before,
        );
        let file = std::fs::File::options()
            .write(true)
            .open(at.join("file"))
            .unwrap();
        file.write_all_at(&vec![byte; 5000], pos).unwrap();
        file.sync_all().unwrap();
    });
    if wrote {
        put(model, pos as usize, &vec![byte; 5000]);
        fsck(image);
    }
}

fn campaign(kind: (u64, u64), more: &[&str], rng: &mut Rng) {
    let dir = scratch();
    let image = make(dir.path(), kind, more);
    let mut model = vec![0x55; 100_001];
    for part in 0..2 {
        let (volume, file) = open(&image);
        let queue = volume.queue(32).unwrap();
        for n in 0..scaled("DIORITE_ROUNDS", 40) {
            match rng.below(4) {
                0 | 1 => writes(&queue, &file, &mut model, rng),
                2 => ranges(&file, &mut model, kind.1, rng),
                _ => appends(&queue, &file, &mut model, rng),
            }
            let what = format!("{kind:?}, part {part}, round {n}");
            same(&what, &read_all(&file), &model);
            if model.len() > 2 << 20 {
                resize(&file, &mut model, 700_000);
            }
        }
        drop((queue, file));
        volume.close().unwrap();
        fsck(&image);
        kernel_goes_on(&image, &mut model, rng);
    }
    let (volume, file) = open(&image);
    same("opened again", &read_all(&file), &model);
    file.truncate(0).unwrap();
    assert_eq!(file.metadata().blocks, 0);
    drop(file);
    volume.close().unwrap();
    fsck(&image);
}

#[test]
fn every_size_against_an_array() {
    let mut rng = Rng::from_env("clusters");
    for kind in KINDS {
        campaign(kind, &[], &mut rng);
    }
    campaign(KINDS[1], &["-J", "size=1"], &mut rng);
    campaign(KINDS[4], &["-O", "^has_journal"], &mut rng);
}

/// The first block of a cluster allocates the cluster, the next ones nothing more; the cluster is freed with the last of them.
#[test]
fn a_cluster_is_the_file_s_while_a_block_of_it_is() {
    let dir = scratch();
    let image = make(dir.path(), (4096, 65536), &[]);
    let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap();
    let file = volume.open_path("/other", writable()).unwrap();
    let write = |block: u64| {
        assert_eq!(
            file.write_buf(block * 4096, Buf::zeroed(4096)).1.unwrap(),
            4096
        );
    };
    let punch = |block: u64, count: u64| {
        file.fallocate(Fallocate::PunchHole, block * 4096, count * 4096)
            .unwrap();
    };
    let units = || file.metadata().blocks;
    write(5);
    assert_eq!(units(), 128);
    let place = file.mappings(5 * 4096, 4096).unwrap();
    write(3);
    write(15);
    assert_eq!(units(), 128);
    write(16);
    assert_eq!(units(), 256);
    punch(5, 1);
    punch(0, 4);
    assert_eq!(units(), 256, "block 15 is still there");
    write(5);
    assert_eq!(file.mappings(5 * 4096, 4096).unwrap(), place);
    punch(4, 12);
    assert_eq!(units(), 128);
    file.truncate(0).unwrap();
    assert_eq!(units(), 0);
    drop(file);
    volume.close().unwrap();
    fsck(&image);
}

/// Files are created and deleted, and their last cluster is freed.
#[test]
fn files_come_and_go() {
    let dir = scratch();
    let image = make(dir.path(), (1024, 16384), &[]);
    let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap();
    let path = |n: u64| format!("/a-file-with-a-rather-long-name-{n}");
    let create = |n: u64| {
        let file = volume.create(&path(n), 0o644).unwrap();
        let buf = Buf::zeroed(512 * (1 + n as usize % 50));
        file.write_buf(4096 * (n % 7), buf).1.unwrap();
    };
    (0..150).for_each(create);
    for n in (0..150).step_by(2) {
        volume.unlink(&path(n)).unwrap();
    }
    (150..300).for_each(create);
    for n in (1..150).step_by(2).chain(150..300) {
        volume.unlink(&path(n)).unwrap();
    }
    volume.close().unwrap();
    fsck(&image);
}

/// Rule G8: all clusters are in use, some for single blocks; a refused request changes nothing.
#[test]
fn no_space() {
    let dir = scratch();
    let image = make(dir.path(), (4096, 65536), &[]);
    let (volume, file) = open(&image);
    let mut ended = None;
    for cluster in 0..2000u64 {
        match file.write_buf(cluster * 65536 + 8192, Buf::zeroed(4096)).1 {
            Ok(_) => {}
            Err(Error::NoSpace { .. }) => {
                ended = Some(cluster);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    let ended = ended.expect("64 MiB are fewer than 2000 clusters");
    file.write_buf((ended - 1) * 65536, Buf::zeroed(8192))
        .1
        .unwrap();
    file.truncate(65536).unwrap();
    volume.sync().unwrap();
    file.write_buf(1 << 20, Buf::zeroed(1 << 20)).1.unwrap();
    drop(file);
    volume.close().unwrap();
    fsck(&image);
}

/// Gives the file many extents, several to a cluster: most leaves of its map end within a cluster.
fn fragment(image: &Path) {
    let (volume, file) = open(image);
    let allocate = Fallocate::Allocate { keep_size: false };
    file.truncate(0).unwrap();
    file.fallocate(allocate, 0, 40 << 20).unwrap();
    let queue = volume.queue(64).unwrap();
    let id = queue.attach(&file).unwrap();
    for first in (0..20_000u64).step_by(50) {
        let blocks = (first..first + 50).map(|n| 2 * n + u64::from(n % 7 == 0));
        let write = |n| Request::write(id, n * 1024, Buf::zeroed(1024), n);
        for done in reap_all(&queue, blocks.map(write).collect()) {
            done.result.unwrap();
        }
    }
    drop((queue, file));
    volume.close().unwrap();
    fsck(image);
}

/// A file with so many extents that a shift takes several transactions, and with several extents to a cluster. Whatever is on the
/// device when a request fails, no cluster is at two places of the file: diorite's own check would see that, e2fsck does not.
#[test]
fn a_shift_that_ends_in_the_middle() {
    let dir = scratch();
    let image = make(dir.path(), (1024, 16384), &["-J", "size=4"]);
    fragment(&image);
    let fresh = std::fs::read(&image).unwrap();
    let mut rng = Rng::from_env("a shift that ends in the middle");
    let (stride, mut nth, mut failed) = (scaled("DIORITE_FAULT_STRIDE", 300), 1, 0);
    loop {
        std::fs::write(&image, &fresh).unwrap();
        let stage = Stage::mem(&image);
        let device = faulty(
            stage.device.clone(),
            vec![Fault::new(BioErrorKind::Io, When::nth(nth))],
        );
        if let Ok(volume) = Volume::open_device(device.clone(), &OpenOptions::writable()) {
            // The request that fails may be one of the opening.
            if let Ok(file) = volume.open_path("/file", writable()) {
                let _may_fail = file.fallocate(Fallocate::InsertRange, 16384, 16384);
            }
            let _may_fail = volume.close();
        }
        if device.plan().failed() == 0 {
            break;
        }
        stage.save();
        let mended = xtask::run::tool("e2fsck")
            .args(["-fy", image.to_str().unwrap()])
            .output();
        let code = mended.unwrap().status.code();
        assert!(code.is_some_and(|c| c < 4), "request {nth}: {code:?}");
        fsck(&image);
        failed += 1;
        nth += 1 + rng.below(stride);
    }
    assert!(failed > 3, "{failed} requests failed");
}

/// One cluster at two places of a file, one after the other, as a power cut during a shift may leave it without a journal:
/// `e2fsck -fy` corrects the counts and then finds nothing wrong. Diorite's check reports it, counts the cluster once as e2fsck
/// does, and finds nothing else.
#[test]
fn one_cluster_at_two_places_is_found() {
    let dir = scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    let file = std::fs::File::create(tree.join("file")).unwrap();
    for block in [0, 6, 32] {
        file.write_all_at(&[7; 1024], block * 1024).unwrap();
    }
    let args = ["-t", "ext4", "-O", "bigalloc", "-b", "1024", "-C", "4096"];
    let image = image(dir.path(), "16384k", &args, &tree);
    let at = |block: u64| {
        let asked = format!("bmap /file {block}");
        let said = run("debugfs", &["-R", &asked, image.to_str().unwrap()]);
        let number = said.lines().find_map(|line| line.parse::<u64>().ok());
        number.unwrap()
    };
    // The word of the second extent that holds its location.
    let moved = format!("sif /file block[8] {}\n", at(0) + 2);
    debugfs(&image, dir.path(), &moved);
    let mended = xtask::run::tool("e2fsck")
        .args(["-fy", image.to_str().unwrap()])
        .output();
    assert_eq!(mended.unwrap().status.code(), Some(1));
    run("e2fsck", &["-fn", image.to_str().unwrap()]);
    assert_eq!(at(6), at(0) + 2);
    let report = check(image.to_str().unwrap(), &CheckOptions::default(), &|_| ()).unwrap();
    let found: Vec<String> = report.kept().map(|(_, f)| f.to_string()).collect();
    let expected = format!(
        "inode 12: file block 6 lies in block {}, in the cluster of another place of the file [/file]",
        at(6)
    );
    assert_eq!(found, [expected]);
}

/// A file without extents is invalid on a volume with clusters: diorite neither adds blocks to it nor frees any.
#[test]
fn a_file_without_extents_is_damaged() {
    let dir = scratch();
    let image = make(dir.path(), (4096, 16384), &[]);
    let script = "sif /other flags 0\nsif /other block[0] 0\nsif /other block[1] 0\n";
    debugfs(&image, dir.path(), script);
    let (volume, _file) = open(&image);
    let other = volume.open_path("/other", writable()).unwrap();
    let keep_size = false;
    let done = [
        other.write_buf(0, Buf::zeroed(4096)).1.map(drop),
        other.append_buf(Buf::zeroed(4096)).1.map(drop),
        other.truncate(4096),
        other.fallocate(Fallocate::Allocate { keep_size }, 0, 4096),
        volume.unlink("/other"),
    ];
    for done in done {
        let refused = matches!(&done, Err(Error::Damaged(why)) if why.contains("no extents"));
        assert!(refused, "{done:?}");
    }
    assert_eq!((other.size(), other.metadata().blocks), (0, 0));
    assert_eq!(volume.usage().pending, 0);
}

/// If the volume's last cluster is short, blocks of one cluster of a file could fall into two of the volume. No tool makes such a
/// volume; one that was made by hand is read-only.
#[test]
fn a_volume_with_a_short_last_cluster_is_only_read() {
    let dir = scratch();
    let image = make(dir.path(), (4096, 65536), &["-E", "nodiscard"]);
    let path = image.to_str().unwrap();
    debugfs(&image, dir.path(), "ssv blocks_count 16379\n");
    let volume = Volume::open(path, &OpenOptions::default()).unwrap();
    let file = volume.open_path("/file", OpenFlags::default()).unwrap();
    assert_eq!(read_all(&file), vec![0x55; 100_001]);
    drop((file, volume));
    let refused = Volume::open(path, &OpenOptions::writable()).unwrap_err();
    let said = refused.to_string();
    assert!(
        said.contains("last cluster") && said.contains("resize2fs"),
        "{said}"
    );
}
