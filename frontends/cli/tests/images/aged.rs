//! Sizes of images in which files have come and gone: `minimise` reaches what it announces, and every size on the way is consistent. And
//! `resize2fs`, which the command takes the place of.

use super::{clean, number, path};
use crate::common::{copied_command, diorite, image, noise, run, scratch};
use std::fs;
use std::path::Path;
use std::process::Command;

/// An image with files of many sizes, of which most were removed, those that are left far apart.
fn aged(dir: &Path, words: &[&str]) -> String {
    let source = dir.join("source");
    if !source.exists() {
        for n in 0..600usize {
            let at = source.join(format!("dir{}", n % 17));
            fs::create_dir_all(&at).unwrap();
            let len = 100 << (n * 7 % 11);
            fs::write(at.join(format!("file{n}")), noise(len + n, n as u64)).unwrap();
        }
    }
    let img = image(dir, "aged", "64M", words, Some(&source));
    let gone = (0..600).filter(|n| n % 3 != 1);
    let script: String = gone
        .map(|n| format!("rm dir{}/file{n}\n", n % 17))
        .collect();
    let file = dir.join("script");
    fs::write(&file, script).unwrap();
    run("debugfs", &["-w", "-f", file.to_str().unwrap(), &img]);
    clean(Path::new(&img));
    img
}

const KINDS: [&[&str]; 4] = [
    &["-t", "ext4", "-b", "1024", "-J", "size=8"],
    &["-t", "ext4", "-b", "1024", "-N", "20000", "-O", "^flex_bg"],
    &[
        "-t", "ext4", "-b", "4096", "-g", "4096", "-N", "40000", "-J", "size=8",
    ],
    &["-t", "ext3", "-b", "1024", "-J", "size=4"],
];

/// The defect: the tables of all groups of a flexible group stay until those groups are gone, and 64 steps of some KiB did not get there.
#[test]
fn many_tables_are_left_behind() {
    let dir = scratch();
    let words = ["-t", "ext4", "-b", "1024", "-O", "^has_journal"];
    for size in ["77M", "200M"] {
        let img = image(dir.path(), "tables", size, &words, None);
        let done = diorite(&["minimise", "--json", &img]).ok().text();
        assert!(number(&done, "blocks") < 1024, "{size}: {done}");
        clean(Path::new(&img));
    }
}

/// The defects: the journal moved as a whole, so it needed as much free space as it has blocks, and what was announced was not reached;
/// and of a journal in several pieces, some blocks stayed in use that nobody owned, which ended the next round.
#[test]
fn an_aged_image_becomes_as_small_as_it_was_said() {
    let dir = scratch();
    for words in KINDS {
        let img = aged(dir.path(), words);
        let said = diorite(&["minimise", "-n", "--json", &img]).ok().text();
        let done = diorite(&["minimise", "--json", &img]).ok().text();
        let (said, done) = (number(&said, "blocks"), number(&done, "blocks"));
        assert!(
            done <= said && said <= done + done / 20,
            "{words:?}: {said}, {done}"
        );
        clean(Path::new(&img));
        let again = diorite(&["minimise", "--json", &img]).ok().text();
        assert!(number(&again, "blocks") <= done, "{words:?}");
        clean(Path::new(&img));
    }
}

#[test]
fn every_size_on_the_way_is_consistent() {
    let dir = scratch();
    for words in KINDS {
        let img = aged(dir.path(), words);
        let least = number(
            &diorite(&["minimise", "-n", "--json", &img]).ok().text(),
            "bytes",
        );
        for part in [6, 5, 4, 3, 2, 1] {
            let size = least + least * part / 8;
            if size < fs::metadata(&img).unwrap().len() {
                diorite(&["shrink", "-q", &img, &size.to_string()]).ok();
                clean(Path::new(&img));
            }
        }
    }
}

/// The file becomes no longer than is of use, and not at all for a size that cannot be.
#[test]
fn a_file_grows_no_further_than_its_file_system() {
    let dir = scratch();
    let words = ["-t", "ext4", "-b", "1024", "-O", "^resize_inode,^flex_bg"];
    let img = image(dir.path(), "img", "64M", &words, None);
    let len = || fs::metadata(&img).unwrap().len();
    let before = len();
    for size in ["100T", "8000000T"] {
        assert_eq!(diorite(&["grow", &img, size]).code, Some(1), "{size}");
        assert_eq!(len(), before, "{size}");
    }
    // A group of its own would have no room for anything: 8192 blocks behind the boot block are whole groups.
    let whole = (1 + 9 * 8192) * 1024;
    let theirs = dir.path().join("theirs");
    fs::copy(&img, &theirs).unwrap();
    diorite(&["grow", &img, &(whole + (20 << 10)).to_string()]).ok();
    assert_eq!(len(), whole);
    clean(Path::new(&img));
    // The defect: resize2fs leaves such a file longer, with a digit at its end, and it was taken for other data.
    let blocks = (whole >> 10) + 20;
    run("resize2fs", &["-f", path(&theirs), &blocks.to_string()]);
    assert!(fs::metadata(&theirs).unwrap().len() > whole);
    diorite(&["grow", path(&theirs), "1G"]).ok();
    clean(&theirs);
    // But for that digit anything is.
    diorite(&["shrink", path(&theirs), "64M"]).ok();
    let mut bytes = fs::read(&theirs).unwrap();
    bytes.extend([0, b'1']);
    fs::write(&theirs, bytes).unwrap();
    let refused = diorite(&["grow", path(&theirs), "1G"]);
    assert_eq!(refused.code, Some(1), "{}", refused.err);
}

/// The defect: blocks stayed free for maps that did not need them, and `resize2fs -M`, repeated until it ends, made images smaller.
#[test]
fn it_becomes_as_small_as_by_resize2fs() {
    let dir = scratch();
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for n in 0..12u8 {
        let bytes = vec![n + 1; usize::from(n) * 70_000];
        fs::write(tree.join(format!("f{n}")), bytes).unwrap();
    }
    for words in [
        &["-t", "ext4", "-b", "4096", "-J", "size=4"][..],
        &["-t", "ext4", "-b", "4096", "-O", "^flex_bg", "-J", "size=4"],
        &["-t", "ext2", "-b", "1024"],
    ] {
        let img = image(dir.path(), "img", "200M", words, Some(&tree));
        let theirs = dir.path().join("theirs");
        fs::copy(&img, &theirs).unwrap();
        let len = |path: &Path| fs::metadata(path).unwrap().len();
        loop {
            let before = len(&theirs);
            run("resize2fs", &["-f", "-M", path(&theirs)]);
            if len(&theirs) >= before {
                break;
            }
        }
        diorite(&["minimise", "-q", &img]).ok();
        clean(Path::new(&img));
        let (ours, theirs) = (len(Path::new(&img)), len(&theirs));
        assert!(
            ours <= theirs,
            "{words:?}: {ours}, and {theirs} by resize2fs"
        );
    }
}

/// The answer of a program, and of the command in its place, to the same words about copies of one image.
struct Both<'a> {
    dir: &'a Path,
    before: &'a str,
    command: String,
}

impl Both<'_> {
    /// Exit codes, standard output, standard error; the program's own first.
    fn of(&self, words: &[&str]) -> [(Option<i32>, String, String); 2] {
        [xtask::run::tool("resize2fs"), Command::new(&self.command)].map(|mut program| {
            let img = self.dir.join("resized");
            fs::copy(self.before, &img).unwrap();
            let out = program.args(words).current_dir(self.dir).output().unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            if out.status.success() {
                clean(&img);
            }
            (out.status.code(), text(&out.stdout), text(&out.stderr))
        })
    }
}

#[test]
fn it_takes_the_place_of_resize2fs() {
    let dir = scratch();
    let before = image(
        dir.path(),
        "img",
        "32M",
        &["-t", "ext4", "-b", "1024"],
        None,
    );
    let link = dir.path().join("resize2fs");
    std::os::unix::fs::symlink(copied_command(dir.path()), &link).unwrap();
    let both = Both {
        dir: dir.path(),
        before: &before,
        command: path(&link).to_owned(),
    };
    let img = "resized";
    for words in [
        &[img, "48M"][..],
        &[img, "49152"],
        &["-f", img, "98304s"],
        &["-p", img, "49152k"],
        &[img, "24M"],
        &[img, "20000"],
        &[img],
        &[img, "32M"],
        &["-b", img],
        &["-s", img],
        &["-s", "-p", img],
        &["-d", "0", img, "48M"],
        &["-S", "16", img, "48M"],
        &[img, "nonsense"],
        &[img, "5MB"],
        &[img, "1M"],
        &["-Z", img],
        &["missing", "20M"],
        &[],
    ] {
        let [theirs, ours] = both.of(words);
        assert_eq!(ours.0, theirs.0, "{words:?}: {} {}", ours.1, ours.2);
        if theirs.0 == Some(0) && !words.contains(&"-p") {
            assert_eq!(ours.1, theirs.1, "{words:?}");
        }
        let told = [
            "Nothing to do!",
            "already 64-bit",
            "Invalid new size",
            "smaller than minimum",
        ];
        for told in told.into_iter().filter(|told| theirs.2.contains(told)) {
            assert!(ours.2.contains(told), "{words:?}: {}", ours.2);
        }
    }
    let [_, (code, said, _)] = both.of(&["-P", img]);
    let least: u64 = said.trim().rsplit(' ').next().unwrap().parse().unwrap();
    assert_eq!(code, Some(0));
    assert_eq!(
        said,
        format!("Estimated minimum size of the filesystem: {least}\n")
    );
    let [_, (code, said, _)] = both.of(&["-M", img]);
    assert_eq!((code, said.contains("is now")), (Some(0), true), "{said}");
    run("debugfs", &["-w", "-R", "ssv state 2", &before]);
    let [theirs, ours] = both.of(&[img, "48M"]);
    assert_eq!((ours.0, theirs.0), (Some(1), Some(1)));
    assert!(
        ours.2.contains("Please run 'e2fsck -f resized' first."),
        "{}",
        ours.2
    );
}
