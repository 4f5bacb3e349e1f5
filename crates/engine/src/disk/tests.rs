//! Bitmaps of groups that were never used.

use crate::{OpenOptions, Volume};
use diorite_format::{GroupNo, bitmap};

/// The map of structures, in which those of one group are found by a search, gives what the descriptors of all groups give.
#[test]
fn a_fresh_bitmap_is_that_of_all_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let path = path.to_str().unwrap();
    for words in [
        "-t ext4 -b 1024 -g 1024",
        "-t ext4 -b 1024 -g 512 -N 16000",
        "-t ext4 -b 1024 -g 1024 -O ^flex_bg",
        "-t ext4 -b 1024 -g 1024 -G 4 -O ^resize_inode,meta_bg",
        "-t ext4 -b 1024 -g 4096 -O bigalloc -C 4096",
        "-t ext4 -b 4096 -O sparse_super2",
        "-t ext2 -b 1024 -g 256 -N 16 -O uninit_bg",
        "-t ext2 -b 1024 -g 2048 -O ^sparse_super,^resize_inode",
    ] {
        let mut args = vec!["-q", "-F"];
        args.extend(words.split(' '));
        args.extend([path, "33000K"]);
        xtask::run::run("mke2fs", &args).unwrap();
        let volume = Volume::open(path, &OpenOptions::default()).unwrap();
        let fs = volume.inner();
        let mut with_space = 0;
        for n in 0..fs.sb.group_count() {
            let group = GroupNo::new(n);
            let mut of_all = vec![0; fs.block_size() as usize];
            bitmap::fresh_blocks(&fs.sb, group, fs.groups.iter(), &mut of_all).unwrap();
            if !of_all.iter().all(|byte| *byte == 0xFF) {
                with_space += 1;
            }
            let fresh = fs.fresh_bitmap(group).unwrap();
            assert!(fresh == of_all, "{words}: group {n}");
        }
        assert!(with_space > 0, "{words}");
    }
}
