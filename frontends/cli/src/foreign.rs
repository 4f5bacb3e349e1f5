//! What an image is that is none of ext4's: told by its first bytes.
//!
//! Input: the name of a file in which no superblock was found. Output: what it is, and what helps. Invariant: nothing is written. Limits: a plain
//! file, and the kinds that people meet most.
//! Source: man 5 magic, as file(1) tells them.

use std::io::Read;

const RAW: &str = "'qemu-img convert -O raw' makes an image of it that can be opened";
const UNPACK: &str = "unpack it first";
const MOUNT: &str = "it is for other tools";
const UNLOCK: &str = "'cryptsetup open' makes a device of it that can be opened";

/// First bytes, whose they are, what helps.
const KINDS: [(&[u8], &str, &str); 11] = [
    (b"QFI\xfb", "a qcow2 image", RAW),
    (b"KDMV", "a VMDK image", RAW),
    (b"vhdxfile", "a VHDX image", RAW),
    (b"conectix", "a VHD image", RAW),
    (b"<<< ", "a VDI image", RAW),
    (b"\x1f\x8b", "compressed by gzip", UNPACK),
    (b"\xfd7zXZ", "compressed by xz", UNPACK),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", UNPACK),
    (b"XFSB", "an XFS file system", MOUNT),
    (b"hsqs", "a squashfs file system", MOUNT),
    (b"LUKS\xba\xbe", "encrypted by LUKS", UNLOCK),
];

/// What a file is, if that is known.
pub(crate) fn told(path: &str) -> Option<String> {
    let mut first = Vec::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(8).read_to_end(&mut first).ok()?;
    let is_it = |(magic, ..): &&(&[u8], &str, &str)| first.starts_with(magic);
    let (_, what, help) = KINDS.iter().find(is_it)?;
    Some(format!("it is {what}; {help}"))
}
