//! Listing a directory, block by block.
//!
//! Input: a directory inode. Output: its entries in the order of its blocks, "." and ".." included. Invariant: memory is
//! one block's entries, however large the directory is. Limits: the order is that of the disk, not of names.

use super::{blocks, read_block};
use crate::error::Error;
use crate::inode::Inode;
use crate::xattr;
use diorite_format::dir::{self, DirBlock};
use diorite_format::inline::InlineData;
use diorite_format::{FileBlock, FileType, Ino, MapKind};
use std::sync::Arc;

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name: any bytes but NUL and slash.
    pub name: Vec<u8>,
    /// What it names.
    pub ino: Ino,
    /// The type, where the directory stores it.
    pub file_type: Option<FileType>,
}

impl From<dir::DirEntry<'_>> for DirEntry {
    fn from(e: dir::DirEntry<'_>) -> DirEntry {
        DirEntry {
            name: e.name.to_vec(),
            ino: e.ino,
            file_type: e.file_type,
        }
    }
}

/// An iterator over a directory. Blocks while blocks are read; after an error it goes on with the next block.
#[derive(Debug)]
pub struct ReadDir {
    dir: Arc<Inode>,
    next: u64,
    blocks: u64,
    ready: std::vec::IntoIter<DirEntry>,
}

impl ReadDir {
    pub(crate) fn new(dir: Arc<Inode>) -> Result<ReadDir, Error> {
        if !dir.disk().is_dir() {
            return Err(Error::NotADirectory {
                path: format!("inode {}", dir.ino),
            });
        }
        if dir.disk().map_kind() == MapKind::Inline {
            let ready = inline_entries(&dir)?.into_iter();
            return Ok(ReadDir {
                dir,
                next: 0,
                blocks: 0,
                ready,
            });
        }
        let blocks = blocks(&dir)?;
        Ok(ReadDir {
            dir,
            next: 0,
            blocks,
            ready: Vec::new().into_iter(),
        })
    }

    fn fill(&mut self) -> Result<(), Error> {
        let block = self.next;
        self.next += 1;
        if let Some(raw) = read_block(&self.dir, block)? {
            let disk = self.dir.disk();
            let parsed = DirBlock::parse(&self.dir.volume.sb, &disk, FileBlock::new(block), &raw)?;
            let entries: Vec<DirEntry> = parsed.entries().map(DirEntry::from).collect();
            self.ready = entries.into_iter();
        }
        Ok(())
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.ready.next() {
                return Some(Ok(entry));
            }
            if self.next >= self.blocks {
                return None;
            }
            if let Err(error) = self.fill() {
                return Some(Err(error));
            }
        }
    }
}

/// The entries of a directory whose data is in its inode; "." and ".." are not stored and made here.
pub(super) fn inline_entries(dir: &Inode) -> Result<Vec<DirEntry>, Error> {
    let sb = &dir.volume.sb;
    let made = |name: &[u8], ino| DirEntry {
        name: name.to_vec(),
        ino,
        file_type: Some(FileType::Directory),
    };
    let mut entries = vec![
        made(b".", dir.ino),
        made(b"..", dir::inline_parent(sb, &dir.disk())?),
    ];
    let rest = xattr::inline_tail(&dir.volume, &dir.disk(), &dir.raw())?;
    let disk = dir.disk();
    let data = InlineData::new(&disk, &rest)?;
    for part in data.dir_parts().into_iter().filter(|p| !p.is_empty()) {
        entries.extend(
            DirBlock::parse_inline(sb, &dir.disk(), part)?
                .entries()
                .map(DirEntry::from),
        );
    }
    Ok(entries)
}
