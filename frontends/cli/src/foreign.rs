//! Recognises images that hold no ext4 file system, by their first bytes or their partition table.
//!
//! Input: the locator of something in which no superblock was found. Output: what it is, and what the user can do about it.
//! Invariant: it writes nothing and waits for no lock. Limits: the most frequent kinds. Source: man 5 magic, as file(1) tells
//! them.

use diorite::{Device, LoopDevice, OpenFlags, OpenOptions, Volume};
use diorite_block::locator::FileLocator;
use diorite_block::{Blocking, Buf, Locator, locator};
use std::sync::Arc;

const RAW: &str = "'qemu-img convert -O raw' makes an image of it that can be opened";
const UNPACK: &str = "unpack it first";
const MOUNT: &str = "it is for other tools";
const UNLOCK: &str = "'cryptsetup open' makes a device of it that can be opened";
const ACTIVATE: &str = "'vgchange -ay' makes devices of its volumes that can be opened";
const TREE: &str = "unpack it and copy its files into an image: 'diorite put'";

/// The number of bytes that are searched for a magic number.
const LOOKED_AT: u64 = 68 << 10;

/// The offset of a magic number, the number, the format it belongs to, and what the user can do.
const KINDS: [(usize, &[u8], &str, &str); 25] = [
    (0, b"QFI\xfb", "a qcow2 image", RAW),
    (0, b"KDMV", "a VMDK image", RAW),
    (0, b"vhdxfile", "a VHDX image", RAW),
    (0, b"conectix", "a VHD image", RAW),
    (0, b"<<< ", "a VDI image", RAW),
    (0, b"\x1f\x8b", "compressed by gzip", UNPACK),
    (0, b"\xfd7zXZ", "compressed by xz", UNPACK),
    (0, b"\x28\xb5\x2f\xfd", "compressed by zstd", UNPACK),
    (0, b"BZh", "compressed by bzip2", UNPACK),
    (0, b"PK\x03\x04", "a zip archive", UNPACK),
    (
        0,
        b"\x3a\xff\x26\xed",
        "an Android sparse image",
        "'simg2img' makes an image of it that can be opened",
    ),
    (257, b"ustar", "a tar archive", TREE),
    (0, b"XFSB", "an XFS file system", MOUNT),
    (0, b"hsqs", "a squashfs file system", MOUNT),
    (0, b"LUKS\xba\xbe", "encrypted by LUKS", UNLOCK),
    (3, b"NTFS    ", "an NTFS file system", MOUNT),
    (3, b"EXFAT   ", "an exFAT file system", MOUNT),
    (54, b"FAT1", "a FAT file system", MOUNT),
    (82, b"FAT32", "a FAT file system", MOUNT),
    (512, b"LABELONE", "a physical volume of LVM", ACTIVATE),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS file system", MOUNT),
    (1024, b"\xe2\xe1\xf5\xe0", "an EROFS file system", MOUNT),
    (4086, b"SWAPSPACE2", "swap space of Linux", MOUNT),
    (32_769, b"CD001", "an ISO 9660 file system", MOUNT),
    (65_600, b"_BHRfS_M", "a btrfs file system", MOUNT),
];

/// What is at a locator, if it is recognised, and what the user can do.
pub(crate) fn told(img: &str) -> Option<String> {
    let locator = Locator::parse(img).ok()?;
    let first = first_bytes(&locator)?;
    let is_it = |(at, magic, ..): &&(usize, &[u8], &str, &str)| {
        first.get(*at..).is_some_and(|rest| rest.starts_with(magic))
    };
    if let Some((_, _, what, help)) = KINDS.iter().find(is_it) {
        return Some(format!("{img}: it is {what}; {help}"));
    }
    match &locator {
        Locator::File(file) => partitions(img, file),
        _ => None,
    }
}

/// The partitions of the disk, and one of them as an example of a locator: a Linux partition first.
fn partitions(img: &str, file: &FileLocator) -> Option<String> {
    let disk = FileLocator {
        part: None,
        ..file.clone()
    };
    let table = disk.partitions().ok().flatten()?;
    let what = match file.part {
        Some(number) => format!("partition {number} holds no ext2/ext3/ext4 file system"),
        None => "it is a disk with partitions".to_owned(),
    };
    let mut others: Vec<_> = table
        .parts
        .iter()
        .filter(|p| Some(p.number) != file.part)
        .collect();
    others.sort_by_key(|part| !part.kind.is_linux());
    let help = others.first().map(|part| {
        let one = FileLocator {
            part: Some(part.number),
            ..disk
        };
        format!("; name one of them: '{}'", Locator::File(one))
    });
    Some(format!(
        "{img}: {what}; its {table}{}",
        help.unwrap_or_default()
    ))
}

fn first_bytes(locator: &Locator) -> Option<Vec<u8>> {
    let device = device(locator)?;
    let len = device.geometry().size.min(LOOKED_AT);
    let buf = Buf::zeroed(usize::try_from(len).ok()?);
    Some(Blocking::new(device).read(0, buf).ok()?.as_slice().to_vec())
}

/// Opens the device at a locator for reading.
fn device(locator: &Locator) -> Option<Arc<dyn Device>> {
    let Locator::Inside { outer, path } = locator else {
        return locator::open(locator, &read_only()).ok();
    };
    let volume = Volume::open_locator(outer, &OpenOptions::default()).ok()?;
    let file = volume.open_path(path, OpenFlags::default()).ok()?;
    Some(Arc::new(LoopDevice::new(file, locator.to_string())))
}

/// Options that open a device only for reading.
pub(crate) fn read_only() -> diorite_block::OpenOptions {
    diorite_block::OpenOptions {
        read_only: true,
        ..diorite_block::OpenOptions::default()
    }
}
