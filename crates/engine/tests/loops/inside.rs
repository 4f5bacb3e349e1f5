//! Files inside images as devices: their parts and partitions, who has them, how their bytes are stored.
//!
//! Input: images inside images. Output: none. Invariants: none of its own. Limits: MBR; GPT is tested beside the parser.

use super::{mode, run_bios};
use crate::common::fixture::{LIMIT, filled, writable};
use crate::common::stage::{Stage, one_worker};
use crate::common::watch::Watchdog;
use crate::common::{fsck, image, run, scratch};
use diorite::device::DeviceErrorKind;
use diorite::{
    Error, Fallocate, Locator, LoopDevice, LoopMode, OpenOptions, Policy, Volume, open_device,
};
use diorite_block::locator::Part;
use diorite_block::{Bio, Blocking, Buf, Device, Run, Stored, WindowDevice, WindowOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The first sector of the partition. Blocks of 4096 bytes do not begin there.
const FIRST: usize = 2049;

/// An image with `/disk`, a disk whose second partition is a volume with `/hello`, and `/disk?ro`, a volume of its own.
fn outer(dir: &Path, block: &str) -> (PathBuf, Vec<u8>) {
    outer_of(dir, "1024", block)
}

/// As `outer`, with blocks of `large` bytes.
fn outer_of(dir: &Path, large: &str, block: &str) -> (PathBuf, Vec<u8>) {
    let (source, tree, made) = (dir.join("source"), dir.join("tree"), dir.join("made"));
    for path in [&source, &tree, &made] {
        std::fs::create_dir_all(path).unwrap();
    }
    std::fs::write(source.join("hello"), "hello").unwrap();
    let inner = std::fs::read(image(&made, "8M", &["-t", "ext4", "-b", block], &source)).unwrap();
    let mut disk = vec![0; FIRST * 512 + inner.len() + 5000];
    let entry = &mut disk[446 + 16..446 + 32];
    entry[4] = 0x83;
    entry[8..12].copy_from_slice(&(FIRST as u32).to_le_bytes());
    entry[12..16].copy_from_slice(&((inner.len() / 512) as u32).to_le_bytes());
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk[FIRST * 512..][..inner.len()].copy_from_slice(&inner);
    std::fs::write(tree.join("disk"), &disk).unwrap();
    std::fs::write(tree.join("disk?ro"), &inner).unwrap();
    (
        image(dir, "48M", &["-t", "ext4", "-b", large], &tree),
        inner,
    )
}

fn kind_of(error: &Error) -> Option<DeviceErrorKind> {
    match error.root() {
        Error::Open(error) => Some(error.kind),
        _ => None,
    }
}

/// `?part=` and the other parameters of a file inside an image; the volume there is written, and e2fsck judges it.
#[test]
fn a_partition_of_a_disk_inside_an_image() {
    let _watchdog = Watchdog::new(2 * LIMIT, "a partition inside");
    for (n, (block, params)) in [
        ("1024", "part=2"),
        ("4096", "part=2"),
        ("1024", "part=2&sector=512"),
        ("4096", "offset=1049088&size=8M"),
    ]
    .into_iter()
    .enumerate()
    {
        let dir = scratch();
        let (image, _) = outer(dir.path(), block);
        let between = ["!", ":"][n % 2];
        let locator = format!("{}{between}/disk?{params}", image.display());
        for loop_mode in super::MODES {
            let options = OpenOptions::writable().policy(mode(loop_mode));
            let volume = Volume::open(&locator, &options).unwrap();
            let mut hello = [0; 5];
            let file = volume.open_path("/hello", writable()).unwrap();
            file.read_bytes(0, &mut hello).unwrap();
            assert_eq!(&hello, b"hello", "{locator}");
            let name = format!("/new-{}", loop_mode.name());
            let file = volume.create(&name, 0o644).unwrap();
            file.write_bytes(700, &[7; 100_000]).unwrap();
            file.sync().unwrap();
            drop(file);
            volume.close().unwrap();
        }
        fsck(&image);
        let (disk, part) = (dir.path().join("disk"), dir.path().join("part"));
        run(
            "debugfs",
            &[
                "-R",
                &format!("dump /disk {}", disk.display()),
                image.to_str().unwrap(),
            ],
        );
        let bytes = std::fs::read(&disk).unwrap();
        std::fs::write(&part, &bytes[FIRST * 512..][..8 << 20]).unwrap();
        fsck(&part);
        let around = bytes[512..FIRST * 512].iter();
        let behind = bytes[FIRST * 512 + (8 << 20)..].iter();
        assert!(around.chain(behind).all(|b| *b == 0), "{locator}");
    }
}

/// A name with a question mark is reached by another one at its end; a partition that is not there is an error that lists those that
/// are; what is no parameter belongs to the name.
#[test]
fn names_and_parameters() {
    let dir = scratch();
    let (image, inner) = outer(dir.path(), "1024");
    let at = |text: &str| format!("{}!/{text}", image.display());
    let device = |text: &str| {
        open_device(
            &Locator::parse(&at(text)).unwrap(),
            &OpenOptions::writable(),
        )
    };
    let said = |text: &str| device(text).map(drop).unwrap_err().to_string();
    let whole = device("disk?ro?").unwrap();
    assert_eq!(whole.geometry().size, inner.len() as u64);
    assert!(!whole.geometry().read_only);
    drop(whole);
    let part = device("disk?ro").unwrap();
    assert!(part.geometry().read_only);
    assert_eq!(part.name(), at("disk?ro"));
    drop(part);
    assert_eq!(device("disk?ro?size=1M").unwrap().geometry().size, 1 << 20);
    assert!(said("disk?part=3").contains("its MBR has 2 (Linux, 8 MiB)"));
    assert!(said("disk?ro?part=1").contains("no partition table"));
    assert!(said("disk?offset=1G").contains("does not lie inside"));
    assert!(said("disk?sector=100").contains("power of two"));
    assert!(said("disk?parts=3").contains("not all known parameters"));
}

/// Rule L8: a file that a device writes to is not opened for writing by a second one; reading it is allowed.
#[test]
fn a_file_has_one_device_that_writes() {
    let dir = scratch();
    let (image, _) = outer(dir.path(), "1024");
    let volume = Volume::open(image.to_str().unwrap(), &OpenOptions::writable()).unwrap();
    let first = volume
        .open_inside("/disk?ro", &OpenOptions::writable())
        .unwrap();
    let refused = volume
        .open_inside("/disk?ro", &OpenOptions::writable())
        .unwrap_err();
    assert_eq!(kind_of(&refused), Some(DeviceErrorKind::Held), "{refused}");
    assert!(refused.to_string().contains("!/disk?ro;"), "{refused}");
    let reader = volume.open_inside("/disk?ro", &OpenOptions::default());
    drop(reader.unwrap());
    first.close().unwrap();
    // A path of any bytes.
    volume.link("/disk?ro", b"/disk\xff").unwrap();
    let again = volume.open_inside(b"/disk\xff", &OpenOptions::writable());
    again.unwrap().close().unwrap();
}

/// A loop device knows how its bytes are stored: by the map, with pages that are not written back as data, also through a window.
#[test]
fn how_bytes_are_stored() {
    let _watchdog = Watchdog::new(LIMIT, "how bytes are stored");
    let dir = scratch();
    let (image, _) = outer(dir.path(), "1024");
    let stage = Stage::mem(&image);
    let volume = stage.open(&one_worker(Policy::DIORITE)).unwrap();
    let file = volume.create("/mixed", 0o644).unwrap();
    file.truncate(1 << 20).unwrap();
    let block = u64::from(volume.superblock().block_size());
    file.write_buf(8 * block, Buf::zeroed(4 * block as usize))
        .1
        .unwrap();
    let keep = Fallocate::Allocate { keep_size: true };
    file.fallocate(keep, 16 * block, 4 * block).unwrap();
    let device = Arc::new(LoopDevice::new(file.clone(), "loop".into()));
    let size = device.geometry().size;
    let runs = |list: &[(u64, Stored)]| -> Vec<Run> {
        let run = |(blocks, stored): &(u64, Stored)| Run {
            len: blocks * block,
            stored: *stored,
        };
        list.iter().map(run).collect()
    };
    let rest = size / block - 20;
    let mut want = vec![
        (8, Stored::Hole),
        (4, Stored::Data),
        (4, Stored::Hole),
        (4, Stored::Zero),
        (rest, Stored::Hole),
    ];
    let all = || device.stored(0..size, 100).unwrap();
    assert_eq!(all(), runs(&want));
    assert_eq!(device.stored(0..size, 2).unwrap(), runs(&want[..2]));
    assert_eq!(device.stored(0..size, 0).unwrap(), []);
    assert_eq!(device.stored(700..700, 9).unwrap(), []);
    let part = device.stored(9 * block + 512..12 * block + 512, 9).unwrap();
    assert_eq!(
        part,
        [
            Run {
                len: 3 * block - 512,
                stored: Stored::Data
            },
            Run {
                len: 512,
                stored: Stored::Hole
            },
        ]
    );
    assert!(device.stored(0..size + 1, 9).is_err());
    // Dirty pages in a hole, over the end of what is preallocated, and behind it.
    file.write_bytes(2 * block, &[1]).unwrap();
    file.write_bytes(19 * block, &vec![1; 2 * block as usize])
        .unwrap();
    want = vec![
        (2, Stored::Hole),
        (1, Stored::Data),
        (5, Stored::Hole),
        (4, Stored::Data),
        (4, Stored::Hole),
        (3, Stored::Zero),
        (2, Stored::Data),
        (rest - 1, Stored::Hole),
    ];
    assert_eq!(all(), runs(&want));
    file.sync().unwrap();
    assert_eq!(all(), runs(&want));
    let options = WindowOptions::default().offset(2 * block);
    let window = WindowDevice::new(device.clone(), &options, "window".into()).unwrap();
    assert_eq!(window.stored(0..6 * block, 9).unwrap(), runs(&want[1..3]));
    // All of a device in steps of one run.
    let (mut at, mut found) = (0, Vec::new());
    while at < size {
        let run = device.stored(at..size, 1).unwrap()[0];
        at += run.len;
        found.push(run);
    }
    assert_eq!(found, runs(&want));
}

/// A volume with blocks of 1 KiB on a disk whose blocks have 4 KiB, by `sector=`; e2fsck judges it.
#[test]
fn a_volume_with_smaller_blocks_than_its_disk() {
    let _watchdog = Watchdog::new(2 * LIMIT, "small blocks");
    let dir = scratch();
    let (path, _) = outer(dir.path(), "1024");
    let stage = Stage::mem(&path);
    let outer_volume = stage.open(&one_worker(Policy::DIORITE)).unwrap();
    let file = outer_volume.open_path("/disk?ro", writable()).unwrap();
    let part = |below, sector| {
        let options = WindowOptions::default().sector(sector);
        Arc::new(WindowDevice::new(below, &options, "window".into()).unwrap())
    };
    let disk = part(Arc::new(LoopDevice::new(file, "loop".into())), 4096);
    let device = part(disk.clone(), 512);
    let volume = Volume::open_device(device.clone(), &one_worker(Policy::DIORITE)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3u8 {
            let volume = &volume;
            scope.spawn(move || {
                for n in 0..12u64 {
                    let file = volume.create(&format!("/f{thread}-{n}"), 0o644).unwrap();
                    let buf = filled(thread + 1, 1024);
                    file.write_buf(n * 1024, buf).1.unwrap();
                    file.write_bytes(n * 512 + 20_000, &[thread + 1; 3000])
                        .unwrap();
                    file.sync().unwrap();
                }
            });
        }
    });
    for thread in 0..3u8 {
        for n in 0..12u64 {
            let file = volume
                .open_path(&format!("/f{thread}-{n}"), writable())
                .unwrap();
            let mut got = [0; 1024];
            file.read_bytes(n * 1024, &mut got).unwrap();
            assert!(got.iter().all(|b| *b == thread + 1));
        }
    }
    assert!(device.rewrites() > 0);
    volume.close().unwrap();
    let whole = Blocking::new(disk.clone());
    let size = disk.geometry().size as usize;
    let bytes = whole.read(0, Buf::zeroed(size)).unwrap();
    let inner = dir.path().join("inner");
    std::fs::write(&inner, bytes.as_slice()).unwrap();
    fsck(&inner);
}

/// A device that outlives its volume's handle, in both modes, and a queue that outlives its device.
#[test]
fn a_device_lives_as_long_as_it_is_used() {
    let dir = scratch();
    let (path, _) = outer(dir.path(), "1024");
    for loop_mode in [LoopMode::BufferedSync, LoopMode::DirectAsync] {
        let stage = Stage::mem(&path);
        let volume = stage.open(&one_worker(mode(loop_mode))).unwrap();
        let file = volume.open_path("/disk", writable()).unwrap();
        let device = LoopDevice::new(file, "loop".into());
        drop(volume);
        let write = Bio::write(0, filled(7, 4096), 0);
        assert_eq!(run_bios(&device, vec![write])[0].result, Ok(()));
        let (queue, _waker) = super::open(&device, 8);
        let mut list = (0..8)
            .map(|n| Bio::write(n * 512, filled(9, 512), n))
            .collect();
        queue.submit(&mut list);
        drop(device);
        drop(queue);
        stage.fsck();
    }
}

/// A volume with blocks of 1024 bytes, in a file of a volume on a device whose sectors have 4096: it is read and written without being
/// told so, e2fsck finds nothing, and the bytes around a partition stay.
#[test]
fn smaller_blocks_than_the_sectors_below() {
    let _watchdog = Watchdog::new(LIMIT, "smaller blocks inside");
    let dir = scratch();
    let (image, inner) = outer_of(dir.path(), "4096", "1024");
    let stage = Stage::mem(&image);
    let sectors = WindowOptions::default().sector(4096);
    let below = WindowDevice::new(stage.device.clone(), &sectors, "below".to_owned()).unwrap();
    let below: Arc<dyn Device> = Arc::new(below);
    assert_eq!(below.geometry().logical, 4096);
    let outer = Volume::open_device(below, &OpenOptions::writable()).unwrap();
    let volume = outer
        .open_inside("/disk?ro", &OpenOptions::writable())
        .unwrap();
    assert_eq!(volume.superblock().block_size(), 1024);
    assert!(volume.notes().iter().any(|note| note.contains("4096")));
    for n in 0..40 {
        let file = volume.create(&format!("/new {n}"), 0o644).unwrap();
        file.write_buf(0, filled(n, 3 * 1024)).1.unwrap();
        file.write_bytes(3 * 1024, &[n; 700]).unwrap();
    }
    volume.close().unwrap();
    // A partition that neither begins nor ends with a sector of the device.
    let part = Part {
        part: Some(2),
        ..Part::default()
    };
    let options = OpenOptions::writable();
    let second = outer.open_part_inside("/disk", &part, &options).unwrap();
    let file = second.create("/new", 0o644).unwrap();
    file.write_bytes(500, &[9; 5000]).unwrap();
    drop(file);
    second.close().unwrap();
    let volume = outer
        .open_inside("/disk?ro", &OpenOptions::default())
        .unwrap();
    for n in 0..40 {
        let file = volume
            .open_path(&format!("/new {n}"), Default::default())
            .unwrap();
        let mut bytes = vec![0; 4000];
        assert_eq!(file.read_bytes(0, &mut bytes).unwrap(), 3 * 1024 + 700);
        assert!(bytes[..3 * 1024 + 700].iter().all(|b| *b == n));
    }
    drop(volume);
    let mut disk = vec![0; inner.len()];
    let file = outer.open_path("/disk?ro", Default::default()).unwrap();
    assert_eq!(file.read_bytes(0, &mut disk).unwrap(), inner.len());
    let left = dir.path().join("left");
    std::fs::write(&left, &disk).unwrap();
    fsck(&left);
    drop(file);
    outer.close().unwrap();
    stage.fsck();
}
