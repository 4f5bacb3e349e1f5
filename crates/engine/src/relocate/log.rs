//! Moves the journal of a volume that has it in an inode.
//!
//! Input: the journal's inode; a claimed place for all of it. Output: a journal that works at the new place; the old place free.
//! Invariants: at every moment the journal's inode on the device leads to a log that may be used: 1. a transaction marks the new place as
//! used, which nobody owns yet, and makes nodes for the new map; all is brought home, the log is empty, and the volume is marked as clean;
//! 2. the new place gets zeros and the superblock of an empty log, durably; 3. the inode with the new map is written in place, past the
//! log, and then the copy of the map in the superblock; 4. the journal goes on at the new place, and a transaction there frees the old one.
//! A crash before step 3 has ended leaves the new place used by nobody, one behind it the old place, which `e2fsck -f` gives back; nothing
//! else is lost, and any driver can mount the volume. Limits: the inode's slot lies in one sector, so writing it is atomic; a log in fewer
//! runs is preferred, but any number will do.

use super::copy::{AT_ONCE, bio_parts, well};
use super::edits::{ForNodes, credits_to_map, free_around};
use super::job::{HELP, Job};
use super::tree::{Part, read_inode, walk};
use crate::alloc::{Alloc, Loan, MARK_CREDITS, Run};
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

/// A claimed place for the log.
pub(super) struct Place<'a> {
    ino: Ino,
    /// The claimed runs, in the order of the log, and how many blocks of each the log takes.
    runs: Vec<(Loan<'a>, Run, u32)>,
}

/// Claims a place for the journal's file, in as few runs as possible. Blocks while bitmaps are read.
pub(super) fn claim(fs: &Fs, ino: Ino) -> Result<Place<'_>, Error> {
    let (disk, alloc) = (read_inode(fs, ino)?, fs.alloc()?);
    let mut left = blocks_of(fs, &disk);
    let mut goal = alloc.goal_of(&fs.sb, ino);
    let mut runs = Vec::new();
    while left > 0 {
        let run = fs.or_commit(|| alloc.claim(fs, goal, left, true))?;
        let len = run.len.min(left);
        runs.push((Loan::new(alloc, fs, run), run, len));
        (left, goal) = (left - len, run.end());
    }
    Ok(Place { ino, runs })
}

/// The length of the journal's file in blocks.
fn blocks_of(fs: &Fs, disk: &DiskInode) -> u32 {
    u32::try_from(disk.size / u64::from(fs.block_size())).unwrap_or(u32::MAX)
}

/// Moves the journal to the claimed place. Blocks.
pub(super) fn move_log(job: &mut Job<'_>, place: Place<'_>) -> Result<(), Error> {
    let fs = job.fs;
    let old = read_inode(fs, place.ino)?;
    let (mut data, mut nodes) = (Vec::new(), Vec::new());
    walk(fs, &old, &mut |part| {
        match part {
            Part::Node(at) => nodes.push(at),
            Part::Data(run) => data.push(Alloc::around(
                &fs.sb,
                Run {
                    start: run.at,
                    len: run.len,
                },
            )?),
        }
        Ok(())
    })?;
    let runs: Vec<Run> = place.runs.iter().map(|(_, run, _)| *run).collect();
    let new_runs = mapped(&place);
    let used = Cell::new(false);
    let new = map(fs, &old, (&runs, &used), &new_runs);
    for (loan, ..) in place.runs {
        if used.get() {
            let _claim_has_ended = loan.keep();
        }
    }
    let new = new?;
    fs.make_clean()?;
    write_zeros(fs, &new_runs)?;
    let journal = fs.journal()?;
    let places = new_runs
        .iter()
        .map(|run| (run.file_block, run.start, run.len));
    let places = Places {
        runs: places.collect(),
    };
    journal.move_log(fs, places, || switch(fs, &new))?;
    let zone = runs.iter().map(|run| (run.start, u64::from(run.len)));
    fs.guard_moved_journal(Zone::of("the journal", zone));
    free(fs, &data, &nodes)?;
    let blocks = data.iter().map(|run| u64::from(run.len)).sum::<u64>();
    let of_nodes = nodes.len() as u64 * u64::from(fs.sb.geometry().cluster_ratio());
    job.moved(blocks + of_nodes)
}

/// The new map, as runs.
fn mapped(place: &Place<'_>) -> Vec<NewRun> {
    let mut next = 0;
    let runs = place.runs.iter().map(|(_, run, len)| {
        let file_block = next;
        next += len;
        NewRun {
            file_block,
            len: *len,
            start: run.start,
            unwritten: false,
        }
    });
    runs.collect()
}

/// Marks the new place as used, and notes that in `used`; makes the nodes of the new map. Returns the inode with that map, which is written
/// nowhere yet.
fn map(
    fs: &Fs,
    old: &DiskInode,
    (runs, used): (&[Run], &Cell<bool>),
    new: &[NewRun],
) -> Result<DiskInode, Error> {
    let mut empty = old.clone();
    empty.i_block = [0; I_BLOCK_SIZE];
    if old.map_kind() == MapKind::Extents {
        ExtentNode::empty_root().write_root(&mut empty.i_block)?;
    }
    let end = new.last().map_or(0, |run| run.file_block + run.len);
    let clusters: u64 = runs.iter().map(|run| u64::from(run.len)).sum();
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
        let nodes = u64::from(edited.nodes_taken) * u64::from(fs.sb.geometry().cluster_ratio());
        made.blocks = (clusters + nodes) * u64::from(fs.block_size() / 512);
        Ok(made)
    })
}

/// Writes the journal's inode in place, and then the copy of its map in the superblock. Everything is home, and the log is empty.
fn switch(fs: &Fs, new: &DiskInode) -> Result<(), Error> {
    let (block, from) = fs.inode_place(new.ino)?;
    let to = from + fs.sb.geometry().inode_size() as usize;
    let write = |raw: &mut [u8]| Ok(new.write(&fs.sb, &mut raw[from..to])?);
    fs.change_at_home((block, Kind::InodeTable.into()), |_| Ok(()), write)?;
    let mut words = [0; 17];
    for (word, bytes) in words.iter_mut().zip(new.i_block.chunks_exact(4)) {
        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    words[15] = u32::try_from(new.size >> 32).expect("the upper half");
    words[16] = u32::try_from(new.size & u64::from(u32::MAX)).expect("the lower half");
    fs.edit_super_at_home(|edit| edit.set_journal_backup(&words))
}

/// Writes zeros to the new place, durably: no old contents may look like a log.
fn write_zeros(fs: &Fs, runs: &[NewRun]) -> Result<(), Error> {
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
    // Runs of the file may share clusters.
    let mut all: Vec<Run> = Vec::with_capacity(data.len());
    for run in data {
        if all.last().is_none_or(|last| last.end() <= run.start) {
            all.push(*run);
        }
    }
    let per_group = fs.sb.geometry().blocks_per_group();
    for run in all {
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
