//! What it is: reads the tree of names from a volume.
//! Input: a volume. Output: a [`Tree`] with the volume's inode numbers. Invariant: every name below [`TOP`] is in it. Limit: only
//! what operations can change is read.

use super::extras::{ATTRIBUTES, CHANGED, Extras, List};
use super::tree::{Thing, Tree};
use super::{DEVICE, FILLING, TOP, Which};
use diorite::{Error, File, OpenFlags, Volume};
use diorite_format::{FileType, Ino};

/// Values that stand for contents and lists that no operation makes.
const FOREIGN: usize = usize::MAX;
const NO_LIST: List = List([u16::MAX; 5]);

impl Tree {
    /// The tree of names on a volume; None if the volume has no [`TOP`].
    pub(crate) fn of(volume: &Volume) -> Result<Option<Tree>, Error> {
        let top = match volume.resolve(TOP.as_bytes(), false) {
            Err(Error::NotFound { .. }) => return Ok(None),
            other => other?,
        };
        let (mut tree, mut todo) = (Tree::default(), vec![(String::new(), top)]);
        while let Some((dir, ino)) = todo.pop() {
            for entry in volume.read_dir(ino)? {
                let entry = entry?;
                if entry.name == b"." || entry.name == b".." {
                    continue;
                }
                let path = format!("{dir}/{}", String::from_utf8_lossy(&entry.name));
                let thing = look(volume, entry.ino)?;
                if thing.kind == FileType::Directory {
                    todo.push((path.clone(), entry.ino));
                }
                tree.insert(path, thing);
            }
        }
        Ok(Some(tree))
    }
}

fn look(volume: &Volume, ino: Ino) -> Result<Thing, Error> {
    let file = volume.open_ino(ino, OpenFlags::default())?;
    let disk = file.metadata();
    let kind = disk.file_type.unwrap_or(FileType::Socket);
    let target = match kind {
        FileType::Symlink => volume.read_link(ino)?.len(),
        FileType::CharDevice => usize::from(disk.rdev() != Some(DEVICE)),
        _ => 0,
    };
    let mut extras = Extras {
        flags: disk.flags.bits() & CHANGED,
        ..Extras::default()
    };
    if kind == FileType::Regular {
        extras.inside = inside(&file)?;
    }
    for attribute in volume.xattrs(ino)? {
        let list = || Some(List::decode(&attribute.value).unwrap_or(NO_LIST));
        let is = |name: &str| name.as_bytes() == attribute.name;
        if is(Which::Access.name()) {
            extras.access = list();
        } else if is(Which::Default.name()) {
            extras.default = list();
        } else if let Some((number, _)) = (0..).zip(ATTRIBUTES).find(|(_, name)| is(name)) {
            extras.attributes.insert(number, filled(&attribute.value));
        }
    }
    Ok(Thing {
        id: u64::from(ino.get()),
        kind,
        mode: disk.mode & 0o7777,
        target,
        extras,
    })
}

fn inside(file: &File) -> Result<usize, Error> {
    let mut bytes = vec![0; usize::try_from(file.size()).unwrap_or(0)];
    file.read_bytes(0, &mut bytes)?;
    Ok(filled(&bytes))
}

/// The number of bytes if all are the filling byte; else [`FOREIGN`].
fn filled(bytes: &[u8]) -> usize {
    match bytes.iter().all(|byte| *byte == FILLING) {
        true => bytes.len(),
        false => FOREIGN,
    }
}
