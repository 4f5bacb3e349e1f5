//! An undo file on its host.
//!
//! Input: pieces of a device. Output: the undo file with them. Invariants: what a group of pieces has is durable before the header counts
//! it, and the header is before [`Writer::commit`] returns. Limits: one group at a time.
//!
//! The order on disk: contents and keys, sync, header, sync. A block of keys is written again with each group, with the keys before as they
//! were: if that write is torn, its checksum is wrong, and all keys that the header counts are right.

use super::form::{HEADER, Header, Key, Sizes, key_bytes};
use super::{SUPER, super_crc};
use diorite_format::csum::crc32c;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes, or more: pieces begin and end at multiples of it.
const BLOCK: u32 = 4096;
/// The most bytes of a piece, and the most blocks of the undo file: e2undo refuses pieces of 1,024 blocks.
const MOST: u64 = 1 << 20;
const MOST_BLOCKS: u64 = 512;

/// See the module.
pub(super) struct Writer {
    file: File,
    pub(super) header: Header,
    /// Where the block of keys is that is being filled, and its keys.
    keys_at: u64,
    keys: Vec<Key>,
    /// Pieces that the header does not count yet.
    uncounted: u64,
    /// Where the next block goes.
    end: u64,
    /// The undo file was made by this writer.
    is_new: bool,
    /// What the header said of sizes before it announced another one.
    announced: Option<Sizes>,
}

impl Writer {
    /// Makes the undo file, with nothing in it.
    pub(super) fn make(file: File, header: Header, copy: &[u8; SUPER]) -> io::Result<Writer> {
        let end = 2 * u64::from(header.block_size);
        let mut writer = Writer::new(file, header, (0, Vec::new()), end);
        writer.is_new = true;
        writer.write_copy(copy)?;
        writer.write_header()?;
        Ok(writer)
    }

    /// Goes on with one: where its last block of keys is, and these; where the next block goes.
    pub(super) fn new(
        file: File,
        header: Header,
        (keys_at, keys): (u64, Vec<Key>),
        end: u64,
    ) -> Writer {
        Writer {
            file,
            header,
            keys_at,
            keys,
            uncounted: 0,
            end,
            is_new: false,
            announced: None,
        }
    }

    /// A block of the undo file when there is no file system.
    pub(super) fn usual_block() -> u32 {
        BLOCK
    }

    /// A range in whole blocks, as far as the device has them; and the most bytes of a piece.
    pub(super) fn whole(&self, range: Range<u64>, size: u64) -> (Range<u64>, u64) {
        let unit = u64::from(BLOCK.max(self.header.fs_block_size));
        let end = range.end.checked_next_multiple_of(unit).unwrap_or(size);
        let most = MOST.min(MOST_BLOCKS * u64::from(self.header.block_size));
        (range.start / unit * unit..end.min(size), most)
    }

    /// Adds a piece to the group.
    pub(super) fn add(&mut self, pos: u64, old: &[u8]) -> io::Result<()> {
        let unit = self.header.fs_block_size;
        // The last sectors of a device may be less than a block of it.
        let mut bytes = old.to_vec();
        bytes.resize(old.len().next_multiple_of(unit as usize), 0);
        let len = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        if self.keys.len() == self.header.keys_per_block() || self.keys_at == 0 {
            self.write_keys()?;
            self.keys.clear();
            self.keys_at = self.end;
            self.end += u64::from(self.header.block_size);
        }
        let at = self.end;
        self.keys.push(Key {
            block: pos / u64::from(unit),
            crc: crc32c(!0, &bytes),
            len,
        });
        self.uncounted += 1;
        self.end = at + self.header.padded(len);
        self.file.write_all_at(&bytes, at)
    }

    /// Makes the group durable, and what else the header says: whoever wrote it is not finished.
    pub(super) fn commit(&mut self) -> io::Result<()> {
        if self.uncounted > 0 {
            self.write_keys()?;
            if self.file.metadata()?.len() < self.end {
                self.file.set_len(self.end)?;
            }
            self.file.sync_data()?;
        }
        if self.uncounted > 0 || self.header.finished {
            self.header.finished = false;
            self.header.keys += std::mem::take(&mut self.uncounted);
            self.write_header()?;
        }
        Ok(())
    }

    /// Says durably that the device, which has `from` bytes, gets `to`.
    pub(super) fn announce(&mut self, from: u64, to: u64) -> io::Result<()> {
        let Some(sizes) = self.header.sizes else {
            return Ok(());
        };
        self.announced.get_or_insert(sizes);
        self.header.sizes = Some(Sizes {
            after: to,
            from,
            ..sizes
        });
        self.header.finished = false;
        self.write_header()
    }

    /// Whether another size was announced, and the device has `now` bytes, as before that.
    pub(super) fn is_back(&self, now: u64) -> bool {
        let from = self.header.sizes.map(|sizes| sizes.from);
        self.announced.is_some() && from == Some(now)
    }

    /// Takes an announcement back, if there is one. Returns whether the undo file has nothing else, and should go.
    pub(super) fn take_back(&mut self) -> io::Result<bool> {
        let Some(sizes) = self.announced.take() else {
            return Ok(false);
        };
        self.header.sizes = Some(sizes);
        self.header.finished = true;
        self.write_header()?;
        Ok(self.has_nothing())
    }

    /// Whether it was made here, and neither has a piece nor announces another size.
    pub(super) fn has_nothing(&self) -> bool {
        self.is_new && self.header.keys == 0 && self.announced.is_none()
    }

    /// Says that the device, with this superblock, has `after` bytes and is not changed any more.
    pub(super) fn finish(&mut self, copy: &[u8; SUPER], after: u64) -> io::Result<()> {
        if let Some(sizes) = &mut self.header.sizes {
            (sizes.after, sizes.from) = (after, 0);
        }
        self.announced = None;
        self.header.finished = true;
        self.write_copy(copy)?;
        self.write_header()
    }

    fn write_keys(&self) -> io::Result<()> {
        match self.keys_at {
            0 => Ok(()),
            at => {
                let keys = key_bytes(&self.keys, self.header.block_size);
                self.file.write_all_at(&keys, at)
            }
        }
    }

    fn write_header(&self) -> io::Result<()> {
        let bytes: [u8; HEADER] = self.header.bytes();
        self.file.write_all_at(&bytes, 0)?;
        self.file.sync_data()
    }

    /// Writes the copy; its checksum goes with the header.
    fn write_copy(&mut self, copy: &[u8; SUPER]) -> io::Result<()> {
        self.header.super_crc = super_crc(copy);
        let size = u64::from(self.header.block_size);
        let at = self.header.super_block.saturating_mul(size);
        self.file.write_all_at(copy, at)?;
        let end = self.header.key_block.saturating_mul(size);
        if self.file.metadata()?.len() < end {
            self.file.set_len(end)?;
        }
        self.file.sync_data()
    }
}

/// Makes the name of a new file durable.
pub(super) fn sync_dir(path: &Path) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
}
