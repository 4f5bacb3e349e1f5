//! Verdicts of `check` and of `e2fsck -fn` over images with one oddity each: no false alarm, and no miss.
//!
//! Input: images of mke2fs, changed by debugfs. Output: assertions. Invariant: both tools are asked about the same bytes. Limits: only
//! oddities about which the kernel agrees with e2fsck.

use crate::common::{debugfs, diorite, image, patch, run, scratch};
use std::path::{Path, PathBuf};

const CLEAN: bool = true;
const BAD: bool = false;

/// What both say about an image: whether it is clean.
fn judge(img: &str, expected: bool, what: &str) {
    let mut tool = xtask::run::tool("e2fsck");
    let theirs = tool.args(["-fn", img]).output().unwrap();
    let words = String::from_utf8_lossy(&theirs.stdout).into_owned();
    assert_eq!(theirs.status.code() == Some(0), expected, "{what}: {words}");
    let ours = diorite(&["check", img]);
    let code = if expected { 0 } else { 4 };
    assert_eq!(ours.code, Some(code), "{what}: {}", ours.text());
}

/// Has e2fsck correct counts.
fn repaired(img: &str) {
    let ran = xtask::run::tool("e2fsck").args(["-fy", img]).output();
    assert_eq!(ran.unwrap().status.code(), Some(1));
}

/// A kind of image, made once.
struct Base {
    dir: tempfile::TempDir,
    from: String,
}

impl Base {
    fn new(args: &[&str]) -> Base {
        let dir = scratch();
        let source = dir.path().join("tree");
        std::fs::create_dir(&source).unwrap();
        std::os::unix::fs::symlink("f", source.join("l")).unwrap();
        std::fs::write(source.join("f"), [7; 50_000]).unwrap();
        std::fs::write(source.join("g"), [8; 3000]).unwrap();
        let from = image(dir.path(), "base", "16M", args, Some(&source));
        Base { dir, from }
    }

    fn copy(&self) -> String {
        let to: PathBuf = self.dir.path().join("copy");
        std::fs::copy(&self.from, &to).unwrap();
        to.to_str().unwrap().to_owned()
    }

    /// Each row: requests to debugfs, separated by semicolons, and whether the image is clean then.
    fn rows(&self, rows: &[(&str, bool)]) {
        for (requests, expected) in rows {
            let img = self.copy();
            requests.split("; ").for_each(|r| _ = debugfs(&img, r));
            judge(&img, *expected, requests);
        }
    }

    fn ino(&self, path: &str) -> u32 {
        let said = run("debugfs", &["-R", &format!("stat {path}"), &self.from]);
        let mut words = said.split_whitespace().skip_while(|w| *w != "Inode:");
        words.nth(1).unwrap().parse().unwrap()
    }
}

/// Defect: each row that is clean here was called damage.
#[test]
fn remnants_in_the_superblock() {
    Base::new(&["-t", "ext4", "-b", "1024", "-O", "^64bit"]).rows(&[
        ("ssv desc_size 64", CLEAN),
        ("ssv desc_size 1024", CLEAN),
        ("ssv desc_size 48", BAD),
        ("ssv desc_size 2048", BAD),
        ("ssv usr_quota_inum 3", CLEAN),
        ("ssv usr_quota_inum 5", CLEAN),
        ("ssv grp_quota_inum 99999", CLEAN),
        ("ssv usr_quota_inum 13", BAD),
        ("feature ^has_journal", CLEAN),
        ("feature ^has_journal; ssv journal_inum 0", BAD),
        ("feature ^has_journal; ssv journal_inum 13", BAD),
        ("feature ^has_journal; ssv journal_inum 9999999", BAD),
    ]);
}

/// Defect: a mark that nobody minds on a volume without checksums of descriptors was called damage, and a journal that must be replayed and
/// that the volume does not have was not told.
#[test]
fn marks_without_meaning() {
    Base::new(&["-t", "ext2", "-b", "1024"]).rows(&[
        ("set_bg 0 flags 2", CLEAN),
        ("set_bg 1 flags 3", CLEAN),
        ("set_bg 0 flags 1", BAD),
        ("set_bg 0 itable_unused 9", CLEAN),
        ("feature needs_recovery", BAD),
    ]);
}

/// Inodes 1 and 3 to 10: of one that is not in use e2fsck looks at little. Defect: the others were judged by one rule.
#[test]
fn reserved_inodes() {
    Base::new(&["-t", "ext2", "-b", "1024"]).rows(&[
        ("sif <9> size 5", CLEAN),
        ("sif <9> block[0] 700", CLEAN),
        ("sif <9> blocks 2", BAD),
        ("sif <9> links_count 1", CLEAN),
        ("sif <9> mode 0100644", BAD),
        ("sif <10> mode 0100644", BAD),
        ("sif <10> size 5", CLEAN),
        ("sif <10> file_acl 700", BAD),
        ("sif <3> size 5", CLEAN),
        ("sif <3> mode 040755", CLEAN),
        ("sif <3> file_acl 5", CLEAN),
        ("sif <3> block[0] 700", BAD),
        ("sif <5> mode 0120777", CLEAN),
        ("sif <5> mode 040755", BAD),
        ("sif <8> links_count 1", BAD),
        ("sif <8> flags 0x1000", CLEAN),
        ("sif <8> mode 0100644; sif <8> links_count 1", BAD),
        ("sif <1> mode 0100644", BAD),
        ("sif <1> uid 5", BAD),
    ]);
}

/// Bad blocks in the volume's own structures. Defect: each was called a block that two users have.
#[test]
fn bad_blocks_in_structures() {
    let list = "sif <1> blocks 2; sif <1> size 1024; sif <1> block[0] ";
    let base = Base::new(&["-t", "ext4", "-b", "1024"]);
    let said = run("dumpe2fs", &[&base.from]);
    let places: Vec<&str> = said
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Inode table at "))
        .map(|rest| rest.split('-').next().unwrap())
        .collect();
    let data = debugfs(&base.from, "bmap f 5");
    for (block, expected) in [
        ("8193", CLEAN),
        ("8194", CLEAN),
        ("5", CLEAN),
        (places[1], CLEAN),
        (places[0], BAD),
        ("2", BAD),
        (data.trim(), BAD),
    ] {
        base.rows(&[(&format!("{list}{block}"), expected)]);
    }
}

/// Defect: inodes of the Hurd have the upper half of the mode where those of Linux have a part of the attributes' block, and a block of
/// their own for a translator: damage was called what a Hurd had made.
#[test]
fn inodes_of_the_hurd() {
    let base = Base::new(&["-b", "1024", "-o", "hurd"]);
    base.rows(&[("sif f file_acl_hi 1", CLEAN), ("sif f translator 5", BAD)]);
    let img = base.copy();
    debugfs(&img, "setb 9000");
    debugfs(&img, "sif f translator 9000");
    judge(&img, BAD, "a translator that the group does not count");
    repaired(&img);
    assert!(debugfs(&img, "testb 9000").contains("marked in use"));
    judge(&img, CLEAN, "a translator");
}

/// Defect: a wrong checksum of an inode that is not in use was missed.
#[test]
fn a_deleted_inode_has_a_checksum() {
    for size in ["128", "256"] {
        let base = Base::new(&["-t", "ext4", "-b", "1024", "-I", size]);
        let (img, ino) = (base.copy(), base.ino("g"));
        debugfs(&img, "rm g");
        run("e2fsck", &["-fn", &img]);
        judge(&img, CLEAN, "deleted");
        let said = debugfs(&img, &format!("imap <{ino}>"));
        let (_, place) = said.trim().split_once("located at block ").unwrap();
        let (block, offset) = place.split_once(", offset 0x").unwrap();
        let block: usize = block.parse().unwrap();
        let offset = usize::from_str_radix(offset, 16).unwrap();
        let mut bytes = std::fs::read(&img).unwrap();
        bytes[block * 1024 + offset + 0x7C] ^= 0x55;
        std::fs::write(&img, bytes).unwrap();
        judge(&img, BAD, "a wrong checksum");
    }
}

/// Marks a file as encrypted with an encryption context. The volume must be without checksums.
fn encrypt(img: &str, path: &str, dir: &Path) {
    let mut context = vec![2, 1, 4, 3];
    context.extend([0x5A; 36]);
    let file = dir.join("context");
    std::fs::write(&file, &context).unwrap();
    debugfs(img, &format!("ea_set -f {} {path} user.c", file.display()));
    // The name "c" of the user's attributes becomes that of the encryption's.
    let mut bytes = std::fs::read(img).unwrap();
    let values = bytes.windows(40).enumerate().filter(|(_, w)| *w == context);
    let places: Vec<usize> = values.map(|(at, _)| at).collect();
    for at in places {
        let from = at - 400;
        let entry = bytes[from..at].windows(2).rposition(|w| w == [1, 1]);
        if let Some(found) = entry {
            bytes[from + found + 1] = 9;
        }
    }
    std::fs::write(img, bytes).unwrap();
}

/// Defect: symbolic links in encrypted directories were called damage, and names too short to be encrypted were missed.
#[test]
fn encrypted_links_and_names() {
    let features = "encrypt,^metadata_csum,^dir_index";
    let base = Base::new(&["-t", "ext4", "-b", "1024", "-O", features]);
    let dir = base.dir.path();
    let with = |name: &str| {
        let img = base.copy();
        debugfs(&img, "mkdir e");
        debugfs(&img, &format!("ln f e/{name}"));
        debugfs(&img, "sif f links_count 2");
        debugfs(&img, "sif e flags 0x80800");
        encrypt(&img, "e", dir);
        judge(&img, BAD, "a file that is not encrypted");
        debugfs(&img, "sif f flags 0x80800");
        encrypt(&img, "f", dir);
        img
    };
    judge(&with("sixteen-bytes-16"), CLEAN, "a name of 16 bytes");
    judge(&with("fifteen-bytes15"), BAD, "a name of 15 bytes");
    // A target is its length in two bytes, and the cipher's output. Of these sizes one fits into the inode.
    for (flags, size) in [("0x800", 34), ("0x80800", 130)] {
        let img = base.copy();
        let target = format!("T#{}", "x".repeat(size - 2));
        debugfs(&img, &format!("symlink s {target}"));
        debugfs(&img, &format!("sif s flags {flags}"));
        encrypt(&img, "s", dir);
        let length = u8::try_from(size - 2).unwrap();
        assert_eq!(patch(&img, b"T#xxxxxx", &[length, 0, 0, 1, 0, 2, 3, 4]), 1);
        judge(&img, CLEAN, "an encrypted target");
        patch(
            &img,
            &[length, 0, 0, 1, 0, 2, 3, 4],
            &[length - 1, 0, 0, 1, 0, 2, 3, 4],
        );
        judge(&img, BAD, "an encrypted target of another length");
    }
}

/// Lustre's form of a value in an inode of its own: no hash and no count of users, but the number and generation of the inode with the
/// attribute. Defect: called damage in four ways.
#[test]
fn values_of_lustre() {
    let features = "ea_inode,^metadata_csum";
    let base = Base::new(&["-t", "ext4", "-b", "1024", "-O", features]);
    let img = base.copy();
    let value = base.dir.path().join("value");
    std::fs::write(&value, [b'v'; 5000]).unwrap();
    debugfs(&img, &format!("ea_set -f {} f user.big", value.display()));
    repaired(&img);
    judge(&img, CLEAN, "as Linux makes it");
    let owner = base.ino("f");
    let flags = |n: &u32| debugfs(&img, &format!("stat <{n}>")).contains("Flags: 0x2");
    let holder = (12..200).find(flags).unwrap();
    let set = |ino: u32, what: &str| _ = debugfs(&img, &format!("sif <{ino}> {what}"));
    set(owner, "generation 77");
    set(holder, "atime @0");
    set(holder, "ctime @0");
    set(holder, "version 0");
    judge(&img, BAD, "without a hash");
    set(holder, "generation 77");
    set(holder, &format!("mtime @{owner}"));
    // The space of the value does not count for its owner.
    repaired(&img);
    judge(&img, CLEAN, "with the number of its owner");
    set(owner, "generation 78");
    judge(&img, BAD, "with another generation");
}
