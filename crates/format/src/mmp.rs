//! The multiple-mount-protection block: which host has the volume open, and since when.
//! Input: the block that [`crate::Superblock::mmp_block`] names. Output: [`Mmp`], or the block of a new file system. Invariant: magic and
//! checksum hold. Limit: for reports; the sequence number is not updated here.
//! Source: the kernel's ext4 documentation, "multiple mount protection".

use crate::csum;
use crate::error::{Corrupt, Result, Unfit, bad, room, want};
use crate::layout::mmp;
use crate::le::{bytes, le16, le32, le64, put_le16, put_le32, put_le64};
use crate::num;
use crate::superblock::{Superblock, text};

const MAGIC: u32 = 0x004D_4D50;
/// `mmp_seq` of a volume that is not mounted.
const CLEAN: u32 = 0xFF4D_4D50;

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

/// Fills `raw`, a block, with that of a new file system: nobody has it open.
///
/// # Errors
/// `Short` if `raw` is smaller than a block.
pub fn init_block(
    sb: &Superblock,
    seconds: i64,
    interval: u16,
    raw: &mut [u8],
) -> core::result::Result<(), Unfit> {
    let b = block(sb, raw)?;
    b.fill(0);
    put_le32(b, mmp::MAGIC, MAGIC);
    put_le32(b, mmp::SEQ, CLEAN);
    put_le64(b, mmp::TIME, u64::try_from(seconds).unwrap_or(0));
    put_le16(b, mmp::CHECK_INTERVAL, interval);
    seal(sb, b);
    Ok(())
}

/// The block in memory that has room for one.
fn block<'b>(sb: &Superblock, raw: &'b mut [u8]) -> core::result::Result<&'b mut [u8], Unfit> {
    let size = num::usize32(sb.block_size());
    room("a multiple-mount-protection block", raw, size)
}

/// Names the host and the device in a block, each cut to its field.
///
/// # Errors
/// `Short` if `raw` is smaller than a block.
pub fn set_names(
    sb: &Superblock,
    (node, device): (&str, &str),
    raw: &mut [u8],
) -> core::result::Result<(), Unfit> {
    let b = block(sb, raw)?;
    for (at, most, name) in [(mmp::NODENAME, 64, node), (mmp::BDEVNAME, 32, device)] {
        let field = b.iter_mut().skip(at).take(most);
        let bytes = name.bytes().chain(core::iter::repeat(0));
        for (to, byte) in field.zip(bytes) {
            *to = byte;
        }
    }
    seal(sb, b);
    Ok(())
}

/// Writes the checksum of a block. Does nothing without metadata_csum.
pub fn seal(sb: &Superblock, raw: &mut [u8]) {
    if sb.has_metadata_csum() {
        let covered = raw.get(..mmp::CHECKSUM).unwrap_or(&[]);
        let sum = csum::crc32c(sb.csum_seed(), covered);
        put_le32(raw, mmp::CHECKSUM, sum);
    }
}

/// Sets the seconds between updates, with the checksum.
pub fn set_interval(sb: &Superblock, raw: &mut [u8], seconds: u16) {
    put_le16(raw, mmp::CHECK_INTERVAL, seconds);
    seal(sb, raw);
}

/// Marks a block as nobody's: no host has the volume open. With the checksum.
pub fn set_clean(sb: &Superblock, raw: &mut [u8]) {
    put_le32(raw, mmp::SEQ, CLEAN);
    seal(sb, raw);
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
            CLEAN => MmpState::Clean,
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
