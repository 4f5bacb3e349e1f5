//! Attributes of inodes: read and set, and extended ones.
//!
//! Input: inodes by number, open files. Output: their attributes. Invariants: those of the engine. Limits: every call blocks; permissions
//! of callers are not checked.

use crate::args::{self, bytes, check_flags, memory, memory_mut, out, sized};
use crate::directory::type_bits;
use crate::error::{Fault, border};
use crate::file::{self, FileHandle, permissions};
use crate::volume::{self, VolumeHandle};
use diorite::format::Inode;
use diorite::{SetAttr, Timestamp, XattrWhen};
use std::ffi::{c_char, c_int, c_void};

/// A time: seconds since 1970, and nanoseconds from 0 to 999,999,999.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Time {
    pub sec: i64,
    pub nsec: u32,
    /// Zero.
    pub reserved: u32,
}

/// Attributes of an inode.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Stat {
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes that it takes.
    pub blocks: u64,
    /// Type and permissions, as in struct stat.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// Of device nodes.
    pub rdev_major: u32,
    pub rdev_minor: u32,
    /// FS_..._FL of linux/fs.h.
    pub flags: u32,
    /// Tells it from others that had its number.
    pub generation: u32,
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    /// Creation; zeros if the inode has no room for it.
    pub btime: Time,
    /// Zero.
    pub reserved: [u64; 5],
}

/// Of diorite_setattr: what is set.
pub const DIORITE_ATTR_MODE: u32 = 1;
pub const DIORITE_ATTR_UID: u32 = 2;
pub const DIORITE_ATTR_GID: u32 = 4;
pub const DIORITE_ATTR_ATIME: u32 = 8;
pub const DIORITE_ATTR_MTIME: u32 = 16;
/// Both times become the time of the call.
pub const DIORITE_ATTR_NOW: u32 = 32;

/// What diorite_setattr sets. Set @size by DIORITE_INIT.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct SetAttributes {
    /// sizeof(struct diorite_attributes).
    pub size: u32,
    /// DIORITE_ATTR_...
    pub set: u32,
    /// Permissions: 12 bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Zero.
    pub reserved: u32,
    pub atime: Time,
    pub mtime: Time,
}

// SAFETY: repr(C), a u32 first, and zeros are numbers.
unsafe impl args::Grows for SetAttributes {}

/// Of diorite_setxattr: fail with EEXIST if the attribute exists.
pub const DIORITE_XATTR_CREATE: u32 = 1;
/// Of diorite_setxattr: fail with ENODATA if it does not.
pub const DIORITE_XATTR_REPLACE: u32 = 2;

fn stat_of(inode: &Inode, size: u64) -> Stat {
    let time = |time: Timestamp| Time {
        sec: time.secs,
        nsec: time.nanos,
        reserved: 0,
    };
    let rdev = inode.rdev();
    Stat {
        ino: u64::from(inode.ino.get()),
        size,
        blocks: inode.blocks,
        mode: type_bits(inode.file_type) | u32::from(inode.mode & 0o7777),
        nlink: u32::from(inode.links),
        uid: inode.uid,
        gid: inode.gid,
        rdev_major: rdev.map_or(0, |r| r.major),
        rdev_minor: rdev.map_or(0, |r| r.minor),
        flags: inode.flags.bits(),
        generation: inode.generation,
        atime: time(inode.atime),
        mtime: time(inode.mtime),
        ctime: time(inode.ctime),
        btime: inode.crtime.map_or(Time::default(), time),
        reserved: [0; 5],
    }
}

/// Attributes of an inode by its number, with changes that are not durable yet. Blocks while metadata is read.
///
/// Errors: EBADF, EFAULT, EINVAL, ESTALE (not in use), EUCLEAN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_stat(volume: VolumeHandle, ino: u64, stat: *mut Stat) -> c_int {
    border(|| {
        let volume = volume::hold(volume)?;
        // SAFETY: the caller's promise.
        let stat = unsafe { out(stat, "stat") }?;
        let (inode, size) = volume.metadata(args::ino(ino)?)?;
        *stat = stat_of(&inode, size);
        Ok(0)
    })
}

/// Attributes of an open file. Does not block.
///
/// Errors: EBADF, EFAULT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_fstat(file: FileHandle, stat: *mut Stat) -> c_int {
    border(|| {
        let file = file::hold(file)?;
        // SAFETY: the caller's promise.
        let stat = unsafe { out(stat, "stat") }?;
        *stat = stat_of(&file.file.metadata(), file.file.size());
        Ok(0)
    })
}

/// Sets permissions, owner, group and times of an inode in one step. Durable with the next diorite_volume_sync, or fsync of the file.
/// Blocks.
///
/// Errors: EBADF, EFAULT, EINVAL, EROFS, EPERM (its flags forbid it), EUCLEAN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_setattr(
    volume: VolumeHandle,
    ino: u64,
    attributes: *const SetAttributes,
) -> c_int {
    border(|| {
        let volume = volume::hold(volume)?;
        if attributes.is_null() {
            return Err(args::null("attributes"));
        }
        // SAFETY: the caller's promise.
        let from = unsafe { sized(attributes, "diorite_attributes") }?;
        check_flags(from.set, 63, "diorite_attributes.set")?;
        let has = |flag| from.set & flag != 0;
        let time = |time: Time| match time.nsec {
            nanos @ ..=999_999_999 => Ok(Timestamp {
                secs: time.sec,
                nanos,
            }),
            _ => Err(Fault::invalid("a time has at most 999999999 nanoseconds")),
        };
        let now = has(DIORITE_ATTR_NOW).then(|| volume.now());
        let (atime, mtime) = match now {
            Some(now) => (Some(now), Some(now)),
            None => (
                has(DIORITE_ATTR_ATIME)
                    .then(|| time(from.atime))
                    .transpose()?,
                has(DIORITE_ATTR_MTIME)
                    .then(|| time(from.mtime))
                    .transpose()?,
            ),
        };
        let mode = has(DIORITE_ATTR_MODE).then(|| permissions(from.mode));
        let set = SetAttr::default()
            .permissions(mode.transpose()?)
            .uid(has(DIORITE_ATTR_UID).then_some(from.uid))
            .gid(has(DIORITE_ATTR_GID).then_some(from.gid))
            .atime(atime)
            .mtime(mtime)
            .is_now(now.is_some());
        volume.set_attr(args::ino(ino)?, &set)?;
        Ok(0)
    })
}

/// Copies the value of an extended attribute, by its whole name ("user.x"), to @value. Returns its length; with a @size of 0 only that.
/// Blocks.
///
/// Errors: EBADF, EFAULT, ENODATA (no such attribute), ERANGE (@size is too small), ESTALE, EUCLEAN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_getxattr(
    volume: VolumeHandle,
    ino: u64,
    name: *const c_char,
    value: *mut c_void,
    size: usize,
) -> i64 {
    border(|| {
        let volume = volume::hold(volume)?;
        // SAFETY: the caller's promises.
        let (name, place) = unsafe { (bytes(name, "the name")?, memory_mut(value.cast(), size)?) };
        let value = volume.xattr(args::ino(ino)?, name)?;
        whole(&value, place)
    })
}

/// Copies all of it, or only tells how long it is.
fn whole(bytes: &[u8], place: &mut [u8]) -> Result<i64, Fault> {
    if !place.is_empty() {
        let room = place.get_mut(..bytes.len());
        let small = || Fault::new(libc::ERANGE, "the buffer is too small for it");
        room.ok_or_else(small)?.copy_from_slice(bytes);
    }
    Ok(bytes.len() as i64)
}

/// Copies the names of an inode's extended attributes to @names, each with a NUL behind it. Returns the length of all; with a @size of 0
/// only that. Blocks.
///
/// Errors: EBADF, EFAULT, ERANGE (@size is too small), ESTALE, EUCLEAN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_listxattr(
    volume: VolumeHandle,
    ino: u64,
    names: *mut c_char,
    size: usize,
) -> i64 {
    border(|| {
        let volume = volume::hold(volume)?;
        // SAFETY: the caller's promise.
        let place = unsafe { memory_mut(names.cast(), size) }?;
        let mut all = Vec::new();
        for attribute in volume.xattrs(args::ino(ino)?)? {
            all.extend_from_slice(&attribute.name);
            all.push(0);
        }
        whole(&all, place)
    })
}

/// Sets an extended attribute. @flags are 0, DIORITE_XATTR_CREATE or DIORITE_XATTR_REPLACE. Durable as by diorite_setattr. Blocks.
///
/// Errors: EBADF, EFAULT, EINVAL, EEXIST, ENODATA, ENOSPC (the inode has no room), E2BIG, ERANGE (the name), EOPNOTSUPP, EROFS, EPERM,
/// EUCLEAN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_setxattr(
    volume: VolumeHandle,
    ino: u64,
    name: *const c_char,
    value: *const c_void,
    size: usize,
    flags: u32,
) -> c_int {
    border(|| {
        let volume = volume::hold(volume)?;
        // SAFETY: the caller's promises.
        let (name, value) = unsafe { (bytes(name, "the name")?, memory(value.cast(), size)?) };
        let when = match flags {
            0 => XattrWhen::Always,
            DIORITE_XATTR_CREATE => XattrWhen::Missing,
            DIORITE_XATTR_REPLACE => XattrWhen::Present,
            _ => return Err(Fault::invalid("flags are one of DIORITE_XATTR_...")),
        };
        volume.set_xattr_when(args::ino(ino)?, name, value, when)?;
        Ok(0)
    })
}

/// Removes an extended attribute. Durable as by diorite_setattr. Blocks.
///
/// Errors: EBADF, EFAULT, ENODATA, EROFS, EPERM, EUCLEAN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn diorite_removexattr(
    volume: VolumeHandle,
    ino: u64,
    name: *const c_char,
) -> c_int {
    border(|| {
        let volume = volume::hold(volume)?;
        // SAFETY: the caller's promise.
        let name = unsafe { bytes(name, "the name") }?;
        volume.remove_xattr(args::ino(ino)?, name)?;
        Ok(0)
    })
}
