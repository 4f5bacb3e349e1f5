//! Recognises images that hold no ext4 file system, by their first bytes or their partition table.
//!
//! Input: the locator of something in which no superblock was found. Output: what it is, and what the user can do about it.
//! Invariant: it writes nothing and waits for no lock. Limits: the most frequent kinds. Source: man 5 magic, as file(1) tells
//! them.

use crate::images::signatures;
use diorite::{Device, OpenOptions};
use diorite_block::locator::{FileLocator, ImageFormat, Part};
use diorite_block::{Blocking, Buf, Locator};
use std::sync::Arc;

const RAW: &str = "'qemu-img convert -O raw' makes an image of it that can be opened";
const QCOW2: &str = "'diorite copy -O raw IMG NEW.qcow2' takes it out";
const UNPACK_GZIP: &str = "'diorite copy -f gz IMG NEW.img' unpacks it";
const UNPACK_ZSTD: &str = "'diorite copy -f zst IMG NEW.img' unpacks it";
const UNPACK_XZ: &str = "'diorite copy -f xz IMG NEW.img' unpacks it";
const UNPACK_BZIP2: &str = "'diorite copy -f bz2 IMG NEW.img' unpacks it";
const UNPACK_LZ4: &str = "'diorite copy -f lz4 IMG NEW.img' unpacks it";
const UNPACK_ZIP: &str = "'diorite copy -f zip IMG NEW.img' unpacks it";
const UNPACK_SPARSE: &str = "'diorite copy -f android-sparse IMG NEW.img' unpacks it";
const MOUNT: &str = "it is for other tools";
const UNLOCK: &str = "'cryptsetup open' makes a device of it that can be opened";
const ACTIVATE: &str = "'vgchange -ay' makes devices of its volumes that can be opened";
const TREE: &str = "'diorite import IMG NEW.img' makes an image of its files";

/// The number of bytes that are searched for a magic number.
const LOOKED_AT: u64 = 4 << 10;

/// The offset of a magic number, the number, the format it belongs to, and what the user can do.
const KINDS: [(usize, &[u8], &str, &str); 13] = [
    (0, b"QFI\xfb", "a qcow2 image", QCOW2),
    (0, b"KDMV", "a VMDK image", RAW),
    (0, b"vhdxfile", "a VHDX image", RAW),
    (0, b"conectix", "a VHD image", RAW),
    (0, b"<<< ", "a VDI image", RAW),
    (0, b"\x1f\x8b", "compressed by gzip", UNPACK_GZIP),
    (0, b"\xfd7zXZ", "compressed by xz", UNPACK_XZ),
    (0, b"\x28\xb5\x2f\xfd", "compressed by zstd", UNPACK_ZSTD),
    (0, b"BZh", "compressed by bzip2", UNPACK_BZIP2),
    (0, b"\x04\x22\x4d\x18", "compressed by lz4", UNPACK_LZ4),
    (0, b"PK\x03\x04", "a zip archive", UNPACK_ZIP),
    (
        0,
        b"\x3a\xff\x26\xed",
        "an Android sparse image",
        UNPACK_SPARSE,
    ),
    (257, b"ustar", "a tar archive", TREE),
];

/// What is at a locator, if it is recognised, and what the user can do.
pub(crate) fn told(img: &str) -> Option<String> {
    let locator = Locator::parse(img).ok()?;
    let first = first_bytes(&locator)?;
    let is_it = |(at, magic, ..): &&(usize, &[u8], &str, &str)| {
        first.get(*at..).is_some_and(|rest| rest.starts_with(magic))
    };
    if let Some((_, _, what, help)) = KINDS.iter().find(is_it) {
        let other = as_qcow2(&locator).filter(|_| *help == QCOW2);
        let help = match other {
            Some(other) => {
                format!("'{other}' opens it as such, if you trust whoever wrote its first bytes")
            }
            None => help.replace("IMG", img),
        };
        return Some(format!("{img}: it is {what}; {help}"));
    }
    let found = device(&locator).and_then(|device| signatures::look(&device).found);
    if let Some(found) = found.filter(|found| !found.is_table) {
        let (what, help) = described(found.kind);
        return Some(format!("{img}: it is {what}; {help}"));
    }
    partitions(img, &locator)
}

/// The same file as a qcow2 image; None for what is in another image.
fn as_qcow2(locator: &Locator) -> Option<Locator> {
    match locator {
        Locator::File(file) if !file.is_qcow2() => Some(Locator::File(FileLocator {
            format: Some(ImageFormat::Qcow2),
            ..file.clone()
        })),
        _ => None,
    }
}

/// What is said of a kind of file system, and what the user can do.
fn described(kind: &str) -> (String, &'static str) {
    let what = match kind {
        "crypto_LUKS" => return ("encrypted by LUKS".to_owned(), UNLOCK),
        "LVM2_member" => return ("a physical volume of LVM".to_owned(), ACTIVATE),
        "swap" => "swap space of Linux",
        "xfs" => "an XFS file system",
        "ntfs" => "an NTFS file system",
        "exfat" => "an exFAT file system",
        "vfat" => "a FAT file system",
        "f2fs" => "an F2FS file system",
        "erofs" => "an EROFS file system",
        "iso9660" => "an ISO 9660 file system",
        "linux_raid_member" => "a member of a RAID of Linux (md)",
        "zfs_member" => "a member of a pool of ZFS",
        other => return (format!("a {other} file system"), MOUNT),
    };
    (what.to_owned(), MOUNT)
}

/// The partitions of the disk, and one of them as an example of a locator: a Linux partition first.
fn partitions(img: &str, locator: &Locator) -> Option<String> {
    let (table, named) = match locator {
        Locator::File(file) => {
            let disk = of_partition(locator, None)?;
            let Locator::File(disk) = disk else {
                return None;
            };
            (disk.partitions().ok()??, file.part)
        }
        Locator::Inside { outer, path, part } => {
            let whole = Locator::Inside {
                outer: outer.clone(),
                path: path.clone(),
                part: Part::default(),
            };
            let disk = Part {
                part: None,
                ..*part
            };
            let table = disk.partitions(device(&whole)?, img.to_owned());
            (table.ok()??, part.part)
        }
        Locator::Mem { .. } | Locator::Sim { .. } => return None,
    };
    let what = match named {
        Some(number) => format!("partition {number} holds no ext2/ext3/ext4 file system"),
        None => "it is a disk with partitions".to_owned(),
    };
    let mut others: Vec<_> = table
        .parts
        .iter()
        .filter(|p| Some(p.number) != named)
        .collect();
    others.sort_by_key(|part| !part.kind.is_linux());
    let one = others
        .first()
        .and_then(|part| of_partition(locator, Some(part.number)));
    let help = one.map(|one| format!("; name one of them: '{one}'"));
    Some(format!(
        "{img}: {what}; its {table}{}",
        help.unwrap_or_default()
    ))
}

/// The same locator with another partition, or none; None for what has no partitions.
fn of_partition(locator: &Locator, number: Option<u32>) -> Option<Locator> {
    let mut other = locator.clone();
    match &mut other {
        Locator::File(file) => file.part = number,
        Locator::Inside { part, .. } => part.part = number,
        Locator::Mem { .. } | Locator::Sim { .. } => return None,
    }
    Some(other)
}

fn first_bytes(locator: &Locator) -> Option<Vec<u8>> {
    let device = device(locator)?;
    let len = device.geometry().size.min(LOOKED_AT);
    let buf = Buf::zeroed(usize::try_from(len).ok()?);
    Some(Blocking::new(device).read(0, buf).ok()?.as_slice().to_vec())
}

/// Opens the device at a locator for reading.
fn device(locator: &Locator) -> Option<Arc<dyn Device>> {
    diorite::open_device(locator, &OpenOptions::default()).ok()
}

/// Options that open a device only for reading.
pub(crate) fn read_only() -> diorite_block::OpenOptions {
    diorite_block::OpenOptions::default().read_only(true)
}
