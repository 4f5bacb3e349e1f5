//! Damage: one variant per check. Input: every parser's findings. Output: errors that name the structure, the place, what was
//! found and what was expected. Invariant: exactly one check creates a variant. Limits: none.

use thiserror::Error;

use crate::types::{FileBlock, FsBlock, GroupNo, Ino, Place};

/// One variant per check. Blocks are in volume blocks, offsets in bytes from the start of the structure,
/// sums as stored (truncated to the width of the stored field).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are what the message prints
pub enum Corrupt {
    // Superblock.
    /// No ext2/3/4 magic number.
    #[error("no ext2/ext3/ext4 superblock: magic number is {found:#06x}, not 0xef53")]
    SuperMagic { found: u16 },
    /// The checksum fails.
    #[error("superblock checksum is {stored:#010x} but its bytes give {computed:#010x}")]
    SuperChecksum { stored: u32, computed: u32 },
    /// Block size out of range.
    #[error("superblock: block size 2^(10+{log}) is outside 1 KiB..64 KiB")]
    BlockSize { log: u32 },
    /// Cluster size does not fit the block size.
    #[error(
        "superblock: cluster size 2^(10+{log_cluster}) does not fit block size 2^(10+{log_block})"
    )]
    ClusterSize { log_cluster: u32, log_block: u32 },
    /// Blocks per group.
    #[error("superblock: {found} blocks per group; must be a multiple of 8 from 8 to {max}")]
    BlocksPerGroup { found: u32, max: u64 },
    /// Clusters per group.
    #[error(
        "superblock: {found} clusters per group; must be a multiple of 8 up to {max}, giving {blocks} blocks per group"
    )]
    ClustersPerGroup { found: u32, max: u64, blocks: u32 },
    /// Inodes per group.
    #[error("superblock: {found} inodes per group; must be a multiple of 8 from {min} to {max}")]
    InodesPerGroup { found: u32, min: u64, max: u64 },
    /// Inode size.
    #[error(
        "superblock: inode size {found}; must be a power of two from 128 to the block size {block_size}"
    )]
    InodeSize { found: u32, block_size: u32 },
    /// Group descriptor size.
    #[error("superblock: group descriptor size {found}; must be a power of two from 64 to {max}")]
    DescSize { found: u32, max: u32 },
    /// First data block.
    #[error("superblock: first data block is {found}, not {expected}")]
    FirstDataBlock { found: u32, expected: u32 },
    /// Number of blocks.
    #[error(
        "superblock: {found} blocks in the volume, first data block {first}: too few, or more than can be addressed"
    )]
    BlockCount { found: u64, first: u32 },
    /// Number of groups.
    #[error("superblock: {found} block groups; at most {max}")]
    GroupCount { found: u64, max: u64 },
    /// Number of inodes.
    #[error("superblock: {found} inodes, but {groups} groups of {per_group} make {expected}")]
    InodeCount {
        found: u32,
        groups: u32,
        per_group: u32,
        expected: u64,
    },
    /// First inode that is not reserved.
    #[error(
        "superblock: first ordinary inode is {found}; must be 11 or more and within the volume"
    )]
    FirstIno { found: u32 },
    /// Reserved group-descriptor blocks.
    #[error("superblock: {found} blocks reserved for group descriptors; at most {max}")]
    ReservedGdt { found: u32, max: u32 },
    /// More reserved blocks than blocks.
    #[error("superblock: {found} blocks are reserved, more than the {total} that exist")]
    ReservedBlocks { found: u64, total: u64 },
    /// First meta block group beyond the descriptors.
    #[error(
        "superblock: first meta block group is {found}; there are only {max} blocks of descriptors"
    )]
    FirstMetaBg { found: u32, max: u64 },
    /// Flexible group size.
    #[error("superblock: flexible group size 2^{log} is too large")]
    FlexBg { log: u8 },
    /// The volume is larger than its device.
    #[error("volume needs {needed} bytes but the device has {have}")]
    DeviceTooSmall { needed: u64, have: u64 },
    /// The superblock is not that of a journal device.
    #[error("this is no journal device: the feature journal_dev is not set")]
    NoJournalDevice,
    /// Number out of range.
    #[error("block {block} is outside the volume's blocks, {first} to {}", .end.saturating_sub(1))]
    BlockRange {
        block: FsBlock,
        first: u64,
        end: u64,
    },
    /// Number out of range.
    #[error("inode {ino} is outside the volume's inodes, 1 to {max}")]
    InoRange { ino: Ino, max: u32 },
    /// Number out of range.
    #[error("group {group} is outside the volume's {count} groups")]
    GroupRange { group: GroupNo, count: u32 },
    /// A slice of the wrong size was handed to a parser.
    #[error("{what} needs {need} bytes, got {have}")]
    Short {
        what: &'static str,
        need: u64,
        have: u64,
    },

    // Groups and bitmaps.
    /// Descriptor checksum.
    #[error(
        "descriptor of group {group}: checksum is {stored:#06x} but its bytes give {computed:#06x}"
    )]
    DescChecksum {
        group: GroupNo,
        stored: u16,
        computed: u16,
    },
    /// A bitmap or inode table outside its range.
    #[error(
        "descriptor of group {group}: {what} at block {block} (length {len}) is outside blocks {first} to {}",
        .end.saturating_sub(1)
    )]
    DescBlock {
        group: GroupNo,
        what: &'static str,
        block: FsBlock,
        len: u64,
        first: u64,
        end: u64,
    },
    /// A count larger than the group.
    #[error("descriptor of group {group}: {what} is {found}, more than the group's {max}")]
    DescCount {
        group: GroupNo,
        what: &'static str,
        found: u32,
        max: u32,
    },
    /// Bitmap checksum.
    #[error(
        "{what} bitmap of group {group}: checksum is {stored:#010x} but its bytes give {computed:#010x}"
    )]
    BitmapChecksum {
        group: GroupNo,
        what: &'static str,
        stored: u32,
        computed: u32,
    },
    /// A bit that is not in the state that the change expects.
    #[error("group {group}: {kind} bitmap: bit {bit} {what}")]
    BitmapBit {
        group: GroupNo,
        kind: &'static str,
        bit: u64,
        what: &'static str,
    },

    // Inodes.
    /// Inode checksum.
    #[error("inode {ino}: checksum is {stored:#010x} but its bytes give {computed:#010x}")]
    InodeChecksum {
        ino: Ino,
        stored: u32,
        computed: u32,
    },
    /// Extra size does not fit.
    #[error("inode {ino}: extra size {found} is not a multiple of 4 up to {max}")]
    InodeExtraSize { ino: Ino, found: u16, max: u32 },
    /// File type.
    #[error("inode {ino}: mode {mode:#o} has no known file type")]
    InodeType { ino: Ino, mode: u16 },
    /// File size.
    #[error("inode {ino}: size {size} is more than a file can have ({max})")]
    InodeFileSize { ino: Ino, size: u64, max: u64 },
    /// Extended-attribute block outside the volume.
    #[error("inode {ino}: extended-attribute block {block} is outside the volume")]
    InodeXattrBlock { ino: Ino, block: FsBlock },
    /// Flags that contradict each other or the volume's features.
    #[error("inode {ino}: flags {flags:#010x}: {why}")]
    InodeFlags {
        ino: Ino,
        flags: u32,
        why: &'static str,
    },
    /// Symbolic link target.
    #[error("inode {ino}: symbolic link of {size} bytes: {why}")]
    Symlink {
        ino: Ino,
        size: u64,
        why: &'static str,
    },
    /// The inode does not have the requested kind of map.
    #[error("inode {ino} is not mapped by {what}")]
    WrongMap { ino: Ino, what: &'static str },

    // Extent trees.
    /// Header magic.
    #[error("inode {ino}: extent node {at}: magic number is {found:#06x}, not 0xf30a")]
    ExtentMagic { ino: Ino, at: Place, found: u16 },
    /// More entries than room.
    #[error("inode {ino}: extent node {at}: {entries} entries, room for {max}")]
    ExtentEntries {
        ino: Ino,
        at: Place,
        entries: u16,
        max: u16,
    },
    /// Room does not fit the node.
    #[error("inode {ino}: extent node {at}: claims room for {max} entries; {fits} fit")]
    ExtentMax {
        ino: Ino,
        at: Place,
        max: u16,
        fits: u16,
    },
    /// Wrong depth.
    #[error("inode {ino}: extent node {at}: depth {found}, expected {expected}")]
    ExtentDepth {
        ino: Ino,
        at: Place,
        found: u16,
        expected: u16,
    },
    /// Index node without entries.
    #[error("inode {ino}: extent node {at}: an index node has no entries")]
    ExtentEmptyIndex { ino: Ino, at: Place },
    /// Node checksum.
    #[error(
        "inode {ino}: extent node {at}: checksum is {stored:#010x} but its bytes give {computed:#010x}"
    )]
    ExtentChecksum {
        ino: Ino,
        at: Place,
        stored: u32,
        computed: u32,
    },
    /// An extent of length zero.
    #[error("inode {ino}: extent node {at}: the extent at file block {block} has length 0")]
    ExtentLength {
        ino: Ino,
        at: Place,
        block: FileBlock,
    },
    /// Entries unsorted or overlapping.
    #[error(
        "inode {ino}: extent node {at}: entry at file block {found} starts before {previous_end}, where the one before ends"
    )]
    ExtentOrder {
        ino: Ino,
        at: Place,
        previous_end: FileBlock,
        found: FileBlock,
    },
    /// Entries outside the range that the parent gives to the node.
    #[error(
        "inode {ino}: extent node {at}: file blocks {start} to {} are outside {low} to {}, which the node covers",
        .end.saturating_sub(1),
        .high.saturating_sub(1)
    )]
    ExtentRange {
        ino: Ino,
        at: Place,
        start: u64,
        end: u64,
        low: u64,
        high: u64,
    },
    /// Blocks outside the volume.
    #[error(
        "inode {ino}: extent node {at}: blocks {start}+{len} are outside the volume ({count} blocks)"
    )]
    ExtentPhysical {
        ino: Ino,
        at: Place,
        start: FsBlock,
        len: u32,
        count: u64,
    },

    // Indirect maps.
    /// Pointer outside the volume.
    #[error("inode {ino}: block pointer {index} {at} is {block}, outside the volume")]
    IndirectPointer {
        ino: Ino,
        at: Place,
        index: u32,
        block: FsBlock,
    },
    /// Beyond the largest file.
    #[error(
        "inode {ino}: file block {block} is beyond {max}, the largest that its map can address"
    )]
    FileBlockTooLarge {
        ino: Ino,
        block: FileBlock,
        max: u64,
    },

    // Directories.
    /// A record that breaks the chain.
    #[error(
        "directory {ino}, file block {block}: entry at byte {offset}: record length {rec_len}: {why}"
    )]
    DirRecord {
        ino: Ino,
        block: FileBlock,
        offset: u32,
        rec_len: u32,
        why: &'static str,
    },
    /// Entry to an inode that cannot exist.
    #[error(
        "directory {ino}, file block {block}: entry at byte {offset} names inode {found}; there are {max}"
    )]
    DirInode {
        ino: Ino,
        block: FileBlock,
        offset: u32,
        found: u32,
        max: u32,
    },
    /// A name that no entry may have.
    #[error("directory {ino}, file block {block}: entry at byte {offset}: {why}")]
    DirName {
        ino: Ino,
        block: FileBlock,
        offset: u32,
        why: &'static str,
    },
    /// Checksum record missing.
    #[error("directory {ino}, file block {block}: no checksum record at the end of the block")]
    DirTail { ino: Ino, block: FileBlock },
    /// Checksum.
    #[error(
        "directory {ino}, file block {block}: checksum is {stored:#010x} but its bytes give {computed:#010x}"
    )]
    DirChecksum {
        ino: Ino,
        block: FileBlock,
        stored: u32,
        computed: u32,
    },
    /// "." or ".." missing or wrong.
    #[error("directory {ino}: {why}")]
    DirDots { ino: Ino, why: &'static str },
    /// A field of a hash-tree node.
    #[error(
        "directory {ino}, file block {block}: hash-tree node: {what} is {found}, expected {expected}"
    )]
    DxField {
        ino: Ino,
        block: FileBlock,
        what: &'static str,
        found: u32,
        expected: u32,
    },
    /// Hash-tree count and limit.
    #[error(
        "directory {ino}, file block {block}: hash-tree node: {count} entries, limit {limit}, room for {fits}"
    )]
    DxCount {
        ino: Ino,
        block: FileBlock,
        count: u16,
        limit: u16,
        fits: u32,
    },
    /// Hash-tree depth.
    #[error("directory {ino}: hash tree with {found} levels below the root; at most {max}")]
    DxDepth { ino: Ino, found: u8, max: u8 },
    /// Hash-tree order.
    #[error(
        "directory {ino}, file block {block}: hash-tree entry {index}: hash {hash:#010x} is not above the one before"
    )]
    DxOrder {
        ino: Ino,
        block: FileBlock,
        index: u16,
        hash: u32,
    },
    /// Hash-tree entry to a block outside the directory.
    #[error(
        "directory {ino}, file block {block}: hash-tree entry {index} points to file block {found}; the directory has {blocks}"
    )]
    DxBlock {
        ino: Ino,
        block: FileBlock,
        index: u16,
        found: u32,
        blocks: u64,
    },

    // Extended attributes.
    /// Header magic.
    #[error("inode {ino}: extended attributes {at}: magic number is {found:#010x}, not 0xea020000")]
    XattrMagic { ino: Ino, at: Place, found: u32 },
    /// Attribute blocks are single.
    #[error("inode {ino}: extended attributes {at}: {found} blocks; must be 1")]
    XattrBlocks { ino: Ino, at: Place, found: u32 },
    /// Block checksum.
    #[error(
        "inode {ino}: extended attributes {at}: checksum is {stored:#010x} but its bytes give {computed:#010x}"
    )]
    XattrChecksum {
        ino: Ino,
        at: Place,
        stored: u32,
        computed: u32,
    },
    /// An entry that breaks a rule.
    #[error("inode {ino}: extended attributes {at}: entry at byte {offset}: {why}")]
    XattrEntry {
        ino: Ino,
        at: Place,
        offset: u32,
        why: &'static str,
    },
    /// A value out of bounds.
    #[error(
        "inode {ino}: extended attributes {at}: entry at byte {offset}: value at {value_offset}+{size}: {why}"
    )]
    XattrValue {
        ino: Ino,
        at: Place,
        offset: u32,
        value_offset: u32,
        size: u32,
        why: &'static str,
    },
    /// The hash of an entry, or of a value kept in an inode.
    #[error(
        "inode {ino}: extended attribute {what}: hash is {stored:#010x} but its bytes give {computed:#010x}"
    )]
    XattrHash {
        ino: Ino,
        what: &'static str,
        stored: u32,
        computed: u32,
    },
    /// An access control list.
    #[error("access control list at byte {offset}: {why}")]
    Acl { offset: u32, why: &'static str },
    /// Inline data shorter than the directory or the target of a link.
    #[error("inode {ino}: size {size}, but only {have} bytes of inline data")]
    InlineSize { ino: Ino, size: u64, have: u64 },

    // Journal, orphans, multiple-mount protection.
    /// Journal magic.
    #[error("journal superblock: magic number is {found:#010x}, not 0xc03b3998")]
    JournalMagic { found: u32 },
    /// Journal superblock type.
    #[error("journal superblock: block type is {found}, not 3 or 4")]
    JournalType { found: u32 },
    /// A field out of range.
    #[error("journal superblock: {what} is {found}; {why}")]
    JournalField {
        what: &'static str,
        found: u64,
        why: &'static str,
    },
    /// A record of a fast commit whose checksum is valid.
    #[error("journal, fast commits: {what} is wrong in a record of {len} bytes")]
    FastCommitRecord { what: &'static str, len: u32 },
    /// Journal superblock checksum.
    #[error("journal superblock checksum is {stored:#010x} but its bytes give {computed:#010x}")]
    JournalChecksum { stored: u32, computed: u32 },
    /// Checksum of a descriptor block.
    #[error(
        "journal, descriptor block at {at}: checksum is {stored:#010x} but its bytes give {computed:#010x}"
    )]
    JournalDescriptorChecksum { at: u32, stored: u32, computed: u32 },
    /// Checksum of a copy in the log.
    #[error(
        "journal, copy of block {block} at {at}: checksum is {stored:#010x} but its bytes give {computed:#010x}"
    )]
    JournalCopyChecksum {
        at: u32,
        block: FsBlock,
        stored: u32,
        computed: u32,
    },
    /// Checksum of a revocation block.
    #[error(
        "journal, revocation block at {at}: checksum is {stored:#010x} but its bytes give {computed:#010x}"
    )]
    JournalRevokeChecksum { at: u32, stored: u32, computed: u32 },
    /// A revocation block that claims more than fits.
    #[error("journal, revocation block at {at}: {bytes} bytes in use, room for {max}")]
    JournalRevokeCount { at: u32, bytes: u32, max: u32 },
    /// Orphan block magic.
    #[error("orphan file, block {block}: magic number is {found:#010x}, not 0x0b10ca04")]
    OrphanMagic { block: FsBlock, found: u32 },
    /// Orphan block checksum.
    #[error(
        "orphan file, block {block}: checksum is {stored:#010x} but its bytes give {computed:#010x}"
    )]
    OrphanChecksum {
        block: FsBlock,
        stored: u32,
        computed: u32,
    },
    /// Orphan entry.
    #[error(
        "orphan file, block {block}: entry {index} names inode {found}; ordinary inodes are {first} to {last}"
    )]
    OrphanIno {
        block: FsBlock,
        index: u32,
        found: u32,
        first: u32,
        last: u32,
    },
    /// Magic of a usage file.
    #[error(
        "inode {ino}: usage file of quotas: magic number is {found:#010x}, not {expected:#010x}"
    )]
    QuotaMagic { ino: Ino, found: u32, expected: u32 },
    /// Version of a usage file.
    #[error("inode {ino}: usage file of quotas: version {found}, not 1")]
    QuotaVersion { ino: Ino, found: u32 },
    /// Size of a usage file.
    #[error("inode {ino}: usage file of quotas: {found} bytes; at most {max}")]
    QuotaSize { ino: Ino, found: u64, max: u64 },
    /// Blocks of a usage file.
    #[error(
        "inode {ino}: usage file of quotas: it says that it has {found} blocks; must be 2 or more, and at most {max}"
    )]
    QuotaBlocks { ino: Ino, found: u32, max: u64 },
    /// First block that is free, or has room, of a usage file.
    #[error(
        "inode {ino}: usage file of quotas: a list of free blocks or entries begins with block {found}; there are {blocks}"
    )]
    QuotaFree { ino: Ino, found: u32, blocks: u32 },
    /// Reference of a usage file's tree.
    #[error(
        "inode {ino}: usage file of quotas, block {block}: reference {slot} is to block {found}; there are {blocks}"
    )]
    QuotaReference {
        ino: Ino,
        block: u32,
        slot: u8,
        found: u32,
        blocks: u32,
    },
    /// A usage file's tree that is none.
    #[error(
        "inode {ino}: usage file of quotas, block {block}: it refers to block {found}, to which another reference leads"
    )]
    QuotaTwice { ino: Ino, block: u32, found: u32 },
    /// Number of entries in a block of a usage file.
    #[error(
        "inode {ino}: usage file of quotas, block {block}: it says that it has {found} entries; at most {max} fit"
    )]
    QuotaEntries {
        ino: Ino,
        block: u32,
        found: u16,
        max: u16,
    },
    /// An entry of a usage file that the tree does not lead to.
    #[error(
        "inode {ino}: usage file of quotas, block {block}: an entry for {id} is there, to which the tree does not lead"
    )]
    QuotaAstray { ino: Ino, block: u32, id: u32 },
    /// A reference of a usage file to an entry that is not there.
    #[error(
        "inode {ino}: usage file of quotas, block {block}: the tree leads here for {id}, which has no entry"
    )]
    QuotaNoEntry { ino: Ino, block: u32, id: u32 },
    /// Multiple-mount protection magic.
    #[error("multiple-mount protection block: magic number is {found:#010x}, not 0x004d4d50")]
    MmpMagic { found: u32 },
    /// Multiple-mount protection checksum.
    #[error(
        "multiple-mount protection block: checksum is {stored:#010x} but its bytes give {computed:#010x}"
    )]
    MmpChecksum { stored: u32, computed: u32 },
}
