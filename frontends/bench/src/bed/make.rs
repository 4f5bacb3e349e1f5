//! Making images: a directory for scratch files, mke2fs, and a big file with random bytes in the image.
//!
//! Input: sizes. Output: image files, formatted devices. Invariant: the big file is written in full, so that every block of
//! it is mapped and none is a hole. Limits: mke2fs does the formatting, and without root the filling.

use super::super::failure::Failure;
use super::super::load::Rng;
use super::super::{signals, tool};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory of this process's own; removed with everything in it when dropped.
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// A new directory under `parent`.
    pub(crate) fn new(parent: &Path) -> Result<Scratch, Failure> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (pid, n) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = parent.join(format!("diorite-bench-{pid}-{n}"));
        fs::create_dir(&path)
            .map_err(|e| Failure::host(format_args!("cannot make {}", path.display()), e))?;
        Ok(Scratch { path })
    }

    /// A new directory in memory, or in the temporary directory where there is no /dev/shm.
    pub(crate) fn in_memory() -> Result<Scratch, Failure> {
        Scratch::new(Path::new("/dev/shm")).or_else(|_| Scratch::new(&std::env::temp_dir()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Best effort: the name of a directory that stays shows which program made it.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// An image to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Image {
    pub(crate) size: u64,
    /// Bytes of the file.
    pub(crate) file: u64,
    pub(crate) shape: Shape,
}

/// The placement of the file's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Wherever mke2fs places them.
    Usual,
    /// Contiguous: no backups of the superblock between them.
    OneRun,
    /// Every other block of the file is a hole, so that no two extents join.
    Holed,
}

impl Image {
    pub(crate) fn with_file(size: u64, file: u64) -> Image {
        Image {
            size,
            file,
            shape: Shape::Usual,
        }
    }
}

/// Makes an image file in the directory, with the file in it, without root.
pub(crate) fn make_image(dir: &Scratch, image: Image) -> Result<PathBuf, Failure> {
    let tree = dir.path().join("tree");
    let path = dir.path().join("image");
    fs::create_dir(&tree).map_err(|e| Failure::host("cannot make a directory", e))?;
    let file = tree.join(super::FILE.trim_start_matches('/'));
    write_random(&file, image.file, image.shape == Shape::Holed)?;
    let made = File::create(&path).and_then(|f| f.set_len(image.size));
    made.map_err(|e| Failure::host(format_args!("cannot make {}", path.display()), e))?;
    format_as(&path, Some(&tree), image.shape, None)?;
    fs::remove_dir_all(&tree).map_err(|e| Failure::host("cannot remove a directory", e))?;
    Ok(path)
}

/// Makes a large sparse image with one small file, with mke2fs's default options.
pub(crate) fn make_sparse_image(dir: &Scratch, size: u64) -> Result<PathBuf, Failure> {
    let (tree, path) = (dir.path().join("tree"), dir.path().join("image"));
    fs::create_dir(&tree).map_err(|e| Failure::host("cannot make a directory", e))?;
    write_random(
        &tree.join(super::FILE.trim_start_matches('/')),
        1 << 20,
        false,
    )?;
    let made = File::create(&path).and_then(|f| f.set_len(size));
    made.map_err(|e| Failure::unavailable(format!("no sparse file of {size} bytes here: {e}")))?;
    let args = [
        "-q".as_ref(),
        "-F".as_ref(),
        "-t".as_ref(),
        "ext4".as_ref(),
        "-d".as_ref(),
    ];
    tool::run(
        "mke2fs",
        args.into_iter().chain([tree.as_os_str(), path.as_os_str()]),
    )?;
    Ok(path)
}

/// Bytes of a block in images made here.
pub(crate) const BLOCK: u64 = 4096;

/// Makes an ext4 on a device or file, with 4 KiB blocks and without lazy initialisation at the first mount. Blocks are not
/// discarded, so the device keeps its memory.
pub(crate) fn format(path: &Path, tree: Option<&Path>) -> Result<(), Failure> {
    format_as(path, tree, Shape::Usual, None)
}

/// Like [`format`], with this number of inodes if it is given.
pub(crate) fn format_with(
    path: &Path,
    tree: Option<&Path>,
    inodes: Option<u64>,
) -> Result<(), Failure> {
    format_as(path, tree, Shape::Usual, inodes)
}

fn format_as(
    path: &Path,
    tree: Option<&Path>,
    shape: Shape,
    inodes: Option<u64>,
) -> Result<(), Failure> {
    let (more, options): (&[&str], _) = match shape {
        Shape::Usual | Shape::Holed => (&[], "nodiscard,lazy_itable_init=0,lazy_journal_init=0"),
        Shape::OneRun => (
            &["-O", "sparse_super2,^resize_inode", "-G", "64"],
            "num_backup_sb=0,packed_meta_blocks=1",
        ),
    };
    let words = ["-q", "-F", "-t", "ext4", "-b", "4096", "-E", options];
    let words = words.iter().chain(more);
    let mut args: Vec<std::ffi::OsString> = words.map(Into::into).collect();
    if let Some(inodes) = inodes {
        args.extend(["-N".into(), inodes.to_string().into()]);
    }
    if let Some(tree) = tree {
        args.extend(["-d".into(), tree.into()]);
    }
    args.push(path.into());
    tool::run("mke2fs", &args).map(drop)
}

/// Writes random bytes to a new file of this length: to all of its blocks, or to every other one.
pub(crate) fn write_random(path: &Path, len: u64, holed: bool) -> Result<(), Failure> {
    let context =
        |e: std::io::Error| Failure::host(format_args!("cannot write {}", path.display()), e);
    let mut file = File::create(path).map_err(context)?;
    let mut rng = Rng::new(len);
    if holed {
        let mut block = vec![0; 4096];
        for pos in (0..len).step_by(8192) {
            rng.fill(&mut block);
            file.write_all_at(&block, pos).map_err(context)?;
        }
        return Ok(());
    }
    let mut chunk = vec![0; 1 << 20];
    let mut left = len;
    while left > 0 {
        signals::check()?;
        rng.fill(&mut chunk);
        let n = chunk.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        file.write_all(&chunk[..n]).map_err(context)?;
        left -= n as u64;
    }
    Ok(())
}

/// Lets the kernel write the file: mounts the device, preallocates the file so that it is contiguous, fills it, unmounts.
pub(crate) fn fill_by_kernel(device: &Path, len: u64) -> Result<(), Failure> {
    let mounted = super::mounted::Mounted::mount(device)?;
    let path = mounted.path().join(super::FILE.trim_start_matches('/'));
    let file = File::create(&path).map_err(|e| Failure::host("cannot make the file", e))?;
    fallocate(&file, FallocateFlags::empty(), 0, len)
        .map_err(|e| Failure::host("cannot allocate the file", e))?;
    drop(file);
    overwrite_random(&path, len)?;
    mounted.unmount()
}

fn overwrite_random(path: &Path, len: u64) -> Result<(), Failure> {
    let context = |e: std::io::Error| Failure::host("cannot fill the file", e);
    let file = File::options().write(true).open(path).map_err(context)?;
    let mut rng = Rng::new(len);
    let mut chunk = vec![0; 1 << 20];
    for pos in (0..len).step_by(chunk.len()) {
        signals::check()?;
        rng.fill(&mut chunk);
        let n = chunk
            .len()
            .min(usize::try_from(len - pos).unwrap_or(usize::MAX));
        file.write_all_at(&chunk[..n], pos).map_err(context)?;
    }
    file.sync_all().map_err(context)
}

/// Makes an image without files, whose free blocks are contiguous, in a sparse file.
pub(crate) fn make_empty(dir: &Scratch, size: u64) -> Result<PathBuf, Failure> {
    let path = dir.path().join("image");
    let made = File::create(&path).and_then(|f| f.set_len(size));
    made.map_err(|e| Failure::host(format_args!("cannot make {}", path.display()), e))?;
    format_as(&path, None, Shape::OneRun, None)?;
    Ok(path)
}

/// Hands every chunk of a file that is not all zeros to `put`.
pub(crate) fn load(
    path: &Path,
    mut put: impl FnMut(u64, &[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let context =
        |e: std::io::Error| Failure::host(format_args!("cannot read {}", path.display()), e);
    let mut file = File::open(path).map_err(context)?;
    let mut chunk = vec![0; 256 << 10];
    let mut pos = 0;
    loop {
        let mut got = 0;
        while got < chunk.len() {
            match file.read(&mut chunk[got..]).map_err(context)? {
                0 => break,
                n => got += n,
            }
        }
        if got == 0 {
            return Ok(());
        }
        if chunk[..got].iter().any(|b| *b != 0) {
            put(pos, &chunk[..got])?;
        }
        pos += got as u64;
    }
}
