//! Reasons why a write needs more than its data I/O: rights that it clears, inline data, flags of the inode, blocks behind the size.
//!
//! Input: an inode that was just read, and changes of it. Output: one word, loaded by every write. Before the first write set-user-id,
//! set-group-id and the capability are cleared in one handle, as far as the caller's writes take them away; then, for a direct write,
//! inline data is moved out (see `inline`). Invariants: the word is set when the inode is read, and whenever such a right is given to it;
//! a write that fails a check changes nothing. Limits: the writer is the volume's caller, the same for all writes, or
//! the frontend clears rights itself; capabilities go in any case.

use super::Inode;
use crate::error::Error;
use crate::inode::Fs;
use diorite_block::sync::atomic::{AtomicU32, Ordering};
use diorite_format::xattr::{NameIndex, Xattrs};
use diorite_format::{Inode as DiskInode, InodeFlags, MapKind};

pub(crate) const CAPABILITY: (NameIndex, &[u8]) = (NameIndex::SECURITY, b"capability");

/// The word: a set of the bits below. 0 means that writes go down without further checks.
#[derive(Debug)]
pub(super) struct FirstWrite(AtomicU32);

/// It may have rights that the next write takes away (set-uid, set-gid, a capability).
const PRIVILEGES: u32 = 1;
/// It has inline data.
const INSIDE: u32 = 2;
/// Its data goes through the journal.
const JOURNALLED: u32 = 4;
/// Nothing may be written.
const IMMUTABLE: u32 = 8;
/// Only appends are allowed.
const APPEND: u32 = 16;
/// Every write must be durable, with its times, when it is acknowledged (flag `S`).
const SYNC: u32 = 32;
/// A truncation has failed and has left blocks behind the size: they must be freed before the file becomes longer.
const CUT: u32 = 64;

impl FirstWrite {
    /// The bits of a file that was just read. A block of attributes is not read for this: if there is one, `PRIVILEGES` is set.
    pub(super) fn of(volume: &Fs, disk: &DiskInode, raw: &[u8], journalled: bool) -> FirstWrite {
        let inside = || match Xattrs::parse_inode(&volume.sb, disk, raw) {
            Ok(attrs) => attrs.get(CAPABILITY.0, CAPABILITY.1).is_some(),
            // Damaged attributes are reported to whoever writes.
            Err(_) => true,
        };
        let less = volume.mode_after_write(disk);
        let may_have = less != disk.mode || !disk.file_acl.is_none();
        let bits = [
            (PRIVILEGES, disk.is_file() && (may_have || inside())),
            (INSIDE, disk.is_file() && disk.map_kind() == MapKind::Inline),
            (JOURNALLED, journalled),
        ];
        let bits = bits.iter().filter(|(_, on)| *on).map(|(bit, _)| bit);
        FirstWrite(AtomicU32::new(bits.sum::<u32>() | of_flags(disk.flags)))
    }

    fn has(&self, bits: u32) -> bool {
        self.0.load(Ordering::Acquire) & bits != 0
    }

    fn set(&self, bits: u32) {
        self.0.fetch_or(bits, Ordering::AcqRel);
    }

    fn clear(&self, bits: u32) {
        self.0.fetch_and(!bits, Ordering::AcqRel);
    }
}

/// The bits that follow from the inode's flags.
fn of_flags(flags: InodeFlags) -> u32 {
    let bit = |flag, bit| if flags.has(flag) { bit } else { 0 };
    bit(InodeFlags::IMMUTABLE, IMMUTABLE)
        | bit(InodeFlags::APPEND, APPEND)
        | bit(InodeFlags::SYNC, SYNC)
}

impl Fs {
    /// The mode of a file after a write for which nobody says who writes.
    pub(crate) fn mode_after_write(&self, disk: &DiskInode) -> u16 {
        match self.frontend_clears_rights.load(Ordering::Relaxed) {
            true => disk.mode,
            false => self.caller.mode_after_write(disk.mode, disk.gid),
        }
    }

    /// From now on [`Fs::mode_after_write`] is the mode as it is.
    pub(crate) fn leave_rights_to_frontend(&self) {
        self.frontend_clears_rights.store(true, Ordering::Relaxed);
    }
}

impl Inode {
    /// May writes go down without further checks? Costs one load, for every write.
    #[inline]
    pub(crate) fn writes_plainly(&self) -> bool {
        self.first.0.load(Ordering::Acquire) == 0
    }

    /// Has it the flag `S` now? A change counts for queues that had the file attached before, too.
    pub(crate) fn is_sync(&self) -> bool {
        self.first.has(SYNC)
    }

    /// Has a truncation left blocks behind the size? Changed only with the turn, or before anybody uses the file.
    pub(crate) fn is_cut(&self) -> bool {
        self.first.has(CUT)
    }

    pub(crate) fn note_cut(&self, is_cut: bool) {
        match is_cut {
            true => self.first.set(CUT),
            false => self.first.clear(CUT),
        }
    }

    /// Must rights be cleared, or inline data be moved out, before data is written?
    pub(crate) fn owes_first_write(&self) -> bool {
        self.first.has(PRIVILEGES | INSIDE)
    }

    /// Call when the file may have got rights that the next write, through whatever queue, takes away. The map lock is held.
    pub(crate) fn note_privileges(&self) {
        self.first.set(PRIVILEGES);
    }

    /// Call when its flags have changed. The map lock is held.
    pub(super) fn note_flags(&self, flags: InodeFlags, journalled: bool) {
        let now = of_flags(flags) | if journalled { JOURNALLED } else { 0 };
        self.first.set(now);
        self.first
            .clear((IMMUTABLE | APPEND | SYNC | JOURNALLED) & !now);
    }

    /// May data be written? `appends`: behind the end only.
    pub(crate) fn check_writable(&self, appends: bool) -> Result<(), Error> {
        let ino = self.ino;
        if self.first.has(IMMUTABLE) {
            let flag = "immutable";
            return Err(Error::NotPermitted { ino, flag });
        }
        if !appends && self.first.has(APPEND) {
            let flag = "append-only";
            return Err(Error::NotPermitted { ino, flag });
        }
        Ok(())
    }

    /// May it become so long?
    pub(crate) fn check_end(&self, end: u64) -> Result<(), Error> {
        let (ino, most) = (self.ino, self.max_size);
        match end <= most {
            true => Ok(()),
            false => Err(Error::TooBig { ino, end, most }),
        }
    }

    /// Does its next write take rights away?
    pub(crate) fn owes_privileges(&self) -> bool {
        self.first.has(PRIVILEGES)
    }

    /// Call when its writes take no rights away any more. The map lock is held, so that rights given later are noted after this.
    pub(crate) fn note_no_privileges(&self) {
        self.first.clear(PRIVILEGES);
    }

    /// Call when inline data has been put into the inode, or has left it.
    pub(super) fn note_inside(&self, inside: bool) {
        match inside {
            true => self.first.set(INSIDE),
            false => self.first.clear(INSIDE),
        }
    }
}
