//! A volume and its model, changed alike by random operations.
//!
//! Input: an image, random numbers. Output: operations on both, compared one by one. Invariant: whenever the volume is judged, it
//! agrees with the model.
//! Limits: few names, so that operations often collide.

use super::has::OWNER;
use super::judge;
use super::model::{How, Kind, Model};
use super::{Says, attributes, called, files};
use crate::common::Rng;
use diorite::dir::RenameFlags;
use diorite::{Caller, File, OpenFlags, OpenOptions, Volume};
use diorite_format::FileType;
use diorite_format::inode::Rdev;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The maximum number of files that are open at once.
const MOST_HELD: usize = 6;

pub(super) struct World {
    image: PathBuf,
    pub(super) volume: Volume,
    pub(super) model: Model,
    /// Open files and their nodes; some have no name.
    held: Vec<(File, usize)>,
    /// The volume is small, so operations may fail for lack of room.
    small: bool,
}

fn open(image: &Path) -> Volume {
    let options = OpenOptions::writable().owner(OWNER).caller(Caller {
        uid: 0,
        gids: vec![0],
    });
    Volume::open(image.to_str().unwrap(), &options).unwrap()
}

/// A path of one to four names, some of them long.
fn path(rng: &mut Rng) -> String {
    let mut path = String::new();
    for _ in 0..1 + rng.below(3) + rng.below(2) {
        let n = rng.below(12);
        let long = if n % 4 == 3 { 200 } else { 1 };
        path += &format!("/{n}{}", "n".repeat(long));
    }
    path
}

impl World {
    pub(super) fn new(image: &Path, small: bool) -> World {
        World {
            image: image.to_owned(),
            volume: open(image),
            model: Model::new(),
            held: Vec::new(),
            small,
        }
    }

    /// Makes one random operation. Returns false if there was no room for it.
    pub(super) fn step(&mut self, rng: &mut Rng) -> bool {
        match rng.below(16) {
            0..8 => self.change_names(rng),
            8 => self.hold(rng),
            9..13 => self.change_file(rng),
            _ => self.change_attributes(rng),
        }
    }

    fn change_names(&mut self, rng: &mut Rng) -> bool {
        let (volume, model) = (&self.volume, &mut self.model);
        let (one, two) = (path(rng), path(rng));
        let what = rng.below(16);
        let how = How::any(rng);
        let target = "t".repeat([5, 59, 60, 300][rng.below(4) as usize]);
        let device = Rdev { major: 8, minor: 1 };
        let got = match what {
            0..3 => volume.create(&one, 0o640).map(drop),
            3..6 => volume.mkdir(&one, 0o750).map(drop),
            6 => volume.symlink(&target, &one).map(drop),
            7 => volume
                .mknod(&one, FileType::CharDevice, 0o600, device)
                .map(drop),
            8 => volume.unlink(&one),
            9 => volume.rmdir(&one),
            10 => volume.link(&one, &two),
            _ => volume.rename(&one, &two, how.flags()),
        };
        let shown = format!("{what}: {one} {two} {how:?}: {got:?}");
        let Says::Said(got) = called(got) else {
            return false;
        };
        let expected = match what {
            0..3 => model.make(&one, Kind::File, 0o640),
            3..6 => model.make(&one, Kind::Dir(BTreeMap::new()), 0o750),
            6 => model.make(&one, Kind::Link(target), 0o777),
            7 => model.make(&one, Kind::Node(8, 1), 0o600),
            8 => model.unlink(&one),
            9 => model.rmdir(&one),
            10 => model.link(&one, &two),
            _ => model.rename(&one, &two, how),
        };
        assert_eq!(got, expected, "{shown}");
        true
    }

    /// Opens a file, makes one without a name, gives one a name, or closes one.
    fn hold(&mut self, rng: &mut Rng) -> bool {
        let at = path(rng);
        match rng.below(4) {
            _ if self.held.len() >= MOST_HELD => {
                self.held.swap_remove(rng.below(MOST_HELD as u64) as usize);
            }
            0 | 1 => {
                if let Some((path, node)) = self.some(rng, |kind| *kind == Kind::File) {
                    self.held.push((self.open(&path), node));
                }
            }
            2 => {
                let dir = &at[..at.rfind('/').unwrap()];
                let made = self.volume.temporary(&format!("{dir}/"), 0o640);
                let (made, error) = match made {
                    Ok(file) => (Some(file), Ok(())),
                    Err(error) => (None, Err(error)),
                };
                let Says::Said(said) = called(error) else {
                    return false;
                };
                let node = self.model.temporary(dir);
                assert_eq!(said, node.map(drop), "{dir}");
                self.held.extend(made.zip(node.ok()));
            }
            _ => return self.name_held(&at, rng),
        }
        true
    }

    fn name_held(&mut self, path: &str, rng: &mut Rng) -> bool {
        let Some(n) = rng.next().checked_rem(self.held.len() as u64) else {
            return true;
        };
        let (file, node) = &self.held[n as usize];
        let done = self.volume.link_file(file, path);
        // A file that had a name and lost it cannot get another.
        if self.model.nodes[*node].links == 0 && !self.model.nodes[*node].is_temporary {
            assert!(done.is_err());
            return true;
        }
        let Says::Said(said) = called(done) else {
            return false;
        };
        assert_eq!(said, self.model.link_node(*node, path), "{path}");
        true
    }

    fn open(&self, path: &str) -> File {
        let flags = OpenFlags::writable();
        self.volume.open_path(path, flags).unwrap()
    }

    /// A node of this kind, if a few random tries find one.
    fn some(&self, rng: &mut Rng, is_it: impl Fn(&Kind) -> bool) -> Option<(String, usize)> {
        (0..12).find_map(|_| {
            let path = path(rng);
            let node = self.model.find(&path).ok()?;
            is_it(&self.model.nodes[node].kind).then_some((path, node))
        })
    }

    fn change_file(&mut self, rng: &mut Rng) -> bool {
        let (file, node) = match rng.next().checked_rem(self.held.len() as u64) {
            Some(n) if rng.below(2) == 0 => self.held[n as usize].clone(),
            _ => match self.some(rng, |kind| *kind == Kind::File) {
                Some((path, node)) => (self.open(&path), node),
                None => return true,
            },
        };
        let geometry = self.volume.superblock().geometry();
        let unit = u64::from(geometry.cluster_size());
        let known = &mut self.model.nodes[node];
        known.has.mtime = None;
        let fits = files::step(&file, &mut known.bytes, rng, (unit, !self.small));
        if rng.below(4) == 0 {
            files::same("just changed", &file, &known.bytes);
        }
        fits
    }

    fn change_attributes(&mut self, rng: &mut Rng) -> bool {
        let Some((path, node)) = self.some(rng, |_| true) else {
            return true;
        };
        let ino = self.volume.resolve(path.as_bytes(), false).unwrap();
        let known = &mut self.model.nodes[node];
        attributes::step(&self.volume, ino, known.kind.sort(), &mut known.has, rng)
    }

    /// Fills a volume with symbolic links with long targets, and removes some of them. Returns false if there was no room.
    pub(super) fn fill_up(&mut self, rng: &mut Rng) -> bool {
        let name = format!("/full{}", self.model.nodes.len());
        let target = "f".repeat(500);
        let says = called(self.volume.symlink(&target, &name).map(drop));
        let fits = says != Says::NoRoom;
        if fits {
            assert_eq!(says, Says::Said(Ok(())));
            self.model.make(&name, Kind::Link(target), 0o777).unwrap();
        }
        if rng.below(3) == 0 {
            let names = self.model.all();
            let links = names.keys().filter(|n| n.starts_with("/full"));
            if let Some(name) = links.clone().nth(rng.below(20) as usize) {
                self.volume.unlink(name).unwrap();
                self.model.unlink(name).unwrap();
            }
        }
        fits
    }

    /// Judges the open volume: the image as it is after a sync, and after recovery.
    pub(super) fn judge_open(&self, rng: &mut Rng) {
        judge::compare(&self.volume, &self.model);
        for (file, node) in &self.held {
            files::same("held", file, &self.model.nodes[*node].bytes);
        }
        self.volume.sync().unwrap();
        judge::recovered(&self.image, &self.model, rng);
    }

    /// Closes everything, judges the image, and opens it again.
    pub(super) fn judge_closed(self) -> World {
        judge::compare(&self.volume, &self.model);
        drop(self.held);
        self.volume.close().unwrap();
        judge::at_rest(&self.image, &self.model);
        World {
            volume: open(&self.image),
            held: Vec::new(),
            ..self
        }
    }
}

impl How {
    fn any(rng: &mut Rng) -> How {
        let what = rng.below(5);
        How {
            no_replace: what == 2,
            exchange: what == 3,
            whiteout: what == 4,
        }
    }

    fn flags(self) -> RenameFlags {
        RenameFlags::default()
            .no_replace(self.no_replace)
            .exchange(self.exchange)
            .whiteout(self.whiteout)
    }
}
