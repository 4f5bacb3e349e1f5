//! Usage files of quotas: how much of the tree belongs to each user, group and project.
//!
//! Input: a [`Filling`], whose places are known. Output: hidden files with its usage. Invariants: the volume's own files are not counted;
//! what counts is what the inodes say, whole clusters and values of attributes with them. Limit: every file belongs to project 0. Source:
//! as of `diorite_format::quota`.

use super::Maker;
use crate::error::Error;
use crate::fill::Filling;
use crate::tree::Tree;
use diorite_format::Ino;
use diorite_format::inode::InodeFlags;
use diorite_format::quota::{Entry, Kind, usage_bytes};
use std::collections::BTreeMap;

impl Maker<'_, '_> {
    /// Names the files, before the tree gets its numbers.
    pub(crate) fn number_usage_files(&mut self) {
        let [users, groups, projects] = self.plan.quota;
        let none = Ino::new(0);
        self.plan.sb.quota_files = [
            if users { Ino::USER_QUOTA } else { none },
            if groups { Ino::GROUP_QUOTA } else { none },
            if projects {
                self.files.next_own()
            } else {
                none
            },
        ];
    }

    /// Makes the files, behind everything else.
    pub(crate) fn usage_files(&mut self, filling: &Filling, tree: &Tree) -> Result<(), Error> {
        for (kind, ino) in Kind::ALL.into_iter().zip(self.plan.sb.quota_files) {
            if !ino.is_none() {
                let used = usage(filling, tree, kind, self.sb.block_size());
                self.usage_file(ino, &usage_bytes(kind, &used))?;
            }
        }
        Ok(())
    }

    fn usage_file(&mut self, ino: Ino, bytes: &[u8]) -> Result<(), Error> {
        let size = self.block_size();
        let blocks = bytes.len().div_ceil(size) as u64;
        let runs = self.space.next_free(blocks).ok_or(Error::TooSmall {
            blocks: self.clusters(blocks) * u64::from(self.sb.geometry().cluster_ratio()),
            block_size: self.sb.block_size(),
            inodes: 0,
        })?;
        let mut inode = self.fresh(ino, 0o100_600);
        self.map(&mut inode, &runs)?;
        inode.size = bytes.len() as u64;
        // As mke2fs: nobody changes it but the file system itself.
        inode.flags = inode.flags.with(InodeFlags::IMMUTABLE);
        for (block, part) in runs.into_iter().flatten().zip(bytes.chunks(size)) {
            self.block(block)[..part.len()].copy_from_slice(part);
        }
        self.files.inodes.push(inode);
        self.files.of_files += self.clusters(blocks);
        Ok(())
    }
}

/// What each of a kind has.
fn usage(filling: &Filling, tree: &Tree, kind: Kind, block_size: u32) -> Vec<Entry> {
    let mut used: BTreeMap<u32, Entry> = BTreeMap::new();
    for placed in filling.placed() {
        let node = tree.node(placed.id);
        let id = match kind {
            Kind::User => node.uid,
            Kind::Group => node.gid,
            Kind::Project => 0,
        };
        let entry = used.entry(id).or_insert(Entry {
            id,
            space: 0,
            inodes: 0,
        });
        entry.space += filling.blocks_of(&placed) * u64::from(block_size);
        // Each attribute with its value in another inode counts that one as its own.
        entry.inodes += 1 + filling.values.count_of(placed.ino);
    }
    used.into_values().collect()
}
