//! Parameters of a volume that may change while nothing else does: what tune2fs sets in the superblock alone.
//! Input: [`Tuning`]. Output: the superblock's bytes with it. Invariant: only the fields that are given change, and no field that says
//! where anything lies. Limit: whether a feature may be switched is judged by those who see the volume. Source: man 8 tune2fs; the
//! bytes that tune2fs 1.47 changes, by experiment.

use crate::features::{Features, Incompat};
use crate::layout::sb;
use crate::le::{le32, put, put_le16, put_le32};
use crate::num;

use super::SuperblockEdit;
use super::edit::put_time;
use super::fresh::ENCRYPT_ALGOS;

/// `s_flags`: a file system for tests of drivers.
const TEST_FILESYS: u32 = 4;

/// Changes of the superblock; what is `None` stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tuning {
    /// The label, filled up with zeros.
    pub label: Option<[u8; 16]>,
    /// The UUID.
    pub uuid: Option<[u8; 16]>,
    /// The directory shown as that of the last mount, filled up with zeros.
    pub last_mounted: Option<[u8; 64]>,
    /// Blocks that only the owner of reserved blocks may use.
    pub reserved_blocks: Option<u64>,
    /// The user who may use them.
    pub reserved_uid: Option<u32>,
    /// The group who may.
    pub reserved_gid: Option<u32>,
    /// After an error: 1 continue, 2 remount read-only, 3 panic.
    pub errors_behavior: Option<u16>,
    /// Mounts before a check is due; 0 or less: no limit.
    pub max_mount_count: Option<i16>,
    /// Mounts since the last check.
    pub mount_count: Option<u16>,
    /// Seconds between checks; 0: no limit.
    pub check_interval: Option<u32>,
    /// The time of the last check, in seconds since 1970.
    pub check_time: Option<i64>,
    /// `s_default_mount_opts`, bits.
    pub default_mount_opts: Option<u32>,
    /// Default mount options as text, filled up with zeros.
    pub mount_opts: Option<[u8; 64]>,
    /// Blocks per RAID chunk.
    pub raid_stride: Option<u16>,
    /// Blocks per RAID stripe.
    pub raid_stripe_width: Option<u32>,
    /// Hash of names in new directories: 0 legacy, 1 half MD4, 2 TEA.
    pub hash_version: Option<u8>,
    /// Marks a file system for tests of drivers.
    pub is_test: Option<bool>,
    /// Asks for a check: as if errors had been found.
    pub needs_check: bool,
    /// Features to add.
    pub set: Features,
    /// Features to take away.
    pub clear: Features,
    /// The checksum seed to store, for `metadata_csum_seed`.
    pub csum_seed: Option<u32>,
}

impl SuperblockEdit<'_> {
    /// Notes that a full check at this time, in seconds since 1970, found nothing wrong, or nothing that was not repaired: the volume is
    /// clean, and the errors that drivers recorded are forgotten, as by e2fsck.
    pub fn set_checked(&mut self, now: i64) {
        self.set_error_state(false);
        self.set_valid(true);
        self.set_mount_count(0);
        let b = &mut *self.0;
        put_time(b, sb::LASTCHECK, sb::LASTCHECK_HI, now);
        let records = [
            sb::ERROR_COUNT..sb::MOUNT_OPTS,
            sb::FIRST_ERROR_TIME_HI..sb::ENCODING,
        ];
        for range in records {
            if let Some(fields) = b.get_mut(range) {
                fields.fill(0);
            }
        }
    }

    /// Changes what `tuning` says.
    pub fn tune(&mut self, tuning: &Tuning) {
        self.tune_identity(tuning);
        self.tune_behaviour(tuning);
        self.switch_features(&tuning.set, &tuning.clear);
        let (b, set) = (&mut *self.0, &tuning.set);
        if set.incompat.has(Incompat::ENCRYPT) && le32(b, sb::ENCRYPT_ALGOS) == 0 {
            put(b, sb::ENCRYPT_ALGOS, &ENCRYPT_ALGOS);
        }
        if let Some(seed) = tuning.csum_seed {
            put_le32(b, sb::CHECKSUM_SEED, seed);
        }
        if tuning.needs_check {
            self.set_error_state(true);
        }
    }

    fn tune_identity(&mut self, tuning: &Tuning) {
        let b = &mut *self.0;
        if let Some(label) = &tuning.label {
            put(b, sb::VOLUME_NAME, label);
        }
        if let Some(uuid) = &tuning.uuid {
            put(b, sb::UUID, uuid);
        }
        if let Some(dir) = &tuning.last_mounted {
            put(b, sb::LAST_MOUNTED, dir);
        }
        if let Some(options) = &tuning.mount_opts {
            put(b, sb::MOUNT_OPTS, options);
        }
        if let Some(blocks) = tuning.reserved_blocks {
            let (high, low) = num::split(blocks);
            put_le32(b, sb::R_BLOCKS_COUNT_LO, low);
            if le32(b, sb::FEATURE_INCOMPAT) & Incompat::BIT64.bits() != 0 {
                put_le32(b, sb::R_BLOCKS_COUNT_HI, high);
            }
        }
        for (id, lo, hi) in [
            (tuning.reserved_uid, sb::DEF_RESUID, sb::DEF_RESUID_HI),
            (tuning.reserved_gid, sb::DEF_RESGID, sb::DEF_RESGID_HI),
        ] {
            if let Some(id) = id {
                put_le16(b, lo, num::low16(id));
                put_le16(b, hi, num::low16(id >> 16));
            }
        }
    }

    fn tune_behaviour(&mut self, tuning: &Tuning) {
        let b = &mut *self.0;
        let max = tuning.max_mount_count.map(i16::cast_unsigned);
        for (value, at) in [
            (tuning.errors_behavior, sb::ERRORS),
            (max, sb::MAX_MNT_COUNT),
            (tuning.mount_count, sb::MNT_COUNT),
            (tuning.raid_stride, sb::RAID_STRIDE),
        ] {
            if let Some(value) = value {
                put_le16(b, at, value);
            }
        }
        for (value, at) in [
            (tuning.check_interval, sb::CHECKINTERVAL),
            (tuning.default_mount_opts, sb::DEFAULT_MOUNT_OPTS),
            (tuning.raid_stripe_width, sb::RAID_STRIPE_WIDTH),
        ] {
            if let Some(value) = value {
                put_le32(b, at, value);
            }
        }
        if let Some(time) = tuning.check_time {
            put_time(b, sb::LASTCHECK, sb::LASTCHECK_HI, time);
        }
        if let Some(version) = tuning.hash_version {
            put(b, sb::DEF_HASH_VERSION, &[version]);
        }
        if let Some(test) = tuning.is_test {
            let flags = le32(b, sb::FLAGS) & !TEST_FILESYS;
            put_le32(
                b,
                sb::FLAGS,
                if test { flags | TEST_FILESYS } else { flags },
            );
        }
    }
}
