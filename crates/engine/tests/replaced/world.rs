//! Operations on names, one at a time, noted in the model when they begin.
//!
//! Input: a volume on a recording device, and a seed. Output: the model of what was done. Invariant: an operation is noted before
//! it is requested, a sync once it has ended. Limits: nothing commits except on request.

use crate::common::Rng;
use crate::common::fixture::filled;
use crate::replaced::model::{Content, DIRECTORY, Model, TARGETS, WALKED};
use diorite::dir::RenameFlags;
use diorite::{Error, File, OpenFlags, Volume};
use diorite_block::RecordDevice;
use diorite_format::FileType;

pub(crate) struct World<'v> {
    volume: &'v Volume,
    device: &'v RecordDevice,
    model: Model,
    rng: Rng,
    /// Files that are kept open while their names are removed.
    held: Vec<File>,
}

const PLAIN: RenameFlags = RenameFlags::none()
    .no_replace(false)
    .exchange(false)
    .whiteout(false);

/// Names from this index on are those of fillers, and of what was moved away.
const FILLERS: usize = TARGETS.len() + WALKED.len();

/// Makes the directories, the fillers, and half of the names.
pub(crate) fn begin(volume: &Volume, model: &mut Model) {
    for dir in ["/a", "/b"] {
        volume.mkdir(dir, 0o755).unwrap();
    }
    for name in &model.names[FILLERS..] {
        volume.create(name, 0o600).unwrap();
    }
    volume.mkdir(WALKED[0], 0o755).unwrap();
    volume
        .create(&format!("{}/inside", WALKED[0]), 0o600)
        .unwrap();
    model.now[TARGETS.len()] = model.new_content(DIRECTORY.to_vec());
    for name in (0..TARGETS.len()).step_by(2) {
        let bytes = vec![name as u8 + 1; 1024];
        let file = volume.create(TARGETS[name], 0o600).unwrap();
        file.write_buf(0, filled(bytes[0], bytes.len())).1.unwrap();
        model.now[name] = model.new_content(bytes);
    }
    model.begin();
}

/// The contents that a name has on a volume.
pub(crate) fn seen(volume: &Volume, name: &str) -> Option<Vec<u8>> {
    let ino = match volume.resolve(name.as_bytes(), false) {
        Err(Error::NotFound { .. }) => return None,
        found => found.unwrap(),
    };
    let file = volume.open_ino(ino, OpenFlags::default()).unwrap();
    if file.metadata().is_dir() {
        let inside = volume.resolve(format!("{name}/inside").as_bytes(), false);
        return Some(inside.map_or(Vec::new(), |_| DIRECTORY.to_vec()));
    }
    if file.metadata().file_type == Some(FileType::Symlink) {
        return Some(volume.read_link(ino).unwrap());
    }
    let mut bytes = vec![0xEE; file.size() as usize];
    file.read_bytes(0, &mut bytes).unwrap();
    Some(bytes)
}

impl<'v> World<'v> {
    pub(crate) fn new(
        volume: &'v Volume,
        device: &'v RecordDevice,
        model: Model,
        rng: Rng,
    ) -> World<'v> {
        World {
            volume,
            device,
            model,
            rng,
            held: Vec::new(),
        }
    }

    pub(crate) fn end(self) -> Model {
        self.model
    }

    pub(crate) fn step(&mut self) {
        match self.rng.below(16) {
            0..=5 => self.replace(),
            6 => self.replace_by_nameless(),
            7 => self.replace_by_link(),
            8 => self.move_one(),
            9 if self.rng.below(2) == 0 => self.move_into_new(),
            9 => self.walk(),
            10 => self.exchange(),
            11 | 12 => self.add_filler(),
            13 => self.remove_filler(),
            14 => self.hold(),
            _ => self.sync(),
        }
    }

    /// The classical way: another file is written, and renamed over the name.
    fn replace(&mut self) {
        let (name, temporary) = (self.target(), self.temporary());
        let file = self.volume.create(&temporary, 0o600).unwrap();
        let content = self.write(&file);
        if self.rng.below(4) == 0 {
            file.sync().unwrap();
        }
        drop(file);
        self.op(vec![(name, content)], false);
        self.rename(&temporary, TARGETS[name], PLAIN);
    }

    fn replace_by_nameless(&mut self) {
        let name = self.target();
        let dir = ["/a", "/b"][self.rng.below(2) as usize];
        let file = self.volume.temporary(dir, 0o600).unwrap();
        let content = self.write(&file);
        self.op(vec![(name, content)], false);
        self.volume.replace_file(&file, TARGETS[name]).unwrap();
    }

    /// With a temporary link that is renamed, as `ln -sf` does it.
    fn replace_by_link(&mut self) {
        let (name, temporary) = (self.target(), self.temporary());
        let len = [9, 200][self.rng.below(2) as usize];
        let target = format!("{:0len$}", self.rng.next());
        self.volume.symlink(&target, &temporary).unwrap();
        let content = self.model.new_content(target.into_bytes());
        self.op(vec![(name, content)], false);
        self.rename(&temporary, TARGETS[name], PLAIN);
    }

    fn move_one(&mut self) {
        let (from, to) = (self.target(), self.target());
        let content = self.model.now[from];
        if from == to || content.is_none() {
            return;
        }
        self.op(vec![(to, content), (from, None)], false);
        self.rename(TARGETS[from], TARGETS[to], PLAIN);
    }

    /// Renames the directory to its next name.
    fn walk(&mut self) {
        let walked = TARGETS.len()..FILLERS;
        let is_here = |name: &usize| self.model.now[*name].is_some();
        let from = walked.clone().find(is_here).unwrap();
        let to = walked.start + self.rng.below(WALKED.len() as u64) as usize;
        if from != to {
            let content = self.model.now[from];
            self.op(vec![(to, content), (from, None)], false);
            self.rename(
                WALKED[from - walked.start],
                WALKED[to - walked.start],
                PLAIN,
            );
        }
    }

    /// Moves a name into a directory that was just made, inside another new one.
    fn move_into_new(&mut self) {
        let from = self.target();
        let Some(content) = self.model.now[from] else {
            return;
        };
        let outer = format!("/a/new-{}", self.rng.next());
        let inner = format!("{outer}/inner");
        self.volume.mkdir(&outer, 0o755).unwrap();
        self.volume.mkdir(&inner, 0o755).unwrap();
        let to = self.model.new_name(format!("{inner}/moved"));
        self.op(vec![(to, Some(content)), (from, None)], false);
        self.rename(TARGETS[from], &self.model.names[to], PLAIN);
    }

    fn exchange(&mut self) {
        let (one, two) = (self.target(), self.target());
        let (first, second) = (self.model.now[one], self.model.now[two]);
        if one == two || first.is_none() || second.is_none() {
            return;
        }
        self.op(vec![(one, second), (two, first)], true);
        let exchange = true;
        self.rename(TARGETS[one], TARGETS[two], PLAIN.exchange(exchange));
    }

    fn add_filler(&mut self) {
        for _ in 0..3 {
            let name = self.model.new_filler();
            self.op(vec![(name, self.model.empty())], false);
            let path = &self.model.names[name];
            self.volume.create(path, 0o600).unwrap();
        }
    }

    fn remove_filler(&mut self) {
        let fillers = FILLERS..self.model.names.len();
        if fillers.is_empty() {
            return;
        }
        let name = fillers.start + self.rng.below(fillers.len() as u64) as usize;
        if self.model.now[name] == self.model.empty() {
            self.op(vec![(name, None)], false);
            self.volume.unlink(&self.model.names[name]).unwrap();
        }
    }

    fn hold(&mut self) {
        let name = self.target();
        if self.rng.below(2) == 0 {
            self.held.clear();
        } else if self.model.now[name].is_some() {
            let ino = self
                .volume
                .resolve(TARGETS[name].as_bytes(), false)
                .unwrap();
            let file = self.volume.open_ino(ino, OpenFlags::default()).unwrap();
            self.held.push(file);
        }
    }

    fn sync(&mut self) {
        self.volume.sync().unwrap();
        let at = self.device.mark(0);
        self.model.synced(at);
    }

    fn op(&mut self, sets: Vec<(usize, Content)>, exchange: bool) {
        self.model.op(self.device.mark(1), sets, exchange);
    }

    fn rename(&self, from: &str, to: &str, flags: RenameFlags) {
        self.volume.rename(from, to, flags).unwrap();
    }

    fn target(&mut self) -> usize {
        self.rng.below(TARGETS.len() as u64) as usize
    }

    fn temporary(&mut self) -> String {
        let dir = ["/a", "/b"][self.rng.below(2) as usize];
        format!("{dir}/temporary-{}", self.rng.next())
    }

    /// Writes a few blocks, some of them with holes between, so that the map has nodes; sometimes commits a part before the rest.
    fn write(&mut self, file: &File) -> Content {
        let (pieces, byte) = (self.rng.below(9), 1 + self.rng.below(250) as u8);
        let (len, stride) = match self.rng.below(3) {
            0 => (4096, 8192),
            1 => (1024, 1024),
            _ => (4096, 4096),
        };
        let mut bytes = Vec::new();
        for piece in 0..pieces {
            let at = piece as usize * stride;
            let value = byte.wrapping_add(piece as u8).max(1);
            bytes.resize(at, 0);
            bytes.resize(at + len, value);
            file.write_buf(at as u64, filled(value, len)).1.unwrap();
            if piece == 5 && self.rng.below(3) == 0 {
                file.sync().unwrap();
            }
        }
        self.model.new_content(bytes)
    }
}
