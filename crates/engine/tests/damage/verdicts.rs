//! Verdicts on states that are rare and were judged wrongly: what crashes and other tools leave and is no damage; what the kernel refuses
//! and is.
//!
//! Input: images changed by debugfs, or byte by byte. Output: assertions. Invariant: e2fsck is asked too, wherever it has an opinion of
//! the same state. Limits: what e2fsck says of orphans is what it says once it has dealt with them.

use crate::common::recipe::debugfs;
use crate::common::{self, run, scratch};
use crate::{ours, theirs};
use diorite_format::Ino;
use std::path::{Path, PathBuf};

const NOTHING: (bool, String) = (false, String::new());

/// An image of a few files, in blocks of 1 KiB and without checksums.
struct Bench {
    dir: tempfile::TempDir,
    image: PathBuf,
}

impl Bench {
    fn new(features: &str, fill: impl Fn(&Path)) -> Bench {
        Bench::with(features, &[], fill)
    }

    fn with(features: &str, more: &[&str], fill: impl Fn(&Path)) -> Bench {
        let dir = scratch();
        let source = dir.path().join("source");
        std::fs::create_dir_all(&source).unwrap();
        fill(&source);
        let features = format!("^metadata_csum,^64bit,{features}");
        let args = [&["-t", "ext4", "-b", "1024", "-O", &features], more].concat();
        let image = common::image(dir.path(), "8M", &args, &source);
        Bench { dir, image }
    }

    fn debugfs(&self, script: &str) {
        debugfs(&self.image, self.dir.path(), script);
    }

    /// The first number that debugfs answers.
    fn ask(&self, request: &str) -> u64 {
        let said = run("debugfs", &["-R", request, self.image.to_str().unwrap()]);
        said.split_whitespace()
            .find_map(|w| w.parse().ok())
            .unwrap()
    }

    fn ino(&self, path: &str) -> u64 {
        self.ask(&format!("stat {path}"))
    }

    fn patch(&self, at: usize, bytes: &[u8]) {
        let mut image = std::fs::read(&self.image).unwrap();
        image[at..at + bytes.len()].copy_from_slice(bytes);
        std::fs::write(&self.image, &image).unwrap();
    }

    /// Neither finds anything.
    fn both_clean(&self, what: &str) {
        assert_eq!(ours(&self.image), NOTHING, "{what}");
        assert!(!theirs(&self.image).0, "{what}: {:?}", theirs(&self.image));
    }

    /// Both find something, and ours begins with these words behind the inode.
    fn both_damaged(&self, words: &str) {
        self.ours_damaged(words);
        assert!(theirs(&self.image).0, "{words}");
    }

    /// We find something, and e2fsck says so, although its exit code does not.
    fn both_say(&self, ours: &str, theirs_begins: &str) {
        self.ours_damaged(ours);
        let said = theirs(&self.image).1;
        assert!(said.starts_with(theirs_begins), "{said}");
    }

    /// debugfs gives a file an attribute with its value in another inode, and does not count that.
    fn give_large_attribute(&self, path: &str, name: &str) {
        let value = self.dir.path().join("value");
        std::fs::write(&value, vec![b'x'; 5000]).unwrap();
        self.debugfs(&format!("ea_set -f {} {path} {name}\n", value.display()));
        let _ = xtask::run::tool("e2fsck")
            .args(["-fy", self.image.to_str().unwrap()])
            .output();
        self.both_clean("an attribute");
    }

    fn ours_damaged(&self, words: &str) {
        let (damaged, said) = ours(&self.image);
        assert!(damaged && said.contains(words), "{words}: {said:?}");
    }

    /// We find nothing; e2fsck deals with the orphans, and neither finds anything then.
    fn clean_but_for_orphans(&self, what: &str) {
        assert_eq!(ours(&self.image), NOTHING, "{what}");
        let image = self.image.to_str().unwrap();
        // 0 or 1 by the version: orphans count as put right, or not.
        let _ = xtask::run::tool("e2fsck").args(["-p", image]).output();
        self.both_clean(what);
    }
}

/// A directory that lost its last name while it was open, then a crash: its ".." counted as a link of the directory above, which had
/// given that up. A long link or a file on its way out, already of size 0 or of its new size, with its blocks there yet: its target and
/// its blocks were compared with that.
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
    // What an orphaned directory names is lost with it.
    let (bench, _) = fresh();
    let above = bench.ino("above");
    bench.debugfs(&format!(
        "unlink above\nsif <{above}> links_count 0\nsif / links_count 3\nssv last_orphan {above}\n"
    ));
    bench.ours_damaged("no name leads to it");
}

/// mke2fs keeps files of zeros, and holes, in their inodes, whatever their size, and stores nothing of them. `check` called that damage,
/// and nobody could read them; the kernel and e2fsck do.
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
    // Of a link the kernel and e2fsck want as much as its size says, no less and no more; of a directory e2fsck does.
    for (what, size) in [("link", 99), ("link", 101), ("link", 10), ("inside", 64)] {
        let before = std::fs::read(&bench.image).unwrap();
        bench.debugfs(&format!("sif {what} size {size}\n"));
        bench.both_damaged(&format!("{}", bench.ino(what)));
        std::fs::write(&bench.image, before).unwrap();
    }
}

/// The Merkle tree of a verity file lies behind its size. It was called blocks that should not be there.
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

/// Old mke2fs made the journal's inode a block shorter than its map. e2fsck and the kernel take it, if the log's own length fits.
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

/// Drivers whose characters are signed hash the names of attributes in another way. That was taken where a value is beside its entry, not
/// where it is in an inode.
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
    // The value's part is the same: what is over the name is turned by 16 bits before it.
    let signed = hash ^ (over(true) ^ over(false)).rotate_left(16);
    bench.patch(entry + 12, &signed.to_le_bytes());
    bench.both_clean("a signed hash");
    bench.patch(entry + 12, &(signed ^ 4).to_le_bytes());
    bench.both_damaged("hash");
}

/// Files of a volume with shared_blocks share blocks with each other, with themselves and with maps. A block that a file has twice in a
/// row was called damage, and a map whose block was shared was not gone into, so that all below it seemed free.
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
    // The feature shared_blocks: byte 1 of the third word of features.
    let bytes = std::fs::read(&bench.image).unwrap();
    let word = 1024 + 0x64 + 1;
    bench.patch(word, &[bytes[word] | 0x40]);
    bench.both_clean("shared blocks");
}

/// The kernel refuses an inode flagged as holding an attribute's value wherever a name, or the mount, leads to it, and links and pipes
/// that are immutable or append-only. Of the first e2fsck finds nothing.
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

/// "." and ".." are ended by a NUL, which is behind their names.
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

/// What the superblock requires and wants of inodes has to fit them, in whole words. The kernel does not mount what asks for more.
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

/// An inode that holds a value, that no attribute names and that is on no list of orphans: with a link, or without.
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
    // What an orphan has goes with it.
    bench.debugfs(&format!("sif <{}> version 0\n", file + 1));
    bench.both_damaged("no attribute has its value in it");
}
