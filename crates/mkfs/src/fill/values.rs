//! Inodes that hold values of extended attributes (ea_inode).
//!
//! Input: the values that need one, in the order of the tree. Output: inodes behind those of the tree, and their data. Invariants: equal
//! values share an inode, which counts its users; each user's inode counts the space as if it were alone. Limits: an inode belongs to the
//! owner of the first file that has the value. Source: as of `diorite_format::xattr`.

use super::Placing;
use crate::attributes::{self, Held, stored};
use crate::error::Error;
use crate::map;
use crate::tables::Tables;
use crate::tree::{Node, NodeId};
use crate::write::Out;
use diorite_format::extent::Extent;
use diorite_format::inode::{Inode, InodeFlags, NewInode};
use diorite_format::xattr::value_sum;
use diorite_format::{Ino, Superblock, Timestamp};
use std::collections::{BTreeMap, HashMap};
use std::iter::once;
use std::sync::Arc;

/// Permissions of such an inode.
const MODE: u16 = 0o100_600;

/// See the module.
#[derive(Debug)]
struct Value {
    ino: Ino,
    owner: (u32, u32),
    bytes: Arc<[u8]>,
    users: u64,
    extents: Vec<Extent>,
    /// Blocks of its map.
    upper: Vec<u64>,
    /// Whole clusters of the value, in blocks.
    blocks: u64,
}

/// All of a file system.
#[derive(Debug, Default)]
pub(crate) struct Values {
    all: Vec<Value>,
    known: HashMap<Arc<[u8]>, usize>,
    /// By inode: which of its attributes have which value.
    by_user: BTreeMap<Ino, Vec<(usize, usize)>>,
}

impl Values {
    /// Attributes of an inode whose values are in others.
    pub(crate) fn of(&self, user: Ino) -> Vec<Held> {
        let own = self.by_user.get(&user).into_iter().flatten();
        own.map(|(n, value)| (*n, self.all[*value].ino)).collect()
    }

    /// How many attributes of an inode have their values in others.
    pub(crate) fn count_of(&self, user: Ino) -> u64 {
        self.by_user.get(&user).map_or(0, Vec::len) as u64
    }

    /// Blocks that values add to an inode's.
    pub(crate) fn blocks_of(&self, user: Ino) -> u64 {
        let own = self.by_user.get(&user).into_iter().flatten();
        own.map(|(_, value)| self.all[*value].blocks).sum()
    }

    /// Writes the inodes and their data.
    pub(crate) fn write(
        &self,
        sb: &Superblock,
        made_at: Timestamp,
        tables: &mut Tables<'_>,
        out: &mut Out<'_>,
    ) -> Result<(), Error> {
        let (bits, size) = (sb.geometry().block_bits(), sb.block_size() as usize);
        let ratio = u64::from(sb.geometry().cluster_ratio());
        for value in &self.all {
            let mut inode = value.inode(sb, made_at);
            let mut upper = value.upper.iter().copied();
            let mut take = || Ok(upper.next().unwrap_or(0));
            for (block, raw) in map::make(sb, &mut inode, value.extents.clone(), &mut take)? {
                out.put(block << bits, &raw)?;
            }
            let places = value.extents.iter();
            let places = places.flat_map(|e| (0..u64::from(e.len)).map(|n| e.start.get() + n));
            for (block, part) in places.zip(value.bytes.chunks(size)) {
                let mut raw = vec![0; size];
                raw[..part.len()].copy_from_slice(part);
                out.put(block << bits, &raw)?;
            }
            let blocks = value.blocks + value.upper.len() as u64 * ratio;
            inode.size = value.bytes.len() as u64;
            inode.blocks = blocks << (bits - 9);
            tables.put(sb, &inode, &[], out)?;
        }
        Ok(())
    }
}

impl Value {
    fn inode(&self, sb: &Superblock, made_at: Timestamp) -> Inode {
        let mut inode = Inode::fresh(
            sb,
            &NewInode {
                ino: self.ino,
                mode: MODE,
                uid: self.owner.0,
                gid: self.owner.1,
                projid: 0,
                flags: InodeFlags::default(),
                generation: 0,
                time: made_at,
            },
        );
        inode.begin_value(value_sum(sb, &self.bytes));
        inode.set_value_users(self.users);
        inode
    }
}

impl Placing<'_, '_, '_> {
    /// Finds inodes for the values of a node that need some. Returns whether it needs a block for the rest.
    pub(crate) fn attributes(
        &mut self,
        (id, ino): (NodeId, Ino),
        node: &Node,
        inode: &Inode,
    ) -> Result<bool, Error> {
        let stored = stored(node)?;
        let (held, needs_block) = attributes::held(self.sb, inode, &stored, self.tree, id)?;
        for n in held {
            let value = self.value(&stored[n].2, (node.uid, node.gid))?;
            let values = &mut self.filling.values;
            values.by_user.entry(ino).or_default().push((n, value));
        }
        Ok(needs_block)
    }

    /// The inode of a value, as its number in the list.
    fn value(&mut self, bytes: &[u8], owner: (u32, u32)) -> Result<usize, Error> {
        if let Some(known) = self.filling.values.known.get(bytes).copied() {
            self.filling.values.all[known].users += 1;
            return Ok(known);
        }
        self.filling.last_ino = self.filling.last_ino.saturating_add(1);
        let blocks = bytes.len().div_ceil(self.sb.block_size() as usize) as u64;
        let ratio = u64::from(self.sb.geometry().cluster_ratio());
        let mut value = Value {
            ino: Ino::new(self.filling.last_ino),
            owner,
            bytes: bytes.into(),
            users: 1,
            extents: self.extents(&once(0..blocks).collect::<Vec<_>>(), None),
            upper: Vec::new(),
            blocks: blocks.next_multiple_of(ratio),
        };
        let mut inode = value.inode(self.sb, Timestamp { secs: 0, nanos: 0 });
        value.upper = self.upper(&mut inode, &value.extents, None)?;
        let values = &mut self.filling.values;
        values.known.insert(value.bytes.clone(), values.all.len());
        values.all.push(value);
        Ok(values.all.len() - 1)
    }
}
