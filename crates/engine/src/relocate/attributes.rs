//! Moves blocks of extended attributes.
//!
//! Input: such blocks behind the limit, with the inodes that use them. Output: the same blocks in front of it, used by the same inodes.
//! Invariants: a block moves once for all its users; while only some of them have the new block, both blocks count their users, so each
//! handle leaves a consistent volume. Limits: a block that refers to value inodes moves with all its users in one handle, because a value
//! inode counts the blocks that refer to it; the survey has checked that they fit. Source: the kernel's ext4 documentation, "extended
//! attributes" (`h_refcount`); the checksum of a block covers the block's number.

use super::edits::free_around;
use super::job::Job;
use crate::alloc::{MARK_CREDITS, Reach};
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::inode::Fs;
use crate::space::Left;
use diorite_format::xattr::{self, XattrEntry, Xattrs};
use diorite_format::{FsBlock, Ino};
use std::collections::BTreeMap;

/// Blocks of attributes with the inodes that use them.
pub(super) type Users = BTreeMap<FsBlock, Vec<Ino>>;

/// The two blocks, one of which may be revoked, too; a bitmap and a descriptor of both.
const CREDITS: u32 = 3 + 2 * MARK_CREDITS;
/// Users that get the new block in one handle.
const MOST_USERS: usize = 16;

/// Checks a block before anything is changed: its users are those that it counts, and it can move. Blocks while it is read.
pub(super) fn check(fs: &Fs, at: FsBlock, users: &[Ino]) -> Result<(), Error> {
    let raw = fs.cache.read(&fs.blocking, at, Kind::Xattr, |raw| {
        Xattrs::parse_block(&fs.sb, users[0], at, raw).map(drop)
    })?;
    let block = Xattrs::parse_block(&fs.sb, users[0], at, &raw)?;
    let count = short(users.len());
    if block.refcount != count {
        let counted = block.refcount;
        let what = format!(
            "the block of attributes {at} counts {counted} users and has {count}; run e2fsck"
        );
        return Err(Error::Damaged(what));
    }
    let at_once = at_once(&block.entries, fs, users.len());
    if CREDITS.saturating_add(short(at_once)) > fs.most_credits_alone() {
        let what = format!(
            "{count} inodes share the block of attributes {at}, too many to be changed at once"
        );
        return Err(Error::refused(what, "make the journal larger"));
    }
    Ok(())
}

/// How many users get the new block in one handle.
fn at_once(entries: &[XattrEntry<'_>], fs: &Fs, users: usize) -> usize {
    if entries.iter().any(XattrEntry::is_held) {
        return users;
    }
    let room = fs.most_credits().saturating_sub(CREDITS);
    users.min(MOST_USERS).min(room as usize).max(1)
}

/// Moves the blocks. Blocks.
pub(super) fn move_all(job: &mut Job<'_>, all: &Users) -> Result<(), Error> {
    for (at, users) in all {
        move_block(job, *at, users)?;
        job.moved(u64::from(job.fs.sb.geometry().cluster_ratio()))?;
    }
    Ok(())
}

fn move_block(job: &mut Job<'_>, from: FsBlock, users: &[Ino]) -> Result<(), Error> {
    let fs = job.fs;
    let (sb, alloc) = (&fs.sb, fs.alloc()?);
    let verify =
        |at: FsBlock| move |raw: &[u8]| Xattrs::parse_block(sb, users[0], at, raw).map(drop);
    let raw = fs
        .cache
        .read(&fs.blocking, from, Kind::Xattr, verify(from))?;
    let at_once = at_once(
        &Xattrs::parse_block(sb, users[0], from, &raw)?.entries,
        fs,
        users.len(),
    );
    let goal = alloc.goal_of(sb, users[0]);
    let (mut new, mut done) = (None, 0);
    for chunk in users.chunks(at_once) {
        let (before, after) = (done, done + chunk.len());
        let credits = CREDITS + short(chunk.len());
        let to = fs.in_handle(credits, |handle| {
            let to = match new {
                Some(to) => to,
                None => alloc.allocate(handle, goal, 1, Reach::All)?.start,
            };
            handle.or_abort((|| {
                if before == 0 {
                    handle.create(to, Kind::Xattr, |bytes| bytes.copy_from_slice(&raw));
                }
                // The bytes of a new block have the checksum of the old place.
                handle.update(
                    to,
                    Kind::Xattr,
                    |_| Ok(()),
                    |bytes| Ok(xattr::set_refcount(sb, to, bytes, short(after))?),
                )?;
                if after == users.len() {
                    let leave = || Ok(Left::ToNobody);
                    fs.equal_blocks.leaving(from, leave)?;
                    handle.forget(from);
                    free_around(fs, handle, from)?;
                } else {
                    handle.update(from, Kind::Xattr, verify(from), |bytes| {
                        Ok(xattr::set_refcount(
                            sb,
                            from,
                            bytes,
                            short(users.len() - after),
                        )?)
                    })?;
                }
                chunk
                    .iter()
                    .try_for_each(|ino| fs.change_on_disk(handle, *ino, |disk| disk.file_acl = to))
            })())?;
            Ok(to)
        })?;
        (new, done) = (Some(to), after);
        job.moved(0)?;
    }
    Ok(())
}

fn short(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
