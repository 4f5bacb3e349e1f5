//! What comes before the first write of a file's data: rights that writing takes away, and data that leaves the inode.
//!
//! Input: an inode that was just read. Output: what the caller's writes take away of set-user-id and set-group-id, and the capability,
//! cleared in one handle, before any data goes down; then, for a direct write, a file with a map (see `inline`). Invariants: noted when
//! the inode is read and whenever such a right is given to it, in one word that every write loads; a write that fails a check settles
//! nothing. Limits: who writes is the volume's caller.

use super::Inode;
use crate::error::Error;
use crate::inode::Fs;
use diorite_block::sync::atomic::{AtomicU32, Ordering};
use diorite_format::xattr::{NameIndex, Xattrs};
use diorite_format::{Inode as DiskInode, InodeFlags, MapKind};

pub(crate) const CAPABILITY: (NameIndex, &[u8]) = (NameIndex::SECURITY, b"capability");

/// What stands between a file and plain writes; none of it: 0.
#[derive(Debug)]
pub(super) struct FirstWrite(AtomicU32);

/// It may have rights that the next write takes away.
const PRIVILEGES: u32 = 1;
/// Its data is in its inode.
const INSIDE: u32 = 2;
/// Its data goes through the journal.
const JOURNALLED: u32 = 4;
/// Nothing may be written.
const IMMUTABLE: u32 = 8;
/// Only behind the end may be written.
const APPEND: u32 = 16;
/// Every write is durable, with the times, when it is acknowledged.
const SYNC: u32 = 32;
/// A truncation has failed, and left blocks behind the size: they go before the file becomes longer.
const CUT: u32 = 64;

impl FirstWrite {
    /// What a file owes. A block of attributes is looked into when it matters.
    pub(super) fn of(volume: &Fs, disk: &DiskInode, raw: &[u8], journalled: bool) -> FirstWrite {
        let inside = || match Xattrs::parse_inode(&volume.sb, disk, raw) {
            Ok(attrs) => attrs.get(CAPABILITY.0, CAPABILITY.1).is_some(),
            // What is wrong is told to who writes.
            Err(_) => true,
        };
        let less = volume.caller.mode_after_write(disk.mode, disk.gid);
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

/// What an inode's flags say about its writes.
fn of_flags(flags: InodeFlags) -> u32 {
    let bit = |flag, bit| if flags.has(flag) { bit } else { 0 };
    bit(InodeFlags::IMMUTABLE, IMMUTABLE)
        | bit(InodeFlags::APPEND, APPEND)
        | bit(InodeFlags::SYNC, SYNC)
}

/// The mode of a file that was given to another owner, by whomever.
pub(crate) fn without_privileges(mode: u16) -> u16 {
    const SETUID: u16 = 0o4000;
    const SETGID: u16 = 0o2000;
    const GROUP_EXECUTES: u16 = 0o0010;
    match mode & GROUP_EXECUTES {
        0 => mode & !SETUID,
        _ => mode & !(SETUID | SETGID),
    }
}

impl Inode {
    /// Is nothing to be asked or done before a write? One load, of every write.
    #[inline]
    pub(crate) fn writes_plainly(&self) -> bool {
        self.first.0.load(Ordering::Acquire) == 0
    }

    /// Has it the flag S now? For queues, too, that had it attached before.
    pub(crate) fn is_sync(&self) -> bool {
        self.first.has(SYNC)
    }

    /// Has a truncation left blocks behind the size? Changes only by who has the turn, or before anybody uses the file.
    pub(crate) fn is_cut(&self) -> bool {
        self.first.has(CUT)
    }

    pub(crate) fn note_cut(&self, is_cut: bool) {
        match is_cut {
            true => self.first.set(CUT),
            false => self.first.clear(CUT),
        }
    }

    /// Must something be done before data is written?
    pub(crate) fn owes_first_write(&self) -> bool {
        self.first.has(PRIVILEGES | INSIDE)
    }

    /// The file was given rights that the next write takes away, of whatever queue. Under the map lock.
    pub(crate) fn note_privileges(&self) {
        self.first.set(PRIVILEGES);
    }

    /// Its flags have changed. Under the map lock.
    pub(super) fn note_flags(&self, flags: InodeFlags, journalled: bool) {
        let now = of_flags(flags) | if journalled { JOURNALLED } else { 0 };
        self.first.set(now);
        self.first
            .clear((IMMUTABLE | APPEND | SYNC | JOURNALLED) & !now);
    }

    /// May data be written: anywhere, or only behind the end?
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

    /// Does its next write take rights away?
    pub(crate) fn owes_privileges(&self) -> bool {
        self.first.has(PRIVILEGES)
    }

    /// Its writes take nothing away any more. Under the map lock: what is given from now on is noted after this.
    pub(crate) fn note_no_privileges(&self) {
        self.first.clear(PRIVILEGES);
    }

    /// The data is in the inode from now on, or is not any more.
    pub(super) fn note_inside(&self, inside: bool) {
        match inside {
            true => self.first.set(INSIDE),
            false => self.first.clear(INSIDE),
        }
    }
}
