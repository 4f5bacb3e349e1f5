//! Open files and their blocking calls.
//!
//! Input: names, numbers of inodes, the caller's memory. Output: handles of files, bytes. Invariants: a direct call transfers from and to
//! the caller's memory without a copy, and is aligned or refused; a cached one takes any range. Limits: every call blocks.

use crate::args::{self, check_flags, handle, memory, memory_mut, null};
use crate::error::{Fault, border};
use crate::handle::{Held, Table};
use crate::volume::{self, VolumeHandle};
use diorite::device::Foreign;
use diorite::queue::MAX_REQUEST;
use diorite::{Buf, Error, Fallocate, File, OpenFlags, Seek, Volume};
use libc::iovec;
use std::ffi::{c_char, c_int, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::ptr::NonNull;
use std::sync::LazyLock;

/// An open file. 0 is none.
pub type FileHandle = u64;

/// The file can be written. Without it it is opened for reading.
pub const DIORITE_O_RDWR: u32 = 1;
/// Creates the file if it does not exist.
pub const DIORITE_O_CREAT: u32 = 2;
/// With DIORITE_O_CREAT: fails with EEXIST if it exists.
pub const DIORITE_O_EXCL: u32 = 4;
/// Makes the file empty.
pub const DIORITE_O_TRUNC: u32 = 8;
/// A write is durable when it is acknowledged, with what is needed to read it back.
pub const DIORITE_O_DSYNC: u32 = 16;
/// As DIORITE_O_DSYNC, and the inode's times are durable too.
pub const DIORITE_O_SYNC: u32 = 32;
/// Blocking reads and writes go past the page cache, as requests of queues always do.
pub const DIORITE_O_DIRECT: u32 = 64;
/// Fails with ELOOP if the last name is a symbolic link.
pub const DIORITE_O_NOFOLLOW: u32 = 128;
/// Fails with ENOTDIR for what is no directory. A directory can be opened for reading only, for fsync and attributes.
pub const DIORITE_O_DIRECTORY: u32 = 256;
/// Creates a file without a name near the directory that is named; diorite_linkfile gives it one. It is deleted when it is closed.
pub const DIORITE_O_TMPFILE: u32 = 512;

const OPEN_FLAGS: u32 = 1023;

/// The size of the file stays.
pub const DIORITE_FALLOC_KEEP_SIZE: u32 = 1;
/// The range becomes a hole; needs DIORITE_FALLOC_KEEP_SIZE.
pub const DIORITE_FALLOC_PUNCH_HOLE: u32 = 2;
/// The range is removed, and what lies behind it moves down.
pub const DIORITE_FALLOC_COLLAPSE_RANGE: u32 = 8;
/// The range reads as zeros and stays allocated, as unwritten blocks.
pub const DIORITE_FALLOC_ZERO_RANGE: u32 = 16;
/// A hole is inserted, and what lies behind it moves up.
pub const DIORITE_FALLOC_INSERT_RANGE: u32 = 32;
/// As DIORITE_FALLOC_ZERO_RANGE, with written blocks: later writes are plain overwrites.
pub const DIORITE_FALLOC_WRITE_ZEROES: u32 = 128;

/// The next byte of data.
pub const DIORITE_SEEK_DATA: u32 = 3;
/// The next byte of a hole; the end of the file is one.
pub const DIORITE_SEEK_HOLE: u32 = 4;

pub(crate) struct OpenFile {
    pub(crate) file: File,
    is_direct: bool,
}

static FILES: Table<OpenFile> = Table::new(2, "file");

/// All memory of the process, for direct calls.
static ANYWHERE: LazyLock<Foreign> = LazyLock::new(Foreign::anywhere);

/// Files that are in use by a call.
pub(crate) fn hold(file: FileHandle) -> Result<Held<OpenFile>, Fault> {
    FILES.hold(file)
}

/// Opens a file. @dir is DIORITE_AT_ROOT, and @path a path from the root; or @dir is the inode of a directory and @path a single name in
/// it, which is no symbolic link.
///
/// @flags are DIORITE_O_...; @mode are the permissions of a file that is created. @file gets the handle; it is 0 after an error. Blocks.
///
/// Errors: EBADF, ENOENT, EEXIST, ENOTDIR, EISDIR (a directory for writing), ELOOP, ENAMETOOLONG, EROFS, EPERM, ENOSPC, EINVAL (flags).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_openat(
    volume: VolumeHandle,
    dir: u64,
    path: *const c_char,
    flags: u32,
    mode: u32,
    file: *mut FileHandle,
) -> c_int {
    border(|| {
        let volume = volume::hold(volume)?;
        // SAFETY: the caller's promises.
        let (file, path) = unsafe {
            let file = handle(file, "file")?;
            (file, args::bytes(path, "the path")?)
        };
        check_flags(flags, OPEN_FLAGS, "diorite_openat")?;
        let opened = open(&volume, (dir, path), flags, mode)?;
        if flags & DIORITE_O_TRUNC != 0 && opened.size() > 0 {
            opened.truncate(0)?;
        }
        *file = give(opened, flags)?;
        Ok(0)
    })
}

/// Opens a file by the number of its inode. Of DIORITE_O_... those apply that create nothing. Otherwise as diorite_openat.
///
/// Errors: ESTALE: the inode is not in use; those of diorite_openat.
///
/// @file points to a handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_open_ino(
    volume: VolumeHandle,
    ino: u64,
    flags: u32,
    file: *mut FileHandle,
) -> c_int {
    border(|| {
        let volume = volume::hold(volume)?;
        // SAFETY: the caller's promise.
        let file = unsafe { handle(file, "file") }?;
        let known = DIORITE_O_RDWR | DIORITE_O_DSYNC | DIORITE_O_SYNC | DIORITE_O_DIRECT;
        check_flags(flags, known, "diorite_open_ino")?;
        *file = give(volume.open_ino(args::ino(ino)?, open_flags(flags))?, flags)?;
        Ok(0)
    })
}

fn open_flags(flags: u32) -> OpenFlags {
    let has = |flag| flags & flag != 0;
    OpenFlags::default()
        .write(has(DIORITE_O_RDWR))
        .dsync(has(DIORITE_O_DSYNC))
        .sync(has(DIORITE_O_SYNC))
        .direct(has(DIORITE_O_DIRECT))
}

fn give(file: File, flags: u32) -> Result<FileHandle, Fault> {
    FILES.insert(OpenFile {
        file,
        is_direct: flags & DIORITE_O_DIRECT != 0,
    })
}

/// Permissions: the low 12 bits of a mode.
pub(crate) fn permissions(mode: u32) -> Result<u16, Fault> {
    let mode = u16::try_from(mode).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| Fault::invalid("permissions have 12 bits"))
}

fn open(volume: &Volume, at: (u64, &[u8]), flags: u32, mode: u32) -> Result<File, Fault> {
    let has = |flag| flags & flag != 0;
    let (creates, writes) = (has(DIORITE_O_CREAT), has(DIORITE_O_RDWR));
    if !writes && (creates || has(DIORITE_O_TRUNC) || has(DIORITE_O_TMPFILE)) {
        return Err(Fault::invalid(
            "what is created or made empty is opened with DIORITE_O_RDWR",
        ));
    }
    if has(DIORITE_O_TMPFILE) {
        let dir = args::find(volume, at.0, at.1, true)?;
        let file = volume.temporary_in(dir, permissions(mode)?)?;
        return reopened(volume, file, flags);
    }
    // Somebody may create or remove the name between the two steps.
    for _ in 0..100 {
        if creates {
            let made = volume.create(args::at(at.0, at.1)?, permissions(mode)?);
            match made {
                Ok(file) => return reopened(volume, file, flags),
                Err(Error::Exists { .. }) if !has(DIORITE_O_EXCL) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match existing(volume, at, flags) {
            Err(fault) if fault.errno == libc::ENOENT && creates => {}
            opened => return opened,
        }
    }
    Err(Fault::new(
        libc::EBUSY,
        "the name is created and removed all the time",
    ))
}

/// A file as it was asked for: what creates files opens them without other flags.
fn reopened(volume: &Volume, file: File, flags: u32) -> Result<File, Fault> {
    let asked = open_flags(flags);
    match asked == OpenFlags::writable() {
        true => Ok(file),
        // The file is held open meanwhile, so its number stays its own.
        false if flags & DIORITE_O_TMPFILE == 0 => Ok(volume.open_ino(file.ino(), asked)?),
        false => {
            volume.know(file.ino())?;
            let opened = volume.open_ino(file.ino(), asked);
            volume.forget(file.ino(), 1);
            Ok(opened?)
        }
    }
}

fn existing(volume: &Volume, (dir, path): (u64, &[u8]), flags: u32) -> Result<File, Fault> {
    let follow = flags & DIORITE_O_NOFOLLOW == 0;
    let ino = args::find(volume, dir, path, follow)?;
    let file = volume.open_ino(ino, open_flags(flags))?;
    let kind = file.metadata().file_type;
    let shown = || String::from_utf8_lossy(path).into_owned();
    if kind == Some(diorite::FileType::Symlink) {
        return Err(Error::SymlinkLoop { path: shown() }.into());
    }
    if flags & DIORITE_O_DIRECTORY != 0 && kind != Some(diorite::FileType::Directory) {
        return Err(Error::NotADirectory { path: shown() }.into());
    }
    Ok(file)
}

/// Closes a file. The handle is invalid afterwards. A queue that has the file attached keeps it open. What was written is durable only
/// after diorite_fsync: closing tells of no failure. Does not wait for write-back.
///
/// Errors: EBADF.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_close(file: FileHandle) -> c_int {
    border(|| {
        drop(FILES.close(file)?);
        Ok(0)
    })
}

/// The number of a file's inode, or a negative error number: EBADF. Does not block.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_file_ino(file: FileHandle) -> i64 {
    border(|| Ok(i64::from(hold(file)?.file.ino().get())))
}

/// The size of a file in bytes, with what is written and not durable yet; or a negative error number: EBADF. Does not block.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_file_size(file: FileHandle) -> i64 {
    border(|| Ok(bytes(hold(file)?.file.size())))
}

/// A size or position, which ext4 bounds below 2^63.
pub(crate) fn bytes(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The caller's memory as a buffer of a direct call.
///
/// # Safety
/// `start` is NULL, or `len` bytes there are valid, and nobody else touches them, until the buffer is dropped.
unsafe fn direct(start: *const u8, len: usize) -> Result<Buf, Fault> {
    let start = NonNull::new(start.cast_mut()).ok_or_else(|| null("the buffer"))?;
    // SAFETY: the caller's promise.
    let buf = unsafe { ANYWHERE.buf(start, len) };
    buf.filter(|_| len <= MAX_REQUEST)
        .ok_or_else(|| Fault::invalid("a direct call has at most 1 GiB"))
}

/// Parts of the caller's memory as a buffer.
///
/// # Safety
/// As of [`direct`], for each part.
pub(crate) unsafe fn gather(from: &Foreign, parts: &[iovec]) -> Result<Buf, Fault> {
    let total = parts
        .iter()
        .try_fold(0_usize, |sum, part| sum.checked_add(part.iov_len));
    if total.is_none_or(|total| total > MAX_REQUEST) {
        return Err(Fault::invalid("a direct call has at most 1 GiB"));
    }
    let parts = parts.iter().filter(|part| part.iov_len > 0).map(|part| {
        let start = NonNull::new(part.iov_base.cast()).ok_or_else(|| null("a buffer"))?;
        // SAFETY: the caller's promise.
        let buf = unsafe { from.buf(start, part.iov_len) };
        buf.ok_or_else(|| Fault::new(libc::EFAULT, "a buffer is not in the registered region"))
    });
    Ok(Buf::from_parts(parts.collect::<Result<_, Fault>>()?))
}

/// The caller's parts of memory.
///
/// # Safety
/// `iov` is NULL or points to `count` parts.
pub(crate) unsafe fn vector<'a>(iov: *const iovec, count: c_int) -> Result<&'a [iovec], Fault> {
    let count = usize::try_from(count).ok().filter(|count| *count <= 1024);
    let count = count.ok_or_else(|| Fault::invalid("a vector has 0 to 1,024 parts"))?;
    match iov.is_null() {
        _ if count == 0 => Ok(&[]),
        true => Err(null("the vector")),
        // SAFETY: the caller's promise.
        false => Ok(unsafe { std::slice::from_raw_parts(iov, count) }),
    }
}

/// Reads @size bytes at @offset; fewer only at the end of the file. Returns their number.
///
/// With DIORITE_O_DIRECT offset and size are multiples of `direct_align` of diorite_volume_stat, the buffer's address one of
/// `memory_align`, and the size is at most 1 GiB. Blocks.
///
/// Errors: EBADF, EFAULT, EINVAL (not aligned), EUCLEAN, ESHUTDOWN, EIO and others of the device.
///
/// @size bytes at @buffer can be written, and nobody touches them meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_pread(
    file: FileHandle,
    buffer: *mut c_void,
    size: usize,
    offset: u64,
) -> i64 {
    border(|| {
        let open = hold(file)?;
        // SAFETY: the caller's promise.
        let done = unsafe {
            match open.is_direct && size > 0 {
                true => open.file.read_buf(offset, direct(buffer.cast(), size)?).1?,
                false => open
                    .file
                    .read_bytes(offset, memory_mut(buffer.cast(), size)?)?,
            }
        };
        Ok(done as i64)
    })
}

/// Writes @size bytes at @offset, which may be behind the end. Returns how many were written: fewer only after an error behind them,
/// which a further call reports; a direct call writes all or fails. Alignment as for diorite_pread. Blocks; with DIORITE_O_DSYNC until it
/// is durable.
///
/// Errors: those of diorite_pread; ENOSPC, EROFS, EFBIG, EPERM.
///
/// @size bytes at @buffer can be read, and nobody changes them meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_pwrite(
    file: FileHandle,
    buffer: *const c_void,
    size: usize,
    offset: u64,
) -> i64 {
    border(|| {
        let open = hold(file)?;
        // SAFETY: the caller's promise.
        let done = unsafe {
            match open.is_direct && size > 0 {
                true => {
                    open.file
                        .write_buf(offset, direct(buffer.cast(), size)?)
                        .1?
                }
                false => open
                    .file
                    .write_bytes(offset, memory(buffer.cast(), size)?)?,
            }
        };
        Ok(done as i64)
    })
}

/// As diorite_pread, into several buffers; with DIORITE_O_DIRECT they are aligned as a whole.
///
/// @iov has @count parts, at most 1,024, each as of diorite_pread; no two of them overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_preadv(
    file: FileHandle,
    iov: *const iovec,
    count: c_int,
    offset: u64,
) -> i64 {
    border(|| {
        let open = hold(file)?;
        // SAFETY: the caller's promises.
        let done = unsafe {
            let parts = vector(iov, count)?;
            if open.is_direct {
                open.file.read_buf(offset, gather(&ANYWHERE, parts)?).1?
            } else {
                let slices = parts.iter().map(|part| {
                    let bytes = memory_mut(part.iov_base.cast(), part.iov_len)?;
                    Ok(IoSliceMut::new(bytes))
                });
                let mut slices = slices.collect::<Result<Vec<_>, Fault>>()?;
                open.file.read_vectored_at(&mut slices, offset)?
            }
        };
        Ok(done as i64)
    })
}

/// As diorite_pwrite, from several buffers; with DIORITE_O_DIRECT they are aligned as a whole.
///
/// @iov has @count parts, at most 1,024, each as of diorite_pwrite.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_pwritev(
    file: FileHandle,
    iov: *const iovec,
    count: c_int,
    offset: u64,
) -> i64 {
    border(|| {
        let open = hold(file)?;
        // SAFETY: the caller's promises.
        let done = unsafe {
            let parts = vector(iov, count)?;
            if open.is_direct {
                open.file.write_buf(offset, gather(&ANYWHERE, parts)?).1?
            } else {
                let slices = parts
                    .iter()
                    .map(|part| Ok(IoSlice::new(memory(part.iov_base.cast(), part.iov_len)?)));
                let slices = slices.collect::<Result<Vec<_>, Fault>>()?;
                open.file.write_vectored_at(&slices, offset)?
            }
        };
        Ok(done as i64)
    })
}

/// Writes @size bytes at the end of the file, behind all earlier appends. @offset gets where; it may be NULL. Returns @size. Otherwise as
/// diorite_pwrite.
///
/// As of diorite_pwrite; @offset is NULL or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_append(
    file: FileHandle,
    buffer: *const c_void,
    size: usize,
    offset: *mut u64,
) -> i64 {
    border(|| {
        let open = hold(file)?;
        // SAFETY: the caller's promises.
        unsafe {
            let at = match open.is_direct && size > 0 {
                true => open.file.append_buf(direct(buffer.cast(), size)?).1?,
                false => open.file.append_bytes(memory(buffer.cast(), size)?)?,
            };
            if let Some(offset) = offset.as_mut() {
                *offset = at;
            }
        }
        Ok(size as i64)
    })
}

/// Makes durable what was written to the file, and its attributes; of a directory its names. A new file that must be found after a crash
/// needs both. Blocks.
///
/// Errors: EBADF, EROFS, ESHUTDOWN; those of the device: a failed write-back or flush is reported once by each open file.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_fsync(file: FileHandle) -> c_int {
    border(|| {
        hold(file)?.file.sync()?;
        Ok(0)
    })
}

/// As diorite_fsync, without what is not needed to read the data back, such as times.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_fdatasync(file: FileHandle) -> c_int {
    border(|| {
        hold(file)?.file.sync_data()?;
        Ok(0)
    })
}

/// Makes a file @size bytes long; bytes that are new read as zeros. Blocks.
///
/// Errors: EBADF, EROFS, EPERM, EFBIG, EUCLEAN; those of the device.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_ftruncate(file: FileHandle, size: u64) -> c_int {
    border(|| {
        hold(file)?.file.truncate(size)?;
        Ok(0)
    })
}

/// The engine's word for fallocate's flags.
pub(crate) fn fallocate_mode(mode: u32) -> Result<Fallocate, Fault> {
    let keep_size = mode & DIORITE_FALLOC_KEEP_SIZE != 0;
    Ok(match mode & !DIORITE_FALLOC_KEEP_SIZE {
        0 => Fallocate::Allocate { keep_size },
        DIORITE_FALLOC_PUNCH_HOLE if keep_size => Fallocate::PunchHole,
        DIORITE_FALLOC_ZERO_RANGE => Fallocate::ZeroRange { keep_size },
        DIORITE_FALLOC_WRITE_ZEROES => Fallocate::WriteZeroes { keep_size },
        DIORITE_FALLOC_COLLAPSE_RANGE if !keep_size => Fallocate::CollapseRange,
        DIORITE_FALLOC_INSERT_RANGE if !keep_size => Fallocate::InsertRange,
        _ => return Err(Fault::invalid(format!("{mode:#x} is no mode of fallocate"))),
    })
}

/// Allocates, frees, zeroes or moves @len bytes at @offset; @mode is 0 or DIORITE_FALLOC_..., whose values are those of Linux. Blocks.
///
/// Errors: EBADF, EINVAL (the mode, or a range that it does not allow), EOPNOTSUPP (a file without extents), ENOSPC with nothing changed,
/// EROFS, EPERM, EFBIG; those of the device.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_fallocate(file: FileHandle, mode: u32, offset: u64, len: u64) -> c_int {
    border(|| {
        let mode = fallocate_mode(mode)?;
        hold(file)?.file.fallocate(mode, offset, len)?;
        Ok(0)
    })
}

/// The first byte at or behind @offset that is of data or of a hole (DIORITE_SEEK_...). Blocks while the map is read.
///
/// Errors: EBADF, EINVAL; ENXIO: the offset is behind the end, or no data follows; EUCLEAN; those of the device.
#[unsafe(no_mangle)]
pub extern "C" fn diorite_seek(file: FileHandle, offset: u64, whence: u32) -> i64 {
    border(|| {
        let what = match whence {
            DIORITE_SEEK_DATA => Seek::Data,
            DIORITE_SEEK_HOLE => Seek::Hole,
            _ => {
                return Err(Fault::invalid(
                    "whence is DIORITE_SEEK_DATA or DIORITE_SEEK_HOLE",
                ));
            }
        };
        let found = hold(file)?.file.seek_next(offset, what)?;
        let none = || Fault::new(libc::ENXIO, "there is nothing of it behind the offset");
        Ok(bytes(found.ok_or_else(none)?))
    })
}
