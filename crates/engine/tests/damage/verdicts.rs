//! Verdicts on rare states that were once judged wrongly: states that crashes and other tools leave and that are no damage; and
//! states that the kernel refuses and that are damage.
//!
//! Input: images changed by debugfs, or byte by byte. Output: assertions. Invariant: e2fsck judges the same state wherever it has
//! an opinion. Limits: for orphans, what counts is e2fsck's verdict after it has processed them.

use crate::bench::Bench;
use crate::common::run;
use crate::{ours, theirs};
use diorite_format::Ino;

/// The defects: after a crash, the ".." of a directory that was removed while open was counted as a link of its parent, which had
/// lost that link. A long symbolic link or a file that was being deleted or truncated, with its new size but still with its blocks,
/// had its target and blocks compared with that size.
#[test]
fn orphans_half_way_out_are_no_damage() {
    let fresh = || {
        let bench = Bench::new("has_journal", |source| {
            std::fs::create_dir_all(source.join("above/dir")).unwrap();
            std::fs::write(source.join("file"), vec![7; 100_000]).unwrap();
            std::os::unix::fs::symlink("x".repeat(200), source.join("link")).unwrap();
        });
        let inos = ["above/dir", "link", "file"].map(|path| bench.ino(path));
        (bench, inos)
    };
    let (bench, [dir, ..]) = fresh();
    bench.debugfs(&format!(
        "unlink above/dir\nsif <{dir}> links_count 0\nsif above links_count 2\nssv last_orphan {dir}\n"
    ));
    bench.clean_but_for_orphans("a directory");
    let (bench, [dir, ..]) = fresh();
    bench.debugfs(&format!(
        "unlink above/dir\nsif <{dir}> links_count 0\nsif <{dir}> size 0\nsif above links_count 2\nssv last_orphan {dir}\n"
    ));
    bench.clean_but_for_orphans("a directory cut to nothing");
    let (bench, [_, link, _]) = fresh();
    bench.debugfs(&format!(
        "unlink link\nsif <{link}> links_count 0\nsif <{link}> size 0\nssv last_orphan {link}\n"
    ));
    bench.clean_but_for_orphans("a long link cut to nothing");
    let (bench, [.., file]) = fresh();
    bench.debugfs(&format!("sif file size 5000\nssv last_orphan {file}\n"));
    bench.clean_but_for_orphans("a file that is being truncated");
    // The entries of an orphaned directory are lost with it.
    let (bench, _) = fresh();
    let above = bench.ino("above");
    bench.debugfs(&format!(
        "unlink above\nsif <{above}> links_count 0\nsif / links_count 3\nssv last_orphan {above}\n"
    ));
    bench.ours_damaged("no name leads to it");
}

/// mke2fs keeps files of zeros, and holes, as inline data of any size and stores none of their bytes. The defect: `check` called
/// that damage, and diorite could not read such files; the kernel and e2fsck accept them.
#[test]
fn inline_files_of_zeros_of_any_size() {
    let sizes = [30, 60, 61, 100, 1024, 5000, 100_000];
    let bench = Bench::new("inline_data", |source| {
        for size in sizes {
            std::fs::write(source.join(format!("zeros{size}")), vec![0; size]).unwrap();
            let hole = std::fs::File::create(source.join(format!("hole{size}"))).unwrap();
            hole.set_len(size as u64).unwrap();
        }
        std::os::unix::fs::symlink("x".repeat(100), source.join("link")).unwrap();
        std::fs::create_dir(source.join("dir")).unwrap();
    });
    bench.both_clean("files of zeros");
    let flags = |path: &str| {
        let image = bench.image.to_str().unwrap();
        run("debugfs", &["-R", &format!("stat {path}"), image])
    };
    assert!(flags("zeros100000").contains("Flags: 0x10000000"));
    bench.debugfs("mkdir inside\n");
    // For a symbolic link the kernel and e2fsck require exactly the bytes that its size says; for a directory e2fsck does.
    for (what, size) in [("link", 99), ("link", 101), ("link", 10), ("inside", 64)] {
        let before = std::fs::read(&bench.image).unwrap();
        bench.debugfs(&format!("sif {what} size {size}\n"));
        bench.both_damaged(&format!("{}", bench.ino(what)));
        std::fs::write(&bench.image, before).unwrap();
    }
}

/// The Merkle tree of a verity file lies past its size. The defect: its blocks were reported as blocks that should not be there.
#[test]
fn a_merkle_tree_lies_behind_the_size() {
    let bench = Bench::new("verity", |source| {
        std::fs::write(source.join("file"), vec![7; 70_000]).unwrap();
    });
    bench.debugfs("sif file size 5000\n");
    bench.both_damaged("blocks that are written up to");
    bench.debugfs("sif file flags 0x180000\n");
    bench.both_clean("a verity file");
}

/// Old versions of mke2fs made the size in the journal's inode a block less than its map has. e2fsck and the kernel accept that, if
/// the length of the log fits the size.
#[test]
fn a_journal_may_be_a_block_longer_than_its_inode_says() {
    let bench = Bench::with("has_journal,extents", &["-J", "size=2"], |_| ());
    let size = 2 << 20;
    let first = bench.ask("bmap <8> 0") as usize;
    for (short, clean) in [(0, true), (1, true), (2, false)] {
        bench.debugfs(&format!("sif <8> size {}\n", size - short * 1024));
        let log = u32::try_from(2048 - short).unwrap();
        bench.patch(first * 1024 + 16, &log.to_be_bytes());
        if clean {
            bench.both_clean(&format!("{short} blocks less"));
        } else {
            bench.both_damaged("");
        }
    }
}

/// ext4 drivers built with signed characters hash attribute names differently. The defect: such a hash was accepted where the value
/// is beside its entry, but not where it is in an inode.
#[test]
fn hashes_of_signed_characters_for_values_in_inodes() {
    let name = "n\u{e4}m\u{e9}";
    let bench = Bench::new("ea_inode", |source| {
        std::fs::write(source.join("file"), b"").unwrap();
    });
    bench.give_large_attribute("file", &format!("user.{name}"));
    let bytes = std::fs::read(&bench.image).unwrap();
    let ino = u32::try_from(bench.ino("file")).unwrap();
    let at = crate::seal::Bytes::new(&bytes).inode_at(Ino::new(ino)) as usize;
    let entry = at
        + bytes[at..at + 256]
            .windows(name.len())
            .position(|w| w == name.as_bytes())
            .unwrap()
        - 16;
    assert_ne!(
        bytes[entry + 4..entry + 8],
        [0; 4],
        "the value is in an inode"
    );
    let hash = u32::from_le_bytes(bytes[entry + 12..entry + 16].try_into().unwrap());
    let over = |signed: bool| {
        name.bytes().fold(0u32, |hash, c| {
            let c = if signed { c as i8 as u32 } else { u32::from(c) };
            hash.rotate_left(5) ^ c
        })
    };
    // The hash is that of the name, rotated by 16 bits, and the value's part; only the name's part differs.
    let signed = hash ^ (over(true) ^ over(false)).rotate_left(16);
    bench.patch(entry + 12, &signed.to_le_bytes());
    bench.both_clean("a signed hash");
    bench.patch(entry + 12, &(signed ^ 4).to_le_bytes());
    bench.both_damaged("hash");
}

/// On a volume with shared_blocks, files share blocks with each other, with themselves and with maps. The defects: a block that a
/// file has twice in a row was called damage; and a block of pointers that was shared was not read, so everything below it seemed
/// free.
#[test]
fn shared_blocks_are_shared_with_anybody() {
    let bench = Bench::new("^extents", |source| {
        std::fs::write(source.join("a"), vec![7; 5000]).unwrap();
        std::fs::write(source.join("b"), vec![8; 50_000]).unwrap();
    });
    let [first, second, third] = [0, 1, 2].map(|n| bench.ask(&format!("bmap a {n}")));
    let stat = run("debugfs", &["-R", "stat b", bench.image.to_str().unwrap()]);
    let map = stat.split_once("(IND):").unwrap().1;
    let map = map.split(',').next().unwrap();
    let dump = run("dumpe2fs", &["-h", bench.image.to_str().unwrap()]);
    let line = dump
        .lines()
        .find(|l| l.starts_with("Free blocks:"))
        .unwrap();
    let free: u64 = line.split_whitespace().last().unwrap().parse().unwrap();
    bench.debugfs(&format!(
        "sif a block[1] {first}\nsif a block[2] {map}\nfreeb {second} 1\nfreeb {third} 1\n\
         ssv free_blocks_count {0}\nset_bg 0 free_blocks_count {0}\n",
        free + 2
    ));
    assert!(ours(&bench.image).0 && theirs(&bench.image).0);
    // The feature shared_blocks is in byte 1 of the third word of features.
    let bytes = std::fs::read(&bench.image).unwrap();
    let word = 1024 + 0x64 + 1;
    bench.patch(word, &[bytes[word] | 0x40]);
    bench.both_clean("shared blocks");
}

/// The kernel refuses an inode with the EA_INODE flag when a name, or the mount, leads to it; and symbolic links and pipes that are
/// immutable or append-only. Of the former e2fsck finds nothing.
#[test]
fn flags_that_the_kernel_refuses() {
    const EA_INODE: u32 = 0x20_0000;
    let bench = Bench::new("ea_inode", |source| {
        std::fs::create_dir(source.join("dir")).unwrap();
        std::fs::write(source.join("file"), b"data").unwrap();
        std::os::unix::fs::symlink("short", source.join("link")).unwrap();
        std::os::unix::fs::symlink("x".repeat(100), source.join("long")).unwrap();
    });
    bench.debugfs("mknod pipe p\nmknod device b 8 17\n");
    bench.both_clean("before");
    let pristine = std::fs::read(&bench.image).unwrap();
    let kinds = [
        ("/", 0x8_0000),
        ("dir", 0x8_0000),
        ("file", 0x8_0000),
        ("link", 0),
        ("long", 0x8_0000),
        ("pipe", 0),
        ("device", 0),
    ];
    for (path, flags) in kinds {
        bench.debugfs(&format!("sif {path} flags {:#x}\n", flags | EA_INODE));
        bench.ours_damaged("attribute's value");
        std::fs::write(&bench.image, &pristine).unwrap();
    }
    for (path, flags) in kinds {
        for bit in [0x10, 0x20] {
            bench.debugfs(&format!("sif {path} flags {:#x}\n", flags | bit));
            match path {
                "/" | "dir" | "file" => bench.both_clean(path),
                _ => bench.both_say("immutable or append-only", "Special (device"),
            }
            std::fs::write(&bench.image, &pristine).unwrap();
        }
    }
}

/// "." and ".." are followed by a NUL.
#[test]
fn dots_are_ended() {
    let bench = Bench::new("has_journal", |source| {
        std::fs::create_dir(source.join("dir")).unwrap();
    });
    let block = bench.ask("bmap dir 0") as usize * 1024;
    for (byte, ends) in [(9, true), (10, false), (12 + 10, true), (12 + 11, false)] {
        bench.patch(block + byte, b"x");
        if ends {
            bench.both_damaged("is not ended by a NUL");
        } else {
            bench.both_clean("what is behind that");
        }
        bench.patch(block + byte, b"\0");
    }
}

/// The extra size that the superblock requires of inodes (minimum and wanted) has to fit into them and be a multiple of 4. The
/// kernel mounts no volume with other values.
#[test]
fn what_inodes_are_to_have_fits_them() {
    let bench = Bench::new("has_journal", |_| ());
    for (at, words, theirs) in [
        (0x15C, "required of inodes", "Bad required extra isize"),
        (0x15E, "wanted of inodes", "Bad desired extra isize"),
    ] {
        for (bytes, clean) in [
            (0u16, true),
            (4, true),
            (32, true),
            (128, true),
            (6, false),
            (132, false),
            (65_535, false),
        ] {
            bench.patch(1024 + at, &bytes.to_le_bytes());
            if clean {
                bench.both_clean(&format!("{bytes} bytes {words}"));
            } else {
                bench.both_say(words, theirs);
            }
        }
        bench.patch(1024 + at, &32u16.to_le_bytes());
    }
}

/// An inode that holds an attribute's value, but that no attribute refers to and that is not an orphan: with a link, and without.
#[test]
fn values_that_nobody_has() {
    let bench = Bench::new("ea_inode", |source| {
        std::fs::write(source.join("file"), b"").unwrap();
    });
    bench.give_large_attribute("file", "user.v");
    let file = bench.ino("file");
    bench.debugfs(&format!("unlink file\nclri <{file}>\nfreei <{file}>\n"));
    let pristine = std::fs::read(&bench.image).unwrap();
    bench.both_damaged("no attribute has its value in it");
    bench.debugfs(&format!("sif <{}> links_count 0\n", file + 1));
    bench.both_damaged("has no links");
    std::fs::write(&bench.image, pristine).unwrap();
    // With its reference count set to 0 it counts as unused, which does not excuse it.
    bench.debugfs(&format!("sif <{}> version 0\n", file + 1));
    bench.both_damaged("no attribute has its value in it");
}
