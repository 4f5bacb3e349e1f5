//! What a copy has besides its data: owner, attributes, mode, times; in this order.
//!
//! Input: what a source says, what the command line says instead. Output: changed inodes, warnings. Invariants: the owner comes first, for changing
//! it takes set-user-id and capabilities away; what a directory hands down to new files does not stay on a copy. Limits: attributes that the
//! image cannot hold are a warning, once per name, with the count at the end.

use super::source::{Attributes, Source};
use crate::args::CopiesArgs;
use crate::modes::ModeChange;
use crate::report::{Reason, Report};
use diorite::{Error, SetAttr, Volume};
use diorite_format::{FileType, Ino};
use std::collections::BTreeMap;

/// How the names of access control lists begin.
const ACL: &[u8] = b"system.posix_acl_";

/// What is to be kept, and what the image could not hold so far.
pub(super) struct Meta {
    owner: Option<u32>,
    group: Option<u32>,
    mode: Option<ModeChange>,
    xattrs: bool,
    /// By name: how often, and the first reason.
    refused: BTreeMap<Vec<u8>, (u64, Reason)>,
}

impl Meta {
    pub(super) fn new(args: &CopiesArgs) -> Meta {
        Meta {
            owner: args.owner,
            group: args.group,
            mode: args.mode.clone(),
            xattrs: !args.no_xattrs,
            refused: BTreeMap::new(),
        }
    }

    /// What a new file is to have that is made of a stream.
    pub(super) fn of_new(&self, new: Attributes) -> Attributes {
        let mut new = self.owned(new);
        if let Some(change) = &self.mode {
            new.mode = change.of(new.mode, false);
        }
        new
    }

    /// The owner and the group are those that the command line gives.
    fn owned(&self, found: Attributes) -> Attributes {
        Attributes {
            uid: self.owner.unwrap_or(found.uid),
            gid: self.group.unwrap_or(found.gid),
            ..found
        }
    }

    /// What a copy is to have.
    pub(super) fn read(&self, source: &Source) -> Result<Attributes, Reason> {
        let mut found = self.owned(source.attributes(self.xattrs)?);
        let is_dir = source.is_dir();
        match &self.mode {
            // Bits without an x would shut directories.
            Some(ModeChange::Exactly(_)) if is_dir => {}
            Some(_) if source.kind() == FileType::Symlink => {}
            Some(change) => {
                found.mode = change.of(found.mode, is_dir);
                // They would say something else.
                found.xattrs.retain(|x| !x.name.starts_with(ACL));
            }
            None => {}
        }
        Ok(found)
    }

    /// Gives an inode what it is to have. One that is new has nothing else afterwards.
    pub(super) fn set(
        &mut self,
        volume: &Volume,
        ino: Ino,
        to: &Attributes,
        is_new: bool,
    ) -> Result<(), Error> {
        let all = SetAttr {
            permissions: Some(to.mode),
            uid: Some(to.uid),
            gid: Some(to.gid),
            atime: Some(to.atime),
            mtime: Some(to.mtime),
        };
        volume.set_attr(ino, &all)?;
        if is_new {
            self.drop_inherited(volume, ino, to)?;
        }
        for xattr in &to.xattrs {
            let Err(error) = volume.set_xattr(ino, &xattr.name, &xattr.value) else {
                continue;
            };
            self.note_refused(&xattr.name, error)?;
        }
        if to.xattrs.iter().any(|x| x.name.starts_with(ACL)) {
            let mode = SetAttr {
                permissions: Some(to.mode),
                ..SetAttr::default()
            };
            volume.set_attr(ino, &mode)?;
        }
        Ok(())
    }

    fn drop_inherited(&self, volume: &Volume, ino: Ino, to: &Attributes) -> Result<(), Error> {
        for there in volume.xattrs(ino)? {
            let wanted = to.xattrs.iter().any(|x| x.name == there.name);
            if there.name.starts_with(ACL) && !wanted {
                volume.remove_xattr(ino, &there.name)?;
            }
        }
        Ok(())
    }

    /// Counts what the image cannot hold; what else may go wrong is an error.
    fn note_refused(&mut self, name: &[u8], error: Error) -> Result<(), Error> {
        match error.root() {
            Error::NotSupported(_)
            | Error::NotYet(_)
            | Error::AttributesFull { .. }
            | Error::NotPermitted { .. } => {
                let first = || (0, Reason::from(&error));
                self.refused.entry(name.to_vec()).or_insert_with(first).0 += 1;
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Says what was not kept.
    pub(super) fn summary(&self, report: &Report) {
        for (name, (count, reason)) in &self.refused {
            let name = String::from_utf8_lossy(name);
            let s = if *count == 1 { "" } else { "s" };
            report.warn(format_args!(
                "attribute {name} is not in the image for {count} file{s}: {reason}"
            ));
        }
    }
}
