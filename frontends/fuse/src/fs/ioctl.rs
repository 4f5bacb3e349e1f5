//! Ioctls of ext4's users.
//!
//! Input: a number and its argument. Output: the argument as it is afterwards. Invariants: only operations whose argument has the size that
//! its number says; what is put out has the size that ext4 puts out, which for GETFLAGS and GETVERSION is less than their numbers say:
//! their callers have no more room. Limits: an operation whose number says that it only reads gets no argument from the kernel, so a
//! shutdown has no flags.
//! Source of the numbers: the kernel's uapi headers `linux/fs.h` and the ext4 documentation, and strace of chattr, fstrim, e2label, xfs_io.

use super::cached::ALL;
use super::{Answer, FileSystem, Help, no};
use crate::wire::can;
use crate::wire::input::{Body, HEADER, Header};
use crate::wire::output::Put;
use diorite::{Error, Ino, InodeFlags, OpenFlags};
use rustix::io::Errno;
use std::sync::atomic::Ordering::Relaxed;

const GETFLAGS: u32 = 0x8008_6601;
const SETFLAGS: u32 = 0x4008_6602;
const GETVERSION: u32 = 0x8008_7601;
const SETVERSION: u32 = 0x4008_7602;
/// The same, by numbers of ext4's own.
const EXT4_GETVERSION: u32 = 0x8008_6603;
const EXT4_SETVERSION: u32 = 0x4008_6604;
const ALLOC_DA_BLKS: u32 = 0x660C;
const PRECACHE_EXTENTS: u32 = 0x6612;
const CLEAR_ES_CACHE: u32 = 0x6628;
const CHECKPOINT: u32 = 0x4004_662B;
const FSGETXATTR: u32 = 0x801C_581F;
const FSSETXATTR: u32 = 0x401C_5820;
const FITRIM: u32 = 0xC018_5879;
const GETFSLABEL: u32 = 0x8100_9431;
const SETFSLABEL: u32 = 0x4100_9432;
const SHUTDOWN: u32 = 0x8004_587D;

/// Bytes of a label, filled up with zeros.
const LABEL: usize = 256;

/// The flags of FSGETXATTR, and the inode's flags that they stand for.
const XFLAGS: [(u32, InodeFlags); 7] = [
    (0x8, InodeFlags::IMMUTABLE),
    (0x10, InodeFlags::APPEND),
    (0x20, InodeFlags::SYNC),
    (0x40, InodeFlags::NOATIME),
    (0x80, InodeFlags::NODUMP),
    (0x200, InodeFlags::PROJINHERIT),
    (0x8000, InodeFlags::DAX),
];

/// Flags of FSSETXATTR that other file systems have and ext4 passes over.
const XFLAGS_OF_OTHERS: u32 = 0x1 | 0x100 | 0x400 | 0x2000 | 0x4000;

fn changes_inode(number: u32) -> bool {
    matches!(number, SETFLAGS | SETVERSION | EXT4_SETVERSION | FSSETXATTR)
}

impl FileSystem {
    pub(super) fn ioctl(
        &self,
        header: &Header,
        bytes: &[u8],
        out: &mut Vec<u8>,
        help: &dyn Help,
    ) -> Result<Answer, Errno> {
        let mut body = Body::new(bytes.get(HEADER..).ok_or(Errno::IO)?);
        let (_handle, _flags, number, _arg) = (body.u64()?, body.u32()?, body.u32()?, body.u64()?);
        let (in_len, out_len) = (body.u32()? as usize, body.u32()? as usize);
        let argument = body.bytes(in_len)?;
        let ino = self.ino(header.node)?;
        // fuse_ioctl_out: the result, and no further pieces of memory.
        out.zeros(16);
        let before = out.len();
        let done = self.execute(header, ino, (number, argument), out, help);
        if changes_inode(number) {
            // The kernel does not know that this changes ctime. The change may be there though it is not durable.
            self.forget_attributes(header.node);
        }
        done?;
        match out.len() - before > out_len {
            true => Err(Errno::INVAL),
            false => Ok(Answer::Out),
        }
    }

    /// The volume begins at 0, a run is a block at least, and none is longer than a group.
    fn check_trim(&self, start: u64, len: u64, least: u64) -> Result<(), Errno> {
        let geometry = self.volume.superblock().geometry();
        let block = u64::from(geometry.block_size());
        let is_possible = start / block < geometry.blocks_count()
            && len >= block
            && least / block <= u64::from(geometry.blocks_per_group());
        match is_possible {
            true => Ok(()),
            false => Err(Errno::INVAL),
        }
    }

    fn execute(
        &self,
        header: &Header,
        ino: Ino,
        (number, argument): (u32, &[u8]),
        out: &mut Vec<u8>,
        help: &dyn Help,
    ) -> Result<(), Errno> {
        let mut argument = Body::new(argument);
        let inode = || self.volume.metadata(ino).map_err(no);
        let changes = changes_inode(number) || matches!(number, FITRIM | SETFSLABEL | CHECKPOINT);
        if changes && self.frozen.load(Relaxed) {
            return Err(Errno::ROFS);
        }
        match number {
            GETFLAGS => out.u32(inode()?.0.flags.bits()),
            SETFLAGS => {
                let flags = InodeFlags::from_bits(argument.u32()?);
                self.set_flags(header, ino, flags, help)?;
            }
            GETVERSION | EXT4_GETVERSION => out.u32(inode()?.0.generation),
            SETVERSION | EXT4_SETVERSION => {
                let generation = argument.u32()?;
                self.check_owner(header, ino)?;
                // As ext4 says it: such a volume does not have the call.
                let set = self.volume.set_generation(ino, generation);
                set.map_err(|error| match error {
                    Error::NotSupported(_) => Errno::NOTTY,
                    error => no(error),
                })?;
                self.sync_inode(ino)?;
            }
            FSGETXATTR => {
                let inode = inode()?.0;
                let set = XFLAGS.iter().filter(|(_, flag)| inode.flags.has(*flag));
                out.u32(set.map(|(xflag, _)| xflag).sum());
                // No extent size, no count of extents.
                out.zeros(8);
                out.u32(inode.projid);
                out.zeros(12);
            }
            // What is known of a file's map is a matter of this server.
            PRECACHE_EXTENTS => drop(inode()?),
            CLEAR_ES_CACHE => self.check_access(header, ino)?,
            ALLOC_DA_BLKS => {
                self.check_access(header, ino)?;
                if inode()?.0.is_file() {
                    let file = self.volume.open_ino(ino, OpenFlags::default());
                    file.and_then(|file| file.write_back()).map_err(no)?;
                }
            }
            CHECKPOINT => self.checkpoint(header, argument.u32()?)?,
            FSSETXATTR => self.set_xflags(header, ino, argument, help)?,
            FITRIM => {
                self.check_root(header)?;
                let (start, len, least) = (argument.u64()?, argument.u64()?, argument.u64()?);
                self.check_trim(start, len, least)?;
                let range = start..start.saturating_add(len);
                let done = self.volume.trim(range, least).map_err(no)?;
                out.u64(start);
                out.u64(done);
                out.u64(least);
            }
            GETFSLABEL => {
                let start = out.len();
                out.extend_from_slice(&self.label.read());
                out.resize(start + LABEL, 0);
            }
            SETFSLABEL => {
                self.check_root(header)?;
                self.set_label(argument.text().map_err(|_| Errno::INVAL)?)?;
            }
            SHUTDOWN => {
                self.check_root(header)?;
                self.down.store(true, Relaxed);
            }
            _ => return Err(Errno::NOTTY),
        }
        Ok(())
    }

    /// Writes home what the journal holds. Its blocks are neither discarded nor overwritten.
    fn checkpoint(&self, header: &Header, flags: u32) -> Result<(), Errno> {
        const DISCARD: u32 = 1;
        const ZERO: u32 = 2;
        const DRY_RUN: u32 = 4;
        self.check_root(header)?;
        if flags & !(DISCARD | ZERO | DRY_RUN) != 0 || flags & (DISCARD | ZERO) == DISCARD | ZERO {
            return Err(Errno::INVAL);
        }
        match flags {
            0 => self.volume.make_clean().map_err(no),
            DISCARD | ZERO => Err(Errno::OPNOTSUPP),
            _ => Ok(()),
        }
    }

    fn set_label(&self, text: &[u8]) -> Result<(), Errno> {
        self.volume.set_label(text).map_err(no)?;
        *self.label.write() = text.to_vec();
        Ok(())
    }

    fn check_root(&self, header: &Header) -> Result<(), Errno> {
        match self.is_root(header) {
            true => Ok(()),
            false => Err(Errno::PERM),
        }
    }

    /// The kernel checks only the ioctls that it knows; these checks are for all of them, by whatever number they come.
    fn check_owner(&self, header: &Header, ino: Ino) -> Result<(), Errno> {
        match self.volume.metadata(ino).map_err(no)?.0.uid == header.uid {
            true => Ok(()),
            false => self.check_root(header),
        }
    }

    /// As [`FileSystem::check_owner`], with the error that ext4 has for what changes no attribute.
    fn check_access(&self, header: &Header, ino: Ino) -> Result<(), Errno> {
        self.check_owner(header, ino).map_err(|error| match error {
            Errno::PERM => Errno::ACCESS,
            error => error,
        })
    }

    fn set_flags(
        &self,
        header: &Header,
        ino: Ino,
        flags: InodeFlags,
        help: &dyn Help,
    ) -> Result<(), Errno> {
        self.check_owner(header, ino)?;
        let before = self.volume.metadata(ino).map_err(no)?.0.flags;
        let privileged = [InodeFlags::IMMUTABLE, InodeFlags::APPEND];
        let changes = |flag: &InodeFlags| before.has(*flag) != flags.has(*flag);
        // What goes through the journal takes room there from everybody: ext4 asks for CAP_SYS_RESOURCE.
        if changes(&InodeFlags::JOURNAL_DATA) {
            self.check_root(header)?;
        }
        if privileged.iter().any(changes) {
            self.check_root(header)?;
            // What the kernel has collected, and what mappings have changed, would be refused when it is written back.
            if self.files.is_written(ino) {
                let collects = self.has(can::WRITEBACK_CACHE);
                if collects || !help.is_there(true) || !self.hand_over(header.node, ALL) {
                    return Err(Errno::BUSY);
                }
            }
        }
        self.volume.set_flags(ino, flags).map_err(no)?;
        self.sync_inode(ino)
    }

    fn set_xflags(
        &self,
        header: &Header,
        ino: Ino,
        mut argument: Body<'_>,
        help: &dyn Help,
    ) -> Result<(), Errno> {
        let wanted = argument.u32()?;
        argument.skip(8)?;
        let project = argument.u32()?;
        let inode = self.volume.metadata(ino).map_err(no)?.0;
        if project != inode.projid {
            return Err(Errno::OPNOTSUPP);
        }
        let known: u32 = XFLAGS.iter().map(|(xflag, _)| xflag).sum();
        if wanted & !(known | XFLAGS_OF_OTHERS) != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let flags = XFLAGS
            .iter()
            .fold(inode.flags, |flags, (xflag, flag)| match wanted & xflag {
                0 => flags.without(*flag),
                _ => flags.with(*flag),
            });
        self.set_flags(header, ino, flags, help)
    }
}
