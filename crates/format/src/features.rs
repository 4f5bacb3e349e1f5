//! Feature bits: their names as `dumpe2fs` prints them, and which access they allow.
//! Input: the three feature words of a superblock. Output: success, or `Unsupported` with every bit that prevents the access.
//! Invariant: an unknown incompat bit refuses every access, an unknown ro_compat bit refuses writing, an unknown compat bit
//! refuses nothing; that is the format's contract (man 5 ext4; the kernel's ext4 documentation). Limit: "partial" features
//! refuse single files, not the volume; the engine does that at the file.

use crate::error::Unsupported;

mod table;
#[cfg(test)]
mod tests;

pub use table::{FeatureVerdict, Set, Verdict, verdicts};

/// The access that a caller wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Read only.
    Read,
    /// Change the volume.
    Write,
}

macro_rules! bits {
    ($(#[$doc:meta])* $name:ident, $set:expr, $letter:literal; $($bit:ident = $value:literal, $what:literal;)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(u32);

        impl $name {
            $(#[doc = $what] pub const $bit: Self = Self($value);)*

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

            /// Whether every bit of `other` is set here.
            #[must_use]
            pub const fn has(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// These bits and those of `other`.
            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// These bits but those of `other`.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }

            /// The set bits' names, lowest first; an unknown bit has the name that `dumpe2fs` gives it.
            #[must_use]
            pub fn names(self) -> Vec<String> {
                names($set, self.0, $letter)
            }
        }
    };
}

bits! {
    /// Features that a driver may ignore.
    Compat, Set::Compat, 'C';
    DIR_PREALLOC = 0x1, "Blocks set aside for directories (a hint).";
    IMAGIC_INODES = 0x2, "AFS magic inodes.";
    HAS_JOURNAL = 0x4, "The volume has a journal.";
    EXT_ATTR = 0x8, "Extended attributes.";
    RESIZE_INODE = 0x10, "Blocks set aside for growing the descriptors, in inode 7.";
    DIR_INDEX = 0x20, "Hashed directories.";
    LAZY_BG = 0x40, "Uninitialised groups, an early experiment.";
    EXCLUDE_INODE = 0x80, "Snapshot exclusion (next3).";
    EXCLUDE_BITMAP = 0x100, "Snapshot exclusion bitmaps (next3).";
    SPARSE_SUPER2 = 0x200, "At most two superblock backups, in groups that the superblock names.";
    FAST_COMMIT = 0x400, "The journal has an area for fast commits.";
    STABLE_INODES = 0x800, "Inode numbers and the UUID may never change.";
    ORPHAN_FILE = 0x1000, "Orphans are kept in a file instead of a list.";
}

bits! {
    /// Features without which a driver may not open a volume at all.
    Incompat, Set::Incompat, 'I';
    COMPRESSION = 0x1, "Compressed files, never finished.";
    FILETYPE = 0x2, "Directory entries hold the file type.";
    RECOVER = 0x4, "The journal must be replayed.";
    JOURNAL_DEV = 0x8, "This is an external journal, not a file system.";
    META_BG = 0x10, "Descriptors are spread over meta block groups.";
    EXTENTS = 0x40, "Extent trees.";
    BIT64 = 0x80, "Block numbers of more than 32 bits.";
    MMP = 0x100, "Multiple-mount protection.";
    FLEX_BG = 0x200, "Bitmaps and inode tables may lie outside their group.";
    EA_INODE = 0x400, "Attribute values in inodes of their own.";
    DIRDATA = 0x1000, "Data in directory entries (Lustre).";
    CSUM_SEED = 0x2000, "The checksum seed is stored, not made from the UUID.";
    LARGE_DIR = 0x4000, "Directories above 2 GiB, hash trees of three levels.";
    INLINE_DATA = 0x8000, "Small files inside the inode.";
    ENCRYPT = 0x10000, "Encrypted files.";
    CASEFOLD = 0x20000, "Directories that ignore case.";
}

bits! {
    /// Features without which a driver may only read.
    RoCompat, Set::RoCompat, 'R';
    SPARSE_SUPER = 0x1, "Superblock backups only in groups 0, 1 and powers of 3, 5, 7.";
    LARGE_FILE = 0x2, "Files above 2 GiB.";
    BTREE_DIR = 0x4, "Never used.";
    HUGE_FILE = 0x8, "File block counts of more than 32 bits.";
    GDT_CSUM = 0x10, "crc16 in descriptors, uninitialised groups.";
    DIR_NLINK = 0x20, "Directories with more than 65,000 subdirectories.";
    EXTRA_ISIZE = 0x40, "A guaranteed size of the inode's extra fields.";
    HAS_SNAPSHOT = 0x80, "Snapshots (next3).";
    QUOTA = 0x100, "Quota files kept as metadata.";
    BIGALLOC = 0x200, "Space is allocated in clusters of blocks.";
    METADATA_CSUM = 0x400, "crc32c in all metadata.";
    REPLICA = 0x800, "Never used.";
    READONLY = 0x1000, "May not be written by anyone.";
    PROJECT = 0x2000, "Project quotas.";
    SHARED_BLOCKS = 0x4000, "Files share blocks (Android).";
    VERITY = 0x8000, "Files with a Merkle tree.";
    ORPHAN_PRESENT = 0x10000, "The orphan file is not empty.";
}

/// The three feature words of a superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Features {
    /// May be ignored.
    pub compat: Compat,
    /// Must be known to open.
    pub incompat: Incompat,
    /// Must be known to write.
    pub ro_compat: RoCompat,
}

impl Features {
    /// Whether a volume with these features may be opened for `access`.
    ///
    /// # Errors
    /// [`Unsupported`] with every feature that prevents the access, and whether reading is possible.
    pub fn check(&self, access: Access) -> Result<(), Unsupported> {
        let mut refused = self.refused(access);
        let Some(first) = refused.first().map(|(_, help)| *help) else {
            return Ok(());
        };
        let names: Vec<String> = refused.drain(..).map(|(name, _)| name).collect();
        let read_only_would_do = access == Access::Write && self.refused(Access::Read).is_empty();
        Err(Unsupported {
            feature: names.join(" "),
            read_only_would_do,
            help: first,
        })
    }

    /// All names in the order of `dumpe2fs`: compat, incompat, ro_compat.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut all = self.compat.names();
        all.extend(self.incompat.names());
        all.extend(self.ro_compat.names());
        all
    }

    /// Whether metadata carries crc32c sums.
    #[must_use]
    pub const fn metadata_csum(&self) -> bool {
        self.ro_compat.has(RoCompat::METADATA_CSUM)
    }

    /// Whether group descriptors have checksums, and so may leave bitmaps and tables unwritten.
    #[must_use]
    pub const fn descriptor_sums(&self) -> bool {
        self.metadata_csum() || self.ro_compat.has(RoCompat::GDT_CSUM)
    }

    fn refused(&self, access: Access) -> Vec<(String, &'static str)> {
        let mut out = Vec::new();
        for (set, bits, letter) in self.words() {
            for bit in (0..32)
                .filter_map(|n| 1u32.checked_shl(n))
                .filter(|b| bits & b != 0)
            {
                if let Some(help) = refusal(set, bit, access) {
                    out.push((name(set, bit, letter), help));
                }
            }
        }
        out
    }

    const fn words(&self) -> [(Set, u32, char); 3] {
        [
            (Set::Compat, self.compat.0, 'C'),
            (Set::Incompat, self.incompat.0, 'I'),
            (Set::RoCompat, self.ro_compat.0, 'R'),
        ]
    }
}

/// Why this bit prevents the access, or `None` if it does not.
fn refusal(set: Set, bit: u32, access: Access) -> Option<&'static str> {
    let Some(row) = table::find(set, bit) else {
        let refused = matches!(
            (set, access),
            (Set::Incompat, _) | (Set::RoCompat, Access::Write)
        );
        return refused.then_some("this bit is newer than this program");
    };
    let verdict = if access == Access::Read {
        row.read
    } else {
        row.write
    };
    (verdict == Verdict::Refused).then_some(row.help)
}

fn names(set: Set, bits: u32, letter: char) -> Vec<String> {
    (0..32)
        .filter_map(|n| 1u32.checked_shl(n))
        .filter(|b| bits & b != 0)
        .map(|b| name(set, b, letter))
        .collect()
}

fn name(set: Set, bit: u32, letter: char) -> String {
    table::find(set, bit).map_or_else(
        || format!("FEATURE_{letter}{}", bit.trailing_zeros()),
        |row| row.name.to_owned(),
    )
}
