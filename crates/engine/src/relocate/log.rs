//! Moves the journal of a volume that has it in an inode.
//!
//! Input: the journal's inode; a claimed place for what of it lies behind the limit. Output: a journal that works there; its old place is
//! free. Blocks in front of the limit stay in their place of the log: it needs no more free space than it has blocks behind the limit.
//! Invariants: at every moment the journal's inode on the device leads to a log that may be used: 1. a transaction marks the new place as
//! used, which nobody owns yet, and makes nodes for the new map; all is brought home, the log is empty, and the volume is marked as clean;
//! 2. the new place gets zeros, and the first block of the log the superblock of an empty log, durably; the log is empty in its old place,
//! too, so either superblock fits it; 3. the inode with the new map is written in place, past the log, and then the copy of the map in the
//! superblock; 4. the journal goes on at the new place, and a transaction there frees the old one. A crash before step 3 has ended leaves
//! the new place used by nobody, one behind it the old place, which `e2fsck -f` gives back; nothing else is lost, and any driver can mount
//! the volume. Blocks that stay have what older transactions left in them, as those of every log that goes round. Limits: the inode's slot
//! lies in one sector, so writing it is atomic; a log in fewer runs is preferred, but any number will do.

use super::copy::{AT_ONCE, bio_parts, well};
use super::edits::{ForNodes, credits_to_map, free_around};
use super::job::{HELP, Job, Limit};
use super::tree::{Data, Part, read_inode, walk};
use crate::alloc::{Alloc, Loan, MARK_CREDITS, Reach, Region, Run};
use crate::disk::Zone;
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::inode::Fs;
use crate::journal::Places;
use crate::map::edit::{self, NewRun};
use crate::op::Op;
use diorite_block::{Bio, BioList, Buf};
use diorite_format::extent::ExtentNode;
use diorite_format::inode::I_BLOCK_SIZE;
use diorite_format::{FsBlock, Ino, Inode as DiskInode, MapKind};
use std::cell::Cell;

/// The log's new place.
pub(super) struct Place<'a> {
    ino: Ino,
    claimed: Vec<(Loan<'a>, Run)>,
    /// What stays where it is.
    kept: Vec<Run>,
    /// The whole log in its order: kept runs, and claimed ones as far as the log takes them.
    runs: Vec<NewRun>,
}

/// A part of the log, and where it lies now; none if it is to move.
struct Stretch {
    file_block: u32,
    len: u32,
    stays: Option<FsBlock>,
}

/// Claims a place for what of the journal's file lies behind the limit, in as few runs as possible; with clusters, or if the file would be
/// in too many pieces, for all of it. Blocks while bitmaps are read.
pub(super) fn claim<'a>(fs: &'a Fs, ino: Ino, limit: &Limit) -> Result<Place<'a>, Error> {
    let disk = read_inode(fs, ino)?;
    if moves_in_parts(fs) {
        let place = claim_for(fs, ino, &stretches(fs, &disk, limit)?)?;
        if credits_to_map(fs, &without_map(&disk)?, &place.runs) <= fs.most_credits_alone() {
            return Ok(place);
        }
    }
    let all = Stretch {
        file_block: 0,
        len: u32::try_from(disk.size / u64::from(fs.block_size())).unwrap_or(u32::MAX),
        stays: None,
    };
    claim_for(fs, ino, &[all])
}

/// Whether blocks of the log may stay while others move: not with clusters, which only move as a whole.
pub(super) fn moves_in_parts(fs: &Fs) -> bool {
    fs.sb.geometry().cluster_ratio() == 1
}

/// The parts of the log in front of the limit, and behind it.
fn stretches(fs: &Fs, disk: &DiskInode, limit: &Limit) -> Result<Vec<Stretch>, Error> {
    let mut all: Vec<Stretch> = Vec::new();
    walk(fs, disk, &mut |part| {
        let Part::Data(run) = part else {
            return Ok(());
        };
        let mut file_block = run.file_block;
        let blocks = run.at.get()..run.at.get() + u64::from(run.len);
        for (part, moves) in limit.region.divided(blocks) {
            let len = u32::try_from(part.end - part.start).expect("a part of a run");
            let stays = (!moves && !run.unwritten).then_some(FsBlock::new(part.start));
            match all.last_mut() {
                // One run for what lies in several, if there is one.
                Some(last)
                    if stays.is_none()
                        && last.stays.is_none()
                        && last.file_block + last.len == file_block =>
                {
                    last.len += len;
                }
                _ => all.push(Stretch {
                    file_block,
                    len,
                    stays,
                }),
            }
            file_block += len;
        }
        Ok(())
    })?;
    Ok(all)
}

fn claim_for<'a>(fs: &'a Fs, ino: Ino, parts: &[Stretch]) -> Result<Place<'a>, Error> {
    let alloc = fs.alloc()?;
    let mut goal = alloc.goal_of(&fs.sb, ino);
    let (mut claimed, mut kept, mut runs) = (Vec::new(), Vec::new(), Vec::new());
    for part in parts {
        let (mut file_block, mut left) = (part.file_block, part.len);
        while left > 0 {
            let (start, len) = match part.stays {
                Some(start) => {
                    kept.push(Run { start, len: left });
                    (start, left)
                }
                None => {
                    let run = fs.or_commit(|| alloc.claim(fs, goal, left, Reach::All))?;
                    claimed.push((Loan::new(alloc, fs, run), run));
                    goal = run.end();
                    (run.start, run.len.min(left))
                }
            };
            runs.push(NewRun {
                file_block,
                len,
                start,
                unwritten: false,
            });
            (file_block, left) = (file_block + len, left - len);
        }
    }
    Ok(Place {
        ino,
        claimed,
        kept,
        runs,
    })
}

/// Moves the journal to the claimed place. Blocks.
pub(super) fn move_log(job: &mut Job<'_>, place: Place<'_>) -> Result<(), Error> {
    let fs = job.fs;
    let old = read_inode(fs, place.ino)?;
    let kept = Region::of(
        place
            .kept
            .iter()
            .map(|run| run.start.get()..run.end().get()),
    );
    let (mut data, mut nodes) = (Vec::new(), Vec::new());
    walk(fs, &old, &mut |part| {
        match part {
            Part::Node(at) => nodes.push(at),
            Part::Data(run) => data.extend(goes(fs, &run, &kept)?),
        }
        Ok(())
    })?;
    let claimed: Vec<Run> = place.claimed.iter().map(|(_, run)| *run).collect();
    let used = Cell::new(false);
    let new = map(fs, &old, (&claimed, &used), (&place.kept, &place.runs));
    for (loan, _) in place.claimed {
        if used.get() {
            let _claim_has_ended = loan.keep();
        }
    }
    let new = new?;
    fs.make_clean()?;
    write_zeros(fs, &claimed)?;
    let journal = fs.journal()?;
    let places = place
        .runs
        .iter()
        .map(|run| (run.file_block, run.start, run.len));
    let places = Places {
        runs: places.collect(),
    };
    journal.move_log(fs, places, || switch(fs, &new))?;
    let all = claimed.iter().chain(&place.kept);
    let zone = all.map(|run| (run.start, u64::from(run.len)));
    fs.guard_moved_journal(Zone::of("the journal", zone));
    free(fs, &data, &nodes)?;
    let blocks = data.iter().map(|run| u64::from(run.len)).sum::<u64>();
    let counted = nodes
        .iter()
        .filter(|at| !moves_in_parts(fs) || job.is_in_region(**at))
        .count();
    let of_nodes = counted as u64 * u64::from(fs.sb.geometry().cluster_ratio());
    job.moved(blocks + of_nodes)
}

/// What of a run of the old place is free afterwards: the clusters of which nothing is kept.
fn goes(fs: &Fs, run: &Data, kept: &Region) -> Result<Vec<Run>, Error> {
    let blocks = run.at.get()..run.at.get() + u64::from(run.len);
    let parts = kept.divided(blocks).into_iter();
    let parts = parts.filter(|(_, is_kept)| !is_kept).map(|(part, _)| {
        let len = u32::try_from(part.end - part.start).expect("a part of a run");
        let start = FsBlock::new(part.start);
        Alloc::around(&fs.sb, Run { start, len })
    });
    parts.collect()
}

/// The inode, with a map that has nothing yet.
fn without_map(old: &DiskInode) -> Result<DiskInode, Error> {
    let mut empty = old.clone();
    empty.i_block = [0; I_BLOCK_SIZE];
    if old.map_kind() == MapKind::Extents {
        ExtentNode::empty_root().write_root(&mut empty.i_block)?;
    }
    Ok(empty)
}

/// Marks the new place as used, and notes that in `used`; makes the nodes of the new map. Returns the inode with that map, which is written
/// nowhere yet.
fn map(
    fs: &Fs,
    old: &DiskInode,
    (runs, used): (&[Run], &Cell<bool>),
    (kept, new): (&[Run], &[NewRun]),
) -> Result<DiskInode, Error> {
    let empty = without_map(old)?;
    let end = new.last().map_or(0, |run| run.file_block + run.len);
    let credits = credits_to_map(fs, &empty, new);
    if credits > fs.most_credits_alone() {
        let what = format!(
            "the journal is in {} pieces, too many to be mapped at once",
            new.len()
        );
        return Err(Error::refused(what, HELP));
    }
    fs.in_handle(credits, |handle| {
        let mut made = empty.clone();
        let mut blocks = ForNodes { fs, handle };
        let edited = edit::replace(handle, &mut blocks, &mut made, 0..end, new)?;
        handle.or_abort(fs.alloc()?.mark_all_used(handle, runs))?;
        used.set(true);
        let data: u64 = runs.iter().chain(kept).map(|run| u64::from(run.len)).sum();
        let nodes = u64::from(edited.nodes_taken) * u64::from(fs.sb.geometry().cluster_ratio());
        made.blocks = (data + nodes) * u64::from(fs.block_size() / 512);
        Ok(made)
    })
}

/// Writes the journal's inode in place, and then the copy of its map in the superblock. Everything is home, and the log is empty.
fn switch(fs: &Fs, new: &DiskInode) -> Result<(), Error> {
    let (block, from) = fs.inode_place(new.ino)?;
    let to = from + fs.sb.geometry().inode_size() as usize;
    let write = |raw: &mut [u8]| Ok(new.write(&fs.sb, &mut raw[from..to])?);
    fs.change_at_home(
        (block, Kind::InodeTable.into()),
        |_| Ok(()),
        write,
        |_| Ok(()),
    )?;
    let mut words = [0; 17];
    for (word, bytes) in words.iter_mut().zip(new.i_block.chunks_exact(4)) {
        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    words[15] = u32::try_from(new.size >> 32).expect("the upper half");
    words[16] = u32::try_from(new.size & u64::from(u32::MAX)).expect("the lower half");
    fs.edit_super_at_home(|edit| edit.set_journal_backup(&words), |_| Ok(()))
}

/// Writes zeros to the new place, durably: no old contents may look like a log.
fn write_zeros(fs: &Fs, runs: &[Run]) -> Result<(), Error> {
    let runs = runs.iter().map(|run| (run.start, run.start, run.len));
    let parts = bio_parts(fs, runs);
    for parts in parts.chunks(AT_ONCE) {
        let zeros = parts.iter().map(|(pos, _, bytes)| {
            let len = usize::try_from(*bytes).expect("no more than a bio has");
            Bio::write(*pos, Buf::zeroed(len), 0)
        });
        let zeros: BioList = zeros.collect();
        fs.note_written(zeros.iter().map(|bio| bio.len).sum());
        for bio in fs.blocking.run_all(zeros) {
            well(fs, &bio, Op::Write)?;
        }
    }
    fs.flush()
}

/// Frees the old place.
fn free(fs: &Fs, data: &[Run], nodes: &[FsBlock]) -> Result<(), Error> {
    let alloc = fs.alloc()?;
    let per_group = fs.sb.geometry().blocks_per_group();
    for run in each_once(data) {
        let groups = run.len / per_group + 2;
        fs.in_handle(MARK_CREDITS * groups.min(fs.sb.group_count()), |handle| {
            handle.or_abort(alloc.free(handle, run.start, run.len))
        })?;
    }
    for at in nodes {
        fs.in_handle(1 + MARK_CREDITS, |handle| {
            handle.forget(*at);
            handle.or_abort(free_around(fs, handle, *at))
        })?;
    }
    Ok(())
}

/// The runs in the order of the volume, with each block once. The log's own order is any, and its runs may share clusters.
fn each_once(data: &[Run]) -> Vec<Run> {
    let mut data = data.to_vec();
    data.sort_unstable_by_key(|run| run.start);
    let mut all: Vec<Run> = Vec::with_capacity(data.len());
    for run in data {
        let done = all
            .last()
            .map_or(run.start, |last| last.end().max(run.start));
        if let Some(len) = run
            .end()
            .get()
            .checked_sub(done.get())
            .filter(|len| *len > 0)
        {
            let len = u32::try_from(len).expect("a part of a run");
            all.push(Run { start: done, len });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The defect: of a log whose runs lie in another order than their blocks, only some were given back.
    #[test]
    fn every_block_of_the_old_place_is_freed_once() {
        let run = |start, len| Run {
            start: FsBlock::new(start),
            len,
        };
        let shown = |runs: &[Run]| -> Vec<(u64, u32)> {
            let runs = each_once(runs);
            runs.iter().map(|run| (run.start.get(), run.len)).collect()
        };
        let log = [run(160, 32), run(16, 16), run(64, 16)];
        assert_eq!(shown(&log), [(16, 16), (64, 16), (160, 32)]);
        let sharing = [run(16, 16), run(16, 32), run(32, 16), run(40, 16)];
        assert_eq!(shown(&sharing), [(16, 16), (32, 16), (48, 8)]);
        assert_eq!(shown(&[]), []);
    }
}
