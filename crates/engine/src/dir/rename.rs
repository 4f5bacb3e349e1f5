//! Names moved: to another name or another directory, over an existing name, or exchanged with it.
//!
//! Input: two places and flags. Output: the move, in one handle. Invariants: the inode has one of the two names at every instant; ".." of a
//! moved directory and the link counts of both parents agree with the move; no directory becomes its own descendant. Limits: within one
//! volume.
//!
//! Without a journal the new name is written to disk before the old one is removed there. If another move in the same transaction needs the
//! opposite order, the transaction is committed first. An exchange between two blocks of names has no such order.
//!
//! Locks: a volume moves one directory at a time to another parent (`renames`). So the ancestors of the new place cannot change while it is
//! checked that the new place is not inside the moved directory. Then all directories concerned are locked in the order of their inode
//! numbers, and it is checked that the names still refer to the same inodes; if not, everything starts over. Moves of files, and of
//! directories that keep their parent, need only these inode locks.

use super::create::{ATTRIBUTE_CREDITS, New, bring_about, give_back, take_blocks};
use super::durable::commit_names;
use super::edit::{names_at, put, stand_for, take_out, touch};
use super::links::{check_subdirectory, one_less, one_more};
use super::lookup::{self, Found, Room};
use super::moved::{Moved, note_change};
use super::remove::{check_empty, count_out, kind_of};
use super::spot::{Spot, lock_all, lock_both};
use crate::alloc::{NEW_INODE_CREDITS, Run};
use crate::delete;
use crate::delete::check_deletable;
use crate::dir::inline_dir;
use crate::dir::placement::{Placement, find_placement};
use crate::error::Error;
use crate::inode::Fs;
use crate::inode::Inode;
use crate::journal::{JournalHandle, NamesAt};
use crate::orphan::ORPHAN_CREDITS;
use crate::xattr::{Inherited, inherit_acl};
use diorite_format::inode::Rdev;
use diorite_format::{FileType, Ino, Tid};
use std::collections::HashSet;
use std::sync::Arc;

/// Credits: two blocks of names and their directories, ".." in both moved directories, the inodes themselves, and a whiteout.
const RENAME_CREDITS: u32 = 10 + ORPHAN_CREDITS + NEW_INODE_CREDITS + ATTRIBUTE_CREDITS;

/// The inode that takes the place of the old name, if the flags ask for it.
const WHITEOUT: New<'_> = New::Node(FileType::CharDevice, Rdev { major: 0, minor: 0 });

/// A whiteout that is to be created: its number, its blocks, and what it inherits from its directory.
type Left<'a> = ((Ino, Vec<Run>), &'a Inherited);

/// The result of an attempt.
enum Done {
    /// Nothing was changed: this transaction has to be committed first.
    MustCommit(Tid),
    /// Nothing was changed: the inode that moves has come into memory.
    CameIn,
    /// Done. `was_last`: the replaced inode has lost its last name and is on the orphan list.
    Moved { was_last: bool },
}

/// How a name is moved, as the flags of renameat2 say. By default an existing name is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RenameFlags {
    /// Fails if the new name exists (RENAME_NOREPLACE).
    pub no_replace: bool,
    /// Exchanges the two names, which must both exist (RENAME_EXCHANGE).
    pub exchange: bool,
    /// Leaves a character device 0:0 at the old name (RENAME_WHITEOUT).
    pub whiteout: bool,
}

impl RenameFlags {
    /// No flag: as rename(2).
    #[must_use]
    pub const fn none() -> RenameFlags {
        RenameFlags {
            no_replace: false,
            exchange: false,
            whiteout: false,
        }
    }
}

diorite_block::setters!(const RenameFlags {
    no_replace: bool,
    exchange: bool,
    whiteout: bool,
});

/// The inodes and places of a move, all locked.
struct Move<'a> {
    old: &'a Spot<'a>,
    new: &'a Spot<'a>,
    moved: Moved<'a>,
    from: Found,
    /// The inode that the new name refers to, and its place, if the name exists.
    there: Option<(&'a Arc<Inode>, Found)>,
    /// The room that a search for the new name has found.
    room: Option<Room>,
}

/// Moves a name, or exchanges two. A file that replaces another is written back first.
pub(crate) fn rename(old: &Spot<'_>, new: &Spot<'_>, flags: RenameFlags) -> Result<(), Error> {
    if flags.exchange && (flags.no_replace || flags.whiteout) {
        let what = "an exchange replaces nothing and leaves nothing";
        return Err(Error::Invalid(what.to_owned()));
    }
    for spot in [old, new] {
        if spot.is_special() {
            let path = spot.shown();
            return Err(Error::Busy { path });
        }
    }
    let volume = &old.dir.volume;
    let mut in_memory = false;
    loop {
        let attempt = || attempt_plain(volume, old, new, (flags, in_memory));
        match volume.with_space_of_others(attempt)? {
            Plain::Moved => return commit_names(&[&old.dir, &new.dir]),
            // Not more than once without the inode in memory, whoever has it for a moment.
            Plain::Again => in_memory = true,
            Plain::Not => break,
        }
    }
    while !volume.with_space_of_others(|| attempt(volume, old, new, flags))? {}
    commit_names(&[&old.dir, &new.dir])?;
    delete::delete_unlinked_best_effort(volume);
    Ok(())
}

/// The result of an attempt at a plain move.
enum Plain {
    Moved,
    /// A transaction had to be committed first.
    Again,
    /// It is no plain move.
    Not,
}

/// Tries a plain move once: no directory is moved, and the new name does not exist. Only both directories are locked, so each name is
/// looked up once. `in_memory`: the inode that moves is to be in memory, too.
fn attempt_plain(
    volume: &Arc<Fs>,
    old: &Spot<'_>,
    new: &Spot<'_>,
    (flags, in_memory): (RenameFlags, bool),
) -> Result<Plain, Error> {
    if flags.exchange {
        return Ok(Plain::Not);
    }
    let names = lock_both(&old.dir, &new.dir);
    let from = old.search_by(names.of_one())?.found();
    let from = from.filter(|_| !old.dir.is_unlinked());
    let from = from.ok_or_else(|| old.missing())?;
    let searched = new.search_by(names.of_other())?;
    if searched.found().is_some() {
        return Ok(Plain::Not);
    }
    let seen = match in_memory {
        true => None,
        false => volume.glance(from.ino).filter(|seen| !seen.disk.is_dir()),
    };
    let (held, moved);
    match &seen {
        Some(seen) => moved = Moved::Seen(seen),
        None => {
            held = volume.inode(from.ino)?;
            if held.is_dir() {
                return Ok(Plain::Not);
            }
            moved = Moved::InMemory(&held);
        }
    }
    let all = Move {
        old,
        new,
        moved,
        from,
        there: None,
        room: searched.room(),
    };
    all.check(flags)?;
    match all.replace(volume, flags.whiteout)? {
        true => Ok(Plain::Moved),
        false => Ok(Plain::Again),
    }
}

/// Tries once. Returns false if the names changed meanwhile, or if a transaction had to be committed first; the caller tries again.
fn attempt(
    volume: &Arc<Fs>,
    old: &Spot<'_>,
    new: &Spot<'_>,
    flags: RenameFlags,
) -> Result<bool, Error> {
    let moved = old.look()?.ok_or_else(|| old.missing())?;
    let there = new.look()?;
    if there.is_some() && !flags.no_replace {
        // After a crash the name has the old file or the whole new one.
        moved.write_back_whole()?;
        if let Some(there) = there.as_ref().filter(|_| flags.exchange) {
            there.write_back_whole()?;
        }
    }
    let dirs = [Some(&moved), there.as_ref().filter(|_| flags.exchange)];
    let dirs: Vec<_> = dirs.into_iter().flatten().filter(|i| i.is_dir()).collect();
    let crosses = old.dir.ino != new.dir.ino && !dirs.is_empty();
    let _one_at_a_time = crosses.then(|| volume.renames.lock());
    if crosses {
        check_not_inside(&moved, new)?;
        if let Some(there) = there.as_ref().filter(|_| flags.exchange) {
            check_not_inside(there, old)?;
        }
    }
    let victim = there.iter().filter(|i| i.is_dir());
    let _locks = lock_all([&old.dir, &new.dir].into_iter().chain(dirs).chain(victim));
    let (Some(from), searched) = (old.find()?, new.search()?) else {
        return Err(old.missing());
    };
    let found = searched.found();
    if from.ino != moved.ino || found.map(|f| f.ino) != there.as_ref().map(|i| i.ino) {
        return Ok(false);
    }
    let all = Move {
        old,
        new,
        moved: Moved::InMemory(&moved),
        from,
        there: there.as_ref().zip(found),
        room: searched.room(),
    };
    all.check(flags)?;
    match (flags.exchange, all.there) {
        // Two names of one inode: both are kept, as rename(2) requires.
        (_, Some((there, _))) if there.ino == from.ino => {}
        (true, Some((there, at))) => all.exchange(volume, (&moved, there), at)?,
        _ => return all.replace(volume, flags.whiteout),
    }
    Ok(true)
}

/// Checks that the directory of `spot` is not `top` or below it. The lock `renames` is held.
fn check_not_inside(top: &Inode, spot: &Spot<'_>) -> Result<(), Error> {
    let (mut at, mut seen) = (spot.dir.clone(), HashSet::new());
    while at.ino != top.ino {
        if at.ino == Ino::ROOT {
            return Ok(());
        }
        let up = lookup::locked(&at, b"..")?;
        let up = up.filter(|_| seen.insert(at.ino)).ok_or_else(|| {
            if spot.dir.is_unlinked() {
                return spot.missing();
            }
            let what = "no way up leads to the root";
            Error::Damaged(format!("directory inode {}: {what}; run e2fsck", at.ino))
        })?;
        at = up;
    }
    let path = spot.shown();
    Err(Error::Invalid(format!("{path}: inside of what is moved")))
}

impl Move<'_> {
    fn check(&self, flags: RenameFlags) -> Result<(), Error> {
        let (old, new, moved) = (self.old, self.new, self.moved);
        old.check_can_remove()?;
        new.check_can_add()?;
        moved.check_settable(&old.dir.volume)?;
        let is_dir = moved.directory().is_some();
        if (old.slash || new.slash && !flags.exchange) && !is_dir {
            return Err(old.no_directory());
        }
        let Some((there, _)) = self.there else {
            if flags.exchange {
                return Err(new.missing());
            }
            return self.check_counts(is_dir, false);
        };
        if flags.no_replace {
            return Err(new.exists());
        }
        let there_is_dir = there.is_dir();
        new.check_can_remove()?;
        there.check_settable()?;
        if flags.exchange {
            return self.check_counts(is_dir, there_is_dir);
        }
        match (is_dir, there_is_dir) {
            _ if there.ino == moved.ino() => return Ok(()),
            (true, false) => return Err(new.no_directory()),
            (false, true) => return Err(new.a_directory()),
            (true, true) => check_empty(there, new)?,
            (false, false) => {}
        }
        check_deletable(there)
    }

    /// Can each parent count one more subdirectory, if it gets one? `goes` and `comes`: a directory moves to the new place, to the old
    /// place.
    fn check_counts(&self, goes: bool, comes: bool) -> Result<(), Error> {
        match (self.crosses(), goes, comes) {
            (true, true, false) => check_subdirectory(&self.new.dir),
            (true, false, true) => check_subdirectory(&self.old.dir),
            _ => Ok(()),
        }
    }

    fn crosses(&self) -> bool {
        self.old.dir.ino != self.new.dir.ino
    }

    /// Moves the name, over an existing one if there is one. Returns false if the running transaction was committed first and the move must
    /// be tried again.
    fn replace(&self, volume: &Arc<Fs>, whiteout: bool) -> Result<bool, Error> {
        let from = match whiteout {
            true => Some(inherit_acl(
                &self.old.dir,
                WHITEOUT.kind(),
                0,
                self.old.maker,
            )?),
            false => None,
        };
        let (dir, name) = (&self.new.dir, self.new.name);
        let room = match self.there {
            Some(_) => None,
            None => Some(find_placement(dir, name, self.room)?),
        };
        let more = room.as_ref().map_or(0, |room| room.credits(dir));
        let done = volume.in_handle(RENAME_CREDITS + more, |handle| {
            if !self.orders(handle, room.as_ref())? {
                return Ok(Done::MustCommit(handle.tid()));
            }
            self.prepare(handle)?;
            let left = match &from {
                Some(from) => Some((self.take_inode(volume, handle, from)?, from)),
                None => None,
            };
            let put = self
                .moved
                .touch_first(volume, handle, || self.put(handle, room.as_ref()));
            if let (Err(_) | Ok(false), Some(((ino, taken), _))) = (&put, &left) {
                give_back(volume, handle, (*ino, false), taken)?;
            }
            if !put? {
                return Ok(Done::CameIn);
            }
            // Or the directory has left its inode to make room for the name.
            let was_inside = self.from.block.is_none() && room.is_some();
            let moves = was_inside || matches!(room, Some(Placement::Remade(_)));
            let was_last = handle.or_abort(self.finish(volume, handle, left, moves))?;
            Ok(Done::Moved { was_last })
        });
        if let (Err(_) | Ok(Done::MustCommit(_) | Done::CameIn), Some(room)) = (&done, &room) {
            room.give_back(dir);
        }
        match (done?, self.there) {
            (Done::MustCommit(tid), _) => match volume.commit_up_to(tid) {
                // An atomic change has begun meanwhile. Within an atomic change no order is kept, so the next attempt succeeds.
                Err(_) if volume.has_atomic() => return Ok(false),
                committed => return committed.map(|()| false),
            },
            (Done::CameIn, _) => return Ok(false),
            (Done::Moved { was_last: true }, Some((there, _))) => there.note_unlinked(),
            (Done::Moved { .. }, _) => {}
        }
        Ok(true)
    }

    /// Notes that the new name is written before the old one is removed. Returns false if the transaction must be committed before.
    fn orders(&self, handle: &JournalHandle<'_>, room: Option<&Placement>) -> Result<bool, Error> {
        if handle.store().has_journal() {
            return Ok(true);
        }
        let (old, new) = (self.old, self.new);
        // The directory may have left its inode when room was made for the new name.
        let has_left = self.from.block.is_none() && !inline_dir::is_inside(&old.dir);
        let from = match has_left {
            true => old.find()?.ok_or_else(|| old.missing())?,
            false => self.from,
        };
        let then = names_at(&old.dir, from.block)?;
        let first = match (room, self.there) {
            (Some(Placement::Remade(remade)), _) if remade.is_new(remade.with_name) => {
                NamesAt::Inode(new.dir.ino)
            }
            (Some(room), _) => names_at(&new.dir, room.block())?,
            (None, there) => names_at(&new.dir, there.and_then(|(_, at)| at.block))?,
        };
        Ok(handle.moves(first, then))
    }

    /// Takes an inode number for the whiteout, and a block if it needs one.
    fn take_inode(
        &self,
        volume: &Fs,
        handle: &JournalHandle<'_>,
        from: &Inherited,
    ) -> Result<(Ino, Vec<Run>), Error> {
        let ino = volume.alloc()?.new_inode(handle, self.old.dir.ino, false)?;
        let taken = take_blocks(volume, handle, (ino, false), WHITEOUT.wants_blocks(from))?;
        Ok((ino, taken))
    }

    /// Loads the inodes that change, before anything does.
    fn prepare(&self, handle: &JournalHandle<'_>) -> Result<(), Error> {
        for inode in [&*self.old.dir, &*self.new.dir] {
            inode.prepare_to_change(handle)?;
        }
        self.moved.prepare(handle)?;
        match self.there {
            Some((there, _)) => delete::prepare_to_lose_name(handle, there),
            None => Ok(()),
        }
    }

    /// Makes the new name refer to the moved inode. A failure has changed nothing, or aborts the journal.
    fn put(&self, handle: &JournalHandle<'_>, room: Option<&Placement>) -> Result<(), Error> {
        let (dir, ino, kind) = (&self.new.dir, self.moved.ino(), self.moved.kind()?);
        let what = (self.new.name, ino, kind);
        match (room, self.there) {
            (Some(room), _) => put(handle, dir, room, what).map(drop),
            (None, Some((_, at))) => {
                stand_for(handle, dir, at.block, what)?;
                handle.or_abort(touch(handle, dir)).map(drop)
            }
            (None, None) => unreachable!("there is room for a name that is not there"),
        }
    }

    /// Makes the changes that follow the new name: the old name, "..", link counts. Returns whether the replaced inode has lost its last
    /// name and is on the orphan list.
    fn finish(
        &self,
        volume: &Arc<Fs>,
        handle: &JournalHandle<'_>,
        left: Option<Left<'_>>,
        moves: bool,
    ) -> Result<bool, Error> {
        let (old, new) = (self.old, self.new);
        let from = match moves && !self.crosses() {
            // Making room for the new name may have moved the old one to another block.
            true => old.find()?.ok_or_else(|| old.missing())?,
            false => self.from,
        };
        match left {
            Some((taken, inherited)) => {
                let what = (WHITEOUT, inherited);
                let ino = bring_about(volume, handle, &old.dir.disk(), taken, what)?.ino;
                stand_for(
                    handle,
                    &old.dir,
                    from.block,
                    (old.name, ino, WHITEOUT.kind()),
                )?;
                touch(handle, &old.dir)?;
            }
            None => take_out(handle, &old.dir, &from, old.name)?,
        }
        if let Moved::InMemory(moved) = self.moved {
            note_change(handle, moved)?;
        }
        let directory = self.moved.directory();
        if let Some(moved) = directory.filter(|_| self.crosses()) {
            moves_up(handle, moved, &new.dir)?;
        }
        let is_dir = directory.is_some();
        if is_dir && (self.crosses() || self.there.is_some()) {
            old.dir.change(handle, one_less)?;
        }
        if is_dir && self.crosses() && self.there.is_none() {
            new.dir.change(handle, one_more)?;
        }
        let Some((there, _)) = self.there else {
            return Ok(false);
        };
        count_out(handle, there)
    }

    fn exchange(
        &self,
        volume: &Arc<Fs>,
        (moved, there): (&Arc<Inode>, &Arc<Inode>),
        at: Found,
    ) -> Result<(), Error> {
        let (old, new) = (self.old, self.new);
        let kinds = (kind_of(moved)?, kind_of(there)?);
        volume.in_handle(RENAME_CREDITS, |handle| {
            self.prepare(handle)?;
            let all = || {
                handle.replaces();
                stand_for(handle, &new.dir, at.block, (new.name, moved.ino, kinds.0))?;
                stand_for(
                    handle,
                    &old.dir,
                    self.from.block,
                    (old.name, there.ino, kinds.1),
                )?;
                for changed in [&new.dir, &old.dir] {
                    touch(handle, changed)?;
                }
                for (inode, from, to) in [(moved, old, new), (there, new, old)] {
                    note_change(handle, inode)?;
                    let is_dir = inode.is_dir();
                    if self.crosses() && is_dir {
                        moves_up(handle, inode, &to.dir)?;
                    }
                    if self.crosses() && is_dir && kinds.0 != kinds.1 {
                        from.dir.change(handle, one_less)?;
                        to.dir.change(handle, one_more)?;
                    }
                }
                Ok(())
            };
            handle.or_abort(all())
        })
    }
}

/// Makes ".." of a directory refer to another parent.
pub(super) fn moves_up(
    handle: &JournalHandle<'_>,
    dir: &Inode,
    parent: &Inode,
) -> Result<(), Error> {
    if inline_dir::is_inside(dir) {
        return inline_dir::set_parent(handle, dir, parent.ino);
    }
    let up = (&b".."[..], parent.ino, FileType::Directory);
    stand_for(handle, dir, Some(0), up)
}
