//! Replays records of names that were added or removed.
//!
//! Input: a directory, a name, an inode. Output: the directory changed; links counted if no record of the inode does that. Invariants:
//! a directory's count of subdirectories follows the names that are really added and removed; a directory that loses its only name gets no
//! links, so that it is deleted at the end; one that moves gets the right "..". Limits: a record about a directory that does not exist is
//! skipped: the directory was made and removed between two fast commits.

use super::{Place, Replay, damaged, is_dir};
use crate::dir::links::{one_less, one_more};
use crate::dir::replayed::{begin, parent_of, put_name, set_parent, take_name};
use crate::error::Error;
use crate::inode::Inode;
use diorite_format::journal::FastName;
use diorite_format::{Ino, Inode as DiskInode};
use std::sync::Arc;

impl Replay<'_> {
    pub(super) fn add_name(
        &mut self,
        name: &FastName,
        is_new: bool,
        place: Place<'_>,
    ) -> Result<(), Error> {
        let Some(dir) = self.directory(name.parent)? else {
            return Ok(());
        };
        let inode = self.named(name.ino, place)?;
        let inode = inode.ok_or_else(|| damaged(name.ino, "gets a name and is not in use"))?;
        if is_dir(&inode) {
            return self.add_directory(&dir, &inode, name, is_new);
        }
        let kind = inode.disk().file_type;
        let kind = kind.ok_or_else(|| damaged(name.ino, "gets a name and has no type"))?;
        let put = put_name(&dir, (&name.name, name.ino, kind)).map_err(|e| at(name, e))?;
        if put && !is_new && place.next_of(name.ino).is_none() {
            self.count(&inode, |disk| disk.links = disk.links.saturating_add(1))?;
        }
        Ok(())
    }

    fn add_directory(
        &mut self,
        dir: &Inode,
        inode: &Arc<Inode>,
        name: &FastName,
        is_new: bool,
    ) -> Result<(), Error> {
        let is_inline = inode.disk().map_kind() == diorite_format::MapKind::Inline;
        if inode.size() == 0 && !is_inline {
            begin(inode, dir).map_err(|e| at(name, e))?;
        } else if parent_of(inode)? != Some(dir.ino) {
            set_parent(inode, dir)?;
        }
        let kind = diorite_format::FileType::Directory;
        if !put_name(dir, (&name.name, name.ino, kind)).map_err(|e| at(name, e))? {
            return Ok(());
        }
        if !is_new {
            *self.names_of.entry(name.ino).or_insert(1) += 1;
        }
        self.count(dir, one_more)
    }

    pub(super) fn remove_name(&mut self, name: &FastName, place: Place<'_>) -> Result<(), Error> {
        let Some(dir) = self.directory(name.parent)? else {
            return Ok(());
        };
        if !take_name(&dir, &name.name, name.ino).map_err(|e| at(name, e))? {
            return Ok(());
        }
        let Some(inode) = self.inode(name.ino)? else {
            return Ok(());
        };
        if is_dir(&inode) {
            self.count(&dir, one_less)?;
            let names = self.names_of.entry(name.ino).or_insert(1);
            *names = names.saturating_sub(1);
            if *names == 0 {
                self.count(&inode, |disk| disk.links = 0)?;
            }
        } else if place.next_of(name.ino).is_none() {
            self.count(&inode, |disk| disk.links = disk.links.saturating_sub(1))?;
        }
        Ok(())
    }

    /// A directory that has a name; None for anything else.
    fn directory(&mut self, ino: Ino) -> Result<Option<Arc<Inode>>, Error> {
        let found = self.inode(ino)?;
        Ok(found.filter(|inode| is_dir(inode) && inode.disk().links > 0))
    }

    fn count(&self, inode: &Inode, change: impl Fn(&mut DiskInode)) -> Result<(), Error> {
        self.volume
            .in_handle(1, |handle| inode.change(handle, &change))
    }
}

fn at(name: &FastName, error: Error) -> Error {
    let (shown, parent) = (String::from_utf8_lossy(&name.name), name.parent);
    error.at(format!("fast commits, name {shown} in inode {parent}"))
}
