//! The map of a file of an [`Image`].
//!
//! Input: an inode. Output: every node and every run of its map, in the order of the file; a map made for runs. Invariants: each node is
//! checked before what is below it; a map with more blocks than the volume is damaged. Limits: whether a run lies in the volume's own
//! structures is left to the consistency check.

use super::image::Image;
use crate::error::Error;
use crate::map::{Segment, SegmentKind, segments_in_inode, segments_in_node};
use diorite_format::extent::Extent;
use diorite_format::features::Incompat;
use diorite_format::inode::I_BLOCK_SIZE;
use diorite_format::{FileBlock, FsBlock, Ino, Inode, InodeFlags, MapKind, Superblock};
use diorite_mkfs::parts::{MapBlocks, map_by_features};
use std::ops::Range;

/// The longest extent whose data is written.
const LONGEST: u64 = 1 << 15;

/// A node of a map.
pub(super) struct Node {
    pub(super) at: FsBlock,
    /// Of an extent tree, which has checksums, not of pointers.
    pub(super) is_extents: bool,
}

/// A run of data.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) file_block: u64,
    pub(super) len: u64,
    pub(super) at: u64,
}

/// The nodes and the runs of a map.
#[derive(Default)]
pub(super) struct Map {
    pub(super) nodes: Vec<Node>,
    pub(super) runs: Vec<Run>,
}

impl Map {
    /// The blocks of the runs one by one: in the file, and on the volume.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (FileBlock, FsBlock)> {
        self.runs.iter().flat_map(|run| {
            let one = |n| (FileBlock::new(run.file_block + n), FsBlock::new(run.at + n));
            (0..run.len).map(one)
        })
    }

    /// The blocks of the map itself.
    pub(super) fn nodes(&self) -> impl Iterator<Item = FsBlock> {
        self.nodes.iter().map(|node| node.at)
    }

    /// What the file has on the volume: data and nodes, in whole clusters of this many blocks, each once.
    pub(super) fn places(&self, ratio: u64) -> Vec<Range<u64>> {
        let around =
            |from: u64, len: u64| from - from % ratio..(from + len).next_multiple_of(ratio);
        let data = self.runs.iter().map(|run| around(run.at, run.len));
        let nodes = self.nodes.iter().map(|node| around(node.at.get(), 1));
        let mut all: Vec<Range<u64>> = data.chain(nodes).collect();
        all.sort_by_key(|run| run.start);
        let mut once: Vec<Range<u64>> = Vec::new();
        for run in all {
            match once.last_mut() {
                Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
                _ => once.push(run),
            }
        }
        once
    }
}

/// Extents of these runs, and how many blocks they have.
fn extents_of(runs: &[Range<u64>]) -> (Vec<Extent>, u64) {
    let (mut data, mut extents) = (0, Vec::new());
    for run in runs {
        let mut start = run.start;
        while start < run.end {
            let len = (run.end - start).min(LONGEST);
            extents.push(Extent {
                block: FileBlock::new(data),
                len: u32::try_from(len).expect("at most the longest extent"),
                start: FsBlock::new(start),
                unwritten: false,
            });
            (data, start) = (data + len, start + len);
        }
    }
    (extents, data)
}

impl Image {
    /// The map of an inode. Blocks.
    pub(super) fn map(&self, inode: &Inode) -> Result<Map, Error> {
        self.map_as(&self.sb, inode)
    }

    /// The map of an inode, with the checksums that `sb` asks for. Blocks.
    pub(super) fn map_as(&self, sb: &Superblock, inode: &Inode) -> Result<Map, Error> {
        let mut map = Map::default();
        let mut left = self.sb.geometry().blocks_count();
        let segments = segments_in_inode(sb, inode)?;
        self.below((sb, inode), &segments, &mut left, &mut map)
            .map_err(|e| e.at(format!("inode {}", inode.ino)))?;
        Ok(map)
    }

    fn below(
        &self,
        (sb, inode): (&Superblock, &Inode),
        segments: &[Segment],
        left: &mut u64,
        map: &mut Map,
    ) -> Result<(), Error> {
        for segment in segments {
            let (at, len) = match segment.kind {
                SegmentKind::Written(at) | SegmentKind::Unwritten(at) => (at, segment.len.into()),
                SegmentKind::ExtentNode(at, _) | SegmentKind::IndirectNode(at, _) => (at, 1),
            };
            *left = left.checked_sub(len).ok_or_else(|| {
                Error::Damaged("its map has more blocks than the volume; run e2fsck".to_owned())
            })?;
            if !segment.is_unloaded() {
                map.runs.push(Run {
                    file_block: segment.start.into(),
                    len,
                    at: at.get(),
                });
                continue;
            }
            map.nodes.push(Node {
                at,
                is_extents: inode.map_kind() == MapKind::Extents,
            });
            let raw = self.block(at)?;
            let segments = segments_in_node(sb, inode, segment, &raw)?;
            self.below((sb, inode), &segments, left, map)?;
        }
        Ok(())
    }

    /// Gives an inode a new map of these runs, one after the other in the file; `take` gives blocks for its nodes. The count of its blocks
    /// is set; the inode is written by the caller. Blocks.
    pub(super) fn make_map(
        &mut self,
        inode: &mut Inode,
        runs: &[Range<u64>],
        take: &mut dyn FnMut(&mut Image) -> Result<u64, Error>,
    ) -> Result<(), Error> {
        inode.i_block = [0; I_BLOCK_SIZE];
        let sb = self.sb.clone();
        inode.flags = match sb.features().incompat.has(Incompat::EXTENTS) {
            true => inode.flags.with(InodeFlags::EXTENTS),
            false => inode.flags.without(InodeFlags::EXTENTS),
        };
        let (extents, data) = extents_of(runs);
        let mut failed = None;
        let nodes = map_by_features(&sb, inode, extents, &mut || {
            take(self).map_err(|error| {
                let why = diorite_mkfs::Error::NoRoom(error.to_string());
                failed = Some(error);
                why
            })
        });
        let nodes: MapBlocks = match failed {
            Some(error) => return Err(error),
            None => nodes?,
        };
        let ratio = u64::from(sb.geometry().cluster_ratio());
        let all = data.next_multiple_of(ratio) + nodes.len() as u64 * ratio;
        inode.blocks = all * u64::from(sb.block_size() / 512);
        for (at, raw) in &nodes {
            self.put(FsBlock::new(*at), raw);
        }
        Ok(())
    }

    /// How many nodes [`Image::make_map`] takes for these runs.
    pub(super) fn nodes_for(&self, runs: &[Range<u64>], ino: Ino) -> Result<u64, Error> {
        let mut inode = self.inode(Ino::ROOT)?;
        inode.ino = ino;
        let mut count = 0;
        // Any block will do: nothing of it is kept.
        let nodes = map_by_features(&self.sb, &mut inode, extents_of(runs).0, &mut || {
            count += 1;
            Ok(self.sb.geometry().first_data_block().get() + 1)
        });
        nodes.map(|_| count).map_err(Error::from)
    }
}
