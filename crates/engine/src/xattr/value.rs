//! Value inodes (feature ea_inode): inodes that store the value of an attribute. They are created, referred to, and read here.
//!
//! Input: a value; an entry that refers to an inode. Output: an inode whose data, written through the journal, is the value. Invariants: a
//! new value inode is on the orphan list until the handle that adds an attribute referring to it; one to which no attribute refers any more
//! is put onto the list again. While it is there, its flags are those of a file with data journalling. Limits: equal values that are set
//! here do not share an inode; an inode that others made shared stays shared. Source: the kernel's ext4 documentation, "extended
//! attributes"; experiments with the kernel's mount, debugfs and e2fsck.

use super::MOST_VALUE;
use crate::alloc::{MARK_CREDITS, NEW_INODE_CREDITS, Run};
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::inode::read_orphan;
use crate::inode::{Inode, generation, timestamp};
use crate::journal::JournalHandle;
use crate::map::edit::NewRun;
use crate::orphan::ORPHAN_CREDITS;
use diorite_block::Buf;
use diorite_format::inode::{NewInode, generation_in};
use diorite_format::xattr::{XattrEntry, XattrValue, value_sum, verify_ea_inode};
use diorite_format::{FileType, FsBlock, Ino, Inode as DiskInode, InodeFlags};
use std::sync::Arc;

/// The permissions of a value inode: its owner may read and write.
const PERMISSIONS: u16 = 0o600;

/// A value inode, and the length of the value.
pub(super) struct Holder {
    pub(super) inode: Arc<Inode>,
    pub(super) size: u32,
}

/// The value inode to which an entry refers, and the value's length; none if the value is beside the entry.
pub(super) fn held(entry: &XattrEntry<'_>) -> Option<(Ino, u32)> {
    match entry.value {
        XattrValue::Inode { ino, size } => Some((ino, size)),
        XattrValue::Bytes(_) => None,
    }
}

/// Reads the value of an entry of this inode from its value inode, and verifies it.
pub(super) fn held_value(
    inode: &Inode,
    entry: &XattrEntry<'_>,
    ino: Ino,
    size: u32,
) -> Result<Vec<u8>, Error> {
    let holder = holder(inode, ino, size)?;
    let holder = &holder.inode;
    if size > MOST_VALUE || u64::from(size) > holder.size() {
        let owner = inode.ino;
        return Err(Error::Damaged(format!(
            "inode {owner}: an attribute's value in inode {ino} is {size} bytes; run e2fsck"
        )));
    }
    let mut value = Buf::zeroed(size as usize);
    match holder.inline_data() {
        Some(inside) => value.copy_in(0, &inside[..inside.len().min(size as usize)]),
        None => holder.read_journalled(0, size as usize, &mut value)?,
    }
    let value = value.as_slice();
    verify_ea_inode(&inode.volume.sb, inode.ino, entry, &holder.disk(), value)?;
    Ok(value.to_vec())
}

/// The value inodes to which these entries refer.
pub(super) fn holders<'e>(
    inode: &Inode,
    entries: impl Iterator<Item = &'e XattrEntry<'e>>,
) -> Result<Vec<Holder>, Error> {
    entries
        .filter_map(held)
        .map(|(ino, size)| holder(inode, ino, size))
        .collect()
}

fn holder(inode: &Inode, ino: Ino, size: u32) -> Result<Holder, Error> {
    let owner = inode.ino;
    let volume = &inode.volume;
    if volume.is_system_inode(ino) || volume.sb.orphan_file() == Some(ino) {
        return Err(Error::Damaged(format!(
            "inode {owner}: an attribute's value is in inode {ino}, which is one of the volume's own; run e2fsck"
        )));
    }
    let inode = volume.inode(ino).map_err(|error| match error {
        Error::NotInUse { ino } => Error::Damaged(format!(
            "inode {owner}: an attribute's value is in inode {ino}, which is not in use; run e2fsck"
        )),
        other => other,
    })?;
    if !inode.disk().holds_value() {
        return Err(Error::Damaged(format!(
            "inode {owner}: inode {ino} holds no attribute's value; run e2fsck"
        )));
    }
    Ok(Holder { inode, size })
}

/// Counts one more reference to each of these.
pub(super) fn add_users(handle: &JournalHandle<'_>, holders: &[Holder]) -> Result<(), Error> {
    for Holder { inode, .. } in holders {
        inode.change(handle, |disk| {
            disk.set_value_users(disk.value_users().saturating_add(1));
        })?;
    }
    Ok(())
}

/// Undoes [`add_users`].
pub(super) fn take_back_users(handle: &JournalHandle<'_>, holders: &[Holder]) -> Result<(), Error> {
    for Holder { inode, .. } in holders {
        inode.change(handle, |disk| {
            disk.set_value_users(disk.value_users().saturating_sub(1));
        })?;
    }
    Ok(())
}

/// Counts one reference less to each of these, and subtracts its space from `i_blocks` of `owner`. One without references becomes an
/// orphan.
pub(super) fn let_go(
    owner: &Inode,
    handle: &JournalHandle<'_>,
    holders: &[Holder],
) -> Result<(), Error> {
    for Holder { inode, size } in holders {
        let mut left = 0;
        inode.change(handle, |disk| {
            left = disk.value_users().saturating_sub(1);
            disk.set_value_users(left);
            disk.links = disk.links.min(u16::from(left > 0));
            if left == 0 {
                disk.set_named_by_attributes(false);
            }
        })?;
        if left == 0 {
            handle.goes(inode.ino);
            inode.begin_orphan(handle)?;
            inode.note_unlinked();
        }
        let units = units_of_value(owner, *size);
        owner.change(handle, |disk| {
            disk.blocks = disk.blocks.saturating_sub(units);
        })?;
    }
    Ok(())
}

/// Takes a new value inode off the orphan list, as an attribute of `inode` refers to it now, and adds its space to `i_blocks` of
/// `inode`.
pub(super) fn adopt(
    inode: &Inode,
    handle: &JournalHandle<'_>,
    holder: &Holder,
) -> Result<(), Error> {
    holder.inode.end_orphan(handle, 0)?;
    holder.inode.change(handle, |disk| {
        disk.links = 1;
        disk.set_named_by_attributes(true);
    })?;
    holder.inode.note_value();
    holder.inode.note_named();
    let units = units_of_value(inode, holder.size);
    inode.change(handle, |disk| disk.blocks += units)
}

/// How much a value adds to `i_blocks` of the inode that has the attribute: whole clusters, in units of 512 bytes.
fn units_of_value(inode: &Inode, size: u32) -> u64 {
    let cluster = inode.volume.sb.geometry().cluster_size();
    u64::from(size.div_ceil(cluster)) * u64::from(cluster / 512)
}

/// Creates a value inode for an attribute of `owner`, as an orphan: it is deleted if it is dropped before [`adopt`]. Blocks; no lock may be
/// held and no handle open.
pub(super) fn make_holder(owner: &Inode, value: &[u8]) -> Result<Holder, Error> {
    let volume = &owner.volume;
    let credits = NEW_INODE_CREDITS + ORPHAN_CREDITS;
    let make = |handle: &JournalHandle<'_>| {
        let ino = volume.alloc()?.new_inode(handle, owner.ino, false)?;
        handle.or_abort((|| {
            write_holder(owner, handle, ino, value)?;
            let inode = read_orphan(volume, ino)?;
            volume.know(&inode);
            inode.begin_orphan(handle)?;
            Ok(inode)
        })())
    };
    let inode = volume.with_space_of_others(|| volume.in_handle(credits, make))?;
    inode.note_temporary();
    fill_holder(&inode, value)?;
    let size = u32::try_from(value.len()).expect("bounded by who sets it");
    Ok(Holder { inode, size })
}

fn write_holder(
    inode: &Inode,
    handle: &JournalHandle<'_>,
    ino: Ino,
    value: &[u8],
) -> Result<(), Error> {
    let (volume, owner) = (&inode.volume, inode.disk());
    let (block, from) = volume.inode_place(ino)?;
    let to = from + volume.sb.geometry().inode_size() as usize;
    let nanos = volume.now_nanos();
    handle.update(
        block,
        Kind::InodeTable,
        |_| Ok(()),
        |raw| {
            let old = generation_in(&raw[from..to]);
            let plan = NewInode {
                ino,
                mode: FileType::Regular.to_mode() | PERMISSIONS,
                uid: owner.uid,
                gid: owner.gid,
                projid: 0,
                flags: InodeFlags::default(),
                generation: generation::fresh(old, ino, nanos),
                time: timestamp(nanos),
            };
            let mut fresh = DiskInode::fresh(&volume.sb, &plan);
            fresh.begin_value(value_sum(&volume.sb, value));
            fresh.links = 0;
            fresh.set_named_by_attributes(false);
            fresh
                .write_new(&volume.sb, &mut raw[from..to])
                .map_err(Error::from)
        },
    )
}

/// Writes the value into a new value inode, one run of blocks per handle.
fn fill_holder(inode: &Inode, value: &[u8]) -> Result<(), Error> {
    let volume = &inode.volume;
    let size = volume.block_size() as usize;
    let most = (volume.most_credits() / 4).max(1);
    let blocks = u32::try_from(value.len().div_ceil(size)).expect("bounded by who sets it");
    let mut at = 0;
    while at < blocks {
        let want = most.min(blocks - at);
        let credits = want + MARK_CREDITS + inode.credits_to_map(1, &[]);
        let fill = |handle: &JournalHandle<'_>| fill_run(inode, handle, value, at, want);
        at += volume.with_space_of_others(|| volume.in_handle(credits, fill))?;
    }
    Ok(())
}

fn fill_run(
    inode: &Inode,
    handle: &JournalHandle<'_>,
    value: &[u8],
    at: u32,
    want: u32,
) -> Result<u32, Error> {
    let (volume, alloc) = (&inode.volume, inode.volume.alloc()?);
    let size = volume.block_size() as usize;
    let goal = alloc.goal_of(&volume.sb, inode.ino);
    let run = alloc.allocate(handle, goal, want, volume.reach)?;
    let new = NewRun {
        file_block: at,
        len: run.len.min(want),
        start: run.start,
        unwritten: false,
    };
    let parts = value.chunks(size).skip(at as usize);
    for (n, part) in (0..new.len).zip(parts) {
        let block = FsBlock::new(run.start.get() + u64::from(n));
        handle.create(block, Kind::Data, |raw| {
            raw[..part.len()].copy_from_slice(part);
        });
    }
    let mut remap = inode.remap(handle)?;
    if let Err(error) = remap.map_allocated(new, run.len) {
        return take_back(inode, handle, run).and(Err(error));
    }
    let end = (at + new.len) as usize * size;
    remap.disk.size = end.min(value.len()) as u64;
    remap.publish()?;
    Ok(new.len)
}

/// Frees a run that could not be mapped.
fn take_back(inode: &Inode, handle: &JournalHandle<'_>, run: Run) -> Result<(), Error> {
    let blocks = run.start.get()..run.end().get();
    blocks.for_each(|at| handle.forget(FsBlock::new(at)));
    handle.or_abort(inode.volume.alloc()?.free(handle, run.start, run.len))
}
