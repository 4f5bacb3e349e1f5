//! What requests do: calls of a volume.
//!
//! | file | takes -> gives |
//! |---|---|
//! | `mod` | a request -> the function for its operation |
//! | `names` | directories and names -> inodes found, made, moved, removed |
//! | `listing` | a directory and a position -> its entries |
//! | `attributes` | an inode -> its attributes, read and set; extended attributes |
//! | `askers` | who asks for a directory's attributes, who changes its names -> whether a reply may be late |
//! | `opened` | an inode -> an open file; a number -> the open file |
//! | `cached` | a change that a reply does not tell -> notices to the kernel; an inode -> what the kernel has collected of it |
//! | `data` | an open file and a range -> bytes read, written, allocated, copied |
//! | `leaving` | a call that found no space -> a short wait until the kernel has forgotten removed files, and the call again |
//! | `reserved` | a caller and a range -> ENOSPC if only root's blocks are left |
//! | `ioctl` | a number and its argument -> flags, labels, discarded space |
//!
//! Input: requests. Output: replies. Invariants: an inode that the kernel was told of is known to the volume until the kernel forgets it;
//! nothing is cached here. Limits: permissions are checked by the kernel (`default_permissions`).

mod askers;
mod attributes;
mod cached;
mod data;
mod ioctl;
mod leaving;
mod listing;
mod names;
mod opened;
mod reserved;

use crate::options::MountOptions;
use crate::transport::{Channel, Incoming};
use crate::wire::input::{Body, HEADER, Header};
use crate::wire::output::{Attr, Put};
use crate::wire::{ROOT, can, errno, op};
use askers::Askers;
pub(crate) use cached::Help;
use cached::Notices;
pub(crate) use data::is_direct_write;
use diorite::{Error, Ino, Volume};
use diorite_block::sync::{LockClass, RwLock};
use opened::OpenFiles;
use rustix::io::Errno;
use rustix::mount::MountFlags;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The label of a mount.
static FUSE_LABEL: LockClass = LockClass::new("fuse-label", 67);

/// What a reply has behind its header.
#[derive(Debug)]
pub(crate) enum Answer {
    /// No reply is sent.
    Nothing,
    /// The bytes that were put out.
    Out,
    /// So many bytes of the request's memory.
    Data(usize),
}

/// A volume, as the kernel's requests see it.
#[derive(Debug)]
pub(crate) struct FileSystem {
    volume: Volume,
    /// The way to the kernel for what it has not asked for.
    kernel: Channel,
    notices: Notices,
    askers: Askers,
    options: MountOptions,
    files: OpenFiles,
    /// What direct I/O below needs multiples of, in bytes.
    logical: u64,
    /// The volume's label, which its superblock in memory has as of the mount.
    label: RwLock<Vec<u8>>,
    /// The volume takes blocks that are reserved for root, as root mounted it: others are kept from them here.
    guards_reserve: bool,
    /// What was settled with the kernel.
    can: AtomicU64,
    /// It was shut down (EXT4_IOC_SHUTDOWN): everything is refused.
    down: AtomicBool,
    /// Changes are refused: it was remounted read-only.
    frozen: AtomicBool,
}

impl FileSystem {
    pub(crate) fn new(volume: Volume, options: MountOptions, kernel: Channel) -> FileSystem {
        // The kernel says by which request rights go.
        volume.leave_rights_to_frontend();
        let logical = u64::from(volume.device().geometry().logical);
        let label = volume.superblock().info().label.clone().into_bytes();
        FileSystem {
            volume,
            kernel,
            notices: Notices::default(),
            askers: Askers::default(),
            options,
            label: RwLock::at_level(&FUSE_LABEL, 0, label),
            files: OpenFiles::default(),
            logical,
            guards_reserve: rustix::process::geteuid().is_root(),
            can: AtomicU64::new(0),
            down: AtomicBool::new(false),
            frozen: AtomicBool::new(false),
        }
    }

    pub(crate) fn name(&self) -> String {
        String::from_utf8_lossy(&self.options.source).into_owned()
    }

    /// Whether a read or a write waits for the device.
    pub(crate) fn waits_for_data(&self) -> bool {
        !self.volume.device().is_memory()
    }

    /// What is wanted of the kernel.
    pub(crate) fn wanted(&self) -> u64 {
        // Not ATOMIC_O_TRUNC: with it the kernel truncates a program that runs before it refuses the open (ETXTBSY).
        let mut all = can::ASYNC_READ
            | can::EXPORT_SUPPORT
            | can::BIG_WRITES
            | can::DONT_MASK
            | can::HAS_IOCTL_DIR
            | can::DO_READDIRPLUS
            | can::READDIRPLUS_AUTO
            | can::ASYNC_DIO
            | can::PARALLEL_DIROPS
            | can::MAX_PAGES
            | can::CACHE_SYMLINKS
            | can::NO_OPENDIR_SUPPORT
            | can::HANDLE_KILLPRIV_V2
            | can::SETXATTR_EXT
            | can::INIT_EXT
            | can::CREATE_SUPP_GROUP
            | can::DIRECT_IO_ALLOW_MMAP;
        if self.options.writeback_cache && !self.options.is_read_only() {
            all |= can::WRITEBACK_CACHE;
        }
        // With this the kernel checks permissions, whatever the mount says.
        if self.options.acl && self.options.checks_permissions() {
            all |= can::POSIX_ACL;
        }
        all
    }

    /// The granularity of the volume's times, in nanoseconds.
    pub(crate) fn granularity(&self) -> u32 {
        /// Inodes of this size have no room for more than seconds.
        const SMALL: u32 = 128;
        match self.volume.superblock().geometry().inode_size() {
            SMALL => 1_000_000_000,
            _ => 1,
        }
    }

    pub(crate) fn settled(&self, can: u64) {
        self.can.store(can, Relaxed);
    }

    fn has(&self, what: u64) -> bool {
        self.can.load(Relaxed) & what != 0
    }

    /// Ends everything: what was written is durable when it returns.
    pub(crate) fn close(&self) -> Result<(), Error> {
        self.files.clear();
        if self.down.load(Relaxed) {
            return Ok(());
        }
        // What was freed just now may be discarded when that is committed. If it cannot be, `close` says so.
        let discards = self.options.discard && !self.options.is_read_only();
        if discards && self.volume.sync().is_ok() {
            // Not every device can; the volume is as good without.
            let _ = self.volume.trim(0..u64::MAX, 0);
        }
        self.volume.clone().close()
    }

    /// The mount is read-only from now on; what was changed is durable, and the image clean, when this returns. Or it is writable again.
    ///
    /// # Errors
    /// Those of the volume; an image that was opened read-only stays so.
    pub(crate) fn set_read_only(&self, read_only: bool) -> Result<(), Error> {
        if self.options.is_read_only() {
            return match read_only {
                true => Ok(()),
                false => Err(Error::ReadOnly("it was opened for reading only".to_owned())),
            };
        }
        self.frozen.store(read_only, Relaxed);
        self.volume.rest_access_times(read_only);
        match read_only {
            true => self.volume.make_clean(),
            false => Ok(()),
        }
    }

    /// May this request, beside those that always may, wait for others, or ask the kernel for what others have to serve?
    pub(crate) fn may_wait(&self, header: &Header, request: &Incoming) -> bool {
        match header.op {
            op::WRITE => self.write_may_wait(request.before()),
            op::LINK | op::RENAME | op::RENAME2 => self.files.any_written(),
            _ => false,
        }
    }

    /// Executes a request.
    pub(crate) fn answer(
        &self,
        header: &Header,
        request: &mut Incoming,
        out: &mut Vec<u8>,
        help: &dyn Help,
    ) -> Result<Answer, Errno> {
        if self.down.load(Relaxed) && !matches!(header.op, op::FORGET | op::BATCH_FORGET) {
            return Err(Errno::IO);
        }
        // The kernel refuses most of them itself; it does not know what an ioctl changes.
        if self.frozen.load(Relaxed) && changes(header.op) {
            return Err(Errno::ROFS);
        }
        match header.op {
            op::READ => self.read(request),
            op::WRITE => self.write(header, request, out, help),
            op::LSEEK => self.lseek(header, request.before(), out, help),
            op::IOCTL => self.ioctl(header, request.whole(), out, help),
            _ => self.other(header, request.whole(), out, help),
        }
    }

    fn other(
        &self,
        header: &Header,
        bytes: &[u8],
        out: &mut Vec<u8>,
        help: &dyn Help,
    ) -> Result<Answer, Errno> {
        let end = bytes.len().saturating_sub(header.extensions).max(HEADER);
        let (bytes, extensions) = bytes.split_at_checked(end).ok_or(Errno::IO)?;
        let body = Body::new(bytes.get(HEADER..).ok_or(Errno::IO)?);
        let caller = Asker { header, extensions };
        match header.op {
            op::FORGET | op::BATCH_FORGET => {
                self.forget(header, body);
                return Ok(Answer::Nothing);
            }
            // The request it is about ends by itself.
            op::INTERRUPT => return Ok(Answer::Nothing),
            op::DESTROY => {}
            op::LOOKUP => self.lookup(header, body, out)?,
            op::CREATE => self.create(&caller, body, out, help)?,
            op::TMPFILE => self.temporary(&caller, body, out, help)?,
            op::MKNOD => self.mknod(&caller, body, out, help)?,
            op::MKDIR => self.mkdir(&caller, body, out, help)?,
            op::SYMLINK => self.symlink(&caller, body, out, help)?,
            op::LINK => self.link(header, body, out, help)?,
            op::UNLINK | op::RMDIR => self.remove(header, body)?,
            op::RENAME | op::RENAME2 => self.rename(&caller, body, help)?,
            op::READDIR | op::READDIRPLUS => self.list(header, body, out)?,
            op::READLINK => out.extend(self.volume.read_link(self.ino(header.node)?).map_err(no)?),
            op::GETATTR => self.getattr(header, out)?,
            op::SETATTR => self.setattr(header, body, out)?,
            op::STATX => self.statx(header, out)?,
            op::STATFS => self.statfs(out, help),
            op::GETXATTR => self.getxattr(header, body, out)?,
            op::LISTXATTR => self.listxattr(header, body, out)?,
            op::SETXATTR => self.setxattr(header, body, help)?,
            op::REMOVEXATTR => self.removexattr(header, body)?,
            op::OPEN => self.open(header, body, out)?,
            op::RELEASE => self.release(body)?,
            op::FSYNC => self.fsync(body)?,
            op::FSYNCDIR => self.sync_dir(self.ino(header.node)?)?,
            op::SYNCFS => self.volume.sync().map_err(no)?,
            op::FALLOCATE => self.fallocate(header, body, help)?,
            op::COPY_FILE_RANGE => self.copy_range(header, body, out, help)?,
            // The kernel does without: files are written back at fsync, locks and permissions are its own.
            _ => return Err(Errno::NOSYS),
        }
        Ok(Answer::Out)
    }

    /// Call for a reply that was not taken: the kernel has not counted the inode that it named.
    pub(crate) fn not_sent(&self, header: &Header, out: &[u8]) {
        let names_one = matches!(
            header.op,
            op::LOOKUP | op::CREATE | op::TMPFILE | op::MKNOD | op::MKDIR | op::SYMLINK | op::LINK
        );
        if names_one {
            self.forget_one(Body::new(out).u64().unwrap_or(0), 1);
        }
        if header.op == op::READDIRPLUS {
            self.forget_listed(out);
        }
        if matches!(header.op, op::OPEN | op::CREATE | op::TMPFILE) {
            self.release_unsent(header.op, out);
        }
    }

    /// May this caller do everything?
    fn is_root(&self, header: &Header) -> bool {
        header.uid == 0 || self.options.fakeroot
    }

    /// The volume's number of a node.
    fn ino(&self, node: u64) -> Result<Ino, Errno> {
        match node {
            ROOT => Ok(Ino::ROOT),
            _ => {
                let ino = u32::try_from(node).map(Ino::new);
                let ino = ino.map_err(|_| Errno::STALE)?;
                self.node(ino).map(|_| ino).map_err(|_| Errno::STALE)
            }
        }
    }

    /// The node of an inode. The volume's own inodes have none: only a damaged directory names one, and number 1 would be taken for the
    /// root.
    fn node(&self, ino: Ino) -> Result<u64, Errno> {
        let first = self.volume.superblock().geometry().first_ino();
        match ino {
            Ino::ROOT => Ok(ROOT),
            _ if ino.get() < first => Err(Errno::IO),
            _ => Ok(u64::from(ino.get())),
        }
    }

    /// The inode, and its size, to be told to this caller.
    fn told(&self, header: &Header, ino: Ino) -> Result<(Arc<diorite_format::Inode>, u64), Error> {
        let found = self.volume.metadata(ino)?;
        if !found.0.is_dir() {
            return Ok(found);
        }
        self.askers.ask(ino.get(), header.pid);
        self.volume.metadata(ino)
    }

    fn attr<'a>(&self, inode: &'a diorite_format::Inode, size: u64) -> Attr<'a> {
        let owner = (
            self.options.uid.unwrap_or(inode.uid),
            self.options.gid.unwrap_or(inode.gid),
        );
        Attr {
            inode,
            size,
            owner,
            block_size: self.volume.superblock().block_size(),
            // What the kernel writes back of a file that is open changes its blocks.
            changes: self.has(can::WRITEBACK_CACHE) && self.files.is_written(inode.ino),
        }
    }

    fn statfs(&self, out: &mut Vec<u8>, help: &dyn Help) {
        self.wait_for_forgotten(help);
        let space = self.volume.space();
        let blocks = match self.options.minixdf {
            true => self.volume.superblock().geometry().blocks_count(),
            false => space.blocks,
        };
        for count in [
            blocks,
            space.free,
            space.available,
            space.inodes,
            space.free_inodes,
        ] {
            out.u64(count);
        }
        out.u32(space.block_size);
        out.u32(space.most_name);
        out.u32(space.block_size);
        out.zeros(28);
    }

    /// Call when names of a directory have changed: makes them durable, if the mount is synchronous, and what others were told of the
    /// directory until now does not count any more.
    fn names_changed(&self, header: &Header, dir: Ino) -> Result<(), Errno> {
        if self.askers.changed(dir.get(), header.pid)
            && let Ok(node) = self.node(dir)
        {
            self.forget_attributes(node);
        }
        let synchronous = MountFlags::SYNCHRONOUS | MountFlags::DIRSYNC;
        match self.options.flags.intersects(synchronous) {
            true => self.sync_changed(dir),
            false => Ok(()),
        }
    }

    /// Makes an inode durable, if the mount is synchronous.
    fn sync_inode(&self, ino: Ino) -> Result<(), Errno> {
        match self.options.flags.contains(MountFlags::SYNCHRONOUS) {
            true => self.sync_changed(ino),
            false => Ok(()),
        }
    }

    /// Makes a change of an inode durable. If that fails the request does, but the change stays, which the kernel does not expect.
    fn sync_changed(&self, ino: Ino) -> Result<(), Errno> {
        self.sync_dir(ino).inspect_err(|_| {
            if let Ok(node) = self.node(ino) {
                self.forget_attributes(node);
            }
        })
    }

    fn sync_dir(&self, dir: Ino) -> Result<(), Errno> {
        let file = self.volume.open_ino(dir, diorite::OpenFlags::default());
        file.and_then(|file| file.sync()).map_err(no)
    }
}

/// Does it change the volume?
fn changes(operation: u32) -> bool {
    matches!(
        operation,
        op::WRITE
            | op::CREATE
            | op::TMPFILE
            | op::MKNOD
            | op::MKDIR
            | op::SYMLINK
            | op::LINK
            | op::UNLINK
            | op::RMDIR
            | op::RENAME
            | op::RENAME2
            | op::SETATTR
            | op::SETXATTR
            | op::REMOVEXATTR
            | op::FALLOCATE
            | op::COPY_FILE_RANGE
    )
}

/// On whose behalf something is made.
struct Asker<'a> {
    header: &'a Header,
    extensions: &'a [u8],
}

fn no(error: Error) -> Errno {
    errno::number(&error)
}
