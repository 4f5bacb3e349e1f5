//! Changes of the primary superblock, in its bytes.
//! Input: the 1,024 bytes of a superblock that was parsed, and values. Output: the same bytes with the changes and a checksum.
//! Invariant: a setter changes only its field; geometry, places and features do not change, except the two features that are
//! set and cleared by a mount, and the one set by the first large file. Limits: the checked [`super::Superblock`] does not
//! follow the changes (parse the bytes again), and no checksum is computed before [`SuperblockEdit::seal`].
//! Source: the kernel's ext4 documentation, "super block"; `dumpe2fs -h` and e2fsck on changed images in tests.

use crate::csum;
use crate::features::{Compat, Incompat, RoCompat};
use crate::layout::sb;
use crate::le::{le16, le32, put, put_le16, put_le32, put_le64};
use crate::num;
use crate::types::Ino;

use super::fresh::BACKUP_OF_MAP;
use super::{ErrorRecord, STATE_ERROR, STATE_VALID, SUPERBLOCK_SIZE};

/// Seconds in the 40 bits of a superblock's times.
const MAX_TIME: i64 = (1 << 40) - 1;

/// The first ordinary inode of revision 0.
pub(super) const OLD_FIRST_INO: u32 = 11;
const OLD_INODE_SIZE: u16 = 128;

/// The bytes of a superblock being changed.
#[derive(Debug)]
pub struct SuperblockEdit<'a>(pub(super) &'a mut [u8; SUPERBLOCK_SIZE]);

impl<'a> SuperblockEdit<'a> {
    /// Starts to change bytes that [`super::Superblock::parse`] accepted.
    #[must_use]
    pub fn new(raw: &'a mut [u8; SUPERBLOCK_SIZE]) -> Self {
        Self(raw)
    }

    /// Sets the free blocks (not clusters). Without 64bit the upper half is not stored.
    pub fn set_free_blocks(&mut self, count: u64) {
        let (high, low) = num::split(count);
        put_le32(self.0, sb::FREE_BLOCKS_COUNT_LO, low);
        if le32(self.0, sb::FEATURE_INCOMPAT) & Incompat::BIT64.bits() != 0 {
            put_le32(self.0, sb::FREE_BLOCKS_COUNT_HI, high);
        }
    }

    /// Sets the free inodes.
    pub fn set_free_inodes(&mut self, count: u32) {
        put_le32(self.0, sb::FREE_INODES_COUNT, count);
    }

    /// Sets whether the volume was cleanly unmounted.
    pub fn set_valid(&mut self, valid: bool) {
        self.set_state(STATE_VALID, valid);
    }

    /// Sets whether the volume has errors and should be checked.
    pub fn set_error_state(&mut self, error: bool) {
        self.set_state(STATE_ERROR, error);
    }

    fn set_state(&mut self, bit: u16, on: bool) {
        let state = le16(self.0, sb::STATE) & !bit;
        put_le16(self.0, sb::STATE, if on { state | bit } else { state });
    }

    /// Sets whether the journal must be replayed (incompat feature `needs_recovery`): set while a volume with a journal is
    /// mounted for writing.
    pub fn set_needs_recovery(&mut self, on: bool) {
        self.set_feature(sb::FEATURE_INCOMPAT, Incompat::RECOVER.bits(), on);
    }

    /// Sets whether the orphan file may have entries (ro_compat feature `orphan_present`): set while a volume with an orphan
    /// file is mounted for writing.
    pub fn set_orphan_present(&mut self, on: bool) {
        self.set_feature(sb::FEATURE_RO_COMPAT, RoCompat::ORPHAN_PRESENT.bits(), on);
    }

    /// Takes away the number of the orphan file, if the volume does not have the feature orphan_file. The kernel and e2fsck let no other
    /// file have that inode even so; e2fsck 1.47 leaves the number where it takes the feature away.
    pub fn forget_orphan_file(&mut self) {
        if le32(self.0, sb::FEATURE_COMPAT) & Compat::ORPHAN_FILE.bits() == 0 {
            put_le32(self.0, sb::ORPHAN_FILE_INUM, 0);
        }
    }

    /// Sets that a file has grown past 2 GiB (ro_compat feature `large_file`); never cleared. Revision 0 has no features, so it
    /// becomes revision 1, with the sizes that revision 0 always has.
    pub fn set_large_file(&mut self) {
        if le32(self.0, sb::REV_LEVEL) == 0 {
            put_le32(self.0, sb::REV_LEVEL, 1);
            put_le32(self.0, sb::FIRST_INO, OLD_FIRST_INO);
            put_le16(self.0, sb::INODE_SIZE, OLD_INODE_SIZE);
        }
        self.set_feature(sb::FEATURE_RO_COMPAT, RoCompat::LARGE_FILE.bits(), true);
    }

    fn set_feature(&mut self, word: usize, bit: u32, on: bool) {
        let bits = le32(self.0, word) & !bit;
        put_le32(self.0, word, if on { bits | bit } else { bits });
    }

    /// Sets the head of the orphan list; 0 empties it.
    pub fn set_last_orphan(&mut self, ino: Ino) {
        put_le32(self.0, sb::LAST_ORPHAN, ino.get());
    }

    /// Sets the copy of the journal inode's map, and its size, high and low.
    pub fn set_journal_backup(&mut self, words: &[u32; 17]) {
        put(self.0, sb::JNL_BACKUP_TYPE, &[BACKUP_OF_MAP]);
        for (n, word) in words.iter().enumerate() {
            let at = sb::JNL_BLOCKS.saturating_add(n.saturating_mul(4));
            put_le32(self.0, at, *word);
        }
    }

    /// Sets the number of mounts since the last full check.
    pub fn set_mount_count(&mut self, count: u16) {
        put_le16(self.0, sb::MNT_COUNT, count);
    }

    /// Sets the time of the last mount, in seconds since 1970.
    pub fn set_mount_time(&mut self, secs: i64) {
        self.set_time(sb::MTIME, sb::MTIME_HI, secs);
    }

    /// Sets the time of the last write, in seconds since 1970.
    pub fn set_write_time(&mut self, secs: i64) {
        self.set_time(sb::WTIME, sb::WTIME_HI, secs);
    }

    fn set_time(&mut self, lo: usize, hi: usize, secs: i64) {
        put_time(self.0, lo, hi, secs);
    }

    /// Sets the directory of the mount; cut after 63 bytes.
    pub fn set_last_mounted(&mut self, path: &[u8]) {
        self.set_text::<64>(sb::LAST_MOUNTED, path);
    }

    /// Text of at most `N - 1` bytes and zeros to the end of its field.
    fn set_text<const N: usize>(&mut self, at: usize, text: &[u8]) {
        put(self.0, at, &[0; N]);
        put(self.0, at, text.get(..N.saturating_sub(1)).unwrap_or(text));
    }

    /// Sets the KiB written in the volume's lifetime.
    pub fn set_kbytes_written(&mut self, kib: u64) {
        put_le64(self.0, sb::KBYTES_WRITTEN, kib);
    }

    /// Records a failure: as the latest, as the first if there was none before, and in their count; sets the error state.
    pub fn record_error(&mut self, record: &ErrorRecord) {
        let count = le32(self.0, sb::ERROR_COUNT);
        if count == 0 {
            self.put_error(&FIRST, record);
        }
        self.put_error(&LAST, record);
        put_le32(self.0, sb::ERROR_COUNT, count.saturating_add(1));
        self.set_error_state(true);
    }

    fn put_error(&mut self, at: &RecordAt, record: &ErrorRecord) {
        self.set_time(at.time, at.time_hi, record.time);
        put_le32(self.0, at.ino, record.ino);
        put_le64(self.0, at.block, record.block);
        self.set_text::<32>(at.function, record.function.as_bytes());
        put_le32(self.0, at.line, record.line);
        put(self.0, at.code, &[record.code]);
    }

    /// Writes the checksum after the changes. Does nothing without metadata_csum.
    pub fn seal(self) {
        if le32(self.0, sb::FEATURE_RO_COMPAT) & RoCompat::METADATA_CSUM.bits() != 0 {
            let sum = csum::crc32c(csum::SEED, self.0.get(..sb::CHECKSUM).unwrap_or(&[]));
            put_le32(self.0, sb::CHECKSUM, sum);
        }
    }
}

/// 32 bits, and 8 higher bits in another field; a time before 1970 is stored as 1970.
pub(super) fn put_time(b: &mut [u8], lo: usize, hi: usize, secs: i64) {
    let secs = u64::try_from(secs.clamp(0, MAX_TIME)).unwrap_or(0);
    let (high, low) = num::split(secs);
    put_le32(b, lo, low);
    put(b, hi, &[high.to_le_bytes()[0]]);
}

/// The position of one of the two error records.
struct RecordAt {
    time: usize,
    time_hi: usize,
    ino: usize,
    block: usize,
    function: usize,
    line: usize,
    code: usize,
}

const FIRST: RecordAt = RecordAt {
    time: sb::FIRST_ERROR_TIME,
    time_hi: sb::FIRST_ERROR_TIME_HI,
    ino: sb::FIRST_ERROR_INO,
    block: sb::FIRST_ERROR_BLOCK,
    function: sb::FIRST_ERROR_FUNC,
    line: sb::FIRST_ERROR_LINE,
    code: sb::FIRST_ERROR_ERRCODE,
};

const LAST: RecordAt = RecordAt {
    time: sb::LAST_ERROR_TIME,
    time_hi: sb::LAST_ERROR_TIME_HI,
    ino: sb::LAST_ERROR_INO,
    block: sb::LAST_ERROR_BLOCK,
    function: sb::LAST_ERROR_FUNC,
    line: sb::LAST_ERROR_LINE,
    code: sb::LAST_ERROR_ERRCODE,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superblock::Superblock;
    use crate::superblock::tests::sample;

    fn error(n: u32) -> ErrorRecord {
        ErrorRecord {
            time: 0x1_0000_0000 + i64::from(n),
            ino: n,
            block: u64::from(n) << 33,
            function: "f".repeat(40),
            line: n,
            code: 5,
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut raw = sample();
        raw[sb::CHECKSUM_TYPE] = 1;
        raw[sb::FEATURE_RO_COMPAT + 1] |= 4;
        let mut edit = SuperblockEdit::new(&mut raw);
        edit.set_free_blocks(1234);
        edit.set_free_inodes(567);
        edit.set_valid(true);
        edit.set_needs_recovery(true);
        edit.set_orphan_present(true);
        edit.set_last_orphan(Ino::new(77));
        edit.set_mount_count(9);
        edit.set_mount_time(0x12_3456_789A);
        edit.set_write_time(-1);
        edit.set_last_mounted(&[b'm'; 70]);
        edit.set_kbytes_written(1 << 40);
        edit.set_large_file();
        edit.record_error(&error(1));
        edit.record_error(&error(2));
        edit.seal();
        let s = Superblock::parse(&raw).unwrap();
        let (g, i) = (s.geometry(), s.info());
        assert_eq!((g.free_blocks_count(), g.free_inodes_count()), (1234, 567));
        assert_eq!(
            (s.state(), s.needs_recovery(), s.last_orphan().get()),
            (3, true, 77)
        );
        assert!(s.features().ro_compat.has(RoCompat::ORPHAN_PRESENT));
        assert!(s.features().ro_compat.has(RoCompat::LARGE_FILE));
        assert_eq!(
            (i.mount_count, i.mount_time, i.write_time),
            (9, 0x12_3456_789A, 0)
        );
        assert_eq!((i.last_mounted.len(), i.kbytes_written), (63, 1 << 40));
        let short = |n| ErrorRecord {
            function: "f".repeat(31),
            ..error(n)
        };
        let found = s.recorded_errors().unwrap();
        assert_eq!(
            (found.count, &found.first, &found.last),
            (2, &short(1), &short(2))
        );
    }

    #[test]
    fn revision_0_gets_its_first_feature() {
        let mut raw = sample();
        raw[sb::REV_LEVEL] = 0;
        let mut edit = SuperblockEdit::new(&mut raw);
        edit.set_large_file();
        edit.seal();
        let s = Superblock::parse(&raw).unwrap();
        assert_eq!(s.info().revision, 1);
        assert_eq!(
            (s.geometry().inode_size(), s.geometry().first_ino()),
            (128, 11)
        );
        assert!(s.features().ro_compat.has(RoCompat::LARGE_FILE));
    }

    #[test]
    fn what_is_switched_off_leaves_no_trace() {
        let mut raw = sample();
        raw[sb::STATE] = 4;
        let before = raw;
        for on in [true, false] {
            let mut edit = SuperblockEdit::new(&mut raw);
            edit.set_valid(on);
            edit.set_error_state(on);
            edit.set_needs_recovery(on);
            edit.set_orphan_present(on);
            edit.set_last_orphan(Ino::new(u32::from(on)));
            edit.seal();
            assert_eq!(raw == before, !on);
        }
    }
}
