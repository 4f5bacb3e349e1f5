//! Regular files: their data is written to a file without a name, which gets its names when it is complete.
//!
//! Input: an open file, the path of its copy. Output: a complete copy or none. Invariants: each piece in flight holds a
//! reference to its file; the last reference finishes the file; a failed copy has no name, so it is deleted with the last
//! reference. Limits: files of the host are read by the thread that walks the directories, and small ones are written through
//! the page cache, many together; files of an image are read by requests in flight.

use super::source::{Attributes, Identity, Source};
use super::tree::Dir;
use super::{Putter, Trouble};
use crate::copying::files::Moving;
use crate::output::report::Reason;
use crate::words::names::above;
use diorite::{Error, Fallocate, File, FileId};
use diorite_format::features::Incompat;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The name of standard input in messages.
pub(super) const STANDARD_INPUT: &str = "standard input";

/// Files of the host up to this size are written through the page cache.
pub(super) const SMALL: u64 = 64 << 10;

/// So many of them are written back together, before they get their names. Each may keep a directory of the host open.
const TOGETHER: usize = 256;

/// A name that the copy gets.
struct Name {
    /// The path in the source.
    found: PathBuf,
    path: Vec<u8>,
    /// The directory of the copy, which is finished only after the copy has this name.
    dir: Option<Rc<Dir>>,
}

/// A file that is being copied.
pub(super) struct Copying {
    pub(super) file: File,
    id: FileId,
    /// The file of the source image; none if the source is not an image.
    source: Option<FileId>,
    size: Cell<u64>,
    attributes: Attributes,
    /// Its identity, if it has other names in the source.
    shared: Option<Identity>,
    names: RefCell<Vec<Name>>,
    /// The first error.
    trouble: RefCell<Option<Trouble>>,
    failed: Cell<bool>,
    /// It has no space of its own yet: its requests follow one after the other.
    in_order: Cell<bool>,
}

impl Copying {
    /// A copy of a stream, whose size is not known and which has no other names.
    pub(super) fn of_stream(
        file: File,
        id: FileId,
        attributes: Attributes,
        (found, path): (&Path, &[u8]),
    ) -> Copying {
        Copying {
            file,
            id,
            source: None,
            size: Cell::new(0),
            attributes,
            shared: None,
            names: RefCell::new(vec![Name {
                found: found.to_owned(),
                path: path.to_vec(),
                dir: None,
            }]),
            trouble: RefCell::new(None),
            failed: Cell::new(false),
            in_order: Cell::new(true),
        }
    }

    /// Records that it could not be read.
    pub(super) fn unread(&self, reason: Reason) {
        self.failed(Trouble::Source(reason));
    }

    /// Sets the size of the whole file.
    pub(super) fn set_size(&self, size: u64) {
        self.size.set(size);
    }

    /// Is its data written through the page cache?
    fn is_cached(&self) -> bool {
        self.source.is_none() && (1..=SMALL).contains(&self.size.get())
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.get()
    }

    /// Records an error; the first one is kept.
    pub(super) fn failed(&self, trouble: Trouble) {
        self.failed.set(true);
        self.trouble.borrow_mut().get_or_insert(trouble);
    }

    /// Adds a name that the copy gets when it is complete.
    pub(super) fn add_name(&self, found: &Path, path: &[u8], dir: Option<&Rc<Dir>>) {
        self.names.borrow_mut().push(Name {
            found: found.to_owned(),
            path: path.to_vec(),
            dir: dir.cloned(),
        });
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
    /// Starts the copy of a regular file; it is finished when its last piece is written.
    pub(super) fn regular(
        &mut self,
        source: Source,
        path: Vec<u8>,
        dir: Option<Rc<Dir>>,
    ) -> Result<(), Trouble> {
        source.check_empty().map_err(Trouble::Source)?;
        let attributes = self.meta.read(&source).map_err(Trouble::Source)?;
        let unit = u64::from(self.volume.superblock().block_size());
        let ranges = source.data(unit).map_err(Trouble::Source)?;
        let from = source.file().and_then(|file| self.flow.attach_source(file));
        let from = from.transpose().map_err(|e| Trouble::Source(e.into()))?;
        let begun = self
            .volume
            .temporary(above(&path), 0)
            .and_then(|file| Ok((self.flow.attach(&file)?, file)));
        let (id, file) = match begun {
            Ok(begun) => begun,
            Err(error) => {
                if let Some(id) = from {
                    self.flow.detach_source(id);
                }
                return Err(error.into());
            }
        };
        let copying = Rc::new(Copying {
            id,
            file,
            source: from,
            size: Cell::new(source.size()),
            attributes,
            shared: source.is_shared().then(|| source.id()),
            names: RefCell::new(vec![Name {
                found: source.found.clone(),
                path,
                dir,
            }]),
            trouble: RefCell::new(None),
            failed: Cell::new(false),
            in_order: Cell::new(false),
        });
        self.links.begin(&source, &copying);
        if !self.keep_inside(&copying, &source) {
            self.take_space(&copying, &source, unit);
            for range in ranges {
                match range {
                    Ok(range) => self.send(&copying, &source, range),
                    Err(reason) => copying.unread(reason),
                }
            }
        }
        if !copying.is_cached() {
            self.end_copy(copying);
            return Ok(());
        }
        self.cached.push(copying);
        if self.cached.len() >= TOGETHER {
            self.settle();
        }
        Ok(())
    }

    /// Finishes the files that were written through the page cache, once their data is on the device.
    fn settle(&mut self) {
        let cached = std::mem::take(&mut self.cached);
        let files: Vec<&File> = cached.iter().map(|copying| &copying.file).collect();
        self.volume.write_back(&files);
        for copying in cached {
            if let Err(error) = copying.file.write_back() {
                copying.failed(Trouble::Image(error));
            }
            self.end_copy(copying);
        }
    }

    /// Writes a small file as inline data, on a volume with that feature. False if the data has to be written to blocks.
    fn keep_inside(&self, copying: &Copying, source: &Source) -> bool {
        let sb = self.volume.superblock();
        let most = u64::from(sb.geometry().inode_size());
        let keeps = sb.features().incompat.has(Incompat::INLINE_DATA);
        if !keeps || !(1..=most).contains(&copying.size.get()) {
            return false;
        }
        let mut data =
            vec![0; usize::try_from(copying.size.get()).expect("no larger than an inode")];
        let kept = match source.read(&mut data, 0) {
            Ok(()) => copying.file.keep_inside(&data).map_err(Trouble::from),
            Err(reason) => Err(Trouble::Source(reason)),
        };
        kept.unwrap_or_else(|trouble| {
            copying.failed(trouble);
            true
        })
    }

    /// Takes the space of a file before its first request. Requests take space as they come to it, which is another order each time: so
    /// the file would lie in many pieces, and elsewhere in each copy.
    fn take_space(&self, copying: &Copying, source: &Source, unit: u64) {
        if copying.is_cached() {
            return;
        }
        let mode = Fallocate::Allocate { keep_size: true };
        // What cannot be read is told when it is sent.
        for range in source.data(unit).into_iter().flatten().flatten() {
            match copying
                .file
                .fallocate(mode, range.start, range.end - range.start)
            {
                Ok(()) => {}
                // Block maps know no space without data.
                Err(Error::NotSupported(_)) => return copying.in_order.set(true),
                Err(error) => return copying.failed(Trouble::Image(error)),
            }
        }
    }

    /// Before a request of a file without space of its own: those before it have ended.
    pub(super) fn keep_order(&mut self, copying: &Copying) {
        while copying.in_order.get() && self.flow.is_busy() {
            self.take_ended(true);
        }
    }

    /// Submits a range of bytes, in pieces, as bufs become free.
    fn send(&mut self, copying: &Rc<Copying>, source: &Source, range: Range<u64>) {
        if copying.is_cached() {
            return self.cache(copying, source, range);
        }
        let mut at = range.start;
        while at < range.end && !copying.has_failed() {
            let sent = match copying.source {
                Some(from) => {
                    self.keep_order(copying);
                    self.flow.fetch(copying, from, (at, range.end))
                }
                None => self.send_read(copying, source, (at, range.end)),
            };
            match sent {
                Some(next) => at = next,
                None => self.take_ended(true),
            }
        }
    }

    /// Writes a range of a small file through the page cache.
    fn cache(&mut self, copying: &Copying, source: &Source, range: Range<u64>) {
        let len = usize::try_from(range.end - range.start).expect("a small file");
        let bytes = &mut self.small[..len];
        if let Err(reason) = source.read(bytes, range.start) {
            return copying.unread(reason);
        }
        let mut done = 0;
        while done < len {
            let at = range.start + done as u64;
            match copying.file.write_bytes(at, &bytes[done..]) {
                Ok(count) => done += count,
                Err(error) => return copying.failed(Trouble::Image(error)),
            }
        }
        self.flow.count(len as u64);
    }

    /// Reads a piece in this thread and submits its write; returns the offset at which to continue. None if no buf is free.
    fn send_read(
        &mut self,
        copying: &Rc<Copying>,
        source: &Source,
        (at, until): (u64, u64),
    ) -> Option<u64> {
        let mut piece = self.flow.piece(until - at)?;
        match source.read(piece.bytes(), at) {
            Ok(()) => {
                self.keep_order(copying);
                Some(at + self.flow.write(copying, at, piece))
            }
            Err(reason) => {
                self.flow.give_back(piece);
                copying.unread(reason);
                Some(at)
            }
        }
    }

    /// Handles the ended requests; with `wait`, waits for at least one.
    pub(super) fn take_ended(&mut self, wait: bool) {
        for copying in self.flow.ended(wait) {
            self.end_copy(copying);
        }
    }

    /// Waits for all data under way and finishes the files.
    pub(super) fn finish_all(&mut self) {
        self.settle();
        while self.flow.is_busy() {
            self.take_ended(true);
        }
    }

    /// Drops a reference to a file; the last one finishes it.
    pub(super) fn end_copy(&mut self, copying: Rc<Copying>) {
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
                if let Some((first, others)) = names.split_first() {
                    self.fail(&first.found, &first.path, trouble);
                    for name in others {
                        let what = format!("it is another name of {}", first.found.display());
                        let trouble = Trouble::Refused(Reason::new(what));
                        self.fail(&name.found, &name.path, trouble);
                    }
                }
            }
        }
        self.flow.detach(done.id);
        if let Some(id) = done.source {
            self.flow.detach_source(id);
        }
        drop(done);
        self.progress.file(self.flow.bytes());
        names
            .into_iter()
            .filter_map(|n| n.dir)
            .for_each(|dir| self.release(dir));
    }

    /// Completes a copy whose data is written: its size, its metadata, its names.
    fn complete(&mut self, done: &Copying) -> Result<(), Error> {
        let size = done.size.get();
        if done.file.size() != size {
            // The file ends with a hole.
            done.file.truncate(size)?;
        }
        self.meta
            .set(self.volume, done.file.ino(), &done.attributes, true)
    }

    fn name(&mut self, done: &Copying, names: &[Name]) {
        let mut named = false;
        for Name { found, path, .. } in names {
            match self.volume.replace_file(&done.file, path) {
                Ok(()) => {
                    named = true;
                    self.tell(found, path);
                }
                Err(error) => self.fail(found, path, error.into()),
            }
        }
        if named {
            self.links.done(done.shared, done.file.ino());
        }
    }
}
