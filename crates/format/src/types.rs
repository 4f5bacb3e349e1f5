//! One newtype per number space, so that an inode number is never used as a block number.
//! Input: numbers of a parser or a caller. Output: the same numbers, typed. Invariant: a value of one space converts into
//! another only through the superblock's geometry. Limit: the range depends on the volume, so it is checked by
//! [`crate::Superblock`] (`check_ino`, `check_block`, `check_group`), through which every parser here passes a number before
//! returning it.

use core::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name($inner);

        impl $name {
            /// Wraps the plain number.
            #[must_use]
            pub const fn new(value: $inner) -> Self {
                Self(value)
            }

            /// The plain number.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }

            /// The number plus `by`, or `None` past the end of the integer.
            #[must_use]
            pub const fn checked_add(self, by: $inner) -> Option<Self> {
                match self.0.checked_add(by) {
                    Some(v) => Some(Self(v)),
                    None => None,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

number!(
    /// An inode number. 1 is the first; 0 means "none" on disk.
    Ino(u32), "ino "
);
number!(
    /// A logical block of a file, in units of the volume's block size, from 0.
    FileBlock(u64), "file block "
);
number!(
    /// A physical block of the volume, in units of its block size, from the start of the device. 0 means "none" in every
    /// pointer of the format.
    FsBlock(u64), "block "
);
number!(
    /// A block group, from 0.
    GroupNo(u32), "group "
);
number!(
    /// A journal transaction's number; it wraps around, so compare with [`Tid::is_after`].
    Tid(u32), "tid "
);
number!(
    /// A byte offset from the start of the device.
    DevByte(u64), "byte "
);

impl Ino {
    /// The bad-blocks list.
    pub const BAD_BLOCKS: Self = Self::new(1);
    /// The root directory.
    pub const ROOT: Self = Self::new(2);
    /// The user quota file, if the quota feature names no other.
    pub const USER_QUOTA: Self = Self::new(3);
    /// The group quota file, if the quota feature names no other.
    pub const GROUP_QUOTA: Self = Self::new(4);
    /// The boot loader.
    pub const BOOT_LOADER: Self = Self::new(5);
    /// The reserved group descriptors (`resize_inode`).
    pub const RESIZE: Self = Self::new(7);
    /// The journal, if the superblock names no other.
    pub const JOURNAL: Self = Self::new(8);

    /// Whether this is the "no inode" value, 0.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl FileBlock {
    /// The highest block that an extent tree can address (source: the kernel's ext4 documentation, "blockmap":
    /// 32-bit logical block numbers; the last value is reserved as an end marker).
    pub const MAX: Self = Self::new(0xFFFF_FFFE);
}

impl FsBlock {
    /// The "no block" value of on-disk pointers.
    pub const NONE: Self = Self::new(0);

    /// Whether this is the "no block" value, 0.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl Tid {
    /// Whether `self` comes after `other`, by signed distance, because the journal's numbers wrap.
    #[must_use]
    pub const fn is_after(self, other: Self) -> bool {
        let d = self.0.wrapping_sub(other.0);
        d != 0 && d < 0x8000_0000
    }
}

/// Where a structure was found, for error messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// Inside the inode's own bytes.
    Inode,
    /// In this block of the volume.
    Block(FsBlock),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inode => f.write_str("in the inode itself"),
            Self::Block(b) => write!(f, "in block {b}"),
        }
    }
}
