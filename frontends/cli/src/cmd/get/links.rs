//! Hard links: a second name of an inode becomes a second name of its copy.
//!
//! Input: inodes with more than one link. Output: links on the host. Invariants: the first copy is found again through
//! directories that this run opened or made, never through a symbolic link; an inode is forgotten when all of its names were
//! visited, unless another PATH may lead to them again. Limits: holds a number and a name for each inode with names not visited
//! yet or, if there are several PATHs, for each inode with several names.

use super::Copier;
use super::node::make_way;
use super::tree::Dir;
use crate::output::report::{Reason, errno_text};
use diorite::File;
use diorite_format::{Ino, Inode};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, linkat, statat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::rc::Rc;

/// Inodes that were copied and have more names.
pub(super) struct Links {
    known: HashMap<Ino, First>,
    /// Names may be visited again, because there are several PATHs.
    again: bool,
}

/// The first copy of an inode.
struct First {
    dir: u32,
    host: Box<[u8]>,
    /// Names not visited yet.
    left: u16,
}

impl Links {
    /// No links yet, for this number of PATHs.
    pub(super) fn of(paths: usize) -> Links {
        Links {
            known: HashMap::new(),
            again: paths > 1,
        }
    }

    /// Records that a copy of the inode has been made.
    pub(super) fn remember(&mut self, inode: &Inode, dir: u32, host: &[u8]) {
        if inode.links > 1 {
            let first = First {
                dir,
                host: host.into(),
                left: inode.links - 1,
            };
            self.known.insert(inode.ino, first);
        }
    }

    /// Records that one more name was visited.
    fn met(&mut self, ino: Ino) {
        if self.again {
            return;
        }
        if let Some(first) = self.known.get_mut(&ino) {
            first.left -= 1;
            if first.left == 0 {
                self.known.remove(&ino);
            }
        }
    }
}

impl Copier<'_> {
    /// Makes a hard link if the inode has been copied under another name; returns whether it has.
    pub(super) fn linked(&mut self, dir: &Rc<Dir>, host: &[u8], name: &[u8], file: &File) -> bool {
        let ino = file.ino();
        let Some(first) = self.links.known.get(&ino) else {
            return false;
        };
        if let Err(why) = self.link_to(first, dir, host) {
            let path = self.names.path(dir.id, name);
            self.report.warn_file(
                &path,
                format_args!("the hard link is not kept, a copy is made: {why}"),
            );
            return false;
        }
        self.links.met(ino);
        self.tell_in(dir, host, name);
        true
    }

    fn link_to(&self, first: &First, dir: &Dir, host: &[u8]) -> Result<(), Reason> {
        let cannot = |errno| Reason::new(errno_text(errno));
        let from = self.names.open(first.dir).map_err(cannot)?;
        let link = || linkat(&from, &*first.host, &dir.fd, host, AtFlags::empty());
        match link() {
            // Linking a file to itself must not unlink it: the same PATH may be given twice.
            Err(Errno::EXIST) if is_same((&from, &first.host), (&dir.fd, host)) => Ok(()),
            Err(Errno::EXIST) => {
                make_way(dir, host)?;
                link().map_err(cannot)
            }
            made => made.map_err(cannot),
        }
    }
}

/// Whether both names in directories of the host are of the same file.
fn is_same(one: (&OwnedFd, &[u8]), other: (&OwnedFd, &[u8])) -> bool {
    let file = |(dir, name): (&OwnedFd, &[u8])| {
        let found = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((found.st_dev, found.st_ino))
    };
    file(one).is_some() && file(one) == file(other)
}
