//! Names: looked up, made, moved, removed.
//!
//! Input: directories and names in them, paths. Output: numbers of inodes, changed directories. Invariants: those of the engine. Limits:
//! every call blocks; permissions of callers are not checked.
//!
//! In all of these a place is `(dir, path)`: DIORITE_AT_ROOT and a path from the root, or the inode of a directory and one name in it.

use crate::args::{self, at, bytes, check_flags, find};
use crate::error::{Fault, border};
use crate::file::{self, FileHandle, permissions};
use crate::volume::{self, VolumeHandle};
use diorite::{FileType, Rdev, RenameFlags};
use std::ffi::{c_char, c_int};

/// Of lookups: a symbolic link that is the last name is meant itself.
pub const DIORITE_AT_SYMLINK_NOFOLLOW: u32 = 0x100;
/// Of diorite_unlinkat: the name is that of an empty directory.
pub const DIORITE_AT_REMOVEDIR: u32 = 0x200;

/// Fail with EEXIST if the new name exists.
pub const DIORITE_RENAME_NOREPLACE: u32 = 1;
/// Exchange two names that exist.
pub const DIORITE_RENAME_EXCHANGE: u32 = 2;
/// Leave a whiteout (a character device 0:0) at the old name.
pub const DIORITE_RENAME_WHITEOUT: u32 = 4;

/// Finds the inode that a name leads to. @flags are 0 or DIORITE_AT_SYMLINK_NOFOLLOW; in a directory by number a link is never followed.
/// Returns the inode's number. Blocks while metadata is read.
///
/// Errors: EBADF, ENOENT, ENOTDIR, ELOOP, ENAMETOOLONG, EUCLEAN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_lookup(
    volume: VolumeHandle,
    dir: u64,
    path: *const c_char,
    flags: u32,
) -> i64 {
    border(|| {
        let volume = volume::hold(volume)?;
        check_flags(flags, DIORITE_AT_SYMLINK_NOFOLLOW, "diorite_lookup")?;
        // SAFETY: the caller's promise.
        let path = unsafe { bytes(path, "the path") }?;
        let ino = find(&volume, dir, path, flags == 0)?;
        Ok(i64::from(ino.get()))
    })
}

/// Makes a directory with these permissions. @ino gets its inode's number; it may be NULL. Durable with the next diorite_volume_sync, or
/// fsync of its parent. Blocks.
///
/// Errors: EBADF, EEXIST, ENOENT, ENOTDIR, ENOSPC, EMLINK, ENAMETOOLONG, EROFS, EPERM, EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_mkdirat(
    volume: VolumeHandle,
    dir: u64,
    path: *const c_char,
    mode: u32,
    ino: *mut u64,
) -> c_int {
    border(|| {
        let volume = volume::hold(volume)?;
        // SAFETY: the caller's promise.
        let path = unsafe { bytes(path, "the path") }?;
        let made = volume.mkdir(at(dir, path)?, permissions(mode)?)?;
        // SAFETY: the caller's promise.
        unsafe { tell(ino, made) };
        Ok(0)
    })
}

/// # Safety
/// The place is NULL or can be written.
unsafe fn tell(place: *mut u64, ino: diorite::Ino) {
    // SAFETY: the caller's promise.
    if let Some(place) = unsafe { place.as_mut() } {
        *place = u64::from(ino.get());
    }
}

/// Makes a symbolic link to @target, which need not exist. Otherwise as diorite_mkdirat.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_symlinkat(
    volume: VolumeHandle,
    target: *const c_char,
    dir: u64,
    path: *const c_char,
    ino: *mut u64,
) -> c_int {
    border(|| {
        let volume = volume::hold(volume)?;
        // SAFETY: the caller's promises.
        let (target, path) = unsafe { (bytes(target, "the target")?, bytes(path, "the path")?) };
        let made = volume.symlink(target, at(dir, path)?)?;
        // SAFETY: the caller's promise.
        unsafe { tell(ino, made) };
        Ok(0)
    })
}

/// Makes a FIFO, a socket or a device node: @mode has its type (S_IFIFO, ...) and permissions. Otherwise as diorite_mkdirat.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_mknodat(
    volume: VolumeHandle,
    dir: u64,
    path: *const c_char,
    mode: u32,
    major: u32,
    minor: u32,
    ino: *mut u64,
) -> c_int {
    border(|| {
        let volume = volume::hold(volume)?;
        // SAFETY: the caller's promise.
        let path = unsafe { bytes(path, "the path") }?;
        let word = u16::try_from(mode).ok();
        let kind = word.and_then(FileType::from_mode);
        let kind = kind.ok_or_else(|| Fault::invalid(format!("{mode:#o} is no mode of a node")))?;
        let device = Rdev { major, minor };
        let made = volume.mknod(at(dir, path)?, kind, permissions(mode & 0o7777)?, device)?;
        // SAFETY: the caller's promise.
        unsafe { tell(ino, made) };
        Ok(0)
    })
}

/// Removes a name. @flags are 0 or DIORITE_AT_REMOVEDIR. A file without a name is deleted when nobody has it open. Blocks.
///
/// Errors: EBADF, ENOENT, EISDIR, ENOTDIR, ENOTEMPTY, EBUSY (the root), EROFS, EPERM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_unlinkat(
    volume: VolumeHandle,
    dir: u64,
    path: *const c_char,
    flags: u32,
) -> c_int {
    border(|| {
        let volume = volume::hold(volume)?;
        check_flags(flags, DIORITE_AT_REMOVEDIR, "diorite_unlinkat")?;
        // SAFETY: the caller's promise.
        let path = unsafe { bytes(path, "the path") }?;
        match flags {
            0 => volume.unlink(at(dir, path)?)?,
            _ => volume.rmdir(at(dir, path)?)?,
        }
        Ok(0)
    })
}

/// Moves a name. What has the new name is replaced, and data of the moved file is on the device before. @flags are DIORITE_RENAME_...
/// Blocks.
///
/// Errors: those of diorite_mkdirat and diorite_unlinkat; EINVAL: a directory would move below itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_renameat(
    volume: VolumeHandle,
    from_dir: u64,
    from: *const c_char,
    to_dir: u64,
    to: *const c_char,
    flags: u32,
) -> c_int {
    border(|| {
        let volume = volume::hold(volume)?;
        check_flags(flags, 7, "diorite_renameat")?;
        // SAFETY: the caller's promises.
        let (from, to) = unsafe { (bytes(from, "the old path")?, bytes(to, "the new path")?) };
        let mut how = RenameFlags::none();
        how.no_replace = flags & DIORITE_RENAME_NOREPLACE != 0;
        how.exchange = flags & DIORITE_RENAME_EXCHANGE != 0;
        how.whiteout = flags & DIORITE_RENAME_WHITEOUT != 0;
        volume.rename(at(from_dir, from)?, at(to_dir, to)?, how)?;
        Ok(0)
    })
}

/// Gives an inode another name; it has one already. Blocks.
///
/// Errors: those of diorite_mkdirat; EPERM for a directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_linkat(
    volume: VolumeHandle,
    ino: u64,
    dir: u64,
    path: *const c_char,
) -> c_int {
    border(|| {
        let volume = volume::hold(volume)?;
        // SAFETY: the caller's promise.
        let path = unsafe { bytes(path, "the path") }?;
        volume.link_ino(args::ino(ino)?, at(dir, path)?)?;
        Ok(0)
    })
}

/// Gives an open file another name, or its first (DIORITE_O_TMPFILE). With @replace a name that exists is replaced in one step: a crash
/// leaves the old file or the whole new one. Blocks.
///
/// Errors: those of diorite_mkdirat; EISDIR: the name is a directory's; those of write-back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_linkfile(
    volume: VolumeHandle,
    file: FileHandle,
    dir: u64,
    path: *const c_char,
    replace: c_int,
) -> c_int {
    border(|| {
        let volume = volume::hold(volume)?;
        let file = file::hold(file)?;
        // SAFETY: the caller's promise.
        let path = unsafe { bytes(path, "the path") }?;
        let to = at(dir, path)?;
        match replace {
            0 => volume.link_file(&file.file, to)?,
            _ => volume.replace_file(&file.file, to)?,
        }
        Ok(0)
    })
}

/// Copies the target of a symbolic link to @text: at most @size bytes, without a NUL behind them. Returns the length of the whole target.
/// Blocks.
///
/// Errors: EBADF, EFAULT, EINVAL (no symbolic link), ESTALE, EUCLEAN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_readlink(
    volume: VolumeHandle,
    ino: u64,
    text: *mut c_char,
    size: usize,
) -> i64 {
    border(|| {
        let volume = volume::hold(volume)?;
        // SAFETY: the caller's promise.
        let place = unsafe { args::memory_mut(text.cast(), size) }?;
        let target = volume.read_link(args::ino(ino)?)?;
        let count = target.len().min(size);
        place[..count].copy_from_slice(&target[..count]);
        Ok(target.len() as i64)
    })
}

/// Keeps an inode from being deleted while it is known by its number, as a file server does for its handles. @generation gets the number
/// that tells it from others with its number; it may be NULL. Each call needs one of diorite_forget. Blocks while metadata is read.
///
/// Errors: EBADF, ESTALE, EUCLEAN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_know(
    volume: VolumeHandle,
    ino: u64,
    generation: *mut u32,
) -> c_int {
    border(|| {
        let known = volume::hold(volume)?.know(args::ino(ino)?)?;
        // SAFETY: the caller's promise.
        if let Some(generation) = unsafe { generation.as_mut() } {
            *generation = known;
        }
        Ok(0)
    })
}

/// Takes back @times calls of diorite_know. An inode without a name is deleted with the last. Blocks for that.
///
/// Errors: EBADF, EINVAL.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_forget(volume: VolumeHandle, ino: u64, times: u64) -> c_int {
    border(|| {
        volume::hold(volume)?.forget(args::ino(ino)?, times);
        Ok(0)
    })
}
