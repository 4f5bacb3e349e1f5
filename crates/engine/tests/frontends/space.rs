//! The numbers of statvfs: of blocks, inodes and names.
//!
//! Input: volumes of many kinds. Output: none. Invariant: the kernel's mount and mke2fs give the same numbers. Limits: the kernel is
//! asked only by root.

use crate::common::kernel::mounted;
use crate::common::names::{empty, open};
use crate::common::{run, scratch};
use diorite::{Caller, OpenOptions, Volume};
use diorite_block::Buf;
use std::path::Path;

/// Sets what the superblock says of what the volume needs for itself, in clusters.
fn note_overhead(image: &Path, clusters: &str) {
    let request = format!("ssv overhead_clusters {clusters}");
    run("debugfs", &["-w", "-R", &request, image.to_str().unwrap()]);
}

/// What a volume of clusters needs for itself is what mke2fs has counted, also where the superblock does not say it, or cannot be right.
/// (A kernel that counts on its own is a cluster short there.)
#[test]
fn clusters_of_the_volume_itself_are_counted() {
    for (size, cluster) in [("64M", "16384"), ("65600k", "65536"), ("300M", "4096")] {
        let dir = scratch();
        let args = ["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", cluster];
        let image = empty(dir.path(), size, &args);
        let space = || {
            let volume = open(&image, false);
            volume.space()
        };
        let by_mke2fs = space();
        for noted in ["0", "99999999"] {
            note_overhead(&image, noted);
            assert_eq!(space(), by_mke2fs, "{size} {cluster} {noted}");
        }
    }
}

/// The numbers of statvfs are those that the kernel's mount gives: with and without blocks for the privileged, also where more is kept
/// than is free, and where the superblock says nothing, or nonsense, of what the volume needs for itself.
#[test]
fn space_is_what_the_kernel_says() {
    let kinds: [(&[&str], &str, Option<&str>); 14] = [
        (&["-t", "ext4"], "64M", None),
        (&["-t", "ext4", "-m", "0"], "64M", None),
        (&["-t", "ext4", "-b", "4096"], "64M", None),
        (&["-t", "ext4", "-b", "4096", "-m", "0"], "70M", None),
        (&["-t", "ext4", "-b", "1024", "-m", "7"], "64M", None),
        (&["-t", "ext4", "-b", "1024", "-m", "50"], "4M", None),
        (&["-t", "ext4", "-m", "0"], "70000k", Some("0")),
        (&["-t", "ext4", "-m", "0"], "69999k", Some("5000")),
        (
            &["-t", "ext4", "-O", "bigalloc", "-C", "16384"],
            "64M",
            None,
        ),
        (
            &["-t", "ext4", "-O", "bigalloc", "-C", "65536", "-m", "0"],
            "65600k",
            None,
        ),
        (
            &["-t", "ext4", "-O", "bigalloc", "-C", "16384"],
            "64M",
            Some("1000"),
        ),
        (
            &["-t", "ext4", "-O", "meta_bg,^resize_inode", "-b", "1024"],
            "64M",
            Some("0"),
        ),
        (&["-t", "ext4", "-m", "0", "-J", "size=4"], "100G", None),
        (&["-t", "ext2"], "64M", None),
    ];
    for (args, size, noted) in kinds {
        let dir = scratch();
        let image = empty(dir.path(), size, args);
        if let Some(noted) = noted {
            note_overhead(&image, noted);
        }
        // Root may use the reserved blocks, whoever runs this test.
        let options = OpenOptions::writable().caller(Caller {
            uid: 0,
            gids: Vec::new(),
        });
        let volume = Volume::open(image.to_str().unwrap(), &options).unwrap();
        let file = volume.create("/file", 0o644).unwrap();
        file.write_buf(0, Buf::zeroed(1 << 20)).1.unwrap();
        drop(file);
        volume.sync().unwrap();
        let while_open = volume.space();
        volume.close().unwrap();
        let reader = open(&image, false);
        let space = reader.space();
        drop(reader);
        assert_eq!(while_open, space, "{args:?}");
        assert_eq!(space.most_name, 255);
        mounted(&image, "ro", |at| {
            let said = run(
                "stat",
                &["-f", "-c", "%s %b %f %a %c %d %i", at.to_str().unwrap()],
            );
            // `stat` prints the low half of the id first.
            let id = space.id.rotate_left(32);
            let told = format!(
                "{} {} {} {} {} {} {id:x}",
                space.block_size,
                space.blocks,
                space.free,
                space.available,
                space.inodes,
                space.free_inodes
            );
            assert_eq!(told, said.trim(), "{args:?} {size} {noted:?}");
        });
    }
}
