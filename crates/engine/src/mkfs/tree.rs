//! A tree of files in memory: what a new file system is filled with.
//!
//! Input: nodes and names. Output: a [`Tree`]. Invariants: every directory but the root has exactly one name; a name is that of one node;
//! contents of files are not here, but asked for by [`Contents`]. Limits: names and attributes are held in memory.

use crate::error::Error;
use diorite_format::inode::Rdev;
use diorite_format::{FileType, Timestamp};
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

/// A node of a [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u32);

impl NodeId {
    /// The root directory.
    pub const ROOT: NodeId = NodeId(0);

    /// Its number: nodes are numbered from 0 in the order in which they were added.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// A directory.
    Directory,
    /// A regular file.
    File {
        /// Its length in bytes.
        len: u64,
        /// Where it has data, in order and apart from each other; everything else reads as zeros.
        data: Box<[Range<u64>]>,
    },
    /// A symbolic link, and its target.
    Symlink(Box<[u8]>),
    /// A character device.
    CharDevice(Rdev),
    /// A block device.
    BlockDevice(Rdev),
    /// A pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl NodeKind {
    /// A file whose bytes are all data.
    #[must_use]
    pub fn plain_file(len: u64) -> NodeKind {
        let all = (len > 0).then_some(0..len);
        NodeKind::File {
            len,
            data: all.into_iter().collect(),
        }
    }

    pub(super) fn file_type(&self) -> FileType {
        match self {
            NodeKind::Directory => FileType::Directory,
            NodeKind::File { .. } => FileType::Regular,
            NodeKind::Symlink(_) => FileType::Symlink,
            NodeKind::CharDevice(_) => FileType::CharDevice,
            NodeKind::BlockDevice(_) => FileType::BlockDevice,
            NodeKind::Fifo => FileType::Fifo,
            NodeKind::Socket => FileType::Socket,
        }
    }
}

/// A name of an extended attribute with its prefix, and its value as getxattr(2) gives it.
pub type Attribute = (Box<[u8]>, Box<[u8]>);

/// An inode to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it is.
    pub kind: NodeKind,
    /// Permissions, with set-uid, set-gid and sticky bit.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// When its contents were changed. It is also the time of its last access.
    pub mtime: Timestamp,
    /// Its extended attributes.
    pub attributes: Vec<Attribute>,
}

/// Names of a directory, in the order of their bytes.
type Names = BTreeMap<Box<[u8]>, NodeId>;

/// See the module.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    /// Of directories.
    names: BTreeMap<NodeId, Names>,
}

/// Bytes of the target of a symbolic link, at most.
const MOST_TARGET: usize = 4095;
/// The largest numbers of a device.
const MOST_RDEV: (u32, u32) = (0xFFF, 0xF_FFFF);

fn check(kind: &NodeKind) -> Result<(), Error> {
    let why = match kind {
        NodeKind::Symlink(target) if target.is_empty() || target.len() > MOST_TARGET => format!(
            "a symbolic link with a target of {} bytes: 1 to {MOST_TARGET} can be",
            target.len()
        ),
        NodeKind::Symlink(target) if target.contains(&0) => {
            "a symbolic link with a NUL in its target".to_owned()
        }
        NodeKind::CharDevice(rdev) | NodeKind::BlockDevice(rdev)
            if rdev.major > MOST_RDEV.0 || rdev.minor > MOST_RDEV.1 =>
        {
            format!(
                "a device {}:{}: up to {}:{} can be",
                rdev.major, rdev.minor, MOST_RDEV.0, MOST_RDEV.1
            )
        }
        _ => return Ok(()),
    };
    Err(Error::Invalid(why))
}

/// Where the bytes of files come from. Called by several threads.
pub trait Contents: Sync {
    /// Fills `out` with the bytes of the node from `pos` on. Blocks.
    ///
    /// # Errors
    /// Of the source; it has fewer bytes than the tree says.
    fn read(&self, node: NodeId, pos: u64, out: &mut [u8]) -> io::Result<()>;
}

/// Contents of a tree in which no file has data.
#[derive(Clone, Copy, Debug)]
pub struct NoContents;

impl Contents for NoContents {
    fn read(&self, _: NodeId, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

impl Tree {
    /// A tree of a root directory alone.
    #[must_use]
    pub fn new(root: Node) -> Tree {
        Tree {
            nodes: vec![Node {
                kind: NodeKind::Directory,
                ..root
            }],
            names: BTreeMap::from([(NodeId::ROOT, Names::new())]),
        }
    }

    /// Adds a node without a name.
    ///
    /// # Errors
    /// `Invalid`: the target of a link, or the numbers of a device, cannot be stored; 4,294,967,295 nodes are there.
    pub fn add(&mut self, node: Node) -> Result<NodeId, Error> {
        check(&node.kind)?;
        let number = u32::try_from(self.nodes.len())
            .ok()
            .filter(|n| *n < u32::MAX);
        let number =
            number.ok_or_else(|| Error::Invalid("the tree has too many files".to_owned()))?;
        let id = NodeId(number);
        if node.kind == NodeKind::Directory {
            self.names.insert(id, Names::new());
        }
        self.nodes.push(node);
        Ok(id)
    }

    /// Gives a node a name in a directory. What had that name has it no longer.
    ///
    /// # Errors
    /// `Invalid`: `parent` is no directory, the name cannot be one, or the node is a directory that has a name.
    pub fn link(&mut self, parent: NodeId, name: &[u8], node: NodeId) -> Result<(), Error> {
        let bad = name.is_empty()
            || name.len() > 255
            || name == b"."
            || name == b".."
            || name.iter().any(|byte| matches!(byte, b'/' | 0));
        if bad {
            return Err(Error::Invalid(format!(
                "{:?} cannot be a name of a file",
                String::from_utf8_lossy(name)
            )));
        }
        let Some(names) = self.names.get_mut(&parent) else {
            return Err(Error::Invalid(
                "a name in a file that is no directory".to_owned(),
            ));
        };
        names.insert(name.into(), node);
        Ok(())
    }

    /// Takes a name away, with everything below it. Returns what had it.
    pub fn unlink(&mut self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        self.names.get_mut(&parent)?.remove(name)
    }

    /// Takes all names of a directory away.
    pub fn clear(&mut self, parent: NodeId) {
        if let Some(names) = self.names.get_mut(&parent) {
            names.clear();
        }
    }

    /// The node.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The node, to be changed. It must stay what it is.
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.index()]
    }

    /// What has a name in a directory.
    #[must_use]
    pub fn child(&self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        self.names.get(&parent)?.get(name).copied()
    }

    /// The names of a directory in the order of their bytes; of anything else, none.
    pub fn children(&self, parent: NodeId) -> impl Iterator<Item = (&[u8], NodeId)> {
        let names = self.names.get(&parent).into_iter().flatten();
        names.map(|(name, id)| (&name[..], *id))
    }

    /// All nodes, also those that have no name any more.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        (0..).map(NodeId).zip(&self.nodes)
    }

    /// A path of a node, for messages: it looks through the whole tree.
    pub(super) fn path_of(&self, wanted: NodeId) -> Vec<u8> {
        let mut todo = vec![(NodeId::ROOT, Vec::new())];
        while let Some((dir, path)) = todo.pop() {
            if dir == wanted {
                return if path.is_empty() { b"/".to_vec() } else { path };
            }
            for (name, id) in self.children(dir) {
                let path = [&path[..], b"/", name].concat();
                if id == wanted {
                    return path;
                }
                if self.names.contains_key(&id) {
                    todo.push((id, path));
                }
            }
        }
        b"a file without a name".to_vec()
    }

    /// Number of nodes, also of those that have no name any more.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether the root directory is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.children(NodeId::ROOT).next().is_none()
    }
}
