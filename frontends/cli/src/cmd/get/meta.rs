//! Sets the metadata of a copy: owner, attributes, mode, times; in this order.
//!
//! Input: inodes and their copies. Output: changed copies, warnings. Invariants: the owner comes first, because changing it
//! clears set-user-id and capabilities; a copy whose owner could not be set loses its set-id bits; links are never followed.
//! Limits: metadata that the host refuses is a warning, once per kind, with the count at the end.

use crate::args::GetArgs;
use crate::output::report::{Report, errno_text};
use crate::words::modes::{ACL, ModeChange};
use diorite::Volume;
use diorite::xattr::Xattr;
use diorite_format::{Inode, Timestamp};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{
    AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chownat, fchmod, fchown, fsetxattr,
    futimens, lsetxattr, utimensat,
};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;

/// Set-user-id and set-group-id.
const SET_ID: u16 = 0o6000;

/// Which metadata is kept, and what the host refused so far.
pub(super) struct Meta {
    owners: bool,
    /// Why owners are not kept, for the single warning about it.
    why_no_owners: Option<&'static str>,
    xattrs: bool,
    chmod: Option<ModeChange>,
    me: (u32, u32),
    /// Refused attributes by name: how often, and the first reason.
    refused: BTreeMap<Vec<u8>, (u64, Errno)>,
    owner_refused: bool,
}

/// A copy that must not be opened: a symbolic link, a pipe, a device.
pub(super) struct At<'a> {
    pub(super) dir: &'a OwnedFd,
    pub(super) name: &'a [u8],
}

impl Meta {
    pub(super) fn new(args: &GetArgs) -> Meta {
        let me = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        let owners = args.same_owner || me.0 == 0 && !args.no_same_owner;
        let told = args.no_same_owner;
        Meta {
            owners,
            why_no_owners: (!owners && !told).then_some("only root can give files to others"),
            xattrs: !args.no_xattrs,
            chmod: args.chmod.clone(),
            me,
            refused: BTreeMap::new(),
            owner_refused: false,
        }
    }

    /// The permissions of a copy of a file that has these.
    pub(super) fn mode(&self, mode: u16, is_dir: bool) -> u16 {
        match &self.chmod {
            // Without execute bits directories could not be entered.
            Some(ModeChange::Exactly(_)) if is_dir => mode & 0o7777,
            Some(change) => change.of(mode, is_dir),
            None => mode & 0o7777,
        }
    }

    /// Sets the metadata of a copy that is open.
    pub(super) fn set_open(
        &mut self,
        volume: &Volume,
        report: &mut Report,
        fd: &OwnedFd,
        inode: &Inode,
        path: &[u8],
    ) {
        let kept = self.owner(report, inode, path, |uid, gid| fchown(fd, uid, gid));
        self.attributes(volume, report, inode, path, |x| {
            fsetxattr(fd, &x.name[..], &x.value, XattrFlags::empty())
        });
        let mode = if kept {
            inode.mode
        } else {
            inode.mode & !SET_ID
        };
        let mode = self.mode(mode, inode.is_dir());
        let set = fchmod(fd, Mode::from_raw_mode(u32::from(mode)))
            .and_then(|()| futimens(fd, &times(inode)));
        if let Err(errno) = set {
            report.warn_file(
                path,
                format_args!("mode or times were not set: {}", errno_text(errno)),
            );
        }
    }

    /// Sets the metadata of a copy that is not open. Its mode was set when it was created.
    pub(super) fn set_at(
        &mut self,
        volume: &Volume,
        report: &mut Report,
        at: &At<'_>,
        inode: &Inode,
        path: &[u8],
    ) {
        let nofollow = AtFlags::SYMLINK_NOFOLLOW;
        self.owner(report, inode, path, |uid, gid| {
            chownat(at.dir, at.name, uid, gid, nofollow)
        });
        // There is no lsetxattr relative to a directory; /proc/self/fd gives a path to the open directory.
        let mut place = format!("/proc/self/fd/{}/", at.dir.as_raw_fd()).into_bytes();
        place.extend(at.name);
        self.attributes(volume, report, inode, path, |x| {
            lsetxattr(&place[..], &x.name[..], &x.value, XattrFlags::empty())
        });
        if let Err(errno) = utimensat(at.dir, at.name, &times(inode), nofollow) {
            report.warn_file(
                path,
                format_args!("times were not set: {}", errno_text(errno)),
            );
        }
    }

    /// Sets the owner of the copy; returns whether it is now the inode's.
    fn owner(
        &mut self,
        report: &mut Report,
        inode: &Inode,
        path: &[u8],
        chown: impl Fn(Option<Uid>, Option<Gid>) -> Result<(), Errno>,
    ) -> bool {
        let mine = (inode.uid, inode.gid) == self.me;
        if !self.owners {
            if let Some(why) = self.why_no_owners.take_if(|_| !mine) {
                report.warn(format_args!(
                    "owners are not kept: {why} (--no-same-owner says that it is meant so)"
                ));
            }
            return mine;
        }
        match chown(
            Some(Uid::from_raw(inode.uid)),
            Some(Gid::from_raw(inode.gid)),
        ) {
            Ok(()) => true,
            Err(errno) => {
                if !std::mem::replace(&mut self.owner_refused, true) {
                    let (uid, gid, why) = (inode.uid, inode.gid, errno_text(errno));
                    report.warn_file(
                        path,
                        format_args!(
                            "owner {uid}:{gid} is not kept: {why}; more may follow unsaid"
                        ),
                    );
                }
                mine
            }
        }
    }

    fn attributes(
        &mut self,
        volume: &Volume,
        report: &mut Report,
        inode: &Inode,
        path: &[u8],
        set: impl Fn(&Xattr) -> Result<(), Errno>,
    ) {
        if !self.xattrs {
            return;
        }
        let xattrs = match volume.xattrs(inode.ino) {
            Ok(xattrs) => xattrs,
            Err(error) => return report.file(path, error),
        };
        let is_kept = |x: &Xattr| self.chmod.is_none() || !x.name.starts_with(ACL);
        for xattr in xattrs.into_iter().filter(is_kept) {
            let Err(errno) = set(&xattr) else { continue };
            let entry = self.refused.entry(xattr.name).or_insert((0, errno));
            entry.0 += 1;
        }
    }

    /// Prints warnings about the metadata that was not kept.
    pub(super) fn summary(&self, report: &Report) {
        for (name, (count, errno)) in &self.refused {
            let name = std::ffi::OsStr::from_bytes(name).to_string_lossy();
            let s = if *count == 1 { "" } else { "s" };
            let why = errno_text(*errno);
            report.warn(format_args!(
                "attribute {name} was refused by the host for {count} file{s}: {why}"
            ));
        }
    }
}

fn times(inode: &Inode) -> Timestamps {
    let time = |t: Timestamp| Timespec {
        tv_sec: t.secs,
        tv_nsec: t.nanos.into(),
    };
    Timestamps {
        last_access: time(inode.atime),
        last_modification: time(inode.mtime),
    }
}
