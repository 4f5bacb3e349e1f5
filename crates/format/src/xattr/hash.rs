//! Hashes of extended attributes: they find equal blocks, and verify values in inodes.
//! Input: name and value. Output: the hash, or an error if a stored one differs. Invariant: defined for all input. Limit: entry
//! hashes do not protect against damage; checksums do.
//! Source: the kernel's ext4 documentation, "extended attributes"; both forms checked against mke2fs and the
//! kernel by experiment.

use crate::csum;
use crate::error::{Corrupt, Result, bad};
use crate::inode::Inode;
use crate::num;
use crate::superblock::Superblock;
use crate::types::Ino;

use super::XattrEntry;

/// The hash of an entry with its value in the same area: a rotation by 5 bits for each byte of the name, by 16 for each
/// little-endian word of the value (padded with zeros).
#[must_use]
pub fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    over_value(name_hash(name, false), value)
}

/// Also accepts the hash of older drivers with signed characters.
pub(super) fn accepted(name: &[u8], value: &[u8]) -> [u32; 2] {
    [
        entry_hash(name, value),
        over_value(name_hash(name, true), value),
    ]
}

fn name_hash(name: &[u8], signed: bool) -> u32 {
    name.iter().fold(0u32, |hash, c| {
        let c = if signed {
            num::signed_char(*c)
        } else {
            u32::from(*c)
        };
        hash.rotate_left(5) ^ c
    })
}

fn over_value(hash: u32, value: &[u8]) -> u32 {
    value.chunks(4).fold(hash, |hash, part| {
        hash.rotate_left(16) ^ crate::le::le32(part, 0)
    })
}

/// Checks a value that was read from an inode of its own: the inode's flag, the length, the crc32c in the inode's access time,
/// and the entry's hash of that.
///
/// # Errors
/// `XattrHash`; `InodeFlags` if the inode is not one that holds a value.
pub fn verify_ea_inode(
    sb: &Superblock,
    file: Ino,
    entry: &XattrEntry<'_>,
    holder: &Inode,
    value: &[u8],
) -> Result<()> {
    if !holder.flags.has(crate::inode::InodeFlags::EA_INODE)
        || holder.size != num::wide(value.len())
    {
        let why = "not the inode of an attribute's value, or of another size";
        return bad(Corrupt::InodeFlags {
            ino: holder.ino,
            flags: holder.flags.bits(),
            why,
        });
    }
    let computed = csum::crc32c(sb.csum_seed(), value);
    let stored = holder.value_checksum();
    if stored != computed {
        return bad(Corrupt::XattrHash {
            ino: holder.ino,
            what: "value",
            stored,
            computed,
        });
    }
    if entry.hash != 0 && !accepted(entry.name, &computed.to_le_bytes()).contains(&entry.hash) {
        let computed = entry_hash(entry.name, &computed.to_le_bytes());
        return bad(Corrupt::XattrHash {
            ino: file,
            what: "entry",
            stored: entry.hash,
            computed,
        });
    }
    Ok(())
}
