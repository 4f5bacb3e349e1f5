//! Listing a directory, block by block, or by the hashes of its names while they may change.
//!
//! Input: a directory inode. Output: its entries, "." and ".." included. Invariants: memory is one block's entries, however large the directory is; a
//! name that is there all the time is seen once, whatever happens to others meanwhile: in a linear directory no entry moves, in a hashed
//! one none changes its hash. Limits: the order is that of the disk, not of names; of more names of one hash than a block holds, some may be
//! seen twice.

use super::lookup::{Hashed, Next, Root, frames_for, hash_of, hashed, leaf_of, next_leaf};
use super::{blocks, names_in, read_block, read_present};
use crate::dir::inline_dir;
use crate::error::Error;
use crate::inode::Inode;
use crate::inode::inline_tail;
use diorite_format::dir::{self, DirBlock};
use diorite_format::inline::InlineData;
use diorite_format::{FileType, Ino};
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

/// An iterator over a directory. Blocks while blocks are read. Where nothing can change it is in the order of the blocks, and goes on with the next
/// after an error.
#[derive(Debug)]
pub struct ReadDir {
    dir: Arc<Inode>,
    next: Position,
    ready: std::vec::IntoIter<DirEntry>,
}

/// What comes next.
#[derive(Clone, Copy, Debug)]
enum Position {
    /// Block by block from this one on.
    Block(u64),
    /// Names with this hash or a higher one, but for so many leaves that have names with this hash.
    Hash(u32, u32),
    End,
}

/// Leaves with names of one hash that are gone through; more than there ever are.
const MOST_OF_ONE_HASH: u32 = 1024;

impl ReadDir {
    pub(crate) fn new(dir: Arc<Inode>) -> Result<ReadDir, Error> {
        if !dir.disk().is_dir() {
            return Err(Error::NotADirectory {
                path: format!("inode {}", dir.ino),
            });
        }
        let lock = dir.lock_shared(false)?;
        let inline = inline_dir::is_inside(&dir);
        let (next, ready) = match inline {
            true => {
                dir.note_read();
                (Position::End, inline_entries(&dir)?)
            }
            false => {
                blocks(&dir)?;
                (Position::Block(0), Vec::new())
            }
        };
        drop(lock);
        Ok(ReadDir {
            dir,
            next,
            ready: ready.into_iter(),
        })
    }

    /// Reads what comes next. While names may change a directory with a hash tree is read in the order of hashes, in which they do not move.
    fn fill(&mut self) -> Result<(), Error> {
        let dir = self.dir.clone();
        dir.note_read();
        let _names = dir.lock_shared(false)?;
        let at = std::mem::replace(&mut self.next, Position::End);
        let root = match dir.volume.alloc.is_some() {
            true => hashed(&dir)?,
            false => Hashed::No,
        };
        let (ready, next) = match (at, root) {
            (Position::End, _) => return Ok(()),
            (Position::Block(0), Hashed::Yes(_)) => (self.of_block(0)?, Position::Hash(0, 0)),
            // It was one block until it got its tree, and that was read.
            (Position::Block(_), Hashed::Yes(_)) => return Ok(()),
            (Position::Hash(hash, skip), Hashed::Yes(root)) => by_hash(&dir, &root, hash, skip)?,
            (Position::Hash(..), _) => return Ok(()),
            (Position::Block(block), _) => {
                if block >= blocks(&dir)? {
                    return Ok(());
                }
                // An error does not end it.
                self.next = Position::Block(block + 1);
                (self.of_block(block)?, self.next)
            }
        };
        (self.ready, self.next) = (ready.into_iter(), next);
        Ok(())
    }

    fn of_block(&self, block: u64) -> Result<Vec<DirEntry>, Error> {
        let Some(raw) = read_block(&self.dir, block)? else {
            return Ok(Vec::new());
        };
        let disk = self.dir.disk();
        let parsed = names_in(&self.dir, &disk, block, &raw);
        Ok(parsed.entries().map(DirEntry::from).collect())
    }
}

/// One leaf's names from a hash on, and where the next ones are.
fn by_hash(
    dir: &Inode,
    root: &Root,
    from: u32,
    skip: u32,
) -> Result<(Vec<DirEntry>, Position), Error> {
    let mut frames = frames_for(dir, root, from)?;
    for _ in 0..skip {
        next_leaf(dir, root, &mut frames)?;
        if frames.is_empty() {
            return Ok((Vec::new(), Position::End));
        }
    }
    let leaf = leaf_of(&frames);
    let (raw, disk) = (read_present(dir, leaf)?, dir.disk());
    let parsed = names_in(dir, &disk, leaf, &raw);
    let names = parsed
        .entries()
        .filter(|e| hash_of(dir, root, e.name) >= from)
        .map(DirEntry::from)
        .collect();
    let next = match next_leaf(dir, root, &mut frames)? {
        Next::None => Position::End,
        Next::From(hash) if hash > from => Position::Hash(hash, 0),
        Next::GoesOn(hash) if hash == from && skip < MOST_OF_ONE_HASH => {
            Position::Hash(hash, skip + 1)
        }
        Next::GoesOn(hash) if hash > from => Position::Hash(hash, 1),
        Next::From(_) | Next::GoesOn(_) => {
            let ino = dir.ino;
            let what = "its hash tree goes in circles";
            return Err(Error::Damaged(format!(
                "directory inode {ino}: {what}; run e2fsck"
            )));
        }
    };
    Ok((names, next))
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.ready.next() {
                return Some(Ok(entry));
            }
            if matches!(self.next, Position::End) {
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
    let rest = inline_tail(&dir.volume, &dir.disk(), &dir.raw())?;
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
