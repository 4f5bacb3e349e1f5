//! ext4 images from directories, archives, container layers and other images.
//!
//! | module | takes -> gives |
//! |---|---|
//! | `source` | a word -> where files come from, and how they are read |
//! | `assembly` | entries with paths, in order -> one tree, with everybody's whiteouts and owners applied |
//! | `walk`, `archive`, `oci`, `volume`, `manifest` | a source -> entries |
//! | `host` | paths below a directory of the host -> open files |
//! | `origin` | a file of the tree -> its bytes |
//! | `packing` | an archive, packed or not -> what it holds |
//! | `frames` | zstd -> its contents |
//! | `members` | gzip, bzip2 -> their contents |
//! | `zip` | a zip archive of one file -> the file |
//! | `tail` | what is behind the end of a stream -> a warning |
//! | `android` | an image -> an Android sparse image, and back |
//! | `tape` | a tar archive -> its entries |
//! | `fields`, `records` | an entry -> its numbers, and what its records say |
//! | `base64` | text -> bytes |
//! | `labels` | a path -> its SELinux label |
//! | `acl` | access control lists as text -> their attribute |
//! | `warnings` | what is odd and no error -> sentences |
//! | `spool` | bytes that come once -> a temporary file |
//! | `editor` | a volume, and sources or single changes -> the volume with them |
//! | `export` | files of a volume -> an archive |
//!
//! What a file system is made of is the engine's matter ([`diorite::mkfs`]). Nothing here runs with more rights than its caller has, and no
//! path of a source leads out of the tree.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod acl;
mod android;
mod archive;
mod assembly;
mod base64;
mod editor;
mod error;
pub mod export;
mod fields;
mod frames;
mod host;
mod labels;
mod manifest;
mod members;
mod oci;
mod origin;
mod packing;
mod records;
mod source;
mod spool;
mod tail;
mod tape;
mod volume;
mod walk;
mod warnings;
mod zip;

/// Compiles the example in the README as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use acl::id_of;
pub use android::{SparsePieces, SparseReader, SparseStep, SparseWriter};
pub use assembly::{Exclude, OwnerMap, Rules};
pub use editor::Editor;
pub use error::Error;
pub use frames::ZstdFrames;
pub use members::Members;
pub use packing::Packing;
pub use source::Source;
pub use spool::are_zeros;
pub use warnings::Warnings;

use assembly::Assembly;
use diorite::Device;
use diorite::mkfs::{
    Headroom, Made, MkfsOptions, Node, NodeId, NodeKind, Progress, mkfs_filled, mkfs_sized,
};
use error::Place;
use origin::Origin;
use spool::Spool;
use std::sync::Arc;

/// How large an image is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// So many bytes.
    Bytes(u64),
    /// As small as possible, with so many bytes available beside the reserve of root, and inodes for them.
    Auto {
        /// Bytes.
        headroom: u64,
    },
    /// As small as possible, with so much of the space that the files take available.
    AutoPercent {
        /// Of the space that the files take.
        percent: u32,
    },
}

/// Collects files for an image, from sources and from memory; a [`Plan`] has its size, and writes it. Paths are text or bytes.
///
/// ```
/// use diorite::device::{Device, MemDevice};
/// use diorite::mkfs::MkfsOptions;
/// use diorite::{OpenOptions, Volume};
/// use diorite_image::{ImageBuilder, Size};
/// use std::sync::Arc;
///
/// # fn main() -> Result<(), diorite_image::Error> {
/// let mut builder = ImageBuilder::new(MkfsOptions::new([1; 16], [2; 16], 1_700_000_000));
/// builder.add_file("/etc/hostname", 0o644, "example\n")?;
/// builder.set_owner(1000, 1000); // of what is added from here on
/// builder.add_dir("/home/user", 0o700)?;
/// builder.add_file(b"/home/user/\xff", 0o600, b"a name that is not UTF-8")?;
/// let plan = builder.plan(Size::Auto { headroom: 1 << 20 })?;
/// let device: Arc<dyn Device> = Arc::new(MemDevice::new(plan.bytes()));
/// plan.write(&device, &|_bytes| true)?;
/// # let volume = Volume::open_device(device, &OpenOptions::default())?;
/// # assert_eq!(volume.read("/etc/hostname")?, b"example\n");
/// # let (inode, size) = volume.metadata(b"/home/user/\xff")?;
/// # assert_eq!((inode.uid, inode.mode & 0o7777, size), (1000, 0o600, 24));
/// # Ok(())
/// # }
/// ```
#[must_use = "it writes nothing: see ImageBuilder::plan"]
#[derive(Debug)]
pub struct ImageBuilder {
    options: MkfsOptions,
    assembly: Assembly,
    /// Files that were added as bytes.
    memory: Option<Spool>,
    /// The user and the group of files that are added one by one.
    owner: (u32, u32),
}

/// An image that is planned: all that is left is to write it.
#[must_use = "it writes nothing by itself: see Plan::write"]
#[derive(Debug)]
pub struct Plan {
    options: MkfsOptions,
    assembly: Assembly,
}

impl ImageBuilder {
    /// An empty image with these options.
    pub fn new(options: MkfsOptions) -> ImageBuilder {
        ImageBuilder {
            assembly: Assembly::new(&options),
            options,
            memory: None,
            owner: (0, 0),
        }
    }

    /// Rules for all sources that are added from here on.
    pub fn set_rules(&mut self, rules: Rules) {
        self.assembly.rules = rules;
    }

    /// Adds the files of a source. A file that is there already is replaced, a directory is kept, with the attributes of the new one. Reads
    /// names and attributes, and data only if it can be read but once. Blocks.
    ///
    /// # Errors
    /// The source cannot be read, or its contents make no sense; the message names the file.
    pub fn add(&mut self, source: Source) -> Result<(), Error> {
        self.assembly.next_layer();
        source.read_into(&mut self.assembly)
    }

    /// Whom the files belong to that are added one by one from now on.
    pub fn set_owner(&mut self, uid: u32, gid: u32) {
        self.owner = (uid, gid);
    }

    /// Adds a file with these bytes, in place of one that is there. Directories on the way are made. It belongs to root, or to whom
    /// [`ImageBuilder::set_owner`] has named, and has the time of the image, unless the rules say otherwise.
    ///
    /// # Errors
    /// The path leads out of the image, or is the root's; the host has no memory.
    pub fn add_file(
        &mut self,
        path: impl AsRef<[u8]>,
        permissions: u16,
        contents: impl AsRef<[u8]>,
    ) -> Result<(), Error> {
        let (path, contents) = (path.as_ref(), contents.as_ref());
        let spool = match &mut self.memory {
            Some(spool) => spool,
            none => none.insert(Spool::in_memory()?),
        };
        let len = contents.len() as u64;
        let spans = spool.take(&mut &contents[..], len)?;
        let origin = Origin::Spans(spool.file(), spans.into());
        let data = Box::from_iter((len > 0).then_some(0..len));
        self.put(path, permissions, NodeKind::File { len, data }, origin)
            .map(drop)
    }

    /// Adds a directory, or gives one that is there these permissions. Otherwise as [`ImageBuilder::add_file`].
    ///
    /// # Errors
    /// Those of [`ImageBuilder::add_file`].
    pub fn add_dir(&mut self, path: impl AsRef<[u8]>, permissions: u16) -> Result<(), Error> {
        self.put(
            path.as_ref(),
            permissions,
            NodeKind::Directory,
            Origin::None,
        )
        .map(drop)
    }

    /// Adds a file of `len` zeros that has all its space on the device. Otherwise as [`ImageBuilder::add_file`].
    ///
    /// # Errors
    /// Those of [`ImageBuilder::add_file`].
    pub fn add_zeros(
        &mut self,
        path: impl AsRef<[u8]>,
        permissions: u16,
        len: u64,
    ) -> Result<(), Error> {
        // Bytes of no origin are zeros.
        let kind = NodeKind::plain_file(len);
        self.put(path.as_ref(), permissions, kind, Origin::None)
            .map(drop)
    }

    /// As [`ImageBuilder::add_zeros`], with the data in the free blocks from `block` on: see [`diorite::mkfs::Tree::set_goal`].
    ///
    /// # Errors
    /// Those of [`ImageBuilder::add_file`].
    pub fn add_zeros_at(
        &mut self,
        path: impl AsRef<[u8]>,
        permissions: u16,
        len: u64,
        block: u64,
    ) -> Result<(), Error> {
        let kind = NodeKind::plain_file(len);
        let id = self.put(path.as_ref(), permissions, kind, Origin::None)?;
        self.assembly.tree.set_goal(id, block);
        Ok(())
    }

    /// Adds a symbolic link. Otherwise as [`ImageBuilder::add_file`].
    ///
    /// # Errors
    /// Those of [`ImageBuilder::add_file`].
    pub fn add_symlink(
        &mut self,
        path: impl AsRef<[u8]>,
        target: impl AsRef<[u8]>,
    ) -> Result<(), Error> {
        let kind = NodeKind::Symlink(target.as_ref().into());
        self.put(path.as_ref(), 0o777, kind, Origin::None).map(drop)
    }

    fn put(
        &mut self,
        path: &[u8],
        permissions: u16,
        kind: NodeKind,
        origin: Origin,
    ) -> Result<NodeId, Error> {
        let node = Node {
            kind,
            mode: permissions,
            uid: self.owner.0,
            gid: self.owner.1,
            mtime: self.assembly.made_at(),
            attributes: Vec::new(),
        };
        self.assembly.next_layer();
        let put = self.assembly.put(path, node, origin);
        put.at(String::from_utf8_lossy(path))
    }

    /// Notes of the volumes that were added so far, each after the locator of its volume: `Volume::notes` has more.
    #[must_use]
    pub fn notes(&self) -> &[(String, String)] {
        &self.assembly.notes
    }

    /// What was odd about the sources that were added so far, and no error: sentences that begin with the source.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.assembly.told
    }

    /// Number of files so far, directories included.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.assembly.count().0
    }

    /// Bytes of data so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.assembly.count().1
    }

    /// Decides on the size.
    ///
    /// # Errors
    /// There is no such file system.
    pub fn plan(mut self, size: Size) -> Result<Plan, Error> {
        self.assembly.label()?;
        let options = match size {
            Size::Bytes(bytes) => {
                self.options.bytes = Some(bytes);
                self.options
            }
            Size::Auto { headroom } => self.sized(Headroom::Bytes(headroom))?,
            Size::AutoPercent { percent } => self.sized(Headroom::Percent(percent))?,
        };
        Ok(Plan {
            options,
            assembly: self.assembly,
        })
    }
}

impl ImageBuilder {
    fn sized(&mut self, headroom: Headroom) -> Result<MkfsOptions, Error> {
        Ok(mkfs_sized(
            &self.options,
            &mut self.assembly.tree,
            headroom,
        )?)
    }
}

impl Plan {
    /// Bytes of the image.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.options.bytes.unwrap_or(0)
    }

    /// Files and bytes of data that go into it.
    #[must_use]
    pub fn contents(&self) -> (u64, u64) {
        self.assembly.count()
    }

    /// Writes the image. `progress` is told the bytes of data that are written, and ends it with false. Blocks.
    ///
    /// # Errors
    /// The files do not fit; a source cannot be read any more; the device fails. Then there is no file system on the device.
    pub fn write(self, device: &Arc<dyn Device>, progress: Progress<'_>) -> Result<Made, Error> {
        let Assembly { tree, origins, .. } = self.assembly;
        Ok(mkfs_filled(
            device,
            &self.options,
            tree,
            &origins,
            progress,
        )?)
    }
}
