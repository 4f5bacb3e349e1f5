//! Extended attributes: in inodes, in blocks that inodes share, and values in inodes of their own.
//!
//! Input: inodes as the tables are read; then the list of all attribute blocks. Output: findings; every block claimed once; the
//! number of references to each block, compared with the stored count. Invariant: a block is read once, however many inodes share
//! it. Limits: the meaning of a value is not judged; `values` judges the inodes that hold values.

use super::context::Check;
use super::met::{self, Met, ValueRef};
use super::reader::Reader;
use super::report::Kind;
use diorite::Error;
use diorite_format::inline::REST;
use diorite_format::xattr::{
    NameIndex, XattrEntry, XattrValue, Xattrs, entry_hash, held_hash, is_held_hash,
};
use diorite_format::{FsBlock, Ino, Inode, InodeFlags, Superblock};

/// Size of a block's header, before the entries.
const BLOCK_HEADER: usize = 32;
/// Bytes of an entry without its name.
const ENTRY: usize = 16;

/// Values in inodes of their own.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Elsewhere {
    pub(super) clusters: u64,
    pub(super) inodes: u64,
}

impl Elsewhere {
    fn add(&mut self, clusters: Option<u64>) {
        self.clusters += clusters.unwrap_or(0);
        self.inodes += u64::from(clusters.is_some());
    }
}

/// Checks the attributes in an inode and records its attribute block; returns its values that are in inodes of their own.
pub(super) fn in_inode(
    check: &Check<'_>,
    reader: &mut Reader<'_>,
    met: &mut Met,
    inode: &Inode,
    raw: &[u8],
) -> Result<Elsewhere, Error> {
    if !inode.file_acl.is_none() {
        met.attributes.push((inode.file_acl, inode.ino));
    }
    let list = match Xattrs::parse_inode(&check.source.sb, inode, raw) {
        Ok(list) if list.entries.is_empty() => return Ok(Elsewhere::default()),
        Ok(list) => list,
        Err(e) => {
            check.found.inode(Kind::Xattr, inode.ino, e);
            return Ok(Elsewhere::default());
        }
    };
    let mut elsewhere = Elsewhere::default();
    let owner = (inode.ino, inode.generation);
    for one in &list.entries {
        elsewhere.add(entry(check, reader, met, owner, one)?);
    }
    if let Some(area) = inode.xattr_area() {
        // Value offsets count from after the magic number.
        layout(check, inode.ino, &list, &raw[area][4..], 0);
    }
    Ok(elsewhere)
}

/// An inode flagged as encrypted must have an encryption context.
pub(super) fn encrypted(
    check: &Check<'_>,
    reader: &mut Reader<'_>,
    inode: &Inode,
    raw: &[u8],
) -> Result<(), Error> {
    let (sb, ino, at) = (&check.source.sb, inode.ino, inode.file_acl);
    if !inode.flags.has(InodeFlags::ENCRYPT) {
        return Ok(());
    }
    let says_how = |list: Xattrs<'_>| list.get(NameIndex::ENCRYPTION, b"c").is_some();
    let inside = Xattrs::parse_inode(sb, inode, raw).is_ok_and(says_how);
    if !inside
        && (at.is_none()
            || !Xattrs::parse_block(sb, ino, at, reader.block(at)?).is_ok_and(says_how))
    {
        let what = format_args!("inode {ino}: flagged as encrypted, and no attribute says how");
        check.found.inode(Kind::Xattr, ino, what);
    }
    Ok(())
}

/// The value of `system.data`: the rest of inline data.
pub(super) fn inline_value<'a>(sb: &Superblock, inode: &Inode, raw: &'a [u8]) -> Option<&'a [u8]> {
    let list = Xattrs::parse_inode(sb, inode, raw).ok()?;
    match list.get(REST.0, REST.1)?.value {
        XattrValue::Bytes(value) => Some(value),
        XattrValue::Inode { .. } => None,
    }
}

/// Checks one attribute of an inode, which has this generation; returns the clusters of its value if that is in an inode of its own and
/// counts for the inode with the attribute. In Lustre's old form it does not.
fn entry(
    check: &Check<'_>,
    reader: &mut Reader<'_>,
    met: &mut Met,
    (owner, generation): (Ino, u32),
    entry: &XattrEntry<'_>,
) -> Result<Option<u64>, Error> {
    if let Err(e) = entry.verify_hash(owner) {
        check.found.inode(Kind::Xattr, owner, e);
    }
    let XattrValue::Inode { ino, size } = entry.value else {
        return Ok(None);
    };
    let mut names_owner = false;
    if let Some((holder, _)) = reader.inode(ino)? {
        let sum = holder.value_checksum();
        let computed = held_hash(entry.name, sum);
        let hashed = is_held_hash(entry.hash, entry.name, sum);
        names_owner = entry.is_lustre(&holder, (owner, generation));
        if !hashed && !names_owner || holder.size != u64::from(size) {
            let what = format_args!(
                "inode {owner}: an attribute of {size} bytes with the hash {:#010x} has its value in inode {ino}, \
                 of {} bytes and {computed:#010x}",
                entry.hash, holder.size
            );
            check.found.inode(Kind::Xattr, owner, what);
        }
    }
    met.values.push(ValueRef {
        holder: ino,
        owner,
        names_owner,
    });
    let cluster = u64::from(check.source.sb.geometry().cluster_size());
    Ok((!names_owner).then(|| u64::from(size).div_ceil(cluster)))
}

/// Values must lie in words of their own, which no other value and no entry uses. Value offsets count from the start of
/// `bytes`; entries begin at `base`.
fn layout(check: &Check<'_>, ino: Ino, list: &Xattrs<'_>, bytes: &[u8], base: usize) {
    let word = |n: usize| n.next_multiple_of(4);
    let (mut taken, mut at) = (Vec::new(), base);
    for entry in &list.entries {
        let raw = &bytes[at..at + ENTRY];
        let from = usize::from(u16::from_le_bytes([raw[2], raw[3]]));
        match entry.value {
            XattrValue::Bytes(value) if !value.is_empty() => {
                taken.push((from, from + word(value.len())));
            }
            // An empty value uses no word, but must lie inside.
            XattrValue::Bytes(_) if from > bytes.len() => taken.push((from, from)),
            _ => {}
        }
        at += word(ENTRY + entry.name.len());
    }
    taken.push((0, at));
    taken.sort_unstable();
    let overlap = taken.windows(2).any(|w| w[0].1 > w[1].0);
    if overlap || taken.last().is_some_and(|(_, end)| *end > bytes.len()) {
        let what = format_args!(
            "inode {ino}: values of extended attributes overlap, or reach past the end"
        );
        check.found.inode(Kind::Xattr, ino, what);
    }
}

/// Checks every attribute block, with all inodes that use it. Must run before the pass over values,
/// because the blocks may refer to more of them.
pub(super) fn blocks(check: &Check<'_>, met: &mut Met) -> Result<(), Error> {
    let owners = std::mem::take(&mut met.attributes);
    let mut blocks: Vec<FsBlock> = owners.iter().map(|(b, _)| *b).collect();
    blocks.dedup();
    let mut rest = &owners[..];
    let mut holders = Reader::new(check.source);
    let mut reader = Reader::new(check.source);
    reader.each(&blocks, |n, raw| {
        let sharing = rest.partition_point(|(b, _)| *b == blocks[n]);
        let (here, later) = rest.split_at(sharing);
        rest = later;
        let here: Vec<Ino> = here.iter().map(|(_, ino)| *ino).collect();
        block(check, &mut holders, met, blocks[n], &here, raw)
    })?;
    for of in met.counted.drain(..) {
        met::space(check, &mut met.usage, &of, true);
    }
    Ok(())
}

fn block(
    check: &Check<'_>,
    reader: &mut Reader<'_>,
    met: &mut Met,
    at: FsBlock,
    owners: &[Ino],
    raw: &[u8],
) -> Result<(), Error> {
    let first = owners.first().map_or(Ino::new(0), |ino| *ino);
    check.space.claim(at, 1);
    let list = match Xattrs::parse_block(&check.source.sb, first, at, raw) {
        Ok(list) => list,
        Err(e) => {
            check.found.of(Kind::Xattr, first, at, e);
            return Ok(());
        }
    };
    if list.refcount as usize != owners.len() {
        let (says, has) = (list.refcount, owners.len());
        let what =
            format_args!("block {at} of attributes says that {says} inodes share it; {has} do");
        check.found.of(Kind::Xattr, first, at, what);
    }
    layout(check, first, &list, raw, BLOCK_HEADER);
    let mut held = Elsewhere::default();
    let elsewhere = |one: &XattrEntry<'_>| matches!(one.value, XattrValue::Inode { .. });
    let mut generation = 0;
    if list.entries.iter().any(elsewhere)
        && let Some((inode, _)) = reader.inode(first)?
    {
        generation = inode.generation;
    }
    for one in &list.entries {
        // A shared block counts as one user of the value, however many inodes share it. The space of the value counts for each
        // inode.
        held.add(entry(check, reader, met, (first, generation), one)?);
        let unhashed = match one.value {
            XattrValue::Bytes(value) => one.hash == 0 && entry_hash(one.name, value) != 0,
            XattrValue::Inode { .. } => false,
        };
        if unhashed || one.index.0 == 0 {
            let what = if unhashed {
                "without a hash"
            } else {
                "whose name begins with nothing that is known"
            };
            check.found.of(
                Kind::Xattr,
                first,
                at,
                format_args!("block {at} of attributes has one {what}"),
            );
        }
    }
    if held.inodes > 0 {
        let sectors = held.clusters * u64::from(check.source.sb.geometry().cluster_size() >> 9);
        for owner in owners {
            if let Ok(at) = met.counted.binary_search_by_key(owner, |of| of.ino) {
                met.counted[at].expected += sectors;
                met.counted[at].inodes += held.inodes;
            }
        }
    }
    Ok(())
}

/// Checks the targets of symbolic links in blocks.
pub(super) fn targets(check: &Check<'_>, met: &Met) -> Result<(), Error> {
    let blocks: Vec<FsBlock> = met.targets.iter().map(|(b, _)| *b).collect();
    let mut sizes = Reader::new(check.source);
    Reader::new(check.source).each(&blocks, |n, raw| {
        let (at, ino) = met.targets[n];
        let Some((inode, _)) = sizes.inode(ino)? else {
            return Ok(());
        };
        let found = inode.target_len(raw);
        if found != inode.size || found == 0 {
            let size = inode.size;
            let what = format_args!(
                "inode {ino}: the target of the symbolic link has {found} bytes; its size is {size}"
            );
            check.found.of(Kind::Inode, ino, at, what);
        }
        Ok(())
    })
}
