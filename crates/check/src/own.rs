//! The volume's own inodes: their roles, and the resize inode, which reserves room for more descriptors.
//!
//! Input: an inode's number. Output: its [`Role`]. Invariant: the blocks of the resize inode lie where descriptors may grow, in
//! the primary place and in every copy, and nowhere else. Limits: `quota` checks the contents of usage files.

use super::context::Check;
use super::maps::Taken;
use super::maps::runs_of;
use super::reader::Reader;
use super::report::Kind;
use super::walk::{Run, Visit, walk};
use diorite::Error;
use diorite_format::features::Compat;
use diorite_format::journal::JournalSuper;
use diorite_format::quota;
use diorite_format::superblock::JournalPlace;
use diorite_format::{FsBlock, Ino, Inode, InodeFlags, MapKind, Superblock};
use std::fmt;

/// The role of an inode in the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// An ordinary inode.
    Ordinary,
    /// The root directory.
    Root,
    /// The list of bad blocks.
    BadBlocks,
    /// The blocks reserved for more descriptors.
    Resize,
    /// Another inode without a name.
    Own,
}

/// The role of an inode.
pub(super) fn role(sb: &Superblock, ino: Ino) -> Role {
    let counts = |kind| quota::usage_file(sb, kind) == Some(ino);
    if ino == Ino::ROOT {
        Role::Root
    } else if ino == Ino::BAD_BLOCKS {
        Role::BadBlocks
    } else if ino == Ino::RESIZE && sb.features().compat.has(Compat::RESIZE_INODE) {
        Role::Resize
    } else if ino.get() < sb.geometry().first_ino()
        || sb.orphan_file() == Some(ino)
        || sb.journal() == JournalPlace::Internal(ino)
        || quota::Kind::ALL.into_iter().any(counts)
    {
        Role::Own
    } else {
        Role::Ordinary
    }
}

/// A reserved inode must be a file or unused.
pub(super) fn fields(check: &Check<'_>, inode: &Inode, taken: &Taken) {
    let ino = inode.ino;
    let sb = &check.source.sb;
    let journal = sb.journal() == JournalPlace::Internal(ino);
    if journal && inode.flags.has(InodeFlags::ENCRYPT) {
        let what = format_args!("inode {ino}: the journal is flagged as encrypted");
        check.found.inode(Kind::Journal, ino, what);
    }
    if sb.orphan_file() == Some(ino) && inode.links == 0 {
        let what = format_args!("inode {ino}: the file of orphans has no links");
        check.found.inode(Kind::Orphan, ino, what);
    }
    if inode.mode != 0 && is_nobodys(ino) {
        let mode = inode.mode;
        let what = format_args!(
            "inode {ino}: kept for the volume itself and not used, and has the mode {mode:#o}"
        );
        check.found.inode(Kind::Inode, ino, what);
    } else if (inode.mode != 0 || journal) && !inode.is_file() {
        let (mode, what) = (inode.mode, "which is no regular file's");
        let what = format_args!(
            "inode {ino}: kept for the volume itself, and has the mode {mode:#o}, {what}"
        );
        check.found.inode(Kind::Inode, ino, what);
    }
    if is_spare(sb, ino) && !is_empty(inode) {
        spare_in_use(check, ino);
    }
    let block = u64::from(sb.block_size());
    let size = taken.end * block;
    // Old versions of mke2fs left out the last block.
    let whole = inode.size <= size && size - inode.size <= block;
    if journal && !whole && !taken.bad {
        let found = inode.size;
        let what =
            format_args!("inode {ino}: the journal has {found} bytes; its blocks make {size}");
        check.found.inode(Kind::Journal, ino, what);
    }
    if journal && inode.links == 0 {
        check.found.inode(
            Kind::Journal,
            ino,
            format_args!("inode {ino}: the journal has no links"),
        );
    }
}

/// Whether nothing of a reserved inode is looked at but whether it is empty.
pub(super) fn is_unused(sb: &Superblock, role: Role, inode: &Inode) -> bool {
    let (ino, unlinked) = (inode.ino, inode.links == 0);
    let boots = ino == Ino::BOOT_LOADER && !inode.is_file() && !inode.is_dir();
    role != Role::BadBlocks && (unlinked && (inode.mode == 0 || is_spare(sb, ino)) || boots)
}

fn is_empty(inode: &Inode) -> bool {
    inode.links == 0 && inode.blocks == 0 && inode.i_block[..4] == [0; 4]
}

fn spare_in_use(check: &Check<'_>, ino: Ino) {
    let (kind, what) = match ino {
        Ino::JOURNAL => (Kind::Journal, "a journal"),
        _ => (Kind::Quota, "a usage file of quotas"),
    };
    let what =
        format_args!("inode {ino}: kept for {what} that the volume does not have, but not empty");
    check.found.inode(kind, ino, what);
}

/// An unused reserved inode must have no space, and no flags of directories: neither its size nor its map is looked at, and of one that is
/// kept for a file that the volume does not have no block of attributes. (The flag for a hash tree is accepted in such an inode.)
pub(super) fn unused(check: &Check<'_>, ino: Ino, raw: &[u8]) {
    let spare = is_spare(&check.source.sb, ino);
    let other = if spare { 0x28..0x2C } else { 0x68..0x6C };
    let fields = [0x1C..0x20, 0x6C..0x70, 0x74..0x78, other];
    let flags = InodeFlags::from_bits(u32::from_le_bytes([raw[32], raw[33], raw[34], raw[35]]));
    let hashed = flags.has(InodeFlags::INDEX) && !spare || flags.has(InodeFlags::CASEFOLD);
    if hashed || fields.into_iter().any(|f| raw[f].iter().any(|b| *b != 0)) {
        let what =
            format_args!("inode {ino}: kept for the volume itself and not used, but not empty");
        check.found.inode(Kind::Inode, ino, what);
    }
}

/// Checks an internal journal: it must exist. Opening the volume checks the contents of the log.
pub(super) fn journal(check: &Check<'_>) -> Result<(), Error> {
    let JournalPlace::Internal(ino) = check.source.sb.journal() else {
        return Ok(());
    };
    if check.source.sb.check_ino(ino.get()).is_err() || check.link_counts.get(ino).is_none() {
        let what = format_args!("the journal is said to be in inode {ino}, which has no file");
        check.found.inode(Kind::Journal, ino, what);
        return Ok(());
    }
    let mut reader = Reader::new(check.source);
    let Some((inode, _)) = reader.inode(ino)? else {
        return Ok(());
    };
    let Some(run) = runs_of(check, &mut reader, &inode)?.first().copied() else {
        check
            .found
            .inode(Kind::Journal, ino, "the journal has no blocks");
        return Ok(());
    };
    let blocks = inode.size >> check.source.sb.geometry().block_bits();
    let raw = reader.block(run.at)?;
    // Damage of the superblock was reported when the volume was opened.
    if let Ok(journal) = JournalSuper::parse(raw, check.source.sb.block_size(), blocks) {
        if journal.features.ro_compat != 0 {
            let what =
                "the journal has features that are not known: what they mean was not checked";
            check.found.inode(Kind::Journal, ino, what);
        }
        let fast = check.source.sb.features().compat.has(Compat::FAST_COMMIT);
        if journal.features.fast_commit() && !fast {
            let what = "the journal has fast commits, and not the volume the feature fast_commit";
            check.found.inode(Kind::Journal, ino, what);
        }
        if journal.users.len() > 1 {
            let users = journal.users.len();
            let what =
                format_args!("the journal is in the volume, and says that {users} volumes use it");
            check.found.inode(Kind::Journal, ino, what);
        }
    }
    Ok(())
}

/// Walks the resize inode. Its blocks are the volume's own structures and are claimed as such; only the block that leads to
/// them is claimed as a map block.
pub(super) fn resize(
    check: &Check<'_>,
    reader: &mut Reader<'_>,
    inode: &Inode,
) -> Result<Taken, Error> {
    let mut visit = Reserved {
        check,
        ino: inode.ino,
        nodes: 0,
        taken: Taken::default(),
    };
    if inode.map_kind() != MapKind::Indirect || !inode.is_file() || inode.links != 1 {
        visit.wrong(
            &"inode 7: the resize inode is no regular file with block pointers and one link",
        );
    }
    walk(&check.source.sb, reader, inode, &mut visit)?;
    let reserved = check.source.sb.geometry().reserved_gdt_blocks();
    if !visit.taken.bad && visit.nodes != u64::from(reserved) + 1 {
        let found = visit.nodes.saturating_sub(1);
        let what = format!(
            "inode 7: the resize inode leads to {found} blocks for descriptors; expected {reserved}"
        );
        visit.wrong(&what);
    }
    visit.taken.clusters += visit.nodes;
    Ok(visit.taken)
}

struct Reserved<'a> {
    check: &'a Check<'a>,
    ino: Ino,
    nodes: u64,
    taken: Taken,
}

impl Reserved<'_> {
    /// The group and index of a block in a group's room for more descriptors.
    fn place(&self, block: FsBlock) -> Option<(u32, u64)> {
        let sb = &self.check.source.sb;
        let group = sb.group_of(block)?;
        // At the same distance from each group's start as the primary descriptors have from the volume's start, whatever the
        // first group leaves out.
        let start = u64::from(group.get()) * u64::from(sb.geometry().blocks_per_group());
        let first = start + sb.super_block().get() + 1 + u64::from(sb.geometry().gdt_blocks());
        let n = block.get().checked_sub(first)?;
        let inside =
            sb.has_super_backup(group) && n < u64::from(sb.geometry().reserved_gdt_blocks());
        inside.then_some((group.get(), n))
    }
}

impl Visit for Reserved<'_> {
    fn node(&mut self, block: FsBlock) -> bool {
        self.nodes += 1;
        if self.nodes == 1 {
            return self.check.space.claim_node(block);
        }
        let reserved = u64::from(self.check.source.sb.geometry().reserved_gdt_blocks());
        let primary = matches!(self.place(block), Some((0, _)));
        if !primary {
            let what = format!("inode 7: block {block} is not kept for more descriptors");
            self.wrong(&what);
        }
        primary && self.nodes <= reserved + 1
    }

    fn run(&mut self, run: Run) {
        self.taken.clusters += run.len;
        self.taken.written_end = self.taken.written_end.max(run.end());
        for block in (run.at.get()..run.at.get() + run.len).map(FsBlock::new) {
            if !matches!(self.place(block), Some((1.., _))) {
                let what =
                    format!("inode 7: block {block} is not kept for copies of more descriptors");
                self.wrong(&what);
            }
        }
    }

    fn wrong(&mut self, what: &dyn fmt::Display) {
        self.taken.bad = true;
        self.check.found.inode(Kind::Inode, self.ino, what);
    }
}

/// Whether this is inode 3, 4 or 8, kept for a usage file or a journal that the volume does not have.
pub(super) fn is_spare(sb: &Superblock, ino: Ino) -> bool {
    if ino == Ino::JOURNAL {
        return sb.info().journal_inum != ino.get();
    }
    let named = quota::Kind::ALL.map(|kind| quota::usage_file(sb, kind));
    is_reserved(ino) && !named.contains(&Some(ino))
}

/// Whether this inode was kept for something that no volume has.
fn is_nobodys(ino: Ino) -> bool {
    matches!(ino.get(), 6 | 7 | 9 | 10)
}

pub(crate) fn is_reserved(ino: Ino) -> bool {
    matches!(ino, Ino::USER_QUOTA | Ino::GROUP_QUOTA)
}
