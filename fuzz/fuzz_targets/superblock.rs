//! A superblock, then what depends on it: descriptors, bitmaps, the journal's superblock, mmp, orphan blocks.
#![no_main]

use diorite_format::journal::JournalSuper;
use diorite_format::mmp::Mmp;
use diorite_format::{Access, FsBlock, GroupDesc, GroupNo, Ino, Inode, Superblock, bitmap, orphan};
use diorite_fuzz::take;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut data = data;
    let raw: [u8; 1024] = take(&mut data, 1024).try_into().expect("1024 bytes");
    let Ok(sb) = Superblock::parse(&raw) else {
        return;
    };
    let g = sb.geometry();
    let _ = (
        sb.features().check(Access::Read),
        sb.features().check(Access::Write),
        sb.features().names(),
    );
    let (count, blocks) = (sb.group_count(), g.blocks_count());
    assert!(count > 0 && g.block_size().is_power_of_two() && g.inode_size() <= g.block_size());
    assert_eq!(
        u64::from(count) * u64::from(g.inodes_per_group()),
        u64::from(g.inodes_count())
    );
    for n in [0, 1, count / 2, count - 1].map(|n| n.min(count - 1)) {
        let group = GroupNo::new(n);
        let first = sb.group_first_block(group);
        let len = u64::from(sb.group_blocks(group));
        assert!(len > 0 && first.get() + len <= blocks);
        assert_eq!(sb.group_of(first), Some(group));
        let (index, offset) = sb.desc_place(group).expect("a group of the volume");
        assert!(offset + g.desc_size() <= g.block_size() && index < g.gdt_blocks());
        if let Ok(at) = sb.gdt_location(index) {
            assert!(at.get() < blocks);
        }
        if let Ok(desc) = GroupDesc::parse(&sb, group, data) {
            assert!(sb.holds(desc.inode_table, u64::from(g.inode_table_blocks())));
            let _ = (
                desc.verify_block_bitmap(&sb, data),
                desc.verify_inode_bitmap(&sb, data),
            );
        }
    }
    let place = sb
        .inode_place(Ino::new(g.inodes_count()))
        .expect("the last inode");
    assert_eq!(place.group.get(), count - 1);
    assert!(
        place.offset + g.inode_size() <= g.block_size()
            && place.table_block < g.inode_table_blocks()
    );
    let _ = (
        bitmap::count_zeros(data, g.clusters_per_group()),
        bitmap::next_zero(data, 0, u32::MAX),
    );
    if let Ok(j) = JournalSuper::parse(data, g.block_size(), blocks) {
        assert!(j.first < j.log_end() && j.start < j.log_end() && u64::from(j.maxlen) <= blocks);
    }
    let _ = Mmp::parse(&sb, data);
    if let Ok(inode) = Inode::parse(&sb, Ino::new(11), data) {
        let _ = orphan::parse_block(&sb, &inode, FsBlock::new(99), data);
    }
});
