//! What it is: the part of the filling that only the kernel can make.
//! Input: a mounted image. Output: `/kernel` in it: punched holes, unwritten space with written parts in it, space after the end,
//! fragments, deep extent trees, large xattrs, inherited ACLs, directories with gaps, sockets.
//! Invariant: an operation that a format does not support (EOPNOTSUPP on ext2 and ext3) is left out, and nothing else.

use super::recipes::{Fill, Recipe};
use super::tree::bytes;
use crate::error::{Error, Result};
use rustix::fs::{CWD, FallocateFlags, FileType, Mode, Timespec, Timestamps, XattrFlags};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Extents of the file with the deep tree, at most: with 1 KiB and 4 KiB blocks a leaf holds 84 and 340 extents, and the inode 4,
/// so this needs two levels below the inode for both.
const PIECES: u64 = 2000;
/// Bytes that these extents may take.
const PIECES_BYTES: u64 = 8 << 20;
/// Names for an index of three levels with 1 KiB blocks. A leaf holds 3 names of 250 bytes, an index block 126 leaves, the root 122
/// index blocks: 46,000 names if the leaves are full, and half of that as the kernel splits leaves.
const TOWER: usize = 34_000;

/// Fills `/kernel`.
pub(super) fn fill(recipe: &Recipe, root: &Path) -> Result<()> {
    let base = root.join("kernel");
    let all = || -> io::Result<()> {
        fs::create_dir(&base)?;
        let kernel = Kernel {
            base: base.clone(),
            recipe,
        };
        kernel.space()?;
        kernel.extents()?;
        kernel.attrs()?;
        kernel.odds()?;
        if recipe.fill == Fill::Tower {
            kernel.tower()
        } else {
            Ok(())
        }
    };
    all().map_err(|source| Error::Io {
        path: base.clone(),
        source,
    })
}

struct Kernel<'a> {
    base: PathBuf,
    recipe: &'a Recipe,
}

/// Ignores that a format does not support the operation.
fn if_supported(result: rustix::io::Result<()>) -> io::Result<()> {
    match result {
        Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
        other => other.map_err(Into::into),
    }
}

impl Kernel<'_> {
    fn create(&self, name: &str) -> io::Result<File> {
        File::create(self.base.join(name))
    }

    fn fallocate(file: &File, flags: FallocateFlags, offset: u64, length: u64) -> io::Result<()> {
        if_supported(rustix::fs::fallocate(file, flags, offset, length))
    }

    /// Files with mappings in every state.
    fn space(&self) -> io::Result<()> {
        let none = FallocateFlags::empty();
        let keep = FallocateFlags::KEEP_SIZE;
        let unit = u64::from(self.recipe.cluster);

        let file = self.create("unwritten-island")?;
        Self::fallocate(&file, none, 0, 16 * unit)?;
        file.write_all_at(&bytes(21, 5000), 4 * unit + 100)?;

        let file = self.create("past-eof")?;
        file.write_all_at(&bytes(22, 5000), 0)?;
        Self::fallocate(&file, keep, 0, 32 * unit)?;

        let file = self.create("punched")?;
        file.write_all_at(&bytes(23, 20 * unit as usize), 0)?;
        file.sync_all()?;
        Self::fallocate(&file, FallocateFlags::PUNCH_HOLE | keep, 3 * unit, 5 * unit)?;
        Self::fallocate(
            &file,
            FallocateFlags::PUNCH_HOLE | keep,
            10 * unit + 17,
            unit,
        )?;

        let file = self.create("zero-range")?;
        file.write_all_at(&bytes(24, 20 * unit as usize), 0)?;
        file.sync_all()?;
        Self::fallocate(&file, FallocateFlags::ZERO_RANGE, 2 * unit, 9 * unit)?;
        Self::fallocate(&file, FallocateFlags::ZERO_RANGE, 15 * unit + 33, unit)?;

        let file = self.create("collapsed")?;
        file.write_all_at(&bytes(25, 12 * unit as usize), 0)?;
        file.sync_all()?;
        Self::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 2 * unit, 3 * unit)?;

        let file = self.create("far")?;
        file.write_all_at(b"near", 0)?;
        file.write_all_at(&bytes(26, 3000), (4 << 30) + 12_345)
    }

    /// Extent trees of depth two, and two files that grow in turns.
    fn extents(&self) -> io::Result<()> {
        let unit = u64::from(self.recipe.cluster);
        let pieces = PIECES.min(PIECES_BYTES / unit);
        let file = self.create("many-extents")?;
        for n in 0..pieces {
            file.write_all_at(&bytes(n, 512), n * 2 * unit)?;
        }
        file.sync_all()?;

        let pair = [self.create("turn-a")?, self.create("turn-b")?];
        for n in 0..24 {
            for file in &pair {
                file.write_all_at(&bytes(n, unit as usize), n * unit)?;
                file.sync_all()?;
            }
        }
        let file = self.create("mixed")?;
        for n in 0..24 {
            Self::fallocate(&file, FallocateFlags::empty(), n * 4 * unit, 2 * unit)?;
            file.write_all_at(&bytes(n, 700), n * 4 * unit + unit)?;
        }
        Ok(())
    }

    fn attrs(&self) -> io::Result<()> {
        let set = |name: &str, attr: &str, value: &[u8]| -> io::Result<()> {
            let result =
                rustix::fs::lsetxattr(self.base.join(name), attr, value, XattrFlags::empty());
            if_supported(result)
        };
        self.create("xattr")?;
        set("xattr", "user.one", b"1")?;
        set(
            "xattr",
            "user.block",
            &bytes(31, self.recipe.block as usize / 2),
        )?;
        std::os::unix::fs::symlink("xattr", self.base.join("xattr-link"))?;
        set("xattr-link", "trusted.on-a-link", b"link")?;
        if self.recipe.has("ea_inode") {
            self.create("xattr-inode")?;
            set("xattr-inode", "user.sixty-thousand", &bytes(32, 60_000))?;
            set("xattr-inode", "user.thirty-thousand", &bytes(33, 30_000))?;
            set("xattr-inode", "user.small", b"s")?;
        }
        let heir = self.base.join("heir");
        fs::create_dir(&heir)?;
        set(
            "heir",
            "system.posix_acl_default",
            &super::script::acl(0o770),
        )?;
        fs::create_dir(heir.join("dir"))?;
        fs::write(heir.join("file"), b"its ACL came from the directory\n")
    }

    fn odds(&self) -> io::Result<()> {
        let socket = self.base.join("socket");
        rustix::fs::mknodat(
            CWD,
            &socket,
            FileType::Socket,
            Mode::from_raw_mode(0o755),
            0,
        )?;

        let gaps = self.base.join("gaps");
        fs::create_dir(&gaps)?;
        for n in 0..600 {
            fs::write(gaps.join(format!("name-{n:04}")), b"")?;
        }
        for n in (0..600).filter(|n| n % 3 == 0 || (200..260).contains(n)) {
            fs::remove_file(gaps.join(format!("name-{n:04}")))?;
        }
        let file = self.create("nanoseconds")?;
        let times = Timestamps {
            last_access: Timespec {
                tv_sec: 1_000_000_000,
                tv_nsec: 111_111_111,
            },
            last_modification: Timespec {
                tv_sec: 4_000_000_000,
                tv_nsec: 222_222_222,
            },
        };
        rustix::fs::futimens(&file, &times)?;
        Ok(())
    }

    /// Hard links, which need no inodes; a name has 250 bytes, so that a leaf holds three.
    fn tower(&self) -> io::Result<()> {
        let tower = self.base.join("tower");
        fs::create_dir(&tower)?;
        let shared = self.base.join("tower-shared");
        fs::write(&shared, b"one inode, many names\n")?;
        for n in 0..TOWER {
            fs::hard_link(&shared, tower.join(format!("{n:06}{}", "w".repeat(244))))?;
        }
        Ok(())
    }
}
