//! Changes a group's bitmap and descriptor on disk together.
//!
//! Input: the bits to change, and the group's new descriptor. Output: bitmap and descriptor changed in one handle, with checksums.
//! Invariants: both change or neither; a bitmap that was never written is initialised by its first change; everything is verified when it
//! is loaded. Limits: one bitmap and one block of descriptors per change; the caller holds the group's lock.

use crate::disk::cache::Kind;
use crate::error::Error;
use crate::journal::JournalHandle;
use crate::journal::Store;
use diorite_format::bitmap::{self, BitClash, BitmapKind};
use diorite_format::error::Unfit;
use diorite_format::{FormatError, FsBlock, GroupDesc, GroupNo, Superblock};

/// Whether bits are set or cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Set,
    Clear,
}

/// Which of a group's two bitmaps is changed, and whether its bits are set or cleared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) kind: BitmapKind,
    pub(super) way: Way,
}

/// When a changed bitmap gets its checksum, and its group's descriptor is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sealed {
    Now,
    /// At the commit: see `unsealed`.
    Later,
}

/// A range of bits: the first bit, and their number.
pub(super) type Bits = (u32, u32);

impl Way {
    fn apply(self, map: &mut [u8], (start, len): Bits) -> Result<(), BitClash> {
        match self {
            Way::Set => bitmap::set_range(map, start, len),
            Way::Clear => bitmap::clear_range(map, start, len),
        }
    }

    /// Changes all ranges, or none.
    fn apply_all(self, map: &mut [u8], all: &[Bits]) -> Result<(), BitClash> {
        for (n, bits) in all.iter().enumerate() {
            if let Err(clash) = self.apply(map, *bits) {
                for done in &all[..n] {
                    self.back().apply(map, *done)?;
                }
                return Err(clash);
            }
        }
        Ok(())
    }

    fn back(self) -> Way {
        match self {
            Way::Set => Way::Clear,
            Way::Clear => Way::Set,
        }
    }
}

impl Change {
    fn block(self, desc: &GroupDesc) -> FsBlock {
        match self.kind {
            BitmapKind::Block => desc.block_bitmap,
            BitmapKind::Inode => desc.inode_bitmap,
        }
    }

    fn was_never_written(self, desc: &GroupDesc) -> bool {
        match self.kind {
            BitmapKind::Block => desc.flags.block_uninit(),
            BitmapKind::Inode => desc.flags.inode_uninit(),
        }
    }

    fn verify(self, sb: &Superblock, desc: &GroupDesc, map: &[u8]) -> Result<(), FormatError> {
        match self.kind {
            BitmapKind::Block => desc.verify_block_bitmap(sb, map),
            BitmapKind::Inode => desc.verify_inode_bitmap(sb, map),
        }
    }

    fn seal(self, sb: &Superblock, desc: &mut GroupDesc, map: &[u8]) {
        let sealed = match self.kind {
            BitmapKind::Block => desc.seal_block_bitmap(sb, map),
            BitmapKind::Inode => desc.seal_inode_bitmap(sb, map),
        };
        sealed.expect("a block has room for the bits of a group: the geometry is checked");
    }

    /// Loads the blocks that the change touches into the cache, without the group's lock, so that nobody waits for the device behind that
    /// lock. Damage of the bitmap is ignored here: it is found again under the lock, where the descriptor cannot change meanwhile.
    pub(super) fn warm(self, handle: &JournalHandle<'_>, desc: &GroupDesc) -> Result<(), Error> {
        let volume = handle.store();
        if !self.was_never_written(desc) {
            let verify = |raw: &[u8]| self.verify(&volume.sb, desc, raw);
            match handle.read(self.block(desc), Kind::Bitmap, verify) {
                Err(error) if matches!(error.root(), Error::Device { .. }) => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        let (block, _) = desc_place(volume, desc.group)?;
        let verify = |raw: &[u8]| verify_descs(&volume.sb, desc.group, raw);
        handle.read(block, Kind::Groups, verify).map(drop)
    }

    /// Loads the blocks that the change touches, so that it needs no device. The caller holds the group's lock, or the descriptor may be
    /// out of date.
    pub(super) fn load(self, handle: &JournalHandle<'_>, desc: &GroupDesc) -> Result<(), Error> {
        let volume = handle.store();
        if !self.was_never_written(desc) {
            let verify = |raw: &[u8]| self.verify(&volume.sb, desc, raw);
            handle.read(self.block(desc), Kind::Bitmap, verify)?;
        }
        let (block, _) = desc_place(volume, desc.group)?;
        let verify = |raw: &[u8]| verify_descs(&volume.sb, desc.group, raw);
        handle.read(block, Kind::Groups, verify).map(drop)
    }

    /// Changes the bits that `choose` returns, and the bitmap's checksum in `desc`, which is the descriptor on disk. Then call
    /// [`Change::finish`].
    pub(super) fn begin<B: AsRef<[Bits]>>(
        self,
        handle: &JournalHandle<'_>,
        desc: &mut GroupDesc,
        choose: impl FnOnce(&[u8]) -> Result<B, Error>,
    ) -> Result<B, Error> {
        self.begin_sealed(handle, desc, Sealed::Now, choose)
    }

    /// As [`Change::begin`]. The checksum may be computed later if the bitmap was written before.
    pub(super) fn begin_sealed<B: AsRef<[Bits]>>(
        self,
        handle: &JournalHandle<'_>,
        desc: &mut GroupDesc,
        sealed: Sealed,
        choose: impl FnOnce(&[u8]) -> Result<B, Error>,
    ) -> Result<B, Error> {
        let before = desc.clone();
        let sb = &handle.store().sb;
        let change = |map: &mut [u8]| {
            let bits = choose(map)?;
            self.way
                .apply_all(map, bits.as_ref())
                .map_err(|clash| clash.corrupt(before.group, self.kind))?;
            if sealed == Sealed::Now {
                self.seal(sb, desc, map);
            }
            Ok(bits)
        };
        let block = self.block(&before);
        if !self.was_never_written(&before) {
            let verify = |raw: &[u8]| self.verify(sb, &before, raw);
            return handle.update(block, Kind::Bitmap, verify, change);
        }
        let mut map = self.first_bitmap(handle.store(), before.group)?;
        let bits = change(&mut map)?;
        desc.flags = match self.kind {
            BitmapKind::Block => desc.flags.without_block_uninit(),
            BitmapKind::Inode => desc.flags.without_inode_uninit(),
        };
        handle.create(block, Kind::Bitmap, |raw| raw.copy_from_slice(&map));
        Ok(bits)
    }

    /// Writes the descriptor `desc` for the changed bits. If that fails, the bits are changed back to what fits `before`.
    pub(super) fn finish(
        self,
        handle: &JournalHandle<'_>,
        before: &GroupDesc,
        desc: &GroupDesc,
        bits: &[Bits],
    ) -> Result<(), Error> {
        self.finish_sealed(handle, (before, desc), Sealed::Now, bits)
    }

    /// As [`Change::finish`]. If the descriptor is written later, it is checked now that it can be.
    pub(super) fn finish_sealed(
        self,
        handle: &JournalHandle<'_>,
        (before, desc): (&GroupDesc, &GroupDesc),
        sealed: Sealed,
        bits: &[Bits],
    ) -> Result<(), Error> {
        let written = match sealed {
            Sealed::Now => write_desc(handle, desc),
            Sealed::Later => {
                let fits = desc.check_fit(&handle.store().sb);
                fits.map_err(|unfit| unfitting(desc, &unfit))
            }
        };
        let Err(error) = written else {
            return Ok(());
        };
        if !self.was_never_written(before) {
            // The bitmap is in memory, since this transaction has changed it, and its bits are as the change left them.
            let back = |map: &mut [u8]| {
                self.way
                    .back()
                    .apply_all(map, bits)
                    .map_err(|clash| clash.corrupt(before.group, self.kind).into())
            };
            handle.update(self.block(before), Kind::Bitmap, |_| Ok(()), back)?;
        }
        Err(error)
    }

    fn first_bitmap(self, volume: &Store, group: GroupNo) -> Result<Vec<u8>, Error> {
        match self.kind {
            BitmapKind::Block => volume.fresh_bitmap(group),
            BitmapKind::Inode => {
                let mut map = vec![0; volume.block_size() as usize];
                bitmap::fresh_inodes(&volume.sb, &mut map)?;
                Ok(map)
            }
        }
    }
}

/// Writes a group's descriptor.
pub(super) fn write_desc(handle: &JournalHandle<'_>, desc: &GroupDesc) -> Result<(), Error> {
    let volume = handle.store();
    let (block, at) = desc_place(volume, desc.group)?;
    let verify = |raw: &[u8]| verify_descs(&volume.sb, desc.group, raw);
    handle.update(block, Kind::Groups, verify, |raw| {
        desc.write(&volume.sb, &mut raw[at..])
            .map_err(|unfit| unfitting(desc, &unfit))
    })
}

fn unfitting(desc: &GroupDesc, unfit: &Unfit) -> Error {
    let group = desc.group;
    Error::Damaged(format!("group {group}: {unfit}; run e2fsck"))
}

/// The block with a group's descriptor, and the descriptor's offset in it.
fn desc_place(volume: &Store, group: GroupNo) -> Result<(FsBlock, usize), Error> {
    let (index, at) = volume.sb.desc_place(group)?;
    Ok((volume.sb.gdt_location(index)?, at as usize))
}

/// Checks all descriptors in the block that holds the descriptor of `group`.
pub(crate) fn verify_descs(sb: &Superblock, group: GroupNo, raw: &[u8]) -> Result<(), FormatError> {
    let geometry = sb.geometry();
    let (per_block, size) = (geometry.descs_per_block(), geometry.desc_size() as usize);
    let first = group.get() - group.get() % per_block;
    let groups = (first..first + per_block).filter_map(|n| geometry.group(n));
    for (group, raw) in groups.zip(raw.chunks_exact(size)) {
        GroupDesc::parse(sb, group, raw)?;
    }
    Ok(())
}
