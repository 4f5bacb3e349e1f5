//! Large files that a new file system has from the beginning: make_hugefiles of mke2fs.conf, and its family.
//!
//! Input: a [`Config`], the free space of the empty file system. Output: files of zeros with all their space, one behind the other.
//! Invariants: without a number or a size they fill the file system but for the slack, which lies before them; the first one begins at a
//! multiple of the alignment, and the sizes that are asked for are multiples of it. Limits: what does not fit is left out, and told; with
//! clusters the alignment is one of clusters. Source: man 5 mke2fs.conf; names, permissions, units, defaults, sizes and places by
//! experiment with mke2fs 1.47.0.

use super::config::Config;
use diorite::mkfs::{MkfsOptions, NewJournal, mkfs_free_runs};
use diorite_block::locator::parse_size;
use diorite_format::features::{Compat, Incompat, RoCompat};
use diorite_image::{Error, ImageBuilder};
use std::ops::Range;

/// Blocks of an extent.
const EXTENT: u64 = 32768;
/// A block is left free before the files for so many of them, for their names.
const NAMES: u64 = 16;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Huge {
    dir: String,
    name: String,
    digits: usize,
    owner: (u32, u32),
    umask: u16,
    /// 0: as many as there is room for, or one.
    count: u64,
    /// 0: all the room.
    size: Amount,
    slack: Amount,
    align: Amount,
    /// The alignment is one on the disk, and not in the file system.
    of_disk: bool,
    /// Values that are none, and count as 0.
    unread: Vec<String>,
}

/// A size with a unit is one of bytes, a number one of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Amount {
    Bytes(u64),
    Blocks(u64),
}

impl Amount {
    fn parse(text: &str) -> Option<Amount> {
        match text.parse() {
            Ok(blocks) => Some(Amount::Blocks(blocks)),
            Err(_) => parse_size(text).ok().map(Amount::Bytes),
        }
    }

    fn blocks(self, block: u64) -> u64 {
        match self {
            Amount::Bytes(bytes) => bytes / block,
            Amount::Blocks(blocks) => blocks,
        }
    }
}

/// The empty file system.
#[derive(Clone, Debug)]
pub(super) struct Room {
    /// Free blocks, in order.
    free: Vec<Range<u64>>,
    /// Bytes of a block.
    block: u64,
    /// Blocks of a cluster.
    cluster: u64,
    /// Bytes before it on its disk.
    before: u64,
    /// Free inodes.
    inodes: u64,
}

impl Room {
    /// What an empty file system has with these options, whose partition begins at this byte of the disk.
    ///
    /// # Errors
    /// There is no such file system.
    pub(super) fn new(options: &MkfsOptions, before: u64) -> Result<Room, diorite::mkfs::Error> {
        let (empty, free) = mkfs_free_runs(options.bytes.unwrap_or(0), options)?;
        let block = u64::from(empty.block_size);
        let cluster = match options.features.ro_compat.has(RoCompat::BIGALLOC) {
            true => options.cluster_size.map_or(16, |c| u64::from(c) / block),
            false => 1,
        };
        Ok(Room {
            free,
            block,
            cluster: cluster.max(1),
            before,
            inodes: empty.free_inodes.into(),
        })
    }

    fn blocks(&self) -> u64 {
        self.free.iter().map(|run| run.end - run.start).sum()
    }

    /// The free block behind so many others.
    fn behind(&self, mut count: u64) -> Option<u64> {
        self.free.iter().find_map(|run| {
            let len = run.end - run.start;
            let found = (count < len).then(|| run.start + count);
            count = count.saturating_sub(len);
            found
        })
    }

    /// Free blocks from this one on.
    fn from(&self, block: u64) -> u64 {
        let parts = self.free.iter().map(|run| run.start.max(block)..run.end);
        parts.map(|part| part.end.saturating_sub(part.start)).sum()
    }
}

/// The files that there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Fit {
    count: u64,
    /// Blocks of each.
    blocks: u64,
    /// The first block of the first one.
    start: u64,
}

impl Huge {
    /// The files that a configuration asks for, if it does.
    ///
    /// # Errors
    /// A value that is none.
    pub(super) fn of(config: &Config, types: &[String]) -> Result<Option<Huge>, String> {
        if !config.flag(types, "make_hugefiles", false) {
            return Ok(None);
        }
        let text = |key: &str| config.get(types, key);
        let mut unread = Vec::new();
        let mut amount = |key: &str, usual: &str| {
            let said = text(key).unwrap_or(usual);
            Amount::parse(said).unwrap_or_else(|| {
                unread.push(format!("{key} = {said}"));
                Amount::Blocks(0)
            })
        };
        let (size, slack) = (
            amount("hugefiles_size", "0"),
            amount("hugefiles_slack", "1M"),
        );
        let align = amount("hugefiles_align", "0");
        let number = |key, usual: u32| -> Result<u32, String> {
            let said = text(key).map(|text| text.parse().map_err(|_| format!("{key} = {text}")));
            said.unwrap_or(Ok(usual))
        };
        let umask = text("hugefiles_umask").unwrap_or("077");
        let umask =
            u16::from_str_radix(umask, 8).map_err(|_| format!("hugefiles_umask = {umask}"))?;
        Ok(Some(Huge {
            dir: text("hugefiles_dir").unwrap_or("/").to_owned(),
            name: text("hugefiles_name").unwrap_or("hugefile").to_owned(),
            digits: number("hugefiles_digits", 5)?.min(20) as usize,
            owner: (number("hugefiles_uid", 0)?, number("hugefiles_gid", 0)?),
            umask,
            count: number("num_hugefiles", 0)?.into(),
            size,
            slack,
            align,
            of_disk: config.flag(types, "hugefiles_align_disk", false),
            unread,
        }))
    }

    /// Values that count as 0, since they are neither a number nor a size; mke2fs reads them so, too.
    pub(super) fn unread(&self) -> &[String] {
        &self.unread
    }

    /// Moves the journal out of the way: into the middle of the file system, as mke2fs has it where the structures of groups are not packed
    /// at the start.
    pub(super) fn make_way(options: &mut MkfsOptions) {
        let has_journal = options.features.compat.has(Compat::HAS_JOURNAL)
            && !matches!(options.journal, NewJournal::External { .. });
        let packed = options.packed_meta_blocks && options.features.incompat.has(Incompat::FLEX_BG);
        let block = u64::from(options.block_size.unwrap_or(4096));
        let group = u64::from(options.blocks_per_group.unwrap_or(0)).max(8 * block);
        let groups = (options.bytes.unwrap_or(0) / block).div_ceil(group);
        if has_journal && !packed && options.journal_at.is_none() && groups > 1 {
            options.journal_at = Some(groups / 2 * group);
        }
    }

    /// Adds them to what is going to be a file system. Returns how many of those that were asked for have no room.
    ///
    /// # Errors
    /// Names that cannot be; more files than the file system has inodes, as from mke2fs: a size of a few blocks asks for millions of files.
    pub(super) fn add(&self, builder: &mut ImageBuilder, room: &Room) -> Result<u64, Error> {
        let fit = self.fit(room).unwrap_or_default();
        let names = fit.count.saturating_add(self.dirs().count() as u64);
        if let Some(missing @ 1..) = names.checked_sub(room.inodes) {
            return Err(Error::Source(format!(
                "{} huge files: {missing} inodes are missing for them",
                fit.count
            )));
        }
        builder.set_owner(self.owner.0, self.owner.1);
        let mut path = String::new();
        for name in self.dirs() {
            path.push('/');
            path.push_str(name);
            builder.add_dir(&path, 0o777 & !self.umask)?;
        }
        for number in 0..fit.count {
            let file = match (self.digits, fit.count) {
                (0, 1) => format!("{path}/{}", self.name),
                (digits, _) => format!("{path}/{}{number:0digits$}", self.name),
            };
            let len = fit.blocks * room.block;
            builder.add_zeros_at(&file, 0o666 & !self.umask, len, fit.start)?;
        }
        Ok(self.count.max(1).saturating_sub(fit.count))
    }

    fn dirs(&self) -> impl Iterator<Item = &str> {
        self.dir.split('/').filter(|name| !name.is_empty())
    }

    /// How many files there are, how large each is, and where the first one lies. None if nothing has room.
    fn fit(&self, room: &Room) -> Option<Fit> {
        let dirs = self.dirs().count() as u64 * room.cluster;
        let free = room.blocks().checked_sub(dirs)?;
        let align = match (self.align.blocks(room.block), room.cluster) {
            (0, 1) => 1,
            (align, cluster) => align.max(1).checked_next_multiple_of(cluster)?,
        };
        let size = self.size.blocks(room.block);
        let size = size.checked_next_multiple_of(align)?;
        // Of several files, and where they are counted, all that the alignment may take.
        let most_lost = if align > 1 { align } else { 0 };
        let least = self.slack.blocks(room.block).checked_add(1)?;
        let left = free.checked_sub(least)?;
        if align > left {
            return None;
        }
        let count = match (self.count, size) {
            (0, 0) => 1,
            (0, size) => left.saturating_sub(most_lost) / size,
            (count, _) => count,
        };
        if count == 0 {
            return None;
        }
        let begins = |maps: u64| -> Option<(u64, u64)> {
            let kept = least.checked_add(count / NAMES)?.checked_add(maps)?;
            let begin = room.behind(dirs.checked_add(kept)?)?;
            let on_disk = if self.of_disk {
                room.before / room.block
            } else {
                0
            };
            let start = (begin + on_disk).checked_next_multiple_of(align)? - on_disk;
            // Of one file what the alignment takes is known.
            let left = match (size, count) {
                (0, 2..) => free.checked_sub(kept)?.checked_sub(most_lost)?,
                _ => room.from(start),
            };
            Some((start, left))
        };
        let each = match size {
            0 => begins(0)?.1 / count,
            size => size,
        };
        let maps = count.checked_mul(blocks_of_map(each, room.block))?;
        let (start, left) = begins(maps)?;
        let (count, blocks) = match size {
            // Each takes whole clusters.
            0 => (count, left / count / room.cluster * room.cluster),
            size => (count.min(left / size.next_multiple_of(room.cluster)), size),
        };
        (blocks > 0).then_some(Fit {
            count,
            blocks,
            start,
        })
    }
}

/// Blocks that are left free for the map of a file of so many blocks: none while its inode holds the extents.
fn blocks_of_map(blocks: u64, block: u64) -> u64 {
    match blocks.div_ceil(EXTENT) {
        0..=4 => 0,
        // Two for each pair of blocks of extents, roughly.
        extents => 4 + (extents - 1) / ((block / 12 - 3) / 2),
    }
}
