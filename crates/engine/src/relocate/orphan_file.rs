//! Moves the orphan file.
//!
//! Input: its inode; the list is empty. Output: the file in front of the limit, on disk and in the list in memory. Invariants: one handle
//! for each block: the copy, with the checksum for its new place, the map, the old block freed and revoked. Limits: not with clusters of
//! more than one block.

use super::edits::{ForNodes, credits_to_map, write_map};
use super::job::Job;
use super::tree::{Part, read_inode, walk};
use crate::alloc::{Loan, MARK_CREDITS, Reach};
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::map::edit::{self, NewRun};
use diorite_format::{FsBlock, Ino, orphan};
use std::cell::Cell;

/// Moves the blocks of the orphan file that are behind the limit; its nodes have moved. Blocks.
pub(super) fn move_blocks(job: &mut Job<'_>, ino: Ino) -> Result<(), Error> {
    let (fs, alloc) = (job.fs, job.fs.alloc()?);
    let mut behind = Vec::new();
    walk(fs, &read_inode(fs, ino)?, &mut |part| {
        if let Part::Data(run) = part {
            let places = (0..run.len).map(|n| (run.file_block + n, run.at.get() + u64::from(n)));
            behind.extend(places.map(|(block, at)| (block, FsBlock::new(at))));
        }
        Ok(())
    })?;
    behind.retain(|(_, at)| job.is_in_region(*at));
    let mut goal = alloc.goal_of(&fs.sb, ino);
    for (file_block, from) in behind {
        let run = fs.or_commit(|| alloc.claim(fs, goal, 1, Reach::All))?;
        let (loan, to) = (Loan::new(alloc, fs, run), run.start);
        goal = run.end();
        let new = [NewRun {
            file_block,
            len: 1,
            start: to,
            unwritten: false,
        }];
        // The two blocks, one of which is revoked, and the old one's bitmap.
        let credits = credits_to_map(fs, &read_inode(fs, ino)?, &new) + 2 + MARK_CREDITS;
        let used = Cell::new(false);
        let done = fs.in_handle(credits, |handle| {
            let mut disk = read_inode(fs, ino)?;
            let raw = handle.read(from, Kind::Data, |_| Ok(()))?;
            let mut blocks = ForNodes { fs, handle };
            let range = file_block..file_block + 1;
            let edited = edit::replace(handle, &mut blocks, &mut disk, range, &new)?;
            handle.or_abort((|| {
                alloc.mark_used(handle, run)?;
                used.set(true);
                handle.create(to, Kind::Data, |bytes| {
                    bytes.copy_from_slice(&raw);
                    orphan::seal(&fs.sb, &disk, to, bytes);
                });
                handle.forget(from);
                alloc.free(handle, from, 1)?;
                write_map(fs, handle, &disk, &edited)
            })())
        });
        if used.get() {
            let _claim_has_ended = loan.keep();
        }
        done?;
        fs.orphans.moved(from, to);
        job.moved(1)?;
    }
    Ok(())
}
