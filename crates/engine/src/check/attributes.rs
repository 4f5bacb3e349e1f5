//! Extended attributes: those in inodes, those in blocks that inodes share, and values in inodes of their own.
//!
//! Input: inodes as they are met; then the list of all blocks of attributes. Output: findings; blocks claimed once; how often each block and each value's inode is
//! referred to, compared with what they say. Invariant: a block is read once, however many inodes share it. Limits: what a value means is not judged.

use super::Check;
use super::inodes::{Met, ValueRef};
use super::judge;
use super::reader::Reader;
use super::report::Kind;
use crate::error::Error;
use diorite_format::xattr::{NameIndex, XattrEntry, XattrValue, Xattrs};
use diorite_format::{FsBlock, Ino, Inode, Superblock};

/// Checks the attributes in an inode, notes its block of them; gives the clusters of its values that are elsewhere.
pub(super) fn in_inode(check: &Check<'_>, met: &mut Met, inode: &Inode, raw: &[u8]) -> u64 {
    if !inode.file_acl.is_none() {
        met.attributes.push((inode.file_acl, inode.ino));
    }
    match Xattrs::parse_inode(&check.sight.sb, inode, raw) {
        Ok(list) => list
            .entries
            .iter()
            .map(|e| entry(check, met, inode.ino, e))
            .sum(),
        Err(e) => {
            check.found.inode(Kind::Xattr, inode.ino, e);
            0
        }
    }
}

/// The value of `system.data`: the rest of inline data.
pub(super) fn inline_value<'a>(sb: &Superblock, inode: &Inode, raw: &'a [u8]) -> Option<&'a [u8]> {
    let list = Xattrs::parse_inode(sb, inode, raw).ok()?;
    match list.get(NameIndex::SYSTEM, b"data")?.value {
        XattrValue::Bytes(value) => Some(value),
        XattrValue::Inode { .. } => None,
    }
}

/// One attribute; gives the clusters of its value if that is elsewhere.
fn entry(check: &Check<'_>, met: &mut Met, owner: Ino, entry: &XattrEntry<'_>) -> u64 {
    if let Err(e) = entry.verify_hash(owner) {
        check.found.inode(Kind::Xattr, owner, e);
    }
    held_clusters(check, met, owner, entry)
}

/// Notes who holds an attribute's value, if it is elsewhere; gives its clusters.
fn held_clusters(check: &Check<'_>, met: &mut Met, owner: Ino, entry: &XattrEntry<'_>) -> u64 {
    let XattrValue::Inode { ino, size } = entry.value else {
        return 0;
    };
    met.values.push(ValueRef { holder: ino, owner });
    u64::from(size).div_ceil(u64::from(check.sight.sb.geometry().cluster_size()))
}

/// Every block of attributes, with all who have it. Must come before the values, of which there may be more in here.
pub(super) fn blocks(check: &Check<'_>, met: &mut Met) -> Result<(), Error> {
    let owners = std::mem::take(&mut met.attributes);
    let mut blocks: Vec<FsBlock> = owners.iter().map(|(b, _)| *b).collect();
    blocks.dedup();
    let mut rest = &owners[..];
    let mut reader = Reader::new(check.sight);
    reader.each(&blocks, |n, raw| {
        let sharing = rest.partition_point(|(b, _)| *b == blocks[n]);
        let (here, later) = rest.split_at(sharing);
        rest = later;
        block(check, met, blocks[n], here, raw);
        Ok(())
    })?;
    for (ino, found, expected) in met.counted.drain(..) {
        judge::space(check, ino, found, expected);
    }
    Ok(())
}

fn block(check: &Check<'_>, met: &mut Met, at: FsBlock, owners: &[(FsBlock, Ino)], raw: &[u8]) {
    let first = owners.first().map_or(Ino::new(0), |(_, ino)| *ino);
    check.space.claim(at, 1);
    let list = match Xattrs::parse_block(&check.sight.sb, first, at, raw) {
        Ok(list) => list,
        Err(e) => return check.found.of(Kind::Xattr, first, at, e),
    };
    if list.refcount as usize != owners.len() {
        let (says, has) = (list.refcount, owners.len());
        let what =
            format_args!("block {at} of attributes says that {says} inodes share it; {has} do");
        check.found.of(Kind::Xattr, first, at, what);
    }
    let mut held = 0;
    for one in &list.entries {
        if let Err(e) = one.verify_hash(first) {
            check.found.of(Kind::Xattr, first, at, e);
        }
        // However many inodes share the block, the value counts one user. It counts in the space of each.
        held += held_clusters(check, met, first, one);
    }
    if held > 0 {
        let sectors = held * u64::from(check.sight.sb.geometry().cluster_size() >> 9);
        for (_, owner) in owners {
            if let Ok(at) = met.counted.binary_search_by_key(owner, |(ino, ..)| *ino) {
                met.counted[at].2 += sectors;
            }
        }
    }
}

/// Inodes that hold values: each is one, is used, and says by how many.
pub(super) fn values(check: &Check<'_>, met: &mut Met) -> Result<(), Error> {
    met.values.sort_unstable();
    let mut reader = Reader::new(check.sight);
    for users in met.values.chunk_by(|a, b| a.holder == b.holder) {
        let Some(first) = users.first() else { continue };
        let holder = first.holder;
        match check.people.get(holder) {
            Some(person) if person.is_ea() => {
                let found = users.len() as u64;
                let says = reader
                    .inode(holder)?
                    .map_or(found, |(inode, _)| inode.value_users());
                if says != found {
                    let what = format_args!(
                        "inode {holder} says that {says} attributes have their value in it; {found} have"
                    );
                    check.found.inode(Kind::Xattr, holder, what);
                }
                check.people.count(holder);
            }
            _ => {
                let owner = first.owner;
                let what = format_args!(
                    "inode {owner}: an attribute has its value in inode {holder}, which is not for that"
                );
                check.found.inode(Kind::Xattr, owner, what);
            }
        }
    }
    Ok(())
}

/// Targets of symbolic links that have a block of their own.
pub(super) fn targets(check: &Check<'_>, met: &Met) -> Result<(), Error> {
    let blocks: Vec<FsBlock> = met.targets.iter().map(|(b, _)| *b).collect();
    let mut sizes = Reader::new(check.sight);
    Reader::new(check.sight).each(&blocks, |n, raw| {
        let (at, ino) = met.targets[n];
        let Some((inode, _)) = sizes.inode(ino)? else {
            return Ok(());
        };
        let found = raw.iter().position(|b| *b == 0).unwrap_or(raw.len());
        if found as u64 != inode.size || found == 0 {
            let size = inode.size;
            let what = format_args!(
                "inode {ino}: the target of the symbolic link has {found} bytes; its size is {size}"
            );
            check.found.of(Kind::Inode, ino, at, what);
        }
        Ok(())
    })
}
