//! The verdict on every feature, one row each.
//! Input: nothing. Output: rows for `Features::check`, `diorite info` and the book. Invariant: a bit appears at most once;
//! names are those of `dumpe2fs` 1.47 (checked by experiment, bit by bit; those it does not know have their name in the
//! kernel's documentation). Limit: see `Verdict::Partial`.

/// Which feature word a bit belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Set {
    /// May be ignored.
    Compat,
    /// Must be known to open.
    Incompat,
    /// Must be known to write.
    RoCompat,
}

/// How far a feature is supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Everything works.
    Full,
    /// The volume opens; single files or operations that use the feature are refused by name.
    Partial,
    /// The volume is not opened.
    Refused,
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureVerdict {
    /// The word.
    pub set: Set,
    /// The bit within the word.
    pub bit: u32,
    /// The name.
    pub name: &'static str,
    /// The verdict for reading.
    pub read: Verdict,
    /// The verdict for writing.
    pub write: Verdict,
    /// Why it is limited and what to do; empty if both verdicts are full.
    pub help: &'static str,
}

use Set::{Compat as C, Incompat as I, RoCompat as R};
use Verdict::{Full, Partial, Refused};

const fn row(
    set: Set,
    bit: u32,
    name: &'static str,
    read: Verdict,
    write: Verdict,
    help: &'static str,
) -> FeatureVerdict {
    FeatureVerdict {
        set,
        bit,
        name,
        read,
        write,
        help,
    }
}

/// The reasons, row by row:
///
/// - Compat bits are hints by contract, so none refuses. For `fast_commit` on an unclean journal the decision is made when
///   the journal is read ([`crate::journal::JournalSuper`]): replay without its area would lose acknowledged writes.
/// - `compression` and `dirdata` change the meaning of file and directory bytes, and no current tool creates them.
/// - `journal_dev` is a journal, not a file system.
/// - `mmp`: a writer has to update the sequence number in the block for the whole time. diorite does not, so only reading is
///   safe; reading while another host writes shows changing data, which `info` says.
/// - `encrypt`, `verity`: the volume's own structures are plain; only single files are refused.
/// - `casefold`: exact names are found by scanning; operations that need case folding are refused.
/// - `quota`, `project`: a writer that does not update the usage files makes them wrong.
/// - `shared_blocks`: writing one file would change another. `read-only`: the image forbids writing.
/// - `snapshot`, `replica`: never in a released kernel.
static TABLE: &[FeatureVerdict] = &[
    row(C, 0x1, "dir_prealloc", Full, Full, ""),
    row(C, 0x2, "imagic_inodes", Full, Full, ""),
    row(C, 0x4, "has_journal", Full, Full, ""),
    row(C, 0x8, "ext_attr", Full, Full, ""),
    row(C, 0x10, "resize_inode", Full, Full, ""),
    row(C, 0x20, "dir_index", Full, Full, ""),
    row(C, 0x40, "lazy_bg", Full, Full, ""),
    row(C, 0x100, "snapshot_bitmap", Full, Full, ""),
    row(C, 0x200, "sparse_super2", Full, Full, ""),
    row(C, 0x400, "fast_commit", Full, Full, ""),
    row(C, 0x800, "stable_inodes", Full, Full, ""),
    row(C, 0x1000, "orphan_file", Full, Full, ""),
    row(
        I,
        0x1,
        "compression",
        Refused,
        Refused,
        "compressed files were never part of a released kernel",
    ),
    row(I, 0x2, "filetype", Full, Full, ""),
    row(I, 0x4, "needs_recovery", Full, Full, ""),
    row(
        I,
        0x8,
        "journal_dev",
        Refused,
        Refused,
        "this is an external journal device, not a file system; open the volume that uses it",
    ),
    row(I, 0x10, "meta_bg", Full, Full, ""),
    row(I, 0x40, "extent", Full, Full, ""),
    row(I, 0x80, "64bit", Full, Full, ""),
    row(
        I,
        0x100,
        "mmp",
        Full,
        Refused,
        "another host may have it mounted; if none has, 'diorite tune -O ^mmp' makes it writable",
    ),
    row(I, 0x200, "flex_bg", Full, Full, ""),
    row(I, 0x400, "ea_inode", Full, Full, ""),
    row(
        I,
        0x1000,
        "dirdata",
        Refused,
        Refused,
        "data in directory entries is made by Lustre servers only",
    ),
    row(I, 0x2000, "metadata_csum_seed", Full, Full, ""),
    row(I, 0x4000, "large_dir", Full, Full, ""),
    row(I, 0x8000, "inline_data", Full, Full, ""),
    row(
        I,
        0x10000,
        "encrypt",
        Partial,
        Partial,
        "encrypted files and directories are refused one by one; the rest works",
    ),
    row(
        I,
        0x20000,
        "casefold",
        Partial,
        Partial,
        "names in case-insensitive directories are matched exactly and cannot be changed",
    ),
    row(R, 0x1, "sparse_super", Full, Full, ""),
    row(R, 0x2, "large_file", Full, Full, ""),
    row(R, 0x8, "huge_file", Full, Full, ""),
    row(R, 0x10, "uninit_bg", Full, Full, ""),
    row(R, 0x20, "dir_nlink", Full, Full, ""),
    row(R, 0x40, "extra_isize", Full, Full, ""),
    row(
        R,
        0x80,
        "snapshot",
        Full,
        Refused,
        "snapshots of next3 are not kept by this program",
    ),
    row(
        R,
        0x100,
        "quota",
        Full,
        Refused,
        "quota usage is not kept yet; 'diorite tune -O ^quota' makes it writable",
    ),
    row(R, 0x200, "bigalloc", Full, Full, ""),
    row(R, 0x400, "metadata_csum", Full, Full, ""),
    row(
        R,
        0x800,
        "replica",
        Full,
        Refused,
        "no released kernel defines what it means",
    ),
    row(
        R,
        0x1000,
        "read-only",
        Full,
        Refused,
        "the image is marked read-only; 'diorite tune -O ^read-only' takes the mark off",
    ),
    row(
        R,
        0x2000,
        "project",
        Full,
        Refused,
        "project quota usage is not kept yet; 'diorite tune -O ^project' makes it writable",
    ),
    row(
        R,
        0x4000,
        "shared_blocks",
        Full,
        Refused,
        "files share blocks, so writing one would change another; 'e2fsck -E unshare_blocks' separates them",
    ),
    row(
        R,
        0x8000,
        "verity",
        Partial,
        Partial,
        "files protected by a Merkle tree are refused one by one; the rest works",
    ),
    row(R, 0x10000, "orphan_present", Full, Full, ""),
];

/// Every known feature with its verdict, in the order of the bits.
#[must_use]
pub fn verdicts() -> &'static [FeatureVerdict] {
    TABLE
}

/// The row of one bit.
pub(super) fn find(set: Set, bit: u32) -> Option<&'static FeatureVerdict> {
    TABLE.iter().find(|row| row.set == set && row.bit == bit)
}
