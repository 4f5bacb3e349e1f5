//! Puts the changes of an [`Image`] onto its device, all or none.
//!
//! Input: the image as it is on the device, and as it is to be. Output: the device with the latter. Invariants: all changed blocks are one
//! transaction of a log in the journal's form. Until that log is complete, and one sector says so, the device holds the old file system.
//! Afterwards recovery of the journal (by diorite, e2fsck or a mount) makes the new file system of it. The steps:
//!
//! 1. The log is written, and durable.
//! 2. One sector puts it in force: the journal's own superblock, if the file system's journal has room for all. Else the log is in free
//!    space: the inode of the journal, if there is one in the file system, or else the superblock, switches to it.
//! 3. The blocks go home. Those come last which lead to the log (the journal's inode, the descriptors), then the superblock. If these do
//!    not fit each other's old forms, the superblock says in between that there are no checksums, and its sectors are written one by
//!    one, so that at every moment whoever opens the device finds the log, and no copy of the superblock is asked. Then come the copies.
//! 4. The log is emptied. If it was in free space the old journal, or none, is in force again, and then its space is given back.
//!
//! The new file system has the log's space marked as in use, so a mount that recovers it and then writes does not overwrite the log.
//! Limits: a cut in step 4 can leave a larger journal, or space that nobody uses, which e2fsck gives back; without a journal there is the
//! moment in which bitmaps and their checksums are written, which e2fsck mends. A kernel cannot mount while blocks go home that say how
//! checksums are made, but replays the log: of 75 states of power cuts (the tests beside this) Linux 6.18 mounted 42 at once, 27 at the
//! second attempt, and 6 not before e2fsck; e2fsck made all of them whole.

use super::image::Image;
use super::journal::log_inode;
use super::quota::ro;
use super::sums::are_same;
use super::{Progress, SUMS, Step};
use crate::disk::{Blocks, edit_superblock, flush, raw_in, write_block};
use crate::error::Error;
use diorite_block::Blocking;
use diorite_format::features::{Features, Incompat};
use diorite_format::journal::JournalSuper;
use diorite_format::journal::write::{
    self as journal, LogPosition, NewJournal, Tag, block_sum, escape, modernise, set_position,
    tags_per_descriptor,
};
use diorite_format::superblock::{JournalPlace, SuperblockEdit};
use diorite_format::{FsBlock, GroupNo, Ino, Superblock, Tid};
use diorite_mkfs::parts::Out;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Blocks of the smallest journal.
const LEAST: u64 = 1024;

/// A log: its blocks on the device in their order, and the first of them.
struct Log {
    places: Vec<u64>,
    raw: Vec<u8>,
    parsed: JournalSuper,
}

impl Log {
    /// The journal in this inode of the image.
    fn of(image: &Image, ino: Ino) -> Result<Log, Error> {
        let inode = image.inode(ino)?;
        let places: Vec<u64> = image
            .map(&inode)?
            .blocks()
            .map(|(_, at)| at.get())
            .collect();
        let first = places.first().copied().unwrap_or(0);
        let raw = image.block(FsBlock::new(first))?.to_vec();
        Log::parse(image, places, raw)
    }

    /// A new one in these blocks.
    fn new(image: &Image, places: Vec<u64>) -> Result<Log, Error> {
        let mut raw = vec![0; image.sb.block_size() as usize];
        let new = NewJournal {
            block_size: image.sb.block_size(),
            maxlen: u32::try_from(places.len()).unwrap_or(u32::MAX),
            first: 1,
            fc_blocks: 0,
            users: 1,
            uuid: *image.sb.uuid(),
        };
        journal::init_super(&new, &mut raw);
        Log::parse(image, places, raw)
    }

    fn parse(image: &Image, places: Vec<u64>, mut raw: Vec<u8>) -> Result<Log, Error> {
        let parse =
            |raw: &[u8]| JournalSuper::parse(raw, image.sb.block_size(), places.len() as u64);
        let found = parse(&raw)?;
        if !found.is_empty() || found.errno != 0 {
            let what = "the journal has changes or an error; run e2fsck";
            return Err(Error::Damaged(what.to_owned()));
        }
        let wide = image.sb.features().incompat.has(Incompat::BIT64);
        modernise(&mut raw, wide, image.sb.has_metadata_csum());
        let parsed = parse(&raw)?;
        Ok(Log {
            places,
            raw,
            parsed,
        })
    }

    /// Blocks that a transaction of so many takes.
    fn blocks_for(&self, blocks: usize) -> u64 {
        let per = tags_per_descriptor(&self.parsed).max(1);
        (blocks + blocks.div_ceil(per) + 1) as u64
    }

    fn has_room(&self, blocks: usize) -> bool {
        let room = u64::from(self.parsed.log_end() - self.parsed.first);
        // The commit block is followed by a block that ends the log.
        self.blocks_for(blocks) < room
    }

    /// Writes all blocks as one transaction; durable, and not in force yet.
    fn write(
        &self,
        to: &Blocking,
        blocks: &Blocks,
        now: Duration,
        progress: Progress<'_>,
    ) -> Result<(), Error> {
        let size = self.parsed.block_size as usize;
        let tid = self.parsed.sequence;
        let mut out = Out::new(to);
        let place = |n: usize| self.places[self.parsed.first as usize + n] * size as u64;
        let all: Vec<_> = blocks.iter().collect();
        let (mut at, mut done) = (0, 0);
        let mut raw = vec![0; size];
        for part in all.chunks(tags_per_descriptor(&self.parsed)) {
            let mut copies = Vec::with_capacity(part.len());
            let mut tags = Vec::with_capacity(part.len());
            for (block, bytes) in part {
                let mut copy = bytes.to_vec();
                let escaped = escape(&mut copy);
                let sum = block_sum(&self.parsed, tid, &copy);
                tags.push(Tag {
                    block: **block,
                    escaped,
                    sum,
                });
                copies.push(copy);
            }
            journal::descriptor(&self.parsed, tid, &tags, &mut raw);
            out.put(place(at), &raw)?;
            for copy in &copies {
                at += 1;
                out.put(place(at), copy)?;
            }
            at += 1;
            done += part.len() as u64;
            progress(&Step::log(done, all.len() as u64));
        }
        journal::commit(
            &self.parsed,
            tid,
            now.as_secs(),
            now.subsec_nanos(),
            &mut raw,
        );
        out.put(place(at), &raw)?;
        // What an older transaction left there does not follow this one.
        raw.fill(0);
        out.put(place(at + 1), &raw)?;
        Ok(out.flush()?)
    }

    /// Puts the log in force, durably.
    fn begin(&mut self, to: &Blocking) -> Result<(), Error> {
        let position = LogPosition {
            start: self.parsed.first,
            sequence: self.parsed.sequence,
        };
        self.move_to(to, position)
    }

    /// Empties it, durably.
    fn end(&mut self, to: &Blocking, sb: &Superblock) -> Result<(), Error> {
        let wide = sb.features().incompat.has(Incompat::BIT64);
        modernise(&mut self.raw, wide, sb.has_metadata_csum());
        let position = LogPosition {
            start: 0,
            sequence: Tid::new(self.parsed.sequence.get().wrapping_add(1)),
        };
        self.move_to(to, position)
    }

    fn move_to(&mut self, to: &Blocking, position: LogPosition) -> Result<(), Error> {
        set_position(&mut self.raw, position);
        let size = u64::from(self.parsed.block_size);
        write_block(to, self.places[0] * size, &self.raw)?;
        flush(to)
    }
}

/// Puts `new` onto the device that holds `old`: see the module. Blocks.
pub(super) fn commit(
    old: &Image,
    mut new: Image,
    now: Duration,
    progress: Progress<'_>,
) -> Result<(), Error> {
    let blocks = new.finished(|edit| {
        edit.set_write_time(seconds(now));
        edit.set_needs_recovery(true);
    })?;
    let mut work = Commit { old, now, progress };
    let log = match old.sb.journal() {
        JournalPlace::Internal(ino) => Some(Log::of(old, ino)?),
        JournalPlace::None | JournalPlace::External { .. } => None,
    };
    match log {
        Some(log) if log.has_room(blocks.len()) => work.through(log, &blocks, &new),
        log => work.through_free_space(log, &blocks, &new),
    }
}

struct Commit<'c> {
    old: &'c Image,
    now: Duration,
    progress: Progress<'c>,
}

impl Commit<'_> {
    fn device(&self) -> &'_ Blocking {
        &self.old.blocking
    }

    fn edit_super(&self, change: impl FnOnce(&mut SuperblockEdit<'_>)) -> Result<(), Error> {
        edit_superblock(self.device(), self.old.sb.block_size(), change)
    }

    /// Through the journal that the file system has.
    fn through(&mut self, mut log: Log, blocks: &Blocks, new: &Image) -> Result<(), Error> {
        self.edit_super(|edit| edit.set_needs_recovery(true))?;
        log.write(&self.old.blocking, blocks, self.now, self.progress)?;
        self.copy_journal_inode(self.old, new)?;
        log.begin(self.device())?;
        self.bring_home(blocks, new)?;
        write_copies(new)?;
        log.end(self.device(), &new.sb)?;
        self.edit_super(|edit| edit.set_needs_recovery(false))
    }

    /// Through a log in free space.
    fn through_free_space(
        &mut self,
        own: Option<Log>,
        blocks: &Blocks,
        new: &Image,
    ) -> Result<(), Error> {
        let probe = Log::new(self.old, vec![0; LEAST as usize])?;
        // The blocks that the log itself changes: bitmaps and descriptors of groups, an inode, a few for chance.
        let more = 3 * self.old.sb.group_count() as usize;
        let want = (probe.blocks_for(blocks.len() + more) + 16).max(LEAST);
        let mut with_log = new.clone();
        let goal = GroupNo::new(0);
        let runs = with_log
            .take_space(goal, want)
            .map_err(|e| no_room(e, want, &self.old.sb))?;
        let count = self.old.nodes_for(&runs, Ino::JOURNAL)?;
        let mut nodes = Vec::new();
        for _ in 0..count {
            nodes.extend(with_log.take_space(goal, 1)?);
        }
        let backup = log_inode(&mut with_log, &runs, &nodes)?;
        let to_log = |edit: &mut SuperblockEdit<'_>| {
            edit.set_journal_inode(Ino::JOURNAL);
            edit.set_journal_backup(&backup);
            edit.set_needs_recovery(true);
        };
        let seconds = seconds(self.now);
        let all = with_log.finished(|edit| {
            to_log(edit);
            edit.set_write_time(seconds);
        })?;
        // Read now, as the device changes.
        let last = self.without_log(&all, blocks, &nodes)?;
        let places: Vec<u64> = runs.iter().cloned().flatten().collect();
        let mut log = Log::new(self.old, places)?;
        log.write(&self.old.blocking, &all, self.now, self.progress)?;
        log.begin(self.device())?;
        // The switch.
        let (of_nodes, at_table, before) = log_inode_block(self.old, &runs, &nodes)?;
        self.copy_journal_inode(&before, new)?;
        if own.is_some() {
            self.edit_super(|edit| edit.set_needs_recovery(true))?;
        }
        write_home(self.old, of_nodes.iter().map(|(at, raw)| (at, &**raw)))?;
        let inodes = before.block(at_table)?;
        write_home(self.old, std::iter::once((&at_table, &inodes[..])))?;
        if own.is_none() {
            self.edit_super(to_log)?;
        }
        self.bring_home(&all, &with_log)?;
        write_copies(new)?;
        log.end(self.device(), &new.sb)?;
        self.edit_super(|edit| edit.set_needs_recovery(false))?;
        self.give_back(own, last, new)
    }

    /// What differs between the new file system with a log in free space, `all`, and without it, in the form of the latter.
    fn without_log(
        &self,
        all: &Blocks,
        blocks: &Blocks,
        nodes: &[Range<u64>],
    ) -> Result<Blocks, Error> {
        let mut last = Blocks::new();
        for at in all.keys().filter(|at| all.get(at) != blocks.get(at)) {
            let bytes = match blocks.get(at) {
                Some(bytes) => bytes.clone(),
                None if nodes.iter().any(|run| run.contains(&at.get())) => continue,
                None => self.old.block(*at)?,
            };
            last.insert(*at, bytes);
        }
        Ok(last)
    }

    /// Puts the journal that the file system is to have in force again, and gives the space of the log back.
    fn give_back(&mut self, own: Option<Log>, mut last: Blocks, new: &Image) -> Result<(), Error> {
        let (table, _) = new.inode_place(Ino::JOURNAL)?;
        let sb = new.sb.super_block();
        if let Some(log) = own {
            if let Some(inodes) = last.remove(&table) {
                write_home(self.old, std::iter::once((&table, &inodes[..])))?;
            }
            return self.through(log, &last, new);
        }
        let raw = *new.raw_super();
        let block = last.remove(&sb);
        let final_super = |edit: &mut SuperblockEdit<'_>| {
            edit.replace(&raw);
            edit.set_needs_recovery(false);
        };
        debug_assert!(block.is_some(), "the superblock differs");
        self.edit_super(final_super)?;
        write_home(self.old, last.iter().map(|(at, bytes)| (at, &bytes[..])))
    }

    /// Writes the journal's inode where the old file system looks for it once the descriptors are home that lead to larger inodes.
    fn copy_journal_inode(&self, old: &Image, new: &Image) -> Result<(), Error> {
        let Some((at, from)) = new.old_journal else {
            return Ok(());
        };
        let raw = old.raw_inode(Ino::JOURNAL)?;
        let mut bytes = self.old.block(at)?.to_vec();
        bytes[from..from + raw.len()].copy_from_slice(&raw);
        write_home(self.old, std::iter::once((&at, &bytes[..])))
    }

    /// Writes blocks home in the order of the module's step 3. Durable.
    fn bring_home(&mut self, blocks: &Blocks, new: &Image) -> Result<(), Error> {
        let sb = new.sb.super_block();
        let (table, _) = new.inode_place(Ino::JOURNAL)?;
        let mut leading = BTreeSet::from([table]);
        for index in 0..new.sb.geometry().gdt_blocks() {
            leading.insert(new.sb.gdt_location(index)?);
        }
        let trailing = new.old_journal.map(|(at, _)| at);
        let write = |wanted: &dyn Fn(&FsBlock) -> bool| {
            let some = blocks.iter().filter(|(at, _)| wanted(at));
            write_home(self.old, some.map(|(at, bytes)| (at, &bytes[..])))
        };
        let is_last = |at: &FsBlock| *at == sb || Some(*at) == trailing;
        write(&|at| !is_last(at) && !leading.contains(at))?;
        // While descriptors and superblock do not fit each other, nobody looks at their checksums.
        let unlike = !are_same(&self.old.sb, &new.sb) || new.old_journal.is_some();
        if unlike {
            self.edit_super(|edit| edit.switch_features(&Features::default(), &ro(SUMS)))?;
        }
        write(&|at| !is_last(at) && leading.contains(at))?;
        if let Some(block) = blocks.get(&sb).filter(|_| unlike) {
            self.write_second_half(block)?;
        }
        write(&|at| *at == sb)?;
        write(&|at| Some(*at) == trailing)
    }

    /// Writes the second sector of the superblock in `block`: then the first one, alone, puts it in force. The one on the device has no
    /// checksum.
    fn write_second_half(&self, block: &[u8]) -> Result<(), Error> {
        let raw = raw_in(block).copied();
        self.edit_super(|edit| {
            if let Some(raw) = &raw {
                edit.replace_second_half(raw);
            }
        })
    }
}

/// What leads the old file system to a log: the nodes of its map, the block of the inode table with its inode, and the image with it.
type LogInode = (Vec<(FsBlock, Arc<[u8]>)>, FsBlock, Image);

fn log_inode_block(
    old: &Image,
    runs: &[Range<u64>],
    nodes: &[Range<u64>],
) -> Result<LogInode, Error> {
    let mut old = old.clone();
    log_inode(&mut old, runs, nodes)?;
    let (table, _) = old.inode_place(Ino::JOURNAL)?;
    let of_nodes = nodes.iter().map(|run| FsBlock::new(run.start));
    let of_nodes: Result<Vec<_>, Error> = of_nodes.map(|at| Ok((at, old.block(at)?))).collect();
    Ok((of_nodes?, table, old))
}

fn no_room(error: Error, want: u64, sb: &Superblock) -> Error {
    match error {
        Error::NoSpace { free, .. } => Error::refused(
            format!(
                "the change goes through a log of {want} blocks, which the journal has no room for, and {free} blocks are free"
            ),
            match sb.journal() {
                JournalPlace::Internal(_) => "make the file system larger, or remove files",
                _ => "make the file system larger ('diorite resize'), or remove files",
            },
        ),
        other => other,
    }
}

/// Puts `new`, which has no journal any more, onto the device that holds `old`: first the superblock, so that no driver uses the journal's
/// blocks, then what frees them. A cut in between leaves a file system without a journal, whose blocks e2fsck frees, or the same command.
/// Blocks.
pub(super) fn write_super_first(old: &Image, mut new: Image, now: Duration) -> Result<(), Error> {
    let mut blocks = new.finished(|edit| edit.set_write_time(seconds(now)))?;
    let sb = new.sb.super_block();
    let first = blocks.remove(&sb);
    write_home(old, first.iter().map(|bytes| (&sb, &bytes[..])))?;
    write_home(old, blocks.iter().map(|(at, bytes)| (at, &bytes[..])))?;
    write_copies(&new)
}

/// Puts `new`, which has a journal in these runs, onto the device that holds `old`, which has none: first the journal, which is empty, then
/// what marks its blocks as in use and its inode, then the superblock. A cut before that leaves blocks that nobody uses, which e2fsck
/// frees. Blocks.
pub(super) fn write_super_last(
    old: &Image,
    mut new: Image,
    runs: &[Range<u64>],
    now: Duration,
) -> Result<(), Error> {
    let mut blocks = new.finished(|edit| edit.set_write_time(seconds(now)))?;
    let size = u64::from(old.sb.block_size());
    let mut out = Out::new(&old.blocking);
    for run in runs {
        out.zero(run.start * size..run.end * size)?;
    }
    out.flush()?;
    let (sb, (table, _)) = (new.sb.super_block(), new.inode_place(Ino::JOURNAL)?);
    let last = [blocks.remove(&table), blocks.remove(&sb)];
    write_home(old, blocks.iter().map(|(at, bytes)| (at, &bytes[..])))?;
    for (at, bytes) in [table, sb].iter().zip(&last) {
        write_home(old, bytes.iter().map(|bytes| (at, &bytes[..])))?;
    }
    write_copies(&new)
}

fn seconds(now: Duration) -> i64 {
    i64::try_from(now.as_secs()).unwrap_or(0)
}

/// Writes blocks, durably.
fn write_home<'b>(
    image: &Image,
    blocks: impl Iterator<Item = (&'b FsBlock, &'b [u8])>,
) -> Result<(), Error> {
    let size = u64::from(image.sb.block_size());
    let mut out = Out::new(&image.blocking);
    for (at, bytes) in blocks {
        out.put(at.get() * size, bytes)?;
    }
    Ok(out.flush()?)
}

/// Writes the copies of superblock and descriptors in other groups, durably: nothing depends on them while the originals can be read.
/// Blocks.
pub(super) fn write_copies(new: &Image) -> Result<(), Error> {
    let (sb, size) = (&new.sb, u64::from(new.sb.block_size()));
    let g = sb.geometry();
    let at_groups = match sb.features().incompat.has(Incompat::META_BG) {
        true => g.first_meta_bg().min(g.gdt_blocks()),
        false => g.gdt_blocks(),
    };
    let mut out = Out::new(&new.blocking);
    for group in sb.groups_with_copies() {
        let first = sb.group_first_block(group).get();
        let mut block = vec![0; size as usize];
        let mut raw = *new.raw_super();
        let mut edit = SuperblockEdit::new(&mut raw);
        edit.set_needs_recovery(false);
        edit.set_copy_in(group.get());
        edit.seal();
        block[..raw.len()].copy_from_slice(&raw);
        out.put(first * size, &block)?;
        for index in 0..at_groups {
            let desc = new.block(sb.gdt_location(index)?)?;
            out.put((first + 1 + u64::from(index)) * size, &desc)?;
        }
    }
    for index in at_groups..g.gdt_blocks() {
        let desc = new.block(sb.gdt_location(index)?)?;
        for copy in sb.gdt_copies(index) {
            out.put(copy.get() * size, &desc)?;
        }
    }
    Ok(out.flush()?)
}
