//! An inode's attributes, an attribute block, and access control lists in both formats.
#![no_main]

use diorite_format::xattr::{NameIndex, XattrValue, Xattrs, verify_ea_inode};
use diorite_format::{FsBlock, Ino, Inode, Superblock, acl};
use diorite_fuzz::{byte, take, volume};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut data = data;
    let sb = volume(byte(&mut data));
    let raw = take(&mut data, sb.geometry().inode_size() as usize);
    let Ok(inode) = Inode::parse(&sb, Ino::new(12), &raw) else {
        return;
    };
    if let Ok(list) = Xattrs::parse_inode(&sb, &inode, &raw) {
        check(&sb, &inode, &list, raw.len());
    }
    if let Ok(shown) = acl::from_disk(data) {
        assert_eq!(acl::to_disk(&shown).expect("what we made ourselves"), data);
    }
    if let Ok(stored) = acl::to_disk(data) {
        acl::from_disk(&stored).expect("what we made ourselves");
    }
    let block = take(&mut data, sb.block_size() as usize);
    if let Ok(list) = Xattrs::parse_block(&sb, inode.ino, FsBlock::new(99), &block) {
        check(&sb, &inode, &list, block.len());
    }
});

fn check(sb: &Superblock, inode: &Inode, list: &Xattrs<'_>, room: usize) {
    assert!(list.entries.len() * 16 <= room);
    for e in &list.entries {
        assert!(e.name.len() <= 255 && !e.name.contains(&0));
        let _ = e.verify_hash(inode.ino);
        match e.value {
            XattrValue::Bytes(v) => {
                assert!(v.len() < room);
                let _ = verify_ea_inode(sb, inode.ino, e, inode, v);
            }
            XattrValue::Inode { ino, size } => assert!(sb.check_ino(ino.get()).is_ok() && size > 0),
        }
        if let Some(full) = e.full_name() {
            let whole = matches!(e.index, NameIndex(2 | 3 | 8))
                || e.name.is_empty()
                || e.index == NameIndex::SYSTEM;
            assert!(whole || NameIndex::split(&full) == Some((e.index, e.name)));
        }
        assert!(list.get(e.index, e.name).is_some());
    }
}
