//! Fields of the superblock that lead to structures which a volume gets or loses: journal, orphan file, usage files, the block against
//! several mounts.
//! Input: places. Output: the superblock's bytes with them. Invariant: a structure that is gone leaves zeros, as in a superblock that never
//! had it. Limit: what they lead to is written by the caller. Source: the kernel's ext4 documentation, "super block"; dumpe2fs and e2fsck
//! on changed images, and what tune2fs 1.47 leaves of each, by experiment.

use super::{SUPERBLOCK_SIZE, SuperblockEdit};
use crate::features::{Compat, Features, Incompat};
use crate::layout::sb;
use crate::le::{le32, put, put_le16, put_le32, put_le64};
use crate::num;
use crate::quota::Kind;
use crate::types::{FsBlock, Ino};

/// Bytes that a device writes as a whole.
const SECTOR: usize = 512;

impl SuperblockEdit<'_> {
    /// Sets and clears features.
    pub fn switch_features(&mut self, set: &Features, clear: &Features) {
        for (at, on, off) in [
            (sb::FEATURE_COMPAT, set.compat.bits(), clear.compat.bits()),
            (
                sb::FEATURE_INCOMPAT,
                set.incompat.bits(),
                clear.incompat.bits(),
            ),
            (
                sb::FEATURE_RO_COMPAT,
                set.ro_compat.bits(),
                clear.ro_compat.bits(),
            ),
        ] {
            let bits = le32(self.0, at);
            put_le32(self.0, at, bits & !off | on);
        }
    }

    /// Replaces all of it.
    pub fn replace(&mut self, raw: &[u8; SUPERBLOCK_SIZE]) {
        *self.0 = *raw;
    }

    /// Replaces its second sector of 512 bytes.
    pub fn replace_second_half(&mut self, raw: &[u8; SUPERBLOCK_SIZE]) {
        let (_, half) = raw.split_at(SECTOR);
        put(self.0, SECTOR, half);
    }

    /// Sets the UUID.
    pub fn set_uuid(&mut self, uuid: &[u8; 16]) {
        put(self.0, sb::UUID, uuid);
    }

    /// The volume has its journal in this inode, whose copy of the map is set elsewhere.
    pub fn set_journal_inode(&mut self, ino: Ino) {
        self.set_compat(Compat::HAS_JOURNAL, true);
        put_le32(self.0, sb::JOURNAL_INUM, ino.get());
        put_le32(self.0, sb::JOURNAL_DEV, 0);
        put(self.0, sb::JOURNAL_UUID, &[0; 16]);
    }

    /// The volume has its journal on the device with this UUID, whose number is unknown.
    pub fn set_journal_on_device(&mut self, uuid: &[u8; 16]) {
        self.forget_journal();
        self.set_compat(Compat::HAS_JOURNAL, true);
        put(self.0, sb::JOURNAL_UUID, uuid);
    }

    /// The volume has no journal.
    pub fn forget_journal(&mut self) {
        self.set_compat(Compat::HAS_JOURNAL, false);
        self.set_compat(Compat::FAST_COMMIT, false);
        self.set_needs_recovery(false);
        put_le32(self.0, sb::JOURNAL_INUM, 0);
        put_le32(self.0, sb::JOURNAL_DEV, 0);
        put(self.0, sb::JOURNAL_UUID, &[0; 16]);
        put(self.0, sb::JNL_BACKUP_TYPE, &[0]);
        put(self.0, sb::JNL_BLOCKS, &[0; 68]);
    }

    /// The volume keeps orphans in the file of this inode; 0: it has none.
    pub fn set_orphan_file(&mut self, ino: Ino) {
        self.set_compat(Compat::ORPHAN_FILE, !ino.is_none());
        if ino.is_none() {
            self.set_orphan_present(false);
        }
        put_le32(self.0, sb::ORPHAN_FILE_INUM, ino.get());
    }

    /// No blocks are kept for descriptors.
    pub fn forget_kept_blocks(&mut self) {
        self.set_compat(Compat::RESIZE_INODE, false);
        put_le16(self.0, sb::RESERVED_GDT_BLOCKS, 0);
    }

    /// The inode with the usage file of a kind; 0: there is none.
    pub fn set_usage_file(&mut self, kind: Kind, ino: Ino) {
        let at = match kind {
            Kind::User => sb::USR_QUOTA_INUM,
            Kind::Group => sb::GRP_QUOTA_INUM,
            Kind::Project => sb::PRJ_QUOTA_INUM,
        };
        put_le32(self.0, at, ino.get());
    }

    /// The block against several mounts and the seconds between its updates; 0: there is none.
    pub fn set_mmp(&mut self, at: FsBlock, interval: u16) {
        let bits = le32(self.0, sb::FEATURE_INCOMPAT) & !Incompat::MMP.bits();
        let on = if at.is_none() {
            0
        } else {
            Incompat::MMP.bits()
        };
        put_le32(self.0, sb::FEATURE_INCOMPAT, bits | on);
        put_le64(self.0, sb::MMP_BLOCK, at.get());
        put_le16(self.0, sb::MMP_INTERVAL, interval);
    }

    /// The encoding of names that ignore case, and its flags; 0: none.
    pub fn set_encoding(&mut self, encoding: u16, flags: u16) {
        put_le16(self.0, sb::ENCODING, encoding);
        put_le16(self.0, sb::ENCODING_FLAGS, flags);
    }

    /// Another size of inodes.
    pub fn set_inode_size(&mut self, bytes: u16) {
        put_le16(self.0, sb::INODE_SIZE, bytes);
    }

    /// Sets how many clusters are no file's.
    pub fn set_overhead(&mut self, clusters: u32) {
        put_le32(self.0, sb::OVERHEAD_CLUSTERS, clusters);
    }

    /// The type of checksums of metadata, crc32c, or none.
    pub fn set_checksum_type(&mut self, on: bool) {
        put(self.0, sb::CHECKSUM_TYPE, &[u8::from(on)]);
        if !on {
            put_le32(self.0, sb::CHECKSUM, 0);
        }
    }

    /// Sets the seconds between updates of the block against several mounts.
    pub fn set_mmp_interval(&mut self, seconds: u16) {
        put_le16(self.0, sb::MMP_INTERVAL, seconds);
    }

    /// No seed of checksums is stored.
    pub fn forget_seed(&mut self) {
        put_le32(self.0, sb::CHECKSUM_SEED, 0);
    }

    fn set_compat(&mut self, bit: Compat, on: bool) {
        let bits = le32(self.0, sb::FEATURE_COMPAT) & !bit.bits();
        let bit = if on { bit.bits() } else { 0 };
        put_le32(self.0, sb::FEATURE_COMPAT, bits | bit);
    }
}

/// The words of a copy of a map in the superblock: the map, and the size, high and low.
#[must_use]
pub fn journal_backup(i_block: &[u8; 60], size: u64) -> [u32; 17] {
    let mut words = [0; 17];
    for (n, word) in words.iter_mut().take(15).enumerate() {
        *word = le32(i_block, n.saturating_mul(4));
    }
    let (high, low) = num::split(size);
    let [.., h, l] = &mut words;
    (*h, *l) = (high, low);
    words
}
