//! Partition types of MBR and GPT, with the names of fdisk(8).
//!
//! Input: the type in a partition's entry, or a word for it. Output: its name; the type. Invariants: an unknown type is shown as its
//! number; a word means the same purpose in both tables. Limits: only the types that are common next to Linux have names.
//! Source: UEFI specification 5.2.2 and 5.3.3, the Discoverable Partitions Specification.

use super::TableKind;
use std::fmt;

/// The type of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionKind {
    /// The GUID in a GPT entry, in the byte order of the entry.
    Gpt([u8; 16]),
    /// The number in an MBR entry.
    Mbr(u8),
}

/// The GUID of a type of GPT, its name, and the word for it of systemd-repart(8) or sfdisk(8), if it has one.
const GPT: [(&str, &str, &str); 27] = [
    (
        "0fc63daf-8483-4772-8e79-3d69d8477de4",
        "Linux filesystem",
        "linux",
    ),
    (
        "44479540-f297-41b2-9af7-d131d5f0458a",
        "Linux root (x86)",
        "root-x86",
    ),
    (
        "4f68bce3-e8cd-4db1-96e7-fbcaf984b709",
        "Linux root (x86-64)",
        "root-x86-64",
    ),
    (
        "69dad710-2ce4-4e3c-b16c-21a1d49abed3",
        "Linux root (ARM)",
        "root-arm",
    ),
    (
        "b921b045-1df0-41c3-af44-4c6f280d3fae",
        "Linux root (ARM-64)",
        "root-arm64",
    ),
    (
        "72ec70a6-cf74-40e6-bd49-4bda08e8f224",
        "Linux root (RISC-V-64)",
        "root-riscv64",
    ),
    (
        "2c7357ed-ebd2-46d9-aec1-23d437ec2bf5",
        "Linux root verity (x86-64)",
        "root-x86-64-verity",
    ),
    (
        "df3300ce-d69f-4c92-978c-9bfb0f38d820",
        "Linux root verity (ARM-64)",
        "root-arm64-verity",
    ),
    (
        "8484680c-9521-48c6-9c11-b0720656f69e",
        "Linux /usr (x86-64)",
        "usr-x86-64",
    ),
    (
        "b0e01050-ee5f-4390-949a-9101b17104e9",
        "Linux /usr (ARM-64)",
        "usr-arm64",
    ),
    (
        "77ff5f63-e7b6-4633-acf4-1565b864c0e6",
        "Linux /usr verity (x86-64)",
        "usr-x86-64-verity",
    ),
    (
        "6e11a4e7-fbca-4ded-b9e9-e1a512bb664e",
        "Linux /usr verity (ARM-64)",
        "usr-arm64-verity",
    ),
    ("933ac7e1-2eb4-4f13-b844-0e14e2aef915", "Linux home", "home"),
    (
        "3b8f8425-20e0-4f3b-907f-1a25a76f98e8",
        "Linux server data",
        "srv",
    ),
    (
        "4d21b016-b534-45c2-a9fb-5c16e091fd2d",
        "Linux variable data",
        "var",
    ),
    (
        "7ec6f557-3bc5-4aca-b293-16ef5df639d1",
        "Linux temporary data",
        "tmp",
    ),
    (
        "bc13c2ff-59e6-4262-a352-b275fd6f7172",
        "Linux extended boot",
        "xbootldr",
    ),
    ("e6d6d379-f507-44c2-a23c-238f2a3df928", "Linux LVM", "lvm"),
    ("a19d880f-05fc-4d3b-a006-743f0f84911e", "Linux RAID", "raid"),
    ("0657fd6d-a4ab-43c4-84e5-0933c84b4f4f", "Linux swap", "swap"),
    ("c12a7328-f81f-11d2-ba4b-00a0c93ec93b", "EFI System", "esp"),
    ("21686148-6449-6e6f-744e-656564454649", "BIOS boot", "bios"),
    (
        "ebd0a0a2-b9e5-4433-87c0-68b6b72699c7",
        "Microsoft basic data",
        "basic",
    ),
    (
        "9e1a2d38-c612-4316-aa26-8b49521e5a8b",
        "PowerPC PReP boot",
        "prep",
    ),
    (
        "e3c9e316-0b5c-4db8-817d-f92df00215ae",
        "Microsoft reserved",
        "",
    ),
    ("516e7cb4-6ecf-11d6-8ff8-00022d09712b", "FreeBSD data", ""),
    ("8da63339-0007-60c0-c436-083ac8230908", "Linux reserved", ""),
];

/// The number of a type of MBR, its name, and the word for it, if it has one.
const MBR: [(u8, &str, &str); 19] = [
    (0x83, "Linux", "linux"),
    (0x82, "Linux swap", "swap"),
    (0x85, "extended", ""),
    (0x8e, "Linux LVM", "lvm"),
    (0xfd, "Linux RAID", "raid"),
    (0x01, "FAT12", ""),
    (0x04, "FAT16", ""),
    (0x06, "FAT16", "fat16"),
    (0x0e, "FAT16", ""),
    (0x0b, "FAT32", ""),
    (0x0c, "FAT32", "fat32"),
    (0x07, "NTFS or exFAT", "ntfs"),
    (0x05, "extended", ""),
    (0x0f, "extended", ""),
    (0x41, "PowerPC PReP boot", "prep"),
    (0xa5, "FreeBSD", ""),
    (0xea, "Linux extended boot", "xbootldr"),
    (0xee, "GPT", ""),
    (0xef, "EFI", "esp"),
];

impl PartitionKind {
    /// Whether it holds logical partitions.
    pub(super) const fn is_extended(self) -> bool {
        matches!(self, PartitionKind::Mbr(kind) if super::mbr::is_extended(kind))
    }

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

    /// The type that a word means in this table: a name as systemd-repart(8) has them, a GUID, or a number as `0x83`.
    ///
    /// # Errors
    /// A sentence that lists the words.
    pub fn parse(word: &str, table: TableKind) -> Result<PartitionKind, String> {
        let known = |found: &str| !word.is_empty() && found == word;
        let found = match table {
            TableKind::Gpt => {
                let row = GPT.iter().find(|k| known(k.2));
                guid(row.map_or(word, |k| k.0)).map(PartitionKind::Gpt)
            }
            TableKind::Mbr => {
                let row = MBR.iter().find(|k| known(k.2)).map(|k| k.0);
                row.or_else(|| number(word)).map(PartitionKind::Mbr)
            }
        };
        let unused = [PartitionKind::Gpt([0; 16]), PartitionKind::Mbr(0)];
        found
            .filter(|kind| !unused.contains(kind))
            .ok_or_else(|| no_type(word, table))
    }

    /// The GUID or the number, as text.
    #[must_use]
    pub fn code(self) -> String {
        match self {
            PartitionKind::Gpt(guid) => text(guid),
            PartitionKind::Mbr(number) => format!("{number:#04x}"),
        }
    }

    fn name(self) -> Option<&'static str> {
        match self {
            PartitionKind::Gpt(guid) => {
                let text = text(guid);
                GPT.iter().find(|k| k.0 == text).map(|k| k.1)
            }
            PartitionKind::Mbr(number) => MBR.iter().find(|k| k.0 == number).map(|k| k.1),
        }
    }
}

impl fmt::Display for PartitionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "type {}", self.code()),
        }
    }
}

fn no_type(word: &str, table: TableKind) -> String {
    let (words, number): (Vec<&str>, _) = match table {
        TableKind::Gpt => (GPT.iter().map(|k| k.2).collect(), "a GUID"),
        TableKind::Mbr => (
            MBR.iter().map(|k| k.2).collect(),
            "a number from 0x01 to 0xff",
        ),
    };
    let words: Vec<&str> = words.into_iter().filter(|w| !w.is_empty()).collect();
    let words = words.join(", ");
    format!("{word:?} is no type of a partition in a {table}: that is {number}, or one of {words}")
}

/// `0x83`, with one or two digits.
fn number(word: &str) -> Option<u8> {
    let digits = word.strip_prefix("0x")?;
    let plain = digits.bytes().all(|b| b.is_ascii_hexdigit());
    u8::from_str_radix(digits, 16).ok().filter(|_| plain)
}

/// Where the bytes of a GUID's text are in an entry: its first three parts are little-endian numbers.
const ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];

/// From the order of the text to that of an entry, and back.
pub(super) fn swapped(guid: [u8; 16]) -> [u8; 16] {
    ORDER.map(|at| guid[at])
}

/// The GUID as text.
fn text(guid: [u8; 16]) -> String {
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
    let bytes = swapped(guid);
    let parts = [0..4, 4..6, 6..8, 8..10, 10..16];
    parts.map(|part| hex(&bytes[part])).join("-")
}

/// The GUID of a text, in the order of an entry.
fn guid(text: &str) -> Option<[u8; 16]> {
    let dash = |n| matches!(n, 8 | 13 | 18 | 23);
    let shape =
        |(n, byte): (usize, u8)| dash(n) == (byte == b'-') && (dash(n) || byte.is_ascii_hexdigit());
    if text.len() != 36 || !text.bytes().enumerate().all(shape) {
        return None;
    }
    let hex = text.replace('-', "");
    let mut bytes = [0; 16];
    for (n, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).ok()?;
    }
    Some(swapped(bytes))
}
