//! A model of a tree of names in memory, with what they refer to and the kernel's rules.
//!
//! Input: operations on paths. Output: the expected result of each: success, or the name of an error. Invariants: an operation that
//! fails changes nothing.
//! Limits: symbolic links are dangling, so a path through one leads nowhere.

use crate::tree::has::{Has, Sort};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Dir(BTreeMap<String, usize>),
    File,
    Link(String),
    /// A device node: major and minor number.
    Node(u32, u32),
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) links: usize,
    pub(super) has: Has,
    /// The contents of a file.
    pub(super) bytes: Vec<u8>,
    /// Made without a name, and not named yet.
    pub is_temporary: bool,
    parent: usize,
}

impl Kind {
    pub(super) fn sort(&self) -> Sort {
        match self {
            Kind::Dir(_) => Sort::Dir,
            Kind::File => Sort::File,
            Kind::Link(_) => Sort::Link,
            Kind::Node(..) => Sort::Other,
        }
    }
}

pub(super) type Said = Result<(), &'static str>;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct How {
    pub no_replace: bool,
    pub(super) exchange: bool,
    pub(super) whiteout: bool,
}

/// Node 0 is the root.
pub(super) struct Model {
    pub(super) nodes: Vec<Node>,
}

impl Model {
    pub(super) fn new() -> Model {
        let root = Node {
            kind: Kind::Dir(BTreeMap::new()),
            links: 2,
            has: Has::root(),
            bytes: Vec::new(),
            is_temporary: false,
            parent: 0,
        };
        Model { nodes: vec![root] }
    }

    /// A new node without a name, with what it inherits from this directory.
    fn born(&mut self, dir: usize, kind: Kind, mode: u16) -> usize {
        let has = self.nodes[dir].has.handed_down(kind.sort(), mode);
        self.nodes.push(Node {
            links: usize::from(kind.sort() == Sort::Dir),
            kind,
            has,
            bytes: Vec::new(),
            is_temporary: false,
            parent: dir,
        });
        self.nodes.len() - 1
    }

    /// A file without a name, made in the directory at this path.
    pub(super) fn temporary(&mut self, dir: &str) -> Result<usize, &'static str> {
        let dir = match dir {
            "" => 0,
            path => self.find(path)?,
        };
        self.dir(dir)?;
        let new = self.born(dir, Kind::File, 0o640);
        self.nodes[new].is_temporary = true;
        Ok(new)
    }

    fn dir(&self, n: usize) -> Result<&BTreeMap<String, usize>, &'static str> {
        match &self.nodes[n].kind {
            Kind::Dir(names) => Ok(names),
            Kind::Link(target) if target.len() > 255 => Err("NameTooLong"),
            Kind::Link(_) => Err("NotFound"),
            _ => Err("NotADirectory"),
        }
    }

    pub(super) fn is_dir(&self, n: usize) -> bool {
        matches!(self.nodes[n].kind, Kind::Dir(_))
    }

    /// The names of a directory, to be changed.
    fn names(&mut self, n: usize) -> &mut BTreeMap<String, usize> {
        self.nodes[n].has.mtime = None;
        match &mut self.nodes[n].kind {
            Kind::Dir(names) => names,
            other => panic!("{other:?}"),
        }
    }

    /// The directory of a path's last name, and that name.
    fn spot<'p>(&self, path: &'p str) -> Result<(usize, &'p str), &'static str> {
        let (parent, name) = path.rsplit_once('/').unwrap();
        let mut at = 0;
        for part in parent.split('/').filter(|p| !p.is_empty()) {
            at = *self.dir(at)?.get(part).ok_or("NotFound")?;
        }
        self.dir(at)?;
        Ok((at, name))
    }

    pub(super) fn find(&self, path: &str) -> Result<usize, &'static str> {
        let (dir, name) = self.spot(path)?;
        self.dir(dir)?.get(name).copied().ok_or("NotFound")
    }

    pub(super) fn make(&mut self, path: &str, kind: Kind, mode: u16) -> Said {
        let (dir, name) = self.spot(path)?;
        if self.dir(dir)?.contains_key(name) {
            return Err("Exists");
        }
        let new = self.born(dir, kind, mode);
        self.nodes[new].links += 1;
        self.nodes[dir].links += usize::from(self.is_dir(new));
        self.names(dir).insert(name.to_owned(), new);
        Ok(())
    }

    pub(super) fn unlink(&mut self, path: &str) -> Said {
        let (dir, name) = self.spot(path)?;
        let gone = self.find(path)?;
        if self.is_dir(gone) {
            return Err("IsADirectory");
        }
        self.nodes[gone].links -= 1;
        self.names(dir).remove(name);
        Ok(())
    }

    pub(super) fn rmdir(&mut self, path: &str) -> Said {
        let (dir, name) = self.spot(path)?;
        let gone = self.find(path)?;
        match &self.nodes[gone].kind {
            Kind::Dir(names) if names.is_empty() => {}
            Kind::Dir(_) => return Err("NotEmpty"),
            _ => return Err("NotADirectory"),
        }
        self.nodes[dir].links -= 1;
        self.names(dir).remove(name);
        Ok(())
    }

    pub(super) fn link(&mut self, from: &str, to: &str) -> Said {
        let node = self.find(from)?;
        self.link_node(node, to)
    }

    pub(super) fn link_node(&mut self, node: usize, to: &str) -> Said {
        let (dir, name) = self.spot(to)?;
        if self.is_dir(node) {
            return Err("NotPermitted");
        }
        if self.dir(dir)?.contains_key(name) {
            return Err("Exists");
        }
        self.nodes[node].links += 1;
        self.nodes[node].is_temporary = false;
        self.names(dir).insert(name.to_owned(), node);
        Ok(())
    }

    fn is_inside(&self, mut at: usize, top: usize) -> bool {
        loop {
            if at == top {
                return true;
            }
            if at == 0 {
                return false;
            }
            at = self.nodes[at].parent;
        }
    }

    pub(super) fn rename(&mut self, from: &str, to: &str, how: How) -> Said {
        let ((old, old_name), (new, new_name)) = (self.spot(from)?, self.spot(to)?);
        let moved = self.find(from)?;
        let there = self.dir(new)?.get(new_name).copied();
        let there_is_dir = there.is_some_and(|t| self.is_dir(t));
        if old != new {
            if self.is_dir(moved) && self.is_inside(new, moved) {
                return Err("Invalid");
            }
            if how.exchange && there_is_dir && self.is_inside(old, there.unwrap()) {
                return Err("Invalid");
            }
        }
        match there {
            None if how.exchange => return Err("NotFound"),
            Some(_) if how.no_replace => return Err("Exists"),
            Some(there) if there == moved => return Ok(()),
            Some(there) if how.exchange => {
                self.place(old, old_name, there);
                self.place(new, new_name, moved);
                self.count(old, new);
                return Ok(());
            }
            Some(there) => {
                match (self.is_dir(moved), there_is_dir) {
                    (true, false) => return Err("NotADirectory"),
                    (false, true) => return Err("IsADirectory"),
                    (true, true) if !self.dir(there)?.is_empty() => return Err("NotEmpty"),
                    _ => {}
                }
                self.nodes[there].links -= 1;
            }
            None => {}
        }
        self.names(old).remove(old_name);
        self.place(new, new_name, moved);
        if how.whiteout {
            self.make(from, Kind::Node(0, 0), 0)?;
        }
        self.count(old, new);
        Ok(())
    }

    fn place(&mut self, dir: usize, name: &str, node: usize) {
        self.names(dir).insert(name.to_owned(), node);
        self.nodes[node].parent = dir;
    }

    fn count(&mut self, one: usize, two: usize) {
        for dir in [one, two] {
            let names = self.dir(dir).unwrap();
            let dirs = names.values().filter(|n| self.is_dir(**n)).count();
            self.nodes[dir].links = 2 + dirs;
        }
    }

    /// Every path, with the number of its node.
    pub(super) fn all(&self) -> BTreeMap<String, usize> {
        let (mut all, mut todo) = (BTreeMap::new(), vec![(String::new(), 0)]);
        while let Some((path, n)) = todo.pop() {
            if let Kind::Dir(names) = &self.nodes[n].kind {
                todo.extend(names.iter().map(|(name, n)| (format!("{path}/{name}"), *n)));
            }
            all.insert(path, n);
        }
        all
    }
}
