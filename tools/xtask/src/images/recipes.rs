//! What it is: the table of images.
//! Input: none. Output: one [`Recipe`] for each combination of options that changes the layout on disk.
//! Each entry names only what differs from current defaults of `mke2fs -t ext4`.
//! Limit: sizes are those of the sparse file; an image occupies only what its filling needs.

/// How names are hashed in indexed directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash {
    /// The name that tune2fs knows: `legacy`, `half_md4`, `tea`.
    pub name: &'static str,
    /// True if bytes from 0x80 up are hashed as negative numbers, as on x86.
    pub signed: bool,
}

/// How much is put into an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// The whole tree, and as root the kernel's part.
    Whole,
    /// The whole tree, the kernel's part, and as root a directory whose index has three levels.
    Tower,
    /// A few small files: for images that test their geometry or a feature bit.
    Few,
    /// As `Few`, and never opened for writing after mke2fs, because with mmp tools wait long before they do that.
    Bare,
}

/// One image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recipe {
    /// The name, also of the files.
    pub name: &'static str,
    /// What it tests.
    pub about: &'static str,
    /// The size of the file in MiB.
    pub mib: u64,
    /// Bytes per block.
    pub block: u32,
    /// Bytes per cluster; equal to `block` without bigalloc.
    pub cluster: u32,
    /// Bytes per inode.
    pub inode: u32,
    /// Arguments of mke2fs besides `-b`, `-I`, `-C` and the size.
    pub args: &'static [&'static str],
    /// The filling.
    pub fill: Fill,
    /// The hash, if it is not the default.
    pub hash: Option<Hash>,
    /// True if `e2fsck -D` may index its directories.
    pub index: bool,
}

impl Recipe {
    /// Finds a recipe by its name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        RECIPES.iter().find(|recipe| recipe.name == name)
    }

    /// True if a kernel with pages of 4 KiB can mount it.
    #[must_use]
    pub fn mountable(&self) -> bool {
        self.block <= 4096
    }

    /// True if it gets more than a few small files.
    #[must_use]
    pub fn is_rich(&self) -> bool {
        matches!(self.fill, Fill::Whole | Fill::Tower)
    }

    /// True if one of its arguments (`-O`) contains exactly this word.
    #[must_use]
    pub fn has(&self, feature: &str) -> bool {
        self.args
            .iter()
            .any(|arg| arg.split(',').any(|word| word == feature))
    }

    const fn inode(mut self, bytes: u32) -> Self {
        self.inode = bytes;
        self
    }

    const fn cluster(mut self, bytes: u32) -> Self {
        self.cluster = bytes;
        self
    }

    const fn mib(mut self, mib: u64) -> Self {
        self.mib = mib;
        self
    }

    const fn fill(mut self, fill: Fill) -> Self {
        self.fill = fill;
        self
    }

    const fn hash(mut self, name: &'static str, signed: bool) -> Self {
        self.hash = Some(Hash { name, signed });
        self
    }

    const fn linear(mut self) -> Self {
        self.index = false;
        self
    }
}

/// A recipe of 64 MiB with the whole filling; the methods above change it.
const fn recipe(
    name: &'static str,
    block: u32,
    args: &'static [&'static str],
    about: &'static str,
) -> Recipe {
    Recipe {
        name,
        about,
        mib: 64,
        block,
        cluster: block,
        inode: 256,
        args,
        fill: Fill::Whole,
        hash: None,
        index: true,
    }
}

/// The features that mke2fs enables by default from 2024 on, and that of Debian 12 does not.
const TODAY: &[&str] = &["-t", "ext4", "-O", "metadata_csum_seed,orphan_file"];

/// All images.
pub const RECIPES: &[Recipe] = &[
    recipe(
        "ext2-1k",
        1024,
        &["-t", "ext2"],
        "indirect blocks to depth 3, no journal",
    ),
    recipe("ext2-2k", 2048, &["-t", "ext2"], "indirect blocks"),
    recipe("ext2-4k", 4096, &["-t", "ext2"], "indirect blocks"),
    recipe(
        "ext2-64k",
        65536,
        &["-t", "ext2"],
        "blocks larger than a page",
    )
    .mib(128),
    recipe(
        "ext3-1k",
        1024,
        &["-t", "ext3"],
        "indirect blocks and a journal",
    ),
    recipe(
        "ext3-2k",
        2048,
        &["-t", "ext3"],
        "indirect blocks and a journal",
    ),
    recipe(
        "ext3-4k",
        4096,
        &["-t", "ext3"],
        "indirect blocks and a journal",
    ),
    recipe(
        "ext3-64k",
        65536,
        &["-t", "ext3", "-J", "size=64"],
        "rec_len of directories at its limit",
    )
    .mib(256),
    recipe(
        "ext4-1k",
        1024,
        TODAY,
        "today's defaults, superblock in block 1",
    ),
    recipe("ext4-2k", 2048, TODAY, "today's defaults"),
    recipe("ext4-4k", 4096, TODAY, "today's defaults"),
    recipe(
        "ext4-64k",
        65536,
        &[
            "-t",
            "ext4",
            "-O",
            "metadata_csum_seed,orphan_file",
            "-J",
            "size=64",
        ],
        "today's defaults, blocks larger than a page",
    )
    .mib(256),
    recipe("ext4-1k-inode128", 1024, TODAY, "no extra inode fields").inode(128),
    recipe("ext4-4k-inode128", 4096, TODAY, "no extra inode fields").inode(128),
    recipe(
        "ext4-4k-inode1024",
        4096,
        TODAY,
        "much room for xattrs in the inode",
    )
    .inode(1024),
    recipe(
        "ext4-4k-noseed",
        4096,
        &["-t", "ext4"],
        "checksums seeded by the UUID",
    ),
    recipe(
        "ext4-4k-nocsum",
        4096,
        &["-t", "ext4", "-O", "^metadata_csum,^uninit_bg"],
        "no checksum anywhere",
    ),
    recipe(
        "ext4-1k-gdtcsum",
        1024,
        &["-t", "ext4", "-O", "^metadata_csum,uninit_bg"],
        "crc16 of group descriptors",
    ),
    recipe(
        "ext4-4k-gdtcsum",
        4096,
        &["-t", "ext4", "-O", "^metadata_csum,uninit_bg"],
        "crc16 of group descriptors",
    ),
    recipe(
        "ext4-1k-no64bit",
        1024,
        &["-t", "ext4", "-O", "^64bit"],
        "32-byte group descriptors",
    ),
    recipe(
        "ext4-4k-no64bit",
        4096,
        &["-t", "ext4", "-O", "^64bit"],
        "32-byte group descriptors",
    ),
    recipe(
        "ext4-1k-metabg",
        1024,
        &["-t", "ext4", "-O", "meta_bg,^resize_inode", "-g", "1024"],
        "descriptors spread over 64 groups",
    ),
    recipe(
        "ext4-4k-metabg",
        4096,
        &[
            "-t",
            "ext4",
            "-O",
            "meta_bg,^resize_inode,^64bit",
            "-g",
            "256",
        ],
        "descriptors spread, 32 bytes each",
    ),
    recipe(
        "ext4-1k-groups",
        1024,
        &["-t", "ext4", "-g", "256", "-G", "4"],
        "256 groups of the smallest size, flex_bg of 4",
    ),
    recipe(
        "ext4-1k-noflex",
        1024,
        &["-t", "ext4", "-O", "^flex_bg", "-g", "2048"],
        "bitmaps and tables in their own groups",
    ),
    recipe(
        "ext4-4k-sparse2",
        4096,
        &[
            "-t",
            "ext4",
            "-O",
            "sparse_super2,^resize_inode",
            "-g",
            "2048",
        ],
        "two superblock backups",
    ),
    recipe(
        "ext4-1k-bigalloc",
        1024,
        &["-t", "ext4", "-O", "bigalloc"],
        "clusters of 16 blocks",
    )
    .cluster(16384),
    recipe(
        "ext4-4k-bigalloc16k",
        4096,
        &["-t", "ext4", "-O", "bigalloc"],
        "clusters of 4 blocks",
    )
    .cluster(16384),
    recipe(
        "ext4-4k-bigalloc64k",
        4096,
        &["-t", "ext4", "-O", "bigalloc"],
        "clusters of 16 blocks",
    )
    .cluster(65536)
    .mib(128),
    recipe(
        "ext4-1k-inline",
        1024,
        &["-t", "ext4", "-O", "inline_data"],
        "small files and directories in the inode",
    ),
    recipe(
        "ext4-4k-inline",
        4096,
        &["-t", "ext4", "-O", "inline_data"],
        "small files and directories in the inode",
    ),
    recipe(
        "ext4-1k-eainode",
        1024,
        &["-t", "ext4", "-O", "ea_inode"],
        "xattr values in inodes of their own",
    ),
    recipe(
        "ext4-4k-eainode",
        4096,
        &["-t", "ext4", "-O", "ea_inode"],
        "xattr values in inodes of their own",
    ),
    recipe(
        "ext4-1k-largedir",
        1024,
        &["-t", "ext4", "-O", "large_dir"],
        "an index of three levels (as root)",
    )
    .fill(Fill::Tower)
    .mib(96),
    recipe(
        "ext4-4k-nojournal",
        4096,
        &["-t", "ext4", "-O", "^has_journal"],
        "no journal",
    ),
    recipe(
        "ext4-1k-noextents",
        1024,
        &["-t", "ext4", "-O", "^extent,^64bit"],
        "ext4 with indirect blocks",
    ),
    recipe(
        "ext4-4k-noextents",
        4096,
        &["-t", "ext4", "-O", "^extent,^64bit"],
        "ext4 with indirect blocks",
    ),
    recipe(
        "ext4-4k-noindex",
        4096,
        &["-t", "ext4", "-O", "^dir_index"],
        "linear directories only",
    )
    .linear(),
    recipe(
        "ext4-4k-nofiletype",
        4096,
        &["-t", "ext4", "-O", "^filetype"],
        "no type in directory entries",
    ),
    recipe("ext4-1k-hash-legacy", 1024, TODAY, "legacy hash").hash("legacy", true),
    recipe(
        "ext4-1k-hash-legacy-unsigned",
        1024,
        TODAY,
        "legacy hash, unsigned",
    )
    .hash("legacy", false),
    recipe(
        "ext4-1k-hash-md4-unsigned",
        1024,
        TODAY,
        "half_md4 hash, unsigned",
    )
    .hash("half_md4", false),
    recipe("ext4-1k-hash-tea", 1024, TODAY, "tea hash").hash("tea", true),
    recipe(
        "ext4-1k-hash-tea-unsigned",
        1024,
        TODAY,
        "tea hash, unsigned",
    )
    .hash("tea", false),
    recipe(
        "ext4-4k-1tib",
        4096,
        &[
            "-t",
            "ext4",
            "-O",
            "metadata_csum_seed,orphan_file",
            "-J",
            "size=4",
        ],
        "8192 groups",
    )
    .mib(1 << 20)
    .fill(Fill::Few),
    recipe(
        "ext4-4k-16tib",
        4096,
        &["-t", "ext4", "-J", "size=4", "-G", "256", "-i", "4194304"],
        "a file near the largest of most hosts, blocks near 2^32",
    )
    .mib((16 << 20) - 64)
    .fill(Fill::Few),
    recipe(
        "feature-quota",
        4096,
        &["-t", "ext4", "-O", "quota"],
        "quota files",
    )
    .fill(Fill::Few),
    recipe(
        "feature-project",
        4096,
        &[
            "-t",
            "ext4",
            "-O",
            "project,quota",
            "-E",
            "quotatype=prjquota",
        ],
        "project quota",
    )
    .fill(Fill::Few),
    recipe(
        "feature-mmp",
        4096,
        &["-t", "ext4", "-O", "mmp"],
        "a block against double mounts",
    )
    .fill(Fill::Bare),
    recipe(
        "feature-casefold",
        4096,
        &["-t", "ext4", "-O", "casefold", "-E", "encoding=utf8"],
        "names without case",
    )
    .fill(Fill::Few),
    recipe(
        "feature-encrypt",
        4096,
        &["-t", "ext4", "-O", "encrypt"],
        "the bit alone, nothing encrypted",
    )
    .fill(Fill::Few),
    recipe(
        "feature-verity",
        4096,
        &["-t", "ext4", "-O", "verity"],
        "the bit alone, nothing sealed",
    )
    .fill(Fill::Few),
    recipe(
        "feature-stable-inodes",
        4096,
        &["-t", "ext4", "-O", "stable_inodes"],
        "the bit",
    )
    .fill(Fill::Few),
    recipe(
        "feature-fast-commit",
        4096,
        &["-t", "ext4", "-O", "fast_commit"],
        "a journal with a fast-commit area",
    )
    .fill(Fill::Few),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_plain() {
        let names: BTreeSet<_> = RECIPES.iter().map(|recipe| recipe.name).collect();
        assert_eq!(names.len(), RECIPES.len());
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        assert!(names.iter().all(|name| name.chars().all(plain)));
    }
}
