//! The findings of a check, bounded: all are counted, a limited number of each kind is kept.
//!
//! Input: findings of all passes, from any thread. Output: a [`Report`]. Invariants: the findings kept do not depend on the
//! order of threads: of each kind, the first by inode, block and text; every finding is counted. Limits: none.

use diorite_block::sync::{LockClass, Mutex};
use diorite_format::group::{GroupCounts, GroupRun};
use diorite_format::{FsBlock, GroupNo, Ino};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The findings so far: ranked below all locks of a volume.
static CHECK_FINDINGS: LockClass = LockClass::new("check-findings", 520);

/// How many runs of clusters that nobody uses are kept: 12 MiB.
const MOST_UNUSED: usize = 1 << 20;

/// Which structure a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The superblock, or a state that it records.
    Superblock,
    /// A group's descriptor.
    Descriptor,
    /// The journal's inode or superblock.
    Journal,
    /// An inode's own fields.
    Inode,
    /// A map of a file: extents or block pointers.
    BlockMap,
    /// A block with several owners.
    DoubleUse,
    /// Extended attributes, their blocks and their inodes.
    Xattr,
    /// A directory's blocks and entries.
    Directory,
    /// The tree of a hashed directory.
    HashTree,
    /// An inode or directory that no name leads to.
    Unreachable,
    /// The number of names of an inode.
    Links,
    /// Orphaned inodes.
    Orphan,
    /// A group's bitmap of blocks.
    BlockBitmap,
    /// A group's bitmap of inodes.
    InodeBitmap,
    /// Free blocks, free inodes and directories, as counted in descriptors and superblock.
    Counters,
    /// Usage of users, groups and projects, as counted in usage files.
    Quota,
    /// What could not be checked because of other damage.
    NotChecked,
}

impl Kind {
    /// Every kind, in the order of reports.
    pub const ALL: [Kind; 17] = [
        Kind::Superblock,
        Kind::Descriptor,
        Kind::Journal,
        Kind::Inode,
        Kind::BlockMap,
        Kind::DoubleUse,
        Kind::Xattr,
        Kind::Directory,
        Kind::HashTree,
        Kind::Unreachable,
        Kind::Links,
        Kind::Orphan,
        Kind::BlockBitmap,
        Kind::InodeBitmap,
        Kind::Counters,
        Kind::Quota,
        Kind::NotChecked,
    ];

    /// The name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Superblock => "superblock",
            Kind::Descriptor => "descriptor",
            Kind::Journal => "journal",
            Kind::Inode => "inode",
            Kind::BlockMap => "block_map",
            Kind::DoubleUse => "double_use",
            Kind::Xattr => "xattr",
            Kind::Directory => "directory",
            Kind::HashTree => "hash_tree",
            Kind::Unreachable => "unreachable",
            Kind::Links => "links",
            Kind::Orphan => "orphan",
            Kind::BlockBitmap => "block_bitmap",
            Kind::InodeBitmap => "inode_bitmap",
            Kind::Counters => "counters",
            Kind::Quota => "quota",
            Kind::NotChecked => "not_checked",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One inconsistency.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The inode concerned, if any.
    pub ino: Option<Ino>,
    /// The block of the volume concerned, if any.
    pub block: Option<FsBlock>,
    /// What was found, where, and what was expected.
    pub what: String,
    /// A path to the inode, if one leads there.
    pub path: Option<Vec<u8>>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{} [{}]", self.what, path.escape_ascii()),
            None => f.write_str(&self.what),
        }
    }
}

/// Findings of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings {
    /// The kind.
    pub kind: Kind,
    /// Their number.
    pub count: u64,
    /// The first of them.
    pub kept: Vec<Finding>,
}

/// The counts of the volume's contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Inodes in use, including the volume's own.
    pub inodes: u64,
    /// Directories among the inodes.
    pub directories: u64,
    /// Names in directories, without "." and "..".
    pub names: u64,
    /// Blocks in use.
    pub blocks: u64,
}

/// The outcome of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The findings, by kind; empty if the volume is consistent.
    pub findings: Vec<Findings>,
    /// Information that is not damage.
    pub notes: Vec<String>,
    /// The counts.
    pub totals: Totals,
    /// The check could not be completed because something is missing; a finding says what.
    pub unfinished: bool,
    /// Something was not compared that e2fsck compares; a note says what.
    pub partial: bool,
    /// The counts of all groups whose descriptors count something else, by what is in use.
    pub counts: Vec<GroupCounts>,
    /// Clusters that a bitmap has as used, and nobody uses. Their groups are in `counts`. None if the volume has a feature that may use
    /// them without the check's knowledge; a note names it.
    pub unused: Vec<GroupRun>,
    /// How many findings are about those alone.
    pub about_unused: u64,
    /// What the superblock says that no longer is, without being damage.
    pub stale: Stale,
}

/// What is out of date without being damage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stale {
    /// The journal is to be replayed, or orphans are to be processed.
    pub recovery: bool,
    /// The superblock's free counts are not the sums of the groups.
    pub totals: bool,
    /// Errors are recorded, or the volume is not marked as clean.
    pub state: bool,
    /// The superblock names an orphan file that the volume does not have. It is a finding, too.
    pub orphan_file: bool,
    /// The superblock's checksum is wrong, and something else stands in for it. It is a finding, too.
    pub superblock: bool,
}

impl Report {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    /// Whether everything was compared, and everything that is wrong are counts, which follow from what was found consistent:
    /// [`Report::counts`] has them; or clusters that nobody uses: [`Report::unused`]; or the name of an orphan file that is not there:
    /// [`Stale::orphan_file`], [`Stale::superblock`].
    #[must_use]
    pub fn is_repairable(&self) -> bool {
        let can_be = |f: &Findings| match f.kind {
            Kind::Counters => true,
            Kind::BlockBitmap => f.count == self.about_unused,
            Kind::Superblock => {
                f.count == u64::from(self.stale.orphan_file) + u64::from(self.stale.superblock)
            }
            _ => false,
        };
        !self.unfinished && !self.partial && self.findings.iter().all(can_be)
    }

    /// The findings that were kept, in the order of kinds.
    pub fn kept(&self) -> impl Iterator<Item = (Kind, &Finding)> {
        let of_kind = |f: &Findings| (f.kind, f.kept.len());
        let kinds = self.findings.iter().map(of_kind);
        let repeated = kinds.flat_map(|(kind, n)| std::iter::repeat_n(kind, n));
        repeated.zip(self.findings.iter().flat_map(|f| &f.kept))
    }

    /// The number of all findings, including those not kept.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.findings.iter().map(|f| f.count).sum()
    }
}

/// Collects the findings of all passes.
pub(super) struct Collector {
    per_kind: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    kinds: BTreeMap<Kind, (u64, BTreeSet<Finding>)>,
    notes: BTreeSet<String>,
    unfinished: bool,
    partial: bool,
    counts: Vec<GroupCounts>,
    unused: Vec<GroupRun>,
    with_unused: BTreeSet<GroupNo>,
    about_unused: u64,
    stale: Stale,
}

impl Collector {
    /// Keeps at most `per_kind` findings of each kind.
    pub(super) fn new(per_kind: usize) -> Collector {
        Collector {
            per_kind,
            inner: Mutex::new(&CHECK_FINDINGS, Inner::default()),
        }
    }

    /// Adds a finding about no particular inode.
    pub(super) fn add(&self, kind: Kind, what: impl fmt::Display) {
        self.put(kind, None, None, what.to_string());
    }

    /// Adds a finding about a block.
    pub(super) fn block(&self, kind: Kind, block: FsBlock, what: impl fmt::Display) {
        self.put(kind, None, Some(block), what.to_string());
    }

    /// Adds a finding about an inode.
    pub(super) fn inode(&self, kind: Kind, ino: Ino, what: impl fmt::Display) {
        self.put(kind, Some(ino), None, what.to_string());
    }

    /// Adds a finding about a block of an inode.
    pub(super) fn of(&self, kind: Kind, ino: Ino, block: FsBlock, what: impl fmt::Display) {
        self.put(kind, Some(ino), Some(block), what.to_string());
    }

    fn put(&self, kind: Kind, ino: Option<Ino>, block: Option<FsBlock>, what: String) {
        let mut inner = self.inner.lock();
        let (count, kept) = inner.kinds.entry(kind).or_default();
        *count += 1;
        kept.insert(Finding {
            ino,
            block,
            what,
            path: None,
        });
        if kept.len() > self.per_kind {
            kept.pop_last();
        }
    }

    /// Adds information that is not damage.
    pub(super) fn note(&self, what: impl fmt::Display) {
        self.inner.lock().notes.insert(what.to_string());
    }

    /// Adds the counts that a group should have.
    pub(super) fn counts(&self, counts: GroupCounts) {
        self.inner.lock().counts.push(counts);
    }

    /// Adds clusters of a group that nobody uses, about which there are so many findings. Those that are too many are left to others.
    pub(super) fn unused(&self, runs: &[GroupRun], findings: u64) {
        let mut inner = self.inner.lock();
        if inner.unused.len() + runs.len() > MOST_UNUSED {
            return;
        }
        inner.unused.extend(runs);
        inner.with_unused.extend(runs.first().map(|run| run.group));
        inner.about_unused += findings;
    }

    /// Whether clusters of this group were added that nobody uses.
    pub(super) fn has_unused(&self, group: GroupNo) -> bool {
        self.inner.lock().with_unused.contains(&group)
    }

    /// Notes what is out of date.
    pub(super) fn stale(&self, note: impl FnOnce(&mut Stale)) {
        note(&mut self.inner.lock().stale);
    }

    /// Records that something is not compared.
    pub(super) fn partial(&self) {
        self.inner.lock().partial = true;
    }

    /// Records that the check cannot be completed.
    pub(super) fn unfinished(&self) {
        self.inner.lock().unfinished = true;
    }

    /// The report so far.
    pub(super) fn snapshot(&self, totals: Totals) -> Report {
        let inner = self.inner.lock();
        let of_kind = |(kind, (count, kept)): (&Kind, &(u64, BTreeSet<Finding>))| Findings {
            kind: *kind,
            count: *count,
            kept: kept.iter().cloned().collect(),
        };
        Report {
            findings: inner.kinds.iter().map(of_kind).collect(),
            notes: inner.notes.iter().cloned().collect(),
            totals,
            unfinished: inner.unfinished,
            partial: inner.partial,
            counts: inner.counts.clone(),
            unused: inner.unused.clone(),
            about_unused: inner.about_unused,
            stale: inner.stale,
        }
    }
}
