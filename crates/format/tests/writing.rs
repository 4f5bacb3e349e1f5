//! Output of the encoders, judged by other tools: a structure that is read and written unchanged has the same bytes; after
//! changes made with only this crate and plain file I/O, e2fsck finds no error, and debugfs and dumpe2fs show the changes.
#![allow(clippy::unwrap_used)]

mod common;

use common::change::{edit_super, put_desc, take_blocks};
use common::{Image, MANY, Volume, volumes};
use diorite_format::bitmap;
use diorite_format::extent::{Entries, Extent, ExtentNode};
use diorite_format::indirect::{set_pointer, set_root_pointer};
use diorite_format::superblock::{ErrorRecord, SuperblockEdit};
use diorite_format::{FileBlock, FsBlock, Ino, Inode, MapKind, Timestamp};

volumes! {
    ext4_1k: "64M", "-t" "ext4" "-b" "1024";
    ext4_4k: "300M", "-t" "ext4" "-b" "4096";
    ext4_64k: "220M", "-t" "ext4" "-b" "65536";
    ext4_todays_defaults: "64M", "-t" "ext4" "-b" "4096" "-O" "metadata_csum_seed,orphan_file";
    ext4_no_csum: "64M", "-t" "ext4" "-b" "1024" "-O" "^metadata_csum";
    ext4_gdt_csum: "64M", "-t" "ext4" "-b" "1024" "-O" "^metadata_csum,uninit_bg";
    ext4_gdt_csum_32bit: "64M", "-t" "ext4" "-b" "1024" "-O" "^metadata_csum,uninit_bg,^64bit";
    ext4_csum_32bit: "64M", "-t" "ext4" "-b" "1024" "-O" "^64bit";
    ext4_no_flex: "64M", "-t" "ext4" "-b" "1024" "-O" "^flex_bg";
    ext4_meta_bg: "400M", "-t" "ext4" "-b" "1024" "-O" "meta_bg,^resize_inode";
    ext4_bigalloc: "200M", "-t" "ext4" "-b" "1024" "-O" "bigalloc" "-C" "8192";
    ext4_sparse_super2: "64M", "-t" "ext4" "-b" "1024" "-O" "sparse_super2,^resize_inode";
    ext4_128: "64M", "-t" "ext4" "-b" "1024" "-I" "128";
    ext4_many_features: "64M", "-t" "ext4" "-b" "4096" "-O" "large_dir,ea_inode" "-I" "512";
    ext3_1k: "64M", "-t" "ext3" "-b" "1024";
    ext2_old: "64M", "-t" "ext2" "-b" "1024" "-O" "none";
}

/// All checks on one volume.
fn examine(args: &[&str], size: &str) {
    let Some(image) = Image::make(args, size, MANY) else {
        return;
    };
    unchanged(&Volume::open(&image.path));
    initialise_groups(&image);
    image.assert_clean();
    grow_a_file(&image);
    mark_superblock(&image);
}

/// Reading and writing back changes no byte.
fn unchanged(v: &Volume) {
    let mut raw: [u8; 1024] = v.bytes(1024, 1024).try_into().unwrap();
    let before = raw;
    SuperblockEdit::new(&mut raw).seal();
    assert!(raw == before, "superblock");
    for desc in &v.groups {
        let mut raw = v.raw_desc(desc.group);
        let before = raw.clone();
        desc.write(&v.sb, &mut raw).unwrap();
        assert_eq!(raw, before, "{:?}", desc.group);
    }
    for ino in used_inodes(v) {
        let mut raw = v.raw_inode(ino);
        let before = raw.clone();
        let inode = Inode::parse(&v.sb, ino, &raw).unwrap();
        inode.write(&v.sb, &mut raw).unwrap();
        assert_eq!(raw, before, "{ino:?}");
        if inode.map_kind() == MapKind::Extents {
            let root = ExtentNode::parse_root(&v.sb, &inode).unwrap();
            let mut i_block = inode.i_block;
            root.write_root(&mut i_block).unwrap();
            assert_eq!(i_block, inode.i_block, "{ino:?}");
            nodes_unchanged(v, &inode, &root);
        }
    }
}

fn nodes_unchanged(v: &Volume, inode: &Inode, parent: &ExtentNode) {
    for index in parent.indexes() {
        let mut raw = v.block(index.child);
        let before = raw.clone();
        let (ino, generation) = (inode.ino, inode.generation);
        let expect = parent.expect_child(index);
        let node =
            ExtentNode::parse_block(&v.sb, ino, generation, expect, index.child, &raw).unwrap();
        node.write_block(&v.sb, ino, generation, &mut raw).unwrap();
        assert!(raw == before, "{ino:?}, {:?}", index.child);
        nodes_unchanged(v, inode, &node);
    }
}

fn used_inodes(v: &Volume) -> Vec<Ino> {
    let per_group = v.sb.geometry().inodes_per_group();
    let mut out = Vec::new();
    for desc in v.groups.iter().filter(|d| !d.flags.inode_uninit()) {
        let map = v.block(desc.inode_bitmap);
        let first = desc.group.get() * per_group + 1;
        out.extend(
            (0..per_group)
                .filter(|n| bitmap::test(&map, *n) == Some(true))
                .map(|n| Ino::new(first + n)),
        );
    }
    out
}

/// Writes every bitmap that was never written, and updates the descriptor.
fn initialise_groups(image: &Image) {
    let v = Volume::open(&image.path);
    let mut uninit = 0;
    for desc in &v.groups {
        let mut map = vec![0x5A; v.sb.block_size() as usize];
        let mut new = desc.clone();
        bitmap::fresh_blocks(&v.sb, desc.group, &v.groups, &mut map).unwrap();
        let bits = v.sb.group_clusters(desc.group);
        if desc.flags.block_uninit() {
            assert_eq!(
                bitmap::count_zeros(&map, bits),
                desc.free_clusters,
                "{:?}",
                desc.group
            );
            image.put(v.sb.byte_of(desc.block_bitmap).get(), &map);
            new.seal_block_bitmap(&v.sb, &map).unwrap();
            new.flags = new.flags.without_block_uninit();
            uninit += 1;
        } else {
            // The group's own metadata is in use in the bitmap that mke2fs wrote.
            let real = v.block(desc.block_bitmap);
            for bit in (0..map.len() as u32 * 8).filter(|n| bitmap::test(&map, *n) == Some(true)) {
                assert_eq!(
                    bitmap::test(&real, bit),
                    Some(true),
                    "{:?}, bit {bit}",
                    desc.group
                );
            }
        }
        if desc.flags.inode_uninit() {
            bitmap::fresh_inodes(&v.sb, &mut map).unwrap();
            image.put(v.sb.byte_of(desc.inode_bitmap).get(), &map);
            new.seal_inode_bitmap(&v.sb, &map).unwrap();
            new.flags = new.flags.without_inode_uninit();
            uninit += 1;
        }
        put_desc(image, &v, &new);
    }
    let sums = v.sb.has_metadata_csum() || v.sb.features().names().contains(&"uninit_bg".into());
    assert_eq!(
        uninit > 0,
        sums && v.sb.group_count() > 1,
        "{uninit} bitmaps"
    );
}

/// Changes the small file's attributes and adds three blocks.
fn grow_a_file(image: &Image) {
    let start = take_blocks(image, 3);
    let v = Volume::open(&image.path);
    let mut file = v.lookup("hello.txt");
    let ratio = v.sb.geometry().cluster_ratio();
    let unit = u64::from(v.sb.block_size());
    (file.mode, file.uid, file.gid) = (0o100751, 123_456, 654_321);
    (file.generation, file.version) = (4711, 5);
    file.mtime = Timestamp {
        secs: 1_600_000_000,
        nanos: 1,
    };
    file.blocks += u64::from(3u32.div_ceil(ratio) * ratio) * unit / 512;
    if file.map_kind() == MapKind::Extents {
        let base = u64::from(ratio);
        grow_extents(&v, &mut file, base, start.get());
        file.size = (base + 3) * unit;
    } else {
        grow_pointers(image, &v, &mut file, start.get());
        file.size = 13 * unit;
    }
    let mut raw = v.raw_inode(file.ino);
    file.write(&v.sb, &mut raw).unwrap();
    image.put(v.inode_at(file.ino), &raw);
    image.assert_clean();
    let blocks = image.debugfs("blocks hello.txt");
    for n in 0..3 {
        let block = (start.get() + n).to_string();
        assert!(
            blocks.split_whitespace().any(|b| b == block),
            "{block}: {blocks}"
        );
    }
    let stat = image.debugfs("stat hello.txt");
    for text in [
        "Mode:  0751",
        "User: 123456",
        "Group: 654321",
        "Generation: 4711",
        "0x5f5e1000",
    ] {
        assert!(stat.contains(text), "{text}: {stat}");
    }
}

/// Adds one written block and two unwritten ones after the file's last.
fn grow_extents(v: &Volume, file: &mut Inode, base: u64, start: u64) {
    let mut root = ExtentNode::parse_root(&v.sb, file).unwrap();
    let Entries::Leaf(list) = &mut root.entries else {
        panic!("a small file");
    };
    for (block, len, start, unwritten) in [(base, 1, start, false), (base + 1, 2, start + 1, true)]
    {
        list.push(Extent {
            block: FileBlock::new(block),
            len,
            start: FsBlock::new(start),
            unwritten,
        });
    }
    root.write_root(&mut file.i_block).unwrap();
}

/// Adds a direct block, an indirect block, and the first block that it points to.
fn grow_pointers(image: &Image, v: &Volume, file: &mut Inode, start: u64) {
    set_root_pointer(&v.sb, &mut file.i_block, 1, FsBlock::new(start)).unwrap();
    set_root_pointer(&v.sb, &mut file.i_block, 12, FsBlock::new(start + 1)).unwrap();
    let mut raw = vec![0; v.sb.block_size() as usize];
    set_pointer(&v.sb, &mut raw, 0, FsBlock::new(start + 2)).unwrap();
    image.put(v.sb.byte_of(FsBlock::new(start + 1)).get(), &raw);
}

fn mark_superblock(image: &Image) {
    edit_super(image, |e| {
        e.set_mount_count(7);
        e.set_mount_time(1_600_000_000);
        e.set_write_time(1_600_000_060);
        e.set_last_mounted(b"/some/where");
        e.set_kbytes_written(4321);
    });
    image.assert_clean();
    shows(
        image,
        &[
            "Mount count:              7",
            "Last mount time:          Sun Sep 13 12:26:40 2020",
            "Last write time:          Sun Sep 13 12:27:40 2020",
            "Last mounted on:          /some/where",
            "Lifetime writes:          4321 kB",
            "Filesystem state:         clean",
        ],
    );
    for n in 1..3 {
        let record = ErrorRecord {
            time: 1_600_000_000 + i64::from(n),
            ino: n,
            block: 100,
            function: format!("finder_{n}"),
            line: 55,
            code: 0,
        };
        edit_super(image, |e| e.record_error(&record));
    }
    edit_super(image, |e| {
        e.set_valid(false);
        e.set_needs_recovery(true);
    });
    shows(
        image,
        &[
            "Filesystem state:         not clean with errors",
            "needs_recovery",
            "FS Error count:           2",
            "First error time:         Sun Sep 13 12:26:41 2020",
            "First error function:     finder_1",
            "Last error function:      finder_2",
            "Last error inode #:       2",
        ],
    );
}

fn shows(image: &Image, lines: &[&str]) {
    let dump = image.dumpe2fs();
    for line in lines {
        assert!(dump.contains(line), "{line}: {dump}");
    }
}
