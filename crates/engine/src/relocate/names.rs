//! Where inode numbers are written down: entries of directories, and attributes whose values are in inodes of their own.
//!
//! Input: inode numbers. Output: the places that name them, found by reading all directories once; a place changed to name another number.
//! Invariants: ".", ".." and the parent of an inline directory are such places; a change keeps everything else as it is. Limits: places are
//! known by the numbers of their directories as they were when they were found; blocks must not move in between; holds some bytes for each
//! name of a wanted inode.

use super::tree::{Data, Part, read_inode, walk};
use crate::disk::cache::{Kind, UsedAs};
use crate::error::Error;
use crate::inode::Fs;
use crate::journal::{JournalHandle, NamesAt};
use diorite_format::dir::{self, DirBlock};
use diorite_format::features::Incompat;
use diorite_format::inline::{self, InlineData};
use diorite_format::xattr::{self, XattrEntry, XattrValue, Xattrs};
use diorite_format::{FileBlock, FsBlock, GroupNo, Ino, Inode as DiskInode, MapKind};
use std::collections::{BTreeMap, BTreeSet};

/// A place that names inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// A block of a directory: its number in the directory, and its place.
    Block { dir: Ino, block: u32, at: FsBlock },
    /// An inode: an inline directory, or attributes in the inode.
    Inode(Ino),
    /// A block of attributes, with one of its users.
    Attributes { user: Ino, at: FsBlock },
}

/// For each inode the places that name it.
pub(super) type Places = BTreeMap<Ino, BTreeSet<Place>>;

/// Finds the places that name these inodes. Blocks while metadata is read.
pub(super) fn find(fs: &Fs, wanted: &BTreeSet<Ino>) -> Result<Places, Error> {
    let mut search = Search {
        fs,
        wanted,
        places: Places::new(),
        blocks: BTreeSet::new(),
    };
    let alloc = fs.alloc()?;
    for group in (0..fs.sb.group_count()).map(GroupNo::new) {
        for ino in alloc.used_inodes(fs, group)? {
            let disk = read_inode(fs, ino)?;
            search
                .inode(&disk)
                .map_err(|e| e.at(format!("inode {ino}")))?;
        }
    }
    Ok(search.places)
}

struct Search<'a> {
    fs: &'a Fs,
    wanted: &'a BTreeSet<Ino>,
    places: Places,
    /// Blocks of attributes that were read.
    blocks: BTreeSet<FsBlock>,
}

impl Search<'_> {
    fn inode(&mut self, disk: &DiskInode) -> Result<(), Error> {
        if disk.is_free() {
            return Ok(());
        }
        if disk.is_dir() {
            match disk.map_kind() {
                MapKind::Inline => self.inline(disk)?,
                _ => self.directory(disk)?,
            }
        }
        let has_values = self.fs.sb.features().incompat.has(Incompat::EA_INODE);
        if has_values {
            self.attributes(disk)
        } else {
            Ok(())
        }
    }

    fn note(&mut self, ino: Ino, place: Place) {
        if self.wanted.contains(&ino) {
            self.places.entry(ino).or_default().insert(place);
        }
    }

    fn directory(&mut self, disk: &DiskInode) -> Result<(), Error> {
        for (block, at) in blocks_of(self.fs, disk)? {
            let raw = read_block(self.fs, disk, block, at)?;
            let dir = disk.ino;
            let parsed = DirBlock::parse(&self.fs.sb, disk, wide(block), &raw)?;
            for entry in parsed.entries() {
                self.note(entry.ino, Place::Block { dir, block, at });
            }
        }
        Ok(())
    }

    fn inline(&mut self, disk: &DiskInode) -> Result<(), Error> {
        let (sb, place) = (&self.fs.sb, Place::Inode(disk.ino));
        self.note(dir::inline_parent(sb, disk)?, place);
        let raw = raw_inode(self.fs, disk.ino)?;
        let attrs = Xattrs::parse_inode(sb, disk, &raw)?;
        let data = InlineData::new(disk, rest_of(&attrs))?;
        for part in data.dir_parts().into_iter().filter(|part| !part.is_empty()) {
            for entry in DirBlock::parse_inline(sb, disk, part)?.entries() {
                self.note(entry.ino, place);
            }
        }
        Ok(())
    }

    fn attributes(&mut self, disk: &DiskInode) -> Result<(), Error> {
        let (fs, sb, ino, at) = (self.fs, &self.fs.sb, disk.ino, disk.file_acl);
        let raw = raw_inode(fs, ino)?;
        for held in values(&Xattrs::parse_inode(sb, disk, &raw)?.entries) {
            self.note(held, Place::Inode(ino));
        }
        if at.is_none() || !self.blocks.insert(at) {
            return Ok(());
        }
        let verify = |raw: &[u8]| Xattrs::parse_block(sb, ino, at, raw).map(drop);
        let raw = fs.cache.read(&fs.blocking, at, Kind::Xattr, verify)?;
        for held in values(&Xattrs::parse_block(sb, ino, at, &raw)?.entries) {
            self.note(held, Place::Attributes { user: ino, at });
        }
        Ok(())
    }
}

/// The value inodes that these entries refer to.
fn values(entries: &[XattrEntry<'_>]) -> Vec<Ino> {
    let held = entries.iter().filter_map(|entry| match entry.value {
        XattrValue::Inode { ino, .. } => Some(ino),
        XattrValue::Bytes(_) => None,
    });
    held.collect()
}

/// The blocks of a directory: numbers in the directory, and places.
pub(super) fn blocks_of(fs: &Fs, disk: &DiskInode) -> Result<Vec<(u32, FsBlock)>, Error> {
    let size = disk.size.div_ceil(u64::from(fs.block_size()));
    let mut all = Vec::new();
    let mut add = |run: Data| {
        let places = (0..run.len).map(|n| (run.file_block + n, place_in(run, n)));
        all.extend(places.filter(|(block, _)| u64::from(*block) < size));
    };
    walk(fs, disk, &mut |part| {
        if let Part::Data(run) = part {
            add(run);
        }
        Ok(())
    })?;
    Ok(all)
}

fn place_in(run: Data, n: u32) -> FsBlock {
    FsBlock::new(run.at.get() + u64::from(n))
}

fn wide(block: u32) -> FileBlock {
    FileBlock::new(u64::from(block))
}

fn read_block(
    fs: &Fs,
    disk: &DiskInode,
    block: u32,
    at: FsBlock,
) -> Result<crate::disk::cache::MetaRef, Error> {
    let used = UsedAs::of_directory(Kind::Directory, disk.ino, u64::from(block));
    let verify = |raw: &[u8]| DirBlock::parse(&fs.sb, disk, wide(block), raw).map(drop);
    fs.cache.read(&fs.blocking, at, used, verify)
}

/// The bytes of an inode.
pub(super) fn raw_inode(fs: &Fs, ino: Ino) -> Result<Vec<u8>, Error> {
    let (block, from) = fs.inode_place(ino)?;
    let to = from + fs.sb.geometry().inode_size() as usize;
    let raw = fs
        .cache
        .read(&fs.blocking, block, Kind::InodeTable, |_| Ok(()))?;
    Ok(raw[from..to].to_vec())
}

/// The part of inline data that is an attribute.
fn rest_of<'a>(attrs: &Xattrs<'a>) -> &'a [u8] {
    let (index, name) = inline::REST;
    match attrs.get(index, name).map(|entry| entry.value) {
        Some(XattrValue::Bytes(value)) => value,
        _ => &[],
    }
}

/// Makes a place name other numbers: those that `new` returns for the present ones. The place is given with its present number.
pub(super) fn rename(
    fs: &Fs,
    handle: &JournalHandle<'_>,
    place: Place,
    new: &dyn Fn(Ino) -> Ino,
) -> Result<(), Error> {
    match place {
        Place::Block { dir, block, at } => {
            let disk = read_inode(fs, dir)?;
            reseal(fs, handle, (&disk, &disk), (block, at), new)
        }
        Place::Inode(ino) => rename_inside(fs, handle, ino, new),
        Place::Attributes { user, at } => {
            let sb = &fs.sb;
            let verify = |raw: &[u8]| Xattrs::parse_block(sb, user, at, raw).map(drop);
            handle.update(at, Kind::Xattr, verify, |raw| {
                let old = raw.to_vec();
                let attrs = Xattrs::parse_block(sb, user, at, &old)?;
                let entries = renamed(&attrs.entries, new);
                Ok(xattr::write_block(sb, at, &entries, attrs.refcount, raw)?)
            })
        }
    }
}

/// Changes numbers in a block of a directory, and gives it the checksum for the directory `now`.
pub(super) fn reseal(
    fs: &Fs,
    handle: &JournalHandle<'_>,
    (disk, now): (&DiskInode, &DiskInode),
    (block, at): (u32, FsBlock),
    new: &dyn Fn(Ino) -> Ino,
) -> Result<(), Error> {
    let sb = &fs.sb;
    let used = UsedAs::of_directory(Kind::Directory, disk.ino, u64::from(block));
    let verify = |raw: &[u8]| DirBlock::parse(sb, disk, wide(block), raw).map(drop);
    handle.names(NamesAt::Block(at));
    handle.update(at, used, verify, |raw| {
        Ok(dir::renumber(sb, (disk, now), wide(block), raw, new)?)
    })
}

fn rename_inside(
    fs: &Fs,
    handle: &JournalHandle<'_>,
    ino: Ino,
    new: &dyn Fn(Ino) -> Ino,
) -> Result<(), Error> {
    let (sb, old) = (&fs.sb, raw_inode(fs, ino)?);
    let mut disk = DiskInode::parse(sb, ino, &old)?;
    let attrs = Xattrs::parse_inode(sb, &disk, &old)?;
    let mut entries = renamed(&attrs.entries, new);
    let mut rest = rest_of(&attrs).to_vec();
    if disk.is_dir() && disk.map_kind() == MapKind::Inline {
        let before = disk.clone();
        let up = new(dir::inline_parent(sb, &before)?);
        let head = InlineData::new(&before, &rest)?.dir_parts()[0].len();
        disk.i_block[..PARENT].copy_from_slice(&up.get().to_le_bytes());
        for part in [&mut disk.i_block[PARENT..PARENT + head], &mut rest[..]] {
            if !part.is_empty() {
                dir::renumber_inline(sb, &before, part, new)?;
            }
        }
        let kept = entries.iter_mut();
        let kept = kept.filter(|entry| (entry.index, entry.name) == inline::REST);
        kept.for_each(|entry| entry.value = XattrValue::Bytes(&rest));
    }
    let mut bytes = old.clone();
    if !entries.is_empty() {
        xattr::write_inode(&disk, &entries, &mut bytes)?;
    }
    disk.write(sb, &mut bytes)?;
    write_inode(fs, handle, ino, &bytes)
}

/// Bytes of the parent's number in an inline directory.
const PARENT: usize = 4;

fn renamed<'a>(entries: &[XattrEntry<'a>], new: &dyn Fn(Ino) -> Ino) -> Vec<XattrEntry<'a>> {
    let mut all = entries.to_vec();
    for entry in &mut all {
        if let XattrValue::Inode { ino, .. } = &mut entry.value {
            *ino = new(*ino);
        }
    }
    all
}

/// Writes the bytes of an inode, with their checksum, into the inode table.
pub(super) fn write_inode(
    fs: &Fs,
    handle: &JournalHandle<'_>,
    ino: Ino,
    bytes: &[u8],
) -> Result<(), Error> {
    let (block, from) = fs.inode_place(ino)?;
    handle.update(
        block,
        Kind::InodeTable,
        |_| Ok(()),
        |raw| {
            raw[from..from + bytes.len()].copy_from_slice(bytes);
            Ok(())
        },
    )
}
