//! Entries of all sources, in order, become one tree.
//!
//! Input: paths with nodes and origins; whiteouts; rules. Output: a [`Tree`] and the origin of each file. Invariants: a path never leads
//! out of the tree: `..` is refused, and a symbolic link on the way is followed inside the tree; what is there already is replaced by what
//! comes later. Limits: names and attributes are held in memory.

use crate::error::{Error, Place};
use crate::labels::{self, Label};
use crate::origin::{Origin, Origins};
use crate::warnings::Warnings;
use diorite::mkfs::{MkfsOptions, Node, NodeId, NodeKind, Tree};
use diorite::{Timestamp, Volume};
use std::collections::HashSet;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// Bytes of a path, as of the kernel: a longer one could not be opened, and would make thousands of directories.
const MOST_PATH: usize = 4096;
/// Symbolic links that are followed on one path.
const MOST_LINKS: u32 = 40;

/// Numbers of owners that become others: `count` of them, from `from` on, become those from `to` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerMap {
    /// The first number in the source.
    pub from: u32,
    /// What it becomes.
    pub to: u32,
    /// How many.
    pub count: u32,
}

impl OwnerMap {
    fn apply(maps: &[OwnerMap], id: u32) -> u32 {
        let inside = |map: &&OwnerMap| id >= map.from && id - map.from < map.count;
        let map = maps.iter().find(inside);
        map.map_or(id, |map| map.to.saturating_add(id - map.from))
    }
}

/// What is changed on the way.
///
/// ```
/// use diorite_image::Rules;
///
/// // Everything is root's and not newer than the release, and the history stays out.
/// let rules = Rules::default().owner((0, 0)).newest(1_700_000_000).exclude(vec!["/.git".parse()?]);
/// # assert_eq!(rules.exclude.len(), 1);
/// # Ok::<(), diorite_image::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Rules {
    /// Everything belongs to this owner and group.
    pub owner: Option<(u32, u32)>,
    /// Owners that become others.
    pub uids: Vec<OwnerMap>,
    /// Groups that become others.
    pub gids: Vec<OwnerMap>,
    /// What is left out.
    pub exclude: Vec<Exclude>,
    /// A file of the host that is left out, by device and inode: the image that is made.
    pub leave_out: Option<(u64, u64)>,
    /// Nothing is newer than this many seconds since 1970.
    pub newest: Option<i64>,
    /// Extended attributes are left out.
    pub no_attributes: bool,
    /// Where bytes are set aside that can be read but once, in a file without a name; none: the directory for temporary files.
    pub spool_in: Option<PathBuf>,
    /// SELinux labels, as in a file_contexts file.
    pub labels: Vec<Label>,
}

diorite_block::setters! {
    Rules {
        uids: Vec<OwnerMap>,
        gids: Vec<OwnerMap>,
        exclude: Vec<Exclude>,
        no_attributes: bool,
        labels: Vec<Label>,
    } option {
        owner: (u32, u32),
        leave_out: (u64, u64),
        newest: i64,
        spool_in: PathBuf,
    }
}

/// Paths from the root of the source that are left out, with what is below them.
#[derive(Clone, Debug)]
pub struct Exclude {
    pattern: regex::Regex,
    /// It is of names, and not of paths.
    of_names: bool,
}

impl FromStr for Exclude {
    type Err = Error;

    /// `*` is any text without a slash, `**` any text, `?` a character, or what is none in UTF-8; without a slash it is of names.
    fn from_str(text: &str) -> Result<Exclude, Error> {
        let plain = text.trim_end_matches('/');
        let (mut pattern, mut rest) = ("(?s)^".to_owned(), plain.trim_start_matches('/'));
        while let Some(first) = rest.chars().next() {
            rest = match rest.strip_prefix("**") {
                Some(others) => {
                    pattern.push_str(".*");
                    others
                }
                None => {
                    match first {
                        '*' => pattern.push_str("[^/]*"),
                        '?' => pattern.push_str("[^/]"),
                        other => pattern.push_str(&regex::escape(&other.to_string())),
                    }
                    &rest[first.len_utf8()..]
                }
            };
        }
        pattern.push('$');
        let pattern = regex::Regex::new(&pattern);
        Ok(Exclude {
            pattern: pattern.map_err(|e| Error::new(format!("{text}: {e}")))?,
            of_names: !plain.contains('/'),
        })
    }
}

impl Rules {
    /// What becomes of an owner and a group.
    fn owner_of(&self, uid: u32, gid: u32) -> (u32, u32) {
        let mapped = || {
            (
                OwnerMap::apply(&self.uids, uid),
                OwnerMap::apply(&self.gids, gid),
            )
        };
        self.owner.unwrap_or_else(mapped)
    }

    /// Reads a file_contexts file.
    ///
    /// # Errors
    /// A line that is none, with its number.
    pub fn read_labels(&mut self, text: &str) -> Result<(), Error> {
        labels::read(&mut self.labels, text)
    }
}

/// The directories on the way of a path, the root first.
type Way = Vec<NodeId>;
type Name = Vec<u8>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Assembly {
    pub(crate) tree: Tree,
    pub(crate) origins: Origins,
    /// Which source a node is of, by node.
    layers: Vec<u32>,
    layer: u32,
    /// Names that this source has given to nodes of earlier ones, by directory.
    linked: HashSet<(NodeId, Name)>,
    pub(crate) rules: Rules,
    /// Time of directories that no source has.
    made_at: Timestamp,
    /// Notes of volumes that are sources, after their locators.
    pub(crate) notes: Vec<(String, String)>,
    /// Volumes that are sources: they stay open, also without a file whose data is to be read, so that they are known to be in use.
    pub(crate) volumes: Vec<Arc<Volume>>,
    /// What is odd about the source that is being read.
    pub(crate) warnings: Warnings,
    /// What was odd about the others.
    pub(crate) told: Vec<String>,
}

impl Assembly {
    pub(crate) fn new(options: &MkfsOptions) -> Assembly {
        let made_at = Timestamp {
            secs: options.time,
            nanos: 0,
        };
        let root = Node {
            kind: NodeKind::Directory,
            mode: options.root_mode,
            uid: options.root_owner.0,
            gid: options.root_owner.1,
            mtime: made_at,
            attributes: Vec::new(),
        };
        Assembly {
            tree: Tree::new(root),
            origins: Origins::default(),
            layers: vec![0],
            layer: 0,
            linked: HashSet::new(),
            rules: Rules::default(),
            made_at,
            notes: Vec::new(),
            volumes: Vec::new(),
            warnings: Warnings::default(),
            told: Vec::new(),
        }
    }

    /// The time of what has none of its own.
    pub(crate) fn made_at(&self) -> Timestamp {
        self.made_at
    }

    /// What comes now is above what was there before.
    pub(crate) fn next_layer(&mut self) {
        self.layer += 1;
        self.linked.clear();
    }

    /// Files, directories included, and bytes of data.
    pub(crate) fn count(&self) -> (u64, u64) {
        let (mut files, mut bytes) = (0, 0);
        let mut seen = vec![false; self.tree.len()];
        let mut todo = vec![NodeId::ROOT];
        while let Some(dir) = todo.pop() {
            for (_, id) in self.tree.children(dir) {
                if std::mem::replace(&mut seen[id.index()], true) {
                    continue;
                }
                files += 1;
                match self.tree.kind(id) {
                    NodeKind::Directory => todo.push(id),
                    NodeKind::File { data, .. } => {
                        bytes += data.iter().map(|r| r.end - r.start).sum::<u64>()
                    }
                    _ => {}
                }
            }
        }
        (files, bytes)
    }

    /// Whether a path is left out by the rules.
    pub(crate) fn is_excluded(&self, path: &[u8]) -> bool {
        let path = path.strip_prefix(b"./").unwrap_or(path);
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let path = path.strip_suffix(b"/").unwrap_or(path);
        if self.rules.exclude.is_empty() || path.is_empty() {
            return false;
        }
        // Each directory on the way may be left out, and everything below with it.
        let ends = path
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'/')
            .map(|(n, _)| n);
        ends.chain([path.len()]).any(|end| {
            let upto = &path[..end];
            let name = upto.rsplit(|byte| *byte == b'/').next().unwrap_or(upto);
            let rules = self.rules.exclude.iter();
            rules
                .map(|rule| (rule, if rule.of_names { name } else { upto }))
                .any(|(rule, what)| rule.pattern.is_match(&String::from_utf8_lossy(what)))
        })
    }

    /// Puts a file at a path, or gives a directory there new attributes. Returns it.
    pub(crate) fn put(
        &mut self,
        path: &[u8],
        mut node: Node,
        origin: Origin,
    ) -> Result<NodeId, Error> {
        self.apply_rules(&mut node);
        let Some((dir, name)) = self.place_here(path)? else {
            if node.kind != NodeKind::Directory {
                return Err(Error::new("the root is a directory"));
            }
            self.tree.set_attributes(NodeId::ROOT, node);
            return Ok(NodeId::ROOT);
        };
        if let Some(there) = self.tree.child(dir, &name)
            && node.kind == NodeKind::Directory
            && self.tree.is_dir(there)
        {
            self.tree.set_attributes(there, node);
            self.layers[there.index()] = self.layer;
            return Ok(there);
        }
        let id = self.add(node, origin)?;
        self.tree.link(dir, &name, id)?;
        Ok(id)
    }

    /// A file that has no name until [`Assembly::link_node`] gives it one.
    pub(crate) fn put_nameless(&mut self, mut node: Node, origin: Origin) -> Result<NodeId, Error> {
        self.apply_rules(&mut node);
        self.add(node, origin)
    }

    fn add(&mut self, node: Node, origin: Origin) -> Result<NodeId, Error> {
        let id = self.tree.add(node)?;
        self.origins.add(id, self.tree.file_len(id), origin)?;
        self.layers.push(self.layer);
        Ok(id)
    }

    /// Gives a file at `target` another name.
    pub(crate) fn hard_link(&mut self, path: &[u8], target: &[u8]) -> Result<(), Error> {
        let found = self.lookup(target)?.ok_or_else(|| no_target(target))?;
        self.link_node(path, found)
    }

    pub(crate) fn link_node(&mut self, path: &[u8], node: NodeId) -> Result<(), Error> {
        if self.tree.is_dir(node) {
            return Err(Error::new("a hard link to a directory"));
        }
        let place = self.place_here(path)?;
        let (dir, name) = place.ok_or_else(|| Error::new("the root is a directory"))?;
        self.tree.link(dir, &name, node)?;
        if self.layers[node.index()] < self.layer {
            self.linked.insert((dir, name));
        }
        Ok(())
    }

    /// Removes what lower layers have at a path, whatever this layer has put there before.
    pub(crate) fn white_out(&mut self, path: &[u8]) -> Result<(), Error> {
        let place = self.lookup_place(path)?;
        let Some((dir, name)) = place else {
            return Ok(());
        };
        match self.tree.child(dir, &name) {
            Some(there) if self.is_lower(dir, &name, there) => {
                self.tree.unlink(dir, &name);
            }
            Some(there) => self.remove_lower(there),
            None => {}
        }
        Ok(())
    }

    /// Removes everything that lower layers have in a directory.
    pub(crate) fn make_opaque(&mut self, path: &[u8]) -> Result<(), Error> {
        let way = self.walk(components(path)?, false)?;
        if let Some(dir) = way.and_then(|way| way.last().copied()) {
            self.remove_lower(dir);
        }
        Ok(())
    }

    /// Whether a name with its node is of lower layers alone.
    fn is_lower(&self, dir: NodeId, name: &[u8], node: NodeId) -> bool {
        self.layers[node.index()] < self.layer
            && (self.linked.is_empty() || !self.linked.contains(&(dir, name.to_vec())))
    }

    /// Removes names of lower layers below a directory, also from directories that this layer has, too.
    fn remove_lower(&mut self, dir: NodeId) {
        let mut todo = vec![dir];
        while let Some(dir) = todo.pop() {
            let mut lower = Vec::new();
            for (name, id) in self.tree.children(dir) {
                match self.is_lower(dir, name, id) {
                    true => lower.push(name.to_vec()),
                    false => todo.push(id),
                }
            }
            for name in lower {
                self.tree.unlink(dir, &name);
            }
        }
    }

    fn apply_rules(&self, node: &mut Node) {
        let rules = &self.rules;
        (node.uid, node.gid) = rules.owner_of(node.uid, node.gid);
        if let Some(newest) = rules.newest
            && node.mtime.secs >= newest
        {
            node.mtime = Timestamp {
                secs: newest,
                nanos: 0,
            };
        }
        if rules.no_attributes {
            node.attributes.clear();
        }
    }

    /// The directories on the way and the name of a path; none for the root. Directories that are missing are made.
    fn place(&mut self, path: &[u8]) -> Result<Option<(Way, Name)>, Error> {
        let mut names = components(path)?;
        let Some(last) = names.pop() else {
            return Ok(None);
        };
        let way = self.walk(names, true)?;
        let way = way.ok_or_else(|| Error::new("it is below a file that is no directory"))?;
        Ok(Some((way, last)))
    }

    /// As [`Assembly::place`], for something that this layer has: so it has the directories on the way, too.
    fn place_here(&mut self, path: &[u8]) -> Result<Option<(NodeId, Name)>, Error> {
        let Some((way, name)) = self.place(path)? else {
            return Ok(None);
        };
        for dir in &way {
            self.layers[dir.index()] = self.layer;
        }
        Ok(way.last().map(|dir| (*dir, name)))
    }

    /// What is at a path; symbolic links on the way are followed, the last one is not.
    pub(crate) fn lookup(&mut self, path: &[u8]) -> Result<Option<NodeId>, Error> {
        if components(path)?.is_empty() {
            return Ok(Some(NodeId::ROOT));
        }
        let place = self.lookup_place(path)?;
        Ok(place.and_then(|(dir, name)| self.tree.child(dir, &name)))
    }

    /// The directory and the name of a path whose directories are there.
    fn lookup_place(&mut self, path: &[u8]) -> Result<Option<(NodeId, Name)>, Error> {
        let mut names = components(path)?;
        let Some(last) = names.pop() else {
            return Ok(None);
        };
        let way = self.walk(names, false)?;
        Ok(way
            .and_then(|way| way.last().copied())
            .map(|dir| (dir, last)))
    }

    /// The directories on the way that these names lead from the root. `make`: those that are missing are made.
    fn walk(&mut self, names: Vec<Vec<u8>>, make: bool) -> Result<Option<Way>, Error> {
        let mut todo: Vec<Vec<u8>> = names.into_iter().rev().collect();
        let (mut stack, mut links) = (vec![NodeId::ROOT], 0);
        while let Some(name) = todo.pop() {
            let dir = *stack.last().expect("the root stays");
            match &name[..] {
                b"" | b"." => continue,
                // Of a symbolic link: above the root is the root.
                b".." => {
                    stack.truncate((stack.len() - 1).max(1));
                    continue;
                }
                _ => {}
            }
            let next = match self.tree.child(dir, &name) {
                Some(next) => next,
                None if make => self.missing(dir, &name)?,
                None => return Ok(None),
            };
            match self.tree.kind(next) {
                NodeKind::Directory => stack.push(next),
                NodeKind::Symlink(target) => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(Error::new("too many symbolic links on the way"));
                    }
                    if target.starts_with(b"/") {
                        stack.truncate(1);
                    }
                    let parts = target.split(|byte| *byte == b'/').rev();
                    todo.extend(parts.map(<[u8]>::to_vec));
                }
                // A layer that has something below a name has a directory there.
                _ if make && self.is_lower(dir, &name, next) => {
                    self.tree.unlink(dir, &name);
                    stack.push(self.missing(dir, &name)?);
                }
                _ => return Ok(None),
            }
        }
        Ok(Some(stack))
    }

    fn missing(&mut self, dir: NodeId, name: &[u8]) -> Result<NodeId, Error> {
        let (uid, gid) = self.rules.owner_of(0, 0);
        let node = Node {
            kind: NodeKind::Directory,
            mode: 0o755,
            uid,
            gid,
            mtime: self.made_at,
            attributes: Vec::new(),
        };
        let id = self.tree.add(node)?;
        self.layers.push(self.layer);
        self.tree.link(dir, name, id)?;
        Ok(id)
    }

    /// Sets the labels of the rules.
    pub(crate) fn label(&mut self) -> Result<(), Error> {
        if self.rules.labels.is_empty() {
            return Ok(());
        }
        let labels = std::mem::take(&mut self.rules.labels);
        let mut todo = vec![(NodeId::ROOT, b"/".to_vec())];
        while let Some((id, path)) = todo.pop() {
            let mut node = self.tree.node(id);
            let kind = match node.kind {
                NodeKind::Directory => b'd',
                NodeKind::File { .. } => b'-',
                NodeKind::Symlink(_) => b'l',
                NodeKind::CharDevice(_) => b'c',
                NodeKind::BlockDevice(_) => b'b',
                NodeKind::Fifo => b'p',
                NodeKind::Socket => b's',
            };
            if let Some(context) = labels::find(&labels, &path, kind) {
                node.attributes
                    .retain(|(name, _)| &name[..] != b"security.selinux");
                node.attributes
                    .push((b"security.selinux"[..].into(), context.into()));
                self.tree.set_attributes(id, node);
            }
            for (name, child) in self.tree.children(id) {
                let mut below = path.clone();
                if below != b"/" {
                    below.push(b'/');
                }
                below.extend_from_slice(name);
                todo.push((child, below));
            }
        }
        self.rules.labels = labels;
        Ok(())
    }
}

pub(crate) fn no_target(target: &[u8]) -> Error {
    let target = shown(target);
    Error::new(format!(
        "the file that it is a link to is not there: {target}"
    ))
}

/// The names of a path.
///
/// # Errors
/// It leads upwards.
fn components(path: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    if path.len() > MOST_PATH {
        let why = format!("a path of {} bytes: {MOST_PATH} can be", path.len());
        return Err(Error::new(why));
    }
    let parts = path.split(|byte| *byte == b'/');
    let parts = parts.filter(|part| !part.is_empty() && *part != b".");
    let mut names = Vec::new();
    for part in parts {
        if part == b".." {
            return Err(Error::new("a path with '..' is refused")).at(shown(path));
        }
        names.push(part.to_vec());
    }
    Ok(names)
}

/// A path as text.
pub(crate) fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
