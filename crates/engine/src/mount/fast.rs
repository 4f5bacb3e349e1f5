//! Replays fast commits while a volume is opened, in memory.
//!
//! Input: a device that shows the volume after replay of its log, and the fast commits that follow. Output: the blocks that they change,
//! with their new contents. Invariants: nothing is written to the device below; readers and writers get the same. Limits: the blocks are
//! held in memory; for readers it runs on volumes with features that forbid writing, too.

use super::journal;
use super::look::look;
use crate::caller::Caller;
use crate::disk::{Blocks, Descriptors};
use crate::error::Error;
use crate::fast_commit;
use crate::inode::Fs;
use crate::journal::Journal;
use crate::journal::recovery::Scratch;
use crate::options::AccessTimes;
use crate::options::OpenOptions;
use diorite_block::Device;
use diorite_format::journal::FastCommits;
use std::sync::Arc;
use std::time::Duration;

/// The commit interval: longer than any replay, so that nothing is committed because of its age.
const NEVER: Duration = Duration::from_secs(1 << 20);

/// The blocks that fast commits change. Blocks the calling thread.
pub(super) fn replay(
    device: &Arc<dyn Device>,
    block_size: u32,
    options: &OpenOptions,
    fast: &FastCommits,
) -> Result<Blocks, Error> {
    let scratch = Arc::new(Scratch::new(device.clone(), block_size));
    let over: Arc<dyn Device> = scratch.clone();
    let mounted = look(&over, None, options, Vec::new(), Descriptors::Whole)?;
    let options = OpenOptions {
        write: true,
        mounted_on: None,
        access_times: AccessTimes::Never,
        commit_interval: NEVER,
        // The operations were acknowledged, so they may use reserved blocks, whoever recovers the volume.
        caller: Caller {
            uid: 0,
            gids: Vec::new(),
        },
        ..options.clone()
    };
    let fs = Fs::new(mounted.parts, &options, mounted.data_journalled);
    journal::guard(&fs, &over)?;
    let in_memory = Journal::in_memory(fs.level, NEVER, fs.hooks());
    fs.set_journal(in_memory);
    fast_commit::replay(&fs, &fast.commits)?;
    Ok(scratch.take())
}

#[cfg(test)]
mod tests;
