//! Where a device is: its range of a file or device of the host, and the paths of images inside each other; whether two share bytes.
//!
//! Input: locators. Output: [`Location`]s, and how two of them are related on the host. Invariants: nothing is opened for writing; a range
//! that cannot be found out is the whole. Limits: the same file under two names is recognised by its inode, a block device by its number;
//! what is stacked on a device below /sys is for `diorite_block::held_as`.

use crate::host::sandbox::Needs;
use crate::output::report::Reason;
use diorite_block::locator::{FileLocator, Part};
use diorite_block::{Locator, held_as};
use rustix::fs::{CWD, FileType, Mode, OFlags, openat, stat};
use std::ops::Range;
use std::path::PathBuf;

/// An image in a volume: its file, and which part of that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) path: String,
    pub(crate) part: Part,
}

/// A locator, split.
#[derive(Clone, Debug)]
pub(crate) struct Location {
    /// What is on the host, or in memory.
    pub(crate) base: Locator,
    /// The images in the volumes, the outermost first.
    pub(crate) inside: Vec<Step>,
}

impl Location {
    /// Splits a locator into its part on the host and the paths inside.
    pub(crate) fn of(mut locator: Locator) -> Location {
        let mut inside = Vec::new();
        while let Locator::Inside { outer, path, part } = locator {
            inside.insert(0, Step { path, part });
            locator = *outer;
        }
        Location {
            base: locator,
            inside,
        }
    }

    /// What opening it takes of the host: its file, and those behind that, to be read, if it names them and is trusted to.
    pub(crate) fn permit(&self, needs: &mut Needs, read_only: bool) {
        let Locator::File(file) = &self.base else {
            return;
        };
        match read_only {
            true => needs.read(&file.path),
            false => needs.write(&file.path),
        }
        if file.backing && file.is_qcow2() {
            needs.behind(diorite_qcow2::files_behind(&file.path));
        }
    }

    /// Whether the locator says that it is only read (`?ro`), or that what it is in is.
    pub(crate) fn says_read_only(&self) -> bool {
        let base = matches!(&self.base, Locator::File(file) if file.ro);
        base || self.inside.iter().any(|step| step.part.ro)
    }

    fn is_qcow2(&self) -> bool {
        matches!(&self.base, Locator::File(file) if file.is_qcow2())
    }

    /// How the host's parts of two are related.
    pub(crate) fn host(&self, other: &Location) -> Host {
        let place = |location: &Location| match &location.base {
            Locator::File(file) => place(file),
            Locator::Mem { .. } | Locator::Sim { .. } | Locator::Inside { .. } => None,
        };
        match (place(self), place(other)) {
            (Some((one, a)), Some((two, b))) if one == two => match a == b {
                true => Host::Same,
                // Its parts share tables, which one writer alone may change.
                false if self.is_qcow2() || other.is_qcow2() => Host::Overlaps,
                false if a.start < b.end && b.start < a.end => Host::Overlaps,
                false => Host::Beside,
            },
            _ => Host::Apart,
        }
    }
}

/// How two ranges of the host are related.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// Different files, or memory.
    Apart,
    /// One file, and ranges without a common byte.
    Beside,
    /// The same range of one file.
    Same,
    /// One file, and different ranges that share bytes.
    Overlaps,
}

/// The identity of a file or block device, with the range that is used. None if it does not exist.
fn place(file: &FileLocator) -> Option<((bool, u64, u64), Range<u64>)> {
    Some((identity(file)?, range(file)))
}

/// Whether it is a block device, and its number; or the device and the inode of a file. None if it does not exist.
pub(crate) fn identity(file: &FileLocator) -> Option<(bool, u64, u64)> {
    let found = stat(&file.path).ok()?;
    Some(match FileType::from_raw_mode(found.st_mode) {
        FileType::BlockDevice => (true, found.st_rdev, 0),
        _ => (false, found.st_dev, found.st_ino),
    })
}

fn range(file: &FileLocator) -> Range<u64> {
    let (start, size) = match file.part {
        None => (0, file.size),
        Some(number) => {
            let disk = FileLocator {
                part: None,
                ..file.clone()
            };
            let table = disk.partitions().ok().flatten();
            let part = table.and_then(|t| t.parts.into_iter().find(|p| p.number == number));
            match part {
                Some(part) => (part.start, Some(part.size)),
                None => (0, None),
            }
        }
    };
    let start = file.offset.saturating_add(start);
    start..size.map_or(u64::MAX, |size| start.saturating_add(size))
}

/// What this process has open that is on the same file or device of the host, below or above it.
pub(crate) fn held_below(target: &Location) -> Result<Option<PathBuf>, Reason> {
    let Locator::File(file) = &target.base else {
        return Ok(None);
    };
    // What cannot be looked at does not exist, or cannot be opened for writing either.
    let Ok(fd) = openat(
        CWD,
        &file.path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    ) else {
        return Ok(None);
    };
    held_as(&fd).map_err(|error| Reason::new(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(text: &str) -> Location {
        Location::of(Locator::parse(text).expect("a locator"))
    }

    #[test]
    fn ranges_of_one_file_are_compared() {
        let dir = tempfile::tempdir().expect("a scratch directory");
        let path = dir.path().join("disk.img");
        std::fs::write(&path, [0; 8192]).expect("a scratch file");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        let (path, link) = (path.display(), link.display());
        for (one, other, want) in [
            ("", "", Host::Same),
            ("?offset=4K", "?offset=4K", Host::Same),
            ("?size=4K", "?offset=4K", Host::Beside),
            ("?size=4K", "?offset=4K&size=1K", Host::Beside),
            ("", "?offset=4K", Host::Overlaps),
            ("?size=5K", "?offset=4K", Host::Overlaps),
            ("?part=1", "?offset=4K", Host::Overlaps),
        ] {
            let (a, b) = (
                location(&format!("{path}{one}")),
                location(&format!("{link}{other}")),
            );
            assert_eq!((a.host(&b), b.host(&a)), (want, want), "{one:?} {other:?}");
        }
        let gone = location("/nowhere/at/all");
        assert_eq!(gone.host(&gone), Host::Apart);
        assert_eq!(location("mem:1M").host(&location("mem:1M")), Host::Apart);
    }

    #[test]
    fn paths_are_split_from_the_outside() {
        let split = location("/nowhere.img!/a!/b/c");
        let paths: Vec<&str> = split.inside.iter().map(|step| &step.path[..]).collect();
        assert_eq!(paths, ["/a", "/b/c"]);
        assert_eq!(split.base, Locator::file("/nowhere.img"));
    }
}
