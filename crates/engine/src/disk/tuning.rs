//! Checks of values for a superblock.
//!
//! Input: a file system, and [`Tuning`]. Output: whether the format permits these values, and which features are still to be switched.
//! Invariants: nothing is changed; a feature is switched only if nothing else of the file system would have to change with it. Limits: a
//! caller that clears a feature has to prevent that files are created meanwhile.

use crate::error::Error;
use diorite_format::features::{Compat, Features, Incompat, RoCompat};
use diorite_format::superblock::{JournalPlace, Tuning};
use diorite_format::{Ino, Inode, InodeFlags, Superblock, csum};

/// The smallest size of a file that needs large_file.
const LARGE: u64 = 1 << 31;
/// 512-byte units of a file that need no huge_file.
const MOST_SECTORS: u64 = 0xFFFF_FFFF;
/// Blocks of a journal that the kernel needs for its log, and those that it takes for fast commits.
const LEAST_LOG: u64 = 1024;
const FAST_COMMIT_BLOCKS: u64 = 256;
/// The most reserved blocks are the volume's divided by this.
const RESERVED_PART: u64 = 2;

/// Judges the values.
///
/// # Errors
/// `Invalid`.
pub(crate) fn check_tuning(sb: &Superblock, tuning: &Tuning) -> Result<(), Error> {
    let invalid = |what: String| Err(Error::Invalid(what));
    let most = sb.geometry().blocks_count() / RESERVED_PART;
    match tuning.reserved_blocks {
        Some(blocks) if blocks > most => {
            return invalid(format!("{blocks} reserved blocks: at most {most}"));
        }
        _ => {}
    }
    match tuning.errors_behavior {
        None | Some(1..=3) => {}
        Some(n) => return invalid(format!("behaviour {n} after errors is unknown")),
    }
    match tuning.hash_version {
        None | Some(0..=2) => Ok(()),
        Some(n) => invalid(format!("the hash {n} is unknown")),
    }
}

/// A file system whose features are to be switched.
pub(crate) trait Judged {
    /// Its superblock as it is.
    fn superblock(&self) -> &Superblock;

    /// One of its inodes. Blocks.
    ///
    /// # Errors
    /// It cannot be read.
    fn inode(&mut self, ino: Ino) -> Result<Inode, Error>;

    /// Looks at every inode in use; the first error ends it. Blocks.
    ///
    /// # Errors
    /// That of `look`; what cannot be read.
    fn each_inode(
        &mut self,
        look: &mut dyn FnMut(&Inode) -> Result<(), Error>,
    ) -> Result<(), Error>;
}

/// Leaves of the features of `tuning` what is to be switched, if all of it can be by its flag alone. Blocks.
///
/// # Errors
/// `NotSupported` for a feature that cannot be switched without changing more than the superblock, or that is in use.
pub(crate) fn judge_features(judged: &mut impl Judged, tuning: &mut Tuning) -> Result<(), Error> {
    set_features(judged, tuning)?;
    clear_features(judged, tuning)
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
fn set_features(judged: &mut impl Judged, tuning: &mut Tuning) -> Result<(), Error> {
    let sb = judged.superblock().clone();
    let has = sb.features();
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
    if *set != Features::default() && sb.info().revision == 0 {
        let what = "revision 0 has no features, and stays";
        return Err(Error::NotSupported(what.to_owned()));
    }
    if set.compat.has(Compat::FAST_COMMIT) {
        check_journal(judged)?;
    }
    if set.ro_compat.has(RoCompat::EXTRA_ISIZE) && sb.geometry().inode_size() <= 128 {
        return Err(not_here("extra_isize", "inodes of 128 bytes have no room"));
    }
    if set.incompat.has(Incompat::CSUM_SEED) {
        if !sb.has_metadata_csum() {
            let why = "it is of use with metadata_csum only";
            return Err(not_here("metadata_csum_seed", why));
        }
        tuning.csum_seed = Some(sb.csum_seed());
    }
    Ok(())
}

/// The journal must have room for fast commits.
fn check_journal(judged: &mut impl Judged) -> Result<(), Error> {
    let sb = judged.superblock().clone();
    let JournalPlace::Internal(ino) = sb.journal() else {
        return Err(not_here("fast_commit", "there is no journal in the volume"));
    };
    let size = judged.inode(ino)?.size;
    match size / u64::from(sb.block_size()) < LEAST_LOG + FAST_COMMIT_BLOCKS {
        true => Err(not_here("fast_commit", "the journal is too small for it")),
        false => Ok(()),
    }
}

/// Leaves of `tuning.clear` what the volume has, if nothing on it needs that.
fn clear_features(judged: &mut impl Judged, tuning: &mut Tuning) -> Result<(), Error> {
    let sb = judged.superblock().clone();
    let has = sb.features();
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
        let uuid = tuning.uuid.as_ref().unwrap_or(sb.uuid());
        if csum::crc32c(csum::SEED, uuid) != sb.csum_seed() {
            let why = "the UUID has changed since the checksums were made: 'diorite tune -O ^metadata_csum_seed' writes them all again";
            return Err(not_here("metadata_csum_seed", why));
        }
    }
    let of_files = clear.compat.bits() & of_files.compat.bits() != 0
        || clear.ro_compat.bits() & of_files.ro_compat.bits() != 0;
    match of_files {
        true => judged.each_inode(&mut |inode| check_user(inode, clear)),
        false => Ok(()),
    }
}

/// An inode must not need a feature that is to be cleared.
fn check_user(inode: &Inode, clear: &Features) -> Result<(), Error> {
    match user_of(inode, clear) {
        Some(name) => Err(not_here(name, &format!("inode {} needs it", inode.ino))),
        None => Ok(()),
    }
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
