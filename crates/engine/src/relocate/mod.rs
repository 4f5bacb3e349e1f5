//! The relocate module: empties the end of a file system, so that it can be made smaller, or places where its own structures are to lie.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `job` | what the parts of an evacuation share: the limit, the progress |
//! | `survey` | a limit -> what lies behind it, and who owns it; or why it cannot move |
//! | `owners` | runs of blocks with their owners -> whether they are exactly the blocks in use |
//! | `tree` | an inode -> the nodes and the runs of its map |
//! | `pieces` | the runs of a file behind the limit -> pieces of whole clusters that move together |
//! | `copy` | runs of blocks -> the same bytes at other places |
//! | `edits` | an edited map -> the inode with it; blocks for nodes, credits |
//! | `data` | pieces -> their data copied, then mapped at its new place |
//! | `names` | inode numbers -> the places that name them, and these changed |
//! | `numbers` | inodes behind the limit -> the same under other numbers |
//! | `attributes` | blocks of attributes -> the same at another place, with all their users |
//! | `orphan_file`, `log` | the orphan file, the journal -> the same at another place |
//! | `nodes` | a node of a map -> the same at another place, with the pointer to it |
//!
//! Input: a file system that is open for writing and used by nobody else, and a [`Limit`]. Output: everything behind the limit, or in its
//! region, is free, but the fixed structures of the groups there; what was moved is committed and home. Invariants: it is checked before
//! the first change that everything there can move and has a place; each handle leaves a consistent file system with the same contents, so
//! a crash, an error or the caller's stop between two of them loses nothing; data is copied into free blocks, and a map names them only in
//! a handle that relies on the copies; times do not change. Limits: a handle is a part of one file; no in-core inode may be in use, as the
//! maps are changed on disk; without a journal a crash needs e2fsck, which may put files and directories that were getting new numbers into
//! lost+found.

mod attributes;
mod copy;
mod data;
mod edits;
mod job;
mod log;
mod names;
mod nodes;
mod numbers;
mod orphan_file;
mod owners;
mod pieces;
mod survey;
#[cfg(test)]
pub(crate) mod tests;
mod tree;

pub(crate) use copy::copy as copy_runs;
pub use job::Moved;
pub(crate) use job::{Limit, Progress};

use crate::delete;
use crate::error::Error;
use crate::inode::Fs;
use job::Job;
use std::sync::Arc;
use survey::Survey;

/// Empties the volume behind the limit. After a success nothing is handed out behind the limit while the volume is open. Blocks; no lock
/// may be held.
///
/// # Errors
/// `Refused`, `NoSpace` or `NoInodes` if something behind the limit cannot move, and `Busy` if an inode is in use: nothing was changed.
/// Later `NoSpace` (maps may need more nodes), the device's errors, and those of `progress`: something has moved, and the volume is
/// consistent.
pub(crate) fn evacuate(
    fs: &Arc<Fs>,
    limit: &Limit,
    progress: Progress<'_>,
) -> Result<Moved, Error> {
    let alloc = fs.alloc()?;
    begin(fs)?;
    let done = alloc
        .limit(fs, &limit.region, limit.inodes)
        .and_then(|()| run(fs, limit, progress));
    if done.is_err() {
        // The first error is reported. What stays claimed is free again when the volume is opened the next time.
        let _first_error_wins = alloc.end_limit(fs);
    }
    done
}

/// Brings everything home and drops what is in memory of it: then the device has all contents, and no log has older ones.
fn begin(fs: &Arc<Fs>) -> Result<(), Error> {
    fs.recent.close();
    delete::commit_deleted(fs)?;
    // Noted times are written, too.
    fs.make_clean()?;
    if let Some(inode) = fs.known_inodes().first() {
        let path = format!("inode {}", inode.ino);
        return Err(Error::Busy { path });
    }
    if fs.orphans.any() {
        let path = "an inode without a name".to_owned();
        return Err(Error::Busy { path });
    }
    bring_home(fs)
}

/// Commits, writes everything home and drops clean blocks from the cache.
fn bring_home(fs: &Fs) -> Result<(), Error> {
    fs.commit_running()?;
    fs.journal()?.checkpoint(fs)?;
    fs.cache.drop_all_clean();
    Ok(())
}

fn run(fs: &Fs, limit: &Limit, progress: Progress<'_>) -> Result<Moved, Error> {
    let mut survey = Survey::make(fs, limit)?;
    let numbers = survey.numbers.inodes.len();
    let moved = Moved {
        of_blocks: survey.blocks,
        of_inodes: u32::try_from(numbers).unwrap_or(u32::MAX),
        ..Moved::default()
    };
    let mut job = Job {
        fs,
        limit,
        moved,
        progress,
    };
    // Before others take parts of the long free runs.
    let log = survey
        .journal
        .map(|ino| log::claim(fs, ino, limit))
        .transpose()?;
    // Numbers first: the places that name an inode are known by the blocks that they are in now.
    let new = numbers::move_all(&mut job, &survey.numbers)?;
    if numbers > 0 {
        bring_home(fs)?;
        let all = survey.attributes.values_mut().flatten();
        all.chain(&mut survey.files)
            .for_each(|ino| *ino = new.of(*ino));
    }
    attributes::move_all(&mut job, &survey.attributes)?;
    data::move_all(&mut job, &survey.files)?;
    bring_home(fs)?;
    if let Some(place) = log {
        log::move_log(&mut job, place)?;
        bring_home(fs)?;
    }
    survey::check_empty(fs, limit)?;
    Ok(job.moved)
}
