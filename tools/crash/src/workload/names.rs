//! What it is: changes of a tree of names, one at a time.
//! Input: the current tree. Output: the next operation, made in the calling thread while requests to files are in flight.
//! Invariants: each operation is possible; the same seed makes the same operations. Limits: few names, so that operations collide.

use super::Driver;
use crate::error::Result;
use crate::history::What;
use crate::names::{How, List, Make, NameOp, Powers, TOP, Tree, Which};
use crate::rng::Rng;
use diorite::OpenFlags;
use diorite_format::{FileType, InodeFlags};

/// How often an operation is drawn before none is made.
const TRIES: u32 = 40;
/// How many files without a name are kept open.
const HELD: usize = 3;
/// One in this many names is long, so that directories grow.
const LONG: u64 = 4;

/// A path of one to three names.
fn path(rng: &mut Rng) -> String {
    let names = (0..1 + rng.below(3)).map(|_| {
        let n = rng.below(9);
        let more = if n.is_multiple_of(LONG) { 200 } else { 0 };
        format!("/{n}{}", "n".repeat(more))
    });
    names.collect()
}

fn draw(rng: &mut Rng, powers: Powers) -> NameOp {
    let (one, two) = (path(rng), path(rng));
    match rng.below(32) {
        0 | 1 => NameOp::Make(one, Make::File),
        2 => NameOp::Make(one, Make::Temporary),
        3..=5 => NameOp::Make(one, Make::Dir),
        6 => NameOp::Make(one, Make::Link(*rng.pick(&[5, 59, 60, 700]))),
        7 => NameOp::Make(one, Make::Device),
        8 => NameOp::Link(one, two),
        9 | 28 => NameOp::Unlink(one),
        10 | 29..=31 => NameOp::Rmdir(one),
        11 => NameOp::Mode(one, *rng.pick(&[0o600, 0o755, 0o1777])),
        12..=14 => attribute(one, rng, powers),
        15 | 16 => acl(one, rng),
        17 | 18 => NameOp::Flags(one, flags(rng)),
        19 if powers.inside => NameOp::Inside(one, *rng.pick(&[1, 59, 60, 61, 100])),
        _ => {
            let all = [How::Replace, How::NoReplace, How::Exchange, How::Whiteout];
            let how = *rng.pick(&all);
            NameOp::Rename(one, two, how)
        }
    }
}

/// All attributes except the last fit into a small block with two ACLs; the last needs an inode of its own.
fn attribute(path: String, rng: &mut Rng, powers: Powers) -> NameOp {
    let (number, lengths): (_, &[u32]) = match rng.below(if powers.values { 4 } else { 2 }) {
        0 => (0, &[3, 40, 400]),
        1 => (1, &[0, 12, 80]),
        _ => (2, &[700, 5000, 20_000]),
    };
    let len = Some(*rng.pick(lengths)).filter(|_| !rng.one_in(4));
    NameOp::Attribute(path, number, len)
}

fn acl(path: String, rng: &mut Rng) -> NameOp {
    let which = if rng.one_in(2) {
        Which::Access
    } else {
        Which::Default
    };
    let one = |rng: &mut Rng| u16::try_from(rng.below(8)).expect("below 8");
    let list = List([one(rng), one(rng), one(rng), one(rng), one(rng)]);
    NameOp::Acl(path, which, Some(list).filter(|_| !rng.one_in(4)))
}

/// One flag, sometimes two, or none.
fn flags(rng: &mut Rng) -> u32 {
    let all = [
        InodeFlags::default(),
        InodeFlags::default(),
        InodeFlags::NODUMP,
        InodeFlags::NOATIME,
        InodeFlags::SYNC,
        InodeFlags::DIRSYNC,
        InodeFlags::JOURNAL_DATA,
        InodeFlags::IMMUTABLE,
        InodeFlags::APPEND,
    ];
    rng.pick(&all).with(*rng.pick(&all)).bits()
}

impl Driver<'_> {
    /// Makes the next change of the tree, or an fsync of one of its files. Does nothing on a volume without the tree.
    pub(super) fn change_names(&mut self) -> Result<()> {
        if self.rng.one_in(10) {
            return self.sync_name();
        }
        let Some(tree) = &mut self.tree else {
            return Ok(());
        };
        let (rng, powers) = (&mut self.rng, Powers::of(self.volume));
        let found = (0..TRIES).find_map(|_| {
            let op = draw(rng, powers);
            tree.apply(&op).then_some(op)
        });
        let Some(op) = found else {
            return Ok(());
        };
        self.hold(&op);
        let number = self.begin(What::Names(op.clone()))?;
        let made = op.ask(self.volume);
        self.end(number, made)
    }

    /// In half of the cases, opens the file that is about to lose its name, and keeps it open for a while. Does nothing if it does
    /// not exist.
    fn hold(&mut self, op: &NameOp) {
        let (NameOp::Unlink(path) | NameOp::Rmdir(path) | NameOp::Rename(_, path, How::Replace)) =
            op
        else {
            return;
        };
        let path = format!("{TOP}{path}");
        let found = self.volume.resolve(path.as_bytes(), false);
        let open = |ino| self.volume.open_ino(ino, OpenFlags::default());
        if let Some(file) = found.and_then(open).ok().filter(|_| self.rng.one_in(2)) {
            self.held.push_back(file);
        }
        if self.held.len() > HELD {
            self.held.pop_front();
        }
    }

    fn sync_name(&mut self) -> Result<()> {
        let files = self.tree.iter().flat_map(|tree| &tree.things);
        let files = files.filter(|(_, thing)| thing.kind == FileType::Regular);
        let files: Vec<String> = files.map(|(path, _)| path.clone()).collect();
        if files.is_empty() {
            return Ok(());
        }
        let path = self.rng.pick(&files).clone();
        let file = self
            .volume
            .open_path(&format!("{TOP}{path}"), OpenFlags::default())?;
        let number = self.begin(What::SyncName(path))?;
        let made = file.sync();
        self.end(number, made)
    }
}

/// The tree of names when a session begins.
pub(super) fn begin(volume: &diorite::Volume) -> Result<Option<Tree>> {
    Ok(Tree::of(volume)?)
}
