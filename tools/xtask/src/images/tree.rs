//! What it is: the tree that `mke2fs -d` copies into an image.
//! Input: the recipe and an empty directory. Output: files in it, the same at every run.
//! It has everything that an ordinary user can make on any host. Modes without access for the owner, other owners, devices, xattrs
//! and unusual times are set afterwards through debugfs (`script.rs`).
//! Limit: about 10 MiB of data; no names with newlines, which the output of debugfs cannot separate.

use super::recipes::Recipe;
use crate::error::{Error, Result, at};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

/// Names in `/dirs/large`.
const LARGE_DIR: usize = 3000;
/// Names of 255 bytes in `/dirs/long`; with 1 KiB blocks the index needs a second level.
const LONG_NAMES: usize = 420;
/// Pieces of data in `/sparse/comb`, each an extent of its own.
const COMB: u64 = 600;

/// Makes the tree in `root`.
pub(super) fn make(recipe: &Recipe, root: &Path) -> Result<()> {
    let tree = Tree { root, recipe };
    tree.files()?;
    tree.links()?;
    tree.names()?;
    if recipe.is_rich() {
        tree.sparse()?;
        tree.dirs()?;
    }
    tree.stages()
}

struct Tree<'a> {
    root: &'a Path,
    recipe: &'a Recipe,
}

impl Tree<'_> {
    fn dir(&self, path: &str) -> Result<()> {
        let path = self.root.join(path);
        fs::create_dir_all(&path).map_err(at(&path))
    }

    fn file(&self, path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
        let path = self.root.join(path);
        fs::write(&path, bytes).map_err(at(&path))
    }

    /// A file of `size` bytes in which only `pieces` (offset, length) are data.
    fn holey(&self, path: &str, size: u64, pieces: &[(u64, usize)]) -> Result<()> {
        let path: PathBuf = self.root.join(path);
        let write = || -> io::Result<()> {
            let file = File::create(&path)?;
            file.set_len(size)?;
            for &(offset, length) in pieces {
                file.write_all_at(&bytes(offset ^ size, length), offset)?;
            }
            Ok(())
        };
        write().map_err(at(&path))
    }

    /// A file that is only a hole. With inline_data it gets a first block of data: mke2fs 1.47 would mark the inode as inline with
    /// a size larger than any inode, a state that e2fsck accepts and in which the kernel answers SEEK_HOLE with ENOENT.
    fn hole(&self, path: &str, size: u64) -> Result<()> {
        let first: &[_] = if self.recipe.has("inline_data") {
            &[(0, 4096)]
        } else {
            &[]
        };
        self.holey(path, size, first)
    }

    /// Sizes near the limits of blocks, chunks and inline data.
    fn files(&self) -> Result<()> {
        self.dir("files")?;
        let sizes = [
            0, 1, 59, 60, 61, 150, 160, 511, 512, 1023, 1024, 1025, 2048, 4095, 4096, 4097, 5000,
            12_288, 49_153, 65_535, 65_536, 65_537, 300_000,
        ];
        for size in sizes {
            self.file(format!("files/{size}"), &bytes(size as u64, size))?;
        }
        // More than 12 + 256 blocks of 1 KiB, so that ext2 needs double indirect blocks.
        self.file("files/big", &bytes(7, 2_500_000))?;
        // Zeros, which mke2fs makes a hole; for the first byte see `hole`.
        let mut zeros = [0; 20_000];
        zeros[0] = u8::from(self.recipe.has("inline_data"));
        self.file("files/zeros", &zeros)
    }

    fn sparse(&self) -> Result<()> {
        const FOUR_GIB: u64 = 4 << 30;
        self.dir("sparse")?;
        self.hole("sparse/only-hole", 1 << 20)?;
        self.holey("sparse/head-hole", 200_001, &[(131_072, 5000)])?;
        self.holey("sparse/tail-hole", 300_000, &[(0, 70_000)])?;
        self.holey(
            "sparse/islands",
            900_000,
            &[
                (65_536, 1),
                (262_144, 4096),
                (400_000, 65_536),
                (899_999, 1),
            ],
        )?;
        let teeth: Vec<_> = (0..COMB).map(|n| (n * 8192, 4096)).collect();
        self.holey("sparse/comb", COMB * 8192, &teeth)?;
        self.holey(
            "sparse/beyond-4gib",
            FOUR_GIB + 65_536,
            &[(0, 100), (FOUR_GIB - 100, 4196), (FOUR_GIB + 65_000, 536)],
        )
    }

    fn links(&self) -> Result<()> {
        self.dir("links/elsewhere")?;
        // 59 bytes is the longest target that fits into the inode; 1000 fits into the smallest block.
        for length in [1, 59, 60, 61, 150, 200, 1000] {
            self.link(&"t".repeat(length), &format!("links/sym-{length}"))?;
        }
        self.link("../files/big", "links/to-file")?;
        self.link("../files", "links/to-dir")?;
        self.link("/nowhere/at/all", "links/dangling")?;
        let odd = self.root.join("links/sym-bytes");
        symlink(OsStr::from_bytes(b"\xff\xfe target\t%41"), &odd).map_err(at(&odd))?;
        self.file("links/first", b"three names\n")?;
        for other in ["links/second", "links/elsewhere/third"] {
            let other = self.root.join(other);
            fs::hard_link(self.root.join("links/first"), &other).map_err(at(&other))?;
        }
        Ok(())
    }

    fn link(&self, target: &str, path: &str) -> Result<()> {
        let path = self.root.join(path);
        symlink(target, &path).map_err(at(&path))
    }

    /// Names that are difficult for shells, encodings and length limits.
    fn names(&self) -> Result<()> {
        self.dir("names")?;
        let mut wild = vec![0xffu8, 0xfe, 0x80];
        wild.resize(255, 0xc3);
        let names: [&[u8]; 14] = [
            &[b'n'; 255],
            &wild,
            b"not-utf8-\xff\x80",
            "gr\u{fc}n-\u{1f332}".as_bytes(),
            b"sp ace",
            b"tab\there",
            b"quote\"q'",
            b"back\\slash",
            b"-dash",
            b".hidden",
            b"...",
            b"100%41",
            b"~",
            b"bell\x07\x7f",
        ];
        for name in names {
            self.file(Path::new("names").join(OsStr::from_bytes(name)), name)?;
        }
        Ok(())
    }

    fn dirs(&self) -> Result<()> {
        self.dir("dirs/empty")?;
        self.dir("dirs/large")?;
        self.dir("dirs/long")?;
        self.dir(&format!("dirs/deep{}", "/d".repeat(40)))?;
        self.file(format!("dirs/deep{}/leaf", "/d".repeat(40)), b"bottom\n")?;
        for n in 0..LARGE_DIR {
            self.crowd(
                &format!("dirs/large/name-{n:05}-{:08x}", mix(n as u64) >> 32),
                n,
            )?;
        }
        for n in 0..LONG_NAMES {
            self.crowd(&format!("dirs/long/{n:05}-{}", "l".repeat(249)), n)?;
        }
        Ok(())
    }

    /// Every third name is a file of its own; the others are links to two shared files.
    fn crowd(&self, path: &str, n: usize) -> Result<()> {
        if n.is_multiple_of(3) {
            return self.file(path, b"");
        }
        let shared = self.root.join(format!("dirs/shared-{}", n % 3));
        if !shared.exists() {
            fs::write(&shared, b"shared\n").map_err(at(&shared))?;
        }
        let path = self.root.join(path);
        fs::hard_link(&shared, &path).map_err(at(&path))
    }

    /// Files that the script and the kernel change afterwards.
    fn stages(&self) -> Result<()> {
        for dir in [
            "special",
            "modes",
            "times",
            "owners",
            "attrs",
            "alloc",
            "attrs/dir-acl",
        ] {
            self.dir(dir)?;
        }
        for name in super::script::MODES.iter().map(|(name, _)| *name) {
            self.file(format!("modes/{name}"), name.as_bytes())?;
        }
        for (name, ..) in super::script::TIMES {
            self.file(format!("times/{name}"), name.as_bytes())?;
        }
        for name in [
            "owners/high",
            "owners/nobody",
            "attrs/none",
            "attrs/small",
            "attrs/medium",
            "attrs/large",
        ] {
            self.file(name, name.as_bytes())?;
        }
        for name in [
            "attrs/many",
            "attrs/acl",
            "attrs/caps",
            "attrs/empty-value",
            "attrs/shared-1",
            "attrs/shared-2",
        ] {
            self.file(name, name.as_bytes())?;
        }
        self.file("alloc/unwritten-tail", &bytes(11, 10_000))?;
        self.hole("alloc/unwritten-only", 400_000)?;
        self.holey(
            "alloc/unwritten-holes",
            600_000,
            &[(0, 4096), (131_072, 4096), (589_824, 4096)],
        )?;
        let fifo = self.root.join("special/fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o644);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).map_err(
            |e| Error::Io {
                path: fifo,
                source: e.into(),
            },
        )
    }
}

/// A bijection of `u64` without a visible pattern (the finaliser of splitmix64).
pub(super) fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// `length` bytes that depend only on `seed`.
pub(super) fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let words = (0..length.div_ceil(8) as u64).map(|n| mix(mix(seed) ^ n));
    let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    bytes.truncate(length);
    bytes
}
