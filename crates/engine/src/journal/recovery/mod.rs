//! Recovery: reads the blocks that a log holds, and writes them home.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `source` | a number in the log -> the block |
//! | `scan` | the log -> its transactions, and where they end |
//! | `replay` | transactions -> the newest copy of each block that none of them revoked |
//! | `fast` | the area behind the log -> fast commits; what they change -> one more transaction |
//! | `overlay` | copies -> a device that shows the volume as it will be |
//! | `scratch` | writes -> kept in memory, over a device that is not changed |
//! | `home` | copies -> at home, durably, and an empty log |
//!
//! Input: the journal's superblock and its blocks. Output: [`Replay`](replay::Replay). Invariants: replays exactly what the kernel and
//! e2fsck replay; every number in the log is checked before it is used; each block of the log is read for one purpose once, so a log that
//! points in circles ends. Limits: the copies are held in memory, at most as many as the log has blocks, and all copies of zeros as one;
//! the changes that fast commits describe are made by the module `fast_commit`.

mod fast;
mod home;
mod overlay;
mod replay;
mod scan;
mod scratch;
mod source;

pub(crate) use fast::check_fits;
pub(crate) use home::{After, bring_home};
pub(crate) use overlay::Overlay;
pub(crate) use replay::{Target, replay};
pub(crate) use scan::LogEnd;
pub(crate) use scratch::Scratch;
pub(crate) use source::{LogBlocks, LogSource};
