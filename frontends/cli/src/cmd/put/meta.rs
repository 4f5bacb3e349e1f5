//! Sets the metadata of a copy: owner, attributes, mode, times; in this order.
//!
//! Input: the metadata of a source, and options that replace parts of it. Output: changed inodes, warnings. Invariants: the
//! owner comes first, because changing it clears set-user-id and capabilities; what a copy inherits from its directory (default
//! ACL, flags) does not stay. Limits: attributes that the image cannot hold are told once per name, with the count at the end: as a
//! warning those of which it has no notion, as a failure those for which there is no room.

use super::source::{Attributes, Source};
use crate::args::CopiesArgs;
use crate::output::report::{Reason, Report};
use crate::words::modes::{ACL, ModeChange};
use diorite::{Error, SetAttr, Volume};
use diorite_format::{FileType, Ino};
use std::collections::BTreeMap;

/// Which metadata is kept, and what the image could not hold so far.
pub(super) struct Meta {
    owner: Option<u32>,
    group: Option<u32>,
    mode: Option<ModeChange>,
    xattrs: bool,
    /// Refused attributes by name.
    refused: BTreeMap<Vec<u8>, Refused>,
}

struct Refused {
    times: u64,
    /// The first reason.
    reason: Reason,
    /// There was no room.
    full: bool,
}

impl Meta {
    pub(super) fn new(args: &CopiesArgs) -> Meta {
        let (owner, group) = args.ids();
        Meta {
            owner,
            group,
            mode: args.mode.clone(),
            xattrs: !args.no_xattrs,
            refused: BTreeMap::new(),
        }
    }

    /// The metadata of a new file made from a stream.
    pub(super) fn of_new(&self, new: Attributes) -> Attributes {
        let mut new = self.owned(new);
        if let Some(change) = &self.mode {
            new.mode = change.of(new.mode, false);
        }
        new
    }

    /// Replaces the owner and the group by those of the command line.
    fn owned(&self, found: Attributes) -> Attributes {
        Attributes {
            uid: self.owner.unwrap_or(found.uid),
            gid: self.group.unwrap_or(found.gid),
            ..found
        }
    }

    /// Reads the metadata that a copy gets.
    pub(super) fn read(&self, source: &Source) -> Result<Attributes, Reason> {
        let mut found = self.owned(source.attributes(self.xattrs)?);
        let is_dir = source.is_dir();
        match &self.mode {
            // An octal mode does not apply to directories: without execute bits they could not be entered.
            Some(ModeChange::Exactly(_)) if is_dir => {}
            Some(_) if source.kind() == FileType::Symlink => {}
            Some(change) => {
                found.mode = change.of(found.mode, is_dir);
                // The ACLs would contradict the changed mode.
                found.xattrs.retain(|x| !x.name.starts_with(ACL));
            }
            None => {}
        }
        Ok(found)
    }

    /// Sets the metadata of an inode. Of a new inode, attributes that the source does not have are removed.
    pub(super) fn set(
        &mut self,
        volume: &Volume,
        ino: Ino,
        to: &Attributes,
        is_new: bool,
    ) -> Result<(), Error> {
        let all = SetAttr::default()
            .permissions(to.mode)
            .uid(to.uid)
            .gid(to.gid)
            .atime(to.atime)
            .mtime(to.mtime)
            .is_now(false);
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
            let mode = SetAttr::default().permissions(to.mode);
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

    /// Counts an attribute that the image cannot hold; any other failure is an error.
    fn note_refused(&mut self, name: &[u8], error: Error) -> Result<(), Error> {
        match error.root() {
            Error::NotSupported(_)
            | Error::NotYet(_)
            | Error::AttributesFull { .. }
            | Error::NotPermitted { .. } => {
                let first = || Refused {
                    times: 0,
                    reason: Reason::from(&error),
                    full: false,
                };
                let refused = self.refused.entry(name.to_vec()).or_insert_with(first);
                refused.times += 1;
                refused.full |= matches!(error.root(), Error::AttributesFull { .. });
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Tells what of the metadata was not kept.
    pub(super) fn summary(&self, report: &mut Report) {
        for (name, refused) in &self.refused {
            let name = String::from_utf8_lossy(name);
            let (count, reason) = (refused.times, &refused.reason);
            let s = if count == 1 { "" } else { "s" };
            let what =
                format!("attribute {name} is not in the image for {count} file{s}: {reason}");
            match refused.full {
                true => report.host(what),
                false => report.warn(what),
            }
        }
    }
}
