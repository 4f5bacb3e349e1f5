//! The blocks of a file's map: claimed, counted, and compared with the inode's size.
//!
//! Input: an inode. Output: [`Taken`], and findings. Invariants: a map block that was claimed before is not read again, so all
//! walks together read every block once. Limits: `owners` finds out later which inodes share a block.

use super::context::Check;
use super::reader::Reader;
use super::report::Kind;
use super::walk::{Run, Visit, walk};
use diorite::Error;
use diorite_format::{FsBlock, Ino, Inode};
use std::collections::HashSet;
use std::fmt;

/// The space of a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Taken {
    /// Clusters, including those of the map itself.
    pub(super) clusters: u64,
    /// The file block after the last mapped one, and after the last written one.
    pub(super) end: u64,
    pub(super) written_end: u64,
    /// Mapped file blocks.
    pub(super) blocks: u64,
    /// The start of the first run.
    pub(super) first: Option<FsBlock>,
    /// A block of the map had been claimed before.
    pub(super) tangled: bool,
    /// The map is damaged.
    pub(super) bad: bool,
}

/// Claims everything that the map of `inode` leads to.
pub(super) fn claim(
    check: &Check<'_>,
    reader: &mut Reader<'_>,
    inode: &Inode,
) -> Result<Taken, Error> {
    let mut claimer = Claimer {
        check,
        ino: inode.ino,
        taken: Taken::default(),
        last: None,
    };
    walk(&check.source.sb, reader, inode, &mut claimer)?;
    Ok(claimer.taken)
}

struct Claimer<'a> {
    check: &'a Check<'a>,
    ino: Ino,
    taken: Taken,
    /// The cluster of the file in which the last run ended, and its place.
    last: Option<(u64, u64)>,
}

impl Visit for Claimer<'_> {
    fn node(&mut self, block: FsBlock) -> bool {
        self.taken.clusters += 1;
        let first = self.check.space.claim_node(block);
        self.taken.tangled |= !first;
        first
    }

    fn run(&mut self, run: Run) {
        let space = self.check.space;
        let ratio = u64::from(self.check.source.sb.geometry().cluster_ratio());
        let first = space.cluster(run.at.get());
        let end = space.cluster(run.at.get() + run.len - 1) + 1;
        if run.file % ratio != run.at.get() % ratio {
            let what = format!(
                "inode {}: file block {} lies in block {}, elsewhere in its cluster",
                self.ino, run.file, run.at
            );
            self.wrong(&what);
        }
        // Several runs of a file may share a cluster if it is the same cluster of the file. In any case it counts once in the
        // inode's own count.
        let shared = self
            .last
            .filter(|(_, cluster)| ratio > 1 && *cluster == first);
        if shared.is_some_and(|(of_file, _)| of_file != run.file / ratio) {
            let what = format!(
                "inode {}: file block {} lies in block {}, in the cluster of another place of the file",
                self.ino, run.file, run.at
            );
            self.wrong(&what);
        }
        let from = first + u64::from(shared.is_some());
        space.claim_clusters(from, end);
        self.taken.clusters += end.saturating_sub(from);
        self.last = Some(((run.end() - 1) / ratio, end - 1));
        self.taken.first = self.taken.first.or(Some(run.at));
        self.taken.blocks += run.len;
        self.taken.end = self.taken.end.max(run.end());
        if !run.unwritten {
            self.taken.written_end = self.taken.written_end.max(run.end());
        }
    }

    fn wrong(&mut self, what: &dyn fmt::Display) {
        self.taken.bad = true;
        self.check.found.inode(Kind::BlockMap, self.ino, what);
    }
}

/// The blocks of a directory, in order.
pub(super) fn runs_of(
    check: &Check<'_>,
    reader: &mut Reader<'_>,
    dir: &Inode,
) -> Result<Vec<Run>, Error> {
    let mut all = Runs::default();
    walk(&check.source.sb, reader, dir, &mut all)?;
    Ok(all.runs)
}

/// Collects all runs, reading each block of the map once: even a map that refers to itself gives no more runs than its blocks
/// hold.
#[derive(Default)]
struct Runs {
    runs: Vec<Run>,
    nodes: HashSet<FsBlock>,
}

impl Visit for Runs {
    fn node(&mut self, block: FsBlock) -> bool {
        self.nodes.insert(block)
    }

    fn run(&mut self, run: Run) {
        self.runs.push(run);
    }

    fn wrong(&mut self, _: &dyn fmt::Display) {
        // Reported when the inode was judged.
    }
}
