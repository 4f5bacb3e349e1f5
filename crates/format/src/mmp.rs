//! The multiple-mount-protection block: which host has the volume open, and since when.
//! Input: the block that [`crate::Superblock::mmp_block`] names. Output: [`Mmp`]. Invariant: magic and checksum hold.
//! Limit: for reports; the sequence number is not updated here.
//! Source: the kernel's ext4 documentation, "multiple mount protection".

use crate::csum;
use crate::error::{Corrupt, Result, bad, want};
use crate::layout::mmp;
use crate::le::{bytes, le16, le32, le64};
use crate::superblock::{Superblock, text};

const MAGIC: u32 = 0x004D_4D50;

/// The meaning of the sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MmpState {
    /// Cleanly unmounted.
    Clean,
    /// Being checked by fsck.
    Fsck,
    /// Possibly mounted: the number increases while it is.
    InUse(u32),
}

/// A checked block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mmp {
    /// Mounted or not.
    pub state: MmpState,
    /// Seconds since 1970 of the last update.
    pub time: u64,
    /// Host that wrote it.
    pub node_name: String,
    /// Device that it was written to.
    pub device_name: String,
    /// Seconds between updates.
    pub check_interval: u16,
}

impl Mmp {
    /// Checks the block.
    ///
    /// # Errors
    /// `Short`, `MmpMagic`, `MmpChecksum` (metadata_csum).
    pub fn parse(sb: &Superblock, raw: &[u8]) -> Result<Self> {
        want("a multiple-mount-protection block", raw, mmp::SIZE)?;
        let b = raw.get(..mmp::SIZE).unwrap_or(&[]);
        let found = le32(b, mmp::MAGIC);
        if found != MAGIC {
            return bad(Corrupt::MmpMagic { found });
        }
        let covered = b.get(..mmp::CHECKSUM).unwrap_or(&[]);
        let (stored, computed) = (
            le32(b, mmp::CHECKSUM),
            csum::crc32c(sb.csum_seed(), covered),
        );
        if sb.has_metadata_csum() && stored != computed {
            return bad(Corrupt::MmpChecksum { stored, computed });
        }
        let state = match le32(b, mmp::SEQ) {
            0xFF4D_4D50 => MmpState::Clean,
            0xE24D_4D50 => MmpState::Fsck,
            n => MmpState::InUse(n),
        };
        Ok(Self {
            state,
            time: le64(b, mmp::TIME),
            node_name: text(&bytes::<64>(b, mmp::NODENAME)),
            device_name: text(&bytes::<32>(b, mmp::BDEVNAME)),
            check_interval: le16(b, mmp::CHECK_INTERVAL),
        })
    }
}
