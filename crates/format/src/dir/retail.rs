//! A directory's blocks on a volume that gets or loses checksums of metadata: a block of entries has a record for its checksum then, and
//! a node of a hash tree room for it.
//! Input: a block that was checked on the volume as it was. Output: the same entries in the form of the volume as it is now. Invariant: no
//! entry moves; on a refusal nothing changes. Limit: a block without room for the checksum is refused, and its directory has to be made
//! anew. Source: the kernel's ext4 documentation, "directory entries"; what tune2fs 1.47 does with such blocks, by experiment.

use super::edit::{finish, stored_len};
use super::{DirBlock, DirBlockKind, Format, record_size};
use crate::dx;
use crate::error::Result;
use crate::inode::Inode;
use crate::layout::{de, de_tail};
use crate::le::put_le16;
use crate::num;
use crate::superblock::Superblock;
use crate::types::FileBlock;

/// Gives a block the form of `new`, with checksums by `new_dir`, the directory as `new` has it. Returns false if it has no room for that.
///
/// # Errors
/// Damage: as [`DirBlock::parse`] of the old form.
pub fn reform(
    (old, old_dir): (&Superblock, &Inode),
    (new, new_dir): (&Superblock, &Inode),
    block: FileBlock,
    raw: &mut [u8],
) -> Result<bool> {
    let parsed = DirBlock::parse(old, old_dir, block, raw)?;
    if parsed.kind() != DirBlockKind::Linear {
        return dx::reform(new, new_dir, block, raw);
    }
    let size = num::count32(de_tail::SIZE);
    let last = parsed.slots().last();
    let (had, has) = (old.has_metadata_csum(), new.has_metadata_csum());
    if let Some(last) = last.filter(|_| had != has) {
        let len = if has {
            let used = match last.ino.is_none() {
                true => record_size(0),
                false => record_size(last.name.len()),
            };
            match last.rec_len.checked_sub(size) {
                Some(len) if len >= used => len,
                _ => return Ok(false),
            }
        } else {
            last.rec_len.saturating_add(size)
        };
        let at = num::usize32(last.offset).saturating_add(de::REC_LEN);
        put_le16(raw, at, stored_len(Format::of(new), len));
        if has {
            let tail = raw.len().saturating_sub(de_tail::SIZE);
            raw.get_mut(tail..).unwrap_or(&mut []).fill(0);
        }
    }
    finish(new, new_dir, raw);
    Ok(true)
}
