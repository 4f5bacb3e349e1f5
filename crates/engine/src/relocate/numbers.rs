//! Gives inodes behind the limit new numbers.
//!
//! Input: inodes, and the places that name them. Output: the same inodes under numbers in front of the limit, and all names with these.
//! Invariants: with a journal one handle moves an inode: the copy, the checksums that cover its number (nodes of its map, blocks of a
//! directory), all places that name it, and the old number freed; so after a crash an inode has either number, and all names agree. Without
//! a journal these are three commits for all inodes together: copies, names, old numbers freed; a crash between them needs e2fsck, which
//! finds each inode by one of its numbers. Limits: an inode for which one handle is too small is refused before anything is changed; what
//! users have written down of numbers (file handles, indexes of overlay file systems) no longer fits. Source: the kernel's ext4
//! documentation, "checksums"; the kernel's documentation of fscrypt (stable_inodes).

use super::job::{HELP, Job};
use super::names::{self, Place, Places, blocks_of, raw_inode, write_inode};
use super::tree::{Part, read_inode, walk};
use crate::alloc::{MARK_CREDITS, NEW_INODE_CREDITS};
use crate::disk::cache::Kind;
use crate::error::Error;
use crate::inode::Fs;
use crate::journal::JournalHandle;
use diorite_format::extent::seal_block;
use diorite_format::features::Compat;
use diorite_format::{Ino, Inode as DiskInode, MapKind};
use std::collections::{BTreeMap, BTreeSet};

/// New numbers, by the old ones.
#[derive(Debug, Default)]
pub(super) struct NewNumbers(BTreeMap<Ino, Ino>);

impl NewNumbers {
    /// The number that an inode has now.
    pub(super) fn of(&self, ino: Ino) -> Ino {
        self.0.get(&ino).copied().unwrap_or(ino)
    }
}

/// The inodes that get new numbers, and the places that name them.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) inodes: BTreeSet<Ino>,
    places: Places,
}

impl Plan {
    /// Checks that all these inodes can get new numbers. `last`: the last number that stays. Blocks while metadata is read.
    pub(super) fn make(fs: &Fs, inodes: BTreeSet<Ino>, last: Ino) -> Result<Plan, Error> {
        if inodes.is_empty() {
            return Ok(Plan::default());
        }
        if fs.sb.features().compat.has(Compat::STABLE_INODES) {
            let what = "inodes have to get new numbers, and the feature stable_inodes forbids that";
            return Err(Error::refused(what, HELP));
        }
        let free = fs.alloc()?.free_inodes_up_to(&fs.sb, last);
        if u64::from(free) < inodes.len() as u64 {
            let total = last.get();
            return Err(Error::NoInodes { total });
        }
        let places = names::find(fs, &inodes)?;
        let plan = Plan { inodes, places };
        for ino in &plan.inodes {
            let disk = read_inode(fs, *ino)?;
            let (needed, most) = (plan.credits(fs, &disk)?, fs.most_credits_alone());
            if needed > most {
                let what = format!(
                    "inode {ino} has to get a new number, which changes {needed} blocks at once, and the journal has room for {most}"
                );
                return Err(Error::refused(what, "make the journal larger"));
            }
        }
        Ok(plan)
    }

    fn places(&self, ino: Ino) -> impl Iterator<Item = &Place> {
        self.places.get(&ino).into_iter().flatten()
    }

    /// Credits for one inode: both slots and bitmaps, its own blocks with checksums, and the places that name it.
    fn credits(&self, fs: &Fs, disk: &DiskInode) -> Result<u32, Error> {
        let mut own = 0u32;
        if fs.sb.has_metadata_csum() {
            walk(fs, disk, &mut |part| {
                own = own.saturating_add(match part {
                    Part::Node(_) => 1,
                    Part::Data(run) if disk.is_dir() => run.len,
                    Part::Data(_) => 0,
                });
                Ok(())
            })?;
        }
        let places = u32::try_from(self.places(disk.ino).count()).unwrap_or(u32::MAX);
        let fixed = NEW_INODE_CREDITS + 1 + MARK_CREDITS;
        Ok(fixed.saturating_add(own).saturating_add(places))
    }
}

/// Gives the inodes of the plan new numbers. Blocks.
pub(super) fn move_all(job: &mut Job<'_>, plan: &Plan) -> Result<NewNumbers, Error> {
    let (fs, mut new) = (job.fs, NewNumbers::default());
    if fs.has_journal() {
        for ino in &plan.inodes {
            let credits = plan.credits(fs, &read_inode(fs, *ino)?)?;
            fs.in_handle(credits, |handle| {
                copy(job, handle, plan, *ino, &mut new)?;
                handle.or_abort((|| {
                    rename(fs, handle, plan, *ino, &new)?;
                    free(fs, handle, *ino)
                })())
            })?;
            job.renumbered()?;
        }
        return Ok(new);
    }
    for ino in &plan.inodes {
        let credits = plan.credits(fs, &read_inode(fs, *ino)?)?;
        fs.in_handle(credits, |handle| copy(job, handle, plan, *ino, &mut new))?;
    }
    fs.commit_running()?;
    for ino in &plan.inodes {
        let places = u32::try_from(plan.places(*ino).count()).unwrap_or(u32::MAX);
        fs.in_handle(places, |handle| {
            handle.or_abort(rename(fs, handle, plan, *ino, &new))
        })?;
    }
    fs.commit_running()?;
    for ino in &plan.inodes {
        fs.in_handle(1 + MARK_CREDITS, |handle| {
            handle.or_abort(free(fs, handle, *ino))
        })?;
        job.renumbered()?;
    }
    fs.commit_running()?;
    Ok(new)
}

/// Writes the inode under a new number, with all checksums that cover the number.
fn copy(
    job: &Job<'_>,
    handle: &JournalHandle<'_>,
    plan: &Plan,
    ino: Ino,
    new: &mut NewNumbers,
) -> Result<(), Error> {
    let (fs, sb) = (job.fs, &job.fs.sb);
    let disk = read_inode(fs, ino)?;
    let up = plan.places(ino).find_map(|place| match place {
        Place::Block { dir, .. } | Place::Inode(dir) if *dir != ino => Some(new.of(*dir)),
        _ => None,
    });
    let up = up.filter(|up| up.get() <= job.limit.inodes);
    let (alloc, raw) = (fs.alloc()?, raw_inode(fs, ino)?);
    let number = alloc.new_inode(handle, up.unwrap_or(Ino::ROOT), disk.is_dir())?;
    new.0.insert(ino, number);
    handle.or_abort((|| {
        let mut now = disk.clone();
        now.ino = number;
        now.set_generation(sb, disk.generation);
        let mut bytes = raw.clone();
        now.write(sb, &mut bytes)?;
        write_inode(fs, handle, number, &bytes)?;
        if sb.has_metadata_csum() {
            reseal(fs, handle, &disk, &now)?;
        }
        Ok(())
    })())
}

/// Gives the nodes of an inode's map, and the blocks of a directory, the checksums for the inode `now`.
fn reseal(
    fs: &Fs,
    handle: &JournalHandle<'_>,
    disk: &DiskInode,
    now: &DiskInode,
) -> Result<(), Error> {
    let mut nodes = Vec::new();
    walk(fs, disk, &mut |part| {
        if let (Part::Node(at), MapKind::Extents) = (part, disk.map_kind()) {
            nodes.push(at);
        }
        Ok(())
    })?;
    // Read while the map has the old checksums.
    let blocks = match disk.is_dir() && disk.map_kind() != MapKind::Inline {
        true => blocks_of(fs, disk)?,
        false => Vec::new(),
    };
    for at in nodes {
        handle.node(at, now.ino);
        handle.update(
            at,
            Kind::Map,
            |_| Ok(()),
            |raw| {
                seal_block(&fs.sb, now.ino, now.generation, raw);
                Ok(())
            },
        )?;
    }
    blocks
        .into_iter()
        .try_for_each(|block| names::reseal(fs, handle, (disk, now), block, &|ino| ino))
}

/// Makes all places that name the inode name its new number.
fn rename(
    fs: &Fs,
    handle: &JournalHandle<'_>,
    plan: &Plan,
    ino: Ino,
    new: &NewNumbers,
) -> Result<(), Error> {
    let to = new.of(ino);
    let number = |named: Ino| if named == ino { to } else { named };
    for place in plan.places(ino) {
        let place = match *place {
            Place::Block { dir, block, at } => Place::Block {
                dir: new.of(dir),
                block,
                at,
            },
            Place::Inode(ino) => Place::Inode(new.of(ino)),
            Place::Attributes { user, at } => Place::Attributes {
                user: new.of(user),
                at,
            },
        };
        names::rename(fs, handle, place, &number)?;
    }
    Ok(())
}

/// Frees the old number.
fn free(fs: &Fs, handle: &JournalHandle<'_>, ino: Ino) -> Result<(), Error> {
    let is_dir = read_inode(fs, ino)?.is_dir();
    let empty = vec![0; fs.sb.geometry().inode_size() as usize];
    write_inode(fs, handle, ino, &empty)?;
    fs.alloc()?.free_inode(handle, ino, is_dir)
}
