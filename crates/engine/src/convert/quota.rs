//! Usage files of quotas, made and taken away; projects.
//!
//! Input: an [`Image`]. Output: the image with usage files that count what its inodes use, or without. Invariant: each inode in use counts,
//! but the file system's own; a value of an attribute that is in an inode of its own counts once for each inode that refers to it. Limits:
//! new files set no limits. Source: as of `diorite_format::quota`.

use super::image::Image;
use super::{Progress, Step};
use crate::error::Error;
use diorite_format::bitmap;
use diorite_format::features::{Features, Incompat, RoCompat};
use diorite_format::inode::InodeFlags;
use diorite_format::quota::{Entry, Kind, usage_bytes, usage_file};
use diorite_format::xattr::{XattrValue, Xattrs};
use diorite_format::{FsBlock, Ino, Inode};
use std::collections::BTreeMap;

/// A change of the usage files of a kind.
pub type UsageFile = (Kind, bool);

/// Features of read-only compatibility alone.
pub(super) fn ro(bits: RoCompat) -> Features {
    Features {
        ro_compat: bits,
        ..Features::default()
    }
}

impl Image {
    /// Calls `meet` for each inode that is in use. Blocks.
    pub(super) fn each_inode(
        &mut self,
        meet: &mut dyn FnMut(&Image, &Inode) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let geometry = self.sb.geometry();
        let (per_group, size) = (geometry.inodes_per_group(), geometry.inode_size());
        let per_block = self.sb.block_size() / size;
        for group in self.group_numbers() {
            let desc = &self.groups[group.get() as usize];
            if desc.flags.inode_uninit() || desc.free_inodes == per_group {
                continue;
            }
            let table = desc.inode_table;
            let bits = self.load_inode_bits(group)?.now.clone();
            self.drop_unchanged_bits(group);
            let mut block = (u32::MAX, Vec::new());
            let mut next = bitmap::next_one(&bits, 0, per_group);
            while let Some(slot) = next {
                let n = slot / per_block;
                if block.0 != n {
                    let at = FsBlock::new(table.get() + u64::from(n));
                    block = (n, self.block(at)?.to_vec());
                }
                let at = (slot % per_block * size) as usize;
                let ino = Ino::new(group.get() * per_group + slot + 1);
                let inode = Inode::parse(&self.sb, ino, &block.1[at..at + size as usize]);
                let inode = inode.map_err(|e| Error::from(e).at(format!("inode {ino}")))?;
                if !inode.is_free() {
                    meet(self, &inode)?;
                }
                next = bitmap::next_one(&bits, slot + 1, per_group);
            }
        }
        Ok(())
    }

    /// Takes usage files away. Blocks.
    pub(super) fn remove_usage(&mut self, kind: Kind) -> Result<(), Error> {
        if let Some(ino) = usage_file(&self.sb, kind) {
            self.remove_own(ino)?;
        }
        self.edit_super(|edit| edit.set_usage_file(kind, Ino::new(0)))
    }

    /// Whether there is a usage file of a kind.
    pub(super) fn has_usage(&self, kind: Kind) -> bool {
        usage_file(&self.sb, kind).is_some()
    }

    /// Makes the usage files of these kinds, which it does not have. Blocks.
    pub(super) fn add_usage(
        &mut self,
        kinds: &[Kind],
        progress: Progress<'_>,
    ) -> Result<(), Error> {
        if kinds.is_empty() {
            return Ok(());
        }
        let mut used: BTreeMap<(usize, u32), Entry> = BTreeMap::new();
        let of =
            u64::from(self.sb.geometry().inodes_count() - self.sb.geometry().free_inodes_count());
        let mut done = 0;
        let first = self.sb.geometry().first_ino();
        self.each_inode(&mut |image, inode| {
            done += 1;
            progress(&Step::usage(done, of.max(done)));
            let is_own = inode.ino != Ino::ROOT && inode.ino.get() < first
                || image.sb.orphan_file() == Some(inode.ino)
                || Kind::ALL
                    .iter()
                    .any(|kind| usage_file(&image.sb, *kind) == Some(inode.ino));
            if is_own || inode.holds_value() {
                return Ok(());
            }
            let values = image.values_of(inode)?;
            for (n, kind) in kinds.iter().enumerate() {
                let id = match kind {
                    Kind::User => inode.uid,
                    Kind::Group => inode.gid,
                    Kind::Project => inode.projid,
                };
                let entry = used.entry((n, id)).or_insert(Entry {
                    id,
                    space: 0,
                    inodes: 0,
                });
                entry.space += inode.blocks * 512;
                entry.inodes += 1 + values;
            }
            Ok(())
        })?;
        self.edit_super(|edit| {
            edit.switch_features(&ro(RoCompat::QUOTA), &Features::default());
        })?;
        for (n, kind) in kinds.iter().enumerate() {
            let all: Vec<Entry> = used
                .range((n, 0)..=(n, u32::MAX))
                .map(|(_, entry)| *entry)
                .collect();
            self.usage_file(*kind, &usage_bytes(*kind, &all))?;
        }
        Ok(())
    }

    /// How many inodes with values of attributes count for an inode: their space is in its own count of blocks. Blocks.
    fn values_of(&self, inode: &Inode) -> Result<u64, Error> {
        if !self.sb.features().incompat.has(Incompat::EA_INODE) {
            return Ok(0);
        }
        let raw = self.raw_inode(inode.ino)?;
        let mut count = self.values_in(inode, &Xattrs::parse_inode(&self.sb, inode, &raw)?)?;
        let at = inode.file_acl;
        if !at.is_none() {
            let raw = self.block(at)?;
            count += self.values_in(inode, &Xattrs::parse_block(&self.sb, inode.ino, at, &raw)?)?;
        }
        Ok(count)
    }

    fn values_in(&self, owner: &Inode, attributes: &Xattrs<'_>) -> Result<u64, Error> {
        let mut count = 0;
        for entry in &attributes.entries {
            if let XattrValue::Inode { ino, .. } = entry.value {
                let holder = self.inode(ino)?;
                count += u64::from(!entry.is_lustre(&holder, (owner.ino, owner.generation)));
            }
        }
        Ok(count)
    }

    fn usage_file(&mut self, kind: Kind, bytes: &[u8]) -> Result<(), Error> {
        let ino = match kind {
            Kind::User => Ino::USER_QUOTA,
            Kind::Group => Ino::GROUP_QUOTA,
            Kind::Project => self.take_inode()?,
        };
        let size = self.sb.block_size() as usize;
        let blocks = bytes.len().div_ceil(size) as u64;
        let places = self.make_own(ino, blocks, InodeFlags::IMMUTABLE)?;
        let mut inode = self.inode(ino)?;
        inode.size = bytes.len() as u64;
        self.put_inode(&inode)?;
        for (at, part) in places.into_iter().zip(bytes.chunks(size)) {
            let mut block = vec![0; size];
            block[..part.len()].copy_from_slice(part);
            self.put(at, &block);
        }
        self.edit_super(|edit| edit.set_usage_file(kind, ino))
    }

    /// Usage files and projects, as asked: the features and single kinds. Blocks.
    pub(super) fn change_quota(
        &mut self,
        (set, clear): (RoCompat, RoCompat),
        kinds: &[UsageFile],
        progress: Progress<'_>,
    ) -> Result<(), Error> {
        let mut wanted = Kind::ALL.map(|kind| self.has_usage(kind));
        let had_project = self.has_ro(RoCompat::PROJECT);
        // As tune2fs: usage of projects needs projects.
        let asks = set.has(RoCompat::PROJECT) || kinds.contains(&(Kind::Project, true));
        if asks && !had_project {
            if self.sb.geometry().inode_size() <= 128 {
                let what = "the feature project: inodes of 128 bytes have no room: -I 256 first";
                return Err(Error::NotSupported(what.to_owned()));
            }
            self.edit_super(|edit| {
                edit.switch_features(&ro(RoCompat::PROJECT), &Features::default());
            })?;
            // As tune2fs: their usage is counted.
            wanted[2] = true;
        }
        if set.has(RoCompat::QUOTA) && !self.has_ro(RoCompat::QUOTA) && kinds.is_empty() {
            wanted = [true, true, self.has_ro(RoCompat::PROJECT)];
        }
        for (kind, on) in kinds {
            let n = Kind::ALL.iter().position(|one| one == kind).unwrap_or(0);
            wanted[n] = *on;
        }
        if clear.has(RoCompat::QUOTA) {
            wanted = [false; 3];
        }
        // As tune2fs: without their usage, projects go.
        let ends = clear.has(RoCompat::PROJECT) || kinds.contains(&(Kind::Project, false));
        if ends {
            wanted[2] = false;
        }
        let mut new = Vec::new();
        for (kind, want) in Kind::ALL.into_iter().zip(wanted) {
            match (self.has_usage(kind), want) {
                (true, false) => self.remove_usage(kind)?,
                (false, true) => new.push(kind),
                _ => {}
            }
        }
        self.add_usage(&new, progress)?;
        let mut off = RoCompat::from_bits(0);
        if wanted == [false; 3] && !set.has(RoCompat::QUOTA) {
            off = off.with(RoCompat::QUOTA);
        }
        if ends {
            off = off.with(RoCompat::PROJECT);
        }
        self.edit_super(|edit| edit.switch_features(&Features::default(), &ro(off)))
    }

    /// Refuses if a directory ignores case. Blocks.
    pub(super) fn check_no_casefold(&mut self) -> Result<(), Error> {
        self.each_inode(
            &mut |_, inode| match inode.flags.has(InodeFlags::CASEFOLD) {
                true => {
                    let what = format!(
                        "the feature casefold: directory inode {} uses it",
                        inode.ino
                    );
                    Err(Error::NotSupported(what))
                }
                false => Ok(()),
            },
        )
    }
}
