//! Judges one inode by itself: its fields, its size, and its space.
//!
//! Input: a checked inode, with its bytes. Output: findings; the inode with its link count; work for later passes. Invariants:
//! what the inode uses is claimed before it is compared with the inode's own counts. Limits: later passes check names and
//! links.

use super::attributes::{self, Elsewhere};
use super::bad_blocks;
use super::context::Check;
use super::maps::{self, Taken};
use super::met::{self, Counted, Met};
use super::own::{self, Role};
use super::reader::Reader;
use super::report::Kind;
use super::usage::Payers;
use crate::link_counts::Person;
use diorite::Error;
use diorite_format::features::Incompat;
use diorite_format::inline::InlineData;
use diorite_format::inode::I_BLOCK_SIZE;
use diorite_format::{FileType, FsBlock, Ino, Inode, InodeFlags, MapKind};

/// Judges an inode whose bytes were accepted by the parser.
pub(super) fn inode(
    check: &Check<'_>,
    reader: &mut Reader<'_>,
    met: &mut Met,
    inode: &Inode,
    raw: &[u8],
) -> Result<(), Error> {
    let (ino, role) = (inode.ino, own::role(&check.source.sb, inode.ino));
    let orphan = check.orphans.has(ino);
    times(check, inode, role, orphan);
    if role == Role::Ordinary && !orphan {
        if !is_there(check, inode) {
            return Ok(());
        }
    } else if own::is_unused(&check.source.sb, role, inode) {
        own::unused(check, ino, raw);
        return Ok(());
    }
    let taken = match role {
        Role::Resize => own::resize(check, reader, inode)?,
        Role::BadBlocks => bad_blocks::claim(check, reader, inode)?,
        _ => maps::claim(check, reader, inode)?,
    };
    translator(check, inode);
    let values = attributes::in_inode(check, reader, met, inode, raw)?;
    if matches!(role, Role::Ordinary | Role::Root) {
        attributes::encrypted(check, reader, inode, raw)?;
    }
    if role == Role::Own {
        own::fields(check, inode, &taken);
    }
    if role != Role::BadBlocks {
        fields(check, inode, raw);
        // An orphan's size is its new size, or 0: its next writer frees the rest, in as many transactions as needed.
        if !orphan {
            contents(check, met, inode, raw, &taken);
        }
        let counts = matches!(role, Role::Ordinary | Role::Root) && !is_value(inode);
        let payers = counts.then(|| Payers::of(inode));
        blocks(check, met, inode, &taken, values, payers);
    }
    let person = Person::new(inode.file_type, inode.links)
        .bad(taken.bad)
        .tangled(taken.tangled)
        .orphan(orphan)
        .ea(is_value(inode))
        .encrypted(inode.flags.has(InodeFlags::ENCRYPT))
        .own(role != Role::Ordinary && role != Role::Root);
    check.link_counts.set(ino, person);
    met.inodes += 1;
    if inode.is_dir() {
        met.directories.push(ino);
    }
    Ok(())
}

/// Records an inode that the parser refused: it is in use, and nothing else is known.
pub(super) fn damaged(check: &Check<'_>, met: &mut Met, ino: Ino, raw: &[u8]) {
    let (mode, links) = (
        u16::from_le_bytes([raw[0], raw[1]]),
        u16::from_le_bytes([raw[26], raw[27]]),
    );
    if links != 0 {
        let person = Person::new(FileType::from_mode(mode), links)
            .bad(true)
            .tangled(true);
        let own = own::role(&check.source.sb, ino) == Role::Own;
        check.link_counts.set(ino, person.own(own));
        met.inodes += 1;
    }
}

/// Whether an ordinary inode is in use.
fn is_there(check: &Check<'_>, inode: &Inode) -> bool {
    if inode.links == 0 {
        deleted(check, inode.ino, inode.mode, inode.dtime);
    }
    inode.links != 0
}

/// An inode with a mode and without links was deleted and should have a deletion time.
fn deleted(check: &Check<'_>, ino: Ino, mode: u16, dtime: u32) {
    if mode != 0 && dtime == 0 {
        let what = format_args!("inode {ino}: has no links, and no time of deletion");
        check.found.inode(Kind::Inode, ino, what);
    }
}

/// Checks a slot that counts as free although its bytes are otherwise invalid.
pub(super) fn unused(check: &Check<'_>, ino: Ino, raw: &[u8]) {
    let dtime = u32::from_le_bytes([raw[20], raw[21], raw[22], raw[23]]);
    deleted(check, ino, u16::from_le_bytes([raw[0], raw[1]]), dtime);
}

/// The deletion time: only deleted inodes have one; on the orphan list it is the link to the next orphan.
fn times(check: &Check<'_>, inode: &Inode, role: Role, orphan: bool) {
    let (ino, dtime) = (inode.ino, inode.dtime);
    if orphan || dtime == 0 {
        return;
    }
    if dtime <= check.source.sb.geometry().inodes_count() {
        let what = format_args!(
            "inode {ino}: its time of deletion, {dtime}, is a link of the list of orphans, and it is not on that"
        );
        check.found.inode(Kind::Orphan, ino, what);
    } else if inode.links != 0 && matches!(role, Role::Ordinary | Role::Root) {
        let what = format_args!("inode {ino}: is in use, but has a time of deletion");
        check.found.inode(Kind::Inode, ino, what);
    }
}

/// Checks fields that must be zero, and flags that do not fit the type.
fn fields(check: &Check<'_>, inode: &Inode, raw: &[u8]) {
    let ino = inode.ino;
    for what in inode.oddities(&check.source.sb, raw) {
        check
            .found
            .inode(Kind::Inode, ino, format_args!("inode {ino}: {what}"));
    }
}

/// Claims the block with the command line of a translator, which inodes of the Hurd have in place of Linux' version. It does not count as
/// space of the inode.
fn translator(check: &Check<'_>, inode: &Inode) {
    let (sb, ino) = (&check.source.sb, inode.ino);
    // The lower half of the version.
    let block = FsBlock::new(inode.version & u64::from(u32::MAX));
    if !sb.is_of_hurd() || block.is_none() {
        return;
    }
    if sb.holds(block, 1) {
        check.space.claim(block, 1);
    } else {
        let what =
            format_args!("inode {ino}: its translator is in block {block}, outside the volume");
        check.found.inode(Kind::Inode, ino, what);
    }
}

/// Checks the contents against the size, by the kind of map.
fn contents(check: &Check<'_>, met: &mut Met, inode: &Inode, raw: &[u8], taken: &Taken) {
    let (ino, size) = (inode.ino, inode.size);
    let say = |what: std::fmt::Arguments<'_>| {
        check
            .found
            .inode(Kind::Inode, ino, format_args!("inode {ino}: {what}"))
    };
    match inode.map_kind() {
        MapKind::Inline => inline(check, inode, raw),
        MapKind::FastSymlink => match inode.fast_symlink() {
            Ok([]) => say(format_args!("a symbolic link without a target")),
            Ok(_) if inode.target_len(&inode.i_block) == size => {}
            Ok(_) => say(format_args!(
                "the target of the symbolic link has {} bytes; its size is {size}",
                inode.target_len(&inode.i_block)
            )),
            Err(e) => check.found.inode(Kind::Inode, ino, e),
        },
        MapKind::Device | MapKind::None if size != 0 => {
            say(format_args!(
                "a device, pipe or socket of {size} bytes; expected 0"
            ));
        }
        MapKind::Device | MapKind::None => {}
        MapKind::Extents | MapKind::Indirect if taken.bad || taken.tangled => {}
        MapKind::Extents | MapKind::Indirect => mapped(check, met, inode, taken),
    }
}

/// Checks the size of a file with blocks.
fn mapped(check: &Check<'_>, met: &mut Met, inode: &Inode, taken: &Taken) {
    let (ino, size) = (inode.ino, inode.size);
    let block = u64::from(check.source.sb.block_size());
    let say = |what: std::fmt::Arguments<'_>| {
        check
            .found
            .inode(Kind::Inode, ino, format_args!("inode {ino}: {what}"))
    };
    match inode.file_type {
        Some(FileType::Directory) if size == taken.end * block => {}
        Some(FileType::Directory) => {
            say(format_args!(
                "a directory of {size} bytes; its blocks make {}",
                taken.end * block
            ));
        }
        Some(FileType::Symlink) => match taken.first {
            Some(first) if taken.blocks == 1 && taken.end == 1 && size < block => {
                met.targets.push((first, ino));
            }
            _ => say(format_args!(
                "a symbolic link of {size} bytes with {} blocks",
                taken.blocks
            )),
        },
        // The Merkle tree lies past the size.
        _ if inode.flags.has(InodeFlags::VERITY) => {}
        // One empty block past the size is accepted: an interrupted write leaves one.
        _ if taken.written_end > size.div_ceil(block) + 1
            || taken.written_end == size.div_ceil(block) + 1 && size % block != 0 =>
        {
            say(format_args!(
                "{size} bytes, but blocks that are written up to byte {}",
                taken.written_end * block
            ));
        }
        _ => {}
    }
}

/// Checks inline data: the stored data must cover the size, except in a regular file, where the rest is zeros.
fn inline(check: &Check<'_>, inode: &Inode, raw: &[u8]) {
    let (ino, size) = (inode.ino, inode.size);
    let say = |what: std::fmt::Arguments<'_>| {
        check
            .found
            .inode(Kind::Inode, ino, format_args!("inode {ino}: {what}"))
    };
    let value = attributes::inline_value(&check.source.sb, inode, raw);
    if value.is_none() {
        say(format_args!("inline data, and no attribute system.data"));
    }
    let value = value.unwrap_or(&[]);
    let stored = (I_BLOCK_SIZE + value.len()) as u64;
    if let Err(e) = InlineData::new(inode, value) {
        check.found.inode(Kind::Inode, ino, e);
    } else if inode.is_dir() && size < 4 {
        say(format_args!("an inline directory of {size} bytes"));
    } else if inode.file_type == Some(FileType::Symlink) && size != stored {
        say(format_args!(
            "a symbolic link of {size} bytes, whose inline target has {stored}"
        ));
    }
}

/// Whether an inode holds an attribute's value. Its space counts for the inodes with the attribute, not for its owner.
fn is_value(inode: &Inode) -> bool {
    inode.flags.has(InodeFlags::EA_INODE)
}

/// Checks the space in use: the inode's own count, and the usage of its owner. The space of values that its attribute block
/// refers to is known only when that block is read.
fn blocks(
    check: &Check<'_>,
    met: &mut Met,
    inode: &Inode,
    taken: &Taken,
    values: Elsewhere,
    payers: Option<Payers>,
) {
    let sb = &check.source.sb;
    let cluster = u64::from(sb.geometry().cluster_size() >> 9);
    let has_block = !inode.file_acl.is_none();
    let clusters = taken.clusters + u64::from(has_block) + values.clusters;
    let counted = Counted {
        ino: inode.ino,
        found: inode.blocks,
        expected: clusters * cluster,
        inodes: 1 + values.inodes,
        payers,
    };
    let ea_inode = sb.features().incompat.has(Incompat::EA_INODE);
    let sound = !taken.bad && !taken.tangled;
    if sound && has_block && ea_inode {
        met.counted.push(counted);
    } else {
        met::space(check, &mut met.usage, &counted, sound);
    }
    if sound && is_value(inode) && !ea_inode {
        let ino = inode.ino;
        let what =
            format_args!("inode {ino}: holds an attribute's value on a volume without ea_inode");
        check.found.inode(Kind::Inode, ino, what);
    }
}
