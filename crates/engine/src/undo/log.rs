//! An undo file as it is written.
//!
//! Input: what is going to be overwritten. Output: an undo file that has it. Invariants: [`Undo::keep`] returns when the old contents are
//! durable, and the header that counts them is; each byte is read from the device once; an undo file that is there is continued only if it
//! is finished and the device is as it left it. Limits: an undo file has one device, named by its locator.
//!
//! The order on disk: contents and key, sync, header, sync, and then the caller overwrites. A block of keys is written again for each key,
//! with the keys before as they were: if that write is torn, its checksum is wrong, and all keys that the header counts are right.

use super::file::{UndoFile, regular};
use super::form::{HEADER, Header, Key, key_bytes};
use super::{SUPER, SUPER_MAGIC, bad, exact_size, host, super_copy, super_crc, unreadable};
use crate::error::Error;
use diorite_block::{Blocking, Buf, Device, Locator};
use diorite_format::csum::crc32c;
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Bytes, or more: pieces begin and end at multiples of it.
const BLOCK: u32 = 4096;
/// The most bytes of a piece, and the most blocks of the undo file: e2undo refuses pieces of 1,024 blocks.
const MOST: u64 = 1 << 20;
const MOST_BLOCKS: u64 = 512;

/// What undoes the changes of one device: see the module. Clones are the same one. It is an option with which a device is opened.
#[derive(Clone)]
pub struct Undo(Arc<Shared>);

struct Shared {
    target: Locator,
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    log: Option<Log>,
    /// Bytes that the device had, where it was made longer before it was opened.
    before: Option<u64>,
    device: Option<Weak<dyn Device>>,
    /// Another device was opened to be written.
    passed: bool,
    wrote: bool,
    failure: Option<Error>,
}

struct Log {
    file: File,
    header: Header,
    /// Where the block of keys is that is being filled, and its keys.
    keys_at: u64,
    keys: Vec<Key>,
    /// Where the next block goes.
    end: u64,
    /// What is kept, by its first byte: its end.
    kept: BTreeMap<u64, u64>,
    /// Something was written that is not durable yet.
    unsynced: bool,
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

    /// Keeps bytes of the device as it is open now, before it is cut there. Blocks.
    ///
    /// # Errors
    /// They cannot be read, or the undo file not be written; no device is open.
    pub fn keep_before_cut(&self, range: Range<u64>) -> Result<(), Error> {
        let device = self.lock().device.as_ref().and_then(Weak::upgrade);
        let Some(device) = device else {
            return Err(bad(&self.0.path, "its device is not open"));
        };
        self.keep(&Blocking::new(device), range)
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
        let blocking = Blocking::new(device.clone());
        let mut state = self.lock();
        state.device = Some(Arc::downgrade(device));
        let before = *state.before.get_or_insert(self.length(device));
        if state.log.is_some() {
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
        if !old.fits(&blocking)? {
            doubts.push("it is for another device, or for an older state of this one".into());
        }
        if let Some(doubt) = doubts.first() {
            let what = format!("{doubt}; nothing was changed: name another undo file");
            return Err(bad(path, what));
        }
        let pieces = old.pieces().iter();
        let mut header = old.header().clone();
        // Somebody has made it longer or shorter since: what is behind the old end is theirs, and undo cuts nothing.
        header.sizes = header.sizes.filter(|(_, after)| *after == before);
        state.log = Some(Log {
            kept: pieces.map(|p| (p.pos, p.pos + u64::from(p.len))).collect(),
            header,
            keys_at: old.last_keys.0,
            keys: old.last_keys.1.clone(),
            end: old.end,
            unsynced: false,
            file,
        });
        Ok(())
    }

    /// Keeps what the device has in a range, which is going to be overwritten. Blocks.
    pub(super) fn keep(&self, device: &Blocking, range: Range<u64>) -> Result<(), Error> {
        let mut state = self.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        let kept = self.keep_in(&mut state, device, range);
        if let Err(error) = &kept {
            state.failure = Some(error.clone());
        }
        kept
    }

    fn keep_in(
        &self,
        state: &mut State,
        device: &Blocking,
        range: Range<u64>,
    ) -> Result<(), Error> {
        let now = device.device().geometry().size;
        let before = *state.before.get_or_insert(now);
        let sector = u64::from(device.device().geometry().logical);
        let log = match &mut state.log {
            Some(log) => log,
            none => none.insert(self.fresh(device, before)?),
        };
        state.wrote = true;
        // What was added behind its old end had no contents; that may be in a sector.
        let first = log.header.sizes.map_or(before, |(first, _)| first);
        let old_end = before.min(first).next_multiple_of(sector).min(now);
        let range = range.start..range.end.min(old_end);
        if log.header.finished {
            log.header.finished = false;
            log.write_header().map_err(|error| self.cannot(&error))?;
        }
        for missing in log.missing(range, old_end) {
            let len = missing.end - missing.start;
            let bytes = usize::try_from(len).ok().and_then(Buf::try_zeroed);
            let Some(buf) = bytes else {
                return Err(unreadable(device, (missing.start, len), &"no memory"));
            };
            let old = device.read(missing.start, buf);
            let old = old.map_err(|error| unreadable(device, (missing.start, len), &error))?;
            let added = log.add(missing, old.as_slice());
            added.map_err(|error| self.cannot(&error))?;
        }
        debug_assert!(
            !log.unsynced,
            "what is kept is durable before it is overwritten"
        );
        Ok(())
    }

    /// Makes the undo file, with nothing in it.
    fn fresh(&self, device: &Blocking, before: u64) -> Result<Log, Error> {
        let path = &self.0.path;
        let copy = super_copy(device)?;
        let mut options = std::fs::OpenOptions::new();
        // An empty file may be there.
        options.read(true).write(true).create(true).truncate(false);
        let file = options.mode(0o600).open(path);
        let file = file.map_err(|error| host(path, "made", &error))?;
        self.lock_file(&file)?;
        let is_empty = file.metadata().is_ok_and(|meta| meta.len() == 0);
        if !is_empty {
            return Err(bad(path, "somebody else has made it meanwhile"));
        }
        // As in undo files of tune2fs, which continues only those.
        let unit = block_size_in(&copy).unwrap_or(BLOCK);
        let offset = match &self.0.target {
            Locator::File(file) => Some(file.offset).filter(|offset| *offset > 0),
            _ => None,
        };
        let mut log = Log {
            file,
            header: Header {
                keys: 0,
                super_block: 1,
                key_block: 2,
                block_size: unit,
                fs_block_size: unit,
                super_crc: 0,
                finished: false,
                unknown: 0,
                offset,
                sizes: Some((before, before)),
            },
            keys_at: 0,
            keys: Vec::new(),
            end: 2 * u64::from(unit),
            kept: BTreeMap::new(),
            unsynced: false,
        };
        let begun = log.write_copy(&copy).and_then(|()| log.write_header());
        begun
            .and_then(|()| sync_dir(path))
            .map_err(|error| self.cannot(&error))?;
        Ok(log)
    }

    /// The device is closed: the undo file fits it as it is now.
    pub(super) fn finish(&self, device: &Blocking) {
        let mut state = self.lock();
        if !state.wrote || state.failure.is_some() {
            return;
        }
        let Some(log) = &mut state.log else { return };
        let finished = super_copy(device).and_then(|copy| {
            // A file that was cut has another size now; one that cannot tell keeps it.
            let _ = device.device().refresh();
            let after = self.length(device.device());
            if let Some(sizes) = &mut log.header.sizes {
                sizes.1 = after;
            }
            log.header.finished = true;
            let written = log.write_copy(&copy).and_then(|()| log.write_header());
            written.map_err(|error| self.cannot(&error))
        });
        if let Err(error) = finished {
            state.failure = Some(error);
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    /// The parts of a range that are not kept yet, in whole blocks, as far as the device has them.
    fn missing(&self, range: Range<u64>, size: u64) -> Vec<Range<u64>> {
        let unit = u64::from(BLOCK.max(self.header.fs_block_size));
        let end = range.end.next_multiple_of(unit).min(size);
        let mut at = range.start / unit * unit;
        let most = MOST.min(MOST_BLOCKS * u64::from(self.header.block_size));
        let mut missing = Vec::new();
        if let Some((_, kept)) = self.kept.range(..=at).next_back() {
            at = at.max(*kept);
        }
        while at < end {
            let next = self.kept.range(at..).next();
            let (start, behind) = next.map_or((end, end), |(start, kept)| (*start, *kept));
            let until = start.min(end).min(at + most);
            if until > at {
                missing.push(at..until);
            }
            at = if until == start { behind } else { until };
        }
        missing
    }

    /// Adds a piece; it is durable.
    fn add(&mut self, range: Range<u64>, old: &[u8]) -> io::Result<()> {
        let unit = self.header.fs_block_size;
        // The last sectors of a device may be less than a block of it.
        let mut bytes = old.to_vec();
        bytes.resize(old.len().next_multiple_of(unit as usize), 0);
        let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        if self.keys.len() == self.header.keys_per_block() || self.keys_at == 0 {
            self.keys.clear();
            self.keys_at = self.end;
            self.end += u64::from(self.header.block_size);
        }
        let at = self.end;
        self.keys.push(Key {
            block: range.start / u64::from(unit),
            crc: crc32c(!0, &bytes),
            len,
        });
        self.end = at + self.header.padded(len);
        self.put(&bytes, at)?;
        if self.end > at + bytes.len() as u64 {
            self.file.set_len(self.end)?;
        }
        let keys = key_bytes(&self.keys, self.header.block_size);
        self.put(&keys, self.keys_at)?;
        self.sync()?;
        self.header.keys += 1;
        self.write_header()?;
        self.kept.insert(range.start, range.end);
        Ok(())
    }

    fn write_header(&mut self) -> io::Result<()> {
        let bytes: [u8; HEADER] = self.header.bytes();
        self.put(&bytes, 0)?;
        self.sync()
    }

    /// Writes the copy; its checksum goes with the header.
    fn write_copy(&mut self, copy: &[u8; SUPER]) -> io::Result<()> {
        self.header.super_crc = super_crc(copy);
        let size = u64::from(self.header.block_size);
        self.put(copy, self.header.super_block.saturating_mul(size))?;
        let end = self.header.key_block.saturating_mul(size);
        if self.file.metadata()?.len() < end {
            self.file.set_len(end)?;
        }
        self.sync()
    }

    fn put(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.unsynced = true;
        self.file.write_all_at(bytes, at)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_all()?;
        self.unsynced = false;
        Ok(())
    }
}

/// The size of a block by the copy of a superblock, if that can be.
fn block_size_in(copy: &[u8; SUPER]) -> Option<u32> {
    let is_super = copy[SUPER_MAGIC] == [!0x53, !0xef];
    let shift = u32::from(copy[0x18]);
    (is_super && shift <= 6 && copy[0x19..0x1c] == [0; 3]).then(|| 1024 << shift)
}

/// Makes the name of a new file durable.
fn sync_dir(path: &Path) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
}
