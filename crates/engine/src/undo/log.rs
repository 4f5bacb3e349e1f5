//! Writes the old contents of a device into an undo file before they are overwritten.
//!
//! Input: what is going to be overwritten. Output: an undo file that has it. Invariants: `Undo::keep` returns when the old contents are
//! durable, and the header that counts them is; each byte is read from the device once; an undo file that is there is continued only if it
//! is finished and the device is as it left it; one that was made and has nothing, because its host is full, is removed. Limits: an undo
//! file has one device, named by its locator.
//!
//! A caller joins a list of callers that wait. The first one that gets the writer writes the pieces of all of them as one group, with two
//! syncs, and the others find that done. Locks: the writer's is taken before that of the state, which is never held during I/O of pieces.

use super::file::{UndoFile, opened, regular};
use super::form::{Header, Sizes};
use super::kept::Kept;
use super::writer::{Writer, sync_dir};
use super::{bad, block_size_in, exact_size, host, super_copy, unreadable};
use crate::error::Error;
use diorite_block::{Blocking, Buf, Device, Locator};
use std::fs::{File, TryLockError};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What undoes the changes of one device: see the module. Clones are the same one. It is an option with which a device is opened.
#[derive(Clone)]
pub struct Undo(Arc<Shared>);

struct Shared {
    target: Locator,
    path: PathBuf,
    writer: Mutex<Option<Writer>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Bytes that the device had, where it was made longer before it was opened.
    before: Option<u64>,
    /// Bytes that it had before the first change of all, if the undo file knows.
    first: Option<u64>,
    device: Option<Weak<dyn Device>>,
    /// Another device was opened to be written.
    passed: bool,
    wrote: bool,
    /// The undo file says that it is not finished.
    is_open: bool,
    failure: Option<Error>,
    kept: Kept,
    /// What is to be kept next, and the number of the last one who wants something of it.
    waiting: Vec<Range<u64>>,
    last: u64,
    /// All up to this number have what they want.
    done: u64,
}

impl std::fmt::Debug for Undo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Undo").field(&self.0.path).finish()
    }
}

impl Undo {
    /// An undo file at `path` for the device at a locator. Nothing is opened.
    #[must_use]
    pub fn new(target: Locator, path: &Path) -> Undo {
        Undo(Arc::new(Shared {
            target,
            path: path.to_owned(),
            writer: Mutex::default(),
            state: Mutex::default(),
        }))
    }

    /// The undo file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Whether anything was overwritten, so that there is something to undo.
    #[must_use]
    pub fn has_written(&self) -> bool {
        self.lock().wrote
    }

    /// The first failure to keep what was going to be overwritten, or to finish the undo file.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.lock().failure.clone()
    }

    /// How many want something kept that is not yet begun.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Says that another device was opened to be written.
    pub(crate) fn passed(&self) {
        self.lock().passed = true;
    }

    /// Whether devices were opened to be written, and its own was not among them: it knows nothing of what was changed.
    #[must_use]
    pub fn was_passed(&self) -> bool {
        let state = self.lock();
        state.passed && state.device.is_none()
    }

    /// Says that the device had so many bytes before it was made longer, which it is by now.
    pub fn had(&self, bytes: u64) {
        self.lock().before = Some(bytes);
    }

    /// Says, durably, that the device as it is open now is going to have so many bytes. To be called before it is made longer. Blocks.
    ///
    /// # Errors
    /// The undo file cannot be written; no device is open.
    pub fn before_size(&self, bytes: u64) -> Result<(), Error> {
        self.announce(&self.device()?, bytes)
    }

    /// Keeps bytes at the end of the device as it is open now, before it is cut there, and says that it is. Blocks.
    ///
    /// # Errors
    /// They cannot be read, or the undo file not be written; no device is open.
    pub fn before_cut(&self, range: Range<u64>) -> Result<(), Error> {
        let (device, end) = (self.device()?, range.start);
        self.keep(&device, range)?;
        self.announce(&device, end)
    }

    /// Begins with a device, which is open to be read and is going to have so many bytes when it is opened to be written. Blocks.
    ///
    /// # Errors
    /// The undo file that is there cannot be continued, or not be written.
    pub fn before_opened_with(&self, device: &Arc<dyn Device>, bytes: u64) -> Result<(), Error> {
        self.attach(device)?;
        self.announce(&Blocking::new(device.clone()), bytes)
    }

    /// The device has the length again that it had before another one was announced: that was all. An undo file that says nothing else is
    /// removed. Blocks.
    pub fn take_back(&self) {
        let mut writer = self.writer();
        if self.lock().wrote {
            return;
        }
        if let Some(Ok(true)) = writer.as_mut().map(Writer::take_back) {
            self.remove();
            *writer = None;
        }
    }

    /// Removes an undo file that has nothing. Best effort: it changes nothing.
    fn remove(&self) {
        let _ = std::fs::remove_file(&self.0.path);
    }

    fn announce(&self, device: &Blocking, bytes: u64) -> Result<(), Error> {
        let mut writer = self.writer();
        let from = self.length(device.device());
        let writer = self.begun(&mut writer, device)?;
        writer.announce(from, bytes).map_err(|e| self.cannot(&e))
    }

    fn device(&self) -> Result<Blocking, Error> {
        let device = self.lock().device.as_ref().and_then(Weak::upgrade);
        let open = device.ok_or_else(|| bad(&self.0.path, "its device is not open"));
        open.map(Blocking::new)
    }

    /// Whether it is for the device at a locator. The size of sectors makes no other device.
    pub(crate) fn is_for(&self, locator: &Locator) -> bool {
        let without_sectors = |locator: &Locator| {
            let mut locator = locator.clone();
            match &mut locator {
                Locator::File(file) => file.sector = None,
                Locator::Inside { part, .. } => part.sector = None,
                _ => {}
            }
            locator
        };
        without_sectors(&self.0.target) == without_sectors(locator)
    }

    /// Begins with a device, or goes on with it: the undo file that is there, if any, is judged.
    pub(super) fn attach(&self, device: &Arc<dyn Device>) -> Result<(), Error> {
        let mut writer = self.writer();
        let before = {
            let now = self.length(device);
            let mut state = self.lock();
            state.device = Some(Arc::downgrade(device));
            *state.before.get_or_insert(now)
        };
        if writer.is_some() {
            return Ok(());
        }
        let path = &self.0.path;
        let meta = match std::fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            meta => meta.map_err(|error| host(path, "looked at", &error))?,
        };
        if self.is_target(&meta) {
            return Err(bad(path, "it is the image itself"));
        }
        let file = regular(path, true)?;
        self.lock_file(&file)?;
        if meta.len() == 0 {
            return Ok(());
        }
        let old = UndoFile::of(file.try_clone().map_err(|e| host(path, "read", &e))?, path)?;
        let mut doubts = old.doubts().to_vec();
        if !old.fits(&Blocking::new(device.clone()))? {
            doubts.push("it is for another device, or for an older state of this one".into());
        }
        if let Some(doubt) = doubts.first() {
            let what = format!("{doubt}; nothing was changed: name another undo file");
            return Err(bad(path, what));
        }
        let mut header = old.header().clone();
        // Somebody has made it longer or shorter since: what is behind the old end is theirs, and undo cuts nothing.
        header.sizes = header.sizes.filter(|sizes| sizes.after == before);
        let mut state = self.lock();
        state.first = header.sizes.map(|sizes| sizes.before);
        for piece in old.pieces() {
            state.kept.add(piece.pos..piece.pos + u64::from(piece.len));
        }
        *writer = Some(Writer::new(file, header, old.last_keys.clone(), old.end));
        Ok(())
    }

    /// Keeps what the device has in a range, which is going to be overwritten. Blocks.
    pub(super) fn keep(&self, device: &Blocking, range: Range<u64>) -> Result<(), Error> {
        let range = self.overwritten(device, range);
        let own = {
            let mut state = self.lock();
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if state.is_open && state.kept.missing(range.clone(), u64::MAX).is_empty() {
                return Ok(());
            }
            state.waiting.push(range);
            state.last += 1;
            state.last
        };
        let mut writer = self.writer();
        let (wanted, last) = {
            let mut state = self.lock();
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            if state.done >= own {
                return Ok(());
            }
            (std::mem::take(&mut state.waiting), state.last)
        };
        let kept = self.keep_all(&mut writer, device, wanted);
        let mut state = self.lock();
        match kept {
            Ok(kept) => {
                kept.into_iter().for_each(|range| state.kept.add(range));
                state.done = last;
                (state.wrote, state.is_open) = (true, true);
                Ok(())
            }
            Err(error) => {
                state.failure = Some(error.clone());
                // No write goes on from here, so all that it was for is as it was.
                if !state.wrote && writer.take_if(|writer| writer.has_nothing()).is_some() {
                    self.remove();
                }
                Err(error)
            }
        }
    }

    /// What of a range had contents: what was added behind the old end had none.
    fn overwritten(&self, device: &Blocking, range: Range<u64>) -> Range<u64> {
        let end = range.end.min(self.old_end(device));
        range.start.min(end)..end
    }

    /// The end of the device before it was made longer; that may be in a sector.
    fn old_end(&self, device: &Blocking) -> u64 {
        let geometry = device.device().geometry();
        let mut state = self.lock();
        let before = *state.before.get_or_insert(geometry.size);
        let end = before.min(state.first.unwrap_or(before));
        let end = end.checked_next_multiple_of(u64::from(geometry.logical));
        end.map_or(geometry.size, |end| end.min(geometry.size))
    }

    /// Keeps some ranges as one group. Returns what is kept now that was not before.
    fn keep_all(
        &self,
        writer: &mut Option<Writer>,
        device: &Blocking,
        mut wanted: Vec<Range<u64>>,
    ) -> Result<Vec<Range<u64>>, Error> {
        let writer = self.begun(writer, device)?;
        let old_end = self.old_end(device);
        wanted.sort_unstable_by_key(|range| range.start);
        let (mut kept, mut behind) = (Vec::new(), 0);
        for range in wanted {
            let (range, most) = writer.whole(range, old_end);
            // Those before it may have a part of it.
            let range = range.start.max(behind)..range.end;
            behind = behind.max(range.end);
            let missing = self.lock().kept.missing(range, most);
            for missing in missing {
                let len = missing.end - missing.start;
                let bytes = usize::try_from(len).ok().and_then(Buf::try_zeroed);
                let Some(buf) = bytes else {
                    return Err(unreadable(device, (missing.start, len), &"no memory"));
                };
                let old = device.read(missing.start, buf);
                let old = old.map_err(|error| unreadable(device, (missing.start, len), &error))?;
                let added = writer.add(missing.start, old.as_slice());
                added.map_err(|error| self.cannot(&error))?;
                kept.push(missing);
            }
        }
        writer.commit().map_err(|error| self.cannot(&error))?;
        Ok(kept)
    }

    /// The undo file, which is made if there is none.
    fn begun<'w>(
        &self,
        writer: &'w mut Option<Writer>,
        device: &Blocking,
    ) -> Result<&'w mut Writer, Error> {
        match writer {
            Some(writer) => Ok(writer),
            none => Ok(none.insert(self.fresh(device)?)),
        }
    }

    /// Makes the undo file, with nothing in it.
    fn fresh(&self, device: &Blocking) -> Result<Writer, Error> {
        let path = &self.0.path;
        let copy = super_copy(device)?;
        let mut options = std::fs::OpenOptions::new();
        // An empty file may be there.
        options.read(true).write(true).create(true).truncate(false);
        let file = opened(path, options.mode(0o600), "made")?;
        self.lock_file(&file)?;
        let is_empty = file.metadata().is_ok_and(|meta| meta.len() == 0);
        if !is_empty {
            return Err(bad(path, "somebody else has made it meanwhile"));
        }
        // As in undo files of tune2fs, which continues only those.
        let unit = block_size_in(&copy).unwrap_or(Writer::usual_block());
        let offset = match &self.0.target {
            Locator::File(file) => Some(file.offset).filter(|offset| *offset > 0),
            _ => None,
        };
        let size = device.device().geometry().size;
        let before = *self.lock().before.get_or_insert(size);
        let header = Header {
            keys: 0,
            super_block: 1,
            key_block: 2,
            block_size: unit,
            fs_block_size: unit,
            super_crc: 0,
            finished: false,
            unknown: 0,
            offset,
            sizes: Some(Sizes::same(before)),
        };
        let made = Writer::make(file, header, &copy);
        let made = made.and_then(|made| sync_dir(path).map(|()| made));
        made.map_err(|error| {
            self.remove();
            self.cannot(&error)
        })
    }

    /// The device is closed: the undo file fits it as it is now.
    pub(super) fn finish(&self, device: &Blocking) {
        let mut writer = self.writer();
        let wrote = {
            let mut state = self.lock();
            if state.failure.is_some() {
                return;
            }
            state.is_open = false;
            state.wrote
        };
        let Some(open) = writer.as_mut() else { return };
        // A file that was cut has another size now; one that cannot tell keeps it.
        let _ = device.device().refresh();
        let after = self.length(device.device());
        if !wrote {
            let is_back = open.is_back(after);
            drop(writer);
            if is_back {
                self.take_back();
            }
            return;
        }
        let finished = super_copy(device).and_then(|copy| {
            let finished = open.finish(&copy, after);
            finished.map_err(|error| self.cannot(&error))
        });
        if let Err(error) = finished {
            self.lock().failure = Some(error);
        }
    }

    /// The bytes of the device as it is open, to the byte if it is a file.
    fn length(&self, device: &Arc<dyn Device>) -> u64 {
        exact_size(&self.0.target, device.as_ref())
    }

    /// Two writers of an undo file would mix their pieces. The lock ends with the file.
    fn lock_file(&self, file: &File) -> Result<(), Error> {
        let path = &self.0.path;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => bad(
                path,
                "another command is writing to it; nothing was changed: name another undo file",
            ),
            TryLockError::Error(error) => host(path, "locked", &error),
        })
    }

    fn cannot(&self, error: &io::Error) -> Error {
        host(&self.0.path, "written", error)
    }

    fn is_target(&self, meta: &std::fs::Metadata) -> bool {
        let Locator::File(file) = &self.0.target else {
            return false;
        };
        let image = std::fs::metadata(&file.path);
        image.is_ok_and(|image| (image.dev(), image.ino()) == (meta.dev(), meta.ino()))
    }

    fn writer(&self) -> MutexGuard<'_, Option<Writer>> {
        let writer = self.0.writer.lock();
        writer.unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
