//! What a worker's directory must hold.
//!
//! Input: the operations that succeeded. Output: what the same directory is compared with, on whatever mount. Invariant: names lead to
//! nodes, so hard links are names of one node. Limits: times and blocks are not compared.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    File(Vec<u8>),
    Dir,
    Link(String),
}

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) xattrs: BTreeMap<String, Vec<u8>>,
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    /// Paths below the worker's directory, which itself is "".
    pub(crate) names: BTreeMap<String, u64>,
    pub(crate) nodes: BTreeMap<u64, Node>,
}

/// The directory of a path.
pub(crate) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

/// The path of a name in a directory.
pub(crate) fn join(dir: &str, name: &str) -> String {
    match dir {
        "" => name.to_owned(),
        _ => format!("{dir}/{name}"),
    }
}

/// Does it lie below this directory?
pub(crate) fn is_below(path: &str, dir: &str) -> bool {
    path.strip_prefix(dir)
        .is_some_and(|rest| rest.starts_with('/'))
}

impl Model {
    pub(crate) fn bytes(&self, id: u64) -> &[u8] {
        match &self.nodes[&id].kind {
            Kind::File(bytes) => bytes,
            other => panic!("no file: {other:?}"),
        }
    }

    pub(crate) fn bytes_mut(&mut self, id: u64) -> &mut Vec<u8> {
        match &mut self.nodes.get_mut(&id).unwrap().kind {
            Kind::File(bytes) => bytes,
            other => panic!("no file: {other:?}"),
        }
    }

    pub(crate) fn write(&mut self, id: u64, at: usize, data: &[u8]) {
        let bytes = self.bytes_mut(id);
        let end = at + data.len();
        bytes.resize(bytes.len().max(end), 0);
        bytes[at..end].copy_from_slice(data);
    }

    /// Zeros; beyond the end only if the file grows by that.
    pub(crate) fn zero(&mut self, id: u64, at: usize, len: usize, grows: bool) {
        let bytes = self.bytes_mut(id);
        let end = at + len;
        if grows && end > bytes.len() {
            bytes.resize(end, 0);
        }
        let end = end.min(bytes.len());
        if at < end {
            bytes[at..end].fill(0);
        }
    }

    pub(crate) fn is_dir(&self, path: &str) -> bool {
        path.is_empty() || matches!(self.nodes[&self.names[path]].kind, Kind::Dir)
    }

    /// Names in a directory.
    pub(crate) fn children(&self, dir: &str) -> BTreeSet<String> {
        let of = |path: &&String| parent(path) == dir;
        let name = |path: &String| path.rsplit('/').next().unwrap().to_owned();
        self.names.keys().filter(of).map(name).collect()
    }

    /// st_nlink.
    pub(crate) fn links(&self, id: u64) -> u64 {
        let names = self.names.iter().filter(|(_, node)| **node == id);
        match self.nodes[&id].kind {
            Kind::Dir => names.fold(0, |_, (path, _)| 2 + self.dirs_in(path)),
            _ => names.count() as u64,
        }
    }

    fn dirs_in(&self, dir: &str) -> u64 {
        let all = self.names.keys().filter(|path| parent(path) == dir);
        all.filter(|path| self.is_dir(path)).count() as u64
    }

    /// The paths of a directory's contents, and its own, lead elsewhere from now on.
    pub(crate) fn move_name(&mut self, from: &str, to: &str) {
        let moved: Vec<String> = self
            .names
            .keys()
            .filter(|path| *path == from || is_below(path, from))
            .cloned()
            .collect();
        for path in moved {
            let id = self.names.remove(&path).unwrap();
            self.names
                .insert(format!("{to}{}", &path[from.len()..]), id);
        }
    }

    /// Compares it with a directory.
    pub(crate) fn verify(&self, root: &Path, what: &str) {
        let mut inos: BTreeMap<u64, u64> = BTreeMap::new();
        for (path, id) in &self.names {
            let place = root.join(path);
            let what = format!("{what}: {}", place.display());
            let seen = fs::symlink_metadata(&place).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(*inos.entry(*id).or_insert(seen.ino()), seen.ino(), "{what}");
            self.verify_attributes(*id, &seen, &what);
            match &self.nodes[id].kind {
                Kind::File(bytes) => same(&fs::read(&place).unwrap(), bytes, &what),
                Kind::Link(target) => {
                    assert_eq!(
                        fs::read_link(&place).unwrap().to_str(),
                        Some(&target[..]),
                        "{what}"
                    );
                }
                Kind::Dir => assert_eq!(listed(&place), self.children(path), "{what}"),
            }
            self.verify_xattrs(*id, &place, &what);
        }
        assert_eq!(listed(root), self.children(""), "{what}");
    }

    pub(crate) fn verify_attributes(&self, id: u64, seen: &fs::Metadata, what: &str) {
        let node = &self.nodes[&id];
        let kind = seen.file_type();
        assert!(!kind.is_fifo() && !kind.is_block_device(), "{what}");
        match &node.kind {
            Kind::File(bytes) => {
                assert!(kind.is_file(), "{what}");
                assert_eq!(seen.len(), bytes.len() as u64, "size of {what}");
            }
            Kind::Dir => assert!(kind.is_dir(), "{what}"),
            Kind::Link(_) => assert!(kind.is_symlink(), "{what}"),
        }
        assert_eq!(seen.nlink(), self.links(id), "links of {what}");
        assert_eq!(seen.mode() & 0o7777, node.mode, "mode of {what}");
        assert_eq!((seen.uid(), seen.gid()), node.owner, "owner of {what}");
    }

    pub(crate) fn verify_xattrs(&self, id: u64, place: &Path, what: &str) {
        let mut names = vec![0; 65_536];
        let len = rustix::fs::llistxattr(place, &mut names[..]).unwrap();
        let mut there: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for name in names[..len].split_inclusive(|b| *b == 0) {
            let name = CStr::from_bytes_with_nul(name).unwrap();
            // The host may add its own.
            if name.to_bytes().starts_with(b"user.") {
                let mut value = vec![0; 65_536];
                let len = rustix::fs::lgetxattr(place, name, &mut value[..]).unwrap();
                value.truncate(len);
                there.insert(name.to_str().unwrap().to_owned(), value);
            }
        }
        assert!(
            there == self.nodes[&id].xattrs,
            "extended attributes of {what}"
        );
    }
}

fn listed(dir: &Path) -> BTreeSet<String> {
    let all = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
    all.map(|entry| name(entry).into_string().unwrap())
        .collect()
}

/// The same bytes; otherwise where they differ.
pub(crate) fn same(seen: &[u8], wanted: &[u8], what: &str) {
    if seen == wanted {
        return;
    }
    let len = seen.len().min(wanted.len());
    let first = (0..len).find(|n| seen[*n] != wanted[*n]).unwrap_or(len);
    let last = (0..len)
        .rfind(|n| seen[*n] != wanted[*n])
        .map_or(len, |n| n + 1);
    let some = |bytes: &[u8]| bytes[first.min(bytes.len())..(first + 16).min(bytes.len())].to_vec();
    panic!(
        "{what}: {} bytes, not {}; they differ from {first} to {last}: {:x?}, not {:x?}",
        seen.len(),
        wanted.len(),
        some(seen),
        some(wanted)
    );
}
