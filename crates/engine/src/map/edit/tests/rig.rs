//! A real volume with files whose blocks the test allocates itself.
//!
//! Input: mke2fs's options. Output: edits of files' maps, each compared with a model that knows block by block where a file is.
//! Invariant: all free blocks of the test belong to the file `pool` when it begins and when it ends, so that e2fsck has to agree with
//! every bit. Limits: no data is written; blocks freed are used again at once, which no running volume may do.

use super::super::{Edited, End, MappedRun, NewRun, TreeBlocks, credits, part, replace};
use super::judge::run;
use crate::error::Error;
use crate::inode::Inode;
use crate::journal::JournalHandle;
use crate::testing::Rng;
use crate::{Mapping, MappingState, OpenOptions, Volume};
use diorite_block::MemDevice;
use diorite_format::{FsBlock, Inode as DiskInode};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

/// Free blocks, and how many may still be taken for nodes.
#[derive(Default)]
pub(super) struct Free {
    pub(super) blocks: BTreeSet<u64>,
    pub(super) nodes_left: Option<u32>,
    pub(super) counted_on: usize,
}

impl TreeBlocks for Free {
    fn take(&mut self, goal: FsBlock) -> Result<FsBlock, Error> {
        if let Some(left) = &mut self.nodes_left {
            *left = left
                .checked_sub(1)
                .ok_or_else(|| Error::Invalid("no space".into()))?;
        }
        let near = self.blocks.range(goal.get()..).next();
        let none = || Error::Invalid("no space".into());
        let block = *near.or(self.blocks.first()).ok_or_else(none)?;
        self.blocks.remove(&block);
        Ok(FsBlock::new(block))
    }

    fn give_back(&mut self, block: FsBlock) -> Result<(), Error> {
        assert!(self.blocks.insert(block.get()), "given back twice");
        Ok(())
    }

    fn prepare_to_free(
        &mut self,
        _: &DiskInode,
        _: &[MappedRun],
        _: &[FsBlock],
    ) -> Result<(), Error> {
        Ok(())
    }

    fn counted_on(&self) -> usize {
        self.counted_on
    }
}

/// A file, and where each of its blocks is: the block of the volume, and whether it is unwritten.
pub(super) struct Model {
    pub(super) inode: Arc<Inode>,
    pub(super) blocks: Blocks,
    pub(super) nodes: u64,
}

/// Where each block of a file is, and whether it is unwritten.
pub(super) type Blocks = BTreeMap<u32, (u64, bool)>;

pub(super) struct Rig {
    pub(super) dir: tempfile::TempDir,
    pub(super) image: PathBuf,
    pub(super) device: Arc<MemDevice>,
    pub(super) volume: Volume,
    pub(super) file: Model,
    pub(super) pool: Model,
    pub(super) free: Free,
}

const SMALL_PARTS: u32 = 5;

impl Rig {
    /// A volume with an empty file, and `pool` blocks to deal out.
    pub(super) fn new(mke2fs: &[&str], size: &str, pool: u64) -> Option<Rig> {
        Rig::with_options(mke2fs, size, pool, &OpenOptions::writable())
    }

    pub(super) fn with_options(
        mke2fs: &[&str],
        size: &str,
        pool: u64,
        options: &OpenOptions,
    ) -> Option<Rig> {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("disk.img");
        let (root, path) = (dir.path().join("root"), image.to_str().unwrap().to_owned());
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("f"), b"").unwrap();
        let extents = !mke2fs.contains(&"ext2") && !mke2fs.contains(&"ext3");
        let data = if extents { 0 } else { pool as usize * 1024 };
        std::fs::write(root.join("pool"), vec![b'p'; data]).unwrap();
        let root = root.to_str().unwrap();
        let made = [
            "-q",
            "-F",
            "-N",
            "32",
            "-b",
            "1024",
            "-E",
            "root_owner=0:0",
            "-d",
            root,
        ];
        let (code, text) = run("mke2fs", &[&made[..], mke2fs, &[&path, size]].concat())?;
        assert_eq!(code, 0, "mke2fs: {text}");
        if extents {
            let fill = format!("fallocate pool 0 {}", pool - 1);
            run("debugfs", &["-w", "-R", &fill, &path])?;
        }
        Some(Rig::open(dir, image, options))
    }

    /// What is on the device once all that was changed is home.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.volume.inner().make_clean().unwrap();
        let mut bytes = std::fs::read(&self.image).unwrap();
        self.device.read_at(0, &mut bytes);
        bytes
    }

    fn open(dir: tempfile::TempDir, image: PathBuf, options: &OpenOptions) -> Rig {
        let bytes = std::fs::read(&image).unwrap();
        let device = Arc::new(MemDevice::new(bytes.len() as u64));
        device.write_at(0, &bytes);
        let volume = Volume::open_device(device.clone(), options).unwrap();
        let model = |name: &str| {
            let ino = volume.resolve(name.as_bytes(), true).unwrap();
            let inode = volume.inner().inode(ino).unwrap();
            let all = inode.mappings(0..u64::from(u32::MAX)).unwrap();
            let blocks = flat(&all);
            let nodes = (inode.disk().blocks / 2).saturating_sub(blocks.len() as u64);
            Model {
                inode,
                blocks,
                nodes,
            }
        };
        let (file, pool) = (model("/f"), model("/pool"));
        let mut rig = Rig {
            dir,
            image,
            device,
            volume,
            file,
            pool,
            free: Free::default(),
        };
        rig.with_pool(|rig| rig.truncate(0));
        rig
    }

    pub(super) fn with_pool(&mut self, on_pool: impl FnOnce(&mut Rig)) {
        std::mem::swap(&mut self.file, &mut self.pool);
        on_pool(self);
        std::mem::swap(&mut self.file, &mut self.pool);
    }

    /// Up to `len` free blocks that follow one another.
    pub(super) fn pick(&self, rng: &mut Rng, len: u32) -> NewRun {
        let highest = *self.free.blocks.last().unwrap();
        let near = rng.below(highest + 1);
        let start = *self.free.blocks.range(near..).next().unwrap();
        let long = self
            .free
            .blocks
            .range(start..)
            .zip(start..)
            .take_while(|(a, b)| *a == b);
        let len = long.take(len as usize).count() as u32;
        NewRun {
            file_block: 0,
            len,
            start: FsBlock::new(start),
            unwritten: false,
        }
    }

    /// One edit in one handle, compared with the model.
    pub(super) fn replace(&mut self, range: Range<u32>, new: &[NewRun]) {
        self.try_replace(range, new).unwrap();
    }

    pub(super) fn try_replace(&mut self, range: Range<u32>, new: &[NewRun]) -> Result<(), Error> {
        let all = |n: &NewRun| n.start.get()..n.start.get() + u64::from(n.len);
        let now: BTreeSet<u64> = new.iter().flat_map(all).collect();
        let taken: Vec<u64> = now.intersection(&self.free.blocks).copied().collect();
        for block in &taken {
            self.free.blocks.remove(block);
        }
        let most = self.credits(&range, new);
        let edited = self.edit(most, |rig, handle, disk| {
            replace(handle, &mut rig.free, disk, range.clone(), new)
        });
        let edited = edited.inspect_err(|_| self.free.blocks.extend(&taken))?;
        let gone: Vec<u32> = self.file.blocks.range(range).map(|(b, _)| *b).collect();
        let was = gone.iter().filter_map(|b| self.file.blocks.remove(b));
        let was: BTreeSet<u64> = was.map(|(at, _)| at).collect();
        for run in new {
            let one = |n: u32| {
                (
                    run.file_block + n,
                    (run.start.get() + u64::from(n), run.unwritten),
                )
            };
            self.file.blocks.extend((0..run.len).map(one));
        }
        let removed: Vec<u64> = was.difference(&now).copied().collect();
        self.finish(edited, &removed);
        Ok(())
    }

    /// Unmaps all from a block on, in small parts.
    pub(super) fn truncate(&mut self, from: u32) {
        let mut end = u32::MAX;
        while from < end {
            let part = self.part(from..end, End::Last);
            self.replace(part.clone(), &[]);
            end = part.start;
        }
    }

    pub(super) fn part(&self, range: Range<u32>, end: End) -> Range<u32> {
        let disk = self.file.inode.disk();
        let part = part(self.volume.inner(), &disk, range.clone(), SMALL_PARTS, end).unwrap();
        assert!(!part.is_empty() && part.start >= range.start && part.end <= range.end);
        part
    }

    /// Credits for an edit of a range, which touches so many leaves and perhaps one before.
    fn credits(&self, range: &Range<u32>, new: &[NewRun]) -> u32 {
        let (volume, disk) = (self.volume.inner(), self.file.inode.disk());
        let mut leaves = 8;
        while part(volume, &disk, range.clone(), leaves, End::Last).unwrap() != *range {
            leaves *= 2;
        }
        credits(volume, &disk, leaves + 1, new)
    }

    /// An edit with all that belongs to it, in a handle with credits for `most` blocks. An error leaves everything as it was.
    pub(super) fn edit(
        &mut self,
        most: u32,
        edit: impl FnOnce(&mut Rig, &JournalHandle<'_>, &mut DiskInode) -> Result<Edited, Error>,
    ) -> Result<Edited, Error> {
        let (volume, inode) = (self.volume.clone(), self.file.inode.clone());
        let handle = volume.inner().begin(most + 1).unwrap();
        let _map = inode.map_lock.lock();
        let mut disk = (*inode.disk()).clone();
        let free = self.free.nodes_left.map(|_| self.free.blocks.clone());
        let edited = edit(self, &handle, &mut disk);
        let Ok(done) = &edited else {
            assert_eq!(disk, *inode.disk(), "an error changes nothing");
            assert_eq!(handle.credits_left(), most + 1, "an error changes nothing");
            if let Some(free) = free {
                assert!(free == self.free.blocks, "what was taken is given back");
            }
            return edited;
        };
        let spent = most + 1 - handle.credits_left() + done.nodes_removed.len() as u32;
        assert!(spent <= most, "{spent} blocks changed, {most} expected");
        inode.change(&handle, |d| d.i_block = disk.i_block).unwrap();
        inode
            .publish_edits(std::slice::from_ref(done), None)
            .unwrap();
        edited
    }

    fn finish(&mut self, edited: Edited, removed: &[u64]) {
        let runs = edited.removed.iter();
        let got: Vec<u64> = runs
            .flat_map(|(at, len)| at.get()..at.get() + u64::from(*len))
            .collect();
        assert_eq!(got, removed, "the caller learns what to free");
        let nodes = edited.nodes_removed.iter().map(|b| b.get());
        for block in nodes.chain(got) {
            assert!(
                self.free.blocks.insert(block),
                "block {block} is freed once"
            );
        }
        self.file.nodes += u64::from(edited.nodes_taken);
        self.file.nodes -= edited.nodes_removed.len() as u64;
    }

    /// The view that is published shows what the model has in a range.
    pub(super) fn check(&self, range: Range<u32>) {
        let (from, to) = (u64::from(range.start), u64::from(range.end));
        let shown = flat(&self.file.inode.mappings(from..to).unwrap());
        let model = self.file.blocks.range(range);
        let model: Blocks = model.map(|(b, at)| (*b, *at)).collect();
        let only = |a: &Blocks, b: &Blocks| {
            let differs = |(k, v): &(&u32, &(u64, bool))| b.get(*k) != Some(*v);
            a.iter()
                .filter(differs)
                .map(|(k, v)| (*k, *v))
                .take(9)
                .collect::<Vec<_>>()
        };
        assert!(
            shown == model,
            "blocks {from}..{to}: shown {:?}, expected {:?}",
            only(&shown, &model),
            only(&model, &shown)
        );
    }

    /// What is on disk is what the model has.
    pub(super) fn check_disk(&self) {
        self.file.inode.drop_loaded_map();
        self.check(0..u32::MAX);
    }

    /// Levels below the root.
    pub(super) fn depth(&self) -> u16 {
        let disk = self.file.inode.disk();
        u16::from_le_bytes([disk.i_block[6], disk.i_block[7]])
    }
}

fn flat(mappings: &[Mapping]) -> Blocks {
    let mut all = BTreeMap::new();
    for mapping in mappings {
        let (at, unwritten) = match mapping.state {
            MappingState::Hole => continue,
            MappingState::Unwritten(at) => (at.get(), true),
            MappingState::Written(at) => (at.get(), false),
        };
        let one = |n: u64| ((mapping.start + n) as u32, (at + n, unwritten));
        all.extend((0..mapping.len).map(one));
    }
    all
}
