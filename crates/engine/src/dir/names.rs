//! Files made and names removed.
//!
//! Input: paths. Output: new inodes with a name; names gone, and what they named with the last of them. Invariants: a directory's names are changed
//! under its inode lock, one handle per change; a file that is open when its last name goes stays whole until its last user lets it go,
//! on the list of orphans meanwhile. Limits: regular files are made; directories are not removed.

use super::edit::{check_changeable, put, take_out};
use super::lookup;
use super::room::{Room, find_room};
use crate::alloc::NEW_INODE_CREDITS;
use crate::cache::Kind;
use crate::error::{Error, NotYet};
use crate::file::{File, OpenFlags};
use crate::inode::{Inode, timestamp};
use crate::journal::JournalHandle;
use crate::orphan::{ORPHAN_CREDITS, check_deletable};
use crate::volume::{Volume, VolumeShared};
use diorite_format::inode::NewInode;
use diorite_format::{FileType, Ino, Inode as DiskInode, InodeFlags};
use std::sync::Arc;

const REGULAR: u16 = 0o100_000;

impl Volume {
    /// Makes an empty regular file and opens it for writing. Durable with the next [`Volume::sync`] or commit. Blocks.
    ///
    /// # Errors
    /// `Exists`; the directory is not there, or may not be changed; no inode or block is left; damage; a device that fails.
    pub fn create(&self, path: &str, permissions: u16) -> Result<File, Error> {
        let volume = self.inner();
        volume.check_open()?;
        volume.check_writable()?;
        let (dir, name) = self.parent_of(path)?;
        let _names = dir.lock_exclusive(false)?;
        check_changeable(&dir)?;
        if lookup::lookup(&dir, name)?.is_some() {
            return Err(Error::Exists {
                path: path.to_owned(),
            });
        }
        let room = find_room(&dir, name)?;
        let made = make(volume, &dir, &room, name, permissions);
        let ino = made.inspect_err(|_| room.give_back(&dir))?;
        let flags = OpenFlags {
            write: true,
            ..OpenFlags::default()
        };
        self.open_ino(ino, flags)
    }

    /// Removes a name. With the last one the file goes too, once nobody has it open. Durable with the next [`Volume::sync`] or commit. Blocks.
    ///
    /// # Errors
    /// `NotFound`; `IsADirectory`; the directory or the file may not be changed; damage; a device that fails.
    pub fn unlink(&self, path: &str) -> Result<(), Error> {
        let volume = self.inner();
        volume.check_open()?;
        volume.check_writable()?;
        let (dir, name) = self.parent_of(path)?;
        remove(volume, &dir, name, path)?;
        volume.let_go_of_unlinked();
        volume.delete_doomed()
    }

    /// The directory in which a path's last name is, and that name.
    fn parent_of<'p>(&self, path: &'p str) -> Result<(Arc<Inode>, &'p [u8]), Error> {
        let trimmed = path.trim_end_matches('/');
        let (parent, name) = trimmed.rsplit_once('/').unwrap_or(("", trimmed));
        if name.is_empty() || name == "." || name == ".." || trimmed.len() < path.len() {
            return Err(Error::Invalid(format!("{path}: not the path of a file")));
        }
        let dir = self.inner().inode(self.resolve(parent.as_bytes(), true)?)?;
        if !dir.disk().is_dir() {
            return Err(Error::NotADirectory {
                path: parent.to_owned(),
            });
        }
        Ok((dir, name.as_bytes()))
    }
}

fn make(
    volume: &Arc<VolumeShared>,
    dir: &Inode,
    room: &Room,
    name: &[u8],
    permissions: u16,
) -> Result<Ino, Error> {
    let alloc = volume.alloc()?;
    let credits = NEW_INODE_CREDITS + room.credits(dir);
    volume.in_handle(credits, |handle| {
        let ino = alloc.new_inode(handle, dir.ino, false)?;
        let named = put(handle, dir, room, (name, ino, FileType::Regular));
        if let Err(error) = named {
            handle.or_abort(alloc.free_inode(handle, ino, false))?;
            return Err(error);
        }
        handle.or_abort(write_fresh(volume, handle, dir, ino, permissions))?;
        Ok(ino)
    })
}

fn write_fresh(
    volume: &VolumeShared,
    handle: &JournalHandle<'_>,
    dir: &Inode,
    ino: Ino,
    permissions: u16,
) -> Result<(), Error> {
    let (block, from) = volume.inode_place(ino)?;
    let to = from + volume.sb.geometry().inode_size() as usize;
    let nanos = volume.now_nanos();
    let parent = dir.disk();
    let inherits = parent.flags.has(InodeFlags::PROJINHERIT);
    handle.update(
        block,
        Kind::InodeTable,
        |_| Ok(()),
        |raw| {
            let old = DiskInode::parse(&volume.sb, ino, &raw[from..to]).ok();
            let new = NewInode {
                ino,
                mode: REGULAR | permissions & 0o7777,
                uid: volume.owner.0,
                gid: volume.owner.1,
                projid: if inherits { parent.projid } else { 0 },
                flags: InodeFlags::default(),
                generation: generation(old, nanos),
                time: timestamp(nanos),
            };
            let fresh = DiskInode::fresh(&volume.sb, &new);
            fresh
                .write_new(&volume.sb, &mut raw[from..to])
                .map_err(Error::from)
        },
    )
}

/// A number that the slot did not have before: sums of blocks of the file that was there do not fit this one.
fn generation(old: Option<DiskInode>, nanos: u64) -> u32 {
    let old = old.map_or(0, |disk| disk.generation);
    let mixed = (nanos ^ (nanos >> 32)) & u64::from(u32::MAX);
    let new = u32::try_from(mixed).expect("masked to 32 bits");
    if new == old { old.wrapping_add(1) } else { new }
}

fn remove(volume: &Arc<VolumeShared>, dir: &Inode, name: &[u8], path: &str) -> Result<(), Error> {
    let _names = dir.lock_exclusive(false)?;
    check_changeable(dir)?;
    let missing = || Error::NotFound {
        path: path.to_owned(),
    };
    let found = lookup::find(dir, name)?.ok_or_else(missing)?;
    let inode = volume.inode(found.ino)?;
    check_removable(volume, &inode, path)?;
    let ino = dir.ino;
    let block = found
        .block
        .ok_or(Error::NotYet(NotYet::SpecialDirectory { ino }))?;
    let now = timestamp(volume.now_nanos());
    let is_last = volume.in_handle(4 + ORPHAN_CREDITS, |handle| {
        take_out(handle, dir, block, name)?;
        let mut links = 0;
        handle.or_abort(inode.change(handle, |disk| {
            disk.links = disk.links.saturating_sub(1);
            disk.ctime = now;
            links = disk.links;
        }))?;
        if links == 0 {
            handle.or_abort(volume.orphans.add(handle, &inode))?;
        }
        Ok(links == 0)
    })?;
    if is_last {
        inode.note_unlinked();
    }
    Ok(())
}

fn check_removable(volume: &VolumeShared, inode: &Inode, path: &str) -> Result<(), Error> {
    let (ino, disk) = (inode.ino, inode.disk());
    let refused = |flag| Err(Error::NotPermitted { ino, flag });
    if volume.is_system_inode(ino) {
        return refused("one of the volume's own");
    }
    if disk.is_dir() {
        return Err(Error::IsADirectory {
            path: path.to_owned(),
        });
    }
    if disk.flags.has(InodeFlags::IMMUTABLE) {
        return refused("immutable");
    }
    if disk.flags.has(InodeFlags::APPEND) {
        return refused("append-only");
    }
    check_deletable(inode)
}
