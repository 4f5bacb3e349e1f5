//! Recovery: from a log to the blocks that it holds, and from there home.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `source` | a number in the log -> the block |
//! | `scan` | the log -> its transactions, and where they end |
//! | `replay` | transactions -> the newest copy of each block that none of them revoked |
//! | `fast` | the area behind the log -> fast commits; what they change -> one transaction more |
//! | `overlay` | copies -> a device that shows the volume as it will be |
//! | `scratch` | writes -> memory, over a device that stays as it is |
//! | `home` | copies -> their places, durably, and an empty log |
//!
//! Input: the journal's superblock and its blocks. Output: [`Replay`]. Invariants: what the running kernel and e2fsck replay, to the byte;
//! every number in the log is checked before it is used; each block of the log is taken once, so a log that points in circles
//! ends. Limits: the copies are held in memory, at most as many as the log has blocks, those of zeros as one; what fast commits do to a
//! volume is another room's.

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
pub(crate) use source::LogSource;
