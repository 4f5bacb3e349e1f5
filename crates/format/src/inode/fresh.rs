//! New inodes.
//! Input: the creator's choices. Output: an [`Inode`], to be changed further and written with [`Inode::write_new`]. Invariant:
//! its map is the empty map of its kind, its extra size is the one that the volume requests. Limit: the creator handles names,
//! further links, attributes and quota; flags are used as given, except the one for an extent tree.
//! Source: the kernel's ext4 documentation, "index nodes" (s_want_extra_isize, i_block by kind of file), "super block".

use crate::csum;
use crate::extent::ExtentNode;
use crate::features::{Incompat, RoCompat};
use crate::layout::inode as at;
use crate::le::{put, put_le32};
use crate::num;
use crate::superblock::Superblock;
use crate::types::{FsBlock, Ino};

use super::{FileType, I_BLOCK_SIZE, Inode, InodeFlags, OLD_SIZE, Rdev, Timestamp};

/// Bytes of the extra fields that this crate knows.
const KNOWN_EXTRA: u16 = 32;
const _: () = assert!(at::SIZE - OLD_SIZE == 32);

/// The choices of an inode's creator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewInode {
    /// Its number.
    pub ino: Ino,
    /// Type and permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Project; 0 = none.
    pub projid: u32,
    /// Attribute bits, inherited or requested.
    pub flags: InodeFlags,
    /// A number that differs from that of the inode's last use.
    pub generation: u32,
    /// Now.
    pub time: Timestamp,
}

impl Inode {
    /// An inode without data: one link (a directory two), an empty map. Regular files and directories get an extent tree if the
    /// volume has that feature and no inline data was requested.
    #[must_use]
    pub fn fresh(sb: &Superblock, new: &NewInode) -> Self {
        let extra = wanted_extra(sb);
        let file_type = FileType::from_mode(new.mode);
        let time = new
            .time
            .as_stored(super::has_extra(extra, at::ATIME_EXTRA, 4));
        let mut inode = Self {
            ino: new.ino,
            mode: new.mode,
            file_type,
            uid: new.uid,
            gid: new.gid,
            size: 0,
            atime: time,
            ctime: time,
            mtime: time,
            crtime: super::has_extra(extra, at::CRTIME, 4).then_some(new.time),
            dtime: 0,
            links: if file_type == Some(FileType::Directory) {
                2
            } else {
                1
            },
            blocks: 0,
            flags: new.flags,
            generation: new.generation,
            version: 0,
            file_acl: FsBlock::NONE,
            projid: new.projid,
            extra_isize: extra,
            i_block: [0; I_BLOCK_SIZE],
            csum_seed: csum::inode_seed(sb.csum_seed(), new.ino, new.generation),
            xattr_area: super::xattr_bounds(num::usize32(sb.geometry().inode_size()), extra),
        };
        let mapped = matches!(file_type, Some(FileType::Regular | FileType::Directory));
        if mapped && !new.flags.has(InodeFlags::INLINE_DATA) {
            inode.begin_map(sb);
        }
        inode
    }

    /// Ends inline data: the inode gets an empty map of the volume's kind. The caller removes the attribute with the rest of
    /// the data.
    pub fn end_inline(&mut self, sb: &Superblock) {
        self.flags = self.flags.without(InodeFlags::INLINE_DATA);
        self.i_block = [0; I_BLOCK_SIZE];
        self.begin_map(sb);
    }

    /// Gives an inode without data the empty map of the volume: an extent tree, or block pointers on volumes without extents.
    pub fn begin_map(&mut self, sb: &Superblock) {
        if sb.features().incompat.has(Incompat::EXTENTS) {
            self.flags = self.flags.with(InodeFlags::EXTENTS);
            // An empty root breaks no rule, so this writes.
            let _ = ExtentNode::empty_root().write_root(&mut self.i_block);
        }
    }

    /// Stores the target of a symbolic link in the inode. Returns false, with nothing changed, if it does not fit: at most 59
    /// bytes.
    #[must_use]
    pub fn set_fast_symlink(&mut self, target: &[u8]) -> bool {
        if target.len() >= I_BLOCK_SIZE || target.is_empty() {
            return false;
        }
        self.i_block = [0; I_BLOCK_SIZE];
        put(&mut self.i_block, 0, target);
        self.size = num::wide(target.len());
        true
    }
}

impl Rdev {
    /// `i_block` of a device: the old form if both numbers have 8 bits, otherwise the new one. Bits above 12 (major) and 20
    /// (minor) are cut off.
    #[must_use]
    pub fn encode(self) -> [u8; I_BLOCK_SIZE] {
        let mut i_block = [0; I_BLOCK_SIZE];
        let (major, minor) = (self.major & 0xFFF, self.minor & 0xF_FFFF);
        // Device 0:0 in the old form is identical to the new form.
        if major < 256 && minor < 256 {
            put_le32(&mut i_block, 0, major << 8 | minor);
        } else {
            put_le32(
                &mut i_block,
                4,
                minor & 0xFF | major << 8 | (minor & 0xF_FF00) << 12,
            );
        }
        i_block
    }
}

/// Bytes for attributes in a fresh inode.
pub(crate) fn fresh_xattr_len(sb: &Superblock) -> usize {
    let size = num::usize32(sb.geometry().inode_size());
    super::xattr_bounds(size, wanted_extra(sb)).map_or(0, |(start, end)| end.saturating_sub(start))
}

/// The extra size that the volume requests, at least the fields known here, as far as the inode has room.
fn wanted_extra(sb: &Superblock) -> u16 {
    let room = num::usize32(sb.geometry().inode_size()).saturating_sub(OLD_SIZE);
    let room = u16::try_from(room).unwrap_or(u16::MAX) & !3;
    let info = sb.info();
    let asked = if sb.features().ro_compat.has(RoCompat::EXTRA_ISIZE) {
        info.want_extra_isize.max(info.min_extra_isize)
    } else {
        0
    };
    let wanted = asked & !3;
    // A requested size that exceeds the room was never validated.
    let wanted = if wanted > room { 0 } else { wanted };
    wanted.max(KNOWN_EXTRA).min(room)
}
