//! Extended attributes of a new file: which are stored in its inode, which in a block, and which values in inodes of their own.
//!
//! Input: a [`Node`]'s attributes. Output: entries, by where they lie. Invariants: what fits into the inode lies there, in order; a value
//! is in an inode of its own only if the block is too small, the longest first. Limits: a value has at most 64 KiB, as the kernel's
//! interface. Source: the kernel's ext4 documentation, "extended attributes"; man 7 xattr.

use crate::error::Error;
use crate::plan::Has;
use crate::tree::{Node, NodeId, Tree};
use diorite_format::acl;
use diorite_format::features::Incompat;
use diorite_format::inode::{Inode, InodeFlags, NewInode};
use diorite_format::xattr::{self, NameIndex, XattrEntry, XattrValue, held_hash, value_sum};
use diorite_format::{FsBlock, Ino, Superblock, Timestamp};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Bytes of a value, at most.
const MOST_VALUE: usize = 64 << 10;
/// Bytes of an entry before its name.
const HEAD: usize = 16;
/// A value of so few bytes gets no inode: the entry would hardly be shorter.
const LEAST_HELD: usize = 64;

/// A node's attributes in the form of the disk: codes and names, values.
pub(crate) type Stored<'n> = Vec<(NameIndex, &'n [u8], Cow<'n, [u8]>)>;

pub(crate) fn stored(node: &Node) -> Result<Stored<'_>, Error> {
    let mut all = Vec::new();
    for (name, value) in &node.attributes {
        let known = NameIndex::split(name);
        let (index, rest) = known.ok_or_else(|| {
            Error::NotSupported(format!("the attribute {}", String::from_utf8_lossy(name)))
        })?;
        if rest.len() > 255 || rest.contains(&0) {
            let name = String::from_utf8_lossy(name);
            return Err(Error::Invalid(format!(
                "the attribute {name} cannot be named so"
            )));
        }
        let value = match index {
            NameIndex::ACL_ACCESS | NameIndex::ACL_DEFAULT => {
                acl::Acl::parse(value)?;
                Cow::Owned(acl::to_disk(value)?)
            }
            _ => Cow::Borrowed(&value[..]),
        };
        all.push((index, rest, value));
    }
    Ok(all)
}

/// The attribute with this number has its value in this inode.
pub(crate) type Held = (usize, Ino);

/// A node's attributes, split into those in its inode and those in a block.
pub(crate) struct Attributes<'n> {
    pub(crate) inside: Vec<XattrEntry<'n>>,
    pub(crate) outside: Vec<XattrEntry<'n>>,
}

impl<'n> Attributes<'n> {
    pub(crate) fn needs_block(&self) -> bool {
        !self.outside.is_empty()
    }

    pub(crate) fn of(
        sb: &Superblock,
        inode: &Inode,
        stored: &'n Stored<'n>,
        held: &[Held],
    ) -> Result<Attributes<'n>, Error> {
        let mut split = Attributes {
            inside: Vec::new(),
            outside: Vec::new(),
        };
        if stored.is_empty() {
            return Ok(split);
        }
        let mut all: Vec<XattrEntry<'n>> = Vec::new();
        for (index, name, value) in stored {
            all.push(XattrEntry::new(*index, name, value));
        }
        for (n, ino) in held {
            let entry = &mut all[*n];
            if let XattrValue::Bytes(value) = entry.value {
                entry.hash = held_hash(entry.name, value_sum(sb, value));
                entry.value = XattrValue::Inode {
                    ino: *ino,
                    size: value.len() as u32,
                };
            }
        }
        all.sort_by_key(|e| (e.index, e.name.len(), e.name));
        let mut scratch = vec![0; usize::try_from(sb.geometry().inode_size()).unwrap_or(0)];
        for entry in all {
            split.inside.push(entry);
            if xattr::write_inode(inode, &split.inside, &mut scratch).is_err() {
                split.inside.pop();
                split.outside.push(entry);
            }
        }
        if !split.outside.is_empty() {
            let mut raw = vec![0; sb.block_size() as usize];
            xattr::write_block(sb, FsBlock::new(1), &split.outside, 1, &mut raw)
                .map_err(|e| Error::Invalid(format!("extended attributes: {e}")))?;
        }
        Ok(split)
    }
}

/// The attributes whose values need inodes of their own, in the order of the node's, and whether others need a block.
///
/// # Errors
/// `Invalid`: they do not fit, or one is too large, with the path of the file, the attribute and its length.
pub(crate) fn held(
    sb: &Superblock,
    inode: &Inode,
    stored: &Stored<'_>,
    tree: &Tree,
    id: NodeId,
) -> Result<(Vec<usize>, bool), Error> {
    if stored.is_empty() {
        return Ok((Vec::new(), false));
    }
    let name = |n: usize| {
        let (index, name, _) = &stored[n];
        let name = String::from_utf8_lossy(name);
        format!("{}{name}", index.prefix().unwrap_or_default())
    };
    let path = || String::from_utf8_lossy(&tree.path_of(id)).into_owned();
    let mut by_len: Vec<usize> = (0..stored.len()).collect();
    by_len.sort_by_key(|n| std::cmp::Reverse(stored[*n].2.len()));
    let longest = by_len[0];
    let len = stored[longest].2.len();
    if len > MOST_VALUE {
        return Err(Error::Invalid(format!(
            "{}: the attribute {} has {len} bytes: {MOST_VALUE} can be",
            path(),
            name(longest)
        )));
    }
    let can_hold = Has(sb.features()).incompat(Incompat::EA_INODE);
    // So many heads and names do not fit, wherever the values are.
    let heads = stored.iter().map(|(_, name, _)| HEAD + name.len());
    let are_too_many =
        heads.sum::<usize>() > (sb.block_size() + sb.geometry().inode_size()) as usize;
    let mut held = Vec::new();
    let mut next = by_len.into_iter();
    let needs_block = loop {
        if !are_too_many && let Ok(split) = Attributes::of(sb, inode, stored, &held) {
            break split.needs_block();
        }
        match next.next() {
            Some(n) if can_hold && !are_too_many && stored[n].2.len() > LEAST_HELD => {
                held.push((n, Ino::ROOT))
            }
            _ if can_hold => {
                return Err(Error::Invalid(format!(
                    "{}: its {} extended attributes do not fit into a block of {} bytes, even without their long values",
                    path(),
                    stored.len(),
                    sb.block_size()
                )));
            }
            _ => {
                return Err(Error::Invalid(format!(
                    "{}: its extended attributes do not fit into a block of {} bytes, the largest of them {} of {len} bytes: \
                     with the feature ea_inode (-O ea_inode) a value may have up to {MOST_VALUE}",
                    path(),
                    sb.block_size(),
                    name(longest)
                )));
            }
        }
    };
    let mut held: Vec<usize> = held.into_iter().map(|(n, _)| n).collect();
    held.sort_unstable();
    Ok((held, needs_block))
}

/// How many inodes the values of a tree take, at most. What does not fit is no matter of this: it may be a file that has no name any more.
pub(crate) fn count_held(sb: &Superblock, tree: &Tree) -> usize {
    let mut values: BTreeSet<Vec<u8>> = BTreeSet::new();
    if Has(sb.features()).incompat(Incompat::EA_INODE) {
        // Where attributes lie depends on nothing but the size of inodes.
        let any = Inode::fresh(
            sb,
            &NewInode {
                ino: Ino::ROOT,
                mode: 0o100_600,
                uid: 0,
                gid: 0,
                projid: 0,
                flags: InodeFlags::default(),
                generation: 0,
                time: Timestamp { secs: 0, nanos: 0 },
            },
        );
        for (id, node) in tree.with_attributes() {
            let Ok(stored) = stored(&node) else {
                continue;
            };
            if let Ok((own, _)) = held(sb, &any, &stored, tree, id) {
                values.extend(own.into_iter().map(|n| stored[n].2.to_vec()));
            }
        }
    }
    values.len()
}
