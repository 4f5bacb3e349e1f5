//! Inodes: allocates and frees their numbers.
//!
//! Input: a parent and a handle. Output: the number of an inode that nobody has; bitmap, counts and checksums changed in that handle.
//! Invariants: an inode is taken only where the inode table has been in use, or right behind that part; if it begins a new block of the
//! table, that block is initialised with zeros. Without a journal a freed number is not reused before the round that freed it is durable,
//! unless there is no other: until then an old name on disk may still refer to it. Limits: the inode's slot in the table may hold an old
//! inode: the caller writes all of the new one.

use super::Alloc;
use super::bits::{Change, Sealed, Way};
use super::group::{Group, Inodes, Locked};
use crate::alloc::orlov::Orlov;
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::journal::JournalHandle;
use diorite_block::sync::atomic::Ordering;
use diorite_format::bitmap::{self, BitmapKind};
use diorite_format::{FsBlock, GroupDesc, GroupNo, Ino, Superblock};

/// Credits for a new inode: its bitmap, a descriptor, its block of the inode table.
pub(crate) const NEW_INODE_CREDITS: u32 = 3;

/// The space that the files of one directory are expected to need.
const BYTES_PER_DIR: u64 = 1 << 20;

pub(super) const SET: Change = Change {
    kind: BitmapKind::Inode,
    way: Way::Set,
};
const CLEAR: Change = Change {
    kind: BitmapKind::Inode,
    way: Way::Clear,
};

impl Alloc {
    /// Allocates an inode for a child of `parent`: near its directory, but directories in the root apart from each other. Blocks while
    /// metadata is read.
    ///
    /// # Errors
    /// `NoInodes`; damage; a device that fails.
    pub(crate) fn new_inode(
        &self,
        handle: &JournalHandle<'_>,
        parent: Ino,
        is_dir: bool,
    ) -> Result<Ino, Error> {
        let sb = &handle.store().sb;
        let home = sb.inode_place(parent)?.group;
        let spread = Orlov {
            groups: &self.groups,
            flex: 1 << sb.geometry().flex_bits(),
            inodes_per_group: sb.geometry().inodes_per_group(),
            per_dir: (BYTES_PER_DIR / u64::from(sb.geometry().cluster_size())).max(1),
        };
        // Mostly the first group has room for a file.
        if let (false, Some(group)) = (is_dir, spread.for_file(home).next())
            && let Some(ino) = self.take_in(handle, group, (is_dir, Which::Free))?
        {
            return Ok(ino);
        }
        let order: Box<dyn Iterator<Item = GroupNo> + '_> = match (is_dir, parent) {
            (true, Ino::ROOT) => {
                let from = self.next_spread.fetch_add(1, Ordering::Relaxed);
                Box::new(spread.for_top_directory(from))
            }
            (true, _) => Box::new(spread.for_directory(home)),
            (false, _) => Box::new(spread.for_file(home)),
        };
        for group in order.chain(spread.all_from(home)) {
            if let Some(ino) = self.take_in(handle, group, (is_dir, Which::Free))? {
                return Ok(ino);
            }
        }
        for group in spread.all_from(home) {
            if let Some(ino) = self.take_in(handle, group, (is_dir, Which::Waiting))? {
                return Ok(ino);
            }
        }
        let total = sb.geometry().inodes_count();
        Err(Error::NoInodes { total })
    }

    /// Loads what freeing this inode's number changes: see [`Alloc::prepare_to_free`]. Mostly takes no lock where the transaction has made
    /// or deleted other inodes of the group.
    pub(crate) fn prepare_to_free_inode(
        &self,
        handle: &JournalHandle<'_>,
        ino: Ino,
    ) -> Result<(), Error> {
        let place = handle.store().sb.inode_place(ino)?;
        let written = self.slot(place.group).brief.written.load(Ordering::Acquire);
        // With the inode it has changed the bitmap, which stays in memory.
        if written >> 32 == u64::from(handle.tid().get()) {
            return Ok(());
        }
        self.prepare(handle, CLEAR, place.group)
    }

    /// Frees an inode's number. The caller clears its slot in the inode table. Blocks while metadata is read.
    ///
    /// # Errors
    /// The inode is one of the volume's own, or free already; damage; a device that fails.
    pub(crate) fn free_inode(
        &self,
        handle: &JournalHandle<'_>,
        ino: Ino,
        is_dir: bool,
    ) -> Result<(), Error> {
        let volume = handle.store();
        let place = volume.sb.inode_place(ino)?;
        if volume.is_system_inode(ino) || ino == Ino::ROOT {
            let what = format!("inode {ino} is the volume's own and not to be freed; run e2fsck");
            return Err(Error::Damaged(what));
        }
        let mut locked = self.lock_warm(handle, CLEAR, place.group)?;
        let mut desc = locked.group.desc.clone();
        let sealed = locked.group.sealed(handle);
        let bits = CLEAR
            .begin_sealed(handle, &mut desc, sealed, |_| Ok([(place.index, 1)]))
            .map_err(|e| e.at(format!("freeing inode {ino}")))?;
        // If a count was wrong before, writing the descriptor fails.
        desc.free_inodes = desc.free_inodes.saturating_add(1);
        desc.used_dirs = desc.used_dirs.wrapping_sub(u32::from(is_dir));
        CLEAR.finish_sealed(handle, (&locked.group.desc, &desc), sealed, &bits)?;
        self.note_inodes(&mut locked, handle, sealed);
        let mut inodes = locked.group.inodes_now(handle);
        if volume.has_journal() {
            inodes.taken = inodes.taken.min(place.index);
        } else {
            locked.group.inodes_waiting.add(handle.tid(), place.index);
        }
        locked.set_inodes(desc, inodes);
        self.totals.gave_inode();
        Ok(())
    }

    /// Locks a group, when the blocks that a change of its inodes touches are in memory, as far as that is known: nobody waits for the
    /// device behind the lock.
    fn lock_warm(
        &self,
        handle: &JournalHandle<'_>,
        change: Change,
        group: GroupNo,
    ) -> Result<Locked<'_>, Error> {
        let locked = self.slot(group).lock();
        // What the handle's transaction has changed stays in memory.
        if locked.group.inodes_changed == Some(handle.tid()) {
            return Ok(locked);
        }
        let desc = locked.group.desc.clone();
        drop(locked);
        change.warm(handle, &desc)?;
        Ok(self.slot(group).lock())
    }

    /// Notes that a group's bitmap of inodes has changed.
    fn note_inodes(&self, locked: &mut Locked<'_>, handle: &JournalHandle<'_>, sealed: Sealed) {
        let group = &mut *locked.group;
        group.inodes_changed = Some(handle.tid());
        if sealed == Sealed::Later {
            self.note_unsealed(group.desc.group, &mut group.is_unsealed);
        }
    }

    /// Has this transaction written an inode into the same block of the inode table, as the last one of its group? Then the block is in
    /// memory.
    pub(crate) fn has_written_beside(&self, handle: &JournalHandle<'_>, ino: Ino) -> bool {
        let mark = written_beside(handle, ino);
        mark.is_some_and(|(group, mark)| {
            self.slot(group).brief.written.load(Ordering::Acquire) == mark
        })
    }

    /// Notes that this transaction has written this inode, which it has made or deleted.
    pub(crate) fn note_written(&self, handle: &JournalHandle<'_>, ino: Ino) {
        if let Some((group, mark)) = written_beside(handle, ino) {
            let written = &self.slot(group).brief.written;
            written.store(mark, Ordering::Release);
        }
    }

    /// Takes the first free inode of a group. None if it has none of the kind `which`.
    fn take_in(
        &self,
        handle: &JournalHandle<'_>,
        group: GroupNo,
        (is_dir, which): (bool, Which),
    ) -> Result<Option<Ino>, Error> {
        let sb = &handle.store().sb;
        if !self.gives_inodes(group, sb.geometry().inodes_per_group()) {
            return Ok(None);
        }
        let mut locked = self.lock_warm(handle, SET, group)?;
        let mut desc = locked.group.desc.clone();
        let mut known = locked.group.inodes_now(handle);
        let waiting = &locked.group.inodes_waiting;
        let left = match which {
            Which::Free => waiting.len(),
            Which::Waiting => {
                known.taken = known.taken.min(waiting.first().unwrap_or(known.taken));
                0
            }
        };
        if left >= desc.free_inodes as usize {
            return Ok(None);
        }
        let shape = Shape::of(sb, &desc, known);
        let may = |index| which == Which::Waiting || !waiting.has(index);
        let sealed = locked.group.sealed(handle);
        let choose = |map: &[u8]| Ok([shape.choose(map, may)?]);
        let bits = SET.begin_sealed(handle, &mut desc, sealed, choose)?;
        let [(index, _)] = bits;
        desc.free_inodes = desc.free_inodes.saturating_sub(1);
        desc.used_dirs = desc.used_dirs.saturating_add(u32::from(is_dir));
        desc.itable_unused = desc.itable_unused.min(shape.count - index - 1);
        SET.finish_sealed(handle, (&locked.group.desc, &desc), sealed, &bits)?;
        self.note_inodes(&mut locked, handle, sealed);
        if index >= shape.unused && !handle.store().has_journal() {
            let (table_block, _) = sb.desc_place(group)?;
            handle.lead(sb.gdt_location(table_block)?);
        }
        if let Some(block) = shape.fresh_table_block(sb, &desc, index) {
            handle.create(block, Kind::InodeTable, |_| {});
        }
        let inodes = Inodes {
            taken: index + 1,
            checked: true,
        };
        locked.group.inodes_waiting.remove(index);
        locked.set_inodes(desc, inodes);
        locked.note_new(is_dir);
        self.totals.took_inode();
        let ino = Ino::new(group.get() * shape.count + index + 1);
        if which == Which::Waiting {
            handle.is_replaced(ino);
        }
        Ok(Some(ino))
    }
}

/// An inode's group, and the number of the transaction with that of the inode's block in the table.
fn written_beside(handle: &JournalHandle<'_>, ino: Ino) -> Option<(GroupNo, u64)> {
    let place = handle.store().sb.inode_place(ino).ok()?;
    let mark = u64::from(handle.tid().get()) << 32 | u64::from(place.table_block);
    Some((place.group, mark))
}

/// Which inodes may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    /// Those that do not wait for a round to be durable.
    Free,
    /// Also those that wait, when there are no others.
    Waiting,
}

impl Group {
    /// Has this transaction written bitmap and descriptor before? Then both are summed once, at its commit.
    fn sealed(&self, handle: &JournalHandle<'_>) -> Sealed {
        match self.inodes_changed == Some(handle.tid()) {
            true => Sealed::Later,
            false => Sealed::Now,
        }
    }

    /// What is known of the inode bitmap, after inodes of durable rounds have stopped waiting.
    pub(super) fn inodes_now(&mut self, handle: &JournalHandle<'_>) -> Inodes {
        let volume = handle.store();
        if let Some(first) = self
            .inodes_waiting
            .let_go(|round| volume.is_committed(round))
        {
            self.inodes.taken = self.inodes.taken.min(first);
        }
        self.inodes
    }
}

/// Which of a group's inodes may be taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    group: GroupNo,
    pub(super) count: u32,
    /// The first inode that is not reserved.
    first: u32,
    /// The part of the table from this inode on was never used.
    pub(super) unused: u32,
    known: Inodes,
}

impl Shape {
    pub(super) fn of(sb: &Superblock, desc: &GroupDesc, known: Inodes) -> Shape {
        let count = sb.geometry().inodes_per_group();
        let reserved = sb.geometry().first_ino() - 1;
        let used = match desc.flags.inode_uninit() {
            true => 0,
            false => count - desc.itable_unused,
        };
        Shape {
            group: desc.group,
            count,
            first: reserved.saturating_sub(desc.group.get().saturating_mul(count)),
            unused: used,
            known,
        }
    }

    /// The first free inode that `may` be taken. Fails if an inode is in use in the part of the table that was never used.
    fn choose(self, map: &[u8], may: impl Fn(u32) -> bool) -> Result<(u32, u32), Error> {
        let (group, unused) = (self.group, self.unused);
        let wrong = match self.known.checked {
            true => None,
            false => bitmap::next_one(map, unused, self.count),
        };
        if let Some(index) = wrong {
            let what = format!(
                "group {group}: its inode {index} is in use, and only {unused} ever were; run e2fsck"
            );
            return Err(Error::Damaged(what));
        }
        let next = |from| bitmap::next_zero(map, from, self.count);
        let mut free = next(self.first.max(self.known.taken));
        while let Some(index) = free.filter(|index| !may(*index)) {
            free = next(index + 1);
        }
        let index = free.filter(|index| *index <= unused).ok_or_else(|| {
            let what = "no free inode where the descriptor counts some; run e2fsck";
            Error::Damaged(format!("group {group}: {what}"))
        })?;
        Ok((index, 1))
    }

    /// The block of the table that begins with `index`, if no inode in it was ever used: its contents are undefined.
    fn fresh_table_block(self, sb: &Superblock, desc: &GroupDesc, index: u32) -> Option<FsBlock> {
        let per_block = sb.block_size() / sb.geometry().inode_size();
        let begins = index >= self.unused && index.is_multiple_of(per_block);
        begins.then(|| FsBlock::new(desc.inode_table.get() + u64::from(index / per_block)))
    }
}
