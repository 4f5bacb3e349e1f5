//! Large files that a new file system has from the beginning: make_hugefiles of mke2fs.conf, and its family.
//!
//! Input: a [`Config`], the free space of the empty file system. Output: files of zeros with all their space. Invariant: without a number
//! or a size they fill the file system but for the slack. Limits: hugefiles_align is refused, since no place is chosen. Source: man 5
//! mke2fs.conf; names, permissions, units and defaults by experiment with mke2fs 1.47.0.

use super::config::Config;
use diorite_block::locator::parse_size;
use diorite_image::{Error, ImageBuilder};

/// Blocks of an extent, and bytes of one on disk.
const EXTENT: u64 = 32768;
const ON_DISK: u64 = 12;

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
    /// Bytes, or blocks; 0: all the room.
    size: Amount,
    slack: Amount,
}

/// A size with a unit is one of bytes, a number one of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Amount {
    Bytes(u64),
    Blocks(u64),
}

impl Amount {
    fn parse(text: &str) -> Result<Amount, String> {
        match text.parse() {
            Ok(blocks) => Ok(Amount::Blocks(blocks)),
            Err(_) => parse_size(text).map(Amount::Bytes),
        }
    }

    fn blocks(self, block: u64) -> u64 {
        match self {
            Amount::Bytes(bytes) => bytes / block,
            Amount::Blocks(blocks) => blocks,
        }
    }
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
        if config.get(types, "hugefiles_align").is_some() {
            return Err("hugefiles_align: where the files lie is not chosen".to_owned());
        }
        let text = |key| config.get(types, key);
        let amount = |key, usual: &str| Amount::parse(text(key).unwrap_or(usual));
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
            size: amount("hugefiles_size", "0")?,
            slack: amount("hugefiles_slack", "1M")?,
        }))
    }

    /// Adds them to what is going to be a file system with so many blocks, of so many bytes, free.
    ///
    /// # Errors
    /// Names that cannot be.
    pub(super) fn add(
        &self,
        builder: &mut ImageBuilder,
        free: u64,
        block: u32,
    ) -> Result<(), Error> {
        let block = u64::from(block);
        let (count, blocks) = self.fit(free, block);
        builder.set_owner(self.owner.0, self.owner.1);
        let mut path = String::new();
        for name in self.dir.split('/').filter(|name| !name.is_empty()) {
            path.push('/');
            path.push_str(name);
            builder.add_dir(&path, 0o777 & !self.umask)?;
        }
        for number in 0..count {
            let file = format!("{path}/{}{number:0width$}", self.name, width = self.digits);
            builder.add_zeros(&file, 0o666 & !self.umask, blocks * block)?;
        }
        Ok(())
    }

    /// How many files there are, and blocks of each.
    fn fit(&self, free: u64, block: u64) -> (u64, u64) {
        let dirs = self.dir.split('/').filter(|name| !name.is_empty()).count() as u64;
        let room = free.saturating_sub(self.slack.blocks(block) + dirs);
        // Maps of files that have more extents than their inodes hold.
        let extents = room / EXTENT;
        let maps = match extents {
            0..4 => 1,
            _ => 4 + 2 * extents.div_ceil(block / ON_DISK),
        };
        let room = room.saturating_sub(maps);
        match (self.count, self.size.blocks(block)) {
            (0, 0) => (1, room),
            (0, blocks) => (room / blocks, blocks),
            (count, 0) => (count, room / count),
            (count, blocks) => (count, blocks),
        }
    }
}
