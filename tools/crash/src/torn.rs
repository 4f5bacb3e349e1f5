//! What it is: the state of the primary superblock, whose 1,024 bytes a power cut may tear between their two sectors.
//! Input: an image. Output: [`Super`]. Invariant: only a wrong checksum counts as torn, as in diorite; volumes without checksums
//! are never reported as torn. Limit: backups are searched where mke2fs puts them by default.

use diorite_format::features::RoCompat;
use diorite_format::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, backup_candidates};
use diorite_format::{Corrupt, FormatError, Superblock};

/// Whether the superblock can be used or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Super {
    /// The primary superblock is valid.
    Whole,
    /// The primary superblock is torn, and a backup can replace it.
    Torn,
    /// The primary superblock is torn, and there is no backup: e2fsck and the kernel give up.
    Lost,
}

/// The state of the image's primary superblock.
#[must_use]
pub fn superblock(image: &[u8]) -> Super {
    match parse(image, SUPERBLOCK_OFFSET) {
        Some(Err(FormatError::Corrupt(Corrupt::SuperChecksum { .. }))) => {}
        _ => return Super::Whole,
    }
    let copies = backup_candidates(image.len() as u64);
    let is_copy = |sb: &Superblock, block_size| sb.block_size() == block_size;
    let found = copies.iter().any(|place| {
        let copy = parse(image, place.at.get());
        copy.is_some_and(|sb| sb.is_ok_and(|sb| is_copy(&sb, place.block_size)))
    });
    if found { Super::Torn } else { Super::Lost }
}

/// True if the superblock has orphans: inodes whose deletion or truncation is not finished.
#[must_use]
pub fn has_orphans(sb: &Superblock) -> bool {
    !sb.last_orphan().is_none() || sb.features().ro_compat.has(RoCompat::ORPHAN_PRESENT)
}

fn parse(image: &[u8], at: u64) -> Option<Result<Superblock, FormatError>> {
    let at = usize::try_from(at).ok()?;
    let raw = image.get(at..at + SUPERBLOCK_SIZE)?.try_into().ok()?;
    Some(Superblock::parse(raw))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::{Bed, Mode};

    #[test]
    fn a_torn_superblock_is_lost_where_there_is_no_copy() {
        let mut seen = Vec::new();
        for seed in 0..8 {
            let Ok(mut bed) = Bed::make(Mode::Ordered, 16, seed) else {
                panic!("mke2fs is there, and there is room");
            };
            assert_eq!(superblock(&bed.image), Super::Whole);
            // The low byte of s_wtime.
            bed.image[1024 + 0x30] ^= 1;
            // With larger blocks, or with clusters, the whole image is one group, which has no backup.
            let has_copies = bed.block == 1024 && !bed.shape.contains("bigalloc");
            let has_sum = !bed.shape.contains("^metadata_csum") && !bed.shape.contains("ext3");
            let torn = superblock(&bed.image);
            let expected = match (has_sum, has_copies) {
                (false, _) => Super::Whole,
                (true, true) => Super::Torn,
                (true, false) => Super::Lost,
            };
            assert_eq!(torn, expected, "{}", bed.shape);
            seen.push(torn);
        }
        assert!(seen.contains(&Super::Torn) && seen.contains(&Super::Lost));
    }
}
