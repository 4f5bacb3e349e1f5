//! One worker: random operations on names in a directory of its own, each compared with what the model says.
//!
//! Input: a directory, a seed. Output: the model of the directory. Invariants: nobody else changes this directory, so every result is known
//! beforehand; a file without a name stays as long as it is held. Limits: data and names are few, so that operations meet.

use super::model::{Kind, Model, Node, is_below, join};
use crate::mapped::{Mapped, What};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Names of a worker; a fourth of them may be directories and symbolic links.
const MOST_NAMES: usize = 60;
/// Files that are held open.
const MOST_HELD: usize = 6;
/// How many of the last steps are told after a failure.
const TOLD: usize = 40;

/// splitmix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Bytes that show from where they are, if they are misplaced.
    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut piece = [0; 251];
        piece.fill_with(|| self.next() as u8 | 1);
        piece.iter().copied().cycle().take(len).collect()
    }
}

/// An open file.
pub(crate) struct Held {
    pub(crate) file: File,
    pub(crate) id: u64,
}

pub(crate) struct Worker {
    pub(crate) root: PathBuf,
    pub(crate) random: Random,
    pub(crate) model: Model,
    pub(crate) held: Vec<Held>,
    pub(crate) mapped: Option<Mapped>,
    owner: (u32, u32),
    next: u64,
    told: Vec<String>,
}

impl Worker {
    pub(crate) fn new(root: PathBuf, seed: u64) -> Worker {
        fs::create_dir(&root).unwrap();
        let of = fs::metadata(&root).unwrap();
        Worker {
            random: Random(seed),
            model: Model::default(),
            held: Vec::new(),
            mapped: Mapped::start(),
            owner: (of.uid(), of.gid()),
            next: 0,
            told: Vec::new(),
            root,
        }
    }

    /// So many steps. Returns what must be there.
    pub(crate) fn run(mut self, steps: usize) -> (PathBuf, Model) {
        for _ in 0..steps {
            match self.random.below(100) {
                0..55 => self.data_step(),
                _ => self.name_step(),
            }
        }
        self.held.clear();
        (self.root.clone(), std::mem::take(&mut self.model))
    }

    pub(crate) fn tell(&mut self, what: String) {
        if self.told.len() == TOLD {
            self.told.remove(0);
        }
        self.told.push(what);
    }

    pub(crate) fn place(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn name_step(&mut self) {
        match self.random.below(22) {
            0..4 => self.create(),
            4 => self.temporary(),
            5 => self.mkdir(),
            6 => self.link(),
            7 => self.symlink(),
            8..10 => self.unlink(),
            10 => self.rmdir(),
            11..15 => self.rename(),
            15 => self.xattr(),
            16 => self.chmod(),
            17 => self.chown(),
            18 => self.list(),
            19 => self.hold(),
            20 => self.let_go(),
            _ => self.stat(),
        }
    }

    /// Any path that the predicate takes.
    pub(crate) fn any(&mut self, is_it: impl Fn(&Model, &str) -> bool) -> Option<String> {
        let model = &self.model;
        let all: Vec<&String> = model.names.keys().filter(|p| is_it(model, p)).collect();
        match all.len() {
            0 => None,
            len => Some(all[self.random.below(len)].clone()),
        }
    }

    /// Any directory, also the worker's own.
    fn any_dir(&mut self) -> String {
        match self.random.one_in(3) {
            true => String::new(),
            false => self.any(|m, p| m.is_dir(p)).unwrap_or_default(),
        }
    }

    /// Are there enough names that have no data?
    fn is_crowded(&self) -> bool {
        let nodes = self.model.names.values().map(|id| &self.model.nodes[id]);
        let others = nodes.filter(|node| !matches!(node.kind, Kind::File(_)));
        others.count() >= MOST_NAMES / 4
    }

    /// A path that leads nowhere yet. Names have any length, so that directories have several blocks.
    fn new_path(&mut self) -> String {
        let dir = self.any_dir();
        self.next += 1;
        let long = match self.random.one_in(3) {
            true => self.random.below(200),
            false => 0,
        };
        join(&dir, &format!("n{}{}", self.next, "-".repeat(long)))
    }

    /// A number for a new node.
    fn add(&mut self, kind: Kind, mode: u32) -> u64 {
        self.next += 1;
        let node = Node {
            kind,
            mode,
            owner: self.owner,
            xattrs: BTreeMap::new(),
        };
        self.model.nodes.insert(self.next, node);
        self.next
    }

    /// Forgets a node that nobody can reach any more.
    fn sweep(&mut self, id: u64) {
        let is_named = self.model.names.values().any(|node| *node == id);
        let is_held = self.held.iter().any(|held| held.id == id);
        if !is_named && !is_held {
            self.model.nodes.remove(&id);
            if let Some(mapped) = &mut self.mapped {
                mapped.forget(What(id, Path::new("")));
            }
        }
    }

    fn create(&mut self) {
        if self.model.names.len() >= MOST_NAMES {
            return self.unlink();
        }
        let path = self.new_path();
        self.tell(format!("create {path}"));
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(self.place(&path), flags, Mode::RUSR | Mode::WUSR).unwrap();
        let again = rustix::fs::open(self.place(&path), flags, Mode::RUSR);
        assert_eq!(again.err(), Some(Errno::EXIST));
        let id = self.add(Kind::File(Vec::new()), 0o600);
        self.model.names.insert(path, id);
        self.keep(File::from(file), id);
    }

    /// Holds an open file, perhaps in place of another one.
    fn keep(&mut self, file: File, id: u64) {
        if self.held.len() == MOST_HELD {
            let at = self.random.below(MOST_HELD);
            let gone = self.held.swap_remove(at);
            drop(gone.file);
            self.sweep(gone.id);
        }
        self.held.push(Held { file, id });
    }

    /// O_TMPFILE, which perhaps gets a name.
    fn temporary(&mut self) {
        let dir = self.any_dir();
        self.tell(format!("temporary in {dir:?}"));
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(self.place(&dir), flags, Mode::RUSR | Mode::WUSR);
        let file = File::from(file.unwrap());
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        let id = self.add(Kind::File(Vec::new()), 0o600);
        if self.random.one_in(2) && self.model.names.len() < MOST_NAMES {
            let path = self.new_path();
            self.tell(format!("named {path}"));
            let of = format!("/proc/self/fd/{}", file.as_raw_fd());
            let flags = AtFlags::SYMLINK_FOLLOW;
            rustix::fs::linkat(CWD, of, CWD, self.place(&path), flags).unwrap();
            self.model.names.insert(path, id);
        }
        self.keep(file, id);
    }

    fn mkdir(&mut self) {
        let path = self.new_path();
        if path.matches('/').count() > 3 || self.is_crowded() {
            return;
        }
        self.tell(format!("mkdir {path}"));
        rustix::fs::mkdir(self.place(&path), Mode::RWXU).unwrap();
        let id = self.add(Kind::Dir, 0o700);
        self.model.names.insert(path, id);
    }

    fn link(&mut self) {
        let Some(from) = self.any(|m, p| !m.is_dir(p)) else {
            return;
        };
        if self.model.names.len() >= MOST_NAMES {
            return;
        }
        let to = self.new_path();
        self.tell(format!("link {from} {to}"));
        rustix::fs::linkat(
            CWD,
            self.place(&from),
            CWD,
            self.place(&to),
            AtFlags::empty(),
        )
        .unwrap();
        let id = self.model.names[&from];
        self.model.names.insert(to, id);
    }

    fn symlink(&mut self) {
        if self.is_crowded() {
            return;
        }
        let path = self.new_path();
        // Short ones are in the inode, long ones in a block.
        let target = "t".repeat(1 + self.random.below(120));
        self.tell(format!("symlink {path}"));
        symlink(&target, self.place(&path)).unwrap();
        let id = self.add(Kind::Link(target), 0o777);
        self.model.names.insert(path, id);
    }

    fn unlink(&mut self) {
        let Some(path) = self.any(|m, p| !m.is_dir(p)) else {
            return;
        };
        self.tell(format!("unlink {path}"));
        fs::remove_file(self.place(&path)).unwrap();
        let id = self.model.names.remove(&path).unwrap();
        self.sweep(id);
    }

    fn rmdir(&mut self) {
        let Some(path) = self.any(|m, p| m.is_dir(p)) else {
            return;
        };
        self.tell(format!("rmdir {path}"));
        let removed = rustix::fs::unlinkat(CWD, self.place(&path), AtFlags::REMOVEDIR);
        match self.model.children(&path).is_empty() {
            true => {
                removed.unwrap();
                let id = self.model.names.remove(&path).unwrap();
                self.sweep(id);
            }
            false => assert_eq!(removed, Err(Errno::NOTEMPTY)),
        }
    }

    fn rename(&mut self) {
        let Some(from) = self.any(|_, _| true) else {
            return;
        };
        let existing = self.any(|_, _| true).unwrap();
        let to = match self.random.one_in(2) {
            true => existing,
            false => self.new_path(),
        };
        let flags = match self.random.below(4) {
            0 => RenameFlags::NOREPLACE,
            1 => RenameFlags::EXCHANGE,
            _ => RenameFlags::empty(),
        };
        self.tell(format!("rename {from} {to} {flags:?}"));
        let (old, new) = (self.place(&from), self.place(&to));
        let done = rustix::fs::renameat_with(CWD, old, CWD, new, flags);
        match self.rename_fails(&from, &to, flags) {
            Some(errors) => assert!(
                done.is_err_and(|e| errors.contains(&e)),
                "{done:?} {errors:?}"
            ),
            None => {
                done.unwrap();
                self.renamed(&from, &to, flags);
            }
        }
    }

    /// With which of these errors it fails, if it does.
    fn rename_fails(&self, from: &str, to: &str, flags: RenameFlags) -> Option<Vec<Errno>> {
        let model = &self.model;
        let exists = model.names.contains_key(to);
        if flags == RenameFlags::NOREPLACE && exists {
            return Some(vec![Errno::EXIST, Errno::INVAL, Errno::NOTEMPTY]);
        }
        if is_below(to, from) {
            return Some(vec![Errno::INVAL, Errno::NOENT]);
        }
        if flags == RenameFlags::EXCHANGE {
            let fails = !exists || is_below(from, to);
            return fails.then(|| vec![Errno::NOENT, Errno::INVAL]);
        }
        if !exists || model.names[from] == model.names[to] {
            return None;
        }
        match (model.is_dir(from), model.is_dir(to)) {
            (true, false) => Some(vec![Errno::NOTDIR]),
            (false, true) => Some(vec![Errno::ISDIR, Errno::NOTEMPTY]),
            (true, true) if !model.children(to).is_empty() => Some(vec![Errno::NOTEMPTY]),
            _ => None,
        }
    }

    fn renamed(&mut self, from: &str, to: &str, flags: RenameFlags) {
        let gone = self.model.names.get(to).copied();
        if gone == Some(self.model.names[from]) {
            return;
        }
        if flags == RenameFlags::EXCHANGE {
            self.model.move_name(to, "between");
            self.model.move_name(from, to);
            self.model.move_name("between", from);
            return;
        }
        self.model.names.remove(to);
        self.model.move_name(from, to);
        if let Some(id) = gone {
            self.sweep(id);
        }
    }

    fn xattr(&mut self) {
        let Some(path) = self.any(|m, p| !matches!(m.nodes[&m.names[p]].kind, Kind::Link(_)))
        else {
            return;
        };
        let (id, place) = (self.model.names[&path], self.place(&path));
        let name = format!("user.{}", self.random.below(4));
        self.tell(format!("xattr {name} {path}"));
        let xattrs = &mut self.model.nodes.get_mut(&id).unwrap().xattrs;
        match self.random.one_in(3) {
            true => {
                let removed = rustix::fs::removexattr(&place, &name[..]);
                let was_there = xattrs.remove(&name).is_some();
                let wanted = match was_there {
                    true => Ok(()),
                    false => Err(Errno::NODATA),
                };
                assert_eq!(removed, wanted);
            }
            false => {
                let len = self.random.below(150);
                let value = self.random.bytes(len);
                rustix::fs::setxattr(&place, &name[..], &value, XattrFlags::empty()).unwrap();
                xattrs.insert(name, value);
            }
        }
        self.model.verify_xattrs(id, &place, &path);
    }

    fn chmod(&mut self) {
        let Some(path) = self.any(|m, p| !matches!(m.nodes[&m.names[p]].kind, Kind::Link(_)))
        else {
            return;
        };
        let id = self.model.names[&path];
        let mode = 0o700 | self.random.below(0o100) as u32;
        self.tell(format!("chmod {mode:o} {path}"));
        fs::set_permissions(self.place(&path), fs::Permissions::from_mode(mode)).unwrap();
        self.model.nodes.get_mut(&id).unwrap().mode = mode;
    }

    /// By root to anybody; by others to themselves.
    fn chown(&mut self) {
        let Some(path) = self.any(|_, _| true) else {
            return;
        };
        let id = self.model.names[&path];
        let owner = match self.owner.0 {
            0 => (
                self.random.below(3) as u32,
                self.random.below(100_000) as u32,
            ),
            _ => self.owner,
        };
        self.tell(format!("chown {owner:?} {path}"));
        std::os::unix::fs::lchown(self.place(&path), Some(owner.0), Some(owner.1)).unwrap();
        self.model.nodes.get_mut(&id).unwrap().owner = owner;
    }

    /// Reads a directory, and again from the place of one of its entries.
    fn list(&mut self) {
        let path = self.any_dir();
        self.tell(format!("list {path:?}"));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(self.place(&path), flags, Mode::empty()).unwrap();
        let mut dir = rustix::fs::Dir::new(dir).unwrap();
        let read = |dir: &mut rustix::fs::Dir| -> Vec<(String, i64)> {
            let entries = std::iter::from_fn(|| dir.read());
            let one = |entry: rustix::fs::DirEntry| {
                (
                    entry.file_name().to_str().unwrap().to_owned(),
                    entry.offset(),
                )
            };
            entries.map(|entry| one(entry.unwrap())).collect()
        };
        let all = read(&mut dir);
        let mut names: Vec<&str> = all.iter().map(|(name, _)| &name[..]).collect();
        names.sort_unstable();
        let children = self.model.children(&path);
        let mut wanted: Vec<&str> = children.iter().map(|name| &name[..]).collect();
        wanted.extend([".", ".."]);
        wanted.sort_unstable();
        assert_eq!(names, wanted);
        let at = self.random.below(all.len());
        dir.seek(all[at].1).unwrap();
        assert_eq!(
            read(&mut dir),
            all[at + 1..],
            "behind {at} of {}",
            all.len()
        );
    }

    fn hold(&mut self) {
        let Some(path) = self.any(|m, p| matches!(m.nodes[&m.names[p]].kind, Kind::File(_))) else {
            return;
        };
        let id = self.model.names[&path];
        let file = self.open(&path, OFlags::empty());
        self.keep(file, id);
    }

    pub(crate) fn open(&mut self, path: &str, more: OFlags) -> File {
        self.tell(format!("open {path} {more:?}"));
        let flags = OFlags::RDWR | OFlags::CLOEXEC | more;
        File::from(rustix::fs::open(self.place(path), flags, Mode::empty()).unwrap())
    }

    fn let_go(&mut self) {
        if !self.held.is_empty() {
            let at = self.random.below(self.held.len());
            let gone = self.held.swap_remove(at);
            self.tell(format!("close {}", gone.id));
            drop(gone.file);
            self.sweep(gone.id);
        }
    }

    fn stat(&mut self) {
        if let Some(path) = self.any(|_, _| true) {
            let seen = fs::symlink_metadata(self.place(&path)).unwrap();
            let id = self.model.names[&path];
            self.model.verify_attributes(id, &seen, &path);
        }
        for held in &self.held {
            let seen = held.file.metadata().unwrap();
            self.model.verify_attributes(held.id, &seen, "a held file");
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let last = self.told.join("\n  ");
            eprintln!("the last steps in {}:\n  {last}", self.root.display());
        }
    }
}
