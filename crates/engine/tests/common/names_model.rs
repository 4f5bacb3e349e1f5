//! A tree of names in memory, with the kernel's rules, to compare with.
//!
//! Input: operations on paths. Output: what each must give: done, or the name of an error. Invariants: an operation that fails changes nothing.
//! Limits: symbolic links are dangling, so a path through one leads nowhere.

use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Dir(BTreeMap<String, usize>),
    File,
    Link(String),
    /// A character device.
    Node(u32, u32),
}

#[derive(Clone, Debug)]
pub struct Node {
    pub kind: Kind,
    pub links: usize,
    parent: usize,
}

pub type Said = Result<(), &'static str>;

#[derive(Clone, Copy, Debug, Default)]
pub struct How {
    pub no_replace: bool,
    pub exchange: bool,
    pub whiteout: bool,
}

/// Node 0 is the root.
pub struct Model {
    pub nodes: Vec<Node>,
}

impl Model {
    pub fn new() -> Model {
        let root = Node {
            kind: Kind::Dir(BTreeMap::new()),
            links: 2,
            parent: 0,
        };
        Model { nodes: vec![root] }
    }

    fn dir(&self, n: usize) -> Result<&BTreeMap<String, usize>, &'static str> {
        match &self.nodes[n].kind {
            Kind::Dir(names) => Ok(names),
            Kind::Link(_) => Err("NotFound"),
            _ => Err("NotADirectory"),
        }
    }

    pub fn is_dir(&self, n: usize) -> bool {
        matches!(self.nodes[n].kind, Kind::Dir(_))
    }

    fn names(&mut self, n: usize) -> &mut BTreeMap<String, usize> {
        match &mut self.nodes[n].kind {
            Kind::Dir(names) => names,
            other => panic!("{other:?}"),
        }
    }

    /// The directory of the last name, and that name.
    fn spot<'p>(&self, path: &'p str) -> Result<(usize, &'p str), &'static str> {
        let (parent, name) = path.rsplit_once('/').unwrap();
        let mut at = 0;
        for part in parent.split('/').filter(|p| !p.is_empty()) {
            at = *self.dir(at)?.get(part).ok_or("NotFound")?;
        }
        self.dir(at)?;
        Ok((at, name))
    }

    fn find(&self, path: &str) -> Result<usize, &'static str> {
        let (dir, name) = self.spot(path)?;
        self.dir(dir)?.get(name).copied().ok_or("NotFound")
    }

    pub fn make(&mut self, path: &str, kind: Kind) -> Said {
        let (dir, name) = self.spot(path)?;
        if self.dir(dir)?.contains_key(name) {
            return Err("Exists");
        }
        let is_dir = matches!(kind, Kind::Dir(_));
        let new = self.nodes.len();
        self.nodes.push(Node {
            kind,
            links: 1 + usize::from(is_dir),
            parent: dir,
        });
        self.nodes[dir].links += usize::from(is_dir);
        self.names(dir).insert(name.to_owned(), new);
        Ok(())
    }

    pub fn unlink(&mut self, path: &str) -> Said {
        let (dir, name) = self.spot(path)?;
        let gone = self.find(path)?;
        if self.is_dir(gone) {
            return Err("IsADirectory");
        }
        self.nodes[gone].links -= 1;
        self.names(dir).remove(name);
        Ok(())
    }

    pub fn rmdir(&mut self, path: &str) -> Said {
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

    pub fn link(&mut self, from: &str, to: &str) -> Said {
        let node = self.find(from)?;
        let (dir, name) = self.spot(to)?;
        if self.is_dir(node) {
            return Err("NotPermitted");
        }
        if self.dir(dir)?.contains_key(name) {
            return Err("Exists");
        }
        self.nodes[node].links += 1;
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

    pub fn rename(&mut self, from: &str, to: &str, how: How) -> Said {
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
            self.make(from, Kind::Node(0, 0))?;
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

    /// Every path with its node.
    pub fn all(&self) -> BTreeMap<String, usize> {
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
