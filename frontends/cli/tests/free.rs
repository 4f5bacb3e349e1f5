//! Tests of `sparsify` and `zerofree`: what is free is gone, what is in use stays as it is, byte for byte, in file systems of every kind.

use crate::common::{Mount, diorite, is_root, noise, run, scratch, skip, tree};
use serde_json::Value;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The words of mke2fs for each kind.
const KINDS: [(&str, &str); 9] = [
    ("ext4", "-t ext4"),
    ("1k, groups that were never written", "-t ext4 -b 1024"),
    ("bigalloc", "-t ext4 -O bigalloc -C 16384"),
    ("bigalloc of 1k", "-t ext4 -b 1024 -O bigalloc -C 8192"),
    ("uninit_bg", "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg"),
    ("no flex_bg", "-t ext4 -b 1024 -O ^flex_bg,^resize_inode"),
    ("no journal", "-t ext4 -O ^has_journal"),
    ("ext2", "-t ext2 -b 2048"),
    ("64k blocks", "-t ext4 -b 65536 -O ^has_journal"),
];

/// A file system made in a file full of noise, with a tree, and with the blocks of a file that was removed.
fn poisoned(dir: &Path, words: &str) -> String {
    let (img, source) = (dir.join("image"), dir.join("tree"));
    if !source.exists() {
        fs::create_dir_all(&source).unwrap();
        fs::write(source.join("removed"), noise(3 << 20, 4)).unwrap();
        tree(&source.join("kept"));
    }
    // An odd size: the last group and the last cluster are short.
    fs::write(&img, noise((53 << 20) + 5 * 1024, 9)).unwrap();
    let img = img.to_str().unwrap().to_owned();
    let mut args = vec!["-q", "-F", "-E", "nodiscard,lazy_itable_init=1"];
    args.extend(words.split(' '));
    args.extend(["-d", source.to_str().unwrap(), &img]);
    run("mke2fs", &args);
    diorite(&["rm", &img, "/removed"]).ok();
    run("e2fsck", &["-fn", &img]);
    img
}

/// The bytes of the free blocks, as dumpe2fs lists them.
fn free(img: &str) -> Vec<Range<usize>> {
    let said = run("dumpe2fs", &[img]);
    let number = |text: &str| text.trim().parse::<usize>().unwrap();
    let field = |name| said.lines().find_map(|l| l.strip_prefix(name)).map(number);
    let size = field("Block size:").unwrap();
    let (end, cluster) = (
        field("Block count:").unwrap(),
        field("Cluster size:").unwrap_or(size),
    );
    let lists = said
        .lines()
        .filter_map(|l| l.strip_prefix("  Free blocks: "));
    let runs = lists
        .flat_map(|l| l.split(','))
        .filter(|r| !r.trim().is_empty());
    let ranges = runs.map(|run| {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        // The last number is that of a cluster's first block.
        let last = (number(last) + cluster / size).min(end);
        number(first) * size..last * size
    });
    ranges.collect()
}

/// Compares everything that is not free, and calls `look` with each free range of the second.
fn compare(before: &[u8], after: &[u8], free: &[Range<usize>], mut look: impl FnMut(&[u8])) {
    assert_eq!(before.len(), after.len());
    let mut at = 0;
    for range in free {
        assert!(
            before[at..range.start] == after[at..range.start],
            "{at}..{}",
            range.start
        );
        look(&after[range.clone()]);
        at = range.end;
    }
    assert!(before[at..] == after[at..], "{at}..");
}

fn holds_something(block: &&[u8]) -> bool {
    block.iter().any(|b| *b != 0)
}

fn json(args: &[&str]) -> Value {
    serde_json::from_slice(&diorite(args).ok().out).unwrap()
}

#[test]
fn free_blocks_hold_zeros_after_zerofree() {
    let dir = scratch();
    for (kind, words) in KINDS {
        let img = poisoned(dir.path(), words);
        let (before, free) = (fs::read(&img).unwrap(), free(&img));
        let told = json(&["zerofree", "-n", "--json", &img]);
        assert!(
            fs::read(&img).unwrap() == before,
            "{kind}: -n writes nothing"
        );
        let size = usize::try_from(told["block_size"].as_u64().unwrap()).unwrap();
        let all: usize = free.iter().map(Range::len).sum();
        let blocks = free.iter().flat_map(|r| before[r.clone()].chunks(size));
        let nonzero = blocks.filter(holds_something).count();
        assert_eq!(
            (&told["free"], &told["nonzero"]),
            (&(all / size).into(), &nonzero.into()),
            "{kind}"
        );
        assert!(nonzero * size > 4 << 20, "{kind}: {nonzero}");
        let said = diorite(&["zerofree", "-v", &img]).ok().text();
        assert!(
            said.contains(&format!("{nonzero} of {} free blocks held", all / size)),
            "{said}"
        );
        let after = fs::read(&img).unwrap();
        compare(&before, &after, &free, |range| {
            assert!(!holds_something(&range), "{kind}: poison in a free block");
        });
        run("e2fsck", &["-fn", &img]);
        let again = diorite(&["zerofree", &img]).ok();
        assert_eq!(again.text(), "", "{kind}");
        assert_eq!(json(&["zerofree", "--json", &img])["nonzero"], 0, "{kind}");
    }
}

#[test]
fn free_blocks_are_holes_after_sparsify() {
    let dir = scratch();
    for (kind, words) in KINDS {
        let img = poisoned(dir.path(), words);
        let (before, free) = (fs::read(&img).unwrap(), free(&img));
        let all: usize = free.iter().map(Range::len).sum();
        let took = fs::metadata(&img).unwrap().blocks() * 512;
        assert!(took >= 40 << 20, "{kind}: {took}");
        assert_eq!(
            json(&["sparsify", "--json", &img])["discarded"],
            all,
            "{kind}"
        );
        let takes = fs::metadata(&img).unwrap().blocks() * 512;
        let less = took - takes;
        // The host's holes are whole pages, and some free pages were holes before.
        let pages = free
            .iter()
            .flat_map(|r| before[r.clone()].chunks_exact(4096));
        let nonzero = pages.filter(holds_something).count() as u64 * 4096;
        let least = nonzero.saturating_sub(8192 * free.len() as u64);
        assert!(least > 4 << 20 && less >= least, "{kind}: {less} of {all}");
        compare(&before, &fs::read(&img).unwrap(), &free, |range| {
            assert!(!holds_something(&range), "{kind}: poison in a free block");
        });
        run("e2fsck", &["-fn", &img]);
        let said = diorite(&["sparsify", &img]).ok().text();
        assert!(said.starts_with(&format!("{img}: {all} bytes (")), "{said}");
    }
}

#[test]
fn a_part_of_an_image_is_sparsified() {
    let dir = scratch();
    let img = poisoned(dir.path(), "-t ext4 -b 1024");
    let (before, free) = (fs::read(&img).unwrap(), free(&img));
    let inside = |r: &Range<usize>| r.end.min(40 << 20).saturating_sub(r.start.max(20 << 20));
    let part: usize = free.iter().map(inside).sum();
    let args = ["sparsify", "-o", "20M", "-l", "20M", "--json", &img];
    assert_eq!(json(&args)["discarded"], part);
    let after = fs::read(&img).unwrap();
    assert!(before[..20 << 20] == after[..20 << 20] && before[40 << 20..] == after[40 << 20..]);
    let long = |r: &&Range<usize>| r.len() >= 1 << 20;
    let whole: usize = free.iter().filter(long).map(Range::len).sum();
    let some = json(&["sparsify", "-m", "1M", "--json", &img])["discarded"]
        .as_u64()
        .unwrap();
    // A run ends with its group.
    assert!(some > 0 && some <= whole as u64, "{some} of {whole}");
}

/// The journal is replayed before anything is discarded: what it frees is free, what it uses is in use.
#[test]
fn a_journal_is_replayed_first() {
    if !is_root() {
        return skip("mounting needs root");
    }
    let dir = scratch();
    let img = poisoned(dir.path(), "-t ext4");
    let Some(mount) = Mount::new(&img, &dir.path().join("mnt"), "rw") else {
        return;
    };
    fs::write(mount.0.join("new"), noise(5 << 20, 77)).unwrap();
    fs::remove_file(mount.0.join("kept/big")).unwrap();
    run("sync", &["-f", mount.0.to_str().unwrap()]);
    let copy = dir.path().join("copy");
    fs::copy(&img, &copy).unwrap();
    drop(mount);
    let copy = copy.to_str().unwrap();
    assert!(run("dumpe2fs", &["-h", copy]).contains("needs_recovery"));
    for command in ["zerofree", "sparsify"] {
        diorite(&[command, copy]).ok();
        run("e2fsck", &["-fn", copy]);
        let new = diorite(&["cat", copy, "/new"]).ok().out;
        assert!(new == noise(5 << 20, 77), "{command}");
    }
    let (bytes, free) = (fs::read(copy).unwrap(), free(copy));
    compare(&bytes, &bytes, &free, |range| {
        assert!(!holds_something(&range))
    });
}

/// Images inside images: the outer file gets the holes.
#[test]
fn an_image_inside_an_image_gets_holes() {
    let dir = scratch();
    let img = poisoned(dir.path(), "-t ext4");
    let outer = dir.path().join("outer").to_str().unwrap().to_owned();
    diorite(&["mkfs", "-q", &outer, "100M"]).ok();
    diorite(&["put", &outer, &img, "/inner.img"]).ok();
    let blocks = || {
        json(&["stat", "--json", &outer, "/inner.img"])["blocks"]
            .as_u64()
            .unwrap()
    };
    let before = blocks();
    let inner = format!("{outer}:/inner.img");
    let discarded = json(&["sparsify", "--json", &inner])["discarded"]
        .as_u64()
        .unwrap();
    let less = before - blocks();
    // Zeros in a file are not stored by `put`.
    assert!(
        less <= discarded / 512 && less > discarded / 512 * 9 / 10,
        "{less} of {before}"
    );
    run("e2fsck", &["-fn", &outer]);
    diorite(&["check", &inner]).ok();
}

#[test]
fn who_cannot_discard_says_what_can_be_done() {
    let dir = scratch();
    let at = dir.path().join("ramfs");
    fs::create_dir(&at).unwrap();
    let at = at.to_str().unwrap();
    let mounted = is_root()
        && xtask::run::tool("mount")
            .args(["-t", "ramfs", "none", at])
            .status()
            .is_ok_and(|s| s.success());
    if !mounted {
        return skip("mounting a file system without holes needs root");
    }
    let _mount = Mount(at.into());
    let img = format!("{at}/image");
    fs::copy(poisoned(dir.path(), "-t ext4"), &img).unwrap();
    let before = fs::read(&img).unwrap();
    diorite(&["sparsify", &img]).failed(1, "'diorite zerofree' writes zeros");
    assert!(fs::read(&img).unwrap() == before);
    diorite(&["zerofree", &img]).ok();
    assert_eq!(json(&["zerofree", "-n", "--json", &img])["nonzero"], 0);
    run("e2fsck", &["-fn", &img]);
}
