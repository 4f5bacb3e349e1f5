//! Blocks of the log as a writer makes them: descriptor, revoke and commit blocks, and changes of the journal superblock.
//! Input: a transaction's blocks and numbers. Output: whole blocks with checksums, in the form that [`JournalSuper`] describes.
//! Invariant: the parsers next to this module accept them; nothing past the block is written. Limits: checksums of version 1
//! are not made: [`modernise`] clears that feature, as mounting does. Source: the kernel's "Journal (jbd2)" documentation; the
//! two extra bytes of version 2's tags by experiment with `debugfs -R "jw"`.

use super::block::{COMMIT, DESCRIPTOR, REVOKE, TAIL};
use super::commit::{CHECKSUM, NANOSECONDS, SECONDS};
use super::descriptor::{ESCAPED, LAST, SAME_UUID, UUID};
use super::revoke::ENTRIES;
use super::{JournalChecksum, JournalSuper, MAGIC};
use crate::csum;
use crate::layout::jsb;
use crate::le::{put, put_be16, put_be32, put_be64};
use crate::num;
use crate::types::{FsBlock, Tid};

/// Bytes of the header of every block of the log.
pub const HEADER: usize = super::block::HEADER;

/// The data for a block's tag in the descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// Its block number on the volume.
    pub block: FsBlock,
    /// It begins with the magic number, which is replaced by zeros in the log.
    pub escaped: bool,
    /// crc32c of the sequence number and the block as stored in the log: see [`block_sum`].
    pub sum: u32,
}

fn tag_size(journal: &JournalSuper) -> usize {
    journal.form().tag_size()
}

fn tail_size(journal: &JournalSuper) -> usize {
    if journal.form().sums_blocks() {
        TAIL
    } else {
        0
    }
}

/// How many blocks one descriptor can describe.
#[must_use]
pub fn tags_per_descriptor(journal: &JournalSuper) -> usize {
    let used = HEADER
        .saturating_add(UUID)
        .saturating_add(tail_size(journal));
    let room = num::usize32(journal.block_size).saturating_sub(used);
    room.checked_div(tag_size(journal)).unwrap_or(0)
}

/// How many blocks one revoke block can list.
#[must_use]
pub fn revokes_per_block(journal: &JournalSuper) -> usize {
    let room = num::usize32(journal.block_size)
        .saturating_sub(ENTRIES)
        .saturating_sub(tail_size(journal));
    room.checked_div(if journal.features.is_64bit() { 8 } else { 4 })
        .unwrap_or(0)
}

/// Escapes a block for the log: zeros the magic number at its start. Returns true if it was there.
pub fn escape(block: &mut [u8]) -> bool {
    let escaped = block.starts_with(&MAGIC.to_be_bytes());
    if escaped {
        put(block, 0, &[0; 4]);
    }
    escaped
}

/// The checksum of a log block for its tag; 0 if the log has no checksums.
#[must_use]
pub fn block_sum(journal: &JournalSuper, sequence: Tid, block: &[u8]) -> u32 {
    let form = journal.form();
    if form.sums_blocks() {
        form.copy_sum(sequence, block)
    } else {
        0
    }
}

fn header(block: &mut [u8], kind: u32, sequence: Tid) {
    block.fill(0);
    put_be32(block, 0, MAGIC);
    put_be32(block, 4, kind);
    put_be32(block, 8, sequence.get());
}

/// Fills `block` with a descriptor of the blocks that follow it in the log, at most [`tags_per_descriptor`].
pub fn descriptor(journal: &JournalSuper, sequence: Tid, tags: &[Tag], block: &mut [u8]) {
    header(block, DESCRIPTOR, sequence);
    let mut at = HEADER;
    for (n, tag) in tags.iter().enumerate() {
        let mut flags = if tag.escaped { ESCAPED } else { 0 };
        if n > 0 {
            flags |= SAME_UUID;
        }
        if n.saturating_add(1) == tags.len() {
            flags |= LAST;
        }
        put_tag(journal, tag, flags, block, at);
        at = at.saturating_add(tag_size(journal));
        if n == 0 {
            put(block, at, &journal.uuid);
            at = at.saturating_add(UUID);
        }
    }
    seal_tail(journal, block);
}

fn put_tag(journal: &JournalSuper, tag: &Tag, flags: u32, block: &mut [u8], at: usize) {
    let (high, low) = num::split(tag.block.get());
    put_be32(block, at, low);
    let field = |n: usize| at.saturating_add(n);
    if journal.features.checksum() == JournalChecksum::V3 {
        put_be32(block, field(4), flags);
        put_be32(block, field(8), high);
        put_be32(block, field(12), tag.sum);
        return;
    }
    put_be16(block, field(4), num::low16(tag.sum));
    put_be16(block, field(6), num::low16(flags));
    if journal.features.is_64bit() {
        put_be32(block, field(8), high);
    }
}

/// Fills `block` with revoke records, at most [`revokes_per_block`].
pub fn revoke(journal: &JournalSuper, sequence: Tid, blocks: &[FsBlock], block: &mut [u8]) {
    header(block, REVOKE, sequence);
    let mut at = ENTRIES;
    for revoked in blocks {
        if journal.features.is_64bit() {
            put_be64(block, at, revoked.get());
            at = at.saturating_add(8);
        } else {
            put_be32(block, at, num::split(revoked.get()).1);
            at = at.saturating_add(4);
        }
    }
    put_be32(block, HEADER, num::count32(at));
    seal_tail(journal, block);
}

/// Fills `block` with a commit block; `seconds` and `nanos` since 1970.
pub fn commit(journal: &JournalSuper, sequence: Tid, seconds: u64, nanos: u32, block: &mut [u8]) {
    header(block, COMMIT, sequence);
    put_be64(block, SECONDS, seconds);
    put_be32(block, NANOSECONDS, nanos);
    if tail_size(journal) > 0 {
        let sum = csum::crc32c(journal.csum_seed(), block);
        put_be32(block, CHECKSUM, sum);
    }
}

/// Writes the checksum at the end of a block, computed with that field zero.
fn seal_tail(journal: &JournalSuper, block: &mut [u8]) {
    if tail_size(journal) > 0 {
        let sum = csum::crc32c(journal.csum_seed(), block);
        let at = block.len().saturating_sub(TAIL);
        put_be32(block, at, sum);
    }
}

/// The size and owner of a new journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewJournal {
    /// Bytes per block: the volume's.
    pub block_size: u32,
    /// Blocks in the journal, this one and those for fast commits included.
    pub maxlen: u32,
    /// The first block of the log: 1 in a volume, behind the superblocks on a device of its own.
    pub first: u32,
    /// Blocks at its end that are kept for fast commits; 0 = none.
    pub fc_blocks: u32,
    /// Number of volumes that use it: 1 in a volume, on a device of its own none at first.
    pub users: u32,
    /// The UUID of the volume, or that of the device.
    pub uuid: [u8; 16],
}

/// Fills `raw` with the first block of a new, empty journal. Its features are left to the first mount.
pub fn init_super(new: &NewJournal, raw: &mut [u8]) {
    raw.fill(0);
    put_be32(raw, jsb::MAGIC, MAGIC);
    put_be32(raw, jsb::BLOCKTYPE, super::VERSION_2);
    put_be32(raw, jsb::BLOCKSIZE, new.block_size);
    put_be32(raw, jsb::MAXLEN, new.maxlen);
    put_be32(raw, jsb::FIRST, new.first);
    put_be32(raw, jsb::SEQUENCE, 1);
    put_be32(raw, jsb::NR_USERS, new.users);
    put(raw, jsb::UUID, &new.uuid);
    put_be32(raw, jsb::NUM_FC_BLKS, new.fc_blocks);
}

/// Makes a volume the only user of a journal on a device of its own, with the checksum.
pub fn set_user(raw: &mut [u8], volume: &[u8; 16]) {
    put_be32(raw, jsb::NR_USERS, 1);
    put(raw, jsb::USERS, volume);
    seal_super(raw);
}

/// Takes the users of a journal on a device of its own away, with the checksum.
pub fn forget_users(raw: &mut [u8]) {
    put_be32(raw, jsb::NR_USERS, 0);
    put(raw, jsb::USERS, &[0; 16]);
    seal_super(raw);
}

/// The position of the log in its superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPosition {
    /// Block of the first transaction that recovery must read; 0 = none.
    pub start: u32,
    /// Its sequence number, or the next one to be used.
    pub sequence: Tid,
}

/// Writes the log's position into the journal superblock, with its checksum.
pub fn set_position(raw: &mut [u8], position: LogPosition) {
    put_be32(raw, jsb::SEQUENCE, position.sequence.get());
    put_be32(raw, jsb::START, position.start);
    seal_super(raw);
}

/// Writes the error that aborted the journal (a negated errno; 0 = none) into its superblock, with its checksum.
pub fn set_errno(raw: &mut [u8], errno: i32) {
    put(raw, jsb::ERRNO, &errno.to_be_bytes());
    seal_super(raw);
}

/// Sets the features of an empty log as a mount does: revokes; 64-bit block numbers if the volume has them; checksums of
/// version 3 with metadata_csum, otherwise none.
pub fn modernise(raw: &mut [u8], wide: bool, metadata_csum: bool) {
    const V1: u32 = 0x1;
    const REVOKES: u32 = 0x1;
    const WIDE: u32 = 0x2;
    const ANY_SUM: u32 = 0x18;
    const V3: u32 = 0x10;
    const CRC32C: u8 = 4;
    let compat = crate::le::be32(raw, jsb::FEATURE_COMPAT) & !V1;
    let mut incompat = crate::le::be32(raw, jsb::FEATURE_INCOMPAT) & !ANY_SUM | REVOKES;
    if wide {
        incompat |= WIDE;
    }
    if metadata_csum {
        incompat |= V3;
    }
    put_be32(raw, jsb::FEATURE_COMPAT, compat);
    put_be32(raw, jsb::FEATURE_INCOMPAT, incompat);
    put(
        raw,
        jsb::CHECKSUM_TYPE,
        &[if metadata_csum { CRC32C } else { 0 }],
    );
    if !metadata_csum {
        put_be32(raw, jsb::CHECKSUM, 0);
    }
    seal_super(raw);
}

fn seal_super(raw: &mut [u8]) {
    let incompat = crate::le::be32(raw, jsb::FEATURE_INCOMPAT);
    if incompat & 0x18 == 0 {
        return;
    }
    let b = raw.get(..jsb::SIZE).unwrap_or(&[]);
    let sum = csum::crc32c_with_hole(csum::SEED, b, jsb::CHECKSUM, 4);
    put_be32(raw, jsb::CHECKSUM, sum);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{CommitSum, LogHeader, TransactionSum};

    fn journal(incompat: u32) -> (Vec<u8>, JournalSuper) {
        let mut raw = vec![0u8; 1024];
        for (at, v) in [
            (0, MAGIC),
            (4, 4),
            (0xC, 1024),
            (0x10, 4096),
            (0x14, 1),
            (0x18, 7),
        ] {
            put_be32(&mut raw, at, v);
        }
        modernise(&mut raw, incompat & 2 != 0, incompat & 0x10 != 0);
        let parsed = JournalSuper::parse(&raw, 1024, 4096).unwrap();
        (raw, parsed)
    }

    #[test]
    fn a_modern_superblock_parses_and_moves() {
        let (mut raw, journal) = journal(0x12);
        assert!(journal.features.revoke() && journal.features.is_64bit());
        assert_eq!(journal.features.checksum(), JournalChecksum::V3);
        set_position(
            &mut raw,
            LogPosition {
                start: 9,
                sequence: Tid::new(11),
            },
        );
        set_errno(&mut raw, -5);
        let again = JournalSuper::parse(&raw, 1024, 4096).unwrap();
        assert_eq!(
            (again.start, again.sequence, again.errno),
            (9, Tid::new(11), -5)
        );
    }

    #[test]
    fn blocks_hold_what_they_promise() {
        for incompat in [0x0, 0x2, 0x10, 0x12] {
            let (_, journal) = journal(incompat);
            let (tags, revokes) = (tags_per_descriptor(&journal), revokes_per_block(&journal));
            let mut block = vec![0u8; 1024];
            let all: Vec<Tag> = (0..tags)
                .map(|n| Tag {
                    block: FsBlock::new(n as u64 + 1),
                    escaped: false,
                    sum: 5,
                })
                .collect();
            descriptor(&journal, Tid::new(3), &all, &mut block);
            let used = HEADER + UUID + tags * tag_size(&journal);
            assert!(
                used <= 1024 - tail_size(&journal)
                    && used + tag_size(&journal) + tail_size(&journal) > 1024
            );
            let last = used - tag_size(&journal);
            assert_eq!(crate::le::be32(&block, last), tags as u32);
            let named: Vec<FsBlock> = (0..revokes).map(|n| FsBlock::new(n as u64 + 9)).collect();
            revoke(&journal, Tid::new(3), &named, &mut block);
            let bytes = crate::le::be32(&block, HEADER) as usize;
            assert!(bytes <= 1024 - tail_size(&journal) && bytes > 1000 - tail_size(&journal));
        }
    }

    #[test]
    fn what_is_made_is_taken_apart() {
        for (incompat, checksum) in [
            (0x0, JournalChecksum::None),
            (0x2, JournalChecksum::None),
            (0x8, JournalChecksum::V2),
            (0xA, JournalChecksum::V2),
            (0x10, JournalChecksum::V3),
            (0x12, JournalChecksum::V3),
        ] {
            let (mut raw, _) = journal(0x12);
            put_be32(&mut raw, jsb::FEATURE_INCOMPAT, incompat);
            seal_super(&mut raw);
            let journal = JournalSuper::parse(&raw, 1024, 4096).unwrap();
            assert_eq!(journal.form().checksum, checksum);
            let high = if journal.form().is_64bit { 1 << 40 } else { 0 };
            descriptors_come_back(&journal, high);
            let form = journal.form();
            let named: Vec<FsBlock> = (0..revokes_per_block(&journal))
                .map(|n| FsBlock::new(high + n as u64))
                .collect();
            let mut block = vec![9u8; 1024];
            revoke(&journal, Tid::new(3), &named, &mut block);
            assert_eq!(form.revoked(5, &block).unwrap(), named);
            commit(&journal, Tid::new(3), 1 << 33, 999, &mut block);
            let read = form.commit(&block, TransactionSum::default()).unwrap();
            assert_eq!((read.seconds, read.nanoseconds), (1 << 33, 999));
            let sum = if form.sums_blocks() {
                CommitSum::Good
            } else {
                CommitSum::None
            };
            assert_eq!(read.sum, sum);
        }
    }

    fn descriptors_come_back(journal: &JournalSuper, high: u64) {
        let (form, tid) = (journal.form(), Tid::new(0xFFFF_FFF0));
        let copy = |n: usize| vec![n as u8; 1024];
        let tags: Vec<Tag> = (0..tags_per_descriptor(journal))
            .map(|n| Tag {
                block: FsBlock::new(high + n as u64 + 1),
                escaped: n % 3 == 0,
                sum: block_sum(journal, tid, &copy(n)),
            })
            .collect();
        for many in [1, 2, tags.len()] {
            let mut block = vec![9u8; 1024];
            descriptor(journal, tid, &tags[..many], &mut block);
            assert_eq!(LogHeader::parse(&block).unwrap().sequence, tid);
            form.verify_descriptor(5, &block).unwrap();
            let read = form.tags(&block).unwrap();
            assert_eq!(read.len(), many);
            for (n, (read, made)) in read.iter().zip(&tags).enumerate() {
                assert_eq!((read.block, read.escaped), (made.block, made.escaped));
                read.verify(&form, tid, 6, &copy(n)).unwrap();
                assert_eq!(read.checksum.is_some(), form.sums_blocks());
            }
        }
    }

    #[test]
    fn a_block_that_looks_like_the_log_is_escaped() {
        let mut block = MAGIC.to_be_bytes().to_vec();
        assert!(escape(&mut block) && !escape(&mut block));
        assert_eq!(block, [0; 4]);
    }
}
