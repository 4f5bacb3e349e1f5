//! One directory entry, as callers see it.
//!
//! Input: an entry in a directory block. Output: a copy of it. Invariants: none. Limits: none.

use diorite_format::dir;
use diorite_format::{FileType, Ino};

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name: 1 to 255 bytes, none of them NUL or a slash.
    pub name: Vec<u8>,
    /// The number of the inode that the name refers to.
    pub ino: Ino,
    /// The file type, if the directory stores it (feature filetype).
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
