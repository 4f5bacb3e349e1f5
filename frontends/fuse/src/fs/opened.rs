//! Open files, by number.
//!
//! Input: inodes, how they are opened. Output: numbers for the kernel, files for its requests. Invariant: a number is used again only after
//! its file was released. Limits: memory.

use super::{FileSystem, no};
use crate::wire::input::{Body, Header};
use crate::wire::output::{ENTRY, put_open};
use crate::wire::{OPEN_KILL_SUIDGID, op, opened};
use diorite::{File, OpenFlags, SetAttr};
use diorite_block::sync::{LockClass, RwLock};
use rustix::io::Errno;

/// The table of open files.
static FUSE_FILES: LockClass = LockClass::new("fuse-files", 66);

const WRITABLE: OpenFlags = OpenFlags {
    write: true,
    dsync: false,
    sync: false,
    direct: false,
};

/// See the module.
#[derive(Debug)]
pub(super) struct OpenFiles(RwLock<Table>);

#[derive(Debug, Default)]
struct Table {
    files: Vec<Option<File>>,
    free: Vec<usize>,
}

impl Default for OpenFiles {
    fn default() -> Self {
        OpenFiles(RwLock::at_level(&FUSE_FILES, 0, Table::default()))
    }
}

impl OpenFiles {
    fn add(&self, file: File) -> u64 {
        let mut table = self.0.write();
        let at = match table.free.pop() {
            Some(at) => at,
            None => {
                table.files.push(None);
                table.files.len() - 1
            }
        };
        table.files[at] = Some(file);
        at as u64
    }

    pub(super) fn get(&self, number: u64) -> Result<File, Errno> {
        let table = self.0.read();
        let at = usize::try_from(number).ok();
        let file = at.and_then(|at| table.files.get(at)?.as_ref());
        file.cloned().ok_or(Errno::BADF)
    }

    fn remove(&self, number: u64) -> Option<File> {
        let mut table = self.0.write();
        let at = usize::try_from(number).ok()?;
        let file = table.files.get_mut(at)?.take()?;
        table.free.push(at);
        Some(file)
    }

    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *self.0.write());
        drop(all);
    }
}

/// The set-user-id and set-group-id bits go, the latter only where the group may execute the file.
pub(super) fn without_rights(mode: u16) -> u16 {
    use diorite_format::inode::{GROUP_EXECUTES, SETGID, SETUID};
    match mode & GROUP_EXECUTES {
        0 => mode & !SETUID,
        _ => mode & !(SETUID | SETGID),
    }
}

/// Clears the rights that a write by somebody without privileges takes away.
pub(super) fn clear_rights(file: &File) -> Result<(), Errno> {
    let mode = file.metadata().mode;
    let after = without_rights(mode);
    if after == mode {
        return Ok(());
    }
    let permissions = Some(after & 0o7777);
    let set = SetAttr {
        permissions,
        ..SetAttr::default()
    };
    file.set_attr(&set).map_err(no)
}

impl FileSystem {
    pub(super) fn open(
        &self,
        header: &Header,
        mut body: Body<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Errno> {
        let (flags, more) = (body.u32()?.cast_signed(), body.u32()?);
        let ino = self.ino(header.node)?;
        // Where the kernel collects writes it reads what is around them, also through files that are open for writing only.
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let how = match writes {
            true => WRITABLE,
            false => OpenFlags::default(),
        };
        let file = self.volume.open_ino(ino, how).map_err(no)?;
        if flags & libc::O_TRUNC != 0 && writes {
            if more & OPEN_KILL_SUIDGID != 0 {
                clear_rights(&file)?;
            }
            file.truncate(0).map_err(no)?;
        }
        self.put_opened(file, flags, out);
        Ok(())
    }

    /// Gives the file a number, and tells the kernel how to use it.
    pub(super) fn put_opened(&self, file: File, flags: i32, out: &mut Vec<u8>) {
        let direct = flags & libc::O_DIRECT != 0 || self.options.direct_io;
        let how = match direct {
            true => opened::DIRECT_IO | opened::PARALLEL_DIRECT_WRITES,
            // Only this mount changes the file, so what is cached stays true.
            false => opened::KEEP_CACHE,
        };
        put_open(self.files.add(file), how, out);
    }

    pub(super) fn release(&self, mut body: Body<'_>) -> Result<(), Errno> {
        drop(self.files.remove(body.u64()?));
        Ok(())
    }

    /// Releases the file of a reply that was not taken.
    pub(super) fn release_unsent(&self, operation: u32, out: &[u8]) {
        let at = if operation == op::OPEN { 0 } else { ENTRY };
        let number = out.get(at..).and_then(|rest| Body::new(rest).u64().ok());
        drop(number.map(|number| self.files.remove(number)));
    }
}
