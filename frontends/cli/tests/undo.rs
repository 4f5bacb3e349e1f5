//! Undo files: what each command with -z changes, `undo` and e2undo take back to the byte; and undo files of e2fsprogs.

use crate::common::{Ran, debugfs, diorite, image, run, scratch};
use std::path::{Path, PathBuf};

struct Stand {
    dir: tempfile::TempDir,
    before: Vec<u8>,
    img: String,
    undo: String,
}

impl Stand {
    fn new(size: &str, args: &[&str]) -> Stand {
        let dir = scratch();
        let img = image(dir.path(), "a b'c.img", size, args, None);
        let undo = dir.path().join("undo").to_str().unwrap().to_owned();
        let before = std::fs::read(&img).unwrap();
        Stand {
            dir,
            before,
            img,
            undo,
        }
    }

    /// From now on this is what it was before.
    fn settle(&mut self) {
        self.before = std::fs::read(&self.img).unwrap();
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.img).unwrap()
    }

    fn copy(&self, name: &str) -> PathBuf {
        let to = self.dir.path().join(name);
        std::fs::copy(&self.img, &to).unwrap();
        to
    }

    fn is_as_before(&self, what: &str) {
        assert!(self.bytes() == self.before, "{what}");
    }

    /// Both programs put it back.
    fn is_undone(&self, what: &str) {
        assert!(self.bytes() != self.before, "{what}: nothing was changed");
        let theirs = self.copy("theirs");
        let header = run("e2undo", &[&self.undo, theirs.to_str().unwrap()]);
        let mut found = std::fs::read(&theirs).unwrap();
        // e2undo leaves the length as it is.
        found.resize(self.before.len(), 0);
        assert!(found == self.before, "{what}, e2undo: {header}");
        let changed = self.bytes();
        diorite(&["undo", "-n", &self.undo, &self.img]).ok();
        assert!(self.bytes() == changed, "{what}: -n");
        diorite(&["undo", &self.undo, &self.img]).ok();
        self.is_as_before(what);
        diorite(&["undo", &self.undo, &self.img]).failed(1, "another superblock");
        std::fs::remove_file(&self.undo).unwrap();
    }
}

/// Runs a command that has an undo file: it says how it is undone.
#[track_caller]
fn changes(args: &[&str]) -> Ran {
    let ran = diorite(args);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let last = ran.err.lines().last().unwrap_or_default();
    assert!(
        last.contains("to undo this, run: diorite undo "),
        "{}",
        ran.err
    );
    ran
}

const KINDS: [&[&str]; 2] = [
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "4096", "-O", "^has_journal"],
];

#[test]
fn each_command_is_undone_to_the_byte() {
    for kind in KINDS {
        let mut stand = Stand::new("16M", kind);
        let (img, undo) = (stand.img.clone(), stand.undo.clone());
        let script = stand.dir.path().join("script");
        std::fs::write(&script, "mkdir /x\nln -s /x /y\n").unwrap();
        let script = script.to_str().unwrap();
        let commands: [&[&str]; 6] = [
            &["tune", "-z", &undo, "-L", "neu", &img],
            &["tune", "-z", &undo, "-O", "^metadata_csum", &img],
            &["edit", "-z", &undo, "-f", script, &img],
            &["grow", "-z", &undo, &img, "40M"],
            &["mkfs", "-q", "-F", "-z", &undo, "-b", "2048", &img],
            &["mkfs", "-q", "-F", "-z", &undo, &img, "20M"],
        ];
        for command in commands {
            let told = changes(command);
            let quoted = img.replace('\'', r"'\''");
            let hint = format!("diorite undo {undo} '{quoted}'");
            assert!(told.err.contains(&hint), "{}", told.err);
            stand.is_undone(&command.join(" "));
        }
        // What was behind the new end is cut off, and comes back.
        diorite(&["grow", "-q", &img, "40M"]).ok();
        let end = std::fs::File::options().write(true).open(&img).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&end, &[7; 5000], 30 << 20).unwrap();
        stand.settle();
        changes(&["shrink", "-z", &undo, &img, "12M"]);
        assert!(stand.bytes().len() < 13 << 20);
        stand.is_undone("shrink");
    }
}

#[test]
fn a_repair_is_undone() {
    let mut stand = Stand::new("16M", &["-t", "ext4", "-O", "^metadata_csum,^uninit_bg"]);
    debugfs(&stand.img, "set_bg 0 free_blocks_count 5");
    stand.settle();
    let ran = diorite(&["check", "--repair", "-z", &stand.undo, &stand.img]);
    assert!(
        ran.code == Some(1) && ran.text().contains("corrected"),
        "{}",
        ran.err
    );
    stand.is_undone("repair");
}

/// diorite and e2fsprogs continue each other's undo files: all changes are undone at once.
#[test]
fn undo_files_are_continued() {
    for kind in KINDS {
        for ours_first in [true, false] {
            let stand = Stand::new("16M", kind);
            let (img, undo) = (&*stand.img, &*stand.undo);
            for step in 0..4 {
                let label = format!("step {step}");
                match (step % 2 == 0) == ours_first {
                    true => drop(diorite(&[
                        "tune", "-z", undo, "-L", &label, "-I", "512", img,
                    ])),
                    false => drop(run("tune2fs", &["-z", undo, "-L", &label, "-m", "3", img])),
                }
            }
            stand.is_undone("continued");
        }
    }
}

#[test]
fn undo_files_of_e2fsprogs_are_taken() {
    let stand = Stand::new("16M", KINDS[0]);
    let (img, undo) = (&*stand.img, &*stand.undo);
    run("mke2fs", &["-q", "-F", "-z", undo, "-b", "4096", img]);
    stand.is_undone("mke2fs");
    run("tune2fs", &["-z", undo, "-O", "^has_journal", img]);
    stand.is_undone("tune2fs");
    debugfs(img, "freeb 900 4");
    let stand = Stand {
        before: stand.bytes(),
        ..stand
    };
    let fixed = xtask::run::tool("e2fsck")
        .args(["-fy", "-z", &stand.undo, &stand.img])
        .output();
    assert_eq!(fixed.unwrap().status.code(), Some(1));
    stand.is_undone("e2fsck");
    // The offset is in the undo file.
    let whole = stand.dir.path().join("whole");
    std::fs::write(&whole, vec![3; 20 << 20]).unwrap();
    let before = std::fs::read(&whole).unwrap();
    let whole = whole.to_str().unwrap();
    for ours in [true, false] {
        let words = [
            "-q",
            "-F",
            "-z",
            &stand.undo,
            "-E",
            "offset=1048576",
            whole,
            "16M",
        ];
        match ours {
            true => drop(changes(&[&["mkfs"], &words[..]].concat())),
            false => drop(run("mke2fs", &words)),
        }
        assert!(std::fs::read(whole).unwrap() != before);
        match ours {
            true => drop(run("e2undo", &[&stand.undo, whole])),
            false => drop(diorite(&["undo", &stand.undo, whole]).ok()),
        }
        assert!(std::fs::read(whole).unwrap() == before, "{ours}");
        std::fs::remove_file(&stand.undo).unwrap();
    }
}

/// What is refused is refused before anything is changed.
#[test]
fn other_files_are_refused() {
    let stand = Stand::new("16M", KINDS[0]);
    let img = &*stand.img;
    let other = Stand::new("16M", KINDS[0]);
    changes(&["tune", "-z", &other.undo, "-L", "other", &other.img]);
    let text = stand.dir.path().join("text");
    std::fs::write(&text, "no undo file ".repeat(100)).unwrap();
    let fifo = stand.dir.path().join("fifo");
    run("mkfifo", &[&fifo]);
    let cases: [(&Path, &str); 4] = [
        (Path::new(&other.undo), "another device"),
        (&text, "no undo file"),
        (&fifo, "no regular file"),
        (Path::new(img), "the image itself"),
    ];
    for (file, words) in cases {
        let file = file.to_str().unwrap();
        diorite(&["tune", "-z", file, "-L", "neu", img]).failed(1, words);
        stand.is_as_before(words);
        diorite(&["undo", file, img]).failed(1, "");
        stand.is_as_before(words);
    }
    // Forced, it is put back whatever is there.
    let forced = diorite(&["undo", "-f", &other.undo, img]);
    assert_eq!(forced.code, Some(0), "{}", forced.err);
    assert!(forced.err.contains("warning: "), "{}", forced.err);
    assert!(stand.bytes() != stand.before);
}

/// The defect: the undo file that is read was recognised by its name alone, and `-z` with another name of it wrote into it.
#[test]
fn the_undo_file_that_is_read_is_not_written() {
    let stand = Stand::new("16M", KINDS[0]);
    changes(&["tune", "-z", &stand.undo, "-L", "neu", &stand.img]);
    let link = stand.dir.path().join("link");
    std::fs::hard_link(&stand.undo, &link).unwrap();
    let (kept, changed) = (std::fs::read(&link).unwrap(), stand.bytes());
    for name in [&*stand.undo, link.to_str().unwrap()] {
        let ran = diorite(&["undo", "-z", name, &stand.undo, &stand.img]);
        ran.failed(1, "names the undo file that is read");
        assert!(
            std::fs::read(&link).unwrap() == kept && stand.bytes() == changed,
            "{name}"
        );
    }
}

/// The length of a file that somebody has made longer since stays; undo undoes itself.
#[test]
fn what_others_appended_stays() {
    let stand = Stand::new("16M", KINDS[0]);
    let (img, undo) = (&*stand.img, &*stand.undo);
    changes(&["grow", "-q", "-z", undo, img, "20M"]);
    let grown = stand.bytes();
    let own = stand.dir.path().join("own");
    let own = own.to_str().unwrap();
    changes(&["undo", "-z", own, undo, img]);
    stand.is_as_before("once");
    diorite(&["undo", own, img]).ok();
    assert!(stand.bytes() == grown);
    let mut longer = grown.clone();
    longer.extend([9; 8192]);
    std::fs::write(img, &longer).unwrap();
    diorite(&["undo", undo, img]).ok();
    let now = stand.bytes();
    assert!(now[..stand.before.len()] == stand.before);
    assert!(now.len() == longer.len() && now[grown.len()..] == [9; 8192]);
}

/// The program takes e2undo's place.
#[test]
fn it_is_e2undo_by_name() {
    let stand = Stand::new("16M", KINDS[0]);
    let name = stand.dir.path().join("e2undo");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_diorite"), &name).unwrap();
    run("tune2fs", &["-z", &stand.undo, "-L", "neu", &stand.img]);
    let header = run(&name.to_string_lossy(), &["-h", &stand.undo, &stand.img]);
    assert!(header.contains("finished: yes"), "{header}");
    run(&name.to_string_lossy(), &["-v", &stand.undo, &stand.img]);
    stand.is_as_before("by name");
}

/// An image in a volume is watched as one of the host is.
#[test]
fn an_image_in_a_volume_is_undone() {
    let dir = scratch();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (outer, inner, undo) = (path("outer.img"), path("in.img"), path("u"));
    diorite(&["mkfs", "-q", &outer, "64M"]).ok();
    diorite(&["mkfs", "-q", "-L", "keep", &inner, "8M"]).ok();
    diorite(&["put", &outer, &inner, "/in"]).ok();
    let nested = format!("{outer}:/in");
    let commands: [&[&str]; 3] = [
        &["mkfs", "-F", "-q", "-z", &undo, &nested],
        &["tune", "-z", &undo, "-L", "neu", &nested],
        &["tune", "-z", &undo, "-O", "^has_journal", &nested],
    ];
    for command in commands {
        changes(command);
        diorite(&["undo", &undo, &nested]).ok();
        let now = path("now");
        diorite(&["get", &outer, "/in", &now]).ok();
        assert!(
            std::fs::read(&now).unwrap() == std::fs::read(&inner).unwrap(),
            "{command:?}"
        );
        std::fs::remove_file(&now).unwrap();
        std::fs::remove_file(&undo).unwrap();
    }
}

/// A mkfs that is refused leaves the file as it was, its length too.
#[test]
fn a_refused_mkfs_makes_nothing_longer() {
    let stand = Stand::new("16M", KINDS[0]);
    let (img, undo) = (&*stand.img, &*stand.undo);
    let other = Stand::new("16M", KINDS[0]);
    changes(&["tune", "-z", &other.undo, "-L", "other", &other.img]);
    for (file, words) in [(&*other.undo, "another device"), (img, "the image itself")] {
        diorite(&["mkfs", "-F", "-q", "-z", file, img, "40M"]).failed(1, words);
        stand.is_as_before(words);
    }
    assert!(!Path::new(undo).exists());
}

/// The same undo file goes on after somebody has appended to the image: undo cuts nothing then.
#[test]
fn what_others_appended_between_two_changes_stays() {
    let stand = Stand::new("16M", KINDS[0]);
    let (img, undo) = (&*stand.img, &*stand.undo);
    for first in [
        &["tune", "-z", undo, "-L", "one", img][..],
        &["grow", "-q", "-z", undo, img, "20M"],
    ] {
        changes(first);
        let mut longer = stand.bytes();
        let len = longer.len();
        longer.extend([9; 8192]);
        std::fs::write(img, &longer).unwrap();
        changes(&["tune", "-z", undo, "-L", "two", img]);
        let ran = diorite(&["undo", undo, img]);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        let is_said = ran.err.contains("the undo file says no length");
        assert_eq!(is_said, first[0] == "grow", "{}", ran.err);
        let now = stand.bytes();
        assert!(now[..stand.before.len()] == stand.before);
        assert!(now.len() == longer.len() && now[len..] == [9; 8192]);
        std::fs::write(img, &stand.before).unwrap();
        std::fs::remove_file(undo).unwrap();
    }
}

/// A file of any length gets just that again.
#[test]
fn lengths_are_kept_to_the_byte() {
    let dir = scratch();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (img, undo) = (path("a.img"), path("u"));
    for (len, size) in [
        (5000, Some("16M")),
        ((16 << 20) + 100, None),
        (16_777_316, Some("20M")),
    ] {
        let before: Vec<u8> = (0..len).map(|n: usize| (n % 251) as u8).collect();
        std::fs::write(&img, &before).unwrap();
        let mut words = vec!["mkfs", "-F", "-q", "-z", &undo, &img];
        words.extend(size);
        changes(&words);
        diorite(&["undo", &undo, &img]).ok();
        assert!(std::fs::read(&img).unwrap() == before, "{len}");
        std::fs::remove_file(&undo).unwrap();
    }
}

/// Two commands do not write to one undo file at once.
#[test]
fn an_undo_file_in_use_is_refused() {
    let stand = Stand::new("16M", KINDS[0]);
    for text in ["", "some"] {
        std::fs::write(&stand.undo, text).unwrap();
        let held = std::fs::File::open(&stand.undo).unwrap();
        held.lock().unwrap();
        let ran = diorite(&["tune", "-z", &stand.undo, "-L", "neu", &stand.img]);
        ran.failed(1, "another command is writing to it");
        stand.is_as_before("in use");
    }
}

/// An undo file whose checksums are all right, but whose length is not that of the file system that it brings back.
fn with_length(undo: &str, before: u64) {
    let mut bytes = std::fs::read(undo).unwrap();
    bytes[456..464].copy_from_slice(&before.to_le_bytes());
    let crc = diorite_format::csum::crc32c(!0, &bytes[..508]);
    bytes[508..512].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(undo, bytes).unwrap();
}

/// The defect: such an undo file cut the image, to its last piece or to nothing.
#[test]
fn no_undo_file_cuts_a_file_system() {
    let mut stand = Stand::new("16M", KINDS[1]);
    let (img, undo) = (stand.img.clone(), stand.undo.clone());
    for (command, len) in [
        (&["tune", "-z", &undo, "-L", "neu", &img][..], 8 << 20),
        (&["grow", "-q", "-z", &undo, &img, "20M"], 15 << 20),
    ] {
        changes(command);
        stand.settle();
        with_length(&undo, len);
        let ran = diorite(&["undo", &undo, &img]);
        ran.failed(1, "its superblock of then says 16777216");
        stand.is_as_before("a piece");
        std::fs::remove_file(&undo).unwrap();
    }
    // No piece at all.
    changes(&["grow", "-q", "-z", &undo, &img, "24M"]);
    stand.settle();
    let mut bytes = std::fs::read(&undo).unwrap();
    bytes[8..16].fill(0);
    std::fs::write(&undo, bytes).unwrap();
    for (len, words) in [(1024, "too few"), (8 << 20, "says 25165824")] {
        with_length(&undo, len);
        diorite(&["undo", &undo, &img]).failed(1, words);
        stand.is_as_before(words);
    }
}

/// The defect: `resize2fs -z` cuts the file, and what was behind the cut is not in its undo file; undo put a superblock of 64M back on 20M.
#[test]
fn a_shrink_of_e2fsprogs_is_not_undone_on_what_it_left() {
    for unit in ["1024", "4096"] {
        let mut stand = Stand::new("64M", &["-t", "ext4", "-b", unit]);
        let (img, undo) = (stand.img.clone(), stand.undo.clone());
        run("resize2fs", &["-z", &undo, &img, "20M"]);
        stand.settle();
        assert_eq!(stand.before.len(), 20 << 20);
        let blocks = format!(
            "a file system of {} blocks (67108864 bytes)",
            (64 << 20) / unit.parse::<u64>().unwrap()
        );
        for options in [&[][..], &["-n"], &["-v"]] {
            let ran = diorite(&[&["undo"], options, &[&undo, &img]].concat());
            ran.failed(1, &blocks);
            assert!(
                ran.err
                    .contains("has 20971520 bytes, and the undo file says no length"),
                "{}",
                ran.err
            );
            assert!(ran.err.contains("nothing was changed"), "{}", ran.err);
            stand.is_as_before("refused");
        }
        let forced = diorite(&["undo", "-f", &undo, &img]);
        assert_eq!(forced.code, Some(0), "{}", forced.err);
        assert!(
            forced.err.contains("warning: ") && forced.err.contains(&blocks),
            "{}",
            forced.err
        );
        let theirs = stand.copy("theirs");
        std::fs::write(&theirs, &stand.before).unwrap();
        run("e2undo", &[&*undo, theirs.to_str().unwrap()]);
        assert!(std::fs::read(&theirs).unwrap() == stand.bytes());
    }
}

/// A device of the old length has all of it: nothing was cut off.
#[test]
fn a_shrink_of_e2fsprogs_is_undone_on_a_device_of_the_old_length() {
    let stand = Stand::new("64M", KINDS[0]);
    let (img, undo) = (&*stand.img, &*stand.undo);
    run("resize2fs", &["-z", undo, img, "20M"]);
    let file = std::fs::File::options().write(true).open(img).unwrap();
    file.set_len(64 << 20).unwrap();
    let ran = diorite(&["undo", undo, img]);
    assert_eq!((ran.code, &*ran.err), (Some(0), ""));
    xtask::run::check(Path::new(img)).unwrap();
}

/// As with e2undo the file keeps the length that it got; that is said, once.
#[test]
fn a_file_that_resize2fs_made_longer_stays_so() {
    let stand = Stand::new("16M", KINDS[0]);
    let (img, undo) = (&*stand.img, &*stand.undo);
    run("resize2fs", &["-z", undo, img, "40M"]);
    let ran = diorite(&["undo", undo, img]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let said = "the file stays 41943040 bytes long, of which the file system has 16777216";
    assert!(
        ran.err.contains(said) && ran.err.lines().count() == 1,
        "{}",
        ran.err
    );
    let now = stand.bytes();
    assert!(now[..stand.before.len()] == stand.before && now.len() == 40 << 20);
    xtask::run::check(Path::new(img)).unwrap();
}

/// Our own undo files say the length: of a file that somebody has cut since, and of one that was too short before.
#[test]
fn lengths_that_are_said_are_believed() {
    let stand = Stand::new("32M", KINDS[1]);
    let (img, undo) = (&*stand.img, &*stand.undo);
    changes(&["tune", "-z", undo, "-L", "neu", img]);
    let file = std::fs::File::options().write(true).open(img).unwrap();
    file.set_len(24 << 20).unwrap();
    // The superblock says 32M before the change and after it: what is lost was lost without it.
    diorite(&["undo", undo, img]).ok();
    let now = stand.bytes();
    assert!(now[..] == stand.before[..now.len()]);
}

/// The defects: an undo file that cannot be written was left behind with nothing in it, and a failed write was named before the reason.
#[test]
fn a_full_host_leaves_no_empty_undo_file() {
    let stand = Stand::new("16M", KINDS[1]);
    let img = &*stand.img;
    let small = stand.dir.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let undo = small.join("undo").to_str().unwrap().to_owned();
    let words = ["tune", "-z", &undo, "-L", "neu", img];
    // A directory that is not there any more, and one that takes nothing.
    let missing = format!("{undo}/u");
    let ran = diorite(&["tune", "-z", &missing, "-L", "neu", img]);
    ran.failed(1, "cannot be made: No such file or directory");
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    stand.is_as_before("missing");
    if !crate::common::is_root() {
        return crate::common::skip("only root makes a file system of one page");
    }
    // Of four blocks of the first piece some are missing.
    for size in ["4k", "8k", "12k"] {
        let made = xtask::run::tool("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(&small)
            .status();
        if !made.is_ok_and(|status| status.success()) {
            return crate::common::skip("no tmpfs can be mounted");
        }
        let ran = diorite(&words);
        let left = std::fs::read_dir(&small).unwrap().count();
        run("umount", &[&small]);
        stand.is_as_before(size);
        ran.failed(1, "cannot be written: No space left on device");
        assert_eq!(
            (ran.err.lines().count(), left),
            (1, 0),
            "{size}: {}",
            ran.err
        );
    }
}
