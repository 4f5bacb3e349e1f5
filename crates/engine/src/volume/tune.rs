//! Parameters of a volume: what tune2fs sets in the superblock alone.
//!
//! Input: [`Tuning`]. Output: the superblock with it, and its copies, durably. Invariants: everything is judged before anything is written;
//! all changes are one transaction; a feature is switched only if nothing else on the volume would have to change with it. Limits: nobody
//! else may make or extend files while a feature is cleared, since what uses it is searched before; what follows from a parameter when a
//! volume is opened (reserved blocks, data mode) follows when it is opened again.

use super::Volume;
use crate::alloc::Alloc;
use crate::disk::{Judged, check_tuning, judge_features, read_disk_inode};
use crate::error::Error;
use crate::inode::Fs;
use diorite_format::features::{Compat, Incompat, RoCompat};
use diorite_format::superblock::{JournalPlace, Tuning};
use diorite_format::{GroupNo, Ino, Inode, Superblock};

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
    check_uuid(fs, &tuning)?;
    let alloc = fs.alloc()?;
    judge_features(&mut OfVolume { fs, alloc }, &mut tuning)?;
    Ok(tuning)
}

/// An open volume.
struct OfVolume<'a> {
    fs: &'a Fs,
    alloc: &'a Alloc,
}

impl Judged for OfVolume<'_> {
    fn superblock(&self) -> &Superblock {
        &self.fs.sb
    }

    fn inode(&mut self, ino: Ino) -> Result<Inode, Error> {
        read_disk_inode(self.fs, ino)
    }

    fn each_inode(
        &mut self,
        look: &mut dyn FnMut(&Inode) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let per_group = self.fs.sb.geometry().inodes_per_group();
        for group in (0..self.fs.sb.group_count()).map(GroupNo::new) {
            let first = group.get() * per_group + 1;
            for ino in (first..first + per_group).map(Ino::new) {
                if self.alloc.has_inode(self.fs, ino)? {
                    look(&read_disk_inode(self.fs, ino)?)?;
                }
            }
        }
        Ok(())
    }
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
