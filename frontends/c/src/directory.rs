//! Directory streams.
//!
//! Input: directories. Output: their entries, one at a time. Invariants: a name that exists during the whole listing is listed once,
//! whatever happens to others. Limits: the order is the engine's; one thread reads a stream at a time, others wait.

use crate::args::{bytes, find, handle, lock, out};
use crate::error::{Fault, border};
use crate::handle::{Held, Table};
use crate::volume::{self, VolumeHandle};
use diorite::dir::ReadDir;
use diorite::{FileType, Ino, Volume};
use std::ffi::{c_char, c_int};
use std::sync::Mutex;

/// A directory stream. 0 is none.
pub type DirHandle = u64;

/// An entry of a directory.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Dirent {
    /// The inode that the name leads to.
    pub ino: u64,
    /// Where the stream goes on behind this entry, for diorite_seekdir: below 2^63.
    pub position: u64,
    /// The type as in the upper bits of a mode (S_IFREG, ...); 0: the directory does not say.
    pub r#type: u32,
    /// Bytes of the name.
    pub name_len: u32,
    /// The name, with a NUL behind it. It need not be UTF-8.
    pub name: [c_char; 256],
}

struct Stream {
    volume: Volume,
    ino: Ino,
    entries: Mutex<ReadDir>,
}

static STREAMS: Table<Stream> = Table::new(4, "directory stream");

fn hold(dir: DirHandle) -> Result<Held<Stream>, Fault> {
    STREAMS.hold(dir)
}

/// The type bits of a mode.
pub(crate) fn type_bits(kind: Option<FileType>) -> u32 {
    match kind {
        None => 0,
        Some(FileType::Fifo) => libc::S_IFIFO,
        Some(FileType::CharDevice) => libc::S_IFCHR,
        Some(FileType::Directory) => libc::S_IFDIR,
        Some(FileType::BlockDevice) => libc::S_IFBLK,
        Some(FileType::Regular) => libc::S_IFREG,
        Some(FileType::Symlink) => libc::S_IFLNK,
        Some(FileType::Socket) => libc::S_IFSOCK,
    }
}

/// Opens a directory stream at its beginning. The place is as of diorite_openat, but an empty @path is the directory @dir itself. @stream
/// gets the handle; it is 0 after an error. Blocks.
///
/// Errors: EBADF, ENOENT, ENOTDIR, ELOOP, EUCLEAN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_opendirat(
    volume: VolumeHandle,
    dir: u64,
    path: *const c_char,
    stream: *mut DirHandle,
) -> c_int {
    border(|| {
        let volume = volume::hold(volume)?;
        // SAFETY: the caller's promises.
        let (stream, path) = unsafe { (handle(stream, "stream")?, bytes(path, "the path")?) };
        let ino = match (dir, path) {
            (0, b"") => Ino::ROOT,
            (dir, b"") => crate::args::ino(dir)?,
            (dir, path) => find(&volume, dir, path, true)?,
        };
        *stream = STREAMS.insert(Stream {
            entries: Mutex::new(volume.read_dir(ino)?),
            volume: volume.clone(),
            ino,
        })?;
        Ok(0)
    })
}

/// Reads the next entry, "." and ".." included. Returns 1, or 0 at the end. Blocks while metadata is read.
///
/// Errors: EBADF, EFAULT, EUCLEAN; those of the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_readdir(stream: DirHandle, entry: *mut Dirent) -> c_int {
    border(|| {
        let stream = hold(stream)?;
        // SAFETY: the caller's promise.
        let place = unsafe { out(entry, "entry") }?;
        let mut entries = lock(&stream.entries);
        let Some(entry) = entries.next() else {
            return Ok(0);
        };
        let entry = entry?;
        place.name = [0; 256];
        for (to, from) in place.name.iter_mut().take(255).zip(&entry.name) {
            *to = c_char::from_ne_bytes([*from]);
        }
        place.ino = u64::from(entry.ino.get());
        place.position = entries.position();
        place.r#type = type_bits(entry.file_type);
        place.name_len = entry.name.len() as u32;
        Ok(1)
    })
}

/// Goes to a position: 0 is the beginning, others are those of entries of the same directory, also of an earlier stream. Blocks.
///
/// Errors: EBADF; EINVAL: the directory has no such position.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_seekdir(stream: DirHandle, position: u64) -> c_int {
    border(|| {
        let stream = hold(stream)?;
        let there = stream.volume.read_dir_from(stream.ino, position)?;
        *lock(&stream.entries) = there;
        Ok(0)
    })
}

/// Closes a directory stream.
///
/// Errors: EBADF.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_closedir(stream: DirHandle) -> c_int {
    border(|| {
        drop(STREAMS.close(stream)?);
        Ok(0)
    })
}
