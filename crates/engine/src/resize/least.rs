//! How small a file system can become.
//!
//! Input: a volume, and how much is to be free afterwards. Output: a number of blocks. Invariants: reads nothing but counts in memory.
//! Limits: an estimate: a file whose blocks move may need more blocks for its map; if the space does not suffice, a slightly larger size
//! does.

use crate::inode::Fs;
use diorite_format::{GroupNo, Superblock};
use diorite_mkfs::parts::{LEAST_IN_GROUP, own_blocks};

/// One of so many clusters is left for maps that grow, at least [`LEAST_LEFT`].
const LEFT: u64 = 1000;
const LEAST_LEFT: u64 = 16;

/// How much more than its files have a file system is to have room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spare {
    /// What maps may need when their files are in more pieces.
    ForMaps,
    /// Nothing: it may be that not all files find room.
    Nothing,
}

/// Blocks of a file system that holds all files and has `headroom` blocks free. Not more than it has.
pub(crate) fn least(fs: &Fs, headroom: u64, spare: Spare) -> u64 {
    let sb = &*fs.sb;
    let g = sb.geometry();
    let ratio = u64::from(g.cluster_ratio());
    let (free_clusters, free_inodes) = match &fs.alloc {
        Some(alloc) => (alloc.free_blocks() / ratio, u64::from(alloc.free_inodes())),
        None => (
            fs.groups.iter().map(|g| u64::from(g.free_clusters)).sum(),
            fs.groups.iter().map(|g| u64::from(g.free_inodes)).sum(),
        ),
    };
    let all = g.blocks_count() / ratio;
    let own: u64 = groups(sb).map(|group| own_clusters(sb, group)).sum();
    let data = all.saturating_sub(free_clusters).saturating_sub(own);
    let for_maps = match spare {
        Spare::ForMaps => (data / LEFT).max(LEAST_LEFT),
        Spare::Nothing => 0,
    };
    let left = for_maps + headroom.div_ceil(ratio);
    let inodes = u64::from(g.inodes_count()).saturating_sub(free_inodes);
    let (mut before, mut own) = (0, 0);
    for group in groups(sb) {
        own += own_clusters(sb, group);
        let here = u64::from(sb.group_clusters(group));
        let needed = data + left + own;
        let has_inodes = u64::from(group.get() + 1) * u64::from(g.inodes_per_group()) >= inodes;
        let with_next = needed + front_of_next(fs, group);
        if has_inodes && before + here >= with_next {
            // A last group has room for its own structures, and a little more.
            let own_here = own_clusters(sb, group) + LEAST_IN_GROUP.div_ceil(ratio);
            let last = needed
                .saturating_sub(before)
                .clamp(own_here.min(here), here);
            return (g.first_data_block().get() + (before + last) * ratio).min(g.blocks_count());
        }
        before += here;
    }
    g.blocks_count()
}

/// Clusters of the next group's bitmaps and table that lie in front of it: they are in use until it has gone, and its files have to be in
/// front of it before that.
fn front_of_next(fs: &Fs, group: GroupNo) -> u64 {
    let Some(next) = fs.groups.get(group.get() as usize + 1) else {
        return 0;
    };
    let (sb, first) = (&fs.sb, fs.sb.group_first_block(next.group));
    let table = u64::from(sb.geometry().inode_table_blocks());
    let parts = [
        (next.block_bitmap, 1),
        (next.inode_bitmap, 1),
        (next.inode_table, table),
    ];
    let in_front = parts.iter().filter(|(at, _)| *at < first);
    let blocks: u64 = in_front.map(|(_, len)| len).sum();
    blocks.div_ceil(sb.geometry().cluster_ratio().into())
}

fn groups(sb: &Superblock) -> impl Iterator<Item = GroupNo> {
    (0..sb.group_count()).map(GroupNo::new)
}

/// Clusters of a group's own structures, wherever they lie.
fn own_clusters(sb: &Superblock, group: GroupNo) -> u64 {
    own_blocks(sb, group).div_ceil(sb.geometry().cluster_ratio().into())
}
