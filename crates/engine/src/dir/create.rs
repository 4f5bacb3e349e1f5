//! Creation of inodes, with a name or without.
//!
//! Input: a place for a name, or a directory. Output: a new inode: file, directory, symbolic link, device, pipe or socket. Invariants: the
//! inode, its contents and its name are created in one handle, so none exists without the others; a creation that fails for lack of space
//! has changed nothing. Limits: a symbolic link's target is shorter than a block.

use super::durable::commit_names;
use super::edit::{names_at, put};
use super::links::{check_subdirectory, one_more};
use super::spot::Spot;
use crate::alloc::{MARK_CREDITS, NEW_INODE_CREDITS, Run};
use crate::caller::Maker;
use crate::dir::inline_dir;
use crate::dir::placement::{Placement, find_placement};
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::inode::Fs;
use crate::inode::in_core;
use crate::inode::{Inode, generation, timestamp};
use crate::journal::JournalHandle;
use crate::map::edit::NewRun;
use crate::orphan::ORPHAN_CREDITS;
use crate::xattr::{Inherited, inherit_acl, put_inherited};
use diorite_format::dir::{begins_inline, init_first_block, init_inline};
use diorite_format::inline::rest_entry;
use diorite_format::inode::{NewInode, Rdev, SETGID, generation_in};
use diorite_format::{FileType, Ino, Inode as DiskInode, InodeFlags, MapKind, xattr};
use std::sync::Arc;

/// The longest target of a symbolic link that the kernel accepts, in bytes.
const MOST_TARGET: usize = 4095;

/// Credits for an attribute block: the new one, an equal one that is shared instead, and a bitmap with its group descriptor.
pub(super) const ATTRIBUTE_CREDITS: u32 = 2 + MARK_CREDITS;

/// What kind of inode is created.
#[derive(Clone, Copy)]
pub(super) enum New<'a> {
    File,
    /// A file without a name.
    Nameless,
    Directory,
    /// A symbolic link with this target.
    Link(&'a [u8]),
    /// A pipe, a socket or a device.
    Node(FileType, Rdev),
}

/// Creates an empty regular file.
pub(crate) fn create(spot: &Spot<'_>, permissions: u16) -> Result<Arc<Inode>, Error> {
    if spot.is_special() || spot.slash {
        let path = spot.shown();
        return Err(Error::Invalid(format!("{path}: not the path of a file")));
    }
    make(spot, New::File, permissions)
}

/// Creates an empty directory.
pub(crate) fn mkdir(spot: &Spot<'_>, permissions: u16) -> Result<Arc<Inode>, Error> {
    make(spot, New::Directory, spot.maker.of_directory(permissions))
}

/// Creates a symbolic link.
pub(crate) fn symlink(spot: &Spot<'_>, target: &[u8]) -> Result<Arc<Inode>, Error> {
    let most = MOST_TARGET.min(spot.dir.volume.block_size() as usize - 1);
    if target.is_empty() {
        return Err(spot.missing());
    }
    if target.len() > most {
        let path = spot.shown();
        return Err(Error::NameTooLong { path });
    }
    if spot.slash || target.contains(&0) {
        let path = spot.shown();
        return Err(Error::Invalid(format!("{path}: not the path of a link")));
    }
    make(spot, New::Link(target), 0o777)
}

/// Creates a pipe, a socket or a device.
pub(crate) fn mknod(
    spot: &Spot<'_>,
    kind: FileType,
    permissions: u16,
    device: Rdev,
) -> Result<Arc<Inode>, Error> {
    let is_device = matches!(kind, FileType::CharDevice | FileType::BlockDevice);
    let fits = !is_device || device.major < 1 << 12 && device.minor < 1 << 20;
    let is_node = is_device || matches!(kind, FileType::Fifo | FileType::Socket);
    if !is_node || !fits || spot.slash {
        let path = spot.shown();
        return Err(Error::Invalid(format!("{path}: no pipe, socket or device")));
    }
    make(spot, New::Node(kind, device), permissions)
}

/// Creates a regular file without a name (O_TMPFILE), in the block group of a directory if possible.
pub(crate) fn temporary(
    dir: &Arc<Inode>,
    permissions: u16,
    maker: &Maker,
) -> Result<Arc<Inode>, Error> {
    let volume = &dir.volume;
    volume.check_open()?;
    volume.check_writable()?;
    let from = inherit_acl(dir, FileType::Regular, permissions, maker)?;
    let credits = NEW_INODE_CREDITS + ORPHAN_CREDITS + ATTRIBUTE_CREDITS;
    let bring = |handle: &JournalHandle<'_>| {
        let alloc = volume.alloc()?;
        let ino = alloc.new_inode(handle, dir.ino, false)?;
        let taken = take_blocks(volume, handle, (ino, false), u32::from(from.needs_block))?;
        let prepare = |ino| volume.prepare_to_change(handle, ino);
        if let Err(error) = volume.orphans.prepare(handle, ino, prepare) {
            return give_back(volume, handle, (ino, false), &taken).and(Err(error));
        }
        handle.or_abort(nameless(volume, handle, dir, ino, (&from, &taken)))
    };
    volume.with_space_of_others(|| volume.in_handle(credits, bring))
}

fn make(spot: &Spot<'_>, new: New<'_>, permissions: u16) -> Result<Arc<Inode>, Error> {
    let volume = &spot.dir.volume;
    let made = volume.with_space_of_others(|| make_locked(spot, new, permissions))?;
    commit_names(&[&spot.dir])?;
    Ok(made)
}

fn make_locked(spot: &Spot<'_>, new: New<'_>, permissions: u16) -> Result<Arc<Inode>, Error> {
    let (volume, dir) = (&spot.dir.volume, &spot.dir);
    if spot.is_special() {
        return Err(spot.exists());
    }
    let names = dir.lock_exclusive(false)?;
    spot.check_can_add()?;
    let searched = spot.search_by(&names)?;
    if searched.found().is_some() {
        return Err(spot.exists());
    }
    if matches!(new, New::Directory) {
        check_subdirectory(dir)?;
    }
    let from = inherit_acl(dir, new.kind(), permissions, spot.maker)?;
    let room = find_placement(dir, spot.name, searched.room())?;
    let credits = NEW_INODE_CREDITS + room.credits(dir) + 2 + MARK_CREDITS + ATTRIBUTE_CREDITS;
    let made = volume.in_handle(credits, |handle| {
        with_name(volume, handle, spot, &room, new, &from)
    });
    made.inspect_err(|_| room.give_back(dir))
}

fn with_name(
    volume: &Arc<Fs>,
    handle: &JournalHandle<'_>,
    spot: &Spot<'_>,
    room: &Placement,
    new: New<'_>,
    from: &Inherited,
) -> Result<Arc<Inode>, Error> {
    let (dir, is_dir) = (&spot.dir, matches!(new, New::Directory));
    let ino = volume.alloc()?.new_inode(handle, dir.ino, is_dir)?;
    let taken = take_blocks(volume, handle, (ino, is_dir), new.wants_blocks(from))?;
    let put = || {
        if !volume.alloc()?.has_written_beside(handle, ino) {
            volume.prepare_to_change(handle, ino)?;
        }
        put(handle, dir, room, (spot.name, ino, new.kind()))
    };
    let parent = match put() {
        Ok(parent) => parent,
        Err(error) => return give_back(volume, handle, (ino, is_dir), &taken).and(Err(error)),
    };
    handle.or_abort((|| {
        let inode = bring_about(volume, handle, &parent, (ino, taken), (new, from))?;
        volume.alloc()?.note_written(handle, ino);
        if is_dir {
            let block = match inline_dir::is_inside(&inode) {
                true => None,
                false => super::place_of(&inode, 0)?,
            };
            handle.begins(ino, block, names_at(dir, room.block())?);
            dir.change(handle, one_more)?;
        }
        Ok(inode)
    })())
}

/// Creates the inode that has this number, with the blocks that were allocated for it. `parent`: its directory's inode.
pub(super) fn bring_about(
    volume: &Arc<Fs>,
    handle: &JournalHandle<'_>,
    parent: &DiskInode,
    (ino, taken): (Ino, Vec<Run>),
    (new, from): (New<'_>, &Inherited),
) -> Result<Arc<Inode>, Error> {
    let (disk, raw) = write_fresh(volume, handle, parent, ino, (new, from))?;
    // A fresh in-core inode: a thread that deletes the former inode of this number may still hold that one.
    let inode = in_core(volume, disk, raw)?;
    let inode = volume.know_new(inode, handle.tid());
    volume.recent.keep(&inode);
    let mut taken = taken.into_iter();
    if let Some(run) = new.needs_block(from).then(|| taken.next()).flatten() {
        fill(handle, &inode, parent.ino, new, run)?;
    }
    put_inherited(&inode, handle, from, taken.next())?;
    Ok(inode)
}

/// Allocates blocks for a new inode: for its contents, for its attributes. If there is no space, the inode number is freed, too.
pub(super) fn take_blocks(
    volume: &Fs,
    handle: &JournalHandle<'_>,
    new: (Ino, bool),
    wanted: u32,
) -> Result<Vec<Run>, Error> {
    let (alloc, mut taken) = (volume.alloc()?, Vec::new());
    let goal = alloc.goal_of(&volume.sb, new.0);
    for _ in 0..wanted {
        match alloc.allocate(handle, goal, 1, volume.reach) {
            Ok(run) => taken.push(run),
            Err(error) => return give_back(volume, handle, new, &taken).and(Err(error)),
        }
    }
    Ok(taken)
}

/// Frees the number and the blocks of an inode that is not created after all.
pub(super) fn give_back(
    volume: &Fs,
    handle: &JournalHandle<'_>,
    (ino, is_dir): (Ino, bool),
    taken: &[Run],
) -> Result<(), Error> {
    let alloc = volume.alloc()?;
    handle.or_abort((|| {
        for run in taken {
            alloc.free(handle, run.start, run.len)?;
        }
        alloc.free_inode(handle, ino, is_dir)
    })())
}

impl New<'_> {
    pub(super) fn kind(self) -> FileType {
        match self {
            New::File | New::Nameless => FileType::Regular,
            New::Directory => FileType::Directory,
            New::Link(_) => FileType::Symlink,
            New::Node(kind, _) => kind,
        }
    }

    /// How many blocks it needs: for its contents, and for the attributes that it inherits.
    pub(super) fn wants_blocks(self, from: &Inherited) -> u32 {
        u32::from(self.needs_block(from)) + u32::from(from.needs_block)
    }

    /// Do its contents need a block?
    fn needs_block(self, from: &Inherited) -> bool {
        match self {
            New::Directory => !from.begins_inside,
            New::Link(target) => target.len() >= diorite_format::inode::I_BLOCK_SIZE,
            New::File | New::Nameless | New::Node(..) => false,
        }
    }
}

/// Creates an inode without a name, on the orphan list.
fn nameless(
    volume: &Arc<Fs>,
    handle: &JournalHandle<'_>,
    dir: &Inode,
    ino: Ino,
    (from, taken): (&Inherited, &[Run]),
) -> Result<Arc<Inode>, Error> {
    let (disk, raw) = write_fresh(volume, handle, &dir.disk(), ino, (New::Nameless, from))?;
    let inode = in_core(volume, disk, raw)?;
    // Before anybody finds it by its number.
    inode.note_temporary();
    volume.know(&inode);
    put_inherited(&inode, handle, from, taken.first().copied())?;
    inode.begin_orphan(handle)?;
    Ok(inode)
}

/// Writes the first block of a directory, or the block of a link's target, and maps it.
pub(super) fn fill(
    handle: &JournalHandle<'_>,
    inode: &Inode,
    parent: Ino,
    new: New<'_>,
    run: Run,
) -> Result<(), Error> {
    let (sb, disk) = (&inode.volume.sb, inode.disk());
    let (mut filled, mut size) = (Ok(()), u64::from(sb.block_size()));
    match new {
        New::Link(target) => {
            size = target.len() as u64;
            handle.create(run.start, Kind::Data, |raw| {
                raw[..target.len()].copy_from_slice(target);
            });
        }
        _ => handle.create(run.start, Kind::Directory, |raw| {
            filled = init_first_block(sb, &disk, parent, raw);
        }),
    }
    filled?;
    let mut remap = inode.remap(handle)?;
    let first = NewRun {
        file_block: 0,
        len: 1,
        start: run.start,
        unwritten: false,
    };
    remap.map_allocated(first, run.len)?;
    remap.disk.size = size;
    remap.publish()
}

/// Writes a new inode into the inode table. Returns the inode, and its bytes in the table.
fn write_fresh(
    volume: &Fs,
    handle: &JournalHandle<'_>,
    parent: &DiskInode,
    ino: Ino,
    (new, made): (New<'_>, &Inherited),
) -> Result<(DiskInode, Arc<[u8]>), Error> {
    let (block, from) = volume.inode_place(ino)?;
    let to = from + volume.sb.geometry().inode_size() as usize;
    let nanos = handle.now_nanos();
    handle.update(
        block,
        Kind::InodeTable,
        |_| Ok(()),
        |raw| {
            let old = generation_in(&raw[from..to]);
            let plan = NewInode {
                ino,
                generation: generation::fresh(old, ino, nanos),
                time: timestamp(nanos),
                ..inherited(parent, new.kind(), made)
            };
            let mut fresh = DiskInode::fresh(&volume.sb, &plan);
            match new {
                New::Link(target) if !fresh.set_fast_symlink(target) => {
                    // The size says that the target is in a block and not in the inode.
                    fresh.size = target.len() as u64;
                    fresh.begin_map(&volume.sb);
                }
                // From the beginning on: whoever reads it by its number would have a second in-core inode otherwise.
                New::Nameless => fresh.links = 0,
                New::Node(_, device) => fresh.i_block = device.encode(),
                New::Directory if begins_inline(&volume.sb) => init_inline(&mut fresh, parent.ino),
                New::File | New::Directory | New::Link(_) => {}
            }
            let place = &mut raw[from..to];
            fresh.write_new(&volume.sb, place)?;
            if fresh.map_kind() == MapKind::Inline {
                xattr::write_inode(&fresh, &[rest_entry(&[])], place)?;
                fresh.write(&volume.sb, place)?;
            }
            Ok((fresh, (*place).into()))
        },
    )
}

/// What a new inode gets from its creator and its directory. If the directory has the set-group-id bit, the inode gets the directory's
/// group, and a new directory gets the bit, too.
fn inherited(parent: &DiskInode, kind: FileType, made: &Inherited) -> NewInode {
    let is_dir = kind == FileType::Directory;
    let gives_group = parent.mode & SETGID != 0;
    let keeps = if gives_group && is_dir { SETGID } else { 0 };
    let of_all = [InodeFlags::NODUMP, InodeFlags::NOATIME];
    let of_files = [
        InodeFlags::SECRM,
        InodeFlags::UNRM,
        InodeFlags::COMPR,
        InodeFlags::SYNC,
        InodeFlags::JOURNAL_DATA,
        InodeFlags::NOTAIL,
        InodeFlags::DAX,
    ];
    let of_dirs = [InodeFlags::DIRSYNC, InodeFlags::PROJINHERIT];
    let holds_data = is_dir || kind == FileType::Regular;
    let mut flags = InodeFlags::default();
    let wanted = of_all
        .into_iter()
        .chain(of_files.into_iter().filter(|_| holds_data))
        .chain(of_dirs.into_iter().filter(|_| is_dir));
    for flag in wanted.filter(|flag| parent.flags.has(*flag)) {
        flags = flags.with(flag);
    }
    NewInode {
        ino: parent.ino,
        mode: kind.to_mode() | made.permissions & 0o7777 | keeps,
        uid: made.owner.0,
        gid: if gives_group {
            parent.gid
        } else {
            made.owner.1
        },
        projid: match parent.flags.has(InodeFlags::PROJINHERIT) {
            true => parent.projid,
            false => 0,
        },
        flags,
        generation: 0,
        time: parent.ctime,
    }
}
