//! Values of attributes in inodes of their own: what refers to each of them, and whether its data is the value.
//!
//! Input: the references that inodes and attribute blocks have. Output: findings. Invariant: a value inode is read once, however many
//! attributes refer to it, and all of them together are no more bytes than the volume has. Limits: the meaning of a value is not judged.
//! e2fsck does not read the data; the kernel does, and refuses a value with another checksum, or in a hole.

use super::attributes::inline_value;
use super::context::Check;
use super::maps::runs_of;
use super::met::{Met, ValueRef};
use super::reader::Reader;
use super::report::Kind;
use crate::link_counts::Person;
use diorite::Error;
use diorite_format::inline::InlineData;
use diorite_format::xattr::{MAX_EA_INODE, continue_value_sum, value_sum};
use diorite_format::{FsBlock, Inode, MapKind};

/// Checks value inodes: each must be flagged so, be in use, have the right count of users, and data with the checksum that it stores.
pub(super) fn all(check: &Check<'_>, met: &mut Met) -> Result<(), Error> {
    met.values.sort_unstable();
    let mut reader = Reader::new(check.source);
    let mut left = check.source.sb.geometry().volume_bytes();
    for users in met.values.chunk_by(|a, b| a.holder == b.holder) {
        let Some(first) = users.first() else { continue };
        match check.link_counts.get(first.holder) {
            Some(person) if person.is_ea() => {
                if !users.iter().all(|user| user.names_owner) {
                    held(check, &mut reader, &mut left, users, person)?;
                }
                check.link_counts.count(first.holder);
            }
            _ => {
                let ValueRef { holder, owner, .. } = *first;
                let what = format_args!(
                    "inode {owner}: an attribute has its value in inode {holder}, which is not for that"
                );
                check.found.inode(Kind::Xattr, owner, what);
            }
        }
    }
    Ok(())
}

/// Checks one value inode that these refer to. `left` is how many bytes of values may still be read.
fn held(
    check: &Check<'_>,
    reader: &mut Reader<'_>,
    left: &mut u64,
    users: &[ValueRef],
    person: Person,
) -> Result<(), Error> {
    let (holder, owner) = (users[0].holder, users[0].owner);
    let Some((inode, raw)) = reader.inode(holder)? else {
        return Ok(());
    };
    let raw = raw.to_vec();
    let (says, found) = (inode.value_users(), users.len() as u64);
    if says != found {
        let what = format_args!(
            "inode {holder} says that {says} attributes have their value in it; {found} have"
        );
        check.found.inode(Kind::Xattr, holder, what);
    }
    // Damage of the map, and a size that no attribute can have, were reported before.
    if person.is_bad() || person.is_tangled() || inode.size > u64::from(MAX_EA_INODE) {
        return Ok(());
    }
    let Some(rest) = left.checked_sub(inode.size) else {
        let what = format_args!(
            "inode {holder}: an attribute's value was not read, since all of them together are larger than the volume"
        );
        check.found.inode(Kind::NotChecked, holder, what);
        return Ok(());
    };
    *left = rest;
    let stored = inode.value_checksum();
    match sum(check, reader, &inode, &raw)? {
        Some(computed) if computed == stored => {}
        Some(computed) => {
            let what = format_args!(
                "inode {holder}: the value of an attribute of inode {owner} has the checksum {computed:#010x}; \
                 the inode says {stored:#010x}"
            );
            check.found.inode(Kind::Xattr, holder, what);
        }
        None => {
            let what = format_args!(
                "inode {holder}: the value of an attribute of inode {owner} has a part that was never written"
            );
            check.found.inode(Kind::Xattr, holder, what);
        }
    }
    Ok(())
}

/// The checksum of the value that an inode holds; none if it has a hole.
fn sum(
    check: &Check<'_>,
    reader: &mut Reader<'_>,
    inode: &Inode,
    raw: &[u8],
) -> Result<Option<u32>, Error> {
    let sb = &check.source.sb;
    if inode.map_kind() == MapKind::Inline {
        // At most a block, and damage of it was reported when the inode was judged.
        let rest = inline_value(sb, inode, raw).unwrap_or(&[]);
        let size = usize::try_from(inode.size).unwrap_or(0).min(raw.len());
        let mut value = vec![0; size];
        if let Ok(data) = InlineData::new(inode, rest) {
            data.read_at(0, &mut value);
        }
        return Ok(Some(value_sum(sb, &value)));
    }
    let block = u64::from(sb.block_size());
    let (mut at, mut sum) = (0, value_sum(sb, &[]));
    for run in runs_of(check, reader, inode)? {
        if run.file * block >= inode.size {
            break;
        }
        if run.file * block != at || run.unwritten {
            return Ok(None);
        }
        let blocks = run.len.min((inode.size - at).div_ceil(block));
        let mut done = 0;
        while done < blocks {
            let count = (blocks - done).min(reader.stripe_blocks());
            let bytes = reader.run(FsBlock::new(run.at.get() + done), count)?;
            let wanted =
                usize::try_from(inode.size - at).map_or(bytes.len(), |n| n.min(bytes.len()));
            sum = continue_value_sum(sum, &bytes[..wanted]);
            at += wanted as u64;
            done += count;
        }
    }
    Ok((at >= inode.size).then_some(sum))
}
