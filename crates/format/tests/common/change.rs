//! Changes of an image, made with the crate under test and accounted wherever e2fsck counts.

use diorite_format::superblock::SuperblockEdit;
use diorite_format::{FsBlock, GroupDesc, Ino, Inode, bitmap};

use super::{Image, Volume};

pub fn put_desc(image: &Image, v: &Volume, desc: &GroupDesc) {
    let mut raw = v.raw_desc(desc.group);
    desc.write(&v.sb, &mut raw).unwrap();
    assert_eq!(&GroupDesc::parse(&v.sb, desc.group, &raw).unwrap(), desc);
    image.put(v.desc_at(desc.group), &raw);
}

pub fn edit_super(image: &Image, edit: impl Fn(&mut SuperblockEdit<'_>)) {
    let mut raw = [0u8; 1024];
    raw.copy_from_slice(&Volume::open(&image.path).bytes(1024, 1024));
    let mut e = SuperblockEdit::new(&mut raw);
    edit(&mut e);
    e.seal();
    image.put(1024, &raw);
}

/// Allocates `blocks` contiguous blocks, in whole clusters, and updates all counts; returns the first.
pub fn take_blocks(image: &Image, blocks: u32) -> FsBlock {
    let v = Volume::open(&image.path);
    let ratio = v.sb.geometry().cluster_ratio();
    let clusters = blocks.div_ceil(ratio);
    for desc in &v.groups {
        let mut map = v.block(desc.block_bitmap);
        let bits = v.sb.group_clusters(desc.group);
        let mut from = 0;
        while let Some((start, len)) = bitmap::next_zero_run(&map, from, bits, clusters) {
            from = start + len;
            if len < clusters {
                continue;
            }
            bitmap::set_range(&mut map, start, clusters).unwrap();
            image.put(v.sb.byte_of(desc.block_bitmap).get(), &map);
            let mut new = desc.clone();
            new.free_clusters -= clusters;
            new.seal_block_bitmap(&v.sb, &map).unwrap();
            put_desc(image, &v, &new);
            let free = v.sb.geometry().free_blocks_count() - u64::from(clusters * ratio);
            edit_super(image, |e| e.set_free_blocks(free));
            let first = v.sb.group_first_block(desc.group).get();
            return FsBlock::new(first + u64::from(start * ratio));
        }
    }
    panic!("no run of {clusters} clusters");
}

pub fn put_inode(image: &Image, v: &Volume, inode: &Inode) {
    let mut raw = v.raw_inode(inode.ino);
    inode.write(&v.sb, &mut raw).unwrap();
    image.put(v.inode_at(inode.ino), &raw);
}

/// Changes the bit and the counts of an inode: allocated (`take`) or freed.
pub fn book_inode(image: &Image, ino: Ino, take: bool, is_dir: bool) {
    let v = Volume::open(&image.path);
    let place = v.sb.inode_place(ino).unwrap();
    let mut desc = v.groups[place.group.get() as usize].clone();
    let mut map = v.block(desc.inode_bitmap);
    if take {
        bitmap::set_range(&mut map, place.index, 1).unwrap();
        desc.free_inodes -= 1;
        desc.used_dirs += u32::from(is_dir);
        let behind = v.sb.geometry().inodes_per_group() - place.index - 1;
        desc.itable_unused = desc.itable_unused.min(behind);
    } else {
        bitmap::clear_range(&mut map, place.index, 1).unwrap();
        desc.free_inodes += 1;
        desc.used_dirs -= u32::from(is_dir);
    }
    image.put(v.sb.byte_of(desc.inode_bitmap).get(), &map);
    desc.seal_inode_bitmap(&v.sb, &map).unwrap();
    put_desc(image, &v, &desc);
    let free = v.sb.geometry().free_inodes_count();
    edit_super(image, |e| {
        e.set_free_inodes(if take { free - 1 } else { free + 1 })
    });
}

/// Allocates the first free inode of group 0.
pub fn take_inode(image: &Image, is_dir: bool) -> Ino {
    let v = Volume::open(&image.path);
    let map = v.block(v.groups[0].inode_bitmap);
    let bit = bitmap::next_zero(&map, 0, v.sb.geometry().inodes_per_group()).unwrap();
    let ino = Ino::new(bit + 1);
    book_inode(image, ino, true, is_dir);
    ino
}
