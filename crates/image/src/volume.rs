//! Files of another ext4 image as a source.
//!
//! Input: a volume, a directory in it. Output: entries. Invariants: nothing is written, a journal is replayed in memory; holes stay holes,
//! names of one inode too. Limits: what only the volume has - flags, projects, generations - is not copied.

use crate::assembly::{Assembly, shown};
use crate::error::{Error, Place};
use crate::origin::Origin;
use diorite::mkfs::{Attribute, Node, NodeId, NodeKind};
use diorite::{FileType, Ino, OpenFlags, OpenOptions, Seek, Volume};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Adds everything below a directory of the volume at a locator, and the directory's own attributes.
pub(crate) fn add(assembly: &mut Assembly, locator: &str, below: &[u8]) -> Result<(), Error> {
    let volume = Arc::new(Volume::open(locator, &OpenOptions::default()).at(locator)?);
    let notes = volume.notes().iter();
    let notes = notes.map(|note| (locator.to_owned(), note.clone()));
    assembly.notes.extend(notes);
    assembly.volumes.push(volume.clone());
    let top = volume.resolve(below, true).at(shown(below))?;
    let mut walk = Walk {
        assembly,
        volume: &volume,
        known: HashMap::new(),
    };
    if !walk.one(top, b"")? {
        return Err(Error::new("it is no directory")).at(shown(below));
    }
    let mut todo = vec![(Vec::new(), top)];
    while let Some((path, dir)) = todo.pop() {
        let mut names = Vec::new();
        for entry in volume.read_dir(dir)? {
            let entry = entry?;
            if &entry.name[..] != b"." && &entry.name[..] != b".." {
                names.push((entry.name.to_vec(), entry.ino));
            }
        }
        names.sort();
        for (name, ino) in names {
            let inner = [&path[..], b"/", &name].concat();
            if walk.assembly.is_excluded(&inner) {
                continue;
            }
            if walk.one(ino, &inner)? {
                todo.push((inner, ino));
            }
        }
    }
    Ok(())
}

struct Walk<'a> {
    assembly: &'a mut Assembly,
    volume: &'a Arc<Volume>,
    known: HashMap<Ino, NodeId>,
}

impl Walk<'_> {
    /// Adds one inode; true if it is a directory.
    fn one(&mut self, ino: Ino, path: &[u8]) -> Result<bool, Error> {
        self.try_one(ino, path).at(shown(path))
    }

    fn try_one(&mut self, ino: Ino, path: &[u8]) -> Result<bool, Error> {
        let (inode, size) = self.volume.metadata(ino)?;
        let is_dir = inode.is_dir();
        if is_dir && self.known.contains_key(&ino) {
            return Err(Error::new(
                "a directory with two names: the image is damaged",
            ));
        }
        if let Some(known) = self.known.get(&ino) {
            self.assembly.link_node(path, *known)?;
            return Ok(false);
        }
        let rdev = || {
            inode
                .rdev()
                .ok_or_else(|| Error::new("a device without numbers"))
        };
        let mut origin = Origin::None;
        let kind = match inode.file_type {
            Some(FileType::Directory) => NodeKind::Directory,
            Some(FileType::Regular) => {
                let mut ranges = Vec::new();
                if size > 0 {
                    let file = self.volume.open_ino(ino, OpenFlags::default())?;
                    ranges = data(&file, size)?;
                    origin = Origin::Volume(self.volume.clone(), ino);
                }
                NodeKind::File {
                    len: size,
                    data: ranges.into(),
                }
            }
            Some(FileType::Symlink) => NodeKind::Symlink(self.volume.read_link(ino)?.into()),
            Some(FileType::CharDevice) => NodeKind::CharDevice(rdev()?),
            Some(FileType::BlockDevice) => NodeKind::BlockDevice(rdev()?),
            Some(FileType::Fifo) => NodeKind::Fifo,
            Some(FileType::Socket) => NodeKind::Socket,
            None => return Err(Error::new("it is of no known kind")),
        };
        let attributes = match self.assembly.rules.no_attributes {
            true => Vec::new(),
            false => {
                let all = self.volume.xattrs(ino)?;
                all.into_iter()
                    .map(|x| -> Attribute { (x.name.into(), x.value.into()) })
                    .collect()
            }
        };
        let node = Node {
            kind,
            mode: inode.mode & 0o7777,
            uid: inode.uid,
            gid: inode.gid,
            mtime: inode.mtime,
            attributes,
        };
        let id = self.assembly.put(path, node, origin)?;
        if inode.links > 1 || is_dir {
            self.known.insert(ino, id);
        }
        Ok(is_dir)
    }
}

/// Where a file of a volume has data.
pub(crate) fn data(file: &diorite::File, size: u64) -> Result<Vec<Range<u64>>, Error> {
    let (mut ranges, mut at) = (Vec::new(), 0);
    while let Some(start) = file
        .seek_next(at, Seek::Data)?
        .filter(|start| *start < size)
    {
        let end = file.seek_next(start, Seek::Hole)?.unwrap_or(size).min(size);
        ranges.push(start..end);
        if end <= start {
            break;
        }
        at = end;
    }
    Ok(ranges)
}
