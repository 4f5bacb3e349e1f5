//! Volumes for the tests of the evacuation: made by mke2fs, filled and aged; and what can be seen of their contents.
//!
//! Input: options of mke2fs, a seed. Output: images in memory; for each path everything that a user can ask for. Invariant: what is seen
//! does not depend on places or inode numbers. Limits: images of some ten MiB.

use crate::testing::Rng;
use crate::{Fallocate, FileId, MappingState, OpenFlags, OpenOptions, Request, Volume, XattrWhen};
use diorite_block::{Device, MemDevice};
use diorite_format::features::Incompat;
use diorite_format::{FileType, Ino};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A kind of volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) size: &'static str,
    /// Arguments of mke2fs.
    pub(super) args: &'static str,
    /// Everything lies in the root's group of inodes.
    pub(super) is_flat: bool,
}

pub(crate) fn options() -> OpenOptions {
    OpenOptions {
        commit_interval: Duration::from_secs(3600),
        // It is filled almost to the last block.
        keep_for_maps: false,
        ..OpenOptions::writable()
    }
}

/// The bytes of a new volume.
pub(super) fn made(kind: Kind) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let made = xtask::run::tool("mke2fs")
        .args(["-q", "-F"])
        .args(kind.args.split(' '))
        .args([path.to_str().unwrap(), kind.size])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(made.status.success(), "{kind:?}: {said}");
    std::fs::read(&path).unwrap()
}

pub(crate) fn device(bytes: &[u8]) -> Arc<MemDevice> {
    let device = MemDevice::new(bytes.len() as u64);
    device.write_at(0, bytes);
    Arc::new(device)
}

pub(crate) fn bytes_of(device: &MemDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.geometry().size as usize];
    device.read_at(0, &mut bytes);
    bytes
}

pub(super) fn open(device: Arc<dyn Device>) -> Volume {
    Volume::open_device(device, &options()).unwrap()
}

/// Fills a volume: a ballast in front, then all kinds of files, then the ballast goes.
pub(super) fn filled(kind: Kind, rng: &mut Rng) -> Vec<u8> {
    let device = device(&made(kind));
    let volume = open(device.clone());
    let at = if kind.is_flat { "" } else { "/tree" };
    if !kind.is_flat {
        volume.mkdir(at, 0o755).unwrap();
    }
    let ballast = ballast(&volume);
    fill(&volume, at, kind.is_flat, rng);
    for name in ballast {
        volume.unlink(&name).unwrap();
    }
    volume.close().unwrap();
    bytes_of(&device)
}

/// Fills the volume but for the last 5,000 blocks or so; returns the names of the files.
fn ballast(volume: &Volume) -> Vec<String> {
    let block = u64::from(volume.superblock().block_size());
    let total = volume.superblock().geometry().blocks_count();
    let zeros = vec![0; 512 * block as usize];
    let (mut names, mut last) = (Vec::new(), Vec::new());
    loop {
        let name = format!("/ballast{}", names.len() + last.len());
        let file = volume.create(&name, 0o600).unwrap();
        let done = match has_extents(volume) {
            true => {
                let mode = Fallocate::Allocate { keep_size: false };
                let len = zeros.len() as u64;
                let request = Request::fallocate(FileId::NONE, mode, 0, len, 0);
                file.run(request).result.map(drop)
            }
            false => file.write_bytes(0, &zeros).map(drop),
        };
        if done.is_err() {
            volume.unlink(&name).unwrap();
            break;
        }
        file.sync().unwrap();
        let is_last = file.mappings(0, 1).unwrap().iter().any(|m| match m.state {
            MappingState::Written(at) | MappingState::Unwritten(at) => at.get() + 5500 > total,
            MappingState::Hole => false,
        });
        if is_last {
            last.push(name)
        } else {
            names.push(name)
        }
    }
    for name in last {
        volume.unlink(&name).unwrap();
    }
    volume.sync().unwrap();
    names
}

fn fallocate(file: &crate::File, mode: Fallocate, pos: u64, len: u64) {
    let request = Request::fallocate(FileId::NONE, mode, pos, len, 0);
    file.run(request).result.unwrap();
}

fn has_extents(volume: &Volume) -> bool {
    let features = volume.superblock().features();
    features.incompat.has(Incompat::EXTENTS)
}

fn bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len.div_ceil(8))
        .flat_map(|_| rng.next().to_le_bytes())
        .take(len)
        .collect()
}

fn fill(volume: &Volume, at: &str, is_flat: bool, rng: &mut Rng) {
    let block = u64::from(volume.superblock().block_size());
    // Extents and indirect blocks, in one piece and in many.
    for n in 0..24 {
        let file = volume.create(&format!("{at}/f{n}"), 0o640).unwrap();
        let len = 1 + rng.below(40 * block) as usize;
        file.write_bytes(0, &bytes(rng, len)).unwrap();
        file.sync().unwrap();
    }
    // A file with a deep map: every other block of it is a hole, and the holes are filled by others.
    let deep = volume.create(&format!("{at}/deep"), 0o600).unwrap();
    deep.write_bytes(0, &bytes(rng, 700 * block as usize))
        .unwrap();
    deep.sync().unwrap();
    for n in 0..350 {
        fallocate(&deep, Fallocate::PunchHole, 2 * n * block, block);
    }
    volume.sync().unwrap();
    let others = volume.create(&format!("{at}/others"), 0o600).unwrap();
    others
        .write_bytes(0, &bytes(rng, 300 * block as usize))
        .unwrap();
    // Sparse, far out, and unwritten.
    let sparse = volume.create(&format!("{at}/sparse"), 0o600).unwrap();
    for place in [0, 5, 11, 13, 300, 900, 3000, 20000] {
        sparse
            .write_bytes(place * block, &bytes(rng, block as usize))
            .unwrap();
    }
    if has_extents(volume) {
        let keep_size = Fallocate::Allocate { keep_size: true };
        fallocate(&sparse, keep_size, 100 * block, 20 * block);
        let unwritten = volume.create(&format!("{at}/unwritten"), 0o600).unwrap();
        fallocate(
            &unwritten,
            Fallocate::Allocate { keep_size: false },
            0,
            64 * block,
        );
        unwritten
            .write_bytes(7 * block, &bytes(rng, block as usize))
            .unwrap();
    }
    for n in 0..24 {
        if rng.below(3) == 0 {
            volume.unlink(&format!("{at}/f{n}")).unwrap();
        }
    }
    volume
        .link(&format!("{at}/deep"), &format!("{at}/again"))
        .unwrap();
    volume.symlink(b"short", &format!("{at}/fast")).unwrap();
    volume.symlink(&[b'x'; 900], &format!("{at}/slow")).unwrap();
    volume
        .mknod(
            &format!("{at}/pipe"),
            FileType::Fifo,
            0o600,
            crate::Rdev { major: 0, minor: 0 },
        )
        .unwrap();
    // Directories: of many blocks, small, in each other.
    if !is_flat {
        for dir in ["big", "small", "small/inner", "small/inner/most"] {
            volume.mkdir(&format!("{at}/{dir}"), 0o750).unwrap();
        }
        // Directories in the root lie in groups of their own.
        for n in 0..12 {
            volume.mkdir(&format!("/spread{n}"), 0o700).unwrap();
            let file = volume.create(&format!("/spread{n}/file"), 0o600).unwrap();
            let len = 20 * block as usize;
            file.write_bytes(0, &bytes(rng, len)).unwrap();
        }
        // More blocks than a transaction usually changes.
        for n in 0..6000 {
            let name = format!("/spread7/another name, which is rather long, number {n}");
            volume.link("/spread7/file", &name).unwrap();
        }
        for n in 0..400 {
            let name = format!("{at}/big/a name that is rather long, number {n}");
            if n % 8 == 0 {
                volume.create(&name, 0o600).unwrap();
            } else {
                volume.link(&format!("{at}/others"), &name).unwrap();
            }
        }
        volume
            .create(&format!("{at}/small/inner/most/file"), 0o600)
            .unwrap();
    }
    attributes(volume, at, rng);
    volume.sync().unwrap();
}

fn attributes(volume: &Volume, at: &str, rng: &mut Rng) {
    let shared = bytes(rng, 300);
    let many = (0..12).map(|n| format!("/spread{n}/file"));
    let many = many.chain((0..12).map(|n| format!("/spread{n}")));
    let few = ["deep", "others", "sparse", "slow"]
        .iter()
        .map(|name| format!("{at}/{name}"));
    for name in many.chain(few) {
        let Ok(ino) = volume.resolve(&name, false) else {
            continue;
        };
        volume.set_xattr(ino, "trusted.shared", &shared).unwrap();
    }
    let ino = volume.resolve(&format!("{at}/fast"), false).unwrap();
    volume
        .set_xattr_when(ino, "trusted.own", &bytes(rng, 200), XattrWhen::Always)
        .unwrap();
    if volume
        .superblock()
        .features()
        .incompat
        .has(Incompat::EA_INODE)
    {
        let ino = volume.resolve(&format!("{at}/others"), false).unwrap();
        volume
            .set_xattr(ino, "trusted.large", &bytes(rng, 9000))
            .unwrap();
    }
}

/// Everything that can be seen of a volume, by path.
pub(super) fn seen(volume: &Volume) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut first_names: BTreeMap<Ino, String> = BTreeMap::new();
    let mut todo = vec![(String::new(), Ino::ROOT)];
    while let Some((path, dir)) = todo.pop() {
        let mut names: Vec<_> = volume.read_dir(dir).unwrap().map(|e| e.unwrap()).collect();
        names.sort_by(|a, b| a.name.cmp(&b.name));
        for entry in names {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            let full = format!("{path}/{name}");
            if name == "." {
                assert_eq!(entry.ino, dir, "{full}");
                continue;
            }
            if name == ".." {
                let up = match path.rfind('/') {
                    Some(at) => volume.resolve(&path[..at], false).unwrap(),
                    None => Ino::ROOT,
                };
                assert_eq!(entry.ino, up, "{full}");
                continue;
            }
            let first = first_names
                .entry(entry.ino)
                .or_insert_with(|| full.clone())
                .clone();
            all.insert(full.clone(), look(volume, entry.ino, &first));
            let (inode, _) = volume.metadata(entry.ino).unwrap();
            assert_eq!(
                inode.file_type,
                entry.file_type.or(inode.file_type),
                "{full}"
            );
            if inode.is_dir() {
                todo.push((full, entry.ino));
            }
        }
    }
    all
}

fn look(volume: &Volume, ino: Ino, first: &str) -> String {
    let (inode, size) = volume.metadata(ino).unwrap();
    let mut attributes: Vec<_> = volume.xattrs(ino).unwrap();
    attributes.sort_by(|a, b| a.name.cmp(&b.name));
    let attributes: Vec<String> = attributes
        .iter()
        .map(|x| format!("{}={:08x}", String::from_utf8_lossy(&x.name), sum(&x.value)))
        .collect();
    let contents = match inode.file_type {
        Some(FileType::Regular) => {
            let file = volume.open_ino(ino, OpenFlags::default()).unwrap();
            let mut all = vec![0xEE; size as usize];
            let mut at = 0;
            while at < all.len() {
                at += file.read_bytes(at as u64, &mut all[at..]).unwrap();
            }
            sum(&all)
        }
        Some(FileType::Symlink) => sum(&volume.read_link(ino).unwrap()),
        _ => 0,
    };
    let times = [inode.mtime, inode.ctime, inode.atime];
    format!(
        "{first} mode {:o} owner {}:{} links {} size {size} flags {:x} generation {} times {times:?} created {:?} \
         has {attributes:?}: {contents:08x}",
        inode.mode,
        inode.uid,
        inode.gid,
        inode.links,
        inode.flags.bits(),
        inode.generation,
        inode.crtime,
    )
}

fn sum(bytes: &[u8]) -> u32 {
    diorite_format::csum::crc32c(!0, bytes)
}

/// What e2fsck -fn says of an image; None if it finds nothing.
pub(crate) fn complaint(dir: &Path, bytes: &[u8]) -> Option<String> {
    let path = dir.join("checked");
    std::fs::write(&path, bytes).unwrap();
    let out = xtask::run::tool("e2fsck")
        .args(["-fn", path.to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    (!out.status.success()).then_some(said)
}

/// The image, read without changes of access times.
pub(crate) fn contents(bytes: &[u8]) -> BTreeMap<String, String> {
    let volume = Volume::open_device(device(bytes), &OpenOptions::default()).unwrap();
    seen(&volume)
}
