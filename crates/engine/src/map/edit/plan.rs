//! A plan: everything that an edit reads, takes, writes and removes, collected before any of it is changed.
//!
//! Input: nodes as an edit wants them to be. Output: all changes in one handle, or none. Invariants: until [`Plan::run`] has the whole
//! plan and all bytes, nothing is changed except that blocks are taken, which an error gives back; what was read stays in memory until it
//! is written, so writing needs no device; a block is visited once, so a damaged map with a cycle ends in an error. Limits: holds the
//! nodes of one edit in memory.

use super::runs::{self, Run};
use super::{Edited, TreeBlocks};
use crate::disk::cache::{Kind, MetaRef};
use crate::error::Error;
use crate::journal::JournalHandle;
use crate::journal::Store;
use crate::map::Segment;
use crate::map::load::{extent_node, pointer_block};
use diorite_format::extent::{Expect, ExtentNode};
use diorite_format::{FsBlock, Inode as DiskInode};
use std::collections::BTreeMap;
use std::ops::Range;

/// See the module.
pub(super) struct Plan<'a> {
    handle: &'a JournalHandle<'a>,
    blocks: &'a mut dyn TreeBlocks,
    /// The inode as it will be. The plan changes only its `i_block`.
    pub(super) inode: DiskInode,
    /// The edit moves extents to other file blocks.
    pub(super) shifts: bool,
    read: BTreeMap<FsBlock, Old>,
    written: BTreeMap<FsBlock, Node>,
    taken: Vec<FsBlock>,
    let_go: Vec<FsBlock>,
    /// The blocks that the range was mapped to, and those that it is mapped to now.
    pub(super) old_runs: Vec<Run>,
    pub(super) new_runs: Vec<Run>,
    window: Option<Range<u32>>,
    pub(super) segments: Vec<Segment>,
}

struct Old {
    bytes: MetaRef,
    /// None for a block of pointers.
    node: Option<ExtentNode>,
}

/// The future contents of a block.
pub(super) enum Node {
    Extents(ExtentNode),
    /// A block of pointers, as it is stored.
    Pointers(Vec<u8>),
}

/// The bytes of a block, ready to be written.
struct Ready {
    at: FsBlock,
    bytes: Vec<u8>,
    is_new: bool,
}

impl<'a> Plan<'a> {
    /// Makes a plan and executes it.
    pub(super) fn run(
        handle: &'a JournalHandle<'a>,
        blocks: &'a mut dyn TreeBlocks,
        inode: &mut DiskInode,
        make: impl FnOnce(&mut Plan<'a>) -> Result<(), Error>,
    ) -> Result<Edited, Error> {
        let mut plan = Plan {
            handle,
            blocks,
            inode: inode.clone(),
            shifts: false,
            read: BTreeMap::new(),
            written: BTreeMap::new(),
            taken: Vec::new(),
            let_go: Vec::new(),
            old_runs: Vec::new(),
            new_runs: Vec::new(),
            window: None,
            segments: Vec::new(),
        };
        let made = make(&mut plan).and_then(|()| {
            let removed = runs::without(inode.ino, &plan.old_runs, &plan.new_runs)?;
            let ready = plan.ready()?;
            if !removed.is_empty() || !plan.let_go.is_empty() {
                plan.blocks.prepare_to_free(inode, &removed, &plan.let_go)?;
            }
            Ok((removed, ready))
        });
        match made {
            Ok((removed, ready)) => plan.carry_out(inode, removed, ready),
            Err(error) => {
                plan.undo_best_effort();
                Err(error)
            }
        }
    }

    /// See [`TreeBlocks::counted_on`].
    pub(super) fn counted_on(&self) -> usize {
        self.blocks.counted_on()
    }

    pub(super) fn volume(&self) -> &'a Store {
        self.handle.store()
    }

    /// Reads an extent node. Fails if the plan has met this block before.
    pub(super) fn read_node(&mut self, at: FsBlock, expect: Expect) -> Result<ExtentNode, Error> {
        self.check_first(at)?;
        let (bytes, node) = extent_node(self.volume(), &self.inode, at, expect)?;
        let copy = Some(node.clone());
        self.read.insert(at, Old { bytes, node: copy });
        Ok(node)
    }

    /// Reads a block of pointers. Fails if the plan has met this block before.
    pub(super) fn read_pointers(&mut self, at: FsBlock) -> Result<Vec<u8>, Error> {
        self.check_first(at)?;
        let bytes = pointer_block(self.volume(), at)?;
        let copy = bytes.to_vec();
        self.read.insert(at, Old { bytes, node: None });
        Ok(copy)
    }

    fn check_first(&self, at: FsBlock) -> Result<(), Error> {
        if self.read.contains_key(&at) || self.taken.contains(&at) {
            return Err(twice(&self.inode, at));
        }
        Ok(())
    }

    /// An extent node as it will be, if the plan has read or made it.
    pub(super) fn known(&self, at: FsBlock) -> Option<&ExtentNode> {
        match self.written.get(&at) {
            Some(Node::Extents(node)) => Some(node),
            Some(Node::Pointers(_)) => None,
            None => self.read.get(&at).and_then(|old| old.node.as_ref()),
        }
    }

    /// Takes a block for a new node, near another block.
    pub(super) fn take(&mut self, near: FsBlock) -> Result<FsBlock, Error> {
        let block = self.blocks.take(near)?;
        self.taken.push(block);
        if self.read.contains_key(&block) {
            return Err(twice(&self.inode, block));
        }
        Ok(block)
    }

    pub(super) fn write(&mut self, at: FsBlock, node: Node) {
        self.written.insert(at, node);
    }

    /// Removes a node from the map. A block that the plan itself has taken is given back.
    pub(super) fn let_go(&mut self, at: FsBlock) -> Result<(), Error> {
        self.written.remove(&at);
        match self.taken.iter().position(|t| *t == at) {
            Some(n) => {
                self.taken.swap_remove(n);
                self.blocks.give_back(at)
            }
            None => {
                self.let_go.push(at);
                Ok(())
            }
        }
    }

    /// Adds file blocks to the window, the range about which views are out of date.
    pub(super) fn touch(&mut self, blocks: Range<u32>) {
        self.window = Some(match self.window.take() {
            None => blocks,
            Some(w) => w.start.min(blocks.start)..w.end.max(blocks.end),
        });
    }

    pub(super) fn window(&self) -> Range<u32> {
        self.window.clone().unwrap_or(0..0)
    }

    /// The bytes of everything to be written. After this only the device can fail.
    fn ready(&self) -> Result<Vec<Ready>, Error> {
        let sb = &self.volume().sb;
        let mut all = Vec::with_capacity(self.written.len());
        for (at, node) in &self.written {
            let old = self.read.get(at);
            let bytes = match node {
                Node::Pointers(bytes) => bytes.clone(),
                Node::Extents(node) => {
                    let mut bytes = match old {
                        Some(old) => old.bytes.to_vec(),
                        None => vec![0; sb.block_size() as usize],
                    };
                    node.write_block(sb, self.inode.ino, self.inode.generation, &mut bytes)?;
                    bytes
                }
            };
            all.push(Ready {
                at: *at,
                bytes,
                is_new: old.is_none(),
            });
        }
        Ok(all)
    }

    fn carry_out(
        self,
        inode: &mut DiskInode,
        removed: Vec<Run>,
        ready: Vec<Ready>,
    ) -> Result<Edited, Error> {
        for block in ready {
            let fill = |raw: &mut [u8]| raw.copy_from_slice(&block.bytes);
            if block.is_new {
                self.handle.create(block.at, Kind::Map, fill);
            } else {
                self.handle.node(block.at, inode.ino);
                // `read` holds its old bytes, so the block is in memory and verified, and the update cannot fail.
                self.handle.update(
                    block.at,
                    Kind::Map,
                    |_| Ok(()),
                    |raw| {
                        fill(raw);
                        Ok(())
                    },
                )?;
            }
        }
        self.let_go.iter().for_each(|at| self.handle.forget(*at));
        inode.i_block = self.inode.i_block;
        Ok(Edited {
            removed,
            nodes_taken: self.taken.len() as u32,
            window: self.window(),
            segments: self.segments.into(),
            nodes_removed: self.let_go,
        })
    }

    /// Gives back the blocks that were taken, after an error. If that fails too, they stay allocated and unused until e2fsck frees them.
    fn undo_best_effort(&mut self) {
        for block in std::mem::take(&mut self.taken) {
            let _first_error_wins = self.blocks.give_back(block);
        }
    }
}

/// The error for a block that the map contains twice.
pub(super) fn twice(inode: &DiskInode, at: FsBlock) -> Error {
    let ino = inode.ino;
    Error::Damaged(format!(
        "inode {ino}: block {at} is in its map twice; run e2fsck"
    ))
}
