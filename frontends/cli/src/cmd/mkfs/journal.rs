//! The external journal of a new file system, and new journal devices.
//!
//! Input: the words of -J device=, or -O journal_dev. Output: a journal that names its user; a journal device. Invariants: a journal that
//! another volume uses, or whose changes were not replayed, is not used; the new file system is there before the journal names it. Limit:
//! UUIDs and labels are looked for on the block devices of the host. Source: man mke2fs (-J device=).

use crate::args::Global;
use crate::images::device::{self, Opened};
use crate::output::report::Reason;
use crate::words::names;
use diorite::mkfs::{
    MkfsOptions, NewJournal, OwnJournal, forget_journal_user, journal_device, set_journal_user,
};
use diorite_block::{Locator, open_storage};
use diorite_format::inode::Rdev;
use diorite_format::superblock::{JournalDevice, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use rustix::fs::OFlags;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A journal that is about to get a user.
pub(crate) struct Journal {
    word: String,
    opened: Opened,
    found: OwnJournal,
    number: u32,
}

impl Journal {
    /// Opens the journal that the words name. `taken`: it may have another user, who then has no journal.
    pub(crate) fn open(global: &Global, word: &str, taken: bool) -> Result<Journal, Reason> {
        let named = match word.split_once('=') {
            Some((kind @ ("UUID" | "LABEL"), value)) => {
                let path = look_for(kind, value).ok_or_else(|| {
                    Reason::new(format!(
                        "no journal device with the {kind} {value} is on this host: -J device=PATH names a device or a file"
                    ))
                })?;
                path.to_string_lossy().into_owned()
            }
            _ => word.to_owned(),
        };
        let about = |why: String| Reason::new(format!("the journal {named}: {why}"));
        let locator = Locator::parse(&named).map_err(|e| about(e.to_string()))?;
        let opened = device::open(&locator, &device::options(global, true));
        let opened = opened.map_err(|e| about(e.to_string()))?;
        let found = journal_device(&opened.device).map_err(|e| about(e.to_string()))?;
        if let (false, Some(user)) = (taken, found.users.first()) {
            let user = names::uuid(user).unwrap_or_default();
            return Err(about(format!(
                "the file system {user} uses it, and drivers take no journal with two users; -F takes it away from that one"
            )));
        }
        if !found.is_empty {
            let why =
                "it has changes that were not replayed: 'e2fsck -j' of its file system does that";
            return Err(about(why.to_owned()));
        }
        Ok(Journal {
            number: number(&locator),
            word: named,
            opened,
            found,
        })
    }

    /// Its UUID, by which a file system with such blocks names it.
    pub(crate) fn uuid(&self, block_size: u32) -> Result<[u8; 16], Reason> {
        match self.found.block_size == block_size {
            true => Ok(self.found.uuid),
            false => Err(Reason::new(format!(
                "the journal {} has blocks of {} bytes, and the file system of {block_size}: both must have the same",
                self.word, self.found.block_size
            ))),
        }
    }

    /// Has the file system name it.
    pub(super) fn tell(&self, options: &mut MkfsOptions) {
        options.journal = NewJournal::External {
            uuid: self.found.uuid,
            block_size: self.found.block_size,
            device: self.number,
        };
    }

    /// Takes the names of file systems out of it.
    pub(crate) fn forget(self) -> Result<(), Reason> {
        let done = forget_journal_user(&self.opened.device).map_err(diorite::Error::from);
        done.and(self.opened.close()).map_err(|e| {
            let word = self.word;
            Reason::new(format!(
                "the journal {word} still names the file system: {e}"
            ))
        })
    }

    /// Names the file system in it.
    pub(crate) fn finish(self, volume: &[u8; 16]) -> Result<(), Reason> {
        let set = set_journal_user(&self.opened.device, volume).map_err(diorite::Error::from);
        let closed = self.opened.close();
        set.and(closed).map_err(|e| {
            Reason::new(format!(
                "the journal {} does not name the file system: {e}",
                self.word
            ))
        })
    }
}

/// The number of a block device as a superblock has it; 0 for anything else.
fn number(locator: &Locator) -> u32 {
    let Locator::File(file) = locator else {
        return 0;
    };
    let Ok(meta) = fs::metadata(&file.path) else {
        return 0;
    };
    if !meta.file_type().is_block_device() {
        return 0;
    }
    let rdev = Rdev {
        major: rustix::fs::major(meta.rdev()),
        minor: rustix::fs::minor(meta.rdev()),
    };
    // The form with 16 bits, or else the one with 32, as inodes of devices have them.
    let raw = rdev.encode();
    let word = |at: usize| u32::from_le_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
    if word(0) != 0 { word(0) } else { word(4) }
}

/// The block device with a journal of that UUID or label.
fn look_for(kind: &str, value: &str) -> Option<PathBuf> {
    let all = fs::read_dir("/sys/class/block").ok()?;
    let mut devices: Vec<PathBuf> = all
        .filter_map(|entry| Some(Path::new("/dev").join(entry.ok()?.file_name())))
        .collect();
    devices.sort();
    devices.into_iter().find(|path| {
        let mut raw = [0; SUPERBLOCK_SIZE];
        let read = open_storage(path, OFlags::RDONLY)
            .and_then(|fd| File::from(fd).read_exact_at(&mut raw, SUPERBLOCK_OFFSET));
        let Some(found) = read.ok().and_then(|()| JournalDevice::parse(&raw).ok()) else {
            return false;
        };
        match kind {
            "UUID" => names::uuid(&found.uuid).is_some_and(|own| own.eq_ignore_ascii_case(value)),
            _ => found.label == value.as_bytes(),
        }
    })
}
