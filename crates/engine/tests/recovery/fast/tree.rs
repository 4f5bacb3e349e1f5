//! The tree in a volume: names, kinds, link counts, sizes, contents.
//!
//! Input: a volume, an image, a directory of the host. Output: a tree that can be compared. Invariants: the same for the same
//! volume, whoever reads it. Limits: times and owners are left out, since fast commits do not record those of directories.

use crate::common::stage::mem_of;
use diorite::{Error, OpenFlags, OpenOptions, Volume};
use diorite_block::Buf;
use diorite_format::Ino;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tree(BTreeMap<String, Node>);

#[derive(Clone, Debug)]
struct Node {
    ino: u64,
    mode: u32,
    links: u64,
    /// Of files only; the size of a directory depends on the implementation.
    size: u64,
    contents: u64,
}

impl PartialEq for Node {
    fn eq(&self, other: &Node) -> bool {
        self.is_but_for_contents(other) && self.contents == other.contents
    }
}

impl Eq for Node {}

impl Node {
    fn is_but_for_contents(&self, other: &Node) -> bool {
        (self.mode, self.links, self.size) == (other.mode, other.links, other.size)
    }
}

/// A hash of the contents: FNV-1a.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl Tree {
    pub(super) fn of_host(at: &Path) -> io::Result<Tree> {
        let mut tree = Tree::default();
        tree.add_host(at, "")?;
        Ok(tree)
    }

    fn add_host(&mut self, at: &Path, name: &str) -> io::Result<()> {
        let meta = std::fs::symlink_metadata(at)?;
        let contents = match () {
            () if meta.is_symlink() => std::fs::read_link(at)?.as_os_str().as_bytes().to_vec(),
            () if meta.is_file() => std::fs::read(at)?,
            () => Vec::new(),
        };
        let node = Node {
            ino: meta.ino(),
            mode: meta.mode(),
            links: meta.nlink(),
            size: if meta.is_dir() { 0 } else { meta.len() },
            contents: digest(&contents),
        };
        self.0.insert(name.to_owned(), node);
        if meta.is_dir() {
            for entry in std::fs::read_dir(at)? {
                let entry = entry?;
                let below = format!("{name}/{}", entry.file_name().to_string_lossy());
                self.add_host(&entry.path(), &below)?;
            }
        }
        Ok(())
    }

    pub(super) fn of_image(bytes: &[u8]) -> Result<Tree, Error> {
        let volume = Volume::open_device(Arc::new(mem_of(bytes)), &OpenOptions::default())?;
        Ok(Tree::of(&volume))
    }

    pub(super) fn of(volume: &Volume) -> Tree {
        let mut tree = Tree::default();
        tree.add(volume, Ino::ROOT, "");
        tree
    }

    fn add(&mut self, volume: &Volume, ino: Ino, name: &str) {
        let opened = volume.open_ino(ino, OpenFlags::default());
        let file = opened.unwrap_or_else(|e| panic!("{name}: {e}"));
        let disk = file.metadata();
        let contents = match () {
            () if disk.is_file() => {
                let (buf, read) = file.read_buf(
                    0,
                    Buf::zeroed((disk.size as usize).max(1).next_multiple_of(4096)),
                );
                let len = read.unwrap_or_else(|e| panic!("{name}: {e}"));
                buf.as_slice()[..len].to_vec()
            }
            () if disk.is_dir() => Vec::new(),
            () => volume.read_link(ino).unwrap(),
        };
        let node = Node {
            ino: u64::from(ino.get()),
            mode: u32::from(disk.mode),
            links: u64::from(disk.links),
            size: if disk.is_dir() { 0 } else { disk.size },
            contents: digest(&contents),
        };
        self.0.insert(name.to_owned(), node);
        if disk.is_dir() {
            for entry in volume.read_dir(ino).unwrap() {
                let entry = entry.unwrap_or_else(|e| panic!("{name}: {e}"));
                let own = std::str::from_utf8(&entry.name).unwrap();
                if own != "." && own != ".." {
                    self.add(volume, entry.ino, &format!("{name}/{own}"));
                }
            }
        }
    }

    /// Asserts that `found` is equal. The contents of files that changed in the steps `since` are not compared: their blocks may
    /// have been overwritten in place.
    pub(super) fn compare(&self, found: &Tree, since: &[Tree], label: &str) {
        let all = self.differences(found, since);
        assert!(all.is_empty(), "{label}:\n{}", all.join("\n"));
    }

    pub(super) fn differences(&self, found: &Tree, since: &[Tree]) -> Vec<String> {
        let later: Vec<HashMap<u64, u64>> = since.iter().map(Tree::contents).collect();
        let is_stable = |node: &Node| {
            let is_same = |all: &HashMap<u64, u64>| all.get(&node.ino) == Some(&node.contents);
            later.iter().all(is_same)
        };
        let names: BTreeSet<&String> = self.0.keys().chain(found.0.keys()).collect();
        let differs = |name: &&String| match (self.0.get(*name), found.0.get(*name)) {
            (Some(a), Some(b)) if is_stable(a) => a != b,
            (Some(a), Some(b)) => !a.is_but_for_contents(b),
            _ => true,
        };
        let say = |name: &String| {
            let (want, found) = (self.0.get(name), found.0.get(name));
            format!("{name}: wanted {want:?}, found {found:?}")
        };
        names.into_iter().filter(differs).map(say).collect()
    }

    fn contents(&self) -> HashMap<u64, u64> {
        self.0
            .values()
            .map(|node| (node.ino, node.contents))
            .collect()
    }
}
