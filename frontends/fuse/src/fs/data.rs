//! Bytes of open files.
//!
//! Input: open files, ranges. Output: bytes, counts. Invariants: a range of whole logical blocks goes past the engine's page cache, because
//! the kernel has its own; the rest goes through it. Limits: a read or write has at most [`MOST_DATA`] bytes.

use super::opened::Way;
use super::{Answer, FileSystem, Help, no};
use crate::transport::Incoming;
use crate::wire::input::{Body, HEADER, Header};
use crate::wire::output::Put;
use crate::wire::{
    FSYNC_DATA, MOST_DATA, READ_DIRECT, WRITE_CACHE, WRITE_DIRECT, WRITE_KILL_SUIDGID, can,
};
use diorite::{Buf, Error, Fallocate, File, Seek};
use rustix::io::Errno;

/// Is it direct I/O that the kernel's ext4 refuses? It takes whole sectors only. The open flags are the file's, as they are now.
fn is_unaligned(open_flags: u32, pos: u64, len: usize) -> bool {
    const SECTOR: u64 = 512;
    open_flags.cast_signed() & libc::O_DIRECT != 0 && !(pos | len as u64).is_multiple_of(SECTOR)
}

/// Of a write: its handle, its flags, and those of the open file.
fn flags_of_write(bytes: &[u8]) -> Result<(u64, u32, u32), Errno> {
    let mut body = Body::new(bytes.get(HEADER..).unwrap_or_default());
    let handle = body.u64()?;
    body.skip(12)?;
    let flags = body.u32()?;
    body.skip(8)?;
    Ok((handle, flags, body.u32()?))
}

/// Whether a write is not of pages of the kernel's cache, which are locked until it is answered.
pub(crate) fn is_direct_write(bytes: &[u8]) -> bool {
    flags_of_write(bytes).is_ok_and(|(_, flags, _)| way_of_write(flags) == Way::Direct)
}

fn way_of_write(flags: u32) -> Way {
    match (flags & WRITE_CACHE, flags & WRITE_DIRECT) {
        (0, 0) => Way::Through,
        (0, _) => Way::Direct,
        _ => Way::Back,
    }
}

impl FileSystem {
    pub(super) fn read(&self, request: &mut Incoming) -> Result<Answer, Errno> {
        let mut body = Body::new(request.before().get(HEADER..).ok_or(Errno::IO)?);
        let (handle, pos, len) = (body.u64()?, body.u64()?, body.u32()? as usize);
        let (how, _owner, flags) = (body.u32()?, body.u64()?, body.u32()?);
        let way = match how & READ_DIRECT {
            0 => Way::Through,
            _ => Way::Direct,
        };
        let file = self.files.get_to_read(handle, way)?;
        if len > MOST_DATA {
            return Err(Errno::INVAL);
        }
        if is_unaligned(flags, pos, len) {
            // As ext4, which looks at the end of the file first.
            return match pos < file.size() {
                true => Err(Errno::INVAL),
                false => Ok(Answer::Data(0)),
            };
        }
        let count = match self.is_aligned(pos, len) {
            true => request.with_buf(len, |buf| file.read_buf(pos, buf)),
            false => request.memory_mut(len).map(|out| file.read_bytes(pos, out)),
        };
        count.ok_or(Errno::NOMEM)?.map(Answer::Data).map_err(no)
    }

    fn is_aligned(&self, pos: u64, len: usize) -> bool {
        (pos | len as u64).is_multiple_of(self.logical)
    }

    /// A write is durable when it is answered, or pages have to be forgotten behind it.
    pub(super) fn write_may_wait(&self, bytes: &[u8]) -> bool {
        // What is cut off is refused at once.
        let fields = flags_of_write(bytes);
        fields.is_ok_and(|(handle, flags, open_flags)| match way_of_write(flags) {
            Way::Back => false,
            Way::Through => open_flags.cast_signed() & libc::O_DSYNC != 0,
            Way::Direct => {
                open_flags.cast_signed() & libc::O_DSYNC != 0 || self.files.may_have_pages(handle)
            }
        })
    }

    pub(super) fn write(
        &self,
        header: &Header,
        request: &mut Incoming,
        out: &mut Vec<u8>,
        help: &dyn Help,
    ) -> Result<Answer, Errno> {
        let mut body = Body::new(request.before().get(HEADER..).ok_or(Errno::IO)?);
        let (handle, pos) = (body.u64()?, body.u64()?);
        let (len, flags, _owner) = (body.u32()?, body.u32()?, body.u64()?);
        let open_flags = body.u32()?;
        let expected = request.data_len();
        if header.extensions != 0 || len as usize != expected || expected > MOST_DATA {
            return Err(Errno::IO);
        }
        let way = way_of_write(flags);
        let by_cache = way == Way::Back;
        let file = self.file_of_write(handle, open_flags, way)?;
        let room = usize::try_from(file.max_size().saturating_sub(pos)).unwrap_or(usize::MAX);
        let fits = expected.min(room);
        if fits == 0 && expected > 0 {
            return Err(Errno::FBIG);
        }
        let (count, error) = match request.take_written() {
            // Others may have written there meanwhile, who have seen these bytes: they come once.
            Some(count) => (count, None),
            None => {
                if !by_cache {
                    if is_unaligned(open_flags, pos, fits) {
                        return Err(Errno::INVAL);
                    }
                    self.check_room(header, &file, (pos, fits as u64), help)?;
                }
                if flags & WRITE_KILL_SUIDGID != 0 {
                    self.clear_rights(header, &file)?;
                }
                self.write_out(&file, (pos, fits), request, help)
            }
        };
        let bytes = pos..pos + fits as u64;
        let is_over = way != Way::Direct || self.forget_written(header.node, handle, bytes, help);
        if !is_over && error.is_none() {
            request.has_written(count);
        }
        match error {
            // Nobody looks at the count of what the kernel's cache writes back: a part of it is a failure.
            Some(error) if count == 0 || by_cache => return Err(no(error)),
            None if by_cache && fits < expected => return Err(Errno::FBIG),
            _ => {}
        }
        out.u32(u32::try_from(count).expect("no more than was asked for"));
        out.u32(0);
        Ok(Answer::Out)
    }

    /// Writes the first `len` bytes of a request's data: whole logical blocks directly, together with the rest behind them if the file ends
    /// with that, else the rest through the engine's cache. Returns how much was written, and why not all.
    fn write_out(
        &self,
        file: &File,
        (pos, len): (u64, usize),
        request: &mut Incoming,
        help: &dyn Help,
    ) -> (usize, Option<Error>) {
        let whole = match pos.is_multiple_of(self.logical) {
            true => len - len % usize::try_from(self.logical).unwrap_or(usize::MAX),
            false => 0,
        };
        if whole > 0 && whole < len && pos + len as u64 > file.size() {
            let room = (len as u64).next_multiple_of(self.logical);
            let room = usize::try_from(room).unwrap_or(usize::MAX);
            let mut end = || {
                let written = request.with_buf(room, |buf| file.write_last(pos, buf, len as u64));
                written.transpose()
            };
            match self.with_space(help, &mut end) {
                Ok(Some(count)) => return (count, None),
                // It has bytes behind that by now; or a logical block is larger than the room.
                Err(Error::Invalid(_)) | Ok(None) => {}
                Err(error) => return (0, Some(error)),
            }
        }
        if whole > 0 {
            let written = self.with_space(help, || file.write_buf(pos, request.lend(whole)).1);
            if let Err(error) = written {
                return (0, Some(error));
            }
        }
        if whole == len {
            return (len, None);
        }
        let rest = &request.data()[whole..len];
        match self.with_space(help, || file.write_bytes(pos + whole as u64, rest)) {
            Ok(count) => (whole + count, None),
            Err(error) => (whole, Some(error)),
        }
    }

    pub(super) fn fsync(&self, mut body: Body<'_>) -> Result<(), Errno> {
        let (handle, flags) = (body.u64()?, body.u32()?);
        let file = self.files.get(handle)?;
        let synced = match flags & FSYNC_DATA {
            0 => file.sync(),
            _ => file.sync_data(),
        };
        synced.map_err(no)
    }

    pub(super) fn fallocate(
        &self,
        header: &Header,
        mut body: Body<'_>,
        help: &dyn Help,
    ) -> Result<(), Errno> {
        let (handle, pos, len) = (body.u64()?, body.u64()?, body.u64()?);
        let mode = body.u32()?.cast_signed();
        let file = self.files.get_to_write(handle, Way::Direct)?;
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let how = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => Fallocate::Allocate { keep_size },
            libc::FALLOC_FL_ZERO_RANGE => Fallocate::ZeroRange { keep_size },
            libc::FALLOC_FL_PUNCH_HOLE if keep_size => Fallocate::PunchHole,
            libc::FALLOC_FL_COLLAPSE_RANGE if !keep_size => Fallocate::CollapseRange,
            libc::FALLOC_FL_INSERT_RANGE if !keep_size => Fallocate::InsertRange,
            _ => return Err(Errno::OPNOTSUPP),
        };
        self.check_end(pos, len)?;
        if matches!(
            how,
            Fallocate::Allocate { .. } | Fallocate::ZeroRange { .. }
        ) {
            self.check_room(header, &file, (pos, len), help)?;
        }
        self.clear_rights_of(header, &file)?;
        // A map of blocks ends before the largest offset: behind it there is nothing to punch.
        if how != Fallocate::PunchHole || pos < file.max_size() {
            let done = self.with_space(help, || file.fallocate(how, pos, len));
            // Also if a part was done.
            self.forget_attributes(header.node);
            done.map_err(no)?;
        }
        self.sync_inode(file.ino())
    }

    /// No range, not even of a hole, ends behind the largest offset of all files, which the kernel does not know.
    fn check_end(&self, pos: u64, len: u64) -> Result<(), Errno> {
        let most = u64::from(u32::MAX) * u64::from(self.volume.space().block_size);
        match pos.checked_add(len) {
            Some(end) if end <= most => Ok(()),
            _ => Err(Errno::FBIG),
        }
    }

    /// What the kernel asks for only with WRITE: a change of the data by somebody without privileges takes rights away.
    fn clear_rights_of(&self, header: &Header, file: &File) -> Result<(), Errno> {
        match self.is_root(header) {
            true => Ok(()),
            false => self.clear_rights(header, file),
        }
    }

    /// ENOSYS where the kernel collects writes: then only the kernel knows where data is, and takes all for data. Where there is no other
    /// thread, what the kernel would hand over could not be received.
    pub(super) fn lseek(
        &self,
        header: &Header,
        bytes: &[u8],
        out: &mut Vec<u8>,
        help: &dyn Help,
    ) -> Result<Answer, Errno> {
        if self.has(can::WRITEBACK_CACHE) {
            return Err(Errno::NOSYS);
        }
        let mut body = Body::new(bytes.get(HEADER..).ok_or(Errno::IO)?);
        let (handle, from) = (body.u64()?, body.u64()?);
        let what = match body.u32()?.cast_signed() {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return Err(Errno::INVAL),
        };
        let file = self.files.get(handle)?;
        let found = match self.files.is_written(file.ino()) && help.is_there(true) {
            true => self.seek_behind_mappings(header.node, &file, from, what),
            false => file.seek_next(from, what),
        };
        out.u64(found.map_err(no)?.ok_or(Errno::NXIO)?);
        Ok(Answer::Out)
    }

    /// What a mapping has changed in a hole is data, but only the kernel knows: it hands that over before a hole counts as one.
    fn seek_behind_mappings(
        &self,
        node: u64,
        file: &File,
        from: u64,
        what: Seek,
    ) -> Result<Option<u64>, Error> {
        /// Holes that are full of such data, one behind the other. Of more than these the next one is taken for a hole.
        const MOST: usize = 1024;
        let mut found = file.seek_next(from, what)?;
        for _ in 0..MOST {
            let hole = match (what, found) {
                (Seek::Data, _) => from..found.unwrap_or(file.size()),
                (Seek::Hole, Some(at)) => {
                    at..file.seek_next(at, Seek::Data)?.unwrap_or(file.size())
                }
                (Seek::Hole, None) => return Ok(None),
            };
            if hole.is_empty() || !self.hand_over(node, hole) {
                return Ok(found);
            }
            let again = file.seek_next(from, what)?;
            if again == found || what == Seek::Data {
                return Ok(again);
            }
            found = again;
        }
        Ok(found)
    }

    pub(super) fn copy_range(
        &self,
        header: &Header,
        mut body: Body<'_>,
        out: &mut Vec<u8>,
        help: &dyn Help,
    ) -> Result<(), Errno> {
        let (from, mut at) = (body.u64()?, body.u64()?);
        body.skip(8)?;
        let (to, mut to_at) = (body.u64()?, body.u64()?);
        let len = body.u64()?;
        let (from, to) = (
            self.files.get(from)?,
            self.files.get_to_write(to, Way::Direct)?,
        );
        // One request is bounded, so that it ends soon; the caller asks again for the rest.
        let len = len.min(64 * MOST_DATA as u64);
        let there = from.size().saturating_sub(at);
        self.check_room(header, &to, (to_at, len.min(there)), help)?;
        self.clear_rights_of(header, &to)?;
        let read_before = from.metadata().atime;
        let mut left = usize::try_from(len).unwrap_or(usize::MAX);
        let mut buf = Buf::try_zeroed(left.min(MOST_DATA)).ok_or(Errno::NOMEM)?;
        let mut done: u32 = 0;
        let result = loop {
            let part = &mut buf.as_mut_slice()[..left.min(MOST_DATA)];
            let copied = from
                .read_bytes(at, part)
                .and_then(|count| self.with_space(help, || to.write_bytes(to_at, &part[..count])));
            match copied {
                Ok(0) => break Ok(()),
                Err(error) if done == 0 => break Err(no(error)),
                Err(_) => break Ok(()),
                Ok(count) => {
                    (at, to_at) = (at + count as u64, to_at + count as u64);
                    left -= count;
                    done += u32::try_from(count).expect("at most 1 MiB");
                }
            }
            if left == 0 {
                break Ok(());
            }
        };
        if from.metadata().atime != read_before {
            self.forget_attributes(header.node);
        }
        result?;
        out.u32(done);
        out.u32(0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::MountOptions;
    use crate::transport::Channel;
    use crate::wire::op;
    use diorite::device::{Device, MemDevice};
    use diorite::mkfs::{MkfsOptions, mkfs};
    use diorite::{Ino, OpenOptions, Volume};
    use std::cell::Cell;
    use std::sync::Arc;

    /// Whether the thread may wait.
    struct Waits(Cell<bool>);

    impl Help for Waits {
        fn is_there(&self, _long: bool) -> bool {
            self.0.get()
        }

        fn may_wait(&self) -> bool {
            self.0.get()
        }
    }

    /// The defect: a write that has to wait for pages was done again behind a later one of somebody else.
    #[test]
    #[expect(clippy::unwrap_used, reason = "a test fails by it")]
    fn a_write_that_is_executed_again_writes_once() {
        let device: Arc<dyn Device> = Arc::new(MemDevice::new(16 << 20));
        let options = MkfsOptions::new([1; 16], [2; 16], 1_700_000_000);
        mkfs(&device, &options).unwrap();
        let volume = Volume::open_device(device, &OpenOptions::writable()).unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let channel = Channel::new(null.into(), false);
        let fs = FileSystem::new(volume.clone(), MountOptions::default(), channel);
        let file = volume.create((Ino::ROOT, &b"file"[..]), 0o644).unwrap();
        let (opened, other) = (file.clone(), file);
        let opened = fs.opened(opened, libc::O_RDWR).unwrap();
        let (handle, _) = fs.add_opened(opened, libc::O_RDWR);
        // Somebody reads through the kernel's cache.
        fs.files.get_to_read(handle, Way::Through).unwrap();

        let (mut header, mut body) = (Vec::new(), Vec::new());
        header.u32(u32::try_from(HEADER).unwrap() + 40 + 4096);
        header.u32(op::WRITE);
        header.u64(7);
        header.u64(12);
        header.zeros(16);
        body.u64(handle);
        body.u64(0);
        body.u32(4096);
        body.u32(WRITE_DIRECT);
        body.zeros(16);
        let mut request = Incoming::of(&header, &body, &[1; 4096]).unwrap();
        let header = Header::parse(&header).unwrap();
        let (help, mut out) = (Waits(Cell::new(false)), Vec::new());
        let mut write = |help: &Waits| {
            out.clear();
            fs.write(&header, &mut request, &mut out, help).unwrap();
            out[0..4].to_vec()
        };
        write(&help);
        let mut read = [0; 4096];
        assert_eq!(other.read_bytes(0, &mut read).unwrap(), 4096);
        assert!(read == [1; 4096]);
        other.write_bytes(0, &[2; 4096]).unwrap();
        help.0.set(true);
        assert_eq!(write(&help), 4096_u32.to_ne_bytes());
        other.read_bytes(0, &mut read).unwrap();
        assert!(read == [2; 4096]);
    }
}
