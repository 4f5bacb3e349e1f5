//! Regular files: their data on its way into a file without a name, which gets its names when all of it is there.
//!
//! Input: an open file of the host, the path of its copy. Output: the copy, whole, or none. Invariants: a file has as many owners as it has pieces on
//! their way; the last one finishes it; what failed goes with the last of them, for it has no name. Limits: the host is read in the thread
//! that walks.

use super::source::{Attributes, Identity, Source};
use super::tree::Dir;
use super::{Putter, Trouble};
use crate::flow::Moving;
use crate::report::Reason;
use diorite::{Error, File, FileId};
use diorite_format::features::Incompat;
use rustix::fd::OwnedFd;
use rustix::io::{Errno, pread};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;

/// A path for the copy, and the directory that is to be told when it is there.
type Name = (Vec<u8>, Option<Rc<Dir>>);

/// A file whose data is on its way.
pub(super) struct Copying {
    pub(super) file: File,
    id: FileId,
    host: PathBuf,
    size: Cell<u64>,
    attributes: Attributes,
    /// It has other names on the host.
    shared: Option<Identity>,
    names: RefCell<Vec<Name>>,
    /// The first thing that went wrong.
    trouble: RefCell<Option<Trouble>>,
    failed: Cell<bool>,
}

impl Copying {
    /// For a file of no size yet, that has no other names.
    pub(super) fn of_stream(
        file: File,
        id: FileId,
        attributes: Attributes,
        path: &[u8],
    ) -> Copying {
        Copying {
            file,
            id,
            host: PathBuf::from("standard input"),
            size: Cell::new(0),
            attributes,
            shared: None,
            names: RefCell::new(vec![(path.to_vec(), None)]),
            trouble: RefCell::new(None),
            failed: Cell::new(false),
        }
    }

    /// How much of it there is in all.
    pub(super) fn set_size(&self, size: u64) {
        self.size.set(size);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.get()
    }

    /// Notes that something went wrong; the first thing stays.
    pub(super) fn failed(&self, trouble: Trouble) {
        self.failed.set(true);
        self.trouble.borrow_mut().get_or_insert(trouble);
    }

    /// One more name for when it is whole.
    pub(super) fn add_name(&self, path: &[u8], dir: Option<&Rc<Dir>>) {
        self.names.borrow_mut().push((path.to_vec(), dir.cloned()));
    }
}

impl Moving for Copying {
    fn id(&self) -> FileId {
        self.id
    }

    fn ended(&self, _pos: u64, result: Result<&[u8], Error>) -> u64 {
        match result {
            Ok(bytes) => bytes.len() as u64,
            Err(error) => {
                self.failed(Trouble::Image(error));
                0
            }
        }
    }
}

impl Putter<'_> {
    /// Starts the copy of a regular file; its end comes with its last piece.
    pub(super) fn regular(
        &mut self,
        source: Source,
        path: Vec<u8>,
        dir: Option<Rc<Dir>>,
    ) -> Result<(), Trouble> {
        check_empty(&source).map_err(Trouble::Source)?;
        let attributes = self.meta.read(&source).map_err(Trouble::Source)?;
        let unit = u64::from(self.volume.superblock().block_size());
        let ranges = source.data(unit).map_err(Trouble::Source)?;
        let above = &path[..path.iter().rposition(|c| *c == b'/').map_or(0, |at| at + 1)];
        let file = self.volume.temporary(above, 0)?;
        let copying = Rc::new(Copying {
            id: self.flow.attach(&file)?,
            file,
            host: source.host.clone(),
            size: Cell::new(source.size()),
            attributes,
            shared: source.is_shared().then(|| source.id()),
            names: RefCell::new(vec![(path, dir)]),
            trouble: RefCell::new(None),
            failed: Cell::new(false),
        });
        self.links.begin(&source, &copying);
        if !self.keep_inside(&copying, source.fd()) {
            for range in ranges {
                self.send(&copying, source.fd(), range);
            }
        }
        self.settle(copying);
        Ok(())
    }

    /// Puts a small file into its inode, on a volume that keeps such files there. False: it is to be sent.
    fn keep_inside(&self, copying: &Copying, fd: &OwnedFd) -> bool {
        let sb = self.volume.superblock();
        let most = u64::from(sb.geometry().inode_size());
        let keeps = sb.features().incompat.has(Incompat::INLINE_DATA);
        if !keeps || !(1..=most).contains(&copying.size.get()) {
            return false;
        }
        let mut data =
            vec![0; usize::try_from(copying.size.get()).expect("no larger than an inode")];
        let kept = match read(fd, &mut data, 0) {
            Ok(()) => copying.file.keep_inside(&data).map_err(Trouble::from),
            Err(reason) => Err(Trouble::Source(reason)),
        };
        kept.unwrap_or_else(|trouble| {
            copying.failed(trouble);
            true
        })
    }

    /// Sends a range of bytes, piece by piece, as room allows.
    fn send(&mut self, copying: &Rc<Copying>, fd: &OwnedFd, range: Range<u64>) {
        let mut at = range.start;
        while at < range.end && !copying.has_failed() {
            let Some(mut piece) = self.flow.piece(range.end - at) else {
                self.settle_some(true);
                continue;
            };
            match read(fd, piece.bytes(), at) {
                Ok(()) => at += self.flow.write(copying, at, piece),
                Err(reason) => {
                    self.flow.give_back(piece);
                    copying.failed(Trouble::Source(reason));
                }
            }
        }
    }

    /// Takes note of what has been written; waits for some of it if told so.
    pub(super) fn settle_some(&mut self, wait: bool) {
        for copying in self.flow.ended(wait) {
            self.settle(copying);
        }
    }

    /// Finishes everything that is under way.
    pub(super) fn settle_all(&mut self) {
        while self.flow.is_busy() {
            self.settle_some(true);
        }
    }

    /// Lets go of a file; whoever is the last finishes it.
    pub(super) fn settle(&mut self, copying: Rc<Copying>) {
        let Some(done) = Rc::into_inner(copying) else {
            return;
        };
        let names = done.names.take();
        let trouble = done.trouble.take();
        let finished = match trouble {
            Some(trouble) => Err(trouble),
            None => self.complete(&done).map_err(Trouble::from),
        };
        match finished {
            Ok(()) => self.name(&done, &names),
            Err(trouble) => {
                let mut names = names.iter().map(|n| &n.0[..]);
                self.fail(&done.host, names.next().unwrap_or_default(), trouble);
                for name in names {
                    let what = format!("it is another name of {}", done.host.display());
                    self.fail(&done.host, name, Trouble::Refused(Reason::new(what)));
                }
            }
        }
        self.flow.detach(done.id);
        drop(done);
        self.progress.file(self.flow.bytes());
        names
            .into_iter()
            .filter_map(|n| n.1)
            .for_each(|dir| self.release(dir));
    }

    /// All data is there: the rest of what it is.
    fn complete(&mut self, done: &Copying) -> Result<(), Error> {
        let size = done.size.get();
        if done.file.size() != size {
            // It ends with a hole.
            done.file.truncate(size)?;
        }
        self.meta
            .set(self.volume, done.file.ino(), &done.attributes, true)
    }

    fn name(&mut self, done: &Copying, names: &[Name]) {
        let mut named = false;
        for (path, _) in names {
            match self.volume.replace_file(&done.file, path) {
                Ok(()) => named = true,
                Err(error) => self.fail(&done.host, path, error.into()),
            }
        }
        if named {
            self.links.done(done.shared, done.file.ino());
        }
    }
}

/// Files of the kernel's (/proc) have contents and say that they are empty: an empty copy would be none.
fn check_empty(source: &Source) -> Result<(), Reason> {
    let mut first = [0];
    let is_empty = source.size() > 0
        || match pread(source.fd(), &mut first, 0) {
            Ok(read) => read == 0,
            Err(errno) => return Err(Reason::host("cannot read it", errno)),
        };
    let what = "it has contents and says that it is empty: copy it to a file first";
    is_empty.then_some(()).ok_or_else(|| Reason::new(what))
}

/// Reads all of `to` from `at`.
fn read(fd: &OwnedFd, to: &mut [u8], at: u64) -> Result<(), Reason> {
    let mut got = 0;
    while got < to.len() {
        match pread(fd, &mut to[got..], at + got as u64) {
            Ok(0) => return Err(Reason::new("it became shorter while it was copied")),
            Ok(n) => got += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Reason::host("cannot read it", errno)),
        }
    }
    Ok(())
}
