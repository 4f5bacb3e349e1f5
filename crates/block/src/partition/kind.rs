//! Partition types of MBR and GPT, with the names of fdisk(8).
//!
//! Input: the type in a partition's entry. Output: its name. Invariant: an unknown type is shown as its number. Limits: only
//! the types that are common next to Linux.
//! Source: UEFI specification 5.2.2 and 5.3.3, the Discoverable Partitions Specification.

use std::fmt;

/// The type of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionKind {
    /// The GUID in a GPT entry, in the byte order of the entry.
    Gpt([u8; 16]),
    /// The number in an MBR entry.
    Mbr(u8),
}

const GPT: [(&str, &str); 13] = [
    ("0fc63daf-8483-4772-8e79-3d69d8477de4", "Linux filesystem"),
    (
        "4f68bce3-e8cd-4db1-96e7-fbcaf984b709",
        "Linux root (x86-64)",
    ),
    (
        "b921b045-1df0-41c3-af44-4c6f280d3fae",
        "Linux root (ARM-64)",
    ),
    ("933ac7e1-2eb4-4f13-b844-0e14e2aef915", "Linux home"),
    (
        "bc13c2ff-59e6-4262-a352-b275fd6f7172",
        "Linux extended boot",
    ),
    ("e6d6d379-f507-44c2-a23c-238f2a3df928", "Linux LVM"),
    ("a19d880f-05fc-4d3b-a006-743f0f84911e", "Linux RAID"),
    ("0657fd6d-a4ab-43c4-84e5-0933c84b4f4f", "Linux swap"),
    ("c12a7328-f81f-11d2-ba4b-00a0c93ec93b", "EFI System"),
    ("21686148-6449-6e6f-744e-656564454649", "BIOS boot"),
    (
        "ebd0a0a2-b9e5-4433-87c0-68b6b72699c7",
        "Microsoft basic data",
    ),
    ("e3c9e316-0b5c-4db8-817d-f92df00215ae", "Microsoft reserved"),
    ("516e7cb4-6ecf-11d6-8ff8-00022d09712b", "FreeBSD data"),
];

const MBR: [(u8, &str); 17] = [
    (0x83, "Linux"),
    (0x82, "Linux swap"),
    (0x85, "extended"),
    (0x8e, "Linux LVM"),
    (0xfd, "Linux RAID"),
    (0x01, "FAT12"),
    (0x04, "FAT16"),
    (0x06, "FAT16"),
    (0x0e, "FAT16"),
    (0x0b, "FAT32"),
    (0x0c, "FAT32"),
    (0x07, "NTFS or exFAT"),
    (0x05, "extended"),
    (0x0f, "extended"),
    (0xa5, "FreeBSD"),
    (0xee, "GPT"),
    (0xef, "EFI"),
];

impl PartitionKind {
    /// Whether Linux uses this type for its own file systems.
    #[must_use]
    pub fn is_linux(self) -> bool {
        match self {
            PartitionKind::Mbr(number) => number == 0x83,
            PartitionKind::Gpt(_) => {
                let name = self.name().unwrap_or_default();
                ["Linux filesystem", "Linux home"].contains(&name) || name.starts_with("Linux root")
            }
        }
    }

    fn name(self) -> Option<&'static str> {
        match self {
            PartitionKind::Gpt(guid) => {
                let text = text(guid);
                GPT.iter().find(|(known, _)| *known == text).map(|k| k.1)
            }
            PartitionKind::Mbr(number) => MBR.iter().find(|k| k.0 == number).map(|k| k.1),
        }
    }
}

impl fmt::Display for PartitionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self) {
            (Some(name), _) => f.write_str(name),
            (None, PartitionKind::Gpt(guid)) => write!(f, "type {}", text(*guid)),
            (None, PartitionKind::Mbr(number)) => write!(f, "type {number:#04x}"),
        }
    }
}

/// The GUID as text: its first three parts are little-endian numbers.
fn text(guid: [u8; 16]) -> String {
    let parts = [
        &[3, 2, 1, 0][..],
        &[5, 4],
        &[7, 6],
        &[8, 9],
        &[10, 11, 12, 13, 14, 15],
    ];
    let hex = |part: &&[usize]| -> String {
        part.iter().map(|at| format!("{:02x}", guid[*at])).collect()
    };
    parts.iter().map(hex).collect::<Vec<_>>().join("-")
}
