//! A journal device: a superblock with little more than a UUID, followed by the log.
//! Input: the 1,024 bytes at byte 1,024. Output: [`JournalDevice`]. Invariant: the block size is one that volumes have. Limit:
//! the log has a superblock of its own, see [`crate::journal`].
//! Source: the kernel's ext4 documentation, "journal (jbd2)", "External Journal"; mke2fs -O journal_dev.

use crate::csum;
use crate::error::{Corrupt, Result, bad};
use crate::features::{Incompat, RoCompat};
use crate::layout::sb;
use crate::le::{bytes, c_bytes, le16, le32};

use super::SUPERBLOCK_SIZE;

/// A checked superblock of a journal device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalDevice {
    /// The UUID in [`super::JournalPlace::External`].
    pub uuid: [u8; 16],
    /// The label, without the zeros behind it.
    pub label: Vec<u8>,
    /// Bytes per block.
    pub block_size: u32,
    /// The block with the journal superblock. Blocks of the log are numbered from the device's start.
    pub journal_block: u32,
}

impl JournalDevice {
    /// Parses the superblock.
    ///
    /// # Errors
    /// `SuperMagic`, `SuperChecksum`, `BlockSize`, `NoJournalDevice`.
    pub fn parse(raw: &[u8; SUPERBLOCK_SIZE]) -> Result<Self> {
        let b = raw.as_slice();
        let found = le16(b, sb::MAGIC);
        if found != 0xEF53 {
            return bad(Corrupt::SuperMagic { found });
        }
        if !Incompat::from_bits(le32(b, sb::FEATURE_INCOMPAT)).has(Incompat::JOURNAL_DEV) {
            return bad(Corrupt::NoJournalDevice);
        }
        let covered = b.get(..sb::CHECKSUM).unwrap_or(&[]);
        let (stored, computed) = (le32(b, sb::CHECKSUM), csum::crc32c(csum::SEED, covered));
        let summed =
            RoCompat::from_bits(le32(b, sb::FEATURE_RO_COMPAT)).has(RoCompat::METADATA_CSUM);
        if summed && stored != computed {
            return bad(Corrupt::SuperChecksum { stored, computed });
        }
        let log = le32(b, sb::LOG_BLOCK_SIZE);
        let block_size = match log {
            0..=6 => 1024u32.checked_shl(log).unwrap_or(0),
            _ => return bad(Corrupt::BlockSize { log }),
        };
        Ok(Self {
            uuid: bytes(b, sb::UUID),
            label: c_bytes(&bytes::<16>(b, sb::VOLUME_NAME)),
            block_size,
            journal_block: if block_size == 1024 { 2 } else { 1 },
        })
    }
}
