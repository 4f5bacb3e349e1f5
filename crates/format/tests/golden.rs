//! Volumes of many kinds, made by mke2fs: what this crate reads is compared with the output of dumpe2fs and debugfs, and with
//! the files that were copied in.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::Path;

use common::{ISLANDS, Image, MANY, STRIDE, VERY_MANY, Volume, many_name, volumes};
use diorite_format::bitmap;
use diorite_format::dir::is_hashed;
use diorite_format::dx::{DxNode, DxRoot};
use diorite_format::journal::JournalSuper;
use diorite_format::mmp::{Mmp, MmpState};
use diorite_format::superblock::{JournalPlace, backup_candidates};
use diorite_format::xattr::NameIndex;
use diorite_format::{
    Access, FileBlock, FileType, FsBlock, GroupNo, Ino, Inode, MapKind, Superblock, orphan,
};

volumes! {
    ext4_1k: "24M", "-t" "ext4" "-b" "1024";
    ext4_2k: "48M", "-t" "ext4" "-b" "2048";
    ext4_4k: "64M", "-t" "ext4" "-b" "4096";
    ext4_64k: "220M", "-t" "ext4" "-b" "65536";
    ext4_64k_no_csum: "96M", "-t" "ext4" "-b" "65536" "-O" "^metadata_csum,^has_journal";
    ext4_todays_defaults: "64M", "-t" "ext4" "-b" "4096" "-O" "metadata_csum_seed,orphan_file";
    ext4_1k_seed_orphan: "24M", "-t" "ext4" "-b" "1024" "-O" "metadata_csum_seed,orphan_file";
    ext4_no_csum: "24M", "-t" "ext4" "-b" "1024" "-O" "^metadata_csum";
    ext4_gdt_csum: "24M", "-t" "ext4" "-b" "1024" "-O" "^metadata_csum,uninit_bg";
    ext4_gdt_csum_32bit: "24M", "-t" "ext4" "-b" "1024" "-O" "^metadata_csum,uninit_bg,^64bit";
    ext4_csum_32bit: "24M", "-t" "ext4" "-b" "1024" "-O" "^64bit";
    ext4_no_journal: "64M", "-t" "ext4" "-b" "4096" "-O" "^has_journal";
    ext4_no_flex: "24M", "-t" "ext4" "-b" "1024" "-O" "^flex_bg";
    ext4_meta_bg: "200M", "-t" "ext4" "-b" "1024" "-O" "meta_bg,^resize_inode";
    ext4_meta_bg_32bit: "300M", "-t" "ext4" "-b" "1024" "-O" "meta_bg,^resize_inode,^64bit,^metadata_csum";
    ext4_bigalloc: "64M", "-t" "ext4" "-b" "4096" "-O" "bigalloc" "-C" "16384";
    ext4_bigalloc_1k: "64M", "-t" "ext4" "-b" "1024" "-O" "bigalloc" "-C" "8192";
    ext4_inline: "64M", "-t" "ext4" "-b" "4096" "-O" "inline_data";
    ext4_inline_1k_512: "24M", "-t" "ext4" "-b" "1024" "-O" "inline_data" "-I" "512";
    ext4_ea_inode: "64M", "-t" "ext4" "-b" "1024" "-O" "ea_inode";
    ext4_sparse_super2: "64M", "-t" "ext4" "-b" "1024" "-O" "sparse_super2,^resize_inode";
    ext4_large_dir: "24M", "-t" "ext4" "-b" "1024" "-O" "large_dir";
    ext4_128: "24M", "-t" "ext4" "-b" "1024" "-I" "128";
    ext4_mmp: "64M", "-t" "ext4" "-b" "4096" "-O" "mmp";
    ext4_many_features: "64M", "-t" "ext4" "-b" "4096" "-O"
        "large_dir,encrypt,verity,casefold,quota,project,stable_inodes,fast_commit" "-E" "encoding=utf8";
    ext4_old_extents: "24M", "-t" "ext4" "-b" "1024" "-O" "^extent,^64bit,^metadata_csum";
    ext3_1k: "24M", "-t" "ext3" "-b" "1024";
    ext3_4k: "64M", "-t" "ext3" "-b" "4096";
    ext2_1k: "24M", "-t" "ext2" "-b" "1024";
    ext2_2k: "32M", "-t" "ext2" "-b" "2048";
    ext2_64k: "96M", "-t" "ext2" "-b" "65536";
    ext2_old: "24M", "-t" "ext2" "-b" "1024" "-O" "none";
}

#[test]
fn ext4_deep_hash_tree() {
    let args = ["-t", "ext4", "-b", "1024", "-N", "12000"];
    examine_with(&args, "40M", VERY_MANY);
}

/// All checks on one volume.
fn examine(args: &[&str], size: &str) {
    examine_with(args, size, MANY);
}

/// As [`examine`], with so many files in one directory.
fn examine_with(args: &[&str], size: &str, many: usize) {
    let Some(image) = Image::make(args, size, many) else {
        return;
    };
    let v = Volume::open(&image.path);
    v.sb.features().check(Access::Read).unwrap();
    let dump = image.dumpe2fs();
    superblock_as_dumped(&v, &dump);
    groups_as_dumped(&v, &dump);
    bitmaps(&v);
    backups(&v, &image.path);
    descriptor_copies(&v);
    files(&v, &image, many);
    stats(&v, &image);
    hashed_directory(&v, many);
    attributes(&v);
    journal(&v, &dump);
    orphans(&v);
    multiple_mounts(&v);
}

/// The value of a line "key:   value".
fn field<'a>(dump: &'a str, key: &str) -> Option<&'a str> {
    dump.lines()
        .find_map(|l| l.strip_prefix(key)?.strip_prefix(':').map(str::trim))
}

fn superblock_as_dumped(v: &Volume, dump: &str) {
    let (g, i) = (v.sb.geometry(), v.sb.info());
    let uuid: String = v.sb.uuid().iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(
        field(dump, "Filesystem UUID").unwrap().replace('-', ""),
        uuid
    );
    assert_eq!(
        field(dump, "Filesystem features")
            .unwrap()
            .replace("(none)", ""),
        v.sb.features().names().join(" ").trim()
    );
    for (key, value) in [
        ("Inode count", u64::from(g.inodes_count())),
        ("Block count", g.blocks_count()),
        ("Reserved block count", g.r_blocks_count()),
        ("Free blocks", g.free_blocks_count()),
        ("Free inodes", u64::from(g.free_inodes_count())),
        ("First block", g.first_data_block().get()),
        ("Block size", u64::from(g.block_size())),
        ("Blocks per group", u64::from(g.blocks_per_group())),
        ("Inodes per group", u64::from(g.inodes_per_group())),
        ("Inode blocks per group", u64::from(g.inode_table_blocks())),
        ("Inode size", u64::from(g.inode_size())),
        ("First inode", u64::from(g.first_ino())),
        ("Cluster size", u64::from(g.cluster_size())),
        ("Clusters per group", u64::from(g.clusters_per_group())),
        ("Group descriptor size", u64::from(g.desc_size())),
        ("Reserved GDT blocks", u64::from(g.reserved_gdt_blocks())),
        ("Flex block group size", 1 << g.flex_bits()),
        ("Required extra isize", u64::from(i.min_extra_isize)),
        ("Desired extra isize", u64::from(i.want_extra_isize)),
        ("Journal inode", 8),
        ("Mount count", u64::from(i.mount_count)),
        ("Overhead clusters", u64::from(i.overhead_clusters)),
        (
            "Orphan file inode",
            u64::from(v.sb.orphan_file().map_or(0, Ino::get)),
        ),
        ("MMP block number", v.sb.mmp_block().get()),
        ("User quota inode", u64::from(i.quota_inodes[0])),
        ("Project quota inode", u64::from(i.quota_inodes[2])),
    ] {
        if let Some(text) = field(dump, key) {
            assert_eq!(text, value.to_string(), "{key}");
        }
    }
    if let Some(seed) = field(dump, "Checksum seed") {
        assert_eq!(seed, format!("0x{:08x}", v.sb.csum_seed()));
    }
    assert!(v.sb.is_clean() && !v.sb.needs_recovery() && v.sb.recorded_errors().is_none());
}

/// "a-b" or "a".
fn first_number(text: &str) -> u64 {
    text.split(|c: char| !c.is_ascii_digit())
        .find(|t| !t.is_empty())
        .unwrap()
        .parse()
        .unwrap()
}

fn after<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.find(key).map(|at| &text[at + key.len()..])
}

fn groups_as_dumped(v: &Volume, dump: &str) {
    let parts: Vec<&str> = dump
        .split("\nGroup ")
        .skip(1)
        .filter(|p| p.contains("Block bitmap at"))
        .collect();
    assert_eq!(parts.len(), v.groups.len());
    for (part, g) in parts.iter().zip(&v.groups) {
        assert_eq!(first_number(part), u64::from(g.group.get()));
        assert_eq!(
            first_number(after(part, "Block bitmap at").unwrap()),
            g.block_bitmap.get()
        );
        assert_eq!(
            first_number(after(part, "Inode bitmap at").unwrap()),
            g.inode_bitmap.get()
        );
        assert_eq!(
            first_number(after(part, "Inode table at").unwrap()),
            g.inode_table.get()
        );
        let blocks = after(part, "(Blocks ").unwrap().split(')').next().unwrap();
        let first = v.sb.group_first_block(g.group).get();
        let last = first + u64::from(v.sb.group_blocks(g.group)) - 1;
        assert_eq!(blocks, format!("{first}-{last}"));
        let counts = part.lines().find(|l| l.contains(" free inodes, ")).unwrap();
        let numbers: Vec<u32> = counts.split(',').map(|t| first_number(t) as u32).collect();
        // dumpe2fs shows clusters in units of blocks.
        let ratio = v.sb.geometry().cluster_ratio();
        assert!(
            numbers[0] == g.free_clusters || numbers[0] == g.free_clusters * ratio,
            "{counts}"
        );
        assert_eq!(numbers[1..3], [g.free_inodes, g.used_dirs]);
        assert_eq!(
            numbers.get(3).copied().unwrap_or(0),
            g.itable_unused,
            "{counts}"
        );
        let has_copy = part.contains("superblock at");
        assert_eq!(
            has_copy,
            v.sb.has_super_backup(g.group),
            "group {}",
            g.group
        );
        if let Some(gdt) =
            after(part, "roup descriptors at ").or_else(|| after(part, "roup descriptor at "))
        {
            let meta =
                v.sb.features()
                    .incompat
                    .has(diorite_format::features::Incompat::META_BG);
            if meta && g.group.get() % v.sb.geometry().descs_per_block() == 0 {
                let index = g.group.get() / v.sb.geometry().descs_per_block();
                assert_eq!(first_number(gdt), v.sb.gdt_location(index).unwrap().get());
            }
        }
    }
}

fn bitmaps(v: &Volume) {
    for g in &v.groups {
        if !g.flags.block_uninit() {
            let b = v.block(g.block_bitmap);
            g.verify_block_bitmap(&v.sb, &b).unwrap();
            assert_eq!(
                bitmap::count_zeros(&b, v.sb.group_clusters(g.group)),
                g.free_clusters
            );
        }
        if !g.flags.inode_uninit() {
            let b = v.block(g.inode_bitmap);
            g.verify_inode_bitmap(&v.sb, &b).unwrap();
            assert_eq!(
                bitmap::count_zeros(&b, v.sb.geometry().inodes_per_group()),
                g.free_inodes
            );
        }
    }
    let (group, bit) = v.sb.bitmap_bit(v.groups[0].inode_table).unwrap();
    assert_eq!(
        bitmap::test(&v.block(v.groups[group.get() as usize].block_bitmap), bit),
        Some(true)
    );
}

fn backups(v: &Volume, path: &Path) {
    let device = fs::metadata(path).unwrap().len();
    let candidates = backup_candidates(device);
    for n in (1..v.sb.group_count())
        .map(GroupNo::new)
        .filter(|n| v.sb.has_super_backup(*n))
    {
        let at = v.sb.byte_of(v.sb.group_first_block(n));
        let raw: [u8; 1024] = v.bytes(at.get(), 1024).try_into().unwrap();
        let copy = Superblock::parse(&raw).unwrap();
        assert_eq!(
            (copy.uuid(), u32::from(copy.block_group_nr())),
            (v.sb.uuid(), n.get())
        );
        let usual = v.sb.geometry().blocks_per_group() == v.sb.block_size() * 8
            && [1, 3, 5, 7].contains(&n.get());
        assert!(
            !usual
                || candidates
                    .iter()
                    .any(|c| c.at == at && c.block_size == v.sb.block_size())
        );
    }
}

/// Copies of the descriptors name the same places.
fn descriptor_copies(v: &Volume) {
    let size = v.sb.geometry().desc_size() as usize;
    for index in 0..v.sb.geometry().gdt_blocks() {
        let original = v.block(v.sb.gdt_location(index).unwrap());
        let copies = v.sb.gdt_copies(index);
        assert!(v.sb.group_count() < 4 || !copies.is_empty());
        for copy in copies {
            let copy = v.block(copy);
            for (a, b) in original.chunks(size).zip(copy.chunks(size)) {
                assert_eq!(
                    a[..12],
                    b[..12],
                    "places in a copy of descriptor block {index}"
                );
            }
        }
    }
}

/// Content and names, against the files on the host.
fn files(v: &Volume, image: &Image, many: usize) {
    let src = image.dir.join("src");
    for name in ["hello.txt", "empty", "small", "big", "deep/er/still/leaf"] {
        assert_eq!(
            v.read(&v.lookup(name)),
            fs::read(src.join(name)).unwrap(),
            "{name}"
        );
    }
    for name in ["link", "longlink"] {
        let inode = v.lookup(name);
        assert_eq!(inode.file_type, Some(FileType::Symlink));
        assert_eq!(
            v.read(&inode),
            fs::read_link(src.join(name))
                .unwrap()
                .into_os_string()
                .into_encoded_bytes()
        );
    }
    let frag = v.lookup("frag");
    assert_eq!(frag.size, (ISLANDS - 1) * STRIDE + 8);
    let bs = u64::from(v.sb.block_size());
    let map = v.map(&frag);
    for n in 0..ISLANDS {
        let (_, at) = map.iter().find(|(b, _)| *b == n * STRIDE / bs).unwrap();
        assert_eq!(v.block(*at)[..8], (n + 1).to_le_bytes());
    }
    let mut names: Vec<Vec<u8>> = v
        .list(&v.lookup("many"))
        .into_iter()
        .map(|(n, _)| n)
        .collect();
    names.sort();
    let mut expected: Vec<Vec<u8>> = (0..many).map(|n| many_name(n).into_bytes()).collect();
    expected.sort();
    assert_eq!(names, expected);
    assert_eq!(v.lookup("fifo").file_type, Some(FileType::Fifo));
    let (blk, chr) = (v.lookup("blk"), v.lookup("chr"));
    assert_eq!(
        (blk.rdev().unwrap().major, blk.rdev().unwrap().minor),
        (8, 17)
    );
    assert_eq!(
        (chr.rdev().unwrap().major, chr.rdev().unwrap().minor),
        (5, 1)
    );
    assert_eq!(blk.map_kind(), MapKind::Device);
}

/// Inode fields, against `debugfs stat`.
fn stats(v: &Volume, image: &Image) {
    for name in [
        "",
        "hello.txt",
        "big",
        "frag",
        "link",
        "longlink",
        "many",
        "blk",
        "fifo",
    ] {
        let inode = v.lookup(name);
        let text = image.debugfs(&format!("stat <{}>\n", inode.ino));
        let words: Vec<&str> = text.split_whitespace().collect();
        let word = |key: &str| {
            words
                .iter()
                .position(|w| *w == key)
                .map(|at| words[at + 1])
                .unwrap()
        };
        assert_eq!(word("Inode:"), inode.ino.to_string());
        assert_eq!(word("Mode:"), format!("{:04o}", inode.mode & 0o7777));
        assert_eq!(word("Flags:"), format!("0x{:x}", inode.flags.bits()));
        assert_eq!(word("Generation:"), inode.generation.to_string());
        assert_eq!(word("User:"), inode.uid.to_string());
        assert_eq!(word("Size:"), inode.size.to_string(), "{name}");
        assert_eq!(word("Links:"), inode.links.to_string());
        assert_eq!(word("Blockcount:"), inode.blocks.to_string());
        let mtime = word("mtime:").trim_start_matches("0x");
        let mut halves = mtime
            .split(':')
            .map(|h| u32::from_str_radix(h, 16).unwrap());
        let (lo, hi) = (halves.next().unwrap(), halves.next());
        assert_eq!(
            diorite_format::Timestamp::decode(lo, hi.unwrap_or(0), hi.is_some()),
            inode.mtime
        );
        if text.contains("crtime:") {
            assert!(inode.crtime.is_some());
        }
    }
    for n in 1..=v.sb.geometry().inodes_count().min(3000) {
        let _: Inode = v.inode(Ino::new(n));
    }
}

/// Every name is in the block that the tree names.
fn hashed_directory(v: &Volume, many_names: usize) {
    let many = v.lookup("many");
    if !is_hashed(&v.sb, &many) {
        let dir_index =
            v.sb.features()
                .compat
                .has(diorite_format::features::Compat::DIR_INDEX);
        assert!(
            !dir_index || v.sb.block_size() > 32768,
            "e2fsck -D makes a hash tree of {many_names} names"
        );
        return;
    }
    let map: std::collections::HashMap<u64, FsBlock> = v.map(&many).into_iter().collect();
    let raw = |b: FileBlock| v.block(map[&b.get()]);
    let root = DxRoot::parse(&v.sb, &many, &raw(FileBlock::new(0))).unwrap();
    assert_eq!(root.indirect_levels > 0, many_names == VERY_MANY);
    for n in (0..many_names).step_by(3) {
        let name = many_name(n);
        let hash = root.hash.hash(v.sb.hash(), name.as_bytes()).major;
        let mut node = root.node.clone();
        for _ in 0..root.indirect_levels {
            let block = node.entries[node.find(hash)].block;
            node = DxNode::parse(&v.sb, &many, block, &raw(block)).unwrap();
        }
        let at = node.find(hash);
        let candidates =
            (at..node.entries.len()).take_while(|a| *a == at || node.continues(*a - 1, hash));
        let found = candidates.map(|a| node.entries[a].block).any(|block| {
            let bytes = raw(block);
            let leaf = diorite_format::dir::DirBlock::parse(&v.sb, &many, block, &bytes).unwrap();
            leaf.find(name.as_bytes()).is_some()
        });
        assert!(found, "{name} with hash {hash:#x}");
    }
}

fn attributes(v: &Volume) {
    if !v
        .sb
        .features()
        .compat
        .has(diorite_format::features::Compat::EXT_ATTR)
    {
        return;
    }
    let hello = v.lookup("hello.txt");
    assert_eq!(v.xattr(&hello, NameIndex::USER, b"short").unwrap(), b"tiny");
    assert_eq!(
        v.xattr(&hello, NameIndex::USER, b"mid").unwrap(),
        [b'm'; 300]
    );
    assert_eq!(
        v.xattr(&v.lookup("many"), NameIndex::USER, b"dirattr")
            .unwrap(),
        b"here"
    );
    assert_eq!(
        v.xattr(&v.lookup("small"), NameIndex::SECURITY, b"selinux")
            .unwrap(),
        b"ctx"
    );
    assert_eq!(
        v.xattr(&v.lookup("big"), NameIndex::USER, b"large")
            .unwrap(),
        [b'L'; 700]
    );
}

fn journal(v: &Volume, dump: &str) {
    let JournalPlace::Internal(ino) = v.sb.journal() else {
        assert_eq!(
            (v.sb.journal(), field(dump, "Journal features")),
            (JournalPlace::None, None)
        );
        return;
    };
    let inode = v.inode(ino);
    let first = v.map(&inode)[0].1;
    let blocks = inode.size / u64::from(v.sb.block_size());
    let j = JournalSuper::parse(&v.block(first), v.sb.block_size(), blocks).unwrap();
    assert!(j.is_empty());
    assert_eq!(u64::from(j.maxlen), blocks);
    assert_eq!(
        field(dump, "Journal sequence").unwrap(),
        format!("0x{:08x}", j.sequence.get())
    );
    let names = j.features.names().join(" ");
    assert_eq!(
        field(dump, "Journal features")
            .unwrap()
            .replace("(none)", ""),
        names
    );
}

fn orphans(v: &Volume) {
    let Some(ino) = v.sb.orphan_file() else {
        return;
    };
    let inode = v.inode(ino);
    let map = v.map(&inode);
    assert!(!map.is_empty());
    for (_, block) in map {
        let raw = v.block(block);
        assert!(
            orphan::parse_block(&v.sb, &inode, block, &raw)
                .unwrap()
                .is_empty()
        );
        let mut damaged = raw.clone();
        damaged[0] = 99;
        assert_eq!(
            orphan::parse_block(&v.sb, &inode, block, &damaged).is_err(),
            v.sb.has_metadata_csum()
        );
    }
}

fn multiple_mounts(v: &Volume) {
    if v.sb
        .features()
        .incompat
        .has(diorite_format::features::Incompat::MMP)
    {
        let mmp = Mmp::parse(&v.sb, &v.block(v.sb.mmp_block())).unwrap();
        assert_eq!(mmp.state, MmpState::Clean);
    }
}
