//! One name of a directory, as callers see it.
//!
//! Input: an entry of a block. Output: a copy of it. Invariants: none. Limits: none.

use diorite_format::dir;
use diorite_format::{FileType, Ino};

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
