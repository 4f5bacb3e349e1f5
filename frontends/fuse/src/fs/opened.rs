//! Open files, by number.
//!
//! Input: inodes, how they are opened. Output: numbers for the kernel, files for its requests. Invariants: a number is used again only
//! after its file was released; a file that is opened for synchronous writes has every write of its own durable, also past the kernel's
//! cache, which sends no FSYNC then. Limits: memory.

use super::cached::{Pages, WithPages};
use super::{FileSystem, no};
use crate::wire::input::{Body, Header};
use crate::wire::output::{ENTRY, put_open};
use crate::wire::{can, op, opened};
use diorite::{Caller, File, Ino, InodeFlags, OpenFlags};
use diorite_block::sync::{LockClass, RwLock};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The table of open files.
static FUSE_FILES: LockClass = LockClass::new("fuse-files", 66);

/// An open file. Requests share it: a clone of a [`File`] counts several things that all threads count.
#[derive(Clone, Debug)]
pub(super) struct Opened {
    pub(super) file: Arc<File>,
    /// The same for writes that are durable when they are answered. None: as asked for by FSYNC.
    pub(super) synchronous: Option<Arc<File>>,
    /// Of O_DSYNC and O_SYNC what each write of it keeps anyway.
    keeps: i32,
    writes: bool,
}

/// How a request moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Past the kernel's cache.
    Direct,
    /// The kernel's cache keeps what is read, or written, in its pages.
    Through,
    /// Its cache writes back what it has collected, and asks for durability by FSYNC.
    Back,
}

/// What the open files of one inode have in common.
#[derive(Debug, Default)]
struct Users {
    opened: usize,
    writers: usize,
    pages: Arc<Pages>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct OpenFiles {
    table: RwLock<Table>,
    with_pages: WithPages,
    /// Files that are open for writing.
    writers: AtomicUsize,
}

#[derive(Debug, Default)]
struct Table {
    files: Vec<Option<(Opened, Arc<Pages>)>>,
    free: Vec<usize>,
    inodes: HashMap<Ino, Users>,
}

impl Default for OpenFiles {
    fn default() -> Self {
        OpenFiles {
            table: RwLock::at_level(&FUSE_FILES, 0, Table::default()),
            with_pages: WithPages::default(),
            writers: AtomicUsize::new(0),
        }
    }
}

impl OpenFiles {
    fn add(&self, file: Opened) -> u64 {
        let table = &mut *self.table.write();
        let users = table.inodes.entry(file.file.ino()).or_default();
        users.opened += 1;
        users.writers += usize::from(file.writes);
        self.writers.fetch_add(usize::from(file.writes), Relaxed);
        let pages = users.pages.clone();
        let at = match table.free.pop() {
            Some(at) => at,
            None => {
                table.files.push(None);
                table.files.len() - 1
            }
        };
        table.files[at] = Some((file, pages));
        at as u64
    }

    pub(super) fn get(&self, number: u64) -> Result<Arc<File>, Errno> {
        self.with(number, |opened, _| opened.file.clone())
    }

    /// As [`OpenFiles::get`], for a read.
    pub(super) fn get_to_read(&self, number: u64, way: Way) -> Result<Arc<File>, Errno> {
        self.with(number, |opened, pages| {
            pages.note(way, &self.with_pages);
            opened.file.clone()
        })
    }

    /// As [`OpenFiles::get`], for a write.
    pub(super) fn get_to_write(&self, number: u64, way: Way) -> Result<Arc<File>, Errno> {
        self.with(number, |opened, pages| {
            pages.note(way, &self.with_pages);
            let synchronous = opened.synchronous.as_ref().filter(|_| way != Way::Back);
            synchronous.unwrap_or(&opened.file).clone()
        })
    }

    /// Whether the kernel may have pages of the file that came there since it was opened. Call when bytes have been written past them.
    pub(super) fn may_have_pages(&self, number: u64) -> bool {
        self.with_pages.are_any()
            && self
                .with(number, |_, pages| pages.are_there())
                .unwrap_or(false)
    }

    fn with<T>(&self, number: u64, take: impl FnOnce(&Opened, &Pages) -> T) -> Result<T, Errno> {
        let table = self.table.read();
        let at = usize::try_from(number).ok();
        let opened = at.and_then(|at| table.files.get(at)?.as_ref());
        let (opened, pages) = opened.ok_or(Errno::BADF)?;
        Ok(take(opened, pages))
    }

    /// Has somebody this inode open for writing?
    pub(super) fn is_written(&self, ino: Ino) -> bool {
        let table = self.table.read();
        table
            .inodes
            .get(&ino)
            .is_some_and(|users| users.writers > 0)
    }

    /// Has somebody any inode open for writing?
    pub(super) fn any_written(&self) -> bool {
        self.writers.load(Relaxed) > 0
    }

    /// Has somebody this inode open?
    pub(super) fn is_open(&self, ino: Ino) -> bool {
        self.table.read().inodes.contains_key(&ino)
    }

    pub(super) fn remove(&self, number: u64) -> Option<Opened> {
        let table = &mut *self.table.write();
        let at = usize::try_from(number).ok()?;
        let (file, _) = table.files.get_mut(at)?.take()?;
        table.free.push(at);
        if let Entry::Occupied(mut users) = table.inodes.entry(file.file.ino()) {
            users.get_mut().opened -= 1;
            users.get_mut().writers -= usize::from(file.writes);
            self.writers.fetch_sub(usize::from(file.writes), Relaxed);
            if users.get().opened == 0 {
                self.with_pages.closed(&users.get().pages);
                users.remove();
            }
        }
        Some(file)
    }

    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *self.table.write());
        self.writers.store(0, Relaxed);
        drop(all);
    }
}

impl FileSystem {
    /// The mode after a write for which the kernel wants rights to go.
    pub(super) fn without_rights(&self, inode: &diorite_format::Inode, header: &Header) -> u16 {
        let writer = self.writer(inode, header);
        writer.mode_after_write(inode.mode, inode.gid)
    }

    /// The caller of such a request: somebody without privileges, though root belongs to every group. Of other callers' groups the kernel
    /// tells the first one.
    fn writer(&self, inode: &diorite_format::Inode, header: &Header) -> Caller {
        const NOBODY: u32 = 65_534;
        match self.is_root(header) {
            true => Caller {
                uid: NOBODY,
                gids: vec![inode.gid],
            },
            false => Caller {
                uid: header.uid,
                gids: vec![header.gid],
            },
        }
    }

    /// Clears the rights that a write by somebody without privileges takes away.
    pub(super) fn clear_rights(&self, header: &Header, file: &File) -> Result<(), Errno> {
        let writer = self.writer(&file.metadata(), header);
        let cleared = file.clear_rights(&writer).map_err(no);
        if cleared != Ok(false) {
            // Before the data changes: whoever executes the file meanwhile would have its old rights.
            self.forget_attributes(self.node(file.ino())?);
        }
        cleared.map(drop)
    }

    pub(super) fn open(
        &self,
        header: &Header,
        mut body: Body<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let flags = body.u32()?.cast_signed();
        let ino = self.ino(header.node)?;
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        if writes {
            self.check_flags(ino, flags)?;
        }
        // Where the kernel collects writes it reads what is around them, also through files that are open for writing only.
        let how = OpenFlags::default().write(writes);
        let file = self.volume.open_ino(ino, how).map_err(no)?;
        let opened = self.opened(file, flags)?;
        // As of now the kernel asks each time.
        let collects = writes && self.has(can::WRITEBACK_CACHE);
        let is_first = collects && !self.files.is_written(ino);
        let (number, how) = self.add_opened(opened, flags);
        if is_first {
            self.forget_attributes(header.node);
        }
        put_open(number, how, out);
        Ok(())
    }

    /// What the kernel cannot check, as it does not know these flags of the inode.
    fn check_flags(&self, ino: Ino, flags: i32) -> Result<(), Errno> {
        let inode = self.volume.metadata(ino).map_err(no)?.0;
        let only_appends = flags & libc::O_APPEND != 0;
        match inode.flags.has(InodeFlags::IMMUTABLE)
            || inode.flags.has(InodeFlags::APPEND) && !only_appends
        {
            true => Err(Errno::PERM),
            false => Ok(()),
        }
    }

    /// A file as a caller asks for it.
    pub(super) fn opened(&self, file: File, flags: i32) -> Result<Opened, Errno> {
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        // The engine knows the inode's own flag; the kernel does not, and would collect.
        let keeps = match self.options.flags.contains(MountFlags::SYNCHRONOUS) {
            true => libc::O_SYNC,
            false => flags & libc::O_SYNC,
        };
        let synchronous = match writes && keeps != 0 {
            true => Some(Arc::new(self.synchronous(&file, keeps)?)),
            false => None,
        };
        Ok(Opened {
            file: Arc::new(file),
            synchronous,
            keeps,
            writes,
        })
    }

    /// The file for writes that are as durable as these of O_DSYNC and O_SYNC say.
    fn synchronous(&self, file: &File, flags: i32) -> Result<File, Errno> {
        let how = OpenFlags::writable()
            .dsync(true)
            .sync(flags & libc::O_SYNC == libc::O_SYNC)
            .direct(false);
        self.volume.open_ino(file.ino(), how).map_err(no)
    }

    /// The file for one write. Its flags are those of the open file, and what RWF_DSYNC and RWF_SYNC ask for this write alone: the kernel
    /// sends no FSYNC behind a direct one.
    pub(super) fn file_of_write(
        &self,
        number: u64,
        flags: u32,
        way: Way,
    ) -> Result<Arc<File>, Errno> {
        let wanted = flags.cast_signed() & libc::O_SYNC;
        let is_plain = way == Way::Back || wanted == 0;
        let file = self.files.get_to_write(number, way)?;
        match is_plain || self.files.with(number, |it, _| wanted & !it.keeps == 0)? {
            true => Ok(file),
            false => self.synchronous(&file, wanted).map(Arc::new),
        }
    }

    /// Gives the file a number. Returns that, and what tells the kernel how to use the file.
    pub(super) fn add_opened(&self, opened: Opened, flags: i32) -> (u64, u32) {
        let inode_flags = opened.file.metadata().flags;
        // The kernel's cache would write whole pages, which is no append, and would write later.
        let at_once = inode_flags.has(InodeFlags::SYNC) || inode_flags.has(InodeFlags::APPEND);
        let direct =
            flags & libc::O_DIRECT != 0 || self.options.direct_io || opened.writes && at_once;
        let how = match direct {
            true => opened::DIRECT_IO | opened::PARALLEL_DIRECT_WRITES,
            // Only this mount changes the file, so what is cached stays true.
            false => opened::KEEP_CACHE,
        };
        (self.files.add(opened), how)
    }

    pub(super) fn release(&self, mut body: Body<'_>) -> Result<(), Errno> {
        self.release_number(body.u64()?);
        Ok(())
    }

    /// The kernel may have forgotten the inode before: then this was its last user.
    fn release_number(&self, number: u64) {
        let Some(opened) = self.files.remove(number) else {
            return;
        };
        let (ino, is_unlinked) = (opened.file.ino(), opened.file.metadata().links == 0);
        drop(opened);
        if is_unlinked {
            self.volume.note_closed(ino);
            self.volume.delete_unused();
        }
    }

    /// Releases the file of a reply that was not taken.
    pub(super) fn release_unsent(&self, operation: u32, out: &[u8]) {
        let at = if operation == op::OPEN { 0 } else { ENTRY };
        let number = out.get(at..).and_then(|rest| Body::new(rest).u64().ok());
        if let Some(number) = number {
            self.release_number(number);
        }
    }
}
