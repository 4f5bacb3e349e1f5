//! A tree of files in memory: what a new file system is filled with.
//!
//! Input: nodes and names. Output: a [`Tree`]. Invariants: every directory but the root has exactly one name; a name is that of one node;
//! contents of files are not here, but asked for by [`Contents`]. Limits: names and attributes are held in memory: an empty file takes its
//! name and some 45 bytes.

use crate::entries::{self, Entries, NONE};
use crate::error::Error;
use diorite_format::inode::Rdev;
use diorite_format::{FileType, Timestamp};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;
use std::sync::Arc;

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

    pub(crate) fn file_type(&self) -> FileType {
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

/// What many nodes have in common.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Common {
    file_type: FileType,
    mode: u16,
    uid: u32,
    gid: u32,
    attributes: Vec<Attribute>,
}

/// A node, in so few bytes that a tree may have millions.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Two halves: the slot has no alignment beyond that of 32 bits.
    secs: [u32; 2],
    nanos: u32,
    common: u32,
    /// By the type: the first entry of a directory; where the rest is in `words`; [`NONE`] for nothing more.
    body: u32,
}

/// See the module.
///
/// ```
/// use diorite_mkfs::{Node, NodeId, NodeKind, Tree};
///
/// let node = |kind| Node { kind, mode: 0o755, uid: 0, gid: 0, mtime: Default::default(), attributes: Vec::new() };
/// let mut tree = Tree::new(node(NodeKind::Directory));
/// let etc = tree.add(node(NodeKind::Directory))?;
/// tree.link(NodeId::ROOT, b"etc", etc)?;
/// assert_eq!(tree.child(NodeId::ROOT, b"etc"), Some(etc));
/// # Ok::<(), diorite_mkfs::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: Vec<Slot>,
    commons: Vec<Arc<Common>>,
    known: HashMap<Arc<Common>, u32>,
    /// Of files: the length and, if that says so, the number of ranges of data, and their bounds. Of devices: their numbers. Of links: the
    /// length of the target, and its bytes.
    words: Vec<u64>,
    entries: Entries,
    /// Where the data of nodes is to lie: see [`Tree::set_goal`].
    goals: BTreeMap<NodeId, u64>,
}

/// In the word with a file's length: ranges follow. Without it, all of the file is data.
const WITH_RANGES: u64 = 1 << 63;

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
        NodeKind::File { len, .. } if *len >= WITH_RANGES => {
            format!("a file of {len} bytes: no file system holds it")
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
        let mut tree = Tree {
            nodes: Vec::new(),
            commons: Vec::new(),
            known: HashMap::new(),
            words: Vec::new(),
            entries: Entries::default(),
            goals: BTreeMap::new(),
        };
        let slot = tree.slot(FileType::Directory, root, NONE);
        tree.nodes.push(slot);
        tree
    }

    /// Adds a node without a name.
    ///
    /// # Errors
    /// `Invalid`: the target of a link, the numbers of a device or the length of a file cannot be stored; 4,294,967,295 nodes are there.
    pub fn add(&mut self, node: Node) -> Result<NodeId, Error> {
        check(&node.kind)?;
        let full = || Error::Invalid("the tree has too many files".to_owned());
        let number = u32::try_from(self.nodes.len()).ok();
        let number = number.filter(|n| *n < NONE).ok_or_else(full)?;
        let at = u32::try_from(self.words.len()).ok();
        let at = at.filter(|at| *at < NONE).ok_or_else(full)?;
        let body = match self.keep(&node.kind) {
            true => at,
            false => NONE,
        };
        let slot = self.slot(node.kind.file_type(), node, body);
        self.nodes.push(slot);
        Ok(NodeId(number))
    }

    /// Puts what does not fit into a slot into `words`; false if there is nothing.
    fn keep(&mut self, kind: &NodeKind) -> bool {
        let before = self.words.len();
        match kind {
            NodeKind::File { len, data } => match &data[..] {
                [] if *len == 0 => {}
                [all] if *all == (0..*len) => self.words.push(*len),
                ranges => {
                    self.words.extend([*len | WITH_RANGES, ranges.len() as u64]);
                    self.words
                        .extend(ranges.iter().flat_map(|range| [range.start, range.end]));
                }
            },
            NodeKind::Symlink(target) => {
                self.words.push(target.len() as u64);
                self.words.extend(target.chunks(8).map(|bytes| {
                    let mut word = [0; 8];
                    word[..bytes.len()].copy_from_slice(bytes);
                    u64::from_ne_bytes(word)
                }));
            }
            NodeKind::CharDevice(rdev) | NodeKind::BlockDevice(rdev) => {
                self.words
                    .push(u64::from(rdev.major) << 32 | u64::from(rdev.minor));
            }
            NodeKind::Directory | NodeKind::Fifo | NodeKind::Socket => {}
        }
        self.words.len() > before
    }

    fn slot(&mut self, file_type: FileType, node: Node, body: u32) -> Slot {
        let secs = node.mtime.secs as u64;
        let common = Common {
            file_type,
            mode: node.mode,
            uid: node.uid,
            gid: node.gid,
            attributes: node.attributes,
        };
        Slot {
            secs: [secs as u32, (secs >> 32) as u32],
            nanos: node.mtime.nanos,
            common: self.common(common),
            body,
        }
    }

    fn common(&mut self, common: Common) -> u32 {
        if let Some(known) = self.known.get(&common) {
            return *known;
        }
        // There are not more than nodes, or changes of nodes.
        let number = self.commons.len() as u32;
        let common = Arc::new(common);
        self.commons.push(common.clone());
        self.known.insert(common, number);
        number
    }

    /// Gives a node a name in a directory. What had that name has it no longer.
    ///
    /// # Errors
    /// `Invalid`: `parent` is no directory, or the name cannot be one; the tree has too many names.
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
        if !self.is_dir(parent) {
            return Err(Error::Invalid(
                "a name in a file that is no directory".to_owned(),
            ));
        }
        let head = &mut self.nodes[parent.index()].body;
        self.entries.put(parent.0, head, name, node.0)
    }

    /// Takes a name away, with everything below it. Returns what had it.
    pub fn unlink(&mut self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        self.entries.remove(parent.0, name).map(NodeId)
    }

    /// The node.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Node {
        let slot = &self.nodes[id.index()];
        let common = self.common_of(id);
        Node {
            kind: self.kind(id),
            mode: common.mode,
            uid: common.uid,
            gid: common.gid,
            mtime: Timestamp {
                secs: (u64::from(slot.secs[1]) << 32 | u64::from(slot.secs[0])).cast_signed(),
                nanos: slot.nanos,
            },
            attributes: common.attributes.clone(),
        }
    }

    fn common_of(&self, id: NodeId) -> &Common {
        &self.commons[self.nodes[id.index()].common as usize]
    }

    /// What a node is.
    #[must_use]
    pub fn kind(&self, id: NodeId) -> NodeKind {
        let body = self.nodes[id.index()].body;
        let words = self.words.get(body as usize..).unwrap_or_default();
        let rdev = || Rdev {
            major: (words[0] >> 32) as u32,
            minor: words[0] as u32,
        };
        match self.file_type(id) {
            FileType::Directory => NodeKind::Directory,
            FileType::Regular => match words {
                [] => NodeKind::plain_file(0),
                [len, ..] if len & WITH_RANGES == 0 => NodeKind::plain_file(*len),
                [len, ..] => NodeKind::File {
                    len: len & !WITH_RANGES,
                    data: words[2..][..2 * words[1] as usize]
                        .chunks_exact(2)
                        .map(|ends| ends[0]..ends[1])
                        .collect(),
                },
            },
            FileType::Symlink => {
                let len = words[0] as usize;
                let whole = words[1..=len.div_ceil(8)].iter();
                let bytes = whole.flat_map(|word| word.to_ne_bytes());
                NodeKind::Symlink(bytes.take(len).collect())
            }
            FileType::CharDevice => NodeKind::CharDevice(rdev()),
            FileType::BlockDevice => NodeKind::BlockDevice(rdev()),
            FileType::Fifo => NodeKind::Fifo,
            FileType::Socket => NodeKind::Socket,
        }
    }

    /// The type of a node.
    #[must_use]
    pub fn file_type(&self, id: NodeId) -> FileType {
        self.common_of(id).file_type
    }

    /// Whether a node is a directory.
    #[must_use]
    pub fn is_dir(&self, id: NodeId) -> bool {
        self.file_type(id) == FileType::Directory
    }

    /// The length of a file; of anything else, 0.
    #[must_use]
    pub fn file_len(&self, id: NodeId) -> u64 {
        let body = self.nodes[id.index()].body;
        match self.file_type(id) {
            FileType::Regular if body != NONE => self.words[body as usize] & !WITH_RANGES,
            _ => 0,
        }
    }

    /// Whether a node has extended attributes.
    #[must_use]
    pub fn has_attributes(&self, id: NodeId) -> bool {
        !self.common_of(id).attributes.is_empty()
    }

    /// Gives a node what another one has: owners, permissions, time and extended attributes. It stays what it is, with its contents.
    pub fn set_attributes(&mut self, id: NodeId, of: Node) {
        let body = self.nodes[id.index()].body;
        self.nodes[id.index()] = self.slot(self.file_type(id), of, body);
    }

    /// Has the data of a file lie in the free blocks of the volume from this one on, in order, and not where files follow each other. Files
    /// with the same goal follow each other from there on, as they were added. Behind the last block it goes on at the start of the volume.
    pub fn set_goal(&mut self, id: NodeId, block: u64) {
        self.goals.insert(id, block);
    }

    /// The nodes with a goal, in the order in which they were added.
    pub(crate) fn goals(&self) -> impl Iterator<Item = (NodeId, u64)> {
        self.goals.iter().map(|(id, goal)| (*id, *goal))
    }

    /// What has a name in a directory.
    #[must_use]
    pub fn child(&self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        self.entries.get(parent.0, name).map(NodeId)
    }

    /// The names of a directory in the order of their bytes; of anything else, none.
    pub fn children(&self, parent: NodeId) -> impl Iterator<Item = (&[u8], NodeId)> {
        let listing = self.listing(parent);
        (0..listing.len()).map(move |n| listing.get(n))
    }

    /// As [`Tree::children`], by number.
    pub(crate) fn listing(&self, parent: NodeId) -> Listing<'_> {
        Listing(self.entries.listing(match self.is_dir(parent) {
            true => self.nodes[parent.index()].body,
            false => NONE,
        }))
    }

    /// Brings the names of all directories into their order once, for those who ask often.
    pub(crate) fn order(&mut self) {
        for number in 0..self.nodes.len() {
            // There are fewer than 2^32.
            if self.is_dir(NodeId(number as u32)) {
                self.entries.order(&mut self.nodes[number].body);
            }
        }
    }

    /// Nodes with attributes, also those that have no name any more.
    pub(crate) fn with_attributes(&self) -> impl Iterator<Item = (NodeId, Node)> {
        let all = (0..).map(NodeId).take(self.nodes.len());
        all.filter(|id| self.has_attributes(*id))
            .map(|id| (id, self.node(id)))
    }

    /// A path of a node, for messages: it looks through the whole tree.
    pub(crate) fn path_of(&self, wanted: NodeId) -> Vec<u8> {
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
                if self.is_dir(id) {
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
        self.listing(NodeId::ROOT).len() == 0
    }
}

/// The names of a directory in the order of their bytes, by their numbers from 0 on.
pub(crate) struct Listing<'t>(entries::Listing<'t>);

impl<'t> Listing<'t> {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn get(&self, number: usize) -> (&'t [u8], NodeId) {
        let (name, node) = self.0.get(number);
        (name, NodeId(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(kind: NodeKind, secs: i64) -> Node {
        Node {
            kind,
            mode: 0o644,
            uid: 1000,
            gid: 1,
            mtime: Timestamp { secs, nanos: 5 },
            attributes: vec![(b"user.a"[..].into(), b"1"[..].into())],
        }
    }

    /// However a node is kept, it comes back.
    #[test]
    fn nodes_come_back() {
        let rdev = Rdev {
            major: 0xFFF,
            minor: 0xF_FFFF,
        };
        let sparse = NodeKind::File {
            len: 1 << 40,
            data: [0..4096, 8192..8193].into(),
        };
        let hole = NodeKind::File {
            len: 77,
            data: [].into(),
        };
        let kinds = [
            NodeKind::plain_file(0),
            NodeKind::plain_file(12),
            sparse,
            hole,
            NodeKind::Symlink(b"123456789"[..].into()),
            NodeKind::Symlink(vec![b'x'; 4095].into()),
            NodeKind::CharDevice(rdev),
            NodeKind::BlockDevice(rdev),
            NodeKind::Fifo,
            NodeKind::Socket,
            NodeKind::Directory,
        ];
        let mut tree = Tree::new(node(NodeKind::Directory, 0));
        let times = [i64::MIN, -1, 0, 1 << 33, i64::MAX];
        let all: Vec<Node> = kinds
            .iter()
            .flat_map(|kind| times.map(|secs| node(kind.clone(), secs)))
            .collect();
        let ids: Vec<NodeId> = all
            .iter()
            .map(|node| tree.add(node.clone()).unwrap())
            .collect();
        for (id, node) in ids.iter().zip(&all) {
            assert_eq!(tree.node(*id), *node);
            tree.set_attributes(
                *id,
                Node {
                    mode: 0o700,
                    ..self::node(NodeKind::Fifo, 3)
                },
            );
            assert_eq!(
                tree.node(*id),
                Node {
                    mode: 0o700,
                    mtime: Timestamp { secs: 3, nanos: 5 },
                    ..node.clone()
                }
            );
        }
        let long = node(NodeKind::plain_file(1 << 63), 0);
        assert!(matches!(tree.add(long), Err(Error::Invalid(_))));
    }
}
