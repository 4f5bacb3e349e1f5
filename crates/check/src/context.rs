//! What all passes of a check share.
//!
//! Input: the volume to check. Output: [`Check`]. Invariants: none. Limits: none.

use crate::link_counts::LinkCounts;
use crate::orphans::Orphans;
use crate::report::Collector;
use crate::source::Source;
use crate::space::Space;
use crate::threads::Threads;

pub(crate) const STAGE_INODES: &str = "inodes";
pub(crate) const STAGE_DIRECTORIES: &str = "directories";
pub(crate) const STAGE_OWNERS: &str = "owners of shared blocks";
pub(crate) const STAGE_PATHS: &str = "paths";

/// What all passes share.
pub(crate) struct Check<'a> {
    pub(crate) source: &'a Source,
    pub(crate) space: &'a Space,
    pub(crate) link_counts: &'a LinkCounts,
    pub(crate) orphans: &'a Orphans,
    pub(crate) found: &'a Collector,
    pub(crate) threads: Threads<'a>,
}
