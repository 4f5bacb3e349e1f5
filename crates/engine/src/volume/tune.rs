//! Parameters of a volume: what tune2fs sets in the superblock alone.
//!
//! Input: [`Tuning`]. Output: the superblock with it, and its copies, durably. Invariants: everything is judged before anything is written;
//! all changes are one transaction; a feature is switched only if nothing else on the volume would have to change with it. Limits: nobody
//! else may make or extend files while a feature is cleared, since what uses it is searched before; what follows from a parameter when a
//! volume is opened (reserved blocks, data mode) follows when it is opened again.

use super::Volume;
use crate::alloc::Alloc;
use crate::disk::{check_tuning, read_disk_inode};
use crate::error::Error;
use crate::inode::Fs;
use diorite_format::features::{Compat, Features, Incompat, RoCompat};
use diorite_format::superblock::{JournalPlace, Tuning};
use diorite_format::{GroupNo, Ino, Inode, InodeFlags, csum};

/// The smallest size of a file that needs large_file.
const LARGE: u64 = 1 << 31;
/// 512-byte units of a file that need no huge_file.
const MOST_SECTORS: u64 = 0xFFFF_FFFF;
/// Blocks of a journal that the kernel needs for its log, and those that it takes for fast commits.
const LEAST_LOG: u64 = 1024;
const FAST_COMMIT_BLOCKS: u64 = 256;

impl Volume {
    /// Changes parameters of the volume, durably; it counts as no mount. Blocks.
    ///
    /// # Errors
    /// `Invalid` for values that the format does not have; `NotSupported` for a feature that cannot be switched without changing more than
    /// the superblock, or that is in use; the volume may not be changed; damage; a device that fails.
    pub fn tune(&self, tuning: &Tuning) -> Result<(), Error> {
        let fs = self.inner();
        fs.check_open()?;
        let _alone = fs.alone()?;
        let tuning = judged(fs, tuning)?;
        // The mark "in use" of the first change counts as a mount.
        let info = fs.sb.info();
        let (mounts, time) = (info.mount_count, info.mount_time);
        fs.in_handle(1, |handle| {
            handle.edit_super(|edit| {
                edit.set_mount_count(mounts);
                edit.set_mount_time(time);
                edit.tune(&tuning);
            })
        })?;
        fs.publish_super(fs.sb.is_clean(), fs.sb.has_error_state())?;
        fs.note_large_files(fs.sb.features().ro_compat.has(RoCompat::LARGE_FILE));
        // Not a sync: what it would tell of files is not this caller's.
        fs.make_clean()?;
        fs.write_super_copies(&fs.sb)
    }

    /// Judges a change as [`Volume::tune`] does, and makes none. Blocks.
    ///
    /// # Errors
    /// As [`Volume::tune`].
    pub fn check_tune(&self, tuning: &Tuning) -> Result<(), Error> {
        let fs = self.inner();
        fs.check_open()?;
        judged(fs, tuning).map(drop)
    }
}

/// What of the change is left to be done, if all of it may be done.
fn judged(fs: &Fs, tuning: &Tuning) -> Result<Tuning, Error> {
    fs.check_super_may_change()?;
    let mut tuning = tuning.clone();
    check_tuning(&fs.sb, &tuning)?;
    set_features(fs, &mut tuning)?;
    check_uuid(fs, &tuning)?;
    clear_features(fs, fs.alloc()?, &mut tuning)?;
    Ok(tuning)
}

/// Checksums have the UUID in them, unless their seed is stored.
fn check_uuid(fs: &Fs, tuning: &Tuning) -> Result<(), Error> {
    if tuning.uuid.is_none() || tuning.uuid == Some(*fs.sb.uuid()) {
        return Ok(());
    }
    let features = fs.sb.features();
    let stored = features.incompat.with(tuning.set.incompat);
    let stored = stored.without(tuning.clear.incompat);
    let refused = if features.ro_compat.has(RoCompat::GDT_CSUM) {
        "a new UUID where checksums have the old one in them, which 'diorite tune -U' writes again"
    } else if fs.sb.has_metadata_csum() && !stored.has(Incompat::CSUM_SEED) {
        "a new UUID where checksums have the old one in them, which 'diorite tune -U' writes again; or set the feature \
         metadata_csum_seed first"
    } else if features.incompat.has(Incompat::EA_INODE) && !stored.has(Incompat::CSUM_SEED) {
        "a new UUID with the feature ea_inode: values of attributes have checksums with the old one in them, which \
         'diorite tune -U' writes again"
    } else if matches!(fs.sb.journal(), JournalPlace::External { .. }) {
        "a new UUID of a volume with a journal on another device, which knows the old one: 'diorite tune -U' changes both"
    } else if features.compat.has(Compat::STABLE_INODES) {
        "a new UUID, which the feature stable_inodes forbids: encrypted files depend on it"
    } else {
        return Ok(());
    };
    Err(Error::NotSupported(refused.to_owned()))
}

fn not_here(name: &str, why: &str) -> Error {
    Error::NotSupported(format!("the feature {name}: {why}"))
}

/// Features of `all` that are not among `known`.
fn others(all: &Features, known: &Features) -> Vec<String> {
    let left = Features {
        compat: all.compat.without(known.compat),
        incompat: all.incompat.without(known.incompat),
        ro_compat: all.ro_compat.without(known.ro_compat),
    };
    left.names()
}

/// Leaves of `tuning.set` what the volume does not have, if all of it can be set by its flag alone.
fn set_features(fs: &Fs, tuning: &mut Tuning) -> Result<(), Error> {
    let has = fs.sb.features();
    let set = &mut tuning.set;
    set.compat = set.compat.without(has.compat);
    set.incompat = set.incompat.without(has.incompat);
    set.ro_compat = set.ro_compat.without(has.ro_compat);
    // What these change begins with the next file, and old files stay as they are.
    let known = Features {
        compat: Compat::DIR_INDEX
            .with(Compat::FAST_COMMIT)
            .with(Compat::STABLE_INODES),
        incompat: Incompat::EXTENTS
            .with(Incompat::FLEX_BG)
            .with(Incompat::EA_INODE)
            .with(Incompat::LARGE_DIR)
            .with(Incompat::ENCRYPT)
            .with(Incompat::CSUM_SEED),
        ro_compat: RoCompat::LARGE_FILE
            .with(RoCompat::HUGE_FILE)
            .with(RoCompat::DIR_NLINK)
            .with(RoCompat::EXTRA_ISIZE)
            .with(RoCompat::VERITY)
            .with(RoCompat::READONLY),
    };
    if let Some(name) = others(set, &known).first() {
        let why = "it cannot be set on a file system that is there".to_owned();
        return Err(not_here(name, &why));
    }
    if *set != Features::default() && fs.sb.info().revision == 0 {
        let what = "revision 0 has no features, and stays";
        return Err(Error::NotSupported(what.to_owned()));
    }
    if set.compat.has(Compat::FAST_COMMIT) {
        check_journal(fs)?;
    }
    if set.ro_compat.has(RoCompat::EXTRA_ISIZE) && fs.sb.geometry().inode_size() <= 128 {
        return Err(not_here("extra_isize", "inodes of 128 bytes have no room"));
    }
    if set.incompat.has(Incompat::CSUM_SEED) {
        if !fs.sb.has_metadata_csum() {
            let why = "it is of use with metadata_csum only";
            return Err(not_here("metadata_csum_seed", why));
        }
        tuning.csum_seed = Some(fs.sb.csum_seed());
    }
    Ok(())
}

/// The journal must have room for fast commits.
fn check_journal(fs: &Fs) -> Result<(), Error> {
    let JournalPlace::Internal(ino) = fs.sb.journal() else {
        return Err(not_here("fast_commit", "there is no journal in the volume"));
    };
    let size = read_disk_inode(fs, ino)?.size;
    match size / u64::from(fs.block_size()) < LEAST_LOG + FAST_COMMIT_BLOCKS {
        true => Err(not_here("fast_commit", "the journal is too small for it")),
        false => Ok(()),
    }
}

/// Leaves of `tuning.clear` what the volume has, if nothing on it needs that.
fn clear_features(fs: &Fs, alloc: &Alloc, tuning: &mut Tuning) -> Result<(), Error> {
    let has = fs.sb.features();
    let clear = &mut tuning.clear;
    clear.compat = Compat::from_bits(clear.compat.bits() & has.compat.bits());
    clear.incompat = Incompat::from_bits(clear.incompat.bits() & has.incompat.bits());
    clear.ro_compat = RoCompat::from_bits(clear.ro_compat.bits() & has.ro_compat.bits());
    let of_files = Features {
        compat: Compat::DIR_INDEX,
        ro_compat: RoCompat::LARGE_FILE
            .with(RoCompat::HUGE_FILE)
            .with(RoCompat::DIR_NLINK),
        ..Features::default()
    };
    let known = Features {
        compat: of_files.compat.with(Compat::FAST_COMMIT),
        incompat: Incompat::CSUM_SEED,
        ro_compat: of_files.ro_compat.with(RoCompat::READONLY),
    };
    if let Some(name) = others(clear, &known).first() {
        let why = "it cannot be taken from a file system that is there".to_owned();
        return Err(not_here(name, &why));
    }
    if clear.incompat.has(Incompat::CSUM_SEED) {
        let uuid = tuning.uuid.as_ref().unwrap_or(fs.sb.uuid());
        if csum::crc32c(csum::SEED, uuid) != fs.sb.csum_seed() {
            let why = "the UUID has changed since the checksums were made: 'diorite tune -O ^metadata_csum_seed' writes them all again";
            return Err(not_here("metadata_csum_seed", why));
        }
    }
    let of_files = clear.compat.bits() & of_files.compat.bits() != 0
        || clear.ro_compat.bits() & of_files.ro_compat.bits() != 0;
    match of_files {
        true => search_users(fs, alloc, clear),
        false => Ok(()),
    }
}

/// Looks at every inode in use: none may need a feature that is to be cleared.
fn search_users(fs: &Fs, alloc: &Alloc, clear: &Features) -> Result<(), Error> {
    let per_group = fs.sb.geometry().inodes_per_group();
    for group in (0..fs.sb.group_count()).map(GroupNo::new) {
        let first = group.get() * per_group + 1;
        for ino in (first..first + per_group).map(Ino::new) {
            if !alloc.has_inode(fs, ino)? {
                continue;
            }
            let inode = read_disk_inode(fs, ino)?;
            if let Some(name) = user_of(&inode, clear) {
                let why = format!("inode {ino} needs it");
                return Err(not_here(name, &why));
            }
        }
    }
    Ok(())
}

/// Which of these features an inode needs.
fn user_of(inode: &Inode, features: &Features) -> Option<&'static str> {
    let huge = inode.flags.has(InodeFlags::HUGE_FILE) || inode.blocks > MOST_SECTORS;
    let (compat, ro) = (features.compat, features.ro_compat);
    let needs = [
        (
            compat.has(Compat::DIR_INDEX) && inode.flags.has(InodeFlags::INDEX),
            "dir_index",
        ),
        (
            ro.has(RoCompat::LARGE_FILE) && inode.is_file() && inode.size >= LARGE,
            "large_file",
        ),
        (ro.has(RoCompat::HUGE_FILE) && huge, "huge_file"),
        (
            ro.has(RoCompat::DIR_NLINK) && inode.is_dir() && inode.links == 1,
            "dir_nlink",
        ),
    ];
    needs
        .iter()
        .find(|(needs, _)| *needs)
        .map(|(_, name)| *name)
}
