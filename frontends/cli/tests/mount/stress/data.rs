//! Operations on the data of a worker's files: cached, direct, appended, mapped, allocated, copied.
//!
//! Input: files of the model. Output: the same change in the file and in the model; contents that are compared. Invariant: whichever way
//! data is written, every way to read shows it. Limits: files up to [`MOST`] bytes.

use super::model::{Kind, same};
use super::worker::Worker;
use crate::mapped::What;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The longest file.
const MOST: usize = 256 << 10;

/// Direct I/O that is not in whole sectors is refused; as long as this lives it is done, because the file does not say then that it is
/// direct, although it was opened so.
struct Fits<'a>(&'a File, Option<OFlags>);

impl Fits<'_> {
    fn new(
        file: &File,
        at: usize,
        len: usize,
        attempt: impl FnOnce() -> std::io::Result<usize>,
    ) -> Fits<'_> {
        let flags = rustix::fs::fcntl_getfl(file).unwrap();
        let is_refused = flags.contains(OFlags::DIRECT) && !(at | len).is_multiple_of(512);
        if is_refused {
            let refused = attempt().map_err(|error| error.raw_os_error());
            assert_eq!(refused, Err(Some(libc::EINVAL)), "{at}+{len}");
            rustix::fs::fcntl_setfl(file, flags - OFlags::DIRECT).unwrap();
        }
        Fits(file, is_refused.then_some(flags))
    }
}

impl Drop for Fits<'_> {
    fn drop(&mut self) {
        if let Some(flags) = self.1 {
            rustix::fs::fcntl_setfl(self.0, flags).unwrap();
        }
    }
}

impl Worker {
    pub(crate) fn data_step(&mut self) {
        let Some(id) = self.any_file() else {
            return;
        };
        match self.random.below(30) {
            0..6 => self.write(id),
            6..9 => self.write_mapped(id),
            9 => self.append(id),
            10..12 => self.truncate(id),
            12..16 => self.allocate(id),
            16 => self.copy(id),
            17 => self.find_holes(id),
            18..20 => self.sync(id),
            _ => self.compare(id),
        }
    }

    /// Any file that is held or has a name.
    fn any_file(&mut self) -> Option<u64> {
        if !self.held.is_empty() && self.random.one_in(2) {
            let at = self.random.below(self.held.len());
            return Some(self.held[at].id);
        }
        let path = self.any(|m, p| matches!(m.nodes[&m.names[p]].kind, Kind::File(_)))?;
        Some(self.model.names[&path])
    }

    /// It is open already, or is opened in one of several ways.
    fn opened(&mut self, id: u64, more: OFlags) -> File {
        let held = self.held.iter().find(|held| held.id == id);
        let held = held.map(|held| held.file.try_clone().unwrap());
        let path = self.any(|m, p| m.names[p] == id);
        match (held, path) {
            (Some(held), Some(_)) if more.is_empty() && self.random.one_in(2) => held,
            (_, Some(path)) => self.open(&path, more),
            (held, None) => held.expect("it would be forgotten"),
        }
    }

    /// A part of a file that may lie beyond its end; often as direct I/O of the kernel's ext4 would need it.
    fn range(&mut self) -> (usize, usize) {
        let unit = [1, 1, 512, 4096][self.random.below(4)];
        let most = [64, 5000, 60_000, 140_000][self.random.below(4)];
        let at = self.random.below(MOST - most) / unit * unit;
        let len = (1 + self.random.below(most)).next_multiple_of(unit);
        (at, len.min(MOST - at))
    }

    fn direct(&mut self) -> OFlags {
        match self.random.one_in(2) {
            true => OFlags::DIRECT,
            false => OFlags::empty(),
        }
    }

    fn write(&mut self, id: u64) {
        let (at, len) = self.range();
        let mut how = self.direct();
        if self.random.one_in(8) {
            how |= OFlags::DSYNC;
        }
        let data = self.random.bytes(len);
        self.settle_end(id, at + len);
        let file = self.opened(id, how);
        self.tell(format!("write {id} {at}+{len} {how:?}"));
        let _fits = Fits::new(&file, at, len, || file.write_at(&data, at as u64));
        file.write_all_at(&data, at as u64).unwrap();
        self.model.write(id, at, &data);
    }

    /// Call before a write up to `end`. The kernel's FUSE (Linux 6.18) loses a part of a write that makes the file longer, if another
    /// worker's syncfs writes back the last page at the same time, which a mapping has changed; fuse2fs has it, too.
    fn settle_end(&mut self, id: u64, end: usize) {
        if end > self.model.bytes(id).len() {
            self.sync_mapped(id);
        }
    }

    /// A part of the file.
    fn part(&mut self, id: u64) -> Option<(usize, usize)> {
        let size = self.model.bytes(id).len();
        let at = self.random.below(size.max(1));
        let len = 1 + self.random.below((size - at).clamp(1, 30_000));
        (size > 0).then_some((at, len))
    }

    fn write_mapped(&mut self, id: u64) {
        let path = self.any(|m, p| m.names[p] == id);
        let (Some((at, len)), Some(path)) = (self.part(id), path) else {
            return;
        };
        let data = self.random.bytes(len);
        let place = self.place(&path);
        self.tell(format!("write mapped {id} {at}+{len}"));
        let Some(mapped) = &mut self.mapped else {
            return;
        };
        mapped.write(What(id, &place), at, &data);
        self.model.write(id, at, &data);
    }

    fn append(&mut self, id: u64) {
        let size = self.model.bytes(id).len();
        let len = (1 + self.random.below(9000)).min(MOST - size);
        let how = self.direct() | OFlags::APPEND;
        let Some(path) = self.any(|m, p| m.names[p] == id) else {
            return;
        };
        let data = self.random.bytes(len);
        self.settle_end(id, size + len);
        let file = self.open(&path, how);
        self.tell(format!("append {id} {len}"));
        let fits = Fits::new(&file, size, len, || (&file).write(&data));
        (&file).write_all(&data).unwrap();
        drop(fits);
        self.model.write(id, size, &data);
    }

    fn truncate(&mut self, id: u64) {
        let size = match self.random.one_in(5) {
            true => 0,
            false => self.random.below(MOST),
        };
        self.tell(format!("truncate {id} {size}"));
        self.opened(id, OFlags::empty())
            .set_len(size as u64)
            .unwrap();
        self.model.bytes_mut(id).resize(size, 0);
    }

    fn allocate(&mut self, id: u64) {
        let (at, len) = self.range();
        let (flags, zeroes) = match self.random.below(5) {
            0 => (FallocateFlags::empty(), false),
            1 => (FallocateFlags::KEEP_SIZE, false),
            2 => (FallocateFlags::ZERO_RANGE, true),
            3 => (FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE, true),
            _ => (FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, true),
        };
        let file = self.opened(id, OFlags::empty());
        self.tell(format!("fallocate {id} {at}+{len} {flags:?}"));
        rustix::fs::fallocate(&file, flags, at as u64, len as u64).unwrap();
        let grows = !flags.contains(FallocateFlags::KEEP_SIZE);
        let size = self.model.bytes(id).len();
        match zeroes {
            true => self.model.zero(id, at, len, grows),
            false if grows => self.model.bytes_mut(id).resize(size.max(at + len), 0),
            false => {}
        }
    }

    fn copy(&mut self, id: u64) {
        let Some((at, len)) = self.part(id) else {
            return;
        };
        let to = self.any_file().unwrap_or(id);
        let to_at = self.random.below(MOST - len);
        if to == id && at < to_at + len && to_at < at + len {
            return;
        }
        let (from, into) = (
            self.opened(id, OFlags::empty()),
            self.opened(to, OFlags::empty()),
        );
        self.tell(format!("copy {id} {at}+{len} to {to} {to_at}"));
        let (mut read, mut written) = (at as u64, to_at as u64);
        let mut left = len;
        while left > 0 {
            let copied = rustix::fs::copy_file_range(
                &from,
                Some(&mut read),
                &into,
                Some(&mut written),
                left,
            );
            left -= copied.unwrap();
        }
        let data = self.model.bytes(id)[at..at + len].to_vec();
        self.model.write(to, to_at, &data);
    }

    /// What is said to be a hole is zero. The kernel's FUSE does not look for pages that a mapping has changed, so they are written first.
    fn find_holes(&mut self, id: u64) {
        self.sync_mapped(id);
        let file = self.opened(id, OFlags::empty());
        self.tell(format!("holes of {id}"));
        let bytes = self.model.bytes(id);
        let mut at = 0;
        while at < bytes.len() {
            let data = rustix::fs::seek(&file, SeekFrom::Data(at as u64));
            let data = data.map_or(bytes.len(), |data| data as usize);
            assert!(
                bytes[at..data].iter().all(|b| *b == 0),
                "no hole: {at}..{data}"
            );
            if data == bytes.len() {
                break;
            }
            at = rustix::fs::seek(&file, SeekFrom::Hole(data as u64)).unwrap() as usize;
            assert!(at > data && at <= bytes.len());
        }
    }

    fn sync(&mut self, id: u64) {
        let file = self.opened(id, OFlags::empty());
        self.tell(format!("sync {id}"));
        match self.random.below(4) {
            0 => file.sync_all().unwrap(),
            1 => file.sync_data().unwrap(),
            2 => rustix::fs::syncfs(&file).unwrap(),
            _ => self.sync_mapped(id),
        }
    }

    fn sync_mapped(&mut self, id: u64) {
        if let Some(mapped) = &mut self.mapped {
            mapped.sync(What(id, Path::new("")));
        }
    }

    /// All of the file, or a part of it.
    fn compare(&mut self, id: u64) {
        let what = format!("file {id} of {}", self.root.display());
        let how = self.direct();
        let file = self.opened(id, how);
        self.tell(format!("compare {id} {how:?}"));
        if self.random.one_in(2) {
            let size = self.model.bytes(id).len();
            // Whole sectors, and behind the end everything is permitted.
            let mut seen = vec![0; (size + 5000).next_multiple_of(512)];
            let mut len = 0;
            loop {
                match file.read_at(&mut seen[len..], len as u64).unwrap() {
                    0 => break,
                    count => len += count,
                }
            }
            return same(&seen[..len], self.model.bytes(id), &what);
        }
        let Some((at, len)) = self.part(id) else {
            return;
        };
        let path = self.any(|m, p| m.names[p] == id);
        let place = path.map(|path| self.place(&path));
        let seen = match (&mut self.mapped, place) {
            (Some(mapped), Some(place)) if how.is_empty() => mapped.read(What(id, &place), at, len),
            _ => {
                let mut seen = vec![0; len];
                let read = || file.read_at(&mut vec![0; len], at as u64);
                let _fits = Fits::new(&file, at, len, read);
                file.read_exact_at(&mut seen, at as u64).unwrap();
                seen
            }
        };
        let wanted = &self.model.bytes(id)[at..at + len];
        same(&seen, wanted, &format!("{what}, from {at}"));
    }
}
