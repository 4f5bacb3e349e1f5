//! Signatures of file systems, containers and partition tables: what the bytes of a device say that it holds.
//!
//! Input: a device. Output: a [`Seen`]. Invariants: nothing is written; what a device has is read at its ends only; what cannot be read
//! hides nothing else. Limits: it is no proof that what is named is whole; of several signatures the first is told, file systems before
//! partition tables. Source: man 8 wipefs and blkid, man 5 magic; what each tool writes by experiment.

mod ext;

use diorite_block::{Blocking, Buf, Device};
use std::sync::Arc;

/// Bytes at the start and at the end of a device that are read.
const HEAD: u64 = (1 << 20) + (4 << 10);
const TAIL: u64 = 128 << 10;
/// Bytes that are read at once where not all can be.
const PIECE: u64 = 4 << 10;

/// What a device holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// As libblkid names it.
    pub(crate) kind: &'static str,
    pub(crate) is_table: bool,
    /// Empty: none, or unknown.
    pub(crate) label: String,
    /// What else is known: when it was used.
    pub(crate) more: Option<String>,
}

/// A signature at a place that does not depend on the size.
struct Magic {
    at: usize,
    bytes: &'static [u8],
    kind: &'static str,
    /// Where the label is, and its most bytes.
    label: Option<(usize, usize)>,
}

const fn magic(at: usize, bytes: &'static [u8], kind: &'static str) -> Magic {
    Magic {
        at,
        bytes,
        kind,
        label: None,
    }
}

const fn labelled(
    at: usize,
    bytes: &'static [u8],
    kind: &'static str,
    label: (usize, usize),
) -> Magic {
    Magic {
        at,
        bytes,
        kind,
        label: Some(label),
    }
}

const BCACHE: &[u8] = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
const BCACHEFS: &[u8] = b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";
const STRATIS: &[u8] = b"!Stra0tis\x86\xff\x02^\x41rh";
/// Of a multiple device of Linux (md).
const MD: &[u8] = b"\xfc\x4e\x2b\xa9";

/// File systems, members of sets, and what is encrypted.
#[rustfmt::skip]
const KINDS: &[Magic] = &[
    labelled(0, b"XFSB", "xfs", (108, 12)),
    labelled(65_600, b"_BHRfS_M", "btrfs", (65_835, 256)),
    labelled(82, b"FAT32   ", "vfat", (71, 11)),
    labelled(54, b"FAT16   ", "vfat", (43, 11)),
    labelled(54, b"FAT12   ", "vfat", (43, 11)),
    labelled(54, b"FAT     ", "vfat", (43, 11)),
    magic(3, b"NTFS    ", "ntfs"),
    magic(3, b"EXFAT   ", "exfat"),
    magic(3, b"-FVE-FS-", "BitLocker"),
    magic(3, b"ReFS\0", "ReFS"),
    magic(0, b"LUKS\xba\xbe", "crypto_LUKS"),
    magic(0x4000, b"SKUL\xba\xbe", "crypto_LUKS"),
    magic(1024, b"\x10\x20\xf5\xf2", "f2fs"),
    labelled(1024, b"\xe2\xe1\xf5\xe0", "erofs", (1088, 16)),
    magic(0, b"hsqs", "squashfs"),
    magic(0, b"sqsh", "squashfs3"),
    labelled(0, b"\x45\x3d\xcd\x28", "cramfs", (48, 16)),
    labelled(0, b"\x28\xcd\x3d\x45", "cramfs", (48, 16)),
    magic(0, b"-rom1fs-", "romfs"),
    labelled(32_769, b"CD001", "iso9660", (32_808, 32)),
    magic(32_769, b"BEA01", "udf"),
    magic(32_769, b"NSR0", "udf"),
    labelled(32_768, b"JFS1", "jfs", (32_920, 16)),
    magic(1030, b"\x34\x34", "nilfs2"),
    labelled(65_588, b"ReIsErFs", "reiserfs", (65_636, 16)),
    labelled(65_588, b"ReIsEr2Fs", "reiserfs", (65_636, 16)),
    labelled(65_588, b"ReIsEr3Fs", "reiserfs", (65_636, 16)),
    magic(8244, b"ReIsErFs", "reiserfs"),
    magic(65_536, b"ReIsEr4", "reiser4"),
    magic(1040, b"\x7f\x13", "minix"),
    magic(1040, b"\x8f\x13", "minix"),
    magic(1040, b"\x68\x24", "minix"),
    magic(1040, b"\x78\x24", "minix"),
    magic(1048, b"\x5a\x4d", "minix"),
    magic(1024, b"H+\0\x04", "hfsplus"),
    magic(1024, b"HX\0\x05", "hfsplus"),
    magic(1024, b"BD", "hfs"),
    magic(32, b"NXSB", "apfs"),
    magic(65_536, b"\x01\x16\x19\x70", "gfs2"),
    magic(1024, b"OCFSV2", "ocfs2"),
    magic(2048, b"OCFSV2", "ocfs2"),
    magic(4096, b"OCFSV2", "ocfs2"),
    magic(9564, b"\x54\x19\x01\x00", "ufs"),
    magic(66_908, b"\x54\x19\x01\x00", "ufs"),
    magic(66_908, b"\x19\x01\x54\x19", "ufs"),
    magic(1_048_576, b"\x0d\xd0\x01\xc0", "VMFS_volume_member"),
    magic(4120, BCACHE, "bcache"),
    magic(4120, BCACHEFS, "bcachefs"),
    magic(0, b"bluestore block device", "ceph_bluestore"),
    magic(516, STRATIS, "stratis"),
    magic(0, b"dmvdo001", "vdo"),
    magic(0, b"integrt\0", "DM_integrity"),
    magic(0, b"verity\0\0", "DM_verity_hash"),
    magic(536, b"LVM2 001", "LVM2_member"),
    magic(24, b"LVM2 001", "LVM2_member"),
    magic(1048, b"LVM2 001", "LVM2_member"),
    magic(1560, b"LVM2 001", "LVM2_member"),
    magic(0, MD, "linux_raid_member"),
    magic(4096, MD, "linux_raid_member"),
];

/// Partition tables.
#[rustfmt::skip]
const TABLES: &[Magic] = &[
    magic(512, b"EFI PART", "gpt"),
    magic(4096, b"EFI PART", "gpt"),
    magic(510, b"\x55\xaa", "dos"),
    magic(508, b"\xda\xbe", "sun"),
    magic(0, b"\x0b\xe5\xa9\x41", "sgi"),
    magic(512, b"PM\0\0", "mac"),
    magic(512, b"\x57\x45\x56\x82", "bsd"),
];

/// What is seen on a device.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// What is recognised, if anything is.
    pub(crate) found: Option<Found>,
    /// Some of what was looked at cannot be read.
    pub(crate) is_partial: bool,
}

/// What is on a device, by as much of its ends as can be read.
pub(crate) fn look(device: &Arc<dyn Device>) -> Seen {
    let size = device.geometry().size;
    let (head, has_head) = read(device, 0, size.min(HEAD));
    let tail_at = size.saturating_sub(TAIL) / TAIL * TAIL;
    let (tail, has_tail) = read(device, tail_at, size - tail_at);
    let found = ext::look(&head)
        .or_else(|| KINDS.iter().find_map(|magic| magic.found(&head, false)))
        .or_else(|| swap(&head))
        .or_else(|| zfs(&head))
        .or_else(|| md_at_end(&tail, tail_at, size));
    let found = found
        .or_else(|| TABLES.iter().find_map(|magic| magic.found(&head, true)))
        .or_else(|| gpt_at_end(&tail));
    Seen {
        found,
        is_partial: !(has_head && has_tail),
    }
}

/// These bytes, with zeros for those that cannot be read; whether all could be.
fn read(device: &Arc<dyn Device>, at: u64, len: u64) -> (Vec<u8>, bool) {
    let blocking = Blocking::new(device.clone());
    let piece = |at: u64, len: u64| {
        let read = blocking.read(at, Buf::zeroed(len as usize)).ok()?;
        Some(read.as_slice().to_vec())
    };
    if let Some(all) = piece(at, len) {
        return (all, true);
    }
    let (mut bytes, mut is_whole) = (Vec::new(), true);
    for from in (at..at + len).step_by(PIECE as usize) {
        let len = PIECE.min(at + len - from);
        let read = piece(from, len);
        is_whole &= read.is_some();
        bytes.extend(read.unwrap_or_else(|| vec![0; len as usize]));
    }
    (bytes, is_whole)
}

impl Magic {
    fn found(&self, head: &[u8], is_table: bool) -> Option<Found> {
        head.get(self.at..)?.starts_with(self.bytes).then(|| Found {
            is_table,
            label: self
                .label
                .map_or_else(String::new, |place| label(head, place)),
            ..plain(self.kind)
        })
    }
}

fn plain(kind: &'static str) -> Found {
    Found {
        kind,
        is_table: false,
        label: String::new(),
        more: None,
    }
}

/// The text of a label, up to a zero, without the spaces that fill it up.
fn label(head: &[u8], (at, most): (usize, usize)) -> String {
    let field = head.get(at..at + most).unwrap_or_default();
    let end = field.iter().position(|b| *b == 0).unwrap_or(most);
    let text = String::from_utf8_lossy(field.get(..end).unwrap_or_default()).into_owned();
    match text.trim_end() {
        // What mkfs.vfat writes where there is none.
        "NO NAME" => String::new(),
        text => text.chars().filter(|c| !c.is_control()).collect(),
    }
}

/// Swap space ends its first page with its signature, and pages are 4 to 64 KiB.
fn swap(head: &[u8]) -> Option<Found> {
    let mut ends = (12..=16).filter_map(|bits| head.get((1usize << bits) - 10..1 << bits));
    let is_one = ends.any(|end| end == b"SWAPSPACE2" || end == b"SWAP-SPACE");
    is_one.then(|| Found {
        label: label(head, (1052, 16)),
        ..plain("swap")
    })
}

/// A member of a pool of ZFS has slots of its newest state from 128 KiB on, each 1 KiB or more.
fn zfs(head: &[u8]) -> Option<Found> {
    let slots = head.get(128 << 10..256 << 10)?.chunks_exact(1024);
    let mut starts = slots.map(|slot| &slot[..8]);
    let magic = 0x00ba_b10c_u64;
    starts
        .any(|start| start == magic.to_le_bytes() || start == magic.to_be_bytes())
        .then(|| plain("zfs_member"))
}

/// A member of a multiple device may have its superblock near the end: 8 to 12 KiB, or the last whole 64 KiB before the last.
fn md_at_end(tail: &[u8], tail_at: u64, size: u64) -> Option<Found> {
    let sectors = size / 512;
    let new = (sectors.saturating_sub(16) & !7) * 512;
    let old = (size & !0xffff).saturating_sub(64 << 10);
    let mut places = [new, old]
        .into_iter()
        .filter_map(|at| tail.get(usize::try_from(at.checked_sub(tail_at)?).ok()?..));
    places
        .any(|rest| rest.starts_with(MD))
        .then(|| plain("linux_raid_member"))
}

/// A GPT has a copy of its header in the last sector, which outlives a damaged start.
fn gpt_at_end(tail: &[u8]) -> Option<Found> {
    let mut sectors = [512, 4096].into_iter();
    let is_one = sectors.any(|sector| {
        let start = tail.len().checked_sub(sector);
        start.is_some_and(|at| tail[at..].starts_with(b"EFI PART"))
    });
    is_one.then(|| Found {
        is_table: true,
        ..plain("gpt")
    })
}

#[cfg(test)]
mod tests;
