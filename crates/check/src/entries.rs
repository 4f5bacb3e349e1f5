//! Compares the entries of a directory's blocks with the inodes that they name.
//!
//! Input: checked blocks. Output: findings; names counted; hashes of names, to find duplicates. Invariant: "." and ".." are
//! expected at the beginning of the directory and nowhere else. Limits: memory is bounded by the names of one directory.

use super::context::Check;
use super::parents::Directories;
use super::report::Kind;
use crate::link_counts::Person;
use diorite_format::dir::{DirBlock, DirEntry};
use diorite_format::{FileType, Ino, Inode, InodeFlags};
use std::hash::BuildHasher;

/// Bytes of the shortest encrypted name: one block of the cipher.
const SHORTEST_ENCRYPTED: usize = 16;

/// Whether a block must begin with "." and "..".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum First {
    Yes,
    No,
}

/// The hashes of one directory's names. The memory is reused for the next directory.
pub(super) struct Entries {
    dir: Ino,
    encrypted: bool,
    hasher: foldhash::quality::RandomState,
    hashes: Vec<u64>,
}

/// Hashes that occur twice in a directory.
pub(super) struct Twins {
    hasher: foldhash::quality::RandomState,
    hashes: Vec<u64>,
}

impl Twins {
    pub(super) fn has(&self, name: &[u8]) -> bool {
        self.hashes
            .binary_search(&self.hasher.hash_one(name))
            .is_ok()
    }
}

impl Entries {
    pub(super) fn new() -> Entries {
        Entries {
            dir: Ino::new(0),
            encrypted: false,
            hasher: foldhash::quality::RandomState::default(),
            hashes: Vec::new(),
        }
    }

    pub(super) fn begin(&mut self, dir: &Inode) {
        self.dir = dir.ino;
        self.encrypted = dir.flags.has(InodeFlags::ENCRYPT);
        self.hashes.clear();
    }

    /// The number of names so far.
    pub(super) fn names(&self) -> u64 {
        self.hashes.len() as u64
    }

    /// The hashes that occurred twice, if any.
    pub(super) fn twins(&mut self) -> Option<Twins> {
        self.hashes.sort_unstable();
        let same = |w: &[u64]| (w[0] == w[1]).then_some(w[0]);
        let mut hashes: Vec<u64> = self.hashes.windows(2).filter_map(same).collect();
        hashes.dedup();
        let hasher = self.hasher.clone();
        (!hashes.is_empty()).then_some(Twins { hasher, hashes })
    }

    /// Checks a block; returns the inode of "..", if this block has it.
    pub(super) fn block(
        &mut self,
        check: &Check<'_>,
        directories: &Directories,
        block: &DirBlock<'_>,
        first: First,
    ) -> Option<Ino> {
        let (mut up, mut skip) = (None, 0);
        if first == First::Yes {
            match block.dots(self.dir) {
                Ok((_, above)) => {
                    check.link_counts.count(self.dir);
                    check.link_counts.count(above);
                    (up, skip) = (Some(above), 2);
                }
                Err(e) => check.found.inode(Kind::Directory, self.dir, e),
            }
            self.dots(check, block, skip);
        }
        block
            .entries()
            .skip(skip)
            .for_each(|e| self.entry(check, directories, &e));
        up
    }

    /// "." and ".." must name directories, and a NUL must follow each.
    fn dots(&self, check: &Check<'_>, block: &DirBlock<'_>, count: usize) {
        let typed = check.source.sb.has_filetype();
        for e in block.entries().take(count) {
            if typed && e.file_type != Some(FileType::Directory) {
                self.wrong(check, &e, "is not marked as a directory");
            }
            if !block.is_terminated(&e) {
                self.wrong(check, &e, "is not ended by a NUL");
            }
        }
    }

    fn entry(&mut self, check: &Check<'_>, directories: &Directories, e: &DirEntry<'_>) {
        self.hashes.push(self.hasher.hash_one(e.name));
        if e.name == b"." || e.name == b".." {
            self.wrong(check, e, "is only expected at the beginning of a directory");
            return;
        }
        if self.encrypted && e.name.len() < SHORTEST_ENCRYPTED {
            self.wrong(check, e, "is shorter than any encrypted name");
        }
        let sb = &check.source.sb;
        if e.ino == Ino::ROOT || e.ino.get() < sb.geometry().first_ino() {
            self.wrong(check, e, "names an inode that is the volume's own");
            return;
        }
        let Some(person) = check.link_counts.get(e.ino) else {
            self.wrong(check, e, "names an inode that is not in use");
            return;
        };
        check.link_counts.count(e.ino);
        self.kind(check, e, person);
        if self.encrypted && has_contents(person) && !person.is_encrypted() {
            self.wrong(
                check,
                e,
                "names an inode that is not encrypted, as its directory is",
            );
        }
        if person.is_ea() {
            // e2fsck accepts such a name, and itself puts an unreferenced value inode into lost+found; the kernel refuses an
            // inode found by such a name.
            self.wrong(check, e, "names an inode that holds an attribute's value");
        }
        if person.is_own() {
            self.wrong(check, e, "names an inode that has no place in a directory");
        }
        if person.is_dir()
            && let Some(other) = directories.named(e.ino, self.dir)
        {
            let what = format!("names a directory that directory {other} names already");
            self.wrong(check, e, &what);
        }
    }

    fn kind(&self, check: &Check<'_>, e: &DirEntry<'_>, person: Person) {
        if check.source.sb.has_filetype() && e.file_type != person.kind() && !person.is_bad() {
            let what = format!(
                "has the type {}, and its inode is {}",
                e.file_type.map_or("unknown", kind_name),
                person.kind().map_or("of none", kind_name)
            );
            self.wrong(check, e, &what);
        }
    }

    fn wrong(&self, check: &Check<'_>, e: &DirEntry<'_>, what: &str) {
        let (dir, name, ino) = (self.dir, e.name.escape_ascii(), e.ino);
        let what = format_args!("directory {dir}: entry \"{name}\" (inode {ino}) {what}");
        check.found.inode(Kind::Directory, dir, what);
    }
}

/// Whether an inode has contents that are encrypted in an encrypted directory.
fn has_contents(person: Person) -> bool {
    let kind = person.kind();
    let kinds = [FileType::Regular, FileType::Directory, FileType::Symlink];
    !person.is_bad() && kind.is_some_and(|kind| kinds.contains(&kind))
}

fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::Fifo => "pipe",
        FileType::CharDevice => "character device",
        FileType::Directory => "directory",
        FileType::BlockDevice => "block device",
        FileType::Regular => "regular file",
        FileType::Symlink => "symbolic link",
        FileType::Socket => "socket",
    }
}
