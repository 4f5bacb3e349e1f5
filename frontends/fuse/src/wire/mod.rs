//! The FUSE protocol: numbers, requests, replies.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `input` | bytes from the kernel -> a header and the fields of a body |
//! | `output` | attributes, entries, counts -> bytes for the kernel |
//! | `errno` | errors of the engine -> error numbers |
//!
//! Input: bytes. Output: values, bytes. Invariants: nothing is read beyond the bytes that came; numbers are in the host's byte order.
//! Limits: protocol 7.31 (Linux 5.4) or newer. Source of all numbers and layouts: the kernel's uapi header `linux/fuse.h` (BSD-2-Clause).

pub mod errno;
pub mod input;
pub mod output;

/// The protocol's major version.
pub const MAJOR: u32 = 7;
/// The newest minor version that is understood here.
pub const MINOR: u32 = 42;
/// The oldest: it has the number of pages of a request, and caches of symbolic links.
pub const OLDEST_MINOR: u32 = 31;
/// The number that the kernel gives the root.
pub const ROOT: u64 = 1;

/// The largest write, and read, in bytes.
pub const MOST_DATA: usize = 1 << 20;

macro_rules! numbers {
    ($(#[$doc:meta])* $vis:vis mod $name:ident: $type:ty { $($(#[doc = $what:literal])? $id:ident = $value:expr;)* }) => {
        $(#[$doc])*
        #[allow(missing_docs, reason = "the names are the protocol's")]
        $vis mod $name {
            $($(#[doc = $what])? pub const $id: $type = $value;)*

            /// The name of a number.
            #[must_use]
            pub fn name(number: $type) -> Option<&'static str> {
                let all = [$(($value, stringify!($id))),*];
                let found = all.into_iter().find(|(value, _)| *value == number);
                found.map(|(_, name)| name)
            }
        }
    };
}

numbers! {
    /// Operations.
    pub mod op: u32 {
        LOOKUP = 1; FORGET = 2; GETATTR = 3; SETATTR = 4; READLINK = 5; SYMLINK = 6; MKNOD = 8; MKDIR = 9; UNLINK = 10; RMDIR = 11;
        RENAME = 12; LINK = 13; OPEN = 14; READ = 15; WRITE = 16; STATFS = 17; RELEASE = 18; FSYNC = 20; SETXATTR = 21; GETXATTR = 22;
        LISTXATTR = 23; REMOVEXATTR = 24; FLUSH = 25; INIT = 26; OPENDIR = 27; READDIR = 28; RELEASEDIR = 29; FSYNCDIR = 30; ACCESS = 34;
        CREATE = 35; INTERRUPT = 36; BMAP = 37; DESTROY = 38; IOCTL = 39; BATCH_FORGET = 42; FALLOCATE = 43; READDIRPLUS = 44;
        RENAME2 = 45; LSEEK = 46; COPY_FILE_RANGE = 47; SYNCFS = 50; TMPFILE = 51; STATX = 52;
    }
}

numbers! {
    /// What kernel and server can do, as bits of INIT.
    pub mod can: u64 {
        ASYNC_READ = 1 << 0; EXPORT_SUPPORT = 1 << 4; BIG_WRITES = 1 << 5; DONT_MASK = 1 << 6; HAS_IOCTL_DIR = 1 << 11;
        DO_READDIRPLUS = 1 << 13; READDIRPLUS_AUTO = 1 << 14; ASYNC_DIO = 1 << 15; WRITEBACK_CACHE = 1 << 16; PARALLEL_DIROPS = 1 << 18;
        POSIX_ACL = 1 << 20; MAX_PAGES = 1 << 22; CACHE_SYMLINKS = 1 << 23; NO_OPENDIR_SUPPORT = 1 << 24;
        EXPLICIT_INVAL_DATA = 1 << 25; HANDLE_KILLPRIV_V2 = 1 << 28; SETXATTR_EXT = 1 << 29; INIT_EXT = 1 << 30;
        CREATE_SUPP_GROUP = 1 << 34; DIRECT_IO_ALLOW_MMAP = 1 << 36; OVER_IO_URING = 1 << 41;
    }
}

numbers! {
    /// Which fields of SETATTR count.
    pub mod set: u32 {
        MODE = 1 << 0; UID = 1 << 1; GID = 1 << 2; SIZE = 1 << 3; ATIME = 1 << 4; MTIME = 1 << 5; ATIME_NOW = 1 << 7; MTIME_NOW = 1 << 8;
        KILL_SUIDGID = 1 << 11;
    }
}

numbers! {
    /// How an open file is used, as bits of the reply to OPEN.
    pub mod opened: u32 {
        DIRECT_IO = 1 << 0; KEEP_CACHE = 1 << 1; CACHE_DIR = 1 << 3; PARALLEL_DIRECT_WRITES = 1 << 6;
    }
}

/// WRITE: the kernel's cache writes back what somebody wrote before, perhaps of several files.
pub const WRITE_CACHE: u32 = 1 << 0;
/// READ: past the kernel's cache, straight to its caller, who is known then (FUSE_READ_LOCKOWNER).
pub const READ_DIRECT: u32 = 1 << 1;
/// WRITE: past the kernel's cache, straight from its caller, who is known then (FUSE_WRITE_LOCKOWNER).
pub const WRITE_DIRECT: u32 = 1 << 1;
/// WRITE: set-user-id and set-group-id are to be cleared.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// The notice to forget what is cached of an inode, in the place of the error of a reply.
pub const NOTIFY_INVAL_INODE: i32 = 2;
/// The notice to give all requests again that were taken and not answered, from Linux 6.9 on.
pub const NOTIFY_RESEND: i32 = 7;
/// FSYNC: data only.
pub const FSYNC_DATA: u32 = 1 << 0;
/// GETATTR: the request has an open file.
pub const GETATTR_FH: u32 = 1 << 0;
/// The extension of a request that has groups of the caller.
pub const EXT_GROUPS: u32 = 32;

#[cfg(test)]
mod tests;
