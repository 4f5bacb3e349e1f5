//! The tree of a usage file: four levels of references, one per byte of an id, above blocks of entries that several ids share.
//! Input: the requested blocks. Output: which blocks to read next; entries; errors. Invariants: every block is requested at
//! most once, whatever the bytes are, so the walk ends; memory grows with the references read. Limit: blocks on the list of
//! free ones are not read.

use std::collections::BTreeSet;

use super::{BLOCK_SIZE, Entry, Header, ROOT, check_head, entries};
use crate::error::{Corrupt, FormatError, want};
use crate::le::le32;
use crate::num;
use crate::types::Ino;

/// Levels of references above the entries.
const LEVELS: u32 = 4;

/// A reference: a block, and the only or the lowest id that it covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Branch {
    /// The block of the file.
    pub block: u32,
    /// The id.
    pub id: u32,
}

impl Branch {
    /// Position of the block in the file, in bytes.
    #[must_use]
    pub fn byte(self) -> u64 {
        u64::from(self.block).saturating_mul(num::wide(BLOCK_SIZE))
    }
}

/// See the module.
#[derive(Debug)]
pub struct Tree {
    ino: Ino,
    blocks: u32,
    /// Levels requested so far.
    depth: u32,
    /// The header, and blocks of references.
    seen: BTreeSet<u32>,
    /// The references of the level that was requested last.
    below: Vec<Branch>,
}

impl Tree {
    /// The tree of the file with this header.
    #[must_use]
    pub fn new(header: &Header) -> Self {
        let root = Branch { block: ROOT, id: 0 };
        Self {
            ino: header.ino,
            blocks: header.blocks,
            depth: 0,
            seen: BTreeSet::from([0, ROOT]),
            below: vec![root],
        }
    }

    /// The blocks of the next level, ascending, for [`Tree::references`]; none after the last.
    pub fn level(&mut self) -> Option<Vec<Branch>> {
        if self.depth == LEVELS {
            return None;
        }
        self.depth = self.depth.saturating_add(1);
        Some(self.take())
    }

    /// Reads the references of a block of the level that was requested last. Errors: `Short`, `QuotaReference`, `QuotaTwice`.
    pub fn references(&mut self, at: Branch, raw: &[u8], wrong: &mut dyn FnMut(FormatError)) {
        if let Err(e) = want("a block of a usage file", raw, BLOCK_SIZE) {
            return wrong(e);
        }
        let shift = LEVELS.saturating_sub(self.depth).saturating_mul(8);
        for slot in 0..=u8::MAX {
            let found = le32(raw, usize::from(slot).saturating_mul(4));
            let id = at.id | u32::from(slot).checked_shl(shift).unwrap_or(0);
            let (ino, block, blocks) = (self.ino, at.block, self.blocks);
            if found >= blocks {
                let corrupt = Corrupt::QuotaReference {
                    ino,
                    block,
                    slot,
                    found,
                    blocks,
                };
                wrong(corrupt.into());
            } else if found != 0 && self.is_new(found) {
                self.below.push(Branch { block: found, id });
            } else if found != 0 {
                wrong(Corrupt::QuotaTwice { ino, block, found }.into());
            }
        }
    }

    /// Whether a block may be referred to: a block of references once, a block of entries repeatedly, but no block as both.
    fn is_new(&mut self, block: u32) -> bool {
        if self.depth < LEVELS {
            self.seen.insert(block)
        } else {
            !self.seen.contains(&block)
        }
    }

    /// After the last level: the blocks of entries, ascending, with their ids, for [`Tree::entries`].
    pub fn leaves(&mut self) -> Vec<Branch> {
        self.take()
    }

    /// The entries of a block; `ids` are all references to it. Errors: `Short`, `QuotaEntries`, `QuotaAstray`, `QuotaNoEntry`.
    pub fn entries(
        &self,
        ids: &[Branch],
        raw: &[u8],
        wrong: &mut dyn FnMut(FormatError),
    ) -> Vec<Entry> {
        let Some(Branch { block, .. }) = ids.first().copied() else {
            return Vec::new();
        };
        if let Err(e) = want("a block of a usage file", raw, BLOCK_SIZE) {
            wrong(e);
            return Vec::new();
        }
        let ino = self.ino;
        if let Err(e) = check_head(ino, block, raw) {
            wrong(e);
        }
        let found: Vec<Entry> = entries(raw).collect();
        let mut with_entry = BTreeSet::new();
        for Entry { id, .. } in found.iter().copied() {
            let led_to = ids.binary_search(&Branch { block, id }).is_ok();
            if !led_to || !with_entry.insert(id) {
                wrong(Corrupt::QuotaAstray { ino, block, id }.into());
            }
        }
        for Branch { id, .. } in ids.iter().filter(|b| !with_entry.contains(&b.id)) {
            let id = *id;
            wrong(Corrupt::QuotaNoEntry { ino, block, id }.into());
        }
        found
    }

    fn take(&mut self) -> Vec<Branch> {
        let mut below = core::mem::take(&mut self.below);
        below.sort_unstable();
        below
    }
}
