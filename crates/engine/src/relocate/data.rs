//! Moves the data of files.
//!
//! Input: inodes with something behind the limit. Output: their data in front of it. Invariants: data is copied into claimed blocks, and
//! all copies of a batch have ended before the first handle that maps one of them and relies on them; so after a crash a file maps old
//! blocks or complete copies. A handle maps one piece and frees its old blocks, which nothing writes to before it is durable. Limits:
//! unwritten blocks are not copied. Blocks of directories, symbolic links and values are copied as data is: nothing of them is in the log
//! when data begins to move, and nothing changes them until it has moved.

use super::copy::{BATCH_BYTES, copy};
use super::edits::{ForNodes, credits_to_map, write_map};
use super::job::Job;
use super::pieces::{Piece, Pieces};
use super::tree::{Data, Part, read_inode, walk};
use super::{nodes, orphan_file};
use crate::alloc::{Alloc, Loan, MARK_CREDITS, Reach, Run};
use crate::error::Error;
use crate::inode::Fs;
use crate::map::edit::{self, NewRun};
use diorite_block::Epoch;
use diorite_format::{FsBlock, Ino, Inode as DiskInode, MapKind, indirect};
use std::cell::Cell;

/// Pieces of a batch.
const BATCH_PIECES: usize = 512;
/// Blocks of pointers to data that one piece of a file without extents touches.
const MOST_POINTER_BLOCKS: u32 = 4;

/// Pieces with their new places.
struct Batch<'a> {
    ready: Vec<(Piece, Loan<'a>, FsBlock)>,
    bytes: u64,
}

/// Moves everything of these files that is behind the limit. Blocks.
pub(super) fn move_all(job: &mut Job<'_>, files: &[Ino]) -> Result<(), Error> {
    let mut batch = Batch {
        ready: Vec::new(),
        bytes: 0,
    };
    for ino in files {
        nodes::move_nodes(job, *ino)?;
        if *ino == Ino::RESIZE {
            // What it maps are fixed structures.
            continue;
        }
        if job.fs.sb.orphan_file() == Some(*ino) {
            orphan_file::move_blocks(job, *ino)?;
            continue;
        }
        let (disk, mut pieces) = pieces_of(job, *ino)?;
        let mut goal = job.fs.alloc()?.goal_of(&job.fs.sb, *ino);
        // The first one is taken from the end.
        pieces.reverse();
        while let Some(mut piece) = pieces.pop() {
            let loan = claim(job.fs, &disk, &mut piece, &mut goal, &mut pieces)?;
            batch.bytes += u64::from(piece.old.len) * u64::from(job.fs.block_size());
            batch.ready.push((piece, loan.0, loan.1));
            if batch.bytes >= BATCH_BYTES || batch.ready.len() >= BATCH_PIECES {
                carry_out(job, &mut batch)?;
            }
        }
    }
    carry_out(job, &mut batch)
}

fn pieces_of(job: &Job<'_>, ino: Ino) -> Result<(DiskInode, Vec<Piece>), Error> {
    let fs = job.fs;
    let disk = read_inode(fs, ino)?;
    let mut pieces = Pieces::of(&fs.sb, ino, &job.limit.region);
    walk(fs, &disk, &mut |part| match part {
        Part::Data(run) => pieces.add(run),
        Part::Node(_) => Ok(()),
    })?;
    Ok((disk, pieces.all))
}

/// Claims a place for the piece, or for its beginning; the rest becomes the next piece.
fn claim<'a>(
    fs: &'a Fs,
    disk: &DiskInode,
    piece: &mut Piece,
    goal: &mut FsBlock,
    rest: &mut Vec<Piece>,
) -> Result<(Loan<'a>, FsBlock), Error> {
    let alloc = fs.alloc()?;
    let want = piece.old.len.min(most_blocks(fs, disk));
    let run = fs.or_commit(|| alloc.claim(fs, *goal, want, Reach::All))?;
    let loan = Loan::new(alloc, fs, run);
    *goal = run.end();
    // The volume's last cluster may be short, and then its new place is longer than it.
    let len = run.len.min(piece.old.len);
    rest.extend(piece.cut(len));
    Ok((loan, run.start))
}

/// The most blocks that one handle maps.
fn most_blocks(fs: &Fs, disk: &DiskInode) -> u32 {
    match disk.map_kind() {
        MapKind::Indirect => MOST_POINTER_BLOCKS * indirect::pointers_per_block(&fs.sb),
        _ => u32::MAX,
    }
}

/// Copies and maps the pieces of the batch.
fn carry_out(job: &mut Job<'_>, batch: &mut Batch<'_>) -> Result<(), Error> {
    let fs = job.fs;
    let began = fs.data_epoch();
    let written = |(piece, _, new): &(Piece, Loan<'_>, FsBlock)| {
        let runs = piece.runs.iter().filter(|run| !run.unwritten);
        let to = |run: &Data| (run.at, moved(piece, *new, run.at), run.len);
        runs.map(to).collect::<Vec<_>>()
    };
    let copies: Vec<_> = batch.ready.iter().flat_map(written).collect();
    copy(fs, &copies)?;
    batch.bytes = 0;
    for (piece, loan, new) in batch.ready.drain(..) {
        remap(fs, &piece, (loan, new), began)?;
        job.moved(u64::from(piece.old.len))?;
    }
    Ok(())
}

/// The new place of a block of the piece.
fn moved(piece: &Piece, new: FsBlock, at: FsBlock) -> FsBlock {
    FsBlock::new(new.get() + (at.get() - piece.old.start.get()))
}

/// Maps a piece at its new place and frees the old one. `began`: when the copy of its data began.
fn remap(
    fs: &Fs,
    piece: &Piece,
    (loan, new): (Loan<'_>, FsBlock),
    began: Epoch,
) -> Result<(), Error> {
    let runs: Vec<NewRun> = piece
        .runs
        .iter()
        .map(|run| NewRun {
            file_block: run.file_block,
            len: run.len,
            start: moved(piece, new, run.at),
            unwritten: run.unwritten,
        })
        .collect();
    let disk = read_inode(fs, piece.ino)?;
    let target = Alloc::around(
        &fs.sb,
        Run {
            start: new,
            len: piece.old.len,
        },
    )?;
    let used = Cell::new(false);
    let done = fs.in_handle(credits(fs, &disk, piece, &runs), |handle| {
        handle.relies_on(began)?;
        let mut disk = read_inode(fs, piece.ino)?;
        let mut blocks = ForNodes { fs, handle };
        let range = piece.file_blocks();
        let edited = edit::replace(handle, &mut blocks, &mut disk, range, &runs);
        let edited = fs.watched(edited)?;
        let alloc = fs.alloc()?;
        handle.or_abort((|| {
            alloc.mark_used(handle, target)?;
            used.set(true);
            alloc.free(handle, piece.old.start, piece.old.len)?;
            write_map(fs, handle, &disk, &edited)
        })())
    });
    if used.get() {
        let _claim_has_ended = loan.keep();
    }
    done
}

/// Credits of [`remap`].
fn credits(fs: &Fs, disk: &DiskInode, piece: &Piece, new: &[NewRun]) -> u32 {
    let groups = piece.old.len / fs.sb.geometry().blocks_per_group() + 2;
    credits_to_map(fs, disk, new).saturating_add(MARK_CREDITS * groups.min(fs.sb.group_count()))
}
