//! Coded fields of an inode: file type, attribute flags, device numbers, and the kind of map.
//! Input: words of a parsed inode. Output: closed enums and typed bits. Invariant: a code that is not listed here has no name
//! and no effect. Source: the kernel's ext4 documentation, "index nodes"; man 1 chattr, man 1 lsattr (letters).

use crate::le::{le32, u8_at};
use crate::types::Ino;

use super::{I_BLOCK_SIZE, Inode};

/// The bit of a mode for a program that runs as its owner.
pub const SETUID: u16 = 0o4000;
/// The bit of a mode for a program that runs as its group; of a directory: what is made in it gets its group.
pub const SETGID: u16 = 0o2000;
/// The bit of a mode for a program that its group may execute.
pub const GROUP_EXECUTES: u16 = 0o0010;

/// The file type of an inode or directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileType {
    /// A named pipe.
    Fifo,
    /// A character device.
    CharDevice,
    /// A directory.
    Directory,
    /// A block device.
    BlockDevice,
    /// A regular file.
    Regular,
    /// A symbolic link.
    Symlink,
    /// A socket.
    Socket,
}

impl FileType {
    /// From the top four bits of a mode.
    #[must_use]
    pub const fn from_mode(mode: u16) -> Option<Self> {
        match mode >> 12 {
            0x1 => Some(Self::Fifo),
            0x2 => Some(Self::CharDevice),
            0x4 => Some(Self::Directory),
            0x6 => Some(Self::BlockDevice),
            0x8 => Some(Self::Regular),
            0xA => Some(Self::Symlink),
            0xC => Some(Self::Socket),
            _ => None,
        }
    }

    /// The top four bits of a mode.
    #[must_use]
    pub const fn to_mode(self) -> u16 {
        match self {
            Self::Fifo => 0x1000,
            Self::CharDevice => 0x2000,
            Self::Directory => 0x4000,
            Self::BlockDevice => 0x6000,
            Self::Regular => 0x8000,
            Self::Symlink => 0xA000,
            Self::Socket => 0xC000,
        }
    }

    /// The type byte of a directory entry.
    #[must_use]
    pub const fn to_dirent(self) -> u8 {
        match self {
            Self::Regular => 1,
            Self::Directory => 2,
            Self::CharDevice => 3,
            Self::BlockDevice => 4,
            Self::Fifo => 5,
            Self::Socket => 6,
            Self::Symlink => 7,
        }
    }

    /// From the type byte of a directory entry; `None` for 0 (not stored) and unknown codes.
    #[must_use]
    pub const fn from_dirent(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Regular),
            2 => Some(Self::Directory),
            3 => Some(Self::CharDevice),
            4 => Some(Self::BlockDevice),
            5 => Some(Self::Fifo),
            6 => Some(Self::Socket),
            7 => Some(Self::Symlink),
            _ => None,
        }
    }
}

macro_rules! flags {
    ($($name:ident = $value:literal, $letter:literal, $what:literal;)*) => {
        impl InodeFlags {
            $(#[doc = $what] pub const $name: Self = Self($value);)*
        }
        /// (bit, letter of lsattr or NUL)
        const LETTERS: &[(u32, char)] = &[$(($value, $letter)),*];
    };
}

/// Attribute bits of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct InodeFlags(u32);

flags! {
    SECRM = 0x1, 's', "Overwrite when deleted (not done by anyone).";
    UNRM = 0x2, 'u', "Keep when deleted (not done by anyone).";
    SYNC = 0x8, 'S', "Write synchronously.";
    DIRSYNC = 0x1_0000, 'D', "Directory: write synchronously.";
    IMMUTABLE = 0x10, 'i', "May not be changed.";
    APPEND = 0x20, 'a', "May only be appended to.";
    NODUMP = 0x40, 'd', "Not for backup by dump.";
    NOATIME = 0x80, 'A', "Access time is not kept.";
    COMPR = 0x4, 'c', "Compress (not done by anyone).";
    COMPRBLK = 0x200, '\0', "Has compressed blocks (not done by anyone).";
    DIRTY = 0x100, '\0', "Compressed and dirty (not done by anyone).";
    ENCRYPT = 0x800, 'E', "Encrypted.";
    JOURNAL_DATA = 0x4000, 'j', "Data go through the journal.";
    INDEX = 0x1000, 'I', "Hashed directory.";
    NOTAIL = 0x8000, 't', "No tail merging (not used).";
    TOPDIR = 0x2_0000, 'T', "Top of a hierarchy, for the allocator.";
    EXTENTS = 0x8_0000, 'e', "Mapped by an extent tree.";
    NOCOW = 0x80_0000, 'C', "No copy-on-write (not used).";
    DAX = 0x200_0000, 'x', "Direct access.";
    CASEFOLD = 0x4000_0000, 'F', "Directory that ignores case.";
    INLINE_DATA = 0x1000_0000, 'N', "Data are in the inode.";
    PROJINHERIT = 0x2000_0000, 'P', "New files get this directory's project.";
    VERITY = 0x10_0000, 'V', "Protected by a Merkle tree; read-only.";
    NOCOMPR = 0x400, 'm', "Do not compress (not used).";
    IMAGIC = 0x2000, '\0', "AFS directory.";
    HUGE_FILE = 0x4_0000, '\0', "The block count is in blocks.";
    EA_INODE = 0x20_0000, '\0', "Holds the value of an extended attribute.";
    EOFBLOCKS = 0x40_0000, '\0', "Blocks allocated past the end (old).";
    SNAPFILE = 0x100_0000, '\0', "Snapshot (next3).";
}

impl InodeFlags {
    /// The bits as stored.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The bits as stored.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether every bit of `other` is set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These bits and those of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These bits without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The letters of lsattr, a dash for each that is not set.
    #[must_use]
    pub fn letters(self) -> String {
        LETTERS
            .iter()
            .filter(|(_, l)| *l != '\0')
            .map(|(bit, l)| if self.0 & bit != 0 { *l } else { '-' })
            .collect()
    }
}

/// How to find an inode's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MapKind {
    /// An extent tree with its root in `i_block`.
    Extents,
    /// Block pointers in `i_block`, the last three indirect.
    Indirect,
    /// Data in `i_block` and the attribute `system.data`.
    Inline,
    /// The target of the symbolic link is in `i_block`.
    FastSymlink,
    /// A device number is in `i_block`.
    Device,
    /// No data: a pipe, a socket, or a free inode.
    None,
}

impl MapKind {
    pub(super) fn of(inode: &Inode) -> Self {
        match inode.file_type {
            Some(FileType::CharDevice | FileType::BlockDevice) => Self::Device,
            Some(FileType::Fifo | FileType::Socket) => Self::None,
            None if inode.ino != Ino::BAD_BLOCKS && inode.links == 0 => Self::None,
            _ if inode.flags.has(InodeFlags::INLINE_DATA) => Self::Inline,
            _ if inode.flags.has(InodeFlags::EXTENTS) => Self::Extents,
            // A target of 60 bytes or more never fits with its NUL; a shorter one, encrypted or not, is always stored in the
            // inode.
            Some(FileType::Symlink) if inode.size < 60 => Self::FastSymlink,
            _ => Self::Indirect,
        }
    }
}

/// A device number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rdev {
    /// Major number, 12 bits.
    pub major: u32,
    /// Minor number, 20 bits.
    pub minor: u32,
}

impl Rdev {
    /// The first word of `i_block` is the old form, 8 and 8 bits; if it is zero, the second word is the new form, with the
    /// minor's upper 12 bits above the major.
    #[must_use]
    pub fn decode(i_block: &[u8; I_BLOCK_SIZE]) -> Self {
        let old = le32(i_block, 0);
        if old != 0 {
            return Self {
                major: u32::from(u8_at(i_block, 1)),
                minor: u32::from(u8_at(i_block, 0)),
            };
        }
        let new = le32(i_block, 4);
        Self {
            major: (new >> 8) & 0xFFF,
            minor: (new & 0xFF) | ((new >> 12) & 0xF_FF00),
        }
    }
}
